//! A server: assembles it from options, runs it, stops it, and writes its stocks to the stock file.

#[cfg(not(feature = "postgres"))]
use crate::choice::WITHOUT_POSTGRES;
use crate::choice::{Durability, Model};
use crate::choice::{held_refusal, model_refusal, refusal, show_refusal, store_refusal};
#[cfg(feature = "postgres")]
use crate::database;
use crate::error::{ServeError, SystemOperation};
use crate::journal::Journal;
use crate::live::{Reload, Secrets};
use crate::metrics::Counts;
use crate::model::{self, Port};
use crate::options::{DatabaseChoice, SERVICE_TIME_MAX, ServeOptions, TlsFiles};
use crate::service::{Service, ServiceParts};
use crate::sharing::{self, Strategy};
use crate::stock_file::{self, StockLock};
use crate::stock_writer::StockWriter;
use crate::store::Locked;
use crate::store::ignored::Ignored;
use crate::{lock, store};
use ioloom_exchange::{ClassicForm, Exchange, Settings, State};
use ioloom_failure::quoted;
use ioloom_sys_net::handover::Handover;
use ioloom_sys_net::inherited::Inherited;
use ioloom_sys_net::ring::NetRing;
use ioloom_sys_net::{Listener, Waker};
use ioloom_tls::Identity;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Name of an inherited listener for unpadded answers.
const LINE_SOCKET: &str = "line";
/// How long to wait for the end of threads that keep the store open, and how often to look.
const CLOSING_MAX: Duration = Duration::from_secs(2);
const CLOSING_CHECK: Duration = Duration::from_millis(1);
/// How long to wait for a port that is in use.
const PORT_TAKEN_MAX: Duration = Duration::from_millis(500);
/// Backlog of pending connections.
const BACKLOG: u32 = 4096;

/// Final counters of a server that was stopped on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeSummary {
    /// Number of orders answered as executed, including repetitions.
    pub done: u64,
    /// Number of accepted connections.
    pub connections: u64,
    /// Number of the latest order in the log.
    pub seq: u64,
}

/// How a server ended.
#[derive(Debug)]
pub enum ServeEnd {
    /// It was stopped.
    Stopped(ServeSummary),
    /// The store is closed, but still locked, and connections wait for the next program.
    HandedOver(Handover, ServeSummary),
}

/// A server that is listening but not serving yet.
pub struct Server {
    service: Arc<Service>,
    ports: Vec<Vec<Port>>,
    addresses: Vec<SocketAddr>,
    stocks: Arc<StockWriter>,
    /// Keeps the store locked after it is closed.
    store_lock: Option<OwnedFd>,
    is_new_store: Option<bool>,
    notices: Vec<String>,
    database_name: Option<String>,
}

/// Controls a server, from any thread.
#[derive(Clone)]
pub struct ServerHandle(Weak<Service>);

impl ServerHandle {
    /// Replaces the tokens, the certificate and some limits. Connections keep the tokens and the
    /// certificate with which they started.
    ///
    /// # Errors
    /// Fails, and changes nothing, if the certificate is invalid or, unlike the current one, has
    /// expired or is not valid yet, or if tokens or TLS would be switched on or off.
    pub fn reload(&self, reload: &Reload) -> Result<(), ServeError> {
        // Before the service is held, which keeps the store open.
        let identity = reload.identity()?;
        self.0.upgrade().map_or(Ok(()), |service| service.live.reload(reload, identity))
    }

    /// Returns the state of the server and its counters as lines `NAME VALUE`.
    pub fn state(&self) -> String {
        self.0.upgrade().map(|service| service.state()).unwrap_or_default()
    }

    /// Asks the server to stop for another program. Like [`stop`](Self::stop), but connections wait
    /// instead of being refused, and [`Server::run_to_end`] returns the listeners and the locks.
    pub fn hand_over(&self) {
        if let Some(service) = self.0.upgrade() {
            service.hand_over();
        }
    }

