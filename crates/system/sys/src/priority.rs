//! I/O priorities of threads, and whether a scheduler honours them.

use crate::fault::call;
use std::io;

const WHO_PROCESS: libc::c_int = 1;
const BEST_EFFORT: libc::c_int = 2;
const CLASS_SHIFT: libc::c_int = 13;
/// The lowest level of a class; the default is 4.
const LOWEST: libc::c_int = 7;

/// Gives the calling thread the lowest I/O priority that is still served when others read: class
/// best-effort, level 7.
///
/// # Errors
/// Fails if ioprio_set fails, for instance because a sandbox forbids it.
pub fn lower_io_priority() -> io::Result<()> {
    call("ioprio_set", || {
        let priority = BEST_EFFORT << CLASS_SHIFT | LOWEST;
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

    #[test]
    fn the_priority_is_that_of_the_thread() {
        let lowered = std::thread::spawn(|| {
            lower_io_priority().unwrap();
            // SAFETY: the call takes two integers and accesses no memory.
            unsafe { libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0) }
        });
        assert_eq!(lowered.join().unwrap(), i64::from(BEST_EFFORT << CLASS_SHIFT | LOWEST));
    }
}
