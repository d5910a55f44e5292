//! tokio: one task per connection, on work-stealing threads.
//!
//! The code of a connection reads like that of a thread, and an idle connection is cheap: its
//! buffer exists only while there is data to read. The number of threads does not depend on the
//! number of connections: answers that depend on a sync are awaited while one thread commits for
//! all of them. If executing an order waits for another thread, the worker announces this first, so
//! that one of a bounded number of spare threads can take over its tasks.

use super::port::{Port, busy_bytes, connections_max};
use super::stop::wait_for_stop;
use super::tokio_commits::Commits;
use crate::error::{ServeError, SystemOperation};
use crate::journal::StoreFailed;
use crate::live::Live;
use crate::metrics::{Cut, Rejected};
use crate::service::Service;
use crate::sharing::Job;
use crate::transport::{Stage, Transport};
use ioloom_exchange::{Settings, encode};
use ioloom_sys::clock;
use ioloom_sys_net::{SpareDescriptor, is_out_of_sockets};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 16 * 1024;
/// How long to wait for the client to close after shutting down writing.
const LINGER: Duration = Duration::from_secs(1);
/// How long to wait for a connection to reject when there are no file descriptors left.
const PAUSE: Duration = Duration::from_millis(10);
/// Spare threads per worker, for workers that wait for another thread.
const SPARE_EACH: usize = 4;
/// Interval at which a waiting connection checks whether a reload has changed its limits.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);

/// What a server does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Serves open connections only.
    NotAccepting,
    /// Answers requests that have arrived.
    NotReading,
}

/// Serves until a stop is requested.
pub(super) fn run(service: &Arc<Service>, ports: Vec<Port>) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(service.loops())
        .max_blocking_threads(service.loops() * SPARE_EACH)
        .thread_name("tokio")
        .enable_io()
        .enable_time()
        .build()
        .map_err(ServeError::system(SystemOperation::StartRuntime))?;
    let (set_stop, stop) = watch::channel(Phase::Serving);
    let service_too = Arc::clone(service);
    // In a separate thread: waiting for a borrowed descriptor inside tokio would require an unsafe
    // promise that it stays open.
    let waiting = std::thread::Builder::new().name("stop".to_owned()).spawn(move || {
        wait_for_stop(&service_too, 0);
        let _ = set_stop.send(Phase::NotAccepting);
        service_too.wait_for_end_of_reading();
        let _ = set_stop.send(Phase::NotReading);
    });
    let waiting = waiting.map_err(ServeError::system(SystemOperation::StartThread))?;
    let commits = service.commits_late().then(|| Commits::start(service)).transpose();
    let commits = commits.map_err(ServeError::system(SystemOperation::StartThread));
    let ended = match commits {
        Ok(commits) => runtime.block_on(serve(service, ports, commits.map(Arc::new), stop)),
        Err(error) => Err(error),
    };
    service.end();
    let _ = waiting.join();
    // Remaining connections have used up the stop timeout.
    runtime.shutdown_background();
    ended
}

async fn serve(
    service: &Arc<Service>,
    ports: Vec<Port>,
    commits: Option<Arc<Commits>>,
    mut stop: watch::Receiver<Phase>,
) -> Result<(), ServeError> {
    for port in ports {
        let listener: std::net::TcpListener = port.listener.into();
        let listener = TcpListener::from_std(listener)
            .map_err(ServeError::system(SystemOperation::PrepareListener))?;
        let port = (listener, port.settings);
        tokio::spawn(accept(Arc::clone(service), port, commits.clone(), stop.clone()));
    }
    reached(&mut stop, Phase::NotReading).await;
    let end = Instant::now() + service.limits.stop;
    while service.counts.open.load(Ordering::SeqCst) > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

async fn accept(
    service: Arc<Service>,
    (listener, settings): (TcpListener, Settings),
    commits: Option<Arc<Commits>>,
    mut stop: watch::Receiver<Phase>,
) {
    let mut reserve = SpareDescriptor::new().ok();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = reached(&mut stop, Phase::NotAccepting) => return,
        };
        match accepted {
            Ok((stream, address)) => {
                let most = connections_max(&service);
                let Some(seat) = service.admit(most, || Some(address.ip())) else {
                    // The send buffer of a new connection has room for this.
                    let _ = stream.writable().await;
                    let _ = stream.try_write(&busy_bytes(&service, &settings));
                    continue;
                };
                let _ = stream.set_nodelay(true);
                let (service, commits) = (Arc::clone(&service), commits.clone());
                let stop = stop.clone();
                tokio::spawn(async move {
                    let commits = commits.as_deref();
                    let served =
                        serve_connection(&service, (stream, seat), (&settings, commits), stop);
                    if let Ok(Some(why)) = served.await {
                        service.cut(why);
                    }
                    service.leave(seat);
                });
            }
            Err(e) if is_out_of_sockets(&e) => {
                // Use the reserved descriptor to accept one connection and close it.
                drop(reserve.take());
                drop(timeout(PAUSE, listener.accept()).await);
                reserve = SpareDescriptor::new().ok();
                service.rejected(Rejected::Descriptors);
            }
            Err(_) => {}
        }
    }
}

