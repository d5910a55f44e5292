//! On which processors a thread runs: what it may use, holding it to one, and whether that holds.
//!
//! A measurement that moves between processors measures two sets of caches. [`PinnedThread`]
//! narrows the mask of the calling thread to one processor and gives the old mask back when it is
//! dropped, so that a caller who fails half-way leaves the thread as it was.

use crate::fault::call;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;

/// Returns numbers of the processors that the calling thread may run on, ascending.
///
/// # Errors
/// What sched_getaffinity reports.
pub fn allowed() -> io::Result<Vec<u32>> {
    let set = call("sched_getaffinity", || Ok(sched_getaffinity(None)?))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Returns the processor that the calling thread runs on now.
#[inline]
pub fn current() -> u32 {
    sched_getcpu() as u32
}

/// The calling thread is held to one processor as long as this lives. It must be dropped on the
/// thread that made it, which the type enforces by not being sendable.
#[derive(Debug)]
pub struct PinnedThread {
    cpu: u32,
    before: CpuSet,
    own_thread: std::marker::PhantomData<*const ()>,
}

impl PinnedThread {
    /// Holds the calling thread to `cpu`.
    ///
    /// # Errors
    /// What sched_setaffinity reports: invalid when the processor is off line, does not exist or
    /// the control group forbids it.
    pub fn pin(cpu: u32) -> io::Result<Self> {
        let before = call("sched_getaffinity", || Ok(sched_getaffinity(None)?))?;
        if cpu as usize >= CpuSet::MAX_CPU {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let mut one = CpuSet::new();
        one.set(cpu as usize);
        call("sched_setaffinity", || Ok(sched_setaffinity(None, &one)?))?;
        Ok(Self { cpu, before, own_thread: std::marker::PhantomData })
    }

    /// Returns the processor.
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether the thread is on its processor now.
    #[inline]
    pub fn is_on_cpu(&self) -> bool {
        current() == self.cpu
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_held_and_let_go() {
        let all = allowed().unwrap();
        let last = *all.last().unwrap();
        let held = PinnedThread::pin(last).unwrap();
        assert_eq!(allowed().unwrap(), [last]);
        assert!(held.is_on_cpu() && held.cpu() == last);
        drop(held);
        assert_eq!(allowed().unwrap(), all);
        assert!(PinnedThread::pin(1_000_000).is_err());
    }
}
