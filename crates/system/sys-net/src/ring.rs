//! Sockets through io_uring: submit requests, reap completions.
//!
//! The ring owns everything that a request in flight uses: the socket, and the memory that the
//! kernel reads or writes. A completion returns it. There are two ways to read. With single-shot
//! requests each read has its own buffer, so every idle connection holds one. A multishot request
//! delivers bytes into buffers shared by all connections of the ring, so idle connections hold
//! none.
//!
//! Created with SINGLE_ISSUER and DEFER_TASKRUN: one thread submits and reaps. Sockets used with a
//! ring must be in blocking mode; otherwise the kernel would fail a request with `WouldBlock`
//! instead of waiting.

use super::{Listener, Socket, Waker};
use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use ioloom_sys::fault;
use ioloom_sys::ring::{REFUSED_PAUSE, post_completions};
use rustix::io::Errno;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Number of submission queue entries.
const ENTRIES: u32 = 1024;
/// Number of completion queue entries; the kernel stores further completions in a slower list.
const COMPLETIONS: u32 = 8192;
/// Buffer size of a single-shot read in bytes.
const ONCE_BYTES: usize = 4096;
/// Number of buffers shared by multishot reads, a power of two.
const SHARED: u16 = 256;
/// Size of each shared buffer in bytes.
const SHARED_BYTES: usize = 8192;
/// Buffer group of the shared buffers.
const GROUP: u16 = 0;
/// User data of cancellations, whose completions are ignored.
const IGNORED: u64 = u64::MAX;

/// A completion.
#[derive(Debug)]
pub enum Event<'a> {
    /// A new connection.
    Accepted {
        /// Token of the listener.
        token: usize,
        /// The connection or the error.
        socket: io::Result<Socket>,
        /// Whether the same request will deliver more completions.
        more: bool,
    },
    /// Received bytes; empty at the end of the stream.
    Received {
        /// Token of the socket.
        token: usize,
        /// The bytes or the error.
        bytes: io::Result<&'a [u8]>,
        /// Whether the same request will deliver more completions.
        more: bool,
    },
    /// A finished send.
    Sent {
        /// Token of the socket.
        token: usize,
        /// The bytes of the request.
        bytes: Vec<u8>,
        /// Number of bytes accepted by the kernel, or the error.
        sent: io::Result<usize>,
    },
    /// The waker was triggered.
    Woken,
}

/// Reports whether a read failed only because it was cancelled or because no shared buffer was
/// free; a new request may succeed.
pub fn is_transient(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::CANCELED | Errno::NOBUFS | Errno::INTR))
}

/// Number of a request in flight, used to cancel it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request(u32);

enum Flight {
    Accept(
        #[expect(dead_code, reason = "keeps the listener open until accepting ends")] Arc<Listener>,
        usize,
    ),
    Once(
        #[expect(dead_code, reason = "keeps the socket open until the read completes")] Arc<Socket>,
        usize,
        Vec<u8>,
    ),
    Many(
        #[expect(dead_code, reason = "keeps the socket open until the read completes")] Arc<Socket>,
        usize,
    ),
    Send(
        #[expect(dead_code, reason = "keeps the socket open until the send completes")] Arc<Socket>,
        usize,
        Vec<u8>,
    ),
    Wake(#[expect(dead_code, reason = "keeps the waker open until the wait completes")] Arc<Waker>),
}

/// A socket ring, used by the thread that created it.
pub struct NetRing {
    ring: IoUring,
    flights: Vec<Option<Flight>>,
    free: Vec<u32>,
    shared: Option<SharedBuffers>,
    /// Completions that were taken while the submission queue was full, for the next [`reap`](Self::reap).
    taken: Vec<cqueue::Entry>,
    _not_send: std::marker::PhantomData<*mut ()>,
}

impl NetRing {
    /// Creates a ring; with `multishot`, it accepts and reads with multishot requests.
    pub fn new(multishot: bool) -> io::Result<Self> {
        let ring = fault::call("io_uring_setup", || {
            IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_cqsize(COMPLETIONS)
                .build(ENTRIES)
        })?;
        let shared = if multishot { Some(SharedBuffers::new(&ring)?) } else { None };
        let (flights, free, taken) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { ring, flights, free, shared, taken, _not_send: std::marker::PhantomData })
    }

