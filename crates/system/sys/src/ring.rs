//! An io_uring wrapper that owns everything in flight.
//!
//! A request moves its file and its buffer into a slot of the ring. Until completion, the kernel
//! can write to the buffer at any time; the completion moves both out again. Data in flight cannot
//! be accessed, so a caller cannot free or reuse a buffer too early. Dropping the ring cancels as
//! much as possible and waits for the rest.
//!
//! ```text
//! caller            Ring                      kernel
//! read(file, buf) → slot 3 = (file, buf) ───→ request, user_data = 3
//!                                             … writes buf …
//! reap()          ← take slot 3 ←──────────── completion, user_data = 3
//! ```
//!
//! The ring is created with SINGLE_ISSUER and DEFER_TASKRUN: only the thread that created it
//! submits and reaps, and completions are processed when that thread enters the kernel instead of
//! interrupting it. On a kernel without these flags, creating a ring fails; there is no fallback.
//!
//! A read from a pipe or a device through a ring can block forever, regardless of its open flags.
//! Checking the type of every file would cost a call each. Instead, a long wait checks the files in
//! flight and cancels reads from those that are not regular.

use crate::buffer::Buffer;
use crate::fault;
use crate::file::{self, Kind, OpenHow};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Duration of a wait after which the types of the files in flight are checked.
const LONG_WAIT: types::Timespec = types::Timespec::new().nsec(250_000_000);
/// Pause before requests are submitted again that the kernel could not accept, for lack of memory or because
/// completions wait to be taken.
pub const REFUSED_PAUSE: std::time::Duration = std::time::Duration::from_micros(200);

/// Reports whether an open by a ring failed for a reason that a system call does not share: it was
/// interrupted or cancelled, or memory for the request was short.
pub fn is_open_given_up(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::AGAIN | Errno::INTR | Errno::CANCELED | Errno::NOMEM)
    )
}

/// A completed request.
#[derive(Debug)]
pub struct Completion {
    /// Token passed with the request.
    pub token: u64,
    /// The result.
    pub outcome: Outcome,
}

/// Kind and result of a request.
#[derive(Debug)]
pub enum Outcome {
    /// An open.
    Open(io::Result<OwnedFd>),
    /// A size query; returns the file and the size in bytes.
    Size(OwnedFd, io::Result<u64>),
    /// A read; returns file, buffer and the number of bytes read.
    Read(OwnedFd, Buffer, io::Result<usize>),
    /// A write; returns file, buffer and the number of bytes written.
    Write(OwnedFd, Buffer, io::Result<usize>),
}

/// Memory for the result of a size query, written by the kernel.
type StatxBox = Box<libc::statx>;

enum Flight {
    Open(
        #[expect(dead_code, reason = "the kernel reads the path until the open completes")] CString,
    ),
    Size(OwnedFd, StatxBox),
    Read(OwnedFd, Buffer),
    Write(OwnedFd, Buffer),
}

/// A ring that belongs to one thread.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Option<(u64, Flight)>>,
    free: Vec<u32>,
    unsubmitted: usize,
    registered: HashMap<usize, u16>,
    _not_send: std::marker::PhantomData<*mut ()>,
}

impl Ring {
    /// Creates a ring for at most `depth` requests in flight, used only by the calling thread.
    pub fn new(depth: u32) -> io::Result<Self> {
        let entries = depth.clamp(1, 32_768).next_power_of_two();
        let ring = fault::call("io_uring_setup", || {
            IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .setup_taskrun_flag()
                .setup_cqsize((entries * 2).min(65_536))
                .build(entries)
        })?;
        let depth = depth.max(1);
        Ok(Self {
            ring,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            unsubmitted: 0,
            registered: HashMap::new(),
            _not_send: std::marker::PhantomData,
        })
    }

    /// Returns the number of requests in flight or waiting to be submitted.
    pub fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns how many more requests fit.
    pub fn room(&self) -> usize {
        self.free.len()
    }

    /// Registers buffers, so that reads into them do not need to pin pages. Fails with ENOMEM if
    /// the limit on locked memory is too low (8 MiB for an unprivileged user by default).
    pub fn register(&mut self, buffers: &mut [Buffer]) -> io::Result<()> {
        let vectors: Vec<libc::iovec> = buffers
            .iter()
            .map(|b| libc::iovec { iov_base: b.address().cast(), iov_len: b.capacity() })
            .collect();
        fault::call("io_uring_register", || {
            // SAFETY: the vectors describe live allocations, whose pages the kernel pins. If a
            // buffer is freed while registered, no read can target it because a read takes the
            // buffer itself.
            unsafe { self.ring.submitter().register_buffers(&vectors) }
        })?;
        self.registered =
            buffers.iter().zip(0..).map(|(b, index)| (b.address() as usize, index)).collect();
        Ok(())
    }

