//! Listening sockets inherited from a service manager, and messages to it.
//!
//! The protocol is that of systemd: the variables `LISTEN_PID` and `LISTEN_FDS` announce sockets
//! from descriptor 3 on (sd_listen_fds(3)), and `NOTIFY_SOCKET` names a datagram socket for
//! messages such as `READY=1` (sd_notify(3)).

use super::Listener;
use ioloom_sys::fault;
use rustix::net::sockopt;
use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};

/// First inherited descriptor.
const FIRST: RawFd = 3;

/// Whether the sockets have been taken: a descriptor must have one owner.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// An inherited listening socket.
#[derive(Debug)]
pub struct Inherited {
    /// The socket.
    pub listener: Listener,
    /// Its name in the service manager; empty if it has none.
    pub name: String,
}

/// Takes the listening sockets that the parent process passed to this one. Later calls return none.
///
/// # Errors
/// Fails if a descriptor is not a listening TCP socket.
pub fn take_listeners() -> io::Result<Vec<Inherited>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let is_ours = number("LISTEN_PID") == Some(std::process::id());
    let count = number("LISTEN_FDS").filter(|_| is_ours).unwrap_or(0);
    if count == 0 || TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let last = RawFd::try_from(count).ok().and_then(|count| FIRST.checked_add(count));
    let last = last.ok_or_else(|| io::Error::other("LISTEN_FDS is too large"))?;
    let take = |fd| {
        let listener = take_listener(fd)?;
        Ok(Inherited { listener, name: names.next().unwrap_or_default().to_owned() })
    };
    (FIRST..last).map(take).collect()
}

pub(crate) fn take_listener(fd: RawFd) -> io::Result<Listener> {
    let wrong = || {
        let text = format!("descriptor {fd} in LISTEN_FDS is not a listening TCP socket");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    // SAFETY: fcntl accepts any number and does not access memory.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(wrong());
    }
    // SAFETY: it is open, and only borrowed for the call below.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let is_listening = fault::call("getsockopt", || Ok(sockopt::socket_acceptconn(borrowed)?));
    if !is_listening.is_ok_and(|is_listening| is_listening) {
        return Err(wrong());
    }
    // SAFETY: it is open, the parent process passed it to this one, and `TAKEN` guarantees that it
    // is taken once.
    let listener = Listener(unsafe { OwnedFd::from_raw_fd(fd) });
    listener.address().map_err(|_| wrong())?;
    fault::call("fcntl", || Ok(rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::CLOEXEC)?))?;
    listener.set_non_blocking()?;
    // Other protocols than TCP, such as MPTCP, may not support it.
    let _ = listener.keep_alive();
    Ok(listener)
}

/// A service manager that wants to know the state of this process.
#[derive(Debug)]
pub struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
}

impl Manager {
    /// Returns the service manager named by the environment, if any.
    ///
    /// # Errors
    /// Fails if the name is not that of a socket.
    pub fn from_environment() -> io::Result<Option<Self>> {
        std::env::var_os("NOTIFY_SOCKET").map(Self::at).transpose()
    }

    /// Returns the service manager with this socket: a path, or an abstract name that starts with
    /// `@`.
    ///
    /// # Errors
    /// Fails if the name is not that of a socket.
    pub fn at(name: OsString) -> io::Result<Self> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            [b'/', ..] => SocketAddr::from_pathname(&name)?,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let socket = fault::call("socket", UnixDatagram::unbound)?;
        Ok(Self { socket, address })
    }

    /// Sends a message: lines `NAME=VALUE`.
    ///
    /// # Errors
    /// Fails if the service manager does not receive it.
    pub fn send(&self, message: &str) -> io::Result<()> {
        let send = || self.socket.send_to_addr(message.as_bytes(), &self.address);
        fault::call("sendto", send).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    fn connections_of_an_inherited_listener_detect_vanished_peers() {
        let passed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = passed.local_addr().unwrap();
        let listener = take_listener(passed.into_raw_fd()).unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        listener.set_may_block().unwrap();
        let accepted = listener.accept(true).unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), crate::KEEP_ALIVE_IDLE);
    }

    #[test]
    fn messages_reach_sockets_with_paths_and_abstract_names() {
        let dir = std::env::temp_dir().join(format!("ioloom-notify-{}", std::process::id()));
        let _ = std::fs::remove_file(&dir);
        let name = format!("ioloom-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (receiver, name) in [
            (UnixDatagram::bind(&dir).unwrap(), dir.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into()),
        ] {
            Manager::at(name).unwrap().send("READY=1\nSTATUS=x").unwrap();
            let mut buffer = [0; 99];
            let len = receiver.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], b"READY=1\nSTATUS=x");
        }
        std::fs::remove_file(&dir).unwrap();
        assert!(Manager::at(dir.into_os_string()).unwrap().send("READY=1").is_err());
        assert!(Manager::at("relative".into()).is_err());
    }
}
