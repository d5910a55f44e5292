//! Waiting on many descriptors at once: select, poll, epoll.
//!
//! All return the tokens of ready descriptors. They differ in the cost of a wait: select and poll
//! scan every descriptor in the set each time, epoll only those with an event. An edge-triggered
//! set reports a descriptor once per event, so the caller must read or write until the call would
//! block.

use ioloom_sys::fault;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::Timespec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

/// Maximum descriptor count supported by select.
pub const SELECT_MAX: usize = libc::FD_SETSIZE;
/// Maximum number of events returned by one epoll wait.
const EVENTS_MAX: usize = 1024;

/// The events to wait for; errors and the end of a connection are always included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to read, or a connection to accept.
    pub read: bool,
    /// Buffer space for writing.
    pub write: bool,
}

impl Interest {
    /// Reading only.
    pub const READ: Self = Self { read: true, write: false };
    /// Writing only.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const BOTH: Self = Self { read: true, write: true };
}

/// A ready descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// Token with which it was added.
    pub token: usize,
    /// A read would not block; it can return end of stream or an error.
    pub can_read: bool,
    /// A write would not block.
    pub can_write: bool,
}

/// A set of descriptors to wait on. A descriptor must be removed before it is closed.
pub trait Waiter {
    /// Adds a descriptor.
    fn add(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()>;
    /// Changes the events to wait for.
    fn change(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()>;
    /// Removes a descriptor.
    fn remove(&mut self, fd: &dyn AsFd) -> io::Result<()>;
    /// Waits at most `timeout` until a descriptor is ready and writes the results to `ready`, which
    /// is cleared first. A signal ends the wait early.
    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()>;
    /// Reports whether a descriptor is reported once per event rather than while it is ready.
    fn is_edge_triggered(&self) -> bool {
        false
    }
    /// Reports whether the cost of a wait is independent of the number of descriptors.
    fn has_constant_cost(&self) -> bool {
        false
    }
}

fn raw(fd: &dyn AsFd) -> RawFd {
    fd.as_fd().as_raw_fd()
}

/// Converts an interrupted wait into one without ready descriptors.
fn quietly(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

fn timespec(timeout: Duration) -> Timespec {
    Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) }
}

/// `select`: bit sets for at most [`SELECT_MAX`] low-numbered descriptors.
#[derive(Default)]
pub struct Select {
    members: Vec<Option<(usize, Interest)>>,
}

type Set = [u64; SELECT_MAX / 64];

fn set_bit(set: &mut Set, fd: usize) {
    set[fd / 64] |= 1 << (fd % 64);
}

fn has_bit(set: &Set, fd: usize) -> bool {
    set[fd / 64] >> (fd % 64) & 1 == 1
}

impl Waiter for Select {
    fn add(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
        let at = raw(fd) as usize;
        if at >= SELECT_MAX {
            return Err(rustix::io::Errno::MFILE.into());
        }
        if self.members.len() <= at {
            self.members.resize(at + 1, None);
        }
        self.members[at] = Some((token, interest));
        Ok(())
    }

    fn change(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
        self.add(fd, token, interest)
    }

