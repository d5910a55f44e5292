//! I/O priorities of threads, and whether a scheduler honours them.

use crate::fault::call;
use std::io;

const WHO_PROCESS: libc::c_int = 1;
const BEST_EFFORT: libc::c_int = 2;
const IDLE: libc::c_int = 3;
const CLASS_SHIFT: libc::c_int = 13;
/// The lowest level of a class; the default is 4.
const LOWEST: libc::c_int = 7;

/// Gives the calling thread the lowest I/O priority that is still served when others read: class
/// best-effort, level 7. A thread of class idle, whose priority is lower, keeps it.
///
/// # Errors
/// Fails if ioprio_get or ioprio_set fails, for instance because a sandbox forbids it.
pub fn lower_io_priority() -> io::Result<()> {
    let now = call("ioprio_get", || {
        // SAFETY: the call takes two integers and accesses no memory.
        match unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) } {
            error if error < 0 => Err(io::Error::last_os_error()),
            priority => Ok(priority),
        }
    })?;
    if now >> CLASS_SHIFT == libc::c_long::from(IDLE) {
        return Ok(());
    }
    set_io_priority(BEST_EFFORT << CLASS_SHIFT | LOWEST)
}

fn set_io_priority(priority: libc::c_int) -> io::Result<()> {
    call("ioprio_set", || {
        // SAFETY: the call takes three integers and accesses no memory.
        match unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, priority) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })
}

/// Reports whether a scheduler serves the levels of the class best-effort differently. Of the
/// schedulers of Linux only `bfq` does; `mq-deadline` distinguishes classes, not levels.
pub fn honours_levels(scheduler: &str) -> bool {
    scheduler == "bfq"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(before: Option<libc::c_int>) -> i64 {
        let lowered = std::thread::spawn(move || {
            before.map_or(Ok(()), set_io_priority).unwrap();
            lower_io_priority().unwrap();
            // SAFETY: the call takes two integers and accesses no memory.
            unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) }
        });
        lowered.join().unwrap()
    }

    #[test]
    fn the_priority_is_that_of_the_thread() {
        let lowest = i64::from(BEST_EFFORT << CLASS_SHIFT | LOWEST);
        assert_eq!(after(None), lowest);
        assert_eq!(after(Some(BEST_EFFORT << CLASS_SHIFT)), lowest);
    }

    #[test]
    fn a_thread_of_class_idle_stays_idle() {
        assert_eq!(after(Some(IDLE << CLASS_SHIFT)) >> CLASS_SHIFT, i64::from(IDLE));
    }
}
