//! io_uring: one ring per thread, buffered or direct, with or without registered buffers.
//!
//! Every file in flight has a slot in `jobs`; its token is the index. A job is opened (by system
//! call, or by the ring with `uring:open`), read and, if its first buffer was full, queried for its
//! size and read on into a larger buffer. A job that needs a larger buffer while memory is short
//! waits in `parked` with its bytes, and is tried again after every reap. If nothing else of this
//! thread is in flight, the thread waits for memory.

use super::after_read::{Full, Larger, complete, ended, full, next_piece, outgrown, take_over};
use super::interface::{Cx, Fetch, Reaped, Started};
use super::lease::{lease_waiting, no_buffer, try_lease};
use super::opening::{NotOpen, Opened, ask_first, begin, failed_on, first_lease, open, size_of};
use super::piece::{Begun, PieceProgress, READ_MAX, is_end, is_end_here, piece_limit};
use super::pread;
use crate::arena::{Arena, Lease};
use crate::error::{Error, FileError, Operation};
use crate::loaded::Loaded;
use crate::shared::Shared;
use crate::source::Item;
use ioloom_failure::{is_out_of_descriptors, reason};
use ioloom_model::{CallKind, Method, Schedule};
use ioloom_sys::buffer::Buffer;
use ioloom_sys::file::{self, OpenHow};
use ioloom_sys::ring::{Completion, Outcome, Ring, is_open_given_up};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Requests submitted per system call under `window`.
const WINDOW_BATCH: u32 = 8;
/// Size of one registered buffer, bytes. Larger files continue in ordinary buffers.
pub(crate) const REGISTERED_BYTES: usize = 64 << 10;

struct Job<'p, S> {
    item: Item<'p, S>,
    lease: Lease,
    progress: PieceProgress,
    asked: usize,
    /// How often the kernel returned `EAGAIN` or `EINTR`.
    retries: u32,
}

/// Most retries of a read. A regular file needs few; a path that became a pipe after it was listed
/// would need them forever.
const RETRIES_MAX: u32 = 1000;

struct Parked<'p, S> {
    job: Job<'p, S>,
    file: OwnedFd,
    larger: Larger,
}

/// The arena of buffers that are registered with a ring. They are freed with the ring, or when they come
/// back after it.
struct Registered(Arc<Arena>);

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The ring of one thread and what is in flight on it.
pub(crate) struct Rings<'p, S> {
    ring: Ring,
    jobs: Vec<Option<Job<'p, S>>>,
    free: Vec<usize>,
    parked: VecDeque<Parked<'p, S>>,
    /// Files that the ring did not open, for want of a descriptor or of memory, or because of an interruption.
    unopened: VecDeque<Job<'p, S>>,
    done: Vec<Completion>,
    direct: bool,
    open_in_ring: bool,
    registered: Option<Registered>,
    /// Requests queued and not yet submitted.
    queued: u32,
    /// Requests per submission: several under `window`, one under `threads` and `roles`, where a
    /// read is a call of its own so that its cost can be measured.
    batch: u32,
}

impl<S> Rings<'_, S> {
    pub(crate) fn new(shared: &Shared<'_>, window: u32) -> Result<Self, Error> {
        let method = shared.plan.method;
        let mut ring = Ring::new(window).map_err(|e| {
            let (plan, reason) = (shared.plan, reason(&e));
            let advice = match e.kind() {
                io::ErrorKind::OutOfMemory => "; raise the limit of locked memory (ulimit -l)",
                _ => "",
            };
            Error::Refused(format!(
                "{plan}: cannot create an io_uring (SINGLE_ISSUER, DEFER_TASKRUN): {reason}{advice}"
            ))
        })?;
        let registered = (method == Method::UringRegistered)
            .then(|| register(&mut ring, shared, window))
            .transpose()?;
        let batch = match shared.plan.schedule {
            Schedule::Window { .. } => WINDOW_BATCH.min(window),
            Schedule::Threads { .. } | Schedule::Roles { .. } => 1,
        };
        Ok(Self { registered, ..Self::on(ring, method, (window, batch)) })
    }

    /// Creates the fetch of a ring that opens files, too, for a worker of a window. Fails where the
    /// kernel, a filter of system calls or a limit does not allow it.
    pub(crate) fn that_opens(window: u32) -> io::Result<Self> {
        let mut ring = Ring::new(window)?;
        try_open(&mut ring)?;
        Ok(Self::on(ring, Method::UringOpen, (window, WINDOW_BATCH.min(window))))
    }

    fn on(ring: Ring, method: Method, (window, batch): (u32, u32)) -> Self {
        Self {
            ring,
            jobs: (0..window).map(|_| None).collect(),
            free: (0..window as usize).rev().collect(),
            parked: VecDeque::new(),
            unopened: VecDeque::new(),
            done: Vec::with_capacity(window as usize),
            direct: method.is_direct(),
            open_in_ring: method == Method::UringOpen,
            registered: None,
            queued: 0,
            batch,
        }
    }
}

