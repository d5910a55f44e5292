//! TCP sockets, and several ways to wait on many of them.
//!
//! A [`Listener`] and the [`Socket`]s it accepts never block unless requested; writing to a closed
//! connection is an error and raises no signal. Addresses are numeric: names are never resolved.
//! [`wait`] provides select, poll and epoll (level- and edge-triggered) behind one trait; with
//! [`ring`] the kernel processes whole requests instead. [`inherited`] takes listeners from a service
//! manager, and [`handover`] passes them to the next program.

pub mod handover;
pub mod inherited;
pub mod ring;
pub mod wait;

use self::wait::Waiter as _;
use ioloom_sys::fault::{self, retry_on_interrupt};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::RwLock;
use std::time::Duration;

/// How long a connection is silent before the kernel checks whether the peer still exists.
pub const KEEP_ALIVE_IDLE: Duration = Duration::from_secs(120);
/// Interval between these checks, and the number that fail before the connection is an error.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// See [`KEEP_ALIVE_INTERVAL`].
pub const KEEP_ALIVE_CHECKS: u32 = 4;

/// A listening socket. Accepting never blocks. Connections to peers that vanished without closing them
/// fail after a while ([`KEEP_ALIVE_IDLE`]).
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// Listens on an address; port 0 selects any free port.
    pub fn bind(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let listener = Self::reserve(address)?;
        listener.listen(backlog)?;
        Ok(listener)
    }

    /// Reserves an address like [`bind`](Self::bind), but the kernel refuses connections until
    /// [`listen`](Self::listen). Fails if another socket listens there. Several sockets can reserve
    /// an address, but only one of them can listen, unless they [share the port](Self::share_port).
    pub fn reserve(address: SocketAddr) -> io::Result<Self> {
        let socket = socket_for(address)?;
        fault::call("setsockopt", || Ok(sockopt::set_socket_reuseaddr(&socket, true)?))?;
        fault::call("bind", || Ok(rustix::net::bind(&socket, &address)?))?;
        let listener = Self(socket);
        listener.keep_alive()?;
        Ok(listener)
    }

    /// Detects vanished peers. Accepted connections inherit these options.
    pub(crate) fn keep_alive(&self) -> io::Result<()> {
        fault::call("setsockopt", || {
            sockopt::set_socket_keepalive(&self.0, true)?;
            sockopt::set_tcp_keepidle(&self.0, KEEP_ALIVE_IDLE)?;
            sockopt::set_tcp_keepintvl(&self.0, KEEP_ALIVE_INTERVAL)?;
            Ok(sockopt::set_tcp_keepcnt(&self.0, KEEP_ALIVE_CHECKS)?)
        })
    }

    /// Shares the port with the other listeners of this user that share it: the kernel distributes
    /// connections among them. Call it when the first one listens, and before the others listen:
    /// then no other program can share the port by accident.
    pub fn share_port(&self) -> io::Result<()> {
        fault::call("setsockopt", || Ok(sockopt::set_socket_reuseport(&self.0, true)?))
    }

    /// Accepts connections from now on. Fails if another socket listens at the address, except on a
    /// port that both share.
    pub fn listen(&self, backlog: u32) -> io::Result<()> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        fault::call("listen", || Ok(rustix::net::listen(&self.0, backlog)?))
    }

    /// Returns the address with the actual port.
    pub fn address(&self) -> io::Result<SocketAddr> {
        let address = fault::call("getsockname", || Ok(rustix::net::getsockname(&self.0)?))?;
        SocketAddr::try_from(address).map_err(Into::into)
    }

    /// Switches to blocking mode, as required by a ring; [`accept`](Self::accept) can block from
    /// now on.
    pub fn set_may_block(&self) -> io::Result<()> {
        fault::call("ioctl", || Ok(rustix::io::ioctl_fionbio(&self.0, false)?))
    }

    /// Switches to non-blocking mode.
    pub(crate) fn set_non_blocking(&self) -> io::Result<()> {
        fault::call("ioctl", || Ok(rustix::io::ioctl_fionbio(&self.0, true)?))
    }

    /// Returns another descriptor of the same socket. Both accept the same connections, and the
    /// blocking mode of one is that of the other.
    pub fn try_clone(&self) -> io::Result<Self> {
        fault::call("fcntl", || Ok(Self(rustix::io::fcntl_dupfd_cloexec(&self.0, 0)?)))
    }

    /// Accepts the next connection or returns `WouldBlock`. Nagle's algorithm is disabled.
    pub fn accept(&self, may_block: bool) -> io::Result<Socket> {
        // A call that blocks would delay those who reject connections.
        let _accepting = (!may_block).then(|| ACCEPTING.read());
        self.accept_now(may_block)
    }

    fn accept_now(&self, may_block: bool) -> io::Result<Socket> {
        let flags = if may_block { SocketFlags::empty() } else { SocketFlags::NONBLOCK };
        let flags = flags | SocketFlags::CLOEXEC;
        let accept = || Ok(rustix::net::accept_with(&self.0, flags)?);
        let socket = Socket(retry_on_interrupt(|| fault::call("accept", accept))?, 0);
        // Fails if the peer has already disconnected, which the next read reports.
        let _ = fault::call("setsockopt", || Ok(sockopt::set_tcp_nodelay(&socket.0, true)?));
        Ok(socket)
    }
}

