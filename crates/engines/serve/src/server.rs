//! A server: put together from the choices, run, stopped, and its stocks written down.

#[cfg(not(feature = "postgres"))]
use crate::choice::WITHOUT_POSTGRES;
use crate::choice::{Durability, Model, Sharing, ShowMode, StoreKind};
use crate::choice::{held_refusal, model_refusal, refusal, store_refusal};
#[cfg(feature = "postgres")]
use crate::database;
use crate::error::ServeError;
use crate::journal::Journal;
use crate::limits::Limits;
use crate::model::{self, Port};
use crate::service::{Counts, Made, Service};
use crate::sharing::{self, Strategy};
use crate::{stock_file, store};
use ioloom_exchange::{ClassicForm, Exchange, Settings, State, Token};
use ioloom_sys_net::ring::NetRing;
use ioloom_sys_net::{Listener, Waker};
use ioloom_tls::Identity;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 4096;
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
    pub words: String,
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

/// How a server that was asked to stop has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeSummary {
    /// Orders that were answered as carried out, repetitions among them.
    pub done: u64,
    /// Connections that were accepted.
    pub connections: u64,
    /// The number of the latest order in the log.
    pub seq: u64,
}

/// A server that listens, and is not yet serving.
pub struct Server {
    service: Arc<Service>,
    ports: Vec<Vec<Port>>,
    addresses: Vec<SocketAddr>,
    stocks: Arc<StockFile>,
    is_new_store: Option<bool>,
    place: Option<String>,
}

/// Asks a server to stop, from any thread.
#[derive(Clone)]
pub struct StopHandle(Weak<Service>);

impl StopHandle {
    /// Asks it. It finishes the requests that have arrived, writes the stock file and ends.
    pub fn stop(&self) {
        if let Some(service) = self.0.upgrade() {
            service.stop();
        }
    }
}

/// The stock file and what was last written to it.
struct StockFile {
    path: PathBuf,
    service: OnceLock<Weak<Service>>,
    /// The number of the order that it holds, and its hash.
    written: Mutex<(u64, u64)>,
    error: Mutex<Option<ServeError>>,
}

impl StockFile {
    /// Writes the stocks down unless nothing has changed. Where a database does not list them, only
    /// the last time is an error: until then the file is older, and nothing is lost.
    fn write(&self, is_last: bool) {
        let Some(service) = self.service.get().and_then(Weak::upgrade) else { return };
        let mut written = self.written.lock().expect("no panic under this lock");
        if let Err(error) = write_stocks(&self.path, &service, &mut written) {
            if matches!(error, ServeError::Database { .. }) && !is_last {
                return;
            }
            if matches!(error, ServeError::Store(_)) {
                service.journal.give_up();
            }
            *self.error.lock().expect("no panic under this lock") = Some(error);
            service.stop();
        }
    }
}

fn write_stocks(
    path: &Path,
    service: &Service,
    written: &mut (u64, u64),
) -> Result<(), ServeError> {
    let (exchange, seq) = service.strategy.snapshot()?;
    if seq == written.0 || service.journal.wait(seq).is_err() {
        return Ok(());
    }
    let text = exchange.to_text();
    let hash = stock_file::hash(&text);
    // Between these steps either file may be found.
    service.journal.with_store(|store| store.set_stock_hashes(&[written.1, hash])).transpose()?;
    stock_file::write(path, &text)?;
    service.journal.with_store(|store| store.set_stock_hashes(&[hash])).transpose()?;
    *written = (seq, hash);
    Ok(())
}

impl Server {
    /// Reads the stocks, opens the store and listens.
    pub fn start(config: &ServeOptions) -> Result<Self, ServeError> {
        check(config)?;
        probe_ring(config.model)?;
        let identity = config.tls.as_ref().map(identity).transpose()?;
        // A database may need no stock file.
        let initial = match &config.database {
            None => Some(stock_file::read(&config.stock)?),
            Some(_) => None,
        };
        // Listening comes first: a second server on the same port must not touch the store.
        let loops = model::loops(config.model, config.cores);
        let (ports, addresses) = listen(config, loops)?;
        let began = match initial {
            Some((stocks, file_hash)) => begin_with_store(config, stocks, file_hash)?,
            None => begin_with_database(config)?,
        };
        let wakers = (0..loops.max(2)).map(|_| Waker::new().map(Arc::new));
        let wakers = wakers
            .collect::<io::Result<Vec<_>>>()
            .map_err(ServeError::system("make an event descriptor"))?;
        let stocks = Arc::new(StockFile {
            path: config.stock.clone(),
            service: OnceLock::new(),
            written: Mutex::new(began.written),
            error: Mutex::new(None),
        });
        let for_idle = Arc::clone(&stocks);
        let made = Made {
            limits: config.limits,
            model: config.model,
            sharing: config.sharing,
            show: config.show,
            durability: config.durability,
            store: began.store,
            strategy: began.strategy,
            journal: began.journal,
            wakers,
            loops,
            token: config.token.clone(),
            identity,
            warn: config.warn,
            service_time: service_times(config).0,
            on_idle: Box::new(move || for_idle.write(false)),
        };
        let service = Arc::new(Service::new(made, config.settings, &began.stocks));
        let _ = stocks.service.set(Arc::downgrade(&service));
        let (is_new_store, place) = (began.is_new, began.place);
        Ok(Self { service, ports, addresses, stocks, is_new_store, place })
    }

