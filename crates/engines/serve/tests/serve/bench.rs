//! A server in the test process, and clients for it.

use ioloom_load::Trust;
use ioloom_serve::{
    Durability, Limits, Model, Reload, ServeError, ServeOptions, ServeSummary, Server,
    ServerHandle, Sharing, ShowMode, StoreChoice, StoreKind, TlsFiles,
};
use ioloom_testbed::in_memory;
use ioloom_tls::TlsSession;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// The stocks used by most tests.
pub(crate) const STOCKS: &str = "1 1000 10\n2 1000 20\n3 5 30\n";
/// Time after which a client gives up waiting for an answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time for a stop that must answer everything, even if the machine pauses for seconds.
pub(crate) const LONG_STOP: Duration = Duration::from_secs(15);
/// Time for a handshake or a token that a pause of the machine does not use up. Below the time after
/// which a client gives up.
pub(crate) const LONG_REQUEST: Duration = Duration::from_secs(10);

pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) lines: SocketAddr,
    trust: Option<Trust>,
    stop: ServerHandle,
    thread: Option<JoinHandle<Result<ServeSummary, ServeError>>>,
}

/// Limits that keep timeout tests short.
pub(crate) fn short_limits() -> Limits {
    Limits {
        request: Duration::from_millis(600),
        drain: Duration::from_millis(1500),
        hog: Duration::from_millis(300),
        stop: Duration::from_secs(3),
        threads: 4,
        waiting: 8,
        ..Limits::default()
    }
}

pub(crate) fn config(dir: &TempDir, model: Model) -> ServeOptions {
    let stock = dir.path().join("stock.txt");
    if !stock.exists() {
        std::fs::write(&stock, STOCKS).unwrap();
    }
    ServeOptions {
        model,
        sharing: model.default_sharing(),
        show: ShowMode::Atomic,
        durability: Durability::None,
        store: StoreChoice {
            kind: StoreKind::Sqlite,
            path: dir.path().join("store"),
            accept_loss: false,
        },
        database: None,
        stock,
        listen: ([127, 0, 0, 1], 0).into(),
        listen_line: Some(([127, 0, 0, 1], 0).into()),
        settings: ioloom_exchange::Settings::default(),
        limits: short_limits(),
        cores: 2,
        access: None,
        tls: None,
        service_time: Duration::ZERO,
        service_in_lock: false,
    }
}

impl Bench {
    pub(crate) fn new(model: Model) -> Self {
        Self::with(model, |_| {})
    }

    pub(crate) fn with(model: Model, change: impl FnOnce(&mut ServeOptions)) -> Self {
        Self::in_dir(in_memory(), model, change)
    }

    pub(crate) fn in_dir(
        dir: TempDir,
        model: Model,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Self {
        let mut config = config(&dir, model);
        change(&mut config);
        let server = Server::start(&config).unwrap();
        let [address, lines] = server.addresses() else { panic!("expected two addresses") };
        let (address, lines) = (*address, *lines);
        let stop = server.handle();
        let thread = Some(std::thread::spawn(move || server.run()));
        let trust = |files: TlsFiles| Trust::new(Some(&files.certificate), "127.0.0.1").unwrap();
        let trust = config.tls.map(trust);
        Self { dir, address, lines, trust, stop, thread }
    }

    /// Connects a client to one of the two addresses, using TLS if the server does.
    pub(crate) fn dial(&self, address: SocketAddr) -> Client {
        let tls = self.trust.as_ref().map(|trust| trust.session().unwrap());
        Client { tls, ..Client::new(address) }
    }

    pub(crate) fn client(&self) -> Client {
        self.dial(self.lines)
    }

    /// Returns the trust anchor of a TLS server.
    pub(crate) fn trust(&self) -> Trust {
        self.trust.clone().expect("a TLS server")
    }

    pub(crate) fn stock_file(&self) -> PathBuf {
        self.dir.path().join("stock.txt")
    }

    pub(crate) fn stocks(&self) -> String {
        std::fs::read_to_string(self.stock_file()).unwrap()
    }

    pub(crate) fn reload(&self, limits: Limits) {
        self.stop.reload(&Reload { access: None, tls: None, limits }).unwrap();
    }

    pub(crate) fn request_stop(&self) {
        self.stop.stop();
    }

    /// Returns true if the server has stopped.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the server and returns its directory.
    pub(crate) fn end(mut self) -> (TempDir, ServeSummary) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join().unwrap().unwrap();
        let dir = std::mem::replace(&mut self.dir, in_memory());
        (dir, ended)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok_and(|ended| ended.is_ok()));
        }
    }
}

/// A blocking client over TCP or TLS.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    tls: Option<TlsSession>,
    /// Received bytes that have not been consumed yet.
    received: Vec<u8>,
}