    /// Asks the server to stop. It finishes the requests that have arrived, writes the stock file
    /// and exits.
    pub fn stop(&self) {
        if let Some(service) = self.0.upgrade() {
            service.stop();
        }
    }
}

impl Server {
    /// Reserves the addresses, locks the store and the stock file, opens the store, and listens.
    /// Connections are refused until the store is open.
    pub fn start(options: &ServeOptions) -> Result<Self, ServeError> {
        Self::start_on(options, Handover::default())
    }

    /// Verifies the options without opening anything.
    ///
    /// # Errors
    /// Fails if [`start`](Self::start) would, except for the store, the stock file and the
    /// addresses.
    pub fn check(options: &ServeOptions) -> Result<(), ServeError> {
        check(options)?;
        probe_ring(options.model)?;
        options.tls.as_ref().map(identity).transpose().map(drop)
    }

    /// Like [`start`](Self::start), but uses listening sockets of the parent process or of the
    /// previous program, if any, instead of the listen addresses: one for the protocol variant in
    /// the settings, and one for unpadded answers, which is named `line`. Locks of the previous
    /// program are kept.
    pub fn start_on(options: &ServeOptions, handover: Handover) -> Result<Self, ServeError> {
        Self::check(options)?;
        let identity = options.tls.as_ref().map(identity).transpose()?;
        let Handover { listeners: inherited, locks: mut handed } = handover;
        let loops = model::loops(options.model, options.cores);
        let shares_port = options.model.shares_port() && loops > 1 && inherited.is_empty();
        let (ports, addresses) = reserve(options, loops, inherited)?;
        let spare_listeners = spares(&ports)?;
        let uses_store = options.database.is_none() && options.durability != Durability::None;
        let locked = uses_store.then(|| Locked::take(&options.store, &mut handed)).transpose()?;
        let store_lock = locked.as_ref().map(Locked::keep_lock).transpose()?.flatten();
        let sharing =
            if options.database.is_some() { lock::Sharing::Shared } else { lock::Sharing::Alone };
        let stock_lock = StockLock::take_or_keep(&options.stock, sharing, &mut handed)?;
        let initial_state = match &options.database {
            None => {
                let (stocks, file_hash) = stock_file::read(&options.stock)?;
                open_with_store(options, locked, stocks, file_hash)?
            }
            // A stock file may not be needed.
            Some(_) => open_with_database(options)?,
        };
        listen(&ports, &addresses, shares_port)?;
        let wakers = (0..loops.max(2)).map(|_| Waker::new().map(Arc::new));
        let wakers = wakers
            .collect::<io::Result<Vec<_>>>()
            .map_err(ServeError::system(SystemOperation::CreateWaker))?;
        let stocks = StockWriter::new(stock_lock, initial_state.written);
        let for_idle = Arc::clone(&stocks);
        let parts = ServiceParts {
            limits: options.limits,
            model: options.model,
            sharing: options.sharing,
            show: options.show,
            durability: options.durability,
            store: initial_state.store,
            strategy: initial_state.strategy,
            journal: initial_state.journal,
            wakers,
            spare_listeners,
            loops,
            secrets: Secrets { access: options.access.clone(), identity },
            service_time: service_times(options).0,
            on_idle: Box::new(move || for_idle.write()),
        };
        let service = Arc::new(Service::new(parts, options.settings, &initial_state.stocks));
        stocks.serve(&service);
        let Initial { is_new: is_new_store, database_name, notices, .. } = initial_state;
        Ok(Self {
            service,
            ports,
            addresses,
            stocks,
            store_lock,
            is_new_store,
            notices,
            database_name,
        })
    }

    /// Returns the listen addresses: the main one, followed by the one with unpadded answers.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns true if this start created the store; `None` without a store.
    pub fn is_new_store(&self) -> Option<bool> {
        self.is_new_store
    }

