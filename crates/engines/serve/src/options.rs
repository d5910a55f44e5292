//! Options of a server.

use crate::choice::{Durability, Model, Sharing, ShowMode, StoreKind};
use crate::limits::Limits;
use ioloom_exchange::{Settings, Token};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The longest service time that can be asked for.
pub const SERVICE_TIME_MAX: Duration = Duration::from_secs(1);

/// Where orders are kept.
#[derive(Debug, Clone)]
pub struct StoreChoice {
    /// By what.
    pub kind: StoreKind,
    /// In which file.
    pub path: PathBuf,
}

/// Connections to a database, where nothing else is asked for: a list need not wait for a commit. More
/// bring no more orders where these share stocks, which stay locked until the commit.
const DATABASE_CONNECTIONS: usize = 2;
/// The variable that names the database where nothing else does. What a program is started with can be
/// read by everybody on the machine, so this is the place for a password.
pub const DATABASE_VARIABLE: &str = "IOLOOM_DATABASE";

/// A PostgreSQL database that keeps stocks and orders, for several servers at once.
#[derive(Clone)]
pub struct DatabaseChoice {
    /// How it is reached: a URL, or words `host=… dbname=…`. May hold a password, which is never told.
    pub connection_string: String,
    /// Connections to it.
    pub connections: usize,
}

impl DatabaseChoice {
    /// Connections where nothing else is asked for; one where one order goes after the other.
    pub fn usual_connections(durability: Durability, model: Model) -> usize {
        let is_one = durability == Durability::Each || model == Model::IoThreads;
        if is_one { 1 } else { DATABASE_CONNECTIONS }
    }
}

impl fmt::Debug for DatabaseChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("DatabaseChoice");
        out.field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// What a server proves who it is by, both in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, with those between it and its authority behind it.
    pub certificate: PathBuf,
    /// The key of the certificate, which not everybody may read.
    pub key: PathBuf,
}

/// Everything that a server is told.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Which threads do what.
    pub model: Model,
    /// How they share the stocks.
    pub sharing: Sharing,
    /// What a list of all stocks shows.
    pub show: ShowMode,
    /// When an order counts as safe.
    pub durability: Durability,
    /// Where orders are kept; not used with durability `none`.
    pub store: StoreChoice,
    /// What keeps stocks and orders in place of a store, if anything; then `sharing` is `database`.
    pub database: Option<DatabaseChoice>,
    /// The stock file.
    pub stock: PathBuf,
    /// Where it listens, with the first dialect of `settings`.
    pub listen: SocketAddr,
    /// Where it listens for clients that want lines without filling, if anywhere.
    pub listen_line: Option<SocketAddr>,
    /// How the original protocol is spoken.
    pub settings: Settings,
    /// Bounds.
    pub limits: Limits,
    /// Cores to use, for models that have a loop on each.
    pub cores: usize,
    /// What clients have to show before they are served, if anything.
    pub token: Option<Token>,
    /// TLS on every port, if anything.
    pub tls: Option<TlsFiles>,
    /// What is called with a word about a connection that speaks no TLS, at most once a second; from
    /// the thread that serves.
    pub warn: Option<fn(&str)>,
    /// Processor time that each order and each list takes beside its own, at most
    /// [`SERVICE_TIME_MAX`]; for experiments.
    pub service_time: Duration,
    /// Whether that time is spent with what the request needs held, and not before; see
    /// [`held_refusal`](crate::held_refusal).
    pub service_in_lock: bool,
}
