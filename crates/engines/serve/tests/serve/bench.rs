//! A server in this process, and clients for it.

use ioloom_load::Trust;
use ioloom_serve::{
    Durability, Limits, Model, ServeError, ServeOptions, ServeSummary, Server, Sharing, ShowMode,
    StopHandle, StoreChoice, StoreKind, TlsFiles,
};
use ioloom_tls::TlsSession;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// Stocks of most tests.
pub(crate) const STOCKS: &str = "1 1000 10\n2 1000 20\n3 5 30\n";
/// A client that waits longer for an answer than this will not get one.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) address: SocketAddr,
    pub(crate) lines: SocketAddr,
    trust: Option<Trust>,
    stop: StopHandle,
    thread: Option<JoinHandle<Result<ServeSummary, ServeError>>>,
}

/// Limits under which tests of impatience take no long time.
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
        store: StoreChoice { kind: StoreKind::Sqlite, path: dir.path().join("store") },
        database: None,
        stock,
        listen: ([127, 0, 0, 1], 0).into(),
        listen_line: Some(([127, 0, 0, 1], 0).into()),
        settings: ioloom_exchange::Settings::default(),
        limits: short_limits(),
        cores: 2,
        token: None,
        tls: None,
        warn: None,
        service_time: Duration::ZERO,
        service_in_lock: false,
    }
}

impl Bench {
    pub(crate) fn new(model: Model) -> Self {
        Self::with(model, |_| {})
    }

    pub(crate) fn with(model: Model, change: impl FnOnce(&mut ServeOptions)) -> Self {
        let dir = TempDir::new().unwrap();
        Self::in_dir(dir, model, change)
    }

    pub(crate) fn in_dir(
        dir: TempDir,
        model: Model,
        change: impl FnOnce(&mut ServeOptions),
    ) -> Self {
        let mut config = config(&dir, model);
        change(&mut config);
        let server = Server::start(&config).unwrap();
        let [address, lines] = server.addresses() else { panic!("two addresses") };
        let (address, lines) = (*address, *lines);
        let stop = server.stop_handle();
        let thread = Some(std::thread::spawn(move || server.run()));
        let trust = |files: TlsFiles| Trust::new(Some(&files.certificate), "127.0.0.1").unwrap();
        let trust = config.tls.map(trust);
        Self { dir, address, lines, trust, stop, thread }
    }

    /// A client of one of the two addresses, which speaks TLS where the server does.
    pub(crate) fn dial(&self, address: SocketAddr) -> Client {
        let shield = self.trust.as_ref().map(|trust| trust.session().unwrap());
        Client { shield, ..Client::new(address) }
    }

    pub(crate) fn client(&self) -> Client {
        self.dial(self.lines)
    }

    /// What a server of TLS is trusted by.
    pub(crate) fn trust(&self) -> Trust {
        self.trust.clone().expect("a server of TLS")
    }

    pub(crate) fn stock_file(&self) -> PathBuf {
        self.dir.path().join("stock.txt")
    }

    pub(crate) fn stocks(&self) -> String {
        std::fs::read_to_string(self.stock_file()).unwrap()
    }

    pub(crate) fn ask_to_stop(&self) {
        self.stop.stop();
    }

    /// Whether the server has ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the server and gives its directory back.
    pub(crate) fn end(mut self) -> (TempDir, ServeSummary) {
        self.stop.stop();
        let ended = self.thread.take().unwrap().join().unwrap().unwrap();
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
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

/// A client that blocks, over TCP or TLS.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    shield: Option<TlsSession>,
    /// What was heard and not yet taken.
    heard: Vec<u8>,
}

impl Client {
    /// One without TLS.
    pub(crate) fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, shield: None, heard: Vec::new() }
    }

    pub(crate) fn say(&mut self, text: impl AsRef<[u8]>) {
        let Some(shield) = &mut self.shield else {
            return self.stream.write_all(text.as_ref()).unwrap();
        };
        let mut sealed = Vec::new();
        shield.seal(text.as_ref(), &mut sealed);
        self.stream.write_all(&sealed).unwrap();
    }

    /// Reads once; false at the end. A reset counts as that.
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 4096];
        let read = match self.stream.read(&mut buffer) {
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            // By the end of a ring of this process: there may be more.
            Err(e) if e.kind() == ErrorKind::Interrupted => return true,
            read => read.unwrap(),
        };
        let Some(shield) = &mut self.shield else {
            self.heard.extend_from_slice(&buffer[..read]);
            return read > 0;
        };
        shield.open(&buffer[..read], &mut self.heard).unwrap();
        let mut sealed = Vec::new();
        shield.seal(&[], &mut sealed);
        let _ = self.stream.write_all(&sealed);
        read > 0
    }

    fn hear_more(&mut self) {
        let more = self.hear();
        assert!(more, "the server closed after {:?}", String::from_utf8_lossy(&self.heard));
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, count: usize) -> String {
        while self.heard.len() < count {
            self.hear_more();
        }
        String::from_utf8(self.heard.drain(..count).collect()).unwrap()
    }

    /// The next line, with its end.
    pub(crate) fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
                return self.take(end + 1);
            }
            self.hear_more();
        }
    }

    pub(crate) fn ask(&mut self, text: &str) -> String {
        self.say(format!("{text}\n"));
        self.line()
    }

    pub(crate) fn end_writing(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Everything until the server closes, which under TLS it has to say.
    pub(crate) fn rest(&mut self) -> String {
        while self.hear() {}
        let told = self.shield.as_ref().is_none_or(TlsSession::has_ended);
        assert!(told, "the end was not told");
        String::from_utf8(std::mem::take(&mut self.heard)).unwrap()
    }
}

/// Whether this system lets a model run.
pub(crate) fn is_possible(model: Model) -> bool {
    // On a thread of its own, or the end of the ring would interrupt calls of the test.
    let make = || std::thread::spawn(|| ioloom_sys_net::ring::NetRing::new(true).is_err());
    let refused = model.needs_ring() && make().join().unwrap();
    if refused {
        println!("skipped: the system refuses io_uring, which model {model} needs");
    }
    !refused
}

/// `select` serves no descriptor above 1023, and all servers are in this process: who opens a crowd of
/// connections does it alone.
static DESCRIPTORS: RwLock<()> = RwLock::new(());

/// Keeps crowds away while it lives.
pub(crate) fn without_crowds() -> RwLockReadGuard<'static, ()> {
    DESCRIPTORS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps everybody else away who must not meet a crowd.
pub(crate) fn crowd_alone() -> RwLockWriteGuard<'static, ()> {
    DESCRIPTORS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a store can be had below a directory.
pub(crate) fn is_store_possible(kind: StoreKind, dir: &TempDir) -> bool {
    let probed = ioloom_serve::probe_store(kind, dir.path());
    probed.inspect_err(|reason| println!("skipped: {reason}")).is_ok()
}

/// Runs a test for every model at the same time.
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

/// Sharings that a model can have with a durability.
pub(crate) fn sharings(model: Model, durability: Durability) -> Vec<Sharing> {
    let fits = |sharing: &Sharing| ioloom_serve::refusal(model, *sharing, durability).is_none();
    Sharing::ALL.iter().copied().filter(fits).collect()
}
