//! An S3 server in memory for tests: objects, listings, ranges and uploads in parts, with latency, a
//! limit on requests, and faults drawn from a seed.
//!
//! It runs in the process of the test on a free port of the loopback interface, with one thread per
//! connection, and knows no credentials: signatures are not checked.
//!
//! What a fault hits depends on a seed and the number of the request; which object that is depends on
//! the order in which requests arrive, so tests assert what holds for every order.

mod data;
mod http;
mod law;
mod store;

pub use data::pattern;
pub use law::{Fault, First, Law, Pages, Target};
pub use store::{BUCKET, Contents, DENIED};

use http::{Request, Response};
use law::Limit;
use std::collections::BTreeMap;
use std::io::BufReader;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use store::Buckets;

/// Stack of a connection's thread.
const STACK: usize = 256 << 10;

/// What the server has counted.
#[derive(Debug, Default)]
struct Counters {
    requests: AtomicU64,
    served: AtomicU64,
    refused: AtomicU64,
    faults: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
}

/// Requests by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// All requests.
    pub requests: u64,
    /// Requests that were admitted.
    pub served: u64,
    /// Requests that exceeded the limit.
    pub refused: u64,
    /// Requests with a fault.
    pub faults: u64,
    /// Most requests at the same time.
    pub in_flight_max: u64,
}

struct Shared {
    law: Law,
    limit: Limit,
    buckets: Mutex<Buckets>,
    counters: Counters,
    stopped: AtomicBool,
    connections: Mutex<BTreeMap<u64, TcpStream>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running server; it ends when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    listener: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Server {{ {} }}", self.address)
    }
}

impl Server {
    /// Starts a server.
    ///
    /// # Panics
    ///
    /// Panics if no port is free.
    pub fn start(law: Law) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let mut buckets = Buckets::with([BUCKET, DENIED]);
        (buckets.forgets, buckets.pages) = (law.forgets, law.pages);
        buckets.ignores_prefix = law.ignores_prefix;
        let shared = Arc::new(Shared {
            limit: Limit::new(law.cap_per_s, law.burst),
            law,
            buckets: Mutex::new(buckets),
            counters: Counters::default(),
            stopped: AtomicBool::new(false),
            connections: Mutex::default(),
        });
        let of_thread = shared.clone();
        let listener = std::thread::spawn(move || accept(&of_thread, &listener));
        Self { shared, address, listener: Some(listener) }
    }

    /// Returns the URL of the server, for `AWS_ENDPOINT_URL`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the environment that makes a client use this server.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", "id".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }

    /// Stores an object.
    pub fn put(&self, key: &str, contents: impl Into<Contents>) {
        lock(&self.shared.buckets).put(BUCKET, key, contents.into());
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        lock(&self.shared.buckets).remove(BUCKET, key);
    }

    /// Returns the contents of an object.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        lock(&self.shared.buckets).get(BUCKET, key).map(|contents| contents.data.to_vec())
    }

    /// Returns the keys of the bucket in order.
    pub fn keys(&self) -> Vec<String> {
        lock(&self.shared.buckets).keys(BUCKET)
    }

    /// Returns how many uploads were begun and neither completed nor aborted.
    pub fn open_uploads(&self) -> usize {
        lock(&self.shared.buckets).open_uploads()
    }

    /// Returns what was counted.
    pub fn counts(&self) -> Counts {
        let counters = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            requests: read(&counters.requests),
            served: read(&counters.served),
            refused: read(&counters.refused),
            faults: read(&counters.faults),
            in_flight_max: read(&counters.in_flight_max),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts connections.
        let _ = TcpStream::connect(self.address);
        for connection in lock(&self.shared.connections).values() {
            let _ = connection.shutdown(Shutdown::Both);
        }
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    for (number, stream) in (0..).zip(listener.incoming()) {
        if shared.stopped.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let _ = stream.set_nodelay(true);
        if let Ok(copy) = stream.try_clone() {
            lock(&shared.connections).insert(number, copy);
        }
        let shared = shared.clone();
        let serve = move || {
            serve(&shared, &stream);
            lock(&shared.connections).remove(&number);
        };
        let _ = std::thread::Builder::new().stack_size(STACK).spawn(serve);
    }
}