    /// Returns why clients reject the certificate at this time: it has expired, or is not valid yet.
    pub fn outdated(&self) -> Option<&'static str> {
        self.service.live.secrets().outdated()
    }

    /// Returns what the operator should know about the state in which the store was found.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Returns the location and name of the database, without the password; `None` without a
    /// database.
    pub fn database(&self) -> Option<&str> {
        self.database_name.as_deref()
    }

    /// Returns the number of the latest order in the log.
    pub fn seq(&self) -> u64 {
        self.service.journal.latest()
    }

    /// Returns the counters.
    pub fn counts(&self) -> &Counts {
        &self.service.counts
    }

    /// Returns a handle that controls the server.
    pub fn handle(&self) -> ServerHandle {
        ServerHandle(Arc::downgrade(&self.service))
    }

    /// Serves until a stop is requested, then writes the stock file.
    pub fn run(self) -> Result<ServeSummary, ServeError> {
        self.serve().map(|(summary, _)| summary)
    }

    /// Serves until a stop or a handover is requested, then writes the stock file. After a handover
    /// the store is closed.
    pub fn run_to_end(self) -> Result<ServeEnd, ServeError> {
        let service = Arc::downgrade(&self.service);
        let (summary, handover) = self.serve()?;
        let Some(handover) = handover else { return Ok(ServeEnd::Stopped(summary)) };
        // The store is closed with the last thread that may still end a connection.
        let since = Instant::now();
        while service.strong_count() > 0 && since.elapsed() < CLOSING_MAX {
            std::thread::sleep(CLOSING_CHECK);
        }
        Ok(ServeEnd::HandedOver(handover, summary))
    }

    fn serve(self) -> Result<(ServeSummary, Option<Handover>), ServeError> {
        let ran = model::run(self.service.model, &self.service, self.ports);
        self.service.end();
        self.service.reports.finish();
        if let Some(error) = self.service.journal.take_error() {
            let _ = self.stocks.finish();
            return Err(error.into());
        }
        ran?;
        self.stocks.finish()?;
        let counts = &self.service.counts;
        let of =
            |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        let summary = ServeSummary {
            done: of(&counts.done),
            connections: of(&counts.accepted),
            seq: self.service.journal.latest(),
        };
        let Some(listeners) = self.service.handed_over() else { return Ok((summary, None)) };
        let stock_lock = self.stocks.keep_lock();
        let stock_lock = stock_lock.map_err(ServeError::system(SystemOperation::KeepLock))?;
        let locks = self.store_lock.into_iter().chain(stock_lock).collect();
        Ok((summary, Some(Handover { listeners, locks })))
    }
}

/// Rejects options that cannot be combined.
fn check(options: &ServeOptions) -> Result<(), ServeError> {
    let refused = match &options.database {
        None => refusal(options.model, options.sharing, options.durability)
            .or_else(|| store_refusal(options.store.kind, options.durability)),
        Some(choice) => model_refusal(options.model).or_else(|| database_refusal(options, choice)),
    };
    if let Some(reason) = refused {
        return Err(ServeError::Refused(reason));
    }
    if options.service_time > SERVICE_TIME_MAX {
        return Err(ServeError::Refused(format!(
            "a service time of {:?} is too long; the maximum is {SERVICE_TIME_MAX:?}",
            options.service_time
        )));
    }
    let held = held_refusal(options.sharing, options.show).filter(|_| options.service_in_lock);
    let refused = held.or_else(|| show_refusal(options.model, options.sharing, options.show));
    refused.map_or(Ok(()), |reason| Err(ServeError::Refused(reason)))
}

/// Returns the service time to spend before executing a request, and while its stocks are locked.
fn service_times(options: &ServeOptions) -> (Duration, Duration) {
    if options.service_in_lock {
        (Duration::ZERO, options.service_time)
    } else {
        (options.service_time, Duration::ZERO)
    }
}

