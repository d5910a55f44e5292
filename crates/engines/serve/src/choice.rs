//! What a server is built from, and what goes together.

use std::fmt;
use std::str::FromStr;

macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal: $($(#[$each:meta])* $variant:ident = $word:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The word for it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(word: &str) -> Result<Self, String> {
                Self::ALL.iter().copied().find(|choice| choice.name() == word).ok_or_else(|| {
                    let all: Vec<_> = Self::ALL.iter().map(|choice| choice.name()).collect();
                    format!("no {} is called {word:?}; choose one of {}", $what, all.join(", "))
                })
            }
        }
    };
}

words! {
    /// Which threads do what, and how they wait.
    Model, "model":
    /// One connection after the other.
    Iterative = "iterative",
    /// A thread for each connection.
    Thread = "thread",
    /// Threads that each serve one connection until it ends; others wait in a bounded buffer.
    Pool = "pool",
    /// One thread reads and writes, others carry out requests.
    RequestPool = "request-pool",
    /// One thread, `select`.
    Select = "select",
    /// One thread, `poll`.
    Poll = "poll",
    /// One thread, epoll by level.
    Epoll = "epoll",
    /// One thread, epoll by edge.
    EpollEdge = "epoll-et",
    /// A thread with a listener of its own on each core, epoll by level.
    ReusePort = "reuseport",
    /// Threads that read and write, and one that carries out all requests.
    IoThreads = "io-threads",
    /// One thread, io_uring with a request for each thing.
    Uring = "uring",
    /// One thread, io_uring with requests that go on and shared buffers.
    UringMany = "uring-multishot",
    /// The same on each core, with a listener of its own.
    UringPerCore = "uring-per-core",
    /// Tasks on threads that steal from each other.
    Tokio = "tokio",
}

words! {
    /// How threads share the stocks.
    Sharing, "sharing":
    /// One lock around everything.
    Global = "global",
    /// A lock for each stock.
    Stock = "stock",
    /// A reader-writer lock for each stock, as in the assignment.
    ReadWrite = "rw",
    /// An atomic number for each stock.
    Atomic = "atomic",
    /// One thread alone touches the stocks.
    Writer = "writer",
    /// A thread for each part of the stocks, as many as cores.
    Shards = "shards",
    /// A database shares them, between processes too.
    Database = "database",
}

words! {
    /// When an order counts as safe.
    Durability, "durability":
    /// Never: memory only.
    None = "none",
    /// When the system has it: it survives the end of the program, not of the machine.
    Os = "os",
    /// When the disk has it, together with the orders beside it.
    Group = "group",
    /// When the disk has it, each order by itself.
    Each = "each",
}

words! {
    /// What a list of all stocks shows.
    ShowMode, "way to show":
    /// All stocks at one moment.
    Atomic = "atomic",
    /// Each stock at the moment when its turn comes.
    PerStock = "per-stock",
}

words! {
    /// Where orders are kept.
    StoreKind, "store":
    /// An SQLite database with a write-ahead log.
    Sqlite = "sqlite",
    /// A redb database: copy-on-write trees, each commit synced.
    Redb = "redb",
    /// A fjall database: a log and trees that are merged in the background.
    Fjall = "fjall",
    /// A log and nothing else: written, then synced.
    Log = "log",
    /// The same, each write synced by itself.
    LogDsync = "log-dsync",
    /// The same, past the page cache into blocks that are there.
    LogDirect = "log-direct",
    /// The same, write and sync linked in io_uring.
    LogUring = "log-uring",
}

/// Where orders are kept, with a database among it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStore {
    /// In a file or a directory of the server alone.
    Own(StoreKind),
    /// In a PostgreSQL database, before which others may stand.
    Postgres,
}

impl OrderStore {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own(kind) => kind.name(),
            Self::Postgres => "postgres",
        }
    }
}

impl fmt::Display for OrderStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for OrderStore {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let postgres = Self::Postgres.name();
        if word == postgres {
            return Ok(Self::Postgres);
        }
        word.parse().map(Self::Own).map_err(|e: String| format!("{e}, {postgres}"))
    }
}