/// Answers the requests of a connection.
fn serve(shared: &Shared, stream: &TcpStream) {
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader, shared.law.receives_slowly) {
        let counters = &shared.counters;
        let number = counters.requests.fetch_add(1, Ordering::Relaxed);
        let now = counters.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        counters.in_flight_max.fetch_max(now, Ordering::Relaxed);
        let open = answer(shared, stream, request, number);
        counters.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !open {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Answers one request. Returns whether the connection stays open.
fn answer(shared: &Shared, stream: &TcpStream, mut request: Request, number: u64) -> bool {
    let counters = &shared.counters;
    if !shared.limit.admits() {
        counters.refused.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(shared.law.refusal);
        let text = "Please reduce your request rate.";
        return Response::error(503, "SlowDown", text).send(stream, request.is_head());
    }
    counters.served.fetch_add(1, Ordering::Relaxed);
    std::thread::sleep(shared.law.latency(number));
    let fault = shared.law.fault(number, request.target());
    if fault.is_some() {
        counters.faults.fetch_add(1, Ordering::Relaxed);
    }
    match fault {
        Some(Fault::Reset) => return false,
        Some(Fault::Busy) => {
            let text = "Please reduce your request rate.";
            return Response::error(503, "SlowDown", text).send(stream, request.is_head());
        }
        Some(Fault::Broken) => {
            let text = "We encountered an internal error. Please try again.";
            return Response::error(500, "InternalError", text).send(stream, request.is_head());
        }
        Some(Fault::Denied) => {
            return Response::error(403, "AccessDenied", "Access Denied")
                .send(stream, request.is_head());
        }
        Some(Fault::Invalid) => {
            return Response::error(400, "InvalidRequest", "The request is invalid")
                .send(stream, request.is_head());
        }
        Some(Fault::NotFound) => {
            return Response { status: 404, ..Response::default() }.send(stream, request.is_head());
        }
        Some(Fault::NoBucket) => return store::no_bucket().send(stream, request.is_head()),
        Some(Fault::Portal) => {
            let text = "<html>Please log in</html>".to_owned();
            return Response::text(200, text).send(stream, request.is_head());
        }
        Some(Fault::LateError) => {
            let text = "We encountered an internal error. Please try again.";
            return Response::error(200, "InternalError", text).send(stream, request.is_head());
        }
        Some(Fault::Replaced) => lock(&shared.buckets).replace(&request.bucket, &request.key),
        Some(Fault::HalfStored) => request.body.truncate(request.body.len() / 2),
        _ => {}
    }
    let response = lock(&shared.buckets).answer(&mut request, shared.law.page);
    match fault {
        Some(Fault::Unanswered) => false,
        // Faults of contents do not change a response without contents.
        _ if request.is_head() => response.send(stream, true),
        Some(Fault::Cut) => response.send_cut(stream),
        Some(Fault::WrongTotal) => response.with_wrong_total().send(stream, false),
        Some(Fault::Shortened) => response.shortened().send(stream, false),
        Some(Fault::Slow) => response.send_slowly(stream, Duration::from_millis(2)),
        _ => response.send(stream, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::Instant;

    #[test]
    fn an_answer_to_head_has_no_contents_whatever_the_fault() {
        for fault in [Fault::Slow, Fault::Cut, Fault::WrongTotal, Fault::Shortened] {
            let first = vec![First::new(Target::Describe, fault, 1)];
            let server = Server::start(Law { first, ..Law::default() });
            server.put("a", vec![7u8; 100]);
            let mut stream = TcpStream::connect(server.address).unwrap();
            write!(stream, "HEAD /{BUCKET}/a HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(server.counts().faults, 1);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
        }
    }

    #[test]
    fn a_slow_body_arrives_whole_after_its_pauses() {
        let first = vec![First::new(Target::Read, Fault::Slow, 1)];
        let server = Server::start(Law { first, ..Law::default() });
        server.put("a", vec![b'x'; 100]);
        let mut stream = TcpStream::connect(server.address).unwrap();
        let since = Instant::now();
        write!(stream, "GET /{BUCKET}/a HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(since.elapsed() >= 8 * Duration::from_millis(2), "a pause before each part");
        assert_eq!(server.counts().faults, 1);
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert_eq!(body, "x".repeat(100), "{answer}");
    }
}