    fn remove(&mut self, fd: &dyn AsFd) -> io::Result<()> {
        if let Some(member) = self.members.get_mut(raw(fd) as usize) {
            *member = None;
        }
        while self.members.last().is_some_and(Option::is_none) {
            self.members.pop();
        }
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let (mut reads, mut writes): (Set, Set) = ([0; _], [0; _]);
        for (fd, member) in self.members.iter().enumerate() {
            let Some((_, interest)) = member else { continue };
            if interest.read {
                set_bit(&mut reads, fd);
            }
            if interest.write {
                set_bit(&mut writes, fd);
            }
        }
        let mut time = timeout.map(|timeout| libc::timeval {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_usec: libc::suseconds_t::from(timeout.subsec_micros()),
        });
        let time = time.as_mut().map_or(std::ptr::null_mut(), std::ptr::from_mut);
        let count = quietly(fault::call("select", || {
            let (reads, writes) = (std::ptr::from_mut(&mut reads), std::ptr::from_mut(&mut writes));
            // SAFETY: both sets have the size and layout of fd_set (bits in words, lowest first),
            // `nfds` does not exceed them, and all pointers are valid for the duration of the call.
            let count = unsafe {
                libc::select(
                    self.members.len() as i32,
                    reads.cast(),
                    writes.cast(),
                    std::ptr::null_mut(),
                    time,
                )
            };
            if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
        }))?;
        if count == 0 {
            return Ok(());
        }
        for (fd, member) in self.members.iter().enumerate() {
            let Some((token, _)) = member else { continue };
            let (can_read, can_write) = (has_bit(&reads, fd), has_bit(&writes, fd));
            if can_read || can_write {
                ready.push(Ready { token: *token, can_read, can_write });
            }
        }
        Ok(())
    }
}

/// `poll`: a list of descriptors that the kernel scans on each call.
#[derive(Default)]
pub struct Poll {
    members: Vec<libc::pollfd>,
    tokens: Vec<usize>,
    /// Position in the list by descriptor.
    places: Vec<usize>,
}

impl Poll {
    fn place(&self, fd: RawFd) -> Option<usize> {
        let place = self.places.get(fd as usize).copied()?;
        (self.members.get(place)?.fd == fd).then_some(place)
    }
}

fn poll_events(interest: Interest) -> i16 {
    let read = if interest.read { libc::POLLIN } else { 0 };
    let write = if interest.write { libc::POLLOUT } else { 0 };
    read | write
}

impl Waiter for Poll {
    fn add(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
        let fd = raw(fd);
        if self.places.len() <= fd as usize {
            self.places.resize(fd as usize + 1, usize::MAX);
        }
        self.places[fd as usize] = self.members.len();
        self.members.push(libc::pollfd { fd, events: poll_events(interest), revents: 0 });
        self.tokens.push(token);
        Ok(())
    }

    fn change(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
        let Some(place) = self.place(raw(fd)) else { return Err(io::ErrorKind::NotFound.into()) };
        self.members[place].events = poll_events(interest);
        self.tokens[place] = token;
        Ok(())
    }

    fn remove(&mut self, fd: &dyn AsFd) -> io::Result<()> {
        let fd = raw(fd);
        let Some(place) = self.place(fd) else { return Err(io::ErrorKind::NotFound.into()) };
        self.members.swap_remove(place);
        self.tokens.swap_remove(place);
        if let Some(moved) = self.members.get(place) {
            self.places[moved.fd as usize] = place;
        }
        self.places[fd as usize] = usize::MAX;
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        // Rounded up so that a wait of less than a millisecond does not spin.
        let timeout_ms = timeout.map_or(-1, |timeout| {
            i32::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX)
        });
        let mut left = quietly(fault::call("poll", || {
            let len = self.members.len() as libc::nfds_t;
            // SAFETY: the list has `len` members and is valid for the duration of the call.
            let count = unsafe { libc::poll(self.members.as_mut_ptr(), len, timeout_ms) };
            if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
        }))?;
        for (member, token) in self.members.iter().zip(&self.tokens) {
            if left == 0 {
                break;
            }
            if member.revents != 0 {
                left -= 1;
                let ended = member.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0;
                let can_read = ended || member.revents & libc::POLLIN != 0;
                let can_write = ended || member.revents & libc::POLLOUT != 0;
                ready.push(Ready { token: *token, can_read, can_write });
            }
        }
        Ok(())
    }
}

struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    by: EventFlags,
}

