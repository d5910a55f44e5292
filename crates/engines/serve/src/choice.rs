//! The building blocks of a server, and which of them can be combined.

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
            /// All variants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the name used on the command line.
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
                    format!("unknown {} {word:?}; choose one of {}", $what, all.join(", "))
                })
            }
        }
    };
}

words! {
    /// How threads divide the work, and how they wait.
    Model, "model":
    /// One connection at a time.
    Iterative = "iterative",
    /// One thread per connection.
    Thread = "thread",
    /// A pool of threads, each serving one connection until it closes; other connections wait in a
    /// bounded queue.
    Pool = "pool",
    /// One thread reads and writes; others execute requests.
    RequestPool = "request-pool",
    /// One thread, `select`.
    Select = "select",
    /// One thread, `poll`.
    Poll = "poll",
    /// One thread, level-triggered epoll.
    Epoll = "epoll",
    /// One thread, edge-triggered epoll.
    EpollEdge = "epoll-et",
    /// One thread per core with its own listener, level-triggered epoll.
    ReusePort = "reuseport",
    /// Several threads read and write; one executes all requests.
    IoThreads = "io-threads",
    /// One thread, io_uring with single-shot requests.
    Uring = "uring",
    /// One thread, io_uring with multishot requests and shared buffers.
    UringMany = "uring-multishot",
    /// Like `uring-multishot`, with one loop and listener per core.
    UringPerCore = "uring-per-core",
    /// Asynchronous tasks on work-stealing threads.
    Tokio = "tokio",
}

words! {
    /// How threads share the stocks.
    Sharing, "sharing":
    /// One lock for all stocks.
    Global = "global",
    /// One lock per stock.
    Stock = "stock",
    /// One reader-writer lock per stock, as in the assignment.
    ReadWrite = "rw",
    /// One atomic number per stock.
    Atomic = "atomic",
    /// One thread owns all stocks.
    Writer = "writer",
    /// One thread per part of the stocks, with one part per core.
    Shards = "shards",
    /// A database shares the stocks, even between processes.
    Database = "database",
}

words! {
    /// When an order counts as durable.
    Durability, "durability":
    /// Never; orders are only in memory.
    None = "none",
    /// Once the kernel has it: orders survive a crash of the program, but not of the machine.
    Os = "os",
    /// Once it is on disk; concurrent orders share a sync.
    Group = "group",
    /// Once it is on disk; each order is synced on its own.
    Each = "each",
}

words! {
    /// What a list of all stocks contains.
    ShowMode, "show mode":
    /// All stocks at one moment.
    Atomic = "atomic",
    /// Each stock at the moment when it is read.
    PerStock = "per-stock",
}

words! {
    /// Where orders are stored.
    StoreKind, "store":
    /// An SQLite database with a write-ahead log.
    Sqlite = "sqlite",
    /// A redb database: copy-on-write trees, each commit synced.
    Redb = "redb",
    /// A fjall database: a log, with trees merged in the background.
    Fjall = "fjall",
    /// A plain log: write, then sync.
    Log = "log",
    /// A plain log opened with `O_DSYNC`.
    LogDsync = "log-dsync",
    /// A plain log written with `O_DIRECT` into preallocated blocks.
    LogDirect = "log-direct",
    /// A plain log with write and sync linked in io_uring.
    LogUring = "log-uring",
}

/// Where orders are stored: in a store of this server or in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OrderStore {
    /// In a file or directory used only by this server.
    Own(StoreKind),
    /// In a PostgreSQL database, which can be shared by several servers.
    Postgres,
}