/// Opens a directory by a ring, which fails where a ring can be created and not used.
fn try_open(ring: &mut Ring) -> io::Result<()> {
    ring.open(0, c"/".to_owned(), OpenHow::default());
    let mut done = Vec::new();
    while done.is_empty() {
        ring.reap(true, &mut done)?;
    }
    match done.pop().map(|completion| completion.outcome) {
        Some(Outcome::Open(opened)) => opened.map(drop),
        _ => unreachable!("an open was requested, and nothing else"),
    }
}

fn register(ring: &mut Ring, shared: &Shared<'_>, window: u32) -> Result<Registered, Error> {
    let bytes = shared.plan.chunk_bytes.map_or(REGISTERED_BYTES, |c| c as usize);
    let total = bytes as u64 * u64::from(window);
    if !shared.budget.try_reserve(total) {
        return Err(Error::Refused(format!(
            "{}: {} of registered buffers do not fit the memory budget; use a smaller window",
            shared.plan,
            ioloom_model::units::format_size(total)
        )));
    }
    let made: io::Result<Vec<Buffer>> = (0..window).map(|_| Buffer::try_new(bytes)).collect();
    let mut buffers = made.map_err(|e| {
        Error::Refused(format!(
            "{}: cannot allocate {} of registered buffers: {}; use a smaller window",
            shared.plan,
            ioloom_model::units::format_size(total),
            reason(&e)
        ))
    })?;
    ring.register(&mut buffers).map_err(|e| {
        Error::Refused(format!(
            "{}: cannot register {} of buffers: {}; raise the limit of locked memory (ulimit -l) \
             or use a smaller window",
            shared.plan,
            ioloom_model::units::format_size(total),
            reason(&e)
        ))
    })?;
    Ok(Registered(Arena::of_registered(shared.budget.clone(), buffers)))
}

impl<'p, S> Rings<'p, S> {
    /// Reports whether one more piece fits.
    pub(crate) fn has_room(&self) -> bool {
        self.in_flight() < self.jobs.len()
    }

    /// Returns the bytes charged for jobs that wait for memory or for a descriptor.
    fn held(&self) -> u64 {
        let parked = self.parked.iter().map(|parked| &parked.job);
        parked.chain(&self.unopened).map(|job| job.lease.held()).sum()
    }

    /// Moves the jobs that wait for memory to the queue of another method. Those that have grown stay:
    /// they wait for nothing.
    pub(crate) fn move_parked(&mut self, to: &mut pread::Parked<'p, S>) {
        let parked = std::mem::take(&mut self.parked);
        let (grown, waiting): (VecDeque<_>, VecDeque<_>) =
            parked.into_iter().partition(|parked| parked.larger.grown);
        self.parked = grown;
        to.extend(waiting.into_iter().map(|Parked { job, file, larger }| {
            pread::Waiting::new(job.item, file, (job.lease, job.progress), larger.bytes)
        }));
    }

    /// Submits what is queued once a batch is full.
    fn hand_over(&mut self, shared: &Shared<'_>) {
        self.queued += 1;
        if self.queued >= self.batch {
            self.queued = 0;
            if let Err(source) = self.ring.submit() {
                shared.fail(Error::System { operation: "submit to the ring", source });
            }
        }
    }

    fn submit_read(&mut self, file: OwnedFd, mut job: Job<'p, S>, limit: usize) {
        let offset = job.progress.offset + job.progress.filled as u64;
        let range = job.progress.filled..limit.min(job.progress.filled + READ_MAX);
        job.asked = range.len();
        let buffer = job.lease.take_buffer();
        let token = self.place(job);
        self.ring.read(token, file, buffer, range, offset);
    }

    fn place(&mut self, job: Job<'p, S>) -> u64 {
        let at = self.free.pop().expect("a fetch never exceeds its window");
        self.jobs[at] = Some(job);
        at as u64
    }