/// Rejects a model that requires io_uring if the system does not permit it, as in many containers.
fn probe_ring(model: Model) -> Result<(), ServeError> {
    if !model.needs_ring() {
        return Ok(());
    }
    // In a separate thread: after a ring is closed, the kernel's cleanup interrupts system calls of
    // the thread that created it.
    let many = model != Model::Uring;
    let parts = std::thread::spawn(move || NetRing::new(many).map(drop)).join();
    parts.unwrap_or_else(|_| Err(io::Error::other("the probe panicked"))).map_err(|reason| {
        ServeError::Refused(format!(
            "model {model} requires io_uring, which is not available: {}; choose another model, \
             such as epoll",
            ioloom_failure::reason(&reason)
        ))
    })
}

fn identity(files: &TlsFiles) -> Result<Identity, ServeError> {
    Identity::read(&files.certificate, &files.key).map_err(ServeError::Tls)
}

/// Reserves the addresses of the listeners of each loop. Also returns the addresses.
fn reserve(
    options: &ServeOptions,
    loops: usize,
    inherited: Vec<Inherited>,
) -> Result<(Vec<Vec<Port>>, Vec<SocketAddr>), ServeError> {
    let groups = if options.model.shares_port() { loops } else { 1 };
    let line = Settings { classic: ClassicForm::Line, ..options.settings };
    if !inherited.is_empty() {
        return adopt(&inherited, groups, [options.settings, line]);
    }
    let asked = [
        Some((options.listen, options.settings, false)),
        options.listen_line.map(|at| (at, line, true)),
    ];
    let mut all: Vec<Vec<Port>> = (0..groups).map(|_| Vec::new()).collect();
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for (mut address, settings, is_line) in asked.into_iter().flatten() {
        if addresses.contains(&address) {
            return Err(ServeError::PortTaken { address, flag: flag_of(is_line) });
        }
        for group in &mut all {
            let reserved = once_free(|| Listener::reserve(address));
            let listener = reserved.map_err(no_listener(address, is_line))?;
            // The kernel replaced port 0 by an actual port, which the other listeners must share.
            address =
                listener.address().map_err(ServeError::system(SystemOperation::GetAddress))?;
            group.push(Port { listener, settings, is_line });
        }
        addresses.push(address);
    }
    Ok((all, addresses))
}

/// Repeats a call for a moment while its address is in use: the sockets of a killed server with
/// requests in a ring outlive its process, and if two servers start to listen at the same moment, the
/// kernel can refuse both.
fn once_free<T>(call: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match call() {
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse && since.elapsed() < PORT_TAKEN_MAX =>
            {
                std::thread::sleep(CLOSING_CHECK);
            }
            done => return done,
        }
    }
}

/// Distributes inherited listeners over the loops. If there are fewer, loops share them; if there
/// are more, because the previous program had more loops, a loop has several.
fn adopt(
    inherited: &[Inherited],
    groups: usize,
    [usual, line]: [Settings; 2],
) -> Result<(Vec<Vec<Port>>, Vec<SocketAddr>), ServeError> {
    let mut all: Vec<Vec<Port>> = (0..groups).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    for is_line in [false, true] {
        let same: Vec<_> =
            inherited.iter().filter(|one| (one.name == LINE_SOCKET) == is_line).collect();
        let settings = if is_line { line } else { usual };
        let Some(first) = same.first() else { continue };
        for at in 0..same.len().max(groups) {
            let listener = same[at % same.len()]
                .listener
                .try_clone()
                .map_err(ServeError::system(SystemOperation::PrepareListener))?;
            all[at % groups].push(Port { listener, settings, is_line });
        }
        let address = first.listener.address();
        addresses.push(address.map_err(ServeError::system(SystemOperation::GetAddress))?);
    }
    if all.iter().any(|ports| ports.len() > model::PORTS_MAX) {
        return Err(ServeError::Refused(
            "too many listening sockets were passed; use as many --loops as the previous server"
                .to_owned(),
        ));
    }
    Ok((all, addresses))
}