impl From<Listener> for std::net::TcpListener {
    fn from(listener: Listener) -> Self {
        listener.0.into()
    }
}

/// Returns a non-blocking socket for an address.
fn socket_for(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    fault::call("socket", || Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?))
}

/// A connection. Its mark is a number for the caller's use; it fits into padding.
#[derive(Debug)]
pub struct Socket(OwnedFd, u32);

impl Socket {
    /// Returns the mark, initially 0.
    pub fn mark(&self) -> u32 {
        self.1
    }

    /// Sets the mark.
    pub fn set_mark(&mut self, mark: u32) {
        self.1 = mark;
    }

    /// Returns the address of the other side, unless it has disconnected.
    pub fn peer(&self) -> Option<std::net::IpAddr> {
        let peer = fault::call("getpeername", || Ok(rustix::net::getpeername(&self.0)?)).ok()??;
        SocketAddr::try_from(peer).ok().map(|address| address.ip())
    }

    /// Connects; blocks now and in later calls.
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = fault::call("connect", || std::net::TcpStream::connect(address))?;
        let _ = fault::call("setsockopt", || stream.set_nodelay(true));
        Ok(Self(stream.into(), 0))
    }

    /// Connects like [`connect`](Self::connect), but for at most `limit`.
    pub fn connect_within(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        let connect = || std::net::TcpStream::connect_timeout(&address, limit);
        let stream = fault::call("connect", connect)?;
        let _ = fault::call("setsockopt", || stream.set_nodelay(true));
        Ok(Self(stream.into(), 0))
    }

    /// Starts connecting without blocking, now or later. The socket becomes writable once it is
    /// connected or has failed; [`connected`](Self::connected) reports which.
    pub fn begin_connect(address: SocketAddr) -> io::Result<Self> {
        let socket = socket_for(address)?;
        let _ = fault::call("setsockopt", || Ok(sockopt::set_tcp_nodelay(&socket, true)?));
        match fault::call("connect", || Ok(rustix::net::connect(&socket, &address)?)) {
            Err(e) if Errno::from_io_error(&e) != Some(Errno::INPROGRESS) => Err(e),
            _ => Ok(Self(socket, 0)),
        }
    }

    /// Returns the error if [`begin_connect`](Self::begin_connect) failed.
    pub fn connected(&self) -> io::Result<()> {
        fault::call("getsockopt", || Ok(sockopt::socket_error(&self.0)??))
    }

    /// Receives bytes and returns their number; 0 at the end of the stream.
    pub fn recv(&self, into: &mut [u8]) -> io::Result<usize> {
        let recv = || {
            let (read, _) = rustix::net::recv(&self.0, &mut *into, RecvFlags::empty())?;
            Ok(read)
        };
        let mut recv = recv;
        retry_on_interrupt(|| fault::call("recv", &mut recv)).map(|n| fault::cut("recv", n))
    }

    /// Sends bytes and returns the number accepted by the kernel.
    pub fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        let send = || Ok(rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL)?);
        retry_on_interrupt(|| fault::call("send", send))
    }

    /// Closes the sending side.
    pub fn shutdown_write(&self) -> io::Result<()> {
        fault::call("shutdown", || Ok(rustix::net::shutdown(&self.0, Shutdown::Write)?))
    }

    /// Closes the receiving side: bytes that have arrived can still be read, followed by end of
    /// stream, which also wakes a thread blocked in a read.
    pub fn shutdown_read(&self) -> io::Result<()> {
        fault::call("shutdown", || Ok(rustix::net::shutdown(&self.0, Shutdown::Read)?))
    }

    /// Sets the timeout of blocking reads and writes; `None` means no limit.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        fault::call("setsockopt", || {
            sockopt::set_socket_timeout(&self.0, Timeout::Recv, read)?;
            Ok(sockopt::set_socket_timeout(&self.0, Timeout::Send, write)?)
        })
    }

    /// Makes close send a reset and discard unsent bytes. For server tests.
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        let now = Some(Duration::ZERO);
        fault::call("setsockopt", || Ok(sockopt::set_socket_linger(&self.0, now)?))
    }
}