    fn take(&mut self, token: u64) -> Job<'p, S> {
        self.free.push(token as usize);
        self.jobs[token as usize].take().expect("a token names a job in flight")
    }

    /// Continues with a completion. Returns `Some` when the piece is complete or failed.
    fn advance(
        &mut self,
        cx: &mut Cx<'_, '_>,
        done: Completion,
    ) -> Option<Result<Loaded<'p, S>, FileError>> {
        let mut job = self.take(done.token);
        match done.outcome {
            Outcome::Open(Ok(file)) => {
                let limit = piece_limit(cx, &job.lease);
                self.submit_read(file, job, limit);
                None
            }
            Outcome::Open(Err(error))
                if is_out_of_descriptors(&error) || is_open_given_up(&error) =>
            {
                if is_out_of_descriptors(&error) {
                    cx.shared.refused.fetch_add(1, Ordering::Relaxed);
                }
                self.unopened.push_back(job);
                None
            }
            Outcome::Open(Err(error)) => {
                let path = job.item.path.as_path();
                Some(Err(FileError::io(job.item.index, path, Operation::Open, error)))
            }
            Outcome::Size(..) | Outcome::Write(..) => {
                unreachable!("sizes are queried by system call, and nothing is written")
            }
            Outcome::Read(file, buffer, result) => {
                job.lease.refill(buffer);
                let result = result.and_then(|n| read_surely(cx, &mut job, &file, n));
                self.read_came(cx, job, file, result)
            }
        }
    }

    fn read_came(
        &mut self,
        cx: &mut Cx<'_, '_>,
        mut job: Job<'p, S>,
        file: OwnedFd,
        result: io::Result<usize>,
    ) -> Option<Result<Loaded<'p, S>, FileError>> {
        let limit = piece_limit(cx, &job.lease);
        let n = match result {
            Ok(n) => n,
            Err(e) if again(&e) && job.retries < RETRIES_MAX => {
                // A regular file hardly ever returns EAGAIN.
                if let Err(error) = size_of(cx, &job.item, &file) {
                    return Some(Err(error));
                }
                job.retries += 1;
                self.submit_read(file, job, limit);
                return None;
            }
            Err(e) => return Some(Err(failed_on(&job.item, &file, Operation::Read, e))),
        };
        let read = (n, job.asked);
        let mut end = is_end_here(cx, &job.item, &file, read, &mut job.progress, self.direct);
        if !end && n < job.asked && job.progress.size.is_none() && !job.progress.cut {
            match size_of(cx, &job.item, &file) {
                Ok(size) => job.progress.size = Some(size),
                Err(error) => return Some(Err(error)),
            }
            end = is_end(n, job.asked, &job.progress, self.direct);
        }
        job.progress.filled += n;
        if end {
            return ended(cx, job.item, file, job.lease, job.progress).came();
        }
        if job.progress.filled < limit {
            self.submit_read(file, job, limit);
            return None;
        }
        match full(cx, &job.item, &file, &mut job.progress) {
            Ok(Full::Piece) => {
                Some(Ok(complete(cx, job.item, file, job.lease, job.progress, false)))
            }
            Ok(Full::End) => ended(cx, job.item, file, job.lease, job.progress).came(),
            Ok(Full::Larger(larger)) => {
                let parked = Parked { job, file, larger };
                // A job with a large buffer goes first, because it must never wait behind another.
                if larger.grown {
                    self.parked.push_front(parked);
                } else {
                    self.parked.push_back(parked);
                }
                None
            }
            Err(error) => Some(Err(error)),
        }
    }

    /// Opens by system call what the ring could not open. Waits for a descriptor only if nothing in
    /// flight could return one.
    fn reopen(&mut self, cx: &mut Cx<'_, '_>, may_wait: bool, out: &mut Reaped<'p, S>) {
        while let Some(mut job) = self.unopened.pop_front() {
            cx.idle = may_wait && self.ring.in_flight() == 0 && out.is_empty();
            match open(cx, &job.item, self.direct) {
                Ok(Opened { file, size }) => {
                    job.progress.size = size;
                    let limit = piece_limit(cx, &job.lease);
                    self.submit_read(file, job, limit);
                }
                Err(NotOpen::Later) => {
                    self.unopened.push_front(job);
                    return;
                }
                Err(NotOpen::Failed(error)) => out.push_back(Err(error)),
            }
        }
    }

    /// Gives parked jobs their larger buffers, the oldest first. Waits for memory only if nothing
    /// of this thread is in flight or has completed.
    fn unpark(&mut self, cx: &mut Cx<'_, '_>, may_wait: bool, out: &mut Reaped<'p, S>) {
        while let Some(Parked { mut job, file, larger: Larger { bytes, grown } }) =
            self.parked.pop_front()
        {
            let larger = match try_lease(cx.shared, &cx.shared.arena, bytes) {
                Ok(None) if grown => Err(outgrown(&job.item)),
                Ok(None)
                    if cx.shared.unbounded()
                        || (may_wait && self.ring.in_flight() == 0 && out.is_empty()) =>
                {
                    let holding = job.lease.held() + self.held();
                    lease_waiting(cx, &job.item, bytes, holding)
                }
                Ok(None) => {
                    let larger = Larger { bytes, grown };
                    self.parked.push_front(Parked { job, file, larger });
                    return;
                }
                Ok(Some(lease)) => Ok(lease),
                Err(none) => Err(no_buffer(cx.shared, &job.item, bytes, none)),
            };
            match larger {
                Ok(larger) => {
                    job.lease = take_over(larger, &job.lease, job.progress.filled);
                    let limit = job.lease.capacity();
                    self.submit_read(file, job, limit);
                }
                Err(error) => out.push_back(Err(error)),
            }
        }
    }
}

