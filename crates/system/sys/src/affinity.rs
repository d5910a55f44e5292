//! Processor affinity: which processors a thread may use, and pinning it to one.
//!
//! A measurement that migrates between processors measures two sets of caches. [`PinnedThread`]
//! restricts the calling thread to one processor and restores its old mask when dropped, so that a
//! failure in between leaves the thread as it was.

use crate::fault::call;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::io;

/// Returns the processors that the calling thread may run on, ascending.
///
/// # Errors
/// The error of sched_getaffinity.
pub fn allowed() -> io::Result<Vec<u32>> {
    let set = call("sched_getaffinity", || Ok(sched_getaffinity(None)?))?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Returns the processor on which the calling thread is running.
#[inline]
pub fn current() -> u32 {
    sched_getcpu() as u32
}

/// Keeps the calling thread on one processor until it is dropped, which must happen on the same
/// thread; the type is not `Send` to enforce that.
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
    /// The error of sched_setaffinity: `InvalidInput` if the processor is offline, does not exist
    /// or is forbidden by the control group.
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

    /// Returns whether the thread is running on its processor.
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