/// What is said where the model tokio was left out.
pub(crate) const WITHOUT_TOKIO: &str = "this program was built without the model tokio; build it \
     with the feature tokio of ioloom-serve, or choose another model, such as epoll";

/// What is said where the database was left out.
#[cfg(not(feature = "postgres"))]
pub(crate) const WITHOUT_POSTGRES: &str = "this program was built without store postgres; build it \
     with the feature postgres of ioloom-serve, or choose another store, such as sqlite";

/// Why a sharing and a durability do not go together, if they do not.
pub fn refusal(model: Model, sharing: Sharing, durability: Durability) -> Option<String> {
    if sharing == Sharing::Database {
        return Some(
            "sharing database needs a database: use --store postgres with --database, or another \
             sharing"
                .to_owned(),
        );
    }
    if sharing == Sharing::Atomic && durability != Durability::None {
        return Some(format!(
            "sharing atomic cannot be durable: the change and its number in the log are two steps, \
             so the log could have another order than the stocks; use durability none, or another \
             sharing than atomic with {durability}"
        ));
    }
    if let Some(reason) = model_refusal(model) {
        return Some(reason);
    }
    if model == Model::IoThreads && sharing != Sharing::Writer {
        return Some(format!(
            "model io-threads means one thread that carries out all requests; use sharing writer \
             with it, not {sharing}"
        ));
    }
    None
}

/// Why a model cannot be had in this program, if it cannot.
pub(crate) fn model_refusal(model: Model) -> Option<String> {
    (model == Model::Tokio && !cfg!(feature = "tokio")).then(|| WITHOUT_TOKIO.to_owned())
}

/// Why the service time of a sharing cannot be spent with the stocks held, if it cannot.
pub fn held_refusal(sharing: Sharing, show: ShowMode) -> Option<String> {
    if sharing == Sharing::Atomic {
        return Some(
            "sharing atomic holds nothing while it carries out an order, so no time can be spent \
             there; leave --service-in-lock out, or use another sharing, such as stock"
                .to_owned(),
        );
    }
    if sharing == Sharing::Database {
        return Some(
            "sharing database holds its stocks in the database, where this program can spend no \
             time; leave --service-in-lock out, or use another sharing"
                .to_owned(),
        );
    }
    (show == ShowMode::PerStock).then(|| {
        "a list stock by stock lets go of each stock before it takes the next one, so there is no \
         moment in which its time could be spent; leave --service-in-lock out, or use --show atomic"
            .to_owned()
    })
}

/// Why a store and a durability do not go together, if they do not.
pub fn store_refusal(store: StoreKind, durability: Durability) -> Option<String> {
    let without_os = matches!(store, StoreKind::Redb | StoreKind::LogDsync);
    (without_os && durability == Durability::Os).then(|| {
        format!(
            "store {store} has nothing between memory and disk, so durability os cannot be had with \
             it; use group or each, or another store than {store} with os"
        )
    })
}

impl StoreKind {
    /// The store where none was asked for and none is there, chosen by measurement: a raw log takes
    /// the place of the engine where it is more than 1.5 times as fast, and that was only where
    /// nothing is synced (`results/serve-vs-redis/2026-11-22-intel-xeon-2c` and
    /// `results/superseded/serve-vs-redis-group/2026-11-22-intel-xeon-2c-empty-logs`).
    pub fn default_for(durability: Durability) -> Self {
        match durability {
            Durability::Os => Self::Log,
            Durability::None | Durability::Group | Durability::Each => Self::Sqlite,
        }
    }
}

impl Model {
    /// Whether it needs io_uring.
    pub fn needs_ring(self) -> bool {
        matches!(self, Self::Uring | Self::UringMany | Self::UringPerCore)
    }

    /// Whether each of its loops has a listener of its own.
    pub(crate) fn shares_port(self) -> bool {
        matches!(self, Self::ReusePort | Self::UringPerCore)
    }

    /// The sharing that fits best where none was asked for: a lock that is never fought for costs
    /// nothing with one thread.
    pub fn default_sharing(self) -> Sharing {
        match self {
            Self::IoThreads => Sharing::Writer,
            _ => Sharing::Global,
        }
    }
}