impl Epoll {
    fn new(by: EventFlags) -> io::Result<Self> {
        let create = || Ok(epoll::create(CreateFlags::CLOEXEC)?);
        let epoll = fault::call("epoll_create", create)?;
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS_MAX), by })
    }

    fn flags(&self, interest: Interest) -> EventFlags {
        let mut flags = self.by;
        flags.set(EventFlags::IN, interest.read);
        flags.set(EventFlags::OUT, interest.write);
        flags
    }

    fn add(&mut self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token as u64);
        let flags = self.flags(interest);
        fault::call("epoll_ctl", || Ok(epoll::add(&self.epoll, fd, data, flags)?))
    }

    fn change(&mut self, fd: BorrowedFd<'_>, token: usize, interest: Interest) -> io::Result<()> {
        let data = EventData::new_u64(token as u64);
        let flags = self.flags(interest);
        fault::call("epoll_ctl", || Ok(epoll::modify(&self.epoll, fd, data, flags)?))
    }

    fn remove(&mut self, fd: BorrowedFd<'_>) -> io::Result<()> {
        fault::call("epoll_ctl", || Ok(epoll::delete(&self.epoll, fd)?))
    }

    fn wait(&mut self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        self.events.clear();
        let timeout = timeout.map(timespec);
        quietly(fault::call("epoll_wait", || {
            let room = rustix::buffer::spare_capacity(&mut self.events);
            Ok(epoll::wait(&self.epoll, room, timeout.as_ref())?)
        }))?;
        for event in &self.events {
            let flags = event.flags;
            let ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            ready.push(Ready {
                token: event.data.u64() as usize,
                can_read: ended || flags.contains(EventFlags::IN),
                can_write: ended || flags.contains(EventFlags::OUT),
            });
        }
        Ok(())
    }
}

/// Level-triggered epoll, which reports a descriptor while it is ready.
pub struct EpollLevel(Epoll);

/// Edge-triggered epoll, which reports a descriptor once per event.
pub struct EpollEdge(Epoll);

impl EpollLevel {
    /// Creates an empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EventFlags::empty())?))
    }

    /// Waits like [`wait`](Waiter::wait) but with nanosecond precision instead of rounding up to
    /// milliseconds. If nothing is ready immediately, it waits on the epoll descriptor itself,
    /// which costs two more calls.
    pub fn wait_precise(&mut self, ready: &mut Vec<Ready>, timeout: Duration) -> io::Result<()> {
        self.0.wait(ready, Some(Duration::ZERO))?;
        if !ready.is_empty() || timeout.is_zero() {
            return Ok(());
        }
        let time = timespec(timeout);
        let mut set = [rustix::event::PollFd::new(&self.0.epoll, rustix::event::PollFlags::IN)];
        let woken =
            quietly(fault::call("poll", || Ok(rustix::event::poll(&mut set, Some(&time))?)))?;
        if woken > 0 { self.0.wait(ready, Some(Duration::ZERO)) } else { Ok(()) }
    }
}

impl EpollEdge {
    /// Creates an empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Epoll::new(EventFlags::ET)?))
    }
}

macro_rules! waiter {
    ($name:ident, $by_edge:literal) => {
        impl Waiter for $name {
            fn add(&mut self, fd: &dyn AsFd, token: usize, interest: Interest) -> io::Result<()> {
                self.0.add(fd.as_fd(), token, interest)
            }
            fn change(
                &mut self,
                fd: &dyn AsFd,
                token: usize,
                interest: Interest,
            ) -> io::Result<()> {
                self.0.change(fd.as_fd(), token, interest)
            }
            fn remove(&mut self, fd: &dyn AsFd) -> io::Result<()> {
                self.0.remove(fd.as_fd())
            }
            fn wait(
                &mut self,
                ready: &mut Vec<Ready>,
                timeout: Option<Duration>,
            ) -> io::Result<()> {
                self.0.wait(ready, timeout)
            }
            fn is_edge_triggered(&self) -> bool {
                $by_edge
            }
            fn has_constant_cost(&self) -> bool {
                true
            }
        }
    };
}
waiter!(EpollLevel, false);
waiter!(EpollEdge, true);