/// Ends a wait from another thread: an eventfd, which is readable while its counter is non-zero.
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// Creates a waker with a counter of zero.
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        fault::call("eventfd", || Ok(Self(eventfd(0, flags)?)))
    }

    /// Ends the current or the next wait.
    pub fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // Fails only if the counter is at its maximum, in which case the eventfd is readable
        // anyway.
        let _ = fault::call("write", || Ok(rustix::io::write(&self.0, &one)?));
    }

    /// Resets the counter to zero.
    pub fn clear(&self) {
        let mut count = [0; 8];
        let _ = fault::call("read", || Ok(rustix::io::read(&self.0, &mut count)?));
    }
}

/// Held exclusively while a released [`SpareDescriptor`] is in use. Otherwise another thread that
/// accepts takes it for a connection that stays, and from then on no one can reject: the clients of
/// one of two listeners would wait without an answer.
static ACCEPTING: RwLock<()> = RwLock::new(());

/// A reserved descriptor, released when descriptors run out: the next connection can then be
/// accepted and closed, so that the listener does not remain readable forever.
#[derive(Debug)]
pub struct SpareDescriptor(Option<OwnedFd>);

impl SpareDescriptor {
    /// Reserves a descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Some(spare()?)))
    }

    /// Uses the descriptor to accept one connection and close it immediately; returns false if none
    /// was waiting. Without a free descriptor, the kernel fails accept before checking for
    /// connections.
    pub fn reject_one(&mut self, listener: &Listener) -> bool {
        let _alone = ACCEPTING.write();
        self.0 = None;
        let mut was_there = false;
        // A listener in blocking mode would block here if no connection were waiting.
        let (mut waiter, mut ready) = (wait::Poll::default(), Vec::new());
        let now = Some(Duration::ZERO);
        let asked = waiter.add(listener, 0, wait::Interest::READ);
        if asked.and_then(|()| waiter.wait(&mut ready, now)).is_ok() && !ready.is_empty() {
            was_there = listener.accept_now(false).is_ok();
        }
        self.0 = spare().ok();
        was_there
    }
}

fn spare() -> io::Result<OwnedFd> {
    use rustix::event::{EventfdFlags, eventfd};
    fault::call("eventfd", || Ok(eventfd(0, EventfdFlags::CLOEXEC)?))
}

/// Reports whether an error means that descriptors or socket memory are exhausted.
pub fn is_out_of_sockets(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Reports whether an accept error concerns only one connection, which has already failed.
pub fn concerns_one_connection(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(
        errno,
        Some(
            Errno::CONNABORTED
                | Errno::PROTO
                | Errno::PERM
                | Errno::NETDOWN
                | Errno::NETUNREACH
                | Errno::HOSTUNREACH
                | Errno::HOSTDOWN
                | Errno::NONET
                | Errno::NOPROTOOPT
                | Errno::OPNOTSUPP
        )
    )
}

macro_rules! as_descriptor {
    ($($name:ident),*) => {$(
        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }
        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }
    )*};
}
as_descriptor!(Listener, Socket, Waker);

#[cfg(test)]
mod tests {
    use super::wait::{EpollEdge, EpollLevel, Interest, Poll, Ready, Select, Waiter};
    use super::*;

    fn local() -> Listener {
        Listener::bind(([127, 0, 0, 1], 0).into(), 16).unwrap()
    }

    fn pair() -> (Socket, Socket) {
        let listener = local();
        let client = Socket::connect(listener.address().unwrap()).unwrap();
        let mut ready = Vec::new();
        let mut waiter = Poll::default();
        waiter.add(&listener, 0, Interest::READ).unwrap();
        waiter.wait(&mut ready, None).unwrap();
        (client, listener.accept(false).unwrap())
    }

    fn waiters() -> Vec<Box<dyn Waiter>> {
        vec![
            Box::new(Select::default()),
            Box::new(Poll::default()),
            Box::new(EpollLevel::new().unwrap()),
            Box::new(EpollEdge::new().unwrap()),
        ]
    }

    #[test]
    fn every_waiter_reports_exactly_what_is_ready() {
        for mut waiter in waiters() {
            let (client, server) = pair();
            let (other, quiet) = pair();
            let now = Some(Duration::ZERO);
            let mut ready = Vec::new();
            waiter.add(&server, 5, Interest::READ).unwrap();
            waiter.add(&quiet, 6, Interest::READ).unwrap();
            waiter.wait(&mut ready, now).unwrap();
            assert_eq!(ready, []);
            client.send(b"hello").unwrap();
            waiter.wait(&mut ready, None).unwrap();
            assert_eq!(ready, [Ready { token: 5, can_read: true, can_write: false }]);
            assert_eq!(server.recv(&mut [0; 99]).unwrap(), 5);
            waiter.change(&server, 5, Interest::BOTH).unwrap();
            waiter.wait(&mut ready, None).unwrap();
            assert_eq!(
                ready.iter().map(|r| (r.token, r.can_write)).collect::<Vec<_>>(),
                [(5, true)]
            );
            waiter.remove(&server).unwrap();
            drop((client, other));
            waiter.wait(&mut ready, None).unwrap();
            assert_eq!(
                ready.iter().map(|r| (r.token, r.can_read)).collect::<Vec<_>>(),
                [(6, true)]
            );
        }
    }

