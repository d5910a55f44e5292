//! Advice for failed calls.
//!
//! Advice is given only if the operation and the error are sufficient to prove it correct. `ENOENT`
//! has none: the path may be mistyped, a parent may be missing, the file may have been removed, or
//! the file system, such as `/proc`, may not allow new files. The error does not distinguish these
//! cases.

use crate::Operation;
use rustix::io::Errno;
use std::io;

/// Returns what the user can do about `error`, or `None` if advice would be a guess.
///
/// ```
/// use ioloom_failure::{Operation, advice};
/// use std::io::Error;
///
/// let full = Error::from_raw_os_error(28);
/// assert_eq!(advice(Operation::Write, &full), Some("free space or inodes on the file system"));
/// assert_eq!(advice(Operation::Create, &Error::from_raw_os_error(2)), None);
/// ```
pub fn advice(operation: Operation, error: &io::Error) -> Option<&'static str> {
    let errno = Errno::from_io_error(error)?;
    Some(match errno {
        Errno::ACCESS if operation.reads() => "run as a user with permission",
        Errno::ACCESS => "run as a user with write permission on the directory",
        Errno::MFILE => "raise the limit with 'ulimit -n'",
        Errno::LOOP if matches!(operation, Operation::Stat | Operation::Access) => {
            "remove a symbolic link that leads back to itself, shorten the chain of links, or use a \
             mount without nosymfollow"
        }
        Errno::NFILE => "the system-wide limit of open files is reached: raise fs.file-max",
        Errno::OPNOTSUPP | Errno::XDEV | Errno::INVAL if operation == Operation::Clone => {
            "use --reflink=auto to copy what cannot share blocks"
        }
        Errno::NOSPC => "free space or inodes on the file system",
        Errno::DQUOT => "free space or raise the quota",
        Errno::ROFS => "remount the file system read-write, or choose another target",
        Errno::IO => "see the kernel log for the device error",
        Errno::STALE => "the server no longer has this file: list the directory again",
        Errno::NOMEM => "free memory, or raise the memory limit of this process",
        Errno::NAMETOOLONG => "use a shorter name",
        Errno::TXTBSY => "stop the program that is running from this file",
        Errno::FBIG => {
            "check the file size limits of the process ('ulimit -f') and the file system"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_get_no_guess() {
        for operation in [Operation::Stat, Operation::Create, Operation::Rename] {
            assert_eq!(advice(operation, &io::Error::from_raw_os_error(2)), None);
        }
    }

    #[test]
    fn readers_and_writers_get_their_own_advice() {
        let denied = io::Error::from_raw_os_error(13);
        assert_eq!(advice(Operation::Open, &denied), Some("run as a user with permission"));
        assert!(advice(Operation::Create, &denied).unwrap().contains("write permission"));
    }

    #[test]
    fn files_that_cannot_share_blocks_can_be_copied() {
        // EOPNOTSUPP, EXDEV, and EINVAL for a file of btrfs without checksums.
        for number in [95, 18, 22] {
            let error = io::Error::from_raw_os_error(number);
            assert!(advice(Operation::Clone, &error).unwrap().contains("--reflink=auto"));
        }
        assert_eq!(advice(Operation::Read, &io::Error::from_raw_os_error(22)), None);
    }

    #[test]
    fn links_are_not_followed_on_some_mounts() {
        let text = advice(Operation::Stat, &io::Error::from_raw_os_error(40)).unwrap();
        assert!(text.contains("shorten the chain") && text.ends_with("without nosymfollow"));
    }

    #[test]
    fn errors_without_a_number_get_none() {
        assert_eq!(advice(Operation::Read, &io::Error::other("short read")), None);
    }
}