    /// Where it listens: first the main address, then the one for lines.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Whether the store was made now; `None` without a store.
    pub fn is_new_store(&self) -> Option<bool> {
        self.is_new_store
    }

    /// Where the database is and its name, without a password; `None` without one.
    pub fn database(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// The number of the latest order in the log.
    pub fn seq(&self) -> u64 {
        self.service.journal.latest()
    }

    /// Its counts now.
    pub fn counts(&self) -> &Counts {
        &self.service.counts
    }

    /// What stops it.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle(Arc::downgrade(&self.service))
    }

    /// Serves until it is asked to stop, then writes the stock file.
    pub fn run(self) -> Result<ServeSummary, ServeError> {
        let ran = model::run(self.service.model, &self.service, self.ports);
        self.service.stop();
        if let Some(error) = self.service.journal.take_error() {
            return Err(error.into());
        }
        ran?;
        self.stocks.write(true);
        if let Some(error) = self.stocks.error.lock().expect("no panic under this lock").take() {
            return Err(error);
        }
        let counts = &self.service.counts;
        let of =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        Ok(ServeSummary {
            done: of(&counts.done),
            connections: of(&counts.accepted),
            seq: self.service.journal.latest(),
        })
    }
}

/// Refuses what does not go together.
fn check(config: &ServeOptions) -> Result<(), ServeError> {
    let refused = match &config.database {
        None => refusal(config.model, config.sharing, config.durability)
            .or_else(|| store_refusal(config.store.kind, config.durability)),
        Some(choice) => model_refusal(config.model).or_else(|| database_refusal(config, choice)),
    };
    if let Some(reason) = refused {
        return Err(ServeError::Refused(reason));
    }
    if config.service_time > SERVICE_TIME_MAX {
        return Err(ServeError::Refused(format!(
            "a service time of {:?} would keep every client waiting; use {SERVICE_TIME_MAX:?} or \
             less",
            config.service_time
        )));
    }
    let held = held_refusal(config.sharing, config.show).filter(|_| config.service_in_lock);
    held.map_or(Ok(()), |reason| Err(ServeError::Refused(reason)))
}

/// The time that a request takes before it is carried out, and with its stocks held.
fn service_times(config: &ServeOptions) -> (Duration, Duration) {
    if config.service_in_lock {
        (Duration::ZERO, config.service_time)
    } else {
        (config.service_time, Duration::ZERO)
    }
}

/// Refuses a model that needs io_uring where the system refuses that; many containers do.
fn probe_ring(model: Model) -> Result<(), ServeError> {
    if !model.needs_ring() {
        return Ok(());
    }
    // On a thread of its own: what the kernel clears up after a ring interrupts calls of the thread
    // that made it.
    let many = model != Model::Uring;
    let made = std::thread::spawn(move || NetRing::new(many).map(drop)).join();
    made.unwrap_or_else(|_| Err(io::Error::other("it panicked"))).map_err(|reason| {
        ServeError::Refused(format!(
            "model {model} needs io_uring, and the system refuses it: {reason}; choose another \
             model, such as epoll"
        ))
    })
}

fn identity(files: &TlsFiles) -> Result<Identity, ServeError> {
    let read = Identity::read(&files.certificate, &files.key);
    read.map_err(|error| ServeError::Refused(error.to_string()))
}

/// The listeners of each loop, and the addresses.
fn listen(
    config: &ServeOptions,
    loops: usize,
) -> Result<(Vec<Vec<Port>>, Vec<SocketAddr>), ServeError> {
    let shared = config.model.shares_port();
    let groups = if shared { loops } else { 1 };
    let line = Settings { classic: ClassicForm::Line, ..config.settings };
    let asked = [Some((config.listen, config.settings)), config.listen_line.map(|at| (at, line))];
    let mut all: Vec<Vec<Port>> = (0..groups).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for (mut address, settings) in asked.into_iter().flatten() {
        for group in &mut all {
            let listener = bind(address, shared)?;
            // Port 0 became a port, and the others must share it.
            address = listener.address().map_err(ServeError::system("ask for the address"))?;
            group.push(Port { listener, settings });
        }
        addresses.push(address);
    }
    Ok((all, addresses))
}

fn bind(address: SocketAddr, shared: bool) -> Result<Listener, ServeError> {
    Listener::bind(address, BACKLOG, shared).map_err(|reason| match reason.kind() {
        io::ErrorKind::AddrInUse => ServeError::PortTaken(address),
        _ => ServeError::Listen { address, reason },
    })
}