    /// Requests one connection, or all future connections if the ring is multishot.
    pub fn accept(&mut self, listener: &Arc<Listener>, token: usize) -> Request {
        let fd = Fd(listener.as_raw_fd());
        let flags = libc::SOCK_CLOEXEC;
        let entry = match self.shared {
            Some(_) => opcode::AcceptMulti::new(fd).flags(flags).build(),
            None => opcode::Accept::new(fd, std::ptr::null_mut(), std::ptr::null_mut())
                .flags(flags)
                .build(),
        };
        self.push(Flight::Accept(Arc::clone(listener), token), entry)
    }

    /// Requests bytes: one read, or all future reads if the ring is multishot.
    pub fn recv(&mut self, socket: &Arc<Socket>, token: usize) -> Request {
        let fd = Fd(socket.as_raw_fd());
        if self.shared.is_some() {
            let entry = opcode::RecvMulti::new(fd, GROUP).build();
            return self.push(Flight::Many(Arc::clone(socket), token), entry);
        }
        let mut buffer = vec![0; ONCE_BYTES];
        let entry = opcode::Recv::new(fd, buffer.as_mut_ptr(), ONCE_BYTES as u32).build();
        self.push(Flight::Once(Arc::clone(socket), token, buffer), entry)
    }

    /// Requests sending bytes. The completion returns them with the number of bytes sent.
    pub fn send(&mut self, socket: &Arc<Socket>, token: usize, bytes: Vec<u8>) {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), bytes.as_ptr(), len)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.push(Flight::Send(Arc::clone(socket), token, bytes), entry);
    }

    /// Requests an event for when the waker is triggered.
    pub fn watch(&mut self, waker: &Arc<Waker>) {
        let entry = opcode::PollAdd::new(Fd(waker.as_raw_fd()), libc::POLLIN as u32).build();
        self.push(Flight::Wake(Arc::clone(waker)), entry);
    }

    /// Cancels a request. It still completes, possibly with an error.
    pub fn cancel(&mut self, request: Request) {
        let entry = opcode::AsyncCancel::new(u64::from(request.0)).build().user_data(IGNORED);
        self.put(&entry);
    }

    fn push(&mut self, flight: Flight, entry: squeue::Entry) -> Request {
        let at = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            self.flights.len() as u32 - 1
        });
        debug_assert!(
            self.flights[at as usize].is_none(),
            "a free slot must not have a request in flight"
        );
        self.flights[at as usize] = Some(flight);
        self.put(&entry.user_data(u64::from(at)));
        Request(at)
    }

    fn put(&mut self, entry: &squeue::Entry) {
        // SAFETY: the descriptors and heap buffers referenced by the entry are owned by the flight
        // until its last completion, and moving the flight does not move them.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            // The queue is full: submit its entries.
            if self.ring.submit().is_err() {
                // The kernel is short of memory, or has no room for completions: take them, and retry.
                post_completions(&self.ring);
                self.take_completions();
                std::thread::sleep(REFUSED_PAUSE);
            }
        }
    }

    fn take_completions(&mut self) {
        let mut completion = self.ring.completion();
        completion.sync();
        self.taken.extend(completion);
    }

    /// Submits new requests, waits at most `timeout` for a completion, and passes every completion
    /// to `see`.
    pub fn reap(&mut self, timeout: Duration, see: &mut dyn FnMut(Event<'_>)) -> io::Result<()> {
        let timeout = if self.taken.is_empty() { timeout } else { Duration::ZERO };
        let time = Timespec::new().sec(timeout.as_secs()).nsec(timeout.subsec_nanos());
        let args = SubmitArgs::new().timespec(&time);
        let entered =
            fault::call("io_uring_enter", || self.ring.submitter().submit_with_args(1, &args));
        match entered {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if Errno::from_io_error(&e) == Some(Errno::TIME) => {}
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::BUSY | Errno::AGAIN)) => {
                post_completions(&self.ring);
                if self.ring.completion().is_empty() {
                    std::thread::sleep(REFUSED_PAUSE.min(timeout));
                }
            }
            Err(e) => return Err(e),
            Ok(_) => {}
        }
        self.take_completions();
        let Self { flights, free, shared, taken, .. } = self;
        for entry in taken.drain(..) {
            show(&entry, flights, free, shared.as_mut(), see);
        }
        Ok(())
    }

    fn in_flight(&self) -> usize {
        self.flights.len() - self.free.len()
    }
}

