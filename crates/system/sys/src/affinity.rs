//! Processor affinity: the processors available to a thread, and pinning a thread to one of them.
//!
//! A measurement that migrates between processors measures two sets of caches. [`PinnedThread`]
//! restricts the calling thread to one processor and restores the old mask when dropped, so an
//! early return also restores it.

use crate::fault::call;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;

/// Returns the processors on which the calling thread can run, in ascending order.
///
/// # Errors
/// Fails if sched_getaffinity fails.
pub fn allowed() -> io::Result<Vec<u32>> {
    let set = call("sched_getaffinity", || Ok(sched_getaffinity(None)?))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Returns the processor on which the calling thread is running.
#[inline]
pub fn current() -> u32 {
    sched_getcpu() as u32
}

/// Keeps the calling thread on one processor until dropped, which must happen on the same thread;
/// the type is not `Send` to enforce this.
#[derive(Debug)]
pub struct PinnedThread {
    cpu: u32,
    before: CpuSet,
    own_thread: std::marker::PhantomData<*const ()>,
}

impl PinnedThread {
    /// Restricts the calling thread to `cpu`.
    ///
    /// # Errors
    /// Fails if sched_setaffinity fails: `InvalidInput` if the processor is offline, does not exist
    /// or is not allowed by the cgroup.
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

    /// Reports whether the thread is running on its processor.
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
    fn a_thread_is_pinned_and_released() {
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