/// Names the listeners of a service manager (`LISTEN_FDS`) like this server: the second one, or the
/// one named `line`, is for unpadded answers.
///
/// # Errors
/// Fails if there are more than two.
pub fn named(mut inherited: Vec<Inherited>) -> Result<Vec<Inherited>, ServeError> {
    match inherited.as_mut_slice() {
        [] => {}
        [one] => one.name = String::new(),
        [first, second] => {
            let (line, main) = (LINE_SOCKET.to_owned(), String::new());
            let is_swapped = first.name == LINE_SOCKET;
            (first.name, second.name) = if is_swapped { (line, main) } else { (main, line) };
        }
        more => {
            return Err(ServeError::Refused(format!(
                "{} listening sockets were passed (LISTEN_FDS); pass one, and optionally one for \
                 unpadded answers",
                more.len()
            )));
        }
    }
    Ok(inherited)
}

/// Returns further descriptors of all listeners.
fn spares(ports: &[Vec<Port>]) -> Result<Vec<Inherited>, ServeError> {
    let spare = |port: &Port| {
        let name = if port.is_line { LINE_SOCKET } else { "" };
        Ok(Inherited { listener: port.listener.try_clone()?, name: name.to_owned() })
    };
    let spares: io::Result<_> = ports.iter().flatten().map(spare).collect();
    spares.map_err(ServeError::system(SystemOperation::PrepareListener))
}

/// Accepts connections on all ports from now on. The first listener at an address does not share its
/// port before it listens: of several servers that start at the same time, only one can listen.
fn listen(
    ports: &[Vec<Port>],
    addresses: &[SocketAddr],
    shares_port: bool,
) -> Result<(), ServeError> {
    for (number, group) in ports.iter().enumerate() {
        for (port, address) in group.iter().zip(addresses) {
            let failed = no_listener(*address, port.is_line);
            if shares_port && number > 0 {
                port.listener.share_port().map_err(&failed)?;
            }
            once_free(|| port.listener.listen(BACKLOG)).map_err(&failed)?;
            if shares_port && number == 0 {
                port.listener.share_port().map_err(&failed)?;
            }
        }
    }
    Ok(())
}

fn no_listener(address: SocketAddr, is_line: bool) -> impl Fn(io::Error) -> ServeError {
    let flag = flag_of(is_line);
    move |source| match source.kind() {
        io::ErrorKind::AddrInUse => ServeError::PortTaken { address, flag },
        _ => ServeError::Listen { address, flag, source },
    }
}

/// Returns the flag that sets the address of a listener.
const fn flag_of(is_line: bool) -> &'static str {
    if is_line { "--listen-line" } else { "--listen" }
}

/// The initial state of a server.
struct Initial {
    strategy: Box<dyn Strategy>,
    journal: Arc<Journal>,
    stocks: Exchange,
    /// Whether this start created the store or database; `None` if orders are not stored.
    is_new: Option<bool>,
    /// Log number of the latest order in the stock file, and its hash.
    written: (u64, u64),
    store: String,
    database_name: Option<String>,
    notices: Vec<String>,
}

fn open_with_store(
    options: &ServeOptions,
    locked: Option<Locked>,
    initial: Exchange,
    file_hash: u64,
) -> Result<Initial, ServeError> {
    let opened =
        locked.map(|locked| open_store(options, locked, &initial, file_hash)).transpose()?;
    let (state, store, is_new, notices) = match opened {
        Some(store::Opened { state, store, is_new, notices, .. }) => {
            (state, Some(store), Some(is_new), notices)
        }
        None => {
            let notices = check_ignored(options, &initial, file_hash)?;
            (State::new(initial, 0), None, None, notices)
        }
    };
    let journal = Arc::new(Journal::new(state.seq(), store, options.durability));
    let (stocks, seq) = (state.exchange().clone(), state.seq());
    let strategy = sharing::make(
        options.sharing,
        options.show,
        state,
        &journal,
        options.cores,
        service_times(options).1,
    )
    .map_err(ServeError::system(SystemOperation::StartThread))?;
    // An existing store may be more recent than the file.
    let written = (if is_new == Some(false) { u64::MAX } else { seq }, file_hash);
    let store = is_new.map_or("none", |_| options.store.kind.name()).to_owned();
    Ok(Initial { strategy, journal, stocks, is_new, written, store, database_name: None, notices })
}