impl OrderStore {
    /// Returns the name used on the command line.
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

/// Error for builds without tokio.
pub(crate) const WITHOUT_TOKIO: &str = "this build does not support model tokio; rebuild with the \
     feature 'tokio' of ioloom-serve, or choose another model, such as epoll";

/// Error for builds without PostgreSQL support.
#[cfg(not(feature = "postgres"))]
pub(crate) const WITHOUT_POSTGRES: &str = "this build does not support store postgres; rebuild with \
     the feature 'postgres' of ioloom-serve, or choose another store, such as sqlite";

/// Returns why a model, sharing strategy and durability cannot be combined, or `None` if they can.
pub fn refusal(model: Model, sharing: Sharing, durability: Durability) -> Option<String> {
    if sharing == Sharing::Database {
        return Some(
            "sharing database requires a database; use --store postgres with --database, or \
             another sharing"
                .to_owned(),
        );
    }
    if sharing == Sharing::Atomic && durability != Durability::None {
        return Some(format!(
            "sharing atomic does not support durability {durability}: changing a stock and \
             numbering the order are two steps, so the log could disagree with the stocks; use \
             durability none or another sharing"
        ));
    }
    if let Some(reason) = model_refusal(model) {
        return Some(reason);
    }
    if model == Model::IoThreads && sharing != Sharing::Writer {
        return Some(format!(
            "model io-threads executes all requests on one thread and does not support sharing \
             {sharing}; use sharing writer"
        ));
    }
    None
}

/// Returns why this build does not support a model, or `None` if it does.
pub(crate) fn model_refusal(model: Model) -> Option<String> {
    (model == Model::Tokio && !cfg!(feature = "tokio")).then(|| WITHOUT_TOKIO.to_owned())
}

/// Returns why lists read stock by stock would not differ from atomic ones, or `None` if they can.
pub fn show_refusal(model: Model, sharing: Sharing, show: ShowMode) -> Option<String> {
    let by_stock =
        matches!(sharing, Sharing::Stock | Sharing::ReadWrite | Sharing::Atomic | Sharing::Shards);
    if show == ShowMode::Atomic || sharing == Sharing::Database {
        return None;
    }
    if !by_stock {
        return Some(format!(
            "--show per-stock has no effect with sharing {sharing}, which executes one request at a \
             time, so that every list is atomic; omit it, or use sharing stock, rw, atomic or shards"
        ));
    }
    (!model.executes_on_several_threads()).then(|| {
        format!(
            "--show per-stock has no effect with model {model}, which executes all requests on one \
             thread, so that every list is atomic; omit it, or use model thread, pool, \
             request-pool, reuseport, uring-per-core or tokio"
        )
    })
}

/// Returns why the service time cannot be spent while stocks are locked, or `None` if it can.
pub fn held_refusal(sharing: Sharing, show: ShowMode) -> Option<String> {
    if sharing == Sharing::Atomic {
        return Some(
            "sharing atomic does not lock anything while it executes an order, so no time can be \
             spent in a lock; omit --service-in-lock, or use another sharing, such as stock"
                .to_owned(),
        );
    }
    if sharing == Sharing::Database {
        return Some(
            "sharing database locks its stocks inside the database, where this program cannot \
             spend time; omit --service-in-lock, or use another sharing"
                .to_owned(),
        );
    }
    (show == ShowMode::PerStock).then(|| {
        "--show per-stock reads stock by stock and never holds all of them, so there is no lock to \
         spend time in; omit --service-in-lock, or use --show atomic"
            .to_owned()
    })
}

/// Returns why a store and a durability cannot be combined, or `None` if they can.
pub fn store_refusal(store: StoreKind, durability: Durability) -> Option<String> {
    let without_os = matches!(store, StoreKind::Redb | StoreKind::LogDsync);
    (without_os && durability == Durability::Os).then(|| {
        format!(
            "store {store} does not support durability os: its commits always reach the disk; use \
             group or each, or another store"
        )
    })
}

impl StoreKind {
    /// Returns the default store for a new server. A plain log replaces the engine only if it answers more
    /// than 1.5 times as many requests per second in every measurement, as the geometric mean over six
    /// loads: 1.98 at `os`; 1.53 and then 1.47 at `group` (`docs/serve.md`).
    pub fn default_for(durability: Durability) -> Self {
        match durability {
            Durability::Os => Self::Log,
            Durability::None | Durability::Group | Durability::Each => Self::Sqlite,
        }
    }
}

impl Model {
    /// Returns true if the model requires io_uring.
    pub fn needs_ring(self) -> bool {
        matches!(self, Self::Uring | Self::UringMany | Self::UringPerCore)
    }

    /// Returns true if requests can be executed at the same time.
    fn executes_on_several_threads(self) -> bool {
        matches!(
            self,
            Self::Thread
                | Self::Pool
                | Self::RequestPool
                | Self::ReusePort
                | Self::UringPerCore
                | Self::Tokio
        )
    }

    /// Returns true if each loop of the model has a separate listener on the same port.
    pub(crate) fn shares_port(self) -> bool {
        matches!(self, Self::ReusePort | Self::UringPerCore)
    }

    /// Returns the model's default sharing strategy. With a single thread, an uncontended lock
    /// costs nothing.
    pub fn default_sharing(self) -> Sharing {
        match self {
            Self::IoThreads => Sharing::Writer,
            _ => Sharing::Global,
        }
    }
}