impl Client {
    /// Connects without TLS.
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, tls: None, received: Vec::new() }
    }

    pub(crate) fn send(&mut self, text: impl AsRef<[u8]>) {
        let Some(tls) = &mut self.tls else {
            return self.stream.write_all(text.as_ref()).unwrap();
        };
        let mut sealed = Vec::new();
        tls.seal(text.as_ref(), &mut sealed);
        self.stream.write_all(&sealed).unwrap();
    }

    /// Reads once; returns false at the end of the stream. A reset counts as the end.
    fn receive(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = match self.stream.read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            // Interrupted by the cleanup of a ring in this process: there may be more.
            Err(e) if e.kind() == ErrorKind::Interrupted => return true,
            read => read.unwrap(),
        };
        let Some(tls) = &mut self.tls else {
            self.received.extend_from_slice(&buffer[..read]);
            return read > 0;
        };
        tls.open(&buffer[..read], &mut self.received).unwrap();
        let mut sealed = Vec::new();
        tls.seal(&[], &mut sealed);
        let _ = self.stream.write_all(&sealed);
        read > 0
    }

    fn receive_more(&mut self) {
        let more = self.receive();
        assert!(more, "the server closed after {:?}", String::from_utf8_lossy(&self.received));
    }

    /// Returns the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> String {
        while self.received.len() < count {
            self.receive_more();
        }
        String::from_utf8(self.received.drain(..count).collect()).unwrap()
    }

    /// Returns the next line, including its terminator.
    pub(crate) fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                return self.take(end + 1);
            }
            self.receive_more();
        }
    }

    /// Returns the next line, or `None` if the server closed the connection before.
    pub(crate) fn try_line(&mut self) -> Option<String> {
        while !self.received.contains(&b'\n') {
            if !self.receive() {
                return None;
            }
        }
        Some(self.line())
    }

    pub(crate) fn request(&mut self, text: &str) -> String {
        self.send(format!("{text}\n"));
        self.line()
    }

    pub(crate) fn end_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Returns everything up to the end of the stream, which a TLS server must announce.
    pub(crate) fn rest(&mut self) -> String {
        while self.receive() {}
        let is_announced = self.tls.as_ref().is_none_or(TlsSession::has_ended);
        assert!(is_announced, "the server must announce the end of the stream");
        String::from_utf8(std::mem::take(&mut self.received)).unwrap()
    }
}

/// Returns true if this system supports a model.
pub(crate) fn is_possible(model: Model) -> bool {
    // In a separate thread: otherwise the cleanup of the ring would interrupt system calls of the
    // test.
    let make = || std::thread::spawn(|| ioloom_sys_net::ring::NetRing::new(true).is_err());
    let refused = model.needs_ring() && make().join().unwrap();
    if refused {
        println!("skipped: model {model} requires io_uring, which is not available");
    }
    !refused
}

/// `select` does not support descriptors above 1023, and all servers run in this process: a test
/// with a crowd of connections must run alone.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// Held by tests that must not run at the same time as a crowd.
pub(crate) fn without_crowds() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by tests with a crowd of connections.
pub(crate) fn crowd_alone() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a store works below a directory.
pub(crate) fn is_store_possible(kind: StoreKind, dir: &TempDir) -> bool {
    let probed = ioloom_serve::probe_store(kind, dir.path());
    probed.inspect_err(|reason| println!("skipped: {reason}")).is_ok()
}

/// Returns the length of a file without trailing zeros.
pub(crate) fn used_bytes(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let used = |block: &[u8]| block.iter().rposition(|byte| *byte != 0).map(|last| last + 1);
    // Comparing blocks is fast even without optimisation.
    let blocks = bytes.chunks(4096).enumerate();
    let last = blocks.rev().find(|(_, block)| **block != [0; 4096][..block.len()]);
    last.map_or(0, |(at, block)| (at * 4096 + used(block).unwrap_or(0)) as u64)
}

/// Creates a directory for a store: in memory if the store works there.
pub(crate) fn dir_for(kind: StoreKind) -> TempDir {
    let dir = in_memory();
    match ioloom_serve::probe_store(kind, dir.path()) {
        Ok(()) => dir,
        Err(_) => TempDir::new().unwrap(),
    }
}

/// Runs a test for all models concurrently.
pub(crate) fn every_model(test: impl Fn(Model) + Sync) {
    let _beside = without_crowds();
    std::thread::scope(|scope| {
        for model in Model::ALL {
            if !is_possible(*model) {
                continue;
            }
            let test = &test;
            std::thread::Builder::new()
                .name(model.name().to_owned())
                .spawn_scoped(scope, move || test(*model))
                .unwrap();
        }
    });
}

/// Returns the sharing strategies that a model supports at a durability level.
pub(crate) fn sharings(model: Model, durability: Durability) -> Vec<Sharing> {
    let fits = |sharing: &Sharing| ioloom_serve::refusal(model, *sharing, durability).is_none();
    Sharing::ALL.iter().copied().filter(fits).collect()
}