    /// Requests an open. The ring must have [`room`](Self::room).
    pub fn open(&mut self, token: u64, path: CString, how: OpenHow) {
        let entry = opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr())
            .flags(how.flags().bits() as i32)
            .build();
        self.push(token, Flight::Open(path), entry);
    }

    /// Requests the size of an open file. The ring must have room.
    pub fn size(&mut self, token: u64, file: OwnedFd) {
        // SAFETY: statx is plain data for which all-zero bytes are a valid value.
        let mut into: StatxBox = Box::new(unsafe { std::mem::zeroed() });
        let pointer = std::ptr::from_mut(&mut *into).cast::<types::statx>();
        let entry = opcode::Statx::new(types::Fd(file.as_raw_fd()), c"".as_ptr(), pointer)
            .flags(libc::AT_EMPTY_PATH)
            .mask(libc::STATX_SIZE)
            .build();
        self.push(token, Flight::Size(file, into), entry);
    }

    /// Requests a read at `offset` into `range` of the buffer. The ring must have room.
    pub fn read(
        &mut self,
        token: u64,
        file: OwnedFd,
        mut buffer: Buffer,
        range: std::ops::Range<usize>,
        offset: u64,
    ) {
        let into = buffer.whole_mut()[range].as_mut();
        let (pointer, len) = (into.as_mut_ptr(), into.len().min(1 << 30) as u32);
        let fd = types::Fd(file.as_raw_fd());
        let fixed = self.registered.get(&(buffer.address() as usize)).copied();
        let entry = match fixed {
            Some(index) => opcode::ReadFixed::new(fd, pointer, len, index).offset(offset).build(),
            None => opcode::Read::new(fd, pointer, len).offset(offset).build(),
        };
        self.push(token, Flight::Read(file, buffer), entry);
    }

    /// Requests a write of `range` of the buffer at `offset`. The ring must have room.
    pub fn write(
        &mut self,
        token: u64,
        file: OwnedFd,
        buffer: Buffer,
        range: std::ops::Range<usize>,
        offset: u64,
    ) {
        let from = &buffer.bytes(range.end)[range.start..];
        let (pointer, len) = (from.as_ptr(), from.len().min(1 << 30) as u32);
        let fd = types::Fd(file.as_raw_fd());
        let fixed = self.registered.get(&(buffer.address() as usize)).copied();
        let entry = match fixed {
            Some(index) => opcode::WriteFixed::new(fd, pointer, len, index).offset(offset).build(),
            None => opcode::Write::new(fd, pointer, len).offset(offset).build(),
        };
        self.push(token, Flight::Write(file, buffer), entry);
    }

    fn push(&mut self, token: u64, flight: Flight, entry: squeue::Entry) {
        let slot = self.free.pop().expect("the caller checked room()");
        debug_assert!(
            self.slots[slot as usize].is_none(),
            "a free slot must not have a request in flight: the kernel may still write its memory"
        );
        self.slots[slot as usize] = Some((token, flight));
        let entry = entry.user_data(u64::from(slot));
        // SAFETY: everything that the entry points to (path, statx, buffer) is owned by the slot
        // until completion; moving the slot does not change heap addresses.
        while unsafe { self.ring.submission().push(&entry) }.is_err() {
            // Rare: the submission queue has at least as many entries as there are slots.
            if self.ring.submit().is_err() {
                post_completions(&self.ring);
                std::thread::sleep(REFUSED_PAUSE);
            }
        }
        self.unsubmitted += 1;
    }

    /// Submits new requests and, if `wait`, waits for at least one completion; then moves all
    /// completions into `done`.
    pub fn reap(&mut self, wait: bool, done: &mut Vec<Completion>) -> io::Result<()> {
        let before = done.len();
        self.drain(done);
        let wait = wait && done.len() == before && self.in_flight() > 0;
        if self.unsubmitted > 0 || wait || self.ring.submission().taskrun() {
            loop {
                // With DEFER_TASKRUN, completions appear only when the thread enters the kernel for
                // them; a flag in the ring indicates whether there are any.
                let result = fault::call("io_uring_enter", || {
                    if wait { self.wait_briefly() } else { self.enter_now() }
                });
                match result {
                    // A wait that also submitted requests does not report its timeout.
                    Ok(_) if wait && self.ring.completion().is_empty() => {}
                    Ok(_) => break,
                    Err(e) if Errno::from_io_error(&e) == Some(Errno::TIME) => {
                        self.cancel_irregular()
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Err(e)
                        if matches!(Errno::from_io_error(&e), Some(Errno::BUSY | Errno::AGAIN)) =>
                    {
                        post_completions(&self.ring);
                        self.drain(done);
                        // The next call submits what the kernel does not accept now.
                        if done.len() > before || !wait {
                            break;
                        }
                        std::thread::sleep(REFUSED_PAUSE);
                    }
                    Err(e) => return Err(e),
                }
            }
            self.unsubmitted = self.ring.submission().len();
            self.drain(done);
        }
        Ok(())
    }

    /// Submits new requests without checking for completions, to measure the cost of submission.
    /// Requests that the kernel cannot accept now are submitted by the next call.
    pub fn submit(&mut self) -> io::Result<()> {
        let result = fault::call("io_uring_enter", || self.ring.submit());
        self.unsubmitted = self.ring.submission().len();
        match result {
            Ok(_) => Ok(()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::BUSY | Errno::AGAIN)) => {
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// Submits new requests and waits at most [`LONG_WAIT`] for a completion.
    fn wait_briefly(&mut self) -> io::Result<usize> {
        let args = types::SubmitArgs::new().timespec(&LONG_WAIT);
        self.ring.submitter().submit_with_args(1, &args)
    }

    /// Cancels reads of files that are not regular; they complete with an error. A read that cannot
    /// be cancelled yet is retried after the next long wait.
    #[cold]
    fn cancel_irregular(&self) {
        for (slot, flight) in self.slots.iter().enumerate() {
            let Some((_, Flight::Read(file, _))) = flight else { continue };
            if file::size_and_kind(file).is_ok_and(|(_, kind)| kind != Kind::Regular) {
                let which = types::CancelBuilder::user_data(slot as u64);
                let _ = self.ring.submitter().register_sync_cancel(Some(LONG_WAIT), which);
            }
        }
    }

    /// Submits new requests and lets the kernel post deferred completions without waiting, in one
    /// system call.
    fn enter_now(&mut self) -> io::Result<usize> {
        let new = self.ring.submission().len() as u32;
        enter(&self.ring, new)
    }

    fn drain(&mut self, done: &mut Vec<Completion>) {
        let mut completion = self.ring.completion();
        completion.sync();
        for entry in completion {
            let slot = entry.user_data();
            let Some((token, flight)) = self.slots.get_mut(slot as usize).and_then(Option::take)
            else {
                continue; // the completion of a cancellation
            };
            self.free.push(slot as u32);
            debug_assert!(self.free.len() <= self.slots.len(), "each slot must be freed only once");
            done.push(Completion { token, outcome: finish(flight, entry.result()) });
        }
    }
}

/// Lets the kernel post deferred completions of a ring and those for which its queue had no room, after it refused a
/// submission: such a call does not look for them. Takes no requests. The caller then takes the completions;
/// if there are none, it pauses before it submits again.
pub fn post_completions(ring: &IoUring) {
    // Ignore a failure: the caller submits again, which reports it.
    let _ = fault::call("io_uring_get_events", || enter(ring, 0));
}

/// Submits the first `new` requests and lets the kernel post deferred completions without waiting.
fn enter(ring: &IoUring, new: u32) -> io::Result<usize> {
    const GET_EVENTS: u32 = 1;
    // SAFETY: no argument is passed; the submission queue has at least `new` entries, whose
    // resources are owned by the slots of the ring.
    unsafe { ring.submitter().enter::<libc::sigset_t>(new, 0, GET_EVENTS, None) }
}

fn finish(flight: Flight, result: i32) -> Outcome {
    let count = |op, result: i32| {
        let result = if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            Ok(result as usize)
        };
        fault::completion(op, result)
    };
    match flight {
        Flight::Open(_) => Outcome::Open(if result < 0 {
            Err(io::Error::from_raw_os_error(-result))
        } else {
            // SAFETY: the kernel created this descriptor, and nothing else owns it.
            let file = unsafe { OwnedFd::from_raw_fd(result) };
            fault::completion("uring_open", Ok(0)).map(|_| file)
        }),
        Flight::Size(file, statx) => {
            let size = count("uring_statx", result).map(|_| statx.stx_size);
            Outcome::Size(file, size)
        }
        Flight::Read(file, buffer) => Outcome::Read(file, buffer, count("uring_read", result)),
        Flight::Write(file, buffer) => Outcome::Write(file, buffer, count("uring_write", result)),
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        let _ = fault::call("io_uring_enter", || self.ring.submit());
        while self.in_flight() > 0 {
            // Repeated, because a submission can be refused: requests that are submitted later must end too.
            let cancel = types::CancelBuilder::any();
            let _ = self.ring.submitter().register_sync_cancel(None, cancel);
            let waited = self.wait_briefly();
            match waited.map_err(|e| (e.kind(), Errno::from_io_error(&e))) {
                Ok(_) | Err((io::ErrorKind::Interrupted, _) | (_, Some(Errno::TIME))) => {}
                Err((_, Some(Errno::BUSY | Errno::AGAIN))) => {
                    post_completions(&self.ring);
                    std::thread::sleep(REFUSED_PAUSE);
                }
                Err(_) => {
                    // The kernel may still write to memory owned by the slots: leak it.
                    std::mem::forget(std::mem::take(&mut self.slots));
                    return;
                }
            }
            self.drain(&mut done);
            done.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file;
    use std::os::unix::ffi::OsStrExt;

    fn wait_one(ring: &mut Ring) -> Completion {
        let mut done = Vec::new();
        while done.is_empty() {
            ring.reap(true, &mut done).unwrap();
        }
        assert_eq!(done.len(), 1);
        done.pop().unwrap()
    }

    #[test]
    fn open_size_and_read_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [9u8; 5000]).unwrap();
        let mut ring = Ring::new(4).unwrap();
        ring.open(1, CString::new(path.as_os_str().as_bytes()).unwrap(), OpenHow::default());
        let Outcome::Open(Ok(fd)) = wait_one(&mut ring).outcome else { panic!("open failed") };
        ring.size(2, fd);
        let Outcome::Size(fd, Ok(5000)) = wait_one(&mut ring).outcome else {
            panic!("size failed")
        };
        ring.read(3, fd, Buffer::new(8192), 0..8192, 0);
        let Outcome::Read(_, buffer, Ok(5000)) = wait_one(&mut ring).outcome else {
            panic!("read")
        };
        assert!(buffer.bytes(5000).iter().all(|b| *b == 9));
        let copy = std::fs::File::create(dir.path().join("copy")).unwrap();
        ring.write(4, copy.into(), buffer, 1000..5000, 100);
        let Outcome::Write(_, _, Ok(4000)) = wait_one(&mut ring).outcome else { panic!("write") };
        assert_eq!(std::fs::read(dir.path().join("copy")).unwrap()[99..102], [0, 9, 9]);
        assert_eq!(ring.in_flight(), 0);
    }

    #[test]
    fn registered_buffers_read_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, [3u8; 5000]).unwrap();
        let mut ring = Ring::new(2).unwrap();
        let mut buffers = vec![Buffer::new(8192), Buffer::new(8192)];
        ring.register(&mut buffers).unwrap();
        let fd = file::open(&path, OpenHow::default()).unwrap();
        ring.read(3, fd, buffers.pop().unwrap(), 0..8192, 1000);
        let Outcome::Read(_, buffer, Ok(4000)) = wait_one(&mut ring).outcome else {
            panic!("read")
        };
        assert!(buffer.bytes(4000).iter().all(|b| *b == 3));
    }

    #[test]
    fn a_ring_dropped_in_flight_waits_for_the_kernel() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, vec![1u8; 1 << 20]).unwrap();
        for _ in 0..20 {
            let mut ring = Ring::new(8).unwrap();
            for token in 0..8 {
                let fd = file::open(&path, OpenHow::default()).unwrap();
                ring.read(token, fd, Buffer::new(1 << 20), 0..1 << 20, 0);
            }
        }
    }

    #[test]
    fn a_read_of_a_silent_pipe_is_cancelled() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let _writer = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
        let mut ring = Ring::new(1).unwrap();
        let fd = file::open(&pipe, OpenHow::default()).unwrap();
        ring.read(1, fd, Buffer::new(4096), 0..4096, 0);
        let Outcome::Read(_, _, Err(error)) = wait_one(&mut ring).outcome else {
            panic!("must fail")
        };
        assert_eq!(error.raw_os_error(), Some(libc::ECANCELED));
    }

    #[test]
    fn opens_that_the_ring_gave_up_are_repeated() {
        let given_up = |errno| is_open_given_up(&io::Error::from_raw_os_error(errno));
        let some = [libc::ECANCELED, libc::ENOMEM, libc::EINTR, libc::EAGAIN, libc::ENOENT];
        assert_eq!(some.map(given_up), [true, true, true, true, false]);
    }

    #[test]
    fn errors_come_back_with_the_request() {
        let mut ring = Ring::new(1).unwrap();
        ring.open(7, CString::new("/no/such/file").unwrap(), OpenHow::default());
        let done = wait_one(&mut ring);
        assert_eq!(done.token, 7);
        let Outcome::Open(Err(error)) = done.outcome else { panic!("must fail") };
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }
}
