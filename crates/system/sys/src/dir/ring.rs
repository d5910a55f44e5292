//! `statx` on many names through io_uring.
//!
//! The kernel never executes the `statx` of a ring inline. Each request goes to one of the ring's
//! worker threads (io-wq), so this is a thread pool inside the kernel. It exists for measurements.
//!
//! The memory that the kernel reads (names) and writes (results) during a request belongs to the
//! ring. [`StatRing::stat_all`] returns when all requests have completed; if the kernel cannot
//! continue, that memory is leaked rather than freed too early.

use super::Dir;
use super::meta::{Fields, Meta};
use crate::fault;
use crate::ring::{REFUSED_PAUSE, post_completions};
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::AsRawFd;

/// A ring that queries names, used by the thread that created it.
pub struct StatRing {
    ring: IoUring,
    /// One result per request in flight.
    answers: Box<[libc::statx]>,
    names: Vec<u8>,
    _not_send: std::marker::PhantomData<*mut ()>,
}

impl StatRing {
    /// Creates a ring for `depth` concurrent requests, executed by at most `workers_max` kernel
    /// threads.
    pub fn new(depth: u32, workers_max: u32) -> io::Result<Self> {
        let entries = depth.clamp(1, 4096).next_power_of_two();
        let ring = fault::call("io_uring_setup", || {
            IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(entries)
        })?;
        let mut workers = [workers_max.max(1); 2];
        fault::call("io_uring_register", || {
            ring.submitter().register_iowq_max_workers(&mut workers)
        })?;
        // SAFETY: statx is plain data for which all-zero bytes are a valid value.
        let empty: libc::statx = unsafe { std::mem::zeroed() };
        Ok(Self {
            ring,
            answers: vec![empty; entries as usize].into_boxed_slice(),
            names: Vec::new(),
            _not_send: std::marker::PhantomData,
        })
    }

    /// Queries the children `names` of `dir` without following symbolic links and stores the
    /// results in `metas` in the same order. Fails only if the ring fails.
    pub fn stat_all(
        &mut self,
        dir: &Dir,
        names: &[&CStr],
        fields: Fields,
        metas: &mut Vec<io::Result<Meta>>,
    ) -> io::Result<()> {
        if self.answers.is_empty() {
            return Err(io::Error::other("the ring failed earlier"));
        }
        metas.clear();
        metas.resize_with(names.len(), || Err(io::ErrorKind::Interrupted.into()));
        self.names.clear();
        self.names.reserve(names.iter().map(|name| name.to_bytes_with_nul().len()).sum());
        let mut starts = Vec::with_capacity(names.len());
        for name in names {
            starts.push(self.names.len());
            self.names.extend_from_slice(name.to_bytes_with_nul());
        }
        let mut free: Vec<u32> = (0..self.answers.len() as u32).collect();
        let mut asked_by = vec![0usize; self.answers.len()];
        let (mut next, mut answered) = (0, 0);
        while answered < names.len() {
            while next < names.len() {
                let Some(slot) = free.pop() else { break };
                if !self.push(dir, starts[next], fields, slot) {
                    free.push(slot);
                    break;
                }
                asked_by[slot as usize] = next;
                next += 1;
            }
            debug_assert_eq!(
                free.len() + (next - answered),
                self.answers.len(),
                "each slot must be either free or in flight, so that its memory has one user"
            );
            if let Err(error) = self.enter() {
                self.abandon(free.len());
                return Err(error);
            }
            let mut completion = self.ring.completion();
            completion.sync();
            for entry in completion {
                let slot = entry.user_data() as u32;
                free.push(slot);
                answered += 1;
                let result = entry.result();
                let result =
                    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(0) };
                metas[asked_by[slot as usize]] = fault::completion("uring_statx", result)
                    .map(|_| Meta::of(&self.answers[slot as usize]));
            }
        }
        Ok(())
    }

    /// Adds a request to the submission queue; returns false if it is full.
    fn push(&mut self, dir: &Dir, start: usize, fields: Fields, slot: u32) -> bool {
        let answer = std::ptr::from_mut(&mut self.answers[slot as usize]).cast::<types::statx>();
        let name = self.names[start..].as_ptr().cast();
        let entry = opcode::Statx::new(types::Fd(dir.0.as_raw_fd()), name, answer)
            .flags(libc::AT_SYMLINK_NOFOLLOW | libc::AT_NO_AUTOMOUNT)
            .mask(fields.mask().bits())
            .build()
            .user_data(u64::from(slot));
        // SAFETY: name and result are in memory of this ring that is neither moved nor accessed
        // until the request has completed: `stat_all` waits for all requests or leaks the memory.
        unsafe { self.ring.submission().push(&entry).is_ok() }
    }

    /// Submits new requests and waits for a completion. After a refused submission, there may be none.
    fn enter(&mut self) -> io::Result<()> {
        loop {
            match fault::call("io_uring_enter", || self.ring.submit_and_wait(1)) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::BUSY | Errno::AGAIN)) => {
                    post_completions(&self.ring);
                    if self.ring.completion().is_empty() {
                        std::thread::sleep(REFUSED_PAUSE);
                    }
                    return Ok(());
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Leaks the memory that the kernel may still use.
    fn abandon(&mut self, free: usize) {
        if free < self.answers.len() {
            std::mem::forget(std::mem::take(&mut self.names));
            std::mem::forget(std::mem::take(&mut self.answers));
        }
    }
}

/// Returns the number of kernel threads that currently work for rings of this process.
pub fn ring_workers() -> usize {
    let tasks = fault::call("read-dir", || std::fs::read_dir("/proc/self/task"));
    let Ok(tasks) = tasks else { return 0 };
    tasks
        .filter_map(|task| std::fs::read(task.ok()?.path().join("comm")).ok())
        .filter(|name| name.starts_with(b"iou-wrk-"))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    #[test]
    fn ring_and_call_give_the_same_metadata() {
        let temp = tempfile::tempdir().unwrap();
        let names: Vec<CString> =
            (0..300).map(|i| CString::new(format!("f{i:03}")).unwrap()).collect();
        for (i, name) in names.iter().enumerate().filter(|(i, _)| i % 7 != 0) {
            std::fs::write(temp.path().join(name.to_str().unwrap()), vec![1u8; i]).unwrap();
        }
        let dir = Dir::open(temp.path()).unwrap();
        let mut ring = StatRing::new(16, 4).unwrap();
        let names: Vec<&CStr> = names.iter().map(CString::as_c_str).collect();
        let mut metas = Vec::new();
        for _ in 0..2 {
            ring.stat_all(&dir, &names, Fields::BYTES, &mut metas).unwrap();
            assert_eq!(metas.len(), 300);
            for (i, (meta, name)) in metas.iter().zip(&names).enumerate() {
                match (meta, dir.meta_at(name, false, Fields::BYTES)) {
                    (Ok(a), Ok(b)) => assert_eq!((a.bytes, a.identity()), (i as u64, b.identity())),
                    (Err(a), Err(b)) => assert_eq!(a.kind(), b.kind()),
                    (a, b) => panic!("{a:?} {b:?}"),
                }
            }
        }
        ring.stat_all(&dir, &[], Fields::BYTES, &mut metas).unwrap();
        assert!(metas.is_empty());
    }
}