#[cfg(feature = "postgres")]
fn open_with_database(options: &ServeOptions) -> Result<Initial, ServeError> {
    let choice = options.database.as_ref().expect("a database must be configured");
    let opened = database::open(choice, options.durability, &options.stock)?;
    let journal = Arc::new(Journal::new(opened.seq, None, options.durability));
    let strategy = sharing::database::Database::new(
        &opened,
        Arc::clone(&journal),
        options.durability,
        choice.connections,
    )?;
    let store = format!(
        "postgres, synchronous_commit {}",
        database::synchronous_commit(options.durability)
    );
    Ok(Initial {
        strategy: Box::new(strategy),
        journal,
        is_new: Some(opened.is_new),
        // A filled database is more recent than the file.
        written: (if opened.is_new { opened.seq } else { u64::MAX }, 0),
        store,
        database_name: Some(opened.access.name().to_owned()),
        notices: Vec::new(),
        stocks: opened.stocks,
    })
}

#[cfg(feature = "postgres")]
fn database_refusal(options: &ServeOptions, choice: &DatabaseChoice) -> Option<String> {
    database::refusal(options, choice.connections)
}

#[cfg(not(feature = "postgres"))]
fn open_with_database(_: &ServeOptions) -> Result<Initial, ServeError> {
    Err(ServeError::Refused(WITHOUT_POSTGRES.to_owned()))
}

#[cfg(not(feature = "postgres"))]
fn database_refusal(_: &ServeOptions, _: &DatabaseChoice) -> Option<String> {
    Some(WITHOUT_POSTGRES.to_owned())
}

/// Refuses stocks without the orders of a store that would be ignored, or returns a notice if that was
/// accepted. A stock file that was changed since is what the user wants to serve.
fn check_ignored(
    options: &ServeOptions,
    stocks: &Exchange,
    file_hash: u64,
) -> Result<Vec<String>, ServeError> {
    let (choice, stock) = (&options.store, quoted(&options.stock));
    let (what, advice, else_advice) = match store::ignored::compare(choice, stocks, file_hash) {
        Ok(Ignored::Nothing) => return Ok(Vec::new()),
        Ok(Ignored::Orders) => {
            let what = format!("it has orders that stock file {stock} lacks");
            (what, "choose another durability", "")
        }
        Ok(Ignored::Lost) => (
            format!("acknowledged orders are missing, and stock file {stock} may lack them"),
            "restore a backup and choose another durability",
            "; to start over from the stock file, remove the store and its mark",
        ),
        Err(_) if choice.accept_loss => {
            (format!("its orders could not be compared with stock file {stock}"), "", "")
        }
        Err(error) => return Err(ServeError::Refused(error.to_string())),
    };
    if choice.accept_loss {
        return Ok(vec![format!("{what}; continuing without them")]);
    }
    Err(ServeError::Refused(format!(
        "cannot start without store {} (durability none): {what}; {advice} to continue with them, or \
         continue without them with --accept-loss{else_advice}",
        quoted(&choice.path)
    )))
}

fn open_store(
    options: &ServeOptions,
    locked: Locked,
    initial: &Exchange,
    file_hash: u64,
) -> Result<store::Opened, ServeError> {
    let opened = locked.open(options.durability, initial, file_hash)?;
    let is_same = opened.state.exchange() == initial;
    if !is_same && !opened.hashes.contains(&file_hash) {
        return Err(ServeError::Refused(format!(
            "stock file {} was changed since store {} was created from it; restore the file \
             ('ioloom store export --stocks' prints it) to continue with the store, or remove the \
             store and its mark to start over from the file",
            quoted(&options.stock),
            quoted(&options.store.path)
        )));
    }
    Ok(opened)
}