/// What a server begins with.
struct Began {
    strategy: Box<dyn Strategy>,
    journal: Arc<Journal>,
    stocks: Exchange,
    /// Whether what keeps orders was made now; `None` if nothing keeps them.
    is_new: Option<bool>,
    /// The number of the order that the stock file holds, and its hash.
    written: (u64, u64),
    store: String,
    place: Option<String>,
}

fn begin_with_store(
    config: &ServeOptions,
    initial: Exchange,
    file_hash: u64,
) -> Result<Began, ServeError> {
    let (state, store, is_new) = open_store(config, initial, file_hash)?;
    let journal = Arc::new(Journal::new(state.seq(), store, config.durability));
    let (stocks, seq) = (state.exchange().clone(), state.seq());
    let strategy = sharing::make(
        config.sharing,
        config.show,
        state,
        &journal,
        config.cores,
        service_times(config).1,
    )
    .map_err(ServeError::system("start a thread"))?;
    // A store may be ahead of the file.
    let written = (if is_new == Some(false) { u64::MAX } else { seq }, file_hash);
    let store = is_new.map_or("none", |_| config.store.kind.name()).to_owned();
    Ok(Began { strategy, journal, stocks, is_new, written, store, place: None })
}

#[cfg(feature = "postgres")]
fn begin_with_database(config: &ServeOptions) -> Result<Began, ServeError> {
    let choice = config.database.as_ref().expect("it was asked for");
    let opened = database::open(choice, config.durability, &config.stock)?;
    let journal = Arc::new(Journal::new(opened.seq, None, config.durability));
    let strategy = sharing::database::Database::new(
        &opened,
        Arc::clone(&journal),
        config.durability,
        choice.connections,
    )?;
    let store =
        format!("postgres, synchronous_commit {}", database::synchronous_commit(config.durability));
    Ok(Began {
        strategy: Box::new(strategy),
        journal,
        is_new: Some(opened.is_new),
        // A filled database is ahead of the file.
        written: (if opened.is_new { opened.seq } else { u64::MAX }, 0),
        store,
        place: Some(opened.access.place().to_owned()),
        stocks: opened.stocks,
    })
}

#[cfg(feature = "postgres")]
fn database_refusal(config: &ServeOptions, choice: &DatabaseChoice) -> Option<String> {
    database::refusal(config, choice.connections)
}

#[cfg(not(feature = "postgres"))]
fn begin_with_database(_: &ServeOptions) -> Result<Began, ServeError> {
    Err(ServeError::Refused(WITHOUT_POSTGRES.to_owned()))
}

#[cfg(not(feature = "postgres"))]
fn database_refusal(_: &ServeOptions, _: &DatabaseChoice) -> Option<String> {
    Some(WITHOUT_POSTGRES.to_owned())
}

type OpenedStore = (State, Option<Box<dyn store::Store>>, Option<bool>);

fn open_store(
    config: &ServeOptions,
    initial: Exchange,
    file_hash: u64,
) -> Result<OpenedStore, ServeError> {
    if config.durability == Durability::None {
        return Ok((State::new(initial, 0), None, None));
    }
    let choice = &config.store;
    let mut opened =
        store::open(choice.kind, &choice.path, config.durability, &initial, file_hash)?;
    let is_same = *opened.state.exchange() == initial;
    if !is_same && !opened.store.stock_hashes()?.contains(&file_hash) {
        return Err(ServeError::Refused(format!(
            "the stock file {} was changed by somebody else since the store {} was made from it; \
             restore the file to go on with the store, or remove the store to begin anew from the \
             file",
            config.stock.display(),
            choice.path.display()
        )));
    }
    Ok((opened.state, Some(opened.store), Some(opened.is_new)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreError};
    use ioloom_exchange::Record;

    /// A store that keeps orders and fails at anything else.
    struct Failing;

    impl Store for Failing {
        fn commit(&mut self, _: &[Record]) -> Result<(), StoreError> {
            Ok(())
        }
        fn stock_hashes(&mut self) -> Result<Vec<u64>, StoreError> {
            Ok(Vec::new())
        }
        fn set_stock_hashes(&mut self, _: &[u64]) -> Result<(), StoreError> {
            let (path, reason) = (PathBuf::from("x"), "no sync".to_owned());
            Err(StoreError { operation: "write to", path, reason, advice: "none" })
        }
    }

    #[test]
    fn a_store_that_fails_with_the_stock_file_acknowledges_nothing_more() {
        let service = Service::before(Box::new(Failing));
        let dir = tempfile::tempdir().unwrap();
        let stocks = StockFile {
            path: dir.path().join("stock.txt"),
            service: OnceLock::new(),
            written: Mutex::new((u64::MAX, 0)),
            error: Mutex::new(None),
        };
        let _ = stocks.service.set(Arc::downgrade(&service));
        assert!(service.wait(0).is_ok());
        stocks.write(false);
        assert!(service.wait(0).is_err() && service.is_stopping());
        assert!(matches!(*stocks.error.lock().unwrap(), Some(ServeError::Store(_))));
    }
}