/// Returns when the server has reached a phase.
async fn reached(stop: &mut watch::Receiver<Phase>, phase: Phase) {
    // An error means that the sender no longer exists, which also counts as a stop.
    let _ = stop.wait_for(|now| *now >= phase).await;
}

/// Result of waiting for bytes.
enum Waited {
    Bytes,
    Stop,
    Late,
}

async fn wait(
    stream: &TcpStream,
    stop: &mut watch::Receiver<Phase>,
    (live, begun): (&Live, Option<Instant>),
) -> io::Result<Waited> {
    let since = Instant::now();
    loop {
        // A reload can change the limits.
        let idle = (!live.idle().is_zero()).then(|| since + live.idle());
        let limit = begun.map(|begun| begun + live.request()).or(idle);
        let check = Instant::now() + RELOAD_INTERVAL;
        let until = limit.map_or(check, |limit| limit.min(check));
        tokio::select! {
            biased;
            ready = timeout_at(until, stream.readable()) => match ready {
                Ok(ready) => return ready.map(|()| Waited::Bytes),
                Err(_) if limit == Some(until) => return Ok(Waited::Late),
                Err(_) => {}
            },
            () = reached(stop, Phase::NotReading) => return Ok(Waited::Stop),
        }
    }
}

/// Serves a connection until it closes; returns the timeout that closed it, if any.
async fn serve_connection(
    service: &Service,
    (stream, seat): (TcpStream, u32),
    (settings, commits): (&Settings, Option<&Commits>),
    mut stop: watch::Receiver<Phase>,
) -> io::Result<Option<Cut>> {
    let live = &service.live;
    let mut transport = service.transport();
    let mut begun = (transport.stage() != Stage::Idle).then(Instant::now);
    let mut stopping = false;
    loop {
        let reads = !transport.has_more();
        if reads && !stopping {
            match wait(&stream, &mut stop, (live, begun)).await? {
                Waited::Bytes => {}
                Waited::Stop => stopping = true,
                Waited::Late if begun.is_some() => return Ok(Some(Cut::Request)),
                Waited::Late => return Ok(Some(Cut::Idle)),
            }
        }
        let mut out = Vec::new();
        let had = transport.stage();
        let (mut step, is_drained, mut jobs) =
            step(service, (&stream, seat), &mut transport, reads)?;
        if !jobs.is_empty() {
            if answer(service, &mut jobs, commits).await.is_err() {
                step = Step::Failed;
            } else {
                jobs.iter().for_each(|job| {
                    job.answer.iter().for_each(|answer| {
                        encode(job.request.form, settings, answer, &mut out);
                    });
                });
            }
        }
        drop(jobs);
        transport.seal(&mut out, 0);
        match transport.stage() {
            Stage::Idle => begun = None,
            has if has.begins_after(had, step == Step::Answered) => begun = Some(Instant::now()),
            _ if begun.is_some_and(|begun| begun.elapsed() > live.request()) => {
                return Ok(Some(Cut::Request));
            }
            _ => {}
        }
        // On a stop, answer everything that has already arrived and nothing else.
        let is_stopped = stopping && is_drained && !transport.has_more();
        let is_over = transport.is_over() || is_stopped;
        let has_ended = step == Step::End || (transport.has_ended() && !transport.has_more());
        if is_over || has_ended {
            transport.end(&mut out);
        }
        if step == Step::Failed {
            return Ok(None);
        }
        if !send_all(service, &stream, &out).await? {
            return Ok(Some(Cut::Drain));
        }
        // After a stop there is nothing to read whose loss would reset the connection.
        if has_ended || is_stopped {
            return Ok(None);
        }
        // Nothing was read while the answers were sent.
        if !out.is_empty() && transport.stage() == Stage::Request {
            begun = Some(Instant::now());
        }
        if is_over {
            return linger(stream).await.map(|()| None);
        }
        if transport.has_more() {
            // Let other connections run before processing the rest of this one.
            tokio::task::yield_now().await;
        }
    }
}

