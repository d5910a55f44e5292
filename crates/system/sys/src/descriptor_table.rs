//! Room in the table of open files.
//!
//! The table of a process starts with 64 places and doubles when they are used up. In a process with
//! several threads the kernel then waits until no processor can still be reading the old table
//! (`synchronize_rcu` in `expand_files`), which takes some 10 ms, and all threads that open a file
//! wait as well. A run with 512 files in flight pays that three times, in its first moments. A table
//! that is enlarged while the process has one thread costs nothing, and one that is enlarged ahead,
//! by a thread of its own, stops no one who still finds a free place.
//!
//! The table never shrinks. A place takes 8 bytes.

use crate::descriptor::close;
use crate::fault::call;
use crate::{file, proc};
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

/// Places that were asked for. Guards no other data: a second thread that asks at the same moment
/// repeats a harmless call.
static PLACES: AtomicU32 = AtomicU32::new(0);

/// Makes room for descriptors below `places`, or below the limit of open files if that is lower.
/// Waits for other threads of the process, so call this before the first one starts.
///
/// # Errors
/// Two system calls failed. Files can be opened nevertheless.
pub fn make_room(places: u32) -> io::Result<()> {
    let limit = proc::open_files_limit().unwrap_or(u64::MAX);
    let places = u64::from(places).min(limit).min(i32::MAX as u64) as u32;
    if places == 0 || PLACES.load(Ordering::Relaxed) >= places {
        return Ok(());
    }
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let any = file::retry("open", || open("/", flags, Mode::empty()))?;
    // The lowest free descriptor that is not below the last place.
    let last = call("dup", || Ok(rustix::io::fcntl_dupfd_cloexec(&any, places as i32 - 1)?));
    close(any)?;
    close(last?)?;
    PLACES.fetch_max(places, Ordering::Relaxed);
    Ok(())
}

/// Makes room like [`make_room`], but without waiting: a thread does it, unless it was done before.
pub fn make_room_ahead(places: u32) {
    if PLACES.load(Ordering::Relaxed) < places {
        let room = move || drop(make_room(places));
        // Without a thread, the table grows when it is full.
        drop(std::thread::Builder::new().name("ioloom-room".to_owned()).spawn(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of the table, as the kernel reports it.
    fn places() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let size = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
        size.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn the_table_grows_and_no_descriptor_stays_open() {
        make_room(700).unwrap();
        assert!(places() >= 700, "{} places", places());
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let numbers = open.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        assert!(numbers.map(|n| n.parse::<u32>().unwrap()).all(|n| n < 600));
    }
}