    #[test]
    fn a_precise_wait_reports_the_same() {
        let (client, server) = pair();
        let (mut waiter, mut ready) = (EpollLevel::new().unwrap(), Vec::new());
        waiter.add(&server, 3, Interest::READ).unwrap();
        waiter.wait_precise(&mut ready, Duration::from_micros(10)).unwrap();
        assert_eq!(ready, []);
        let sender = std::thread::spawn(move || client.send(b"x").map(|_| client));
        waiter.wait_precise(&mut ready, Duration::from_secs(600)).unwrap();
        assert_eq!(ready, [Ready { token: 3, can_read: true, can_write: false }]);
        drop(sender.join().unwrap().unwrap());
    }

    #[test]
    fn connecting_without_blocking_reports_the_result() {
        let listener = local();
        let address = listener.address().unwrap();
        let ended = |socket: &Socket| {
            let (mut waiter, mut ready) = (Poll::default(), Vec::new());
            waiter.add(socket, 0, Interest::WRITE).unwrap();
            waiter.wait(&mut ready, None).unwrap();
            socket.connected()
        };
        let socket = Socket::begin_connect(address).unwrap();
        ended(&socket).unwrap();
        assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((socket, listener));
        // On loopback the refusal can arrive immediately or later.
        let refused = Socket::begin_connect(address).and_then(|socket| ended(&socket));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn select_refuses_descriptors_beyond_its_set() {
        let (_client, server) = pair();
        let high = rustix::io::fcntl_dupfd_cloexec(&server, 1024).unwrap();
        let error = Select::default().add(&high, 0, Interest::READ).unwrap_err();
        assert_eq!(Errno::from_io_error(&error), Some(Errno::MFILE));
    }

    #[test]
    fn a_waker_ends_a_wait_and_is_cleared() {
        for mut waiter in waiters() {
            let waker = Waker::new().unwrap();
            let mut ready = Vec::new();
            waiter.add(&waker, 1, Interest::READ).unwrap();
            waker.wake();
            waiter.wait(&mut ready, None).unwrap();
            assert_eq!(ready.len(), 1);
            waker.clear();
            waiter.wait(&mut ready, Some(Duration::ZERO)).unwrap();
            assert_eq!(ready, []);
        }
    }

    #[test]
    fn vanished_peers_are_detected_on_accepted_connections() {
        let (_client, server) = pair();
        assert!(sockopt::socket_keepalive(&server).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&server).unwrap(), KEEP_ALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&server).unwrap(), KEEP_ALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&server).unwrap(), KEEP_ALIVE_CHECKS);
    }

    #[test]
    fn of_two_listeners_that_reserved_an_address_one_can_listen() {
        let first = Listener::reserve(([127, 0, 0, 1], 0).into()).unwrap();
        let address = first.address().unwrap();
        let other = Listener::reserve(address).unwrap();
        first.listen(16).unwrap();
        assert_eq!(other.listen(16).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(Listener::reserve(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn two_listeners_share_a_port_only_if_both_request_it() {
        let first = Listener::reserve(([127, 0, 0, 1], 0).into()).unwrap();
        let address = first.address().unwrap();
        let [second, other] = [(); 2].map(|()| Listener::reserve(address).unwrap());
        first.listen(16).unwrap();
        first.share_port().unwrap();
        second.share_port().unwrap();
        second.listen(16).unwrap();
        assert_eq!(other.listen(16).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(Listener::reserve(address).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let (mut waiter, mut ready) = (Poll::default(), Vec::new());
        waiter.add(&first, 0, Interest::READ).unwrap();
        waiter.add(&second, 1, Interest::READ).unwrap();
        // The kernel chooses the listener by a hash of both addresses.
        let mut accepted = [0; 2];
        for _ in 0..64 {
            let _client = Socket::connect(address).unwrap();
            waiter.wait(&mut ready, None).unwrap();
            for (count, listener) in accepted.iter_mut().zip([&first, &second]) {
                *count += u32::from(listener.accept(false).is_ok());
            }
        }
        assert_eq!(accepted.iter().sum::<u32>(), 64);
        assert!(!accepted.contains(&0), "{accepted:?}");
    }
}