/// Result of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Requests were answered.
    Answered,
    /// No request was complete.
    Nothing,
    /// The client has closed its side of the stream.
    End,
    /// The store failed: no more answers may be sent.
    Failed,
}

/// Reads once if `reads` is set, and parses. Also returns whether there was anything to read.
fn step(
    service: &Service,
    (stream, seat): (&TcpStream, u32),
    transport: &mut Transport,
    reads: bool,
) -> io::Result<(Step, bool, Vec<Job>)> {
    let mut buffer = [0; BUFFER_BYTES];
    let (mut read, mut is_drained) = (0, false);
    if reads {
        match stream.try_read(&mut buffer) {
            Ok(0) => return Ok((Step::End, true, Vec::new())),
            Ok(n) => read = n,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => is_drained = true,
            Err(e) => return Err(e),
        }
    }
    let mut jobs = Vec::new();
    let fed = transport.feed(&buffer[..read], service.requests_at_once(), &mut |request| {
        jobs.push(Service::job(0, request));
    });
    if let Err(reason) = fed {
        service.tls_failed(&reason);
    }
    if seat > 0 {
        service.live.peers.charge(seat, read, &mut jobs, clock::monotonic_ns());
    }
    let step = if jobs.is_empty() { Step::Nothing } else { Step::Answered };
    Ok((step, is_drained, jobs))
}

/// Executes jobs, and returns when the answers may be sent.
async fn answer(
    service: &Service,
    jobs: &mut Vec<Job>,
    commits: Option<&Commits>,
) -> Result<(), StoreFailed> {
    let arrived_ns = clock::monotonic_ns();
    let seq = if service.waits_for_threads() {
        tokio::task::block_in_place(|| service.execute(jobs))
    } else {
        service.execute(jobs)
    }?;
    let executed_ns = clock::monotonic_ns();
    match commits {
        Some(commits) if seq > 0 => commits.wait(seq).await?,
        _ => service.wait(seq)?,
    }
    let ended_ns = if service.waits_for(seq) { clock::monotonic_ns() } else { executed_ns };
    service.took(jobs.len(), arrived_ns, executed_ns, ended_ns);
    service.count(jobs);
    Ok(())
}

/// Sends all bytes; returns false if the client takes too long.
async fn send_all(service: &Service, stream: &TcpStream, mut bytes: &[u8]) -> io::Result<bool> {
    let limit = Instant::now() + service.limits.drain;
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                match timeout_at(limit, stream.writable()).await {
                    Ok(ready) => ready?,
                    Err(_) => return Ok(false),
                }
            }
            Err(e) => return Err(e),
        }
        if !bytes.is_empty() && Instant::now() >= limit {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Shuts down writing and keeps reading for a moment; see `connection`.
async fn linger(stream: TcpStream) -> io::Result<()> {
    let stream = stream.into_std()?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let stream = TcpStream::from_std(stream)?;
    let read = async {
        let mut buffer = [0; 512];
        loop {
            stream.readable().await?;
            match stream.try_read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    };
    // Disconnect a client that does not close in time.
    timeout(LINGER, read).await.unwrap_or(Ok(()))
}