/// Returns how many bytes were read. Linux 6.18 returns the requested number for a read by the ring from
/// a FUSE file with `FOPEN_DIRECT_IO`, although the process returned fewer. Where that is possible, the read is
/// repeated by system call.
fn read_surely<S>(
    cx: &Cx<'_, '_>,
    job: &mut Job<'_, S>,
    file: &OwnedFd,
    n: usize,
) -> io::Result<usize> {
    if n == 0 || !cx.shared.short_reads.are_of_a_server(job.item.path.as_path(), file) {
        return Ok(n);
    }
    let PieceProgress { offset, filled, .. } = job.progress;
    let into = &mut job.lease.whole_mut()[filled..filled + job.asked];
    file::read_at(file, into, offset + filled as u64)
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

impl<'p, S> Fetch<'p, S> for Rings<'p, S> {
    fn start(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S> {
        if self.open_in_ring {
            return self.start_with_open(cx, item, lease);
        }
        match begin(cx, &item, lease, self.direct) {
            Ok(begun) => self.begin_read(cx, item, begun),
            Err(not) => not.started(item),
        }
    }

    fn resume(&mut self, cx: &mut Cx<'_, '_>, done: Loaded<'p, S>) -> Started<'p, S> {
        match next_piece(cx, done) {
            Ok((item, begun)) => self.begin_read(cx, item, begun),
            Err(error) => Started::Failed(error),
        }
    }

    fn reap(
        &mut self,
        cx: &mut Cx<'_, '_>,
        wait: bool,
        out: &mut Reaped<'p, S>,
    ) -> Result<(), Error> {
        let before = out.len();
        loop {
            self.unpark(cx, wait && cx.may_wait && out.len() == before, out);
            if !self.unopened.is_empty() {
                self.reopen(cx, wait && self.parked.is_empty(), out);
            }
            let wait = wait && out.len() == before;
            if self.ring.in_flight() == 0 {
                return Ok(()); // everything left waits for memory or for a descriptor
            }
            let mut done = std::mem::take(&mut self.done);
            self.queued = 0;
            let result = self.ring.reap(wait, &mut done);
            cx.meter.lap_ring_wait();
            for one in done.drain(..) {
                out.extend(self.advance(cx, one));
            }
            self.done = done;
            result.map_err(|source| Error::System { operation: "wait on the ring", source })?;
            debug_assert_eq!(
                self.jobs.len() - self.free.len(),
                self.ring.in_flight(),
                "every request in flight has a job, which owns its buffer"
            );
            if !wait || out.len() > before || self.in_flight() == 0 {
                return Ok(());
            }
            // The completions were continued, or the wait was interrupted.
        }
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight() + self.parked.len() + self.unopened.len()
    }

    fn holding(&self) -> u64 {
        self.held()
    }

    fn arena<'a>(&'a self, shared: &'a Shared<'_>) -> &'a Arc<Arena> {
        self.registered.as_ref().map_or(&shared.arena, |registered| &registered.0)
    }
}

impl<'p, S> Rings<'p, S> {
    fn begin_read(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        Begun { file, lease, progress }: Begun,
    ) -> Started<'p, S> {
        let limit = piece_limit(cx, &lease);
        let index = item.index;
        self.submit_read(file, Job { item, lease, progress, asked: 0, retries: 0 }, limit);
        self.hand_over(cx.shared);
        cx.meter.lap(CallKind::Read, index);
        Started::Pending
    }

    fn start_with_open(
        &mut self,
        cx: &mut Cx<'_, '_>,
        item: Item<'p, S>,
        lease: Option<Lease>,
    ) -> Started<'p, S> {
        let size = match ask_first(cx, &item, self.direct) {
            Ok(size) => size,
            Err(error) => return Started::Failed(error),
        };
        let path = item.path.as_path();
        let how = OpenHow { direct: self.direct, nofollow: item.known_regular };
        let Ok(c_path) = CString::new(path.as_os_str().as_bytes()) else {
            let reason = "the path contains a zero byte";
            return Started::Failed(FileError::rejected(item.index, path, Operation::Open, reason));
        };
        let lease = match first_lease(cx, &item, lease, size) {
            Ok(lease) => lease,
            Err(error) => return Started::Failed(error),
        };
        let index = item.index;
        let progress = PieceProgress { size, ..PieceProgress::default() };
        let token = self.place(Job { item, lease, progress, asked: 0, retries: 0 });
        self.ring.open(token, c_path, how);
        self.hand_over(cx.shared);
        cx.meter.lap(CallKind::Open, index);
        Started::Pending
    }
}