fn show(
    entry: &cqueue::Entry,
    flights: &mut [Option<Flight>],
    free: &mut Vec<u32>,
    shared: Option<&mut SharedBuffers>,
    see: &mut dyn FnMut(Event<'_>),
) {
    let Some(place) = flights.get_mut(entry.user_data() as usize) else { return };
    let result = match entry.result() {
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        count => Ok(count as usize),
    };
    let more = cqueue::more(entry.flags());
    let at = entry.user_data() as u32;
    debug_assert!(place.is_some(), "a completion must belong to a request in flight");
    let taken = if more { None } else { place.take() };
    if !more {
        free.push(at);
    }
    match taken.as_ref().or(place.as_ref()) {
        None => {}
        Some(Flight::Accept(_, token)) => {
            let socket = result.map(|fd| {
                // SAFETY: the kernel created this descriptor, and nothing else owns it.
                Socket(unsafe { OwnedFd::from_raw_fd(fd as i32) }, 0)
            });
            let socket = fault::call("uring_accept", || socket);
            let socket = socket.inspect(|socket| {
                let _ = rustix::net::sockopt::set_tcp_nodelay(&socket.0, true);
            });
            see(Event::Accepted { token: *token, socket, more });
        }
        Some(Flight::Once(_, token, buffer)) => {
            let bytes = fault::completion("uring_recv", result).map(|n| &buffer[..n]);
            see(Event::Received { token: *token, bytes, more });
        }
        Some(Flight::Many(_, token)) => {
            let id = cqueue::buffer_select(entry.flags());
            let Some(shared) = shared else { return };
            let bytes = match (fault::completion("uring_recv", result), id) {
                (Err(error), _) => Err(error),
                (Ok(n), Some(id)) => Ok(shared.bytes(id, n)),
                (Ok(_), None) => Ok(&[][..]),
            };
            see(Event::Received { token: *token, bytes, more });
            if let Some(id) = id {
                shared.recycle(id);
            }
        }
        Some(Flight::Wake(_)) => see(Event::Woken),
        Some(Flight::Send(..)) => {
            let Some(Flight::Send(_, token, bytes)) = taken else { return };
            see(Event::Sent { token, bytes, sent: fault::completion("uring_send", result) });
        }
    }
}

impl Drop for NetRing {
    fn drop(&mut self) {
        let _ = self.ring.submit();
        while self.in_flight() > 0 {
            // Repeated, because a submission can be refused: requests that are submitted later must end too.
            let _ = self.ring.submitter().register_sync_cancel(None, CancelBuilder::any());
            if self.reap(Duration::from_secs(1), &mut |_| {}).is_err() {
                // The kernel may still use memory of requests in flight: leak it.
                std::mem::forget(std::mem::take(&mut self.flights));
                std::mem::forget(self.shared.take());
                return;
            }
        }
    }
}

/// A pool of buffers for the kernel, and the ring from which it takes them.
struct SharedBuffers {
    list: *mut BufRingEntry,
    layout: Layout,
    memory: Vec<u8>,
    tail: u16,
}

impl SharedBuffers {
    fn new(ring: &IoUring) -> io::Result<Self> {
        let bytes = usize::from(SHARED) * size_of::<BufRingEntry>();
        let layout = Layout::from_size_align(bytes, 4096).expect("a small constant layout");
        // SAFETY: the layout has a non-zero size.
        let list = unsafe { alloc_zeroed(layout) }.cast::<BufRingEntry>();
        if list.is_null() {
            handle_alloc_error(layout);
        }
        let memory = vec![0; usize::from(SHARED) * SHARED_BYTES];
        let mut buffers = Self { list, layout, memory, tail: 0 };
        fault::call("io_uring_register", || {
            // SAFETY: the list is page-aligned and outlives its use by the kernel: dropping
            // `NetRing` first waits for all requests and closes the ring, or leaks the list.
            unsafe { ring.submitter().register_buf_ring_with_flags(list as u64, SHARED, GROUP, 0) }
        })?;
        for id in 0..SHARED {
            buffers.recycle(id);
        }
        Ok(buffers)
    }

    fn bytes(&self, id: u16, len: usize) -> &[u8] {
        debug_assert!(len <= SHARED_BYTES, "the kernel must fill at most one buffer");
        let from = usize::from(id) * SHARED_BYTES;
        &self.memory[from..from + len]
    }

    fn recycle(&mut self, id: u16) {
        debug_assert!(id < SHARED, "the kernel must return a buffer of this pool");
        let at = usize::from(self.tail & (SHARED - 1));
        let from = usize::from(id) * SHARED_BYTES;
        let address = self.memory[from..from + SHARED_BYTES].as_mut_ptr();
        // SAFETY: `at` is below the length of the list. The kernel reads an entry only after the
        // tail has passed it, and it has already returned this entry's buffer.
        let entry = unsafe { &mut *self.list.add(at) };
        entry.set_addr(address as u64);
        entry.set_len(SHARED_BYTES as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the list is the registered one; its tail is aligned and written only here.
        let tail = unsafe { &*BufRingEntry::tail(self.list).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for SharedBuffers {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout; no request of the ring is in flight.
        unsafe { dealloc(self.list.cast(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(multishot: bool) {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 16).unwrap();
        listener.set_may_block().unwrap();
        let address = listener.address().unwrap();
        let listener = Arc::new(listener);
        let mut ring = NetRing::new(multishot).unwrap();
        ring.accept(&listener, 1);
        let client = std::thread::spawn(move || {
            let client = Socket::connect(address).unwrap();
            for _ in 0..1000 {
                client.send(b"hello").unwrap();
                let mut buffer = [0; 5];
                assert_eq!(client.recv(&mut buffer).unwrap(), 5);
                assert_eq!(&buffer, b"hello");
            }
        });
        let (mut socket, mut ended) = (None, false);
        while !ended {
            let (mut to_send, mut read_on) = (Vec::new(), false);
            ring.reap(Duration::from_secs(10), &mut |event| match event {
                Event::Accepted { token: 1, socket: Ok(new), more } => {
                    assert_eq!(more, multishot);
                    socket = Some(Arc::new(new));
                    read_on = true;
                }
                Event::Received { token: 2, bytes, more } => {
                    let bytes = bytes.unwrap();
                    ended = bytes.is_empty();
                    read_on = !more && !ended;
                    to_send.push(bytes.to_vec());
                }
                Event::Sent { token: 2, bytes, sent } => assert_eq!(sent.unwrap(), bytes.len()),
                other => panic!("{other:?}"),
            })
            .unwrap();
            let Some(socket) = &socket else { continue };
            if read_on {
                ring.recv(socket, 2);
            }
            for bytes in to_send.into_iter().filter(|bytes| !bytes.is_empty()) {
                ring.send(socket, 2, bytes);
            }
        }
        client.join().unwrap();
    }

    #[test]
    fn single_shot_and_multishot_rings_echo() {
        echo(false);
        echo(true);
    }

    #[test]
    fn a_ring_with_requests_in_flight_can_be_dropped() {
        for multishot in [false, true] {
            let listener = Listener::bind(([127, 0, 0, 1], 0).into(), 16).unwrap();
            listener.set_may_block().unwrap();
            let waker = Arc::new(Waker::new().unwrap());
            let mut ring = NetRing::new(multishot).unwrap();
            ring.accept(&Arc::new(listener), 1);
            ring.watch(&waker);
            waker.wake();
            let mut woken = false;
            ring.reap(Duration::from_secs(10), &mut |event| woken = matches!(event, Event::Woken))
                .unwrap();
            assert!(woken);
        }
    }
}
