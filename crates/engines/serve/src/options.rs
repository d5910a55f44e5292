//! Server options.

use crate::choice::{Durability, Model, Sharing, ShowMode, StoreKind};
use crate::limits::Limits;
use ioloom_exchange::{Access, Settings};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum service time.
pub const SERVICE_TIME_MAX: Duration = Duration::from_secs(1);

/// The store of a server.
#[derive(Debug, Clone)]
pub struct StoreChoice {
    /// Kind of the store.
    pub kind: StoreKind,
    /// File or directory of the store.
    pub path: PathBuf,
    /// Whether to continue without acknowledged orders that the store has lost.
    pub accept_loss: bool,
}

/// Default number of database connections: one for orders, plus one so a list does not wait for a
/// commit. More connections do not increase the order rate if the orders share stocks, which stay
/// locked until the commit.
const DATABASE_CONNECTIONS: usize = 2;
/// Environment variable with the connection string, used if no option specifies a database. All
/// users can read the arguments of a process, so passwords belong here.
pub const DATABASE_VARIABLE: &str = "IOLOOM_DATABASE";

/// A PostgreSQL database that stores stocks and orders, possibly for several servers.
#[derive(Clone)]
pub struct DatabaseChoice {
    /// Connection string: a URL or `host=… dbname=…`. May contain a password, which is never
    /// printed.
    pub connection_string: String,
    /// Number of connections.
    pub connections: usize,
}

impl DatabaseChoice {
    /// Returns the default number of connections: one if orders are executed one at a time.
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

/// The certificate and private key of a server, both in PEM format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by any intermediate certificates.
    pub certificate: PathBuf,
    /// The private key, which other users must not be able to access.
    pub key: PathBuf,
}

/// Server options.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Concurrency model.
    pub model: Model,
    /// How threads share the stocks.
    pub sharing: Sharing,
    /// What a list of all stocks contains.
    pub show: ShowMode,
    /// When an order counts as durable.
    pub durability: Durability,
    /// The order store; unused with durability `none`.
    pub store: StoreChoice,
    /// A database that replaces the store, if any; `sharing` must then be `database`.
    pub database: Option<DatabaseChoice>,
    /// The stock file.
    pub stock: PathBuf,
    /// Listen address for the protocol variant in `settings`.
    pub listen: SocketAddr,
    /// Second listen address, with unpadded answers, if any.
    pub listen_line: Option<SocketAddr>,
    /// Variant of the original protocol.
    pub settings: Settings,
    /// Limits.
    pub limits: Limits,
    /// Number of cores, for models with one loop per core.
    pub cores: usize,
    /// The tokens, one of which clients must present, if any.
    pub access: Option<Access>,
    /// Enables TLS on every port.
    pub tls: Option<TlsFiles>,
    /// Artificial CPU time per order and list, at most [`SERVICE_TIME_MAX`]; for experiments.
    pub service_time: Duration,
    /// Whether to spend that time while holding the stocks of the request rather than before; see
    /// [`held_refusal`](crate::held_refusal).
    pub service_in_lock: bool,
}
