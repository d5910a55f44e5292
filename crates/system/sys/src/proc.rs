//! Plain records from /proc and /sys, and what the system says of this process.
//!
//! Reading and understanding are apart: [`parse`] holds pure functions on text, this module the
//! calls. A file that is read again and again is kept open ([`ProcFile`]) and read from its start
//! into a buffer of its own: one system call, no allocation. Measured costs are those of the kernel
//! making the text; /proc/stat and smaps_rollup are the dear ones.

mod keyed;
pub mod parse;

pub use keyed::Keyed;
pub use parse::{
    CpuTicks, DiskCounters, DiskStat, Pressure, ProcessIo, ProcessStat, SchedStat, SmapsRollup,
    Status, SystemStat,
};

use crate::fault::{call, retry_on_interrupt};
use rustix::fs::{Mode, OFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

/// A small text file of the kernel that stays open. A file below `/proc/thread-self` goes on
/// telling of the thread that opened it.
#[derive(Debug)]
pub struct ProcFile {
    file: OwnedFd,
    buffer: Vec<u8>,
    /// Lines of the last text that was read to its end.
    lines: usize,
}

impl ProcFile {
    /// Opens `path`; texts longer than `bytes_max` are cut there.
    pub fn open(path: &Path, bytes_max: usize) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = retry_on_interrupt(|| {
            call("open", || Ok(rustix::fs::open(path, flags, Mode::empty())?))
        })?;
        Ok(Self { file, buffer: vec![0; bytes_max], lines: 0 })
    }

    /// Returns the text now, in one call for texts below a page; bytes that are not UTF-8 end it.
    pub fn read(&mut self) -> io::Result<&str> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            let rest = &mut self.buffer[filled..];
            let read = retry_on_interrupt(|| {
                call("pread", || Ok(rustix::io::pread(&self.file, &mut *rest, filled as u64)?))
            })?;
            filled += read;
            // Small files come whole; a full page may have more behind it.
            if read == 0 || read < 1024 {
                break;
            }
        }
        Ok(readable(&self.buffer[..filled]))
    }

    /// Returns the first `bytes` of the text now, in one call; the kernel writes little more than
    /// that.
    pub fn read_first(&mut self, bytes: usize) -> io::Result<&str> {
        let into = bytes.min(self.buffer.len());
        let into = &mut self.buffer[..into];
        let read = retry_on_interrupt(|| {
            call("pread", || Ok(rustix::io::pread(&self.file, &mut *into, 0)?))
        })?;
        Ok(readable(&self.buffer[..read]))
    }

    /// As [`ProcFile::read`] for a text about as long as a page whose number of lines rarely
    /// changes: it is whole when it has as many lines as the one before. Finding the end by asking
    /// once more would let the kernel count everything again.
    pub fn read_again(&mut self) -> io::Result<&str> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            let rest = &mut self.buffer[filled..];
            let read = retry_on_interrupt(|| {
                call("pread", || Ok(rustix::io::pread(&self.file, &mut *rest, filled as u64)?))
            })?;
            filled += read;
            let lines = self.buffer[..filled].iter().filter(|byte| **byte == b'\n').count();
            if read == 0 {
                self.lines = lines;
            }
            // The kernel hands out at most a page at a time, cut between two lines.
            if read == 0 || filled < SHORT_BYTES || lines == self.lines {
                break;
            }
        }
        Ok(readable(&self.buffer[..filled]))
    }
}

/// A text below this was not cut at the end of a page.
const SHORT_BYTES: usize = 2048;

/// Text up to the first byte that is no UTF-8.
fn readable(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""),
    }
}

/// Returns the name that the kernel gave this start of the machine.
///
/// # Errors
/// If the kernel does not tell.
pub fn boot_id() -> io::Result<String> {
    read_text(Path::new("/proc/sys/kernel/random/boot_id")).map(|id| id.trim().to_owned())
}

/// Reads a text file whole; bytes that are not UTF-8 are replaced.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = retry_on_interrupt(|| call("read-text", || std::fs::read(path)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_parsed<T>(path: &str, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
    parse(&read_text(Path::new(path))?).ok_or_else(|| unreadable(path))
}

fn unreadable(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} does not hold what is expected"))
}

/// What this process read and wrote so far.
pub fn process_io() -> io::Result<ProcessIo> {
    read_parsed("/proc/self/io", parse::parse_io)
}

/// Memory, switches and rights of this process.
pub fn status() -> io::Result<Status> {
    read_parsed("/proc/self/status", |text| Some(parse::parse_status(text)))
}

/// Memory, switches and rights of another process; switches are those of its first thread.
pub fn status_of(pid: u32) -> io::Result<Status> {
    read_parsed(&format!("/proc/{pid}/status"), |text| Some(parse::parse_status(text)))
}

/// Memory of another process of the same user, each page counted; walks its page tables.
pub fn smaps_rollup_of(pid: u32) -> io::Result<SmapsRollup> {
    read_parsed(&format!("/proc/{pid}/smaps_rollup"), |text| Some(parse::parse_smaps_rollup(text)))
}

/// Memory of this process, each page counted; walks its page tables.
pub fn smaps_rollup() -> io::Result<SmapsRollup> {
    read_parsed("/proc/self/smaps_rollup", |text| Some(parse::parse_smaps_rollup(text)))
}

/// Processor times of the machine.
pub fn system_stat() -> io::Result<SystemStat> {
    read_parsed("/proc/stat", parse::parse_system_stat)
}

/// Returns the block devices and what they did.
pub fn diskstats() -> io::Result<Vec<DiskStat>> {
    read_parsed("/proc/diskstats", |text| Some(parse::parse_diskstats(text)))
}

/// What the block device `name` did (/sys/block/NAME/stat).
pub fn disk_stat(name: &str) -> io::Result<DiskStat> {
    let mut stat = read_parsed(&format!("/sys/block/{name}/stat"), parse::parse_disk_stat)?;
    name.clone_into(&mut stat.name);
    Ok(stat)
}

/// Reads and writes under way on the block device `name`.
pub fn inflight(name: &str) -> io::Result<(u64, u64)> {
    read_parsed(&format!("/sys/block/{name}/inflight"), parse::parse_inflight)
}

/// Returns every process now. One open and read per process; those that end meanwhile are left out.
pub fn processes() -> io::Result<Vec<ProcessStat>> {
    let mut all = Vec::new();
    for entry in retry_on_interrupt(|| call("read-dir", || std::fs::read_dir("/proc")))? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            let text = read_text(&entry.path().join("stat"));
            all.extend(text.ok().and_then(|text| parse::parse_process_stat(&text)));
        }
    }
    Ok(all)
}

/// Returns the files that a process has mapped, each piece, with device and inode.
pub fn mapped_files(pid: u32) -> io::Result<Vec<((u32, u32), u64)>> {
    read_parsed(&format!("/proc/{pid}/maps"), |text| {
        Some(parse::parse_mapped_files(text).collect())
    })
}

/// Time on and off processors of the thread that opened it.
#[derive(Debug)]
pub struct ThreadSched(ProcFile);

impl ThreadSched {
    /// Opens the account of the calling thread.
    pub fn open() -> io::Result<Self> {
        ProcFile::open(Path::new("/proc/thread-self/schedstat"), 128).map(Self)
    }

    /// Returns the account now; one call, no allocation.
    pub fn read(&mut self) -> io::Result<SchedStat> {
        parse::parse_schedstat(self.0.read()?).ok_or_else(|| unreadable("schedstat"))
    }
}

/// Whose resources [`usage`] tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageOf {
    /// All threads of this process, past and present.
    Process,
    /// The calling thread.
    Thread,
    /// Children that ended and were waited for.
    Children,
}

/// Resources used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time in the program, ns; the kernel's step may be a tick.
    pub user_ns: u64,
    /// Time in the kernel, ns.
    pub system_ns: u64,
    /// Page faults without a device.
    pub minor_faults: u64,
    /// Page faults that waited for a device.
    pub major_faults: u64,
    /// Switches because it waited.
    pub voluntary_switches: u64,
    /// Switches because it was pushed out.
    pub involuntary_switches: u64,
    /// Largest resident size of the process so far, bytes.
    pub peak_rss_bytes: u64,
    /// Bytes that devices were asked for.
    pub read_bytes: u64,
    /// Bytes that devices were given.
    pub written_bytes: u64,
}

/// Returns the resources that `who` used so far.
pub fn usage(who: UsageOf) -> io::Result<Usage> {
    let who = match who {
        UsageOf::Process => libc::RUSAGE_SELF,
        UsageOf::Thread => libc::RUSAGE_THREAD,
        UsageOf::Children => libc::RUSAGE_CHILDREN,
    };
    let mut raw = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    call("getrusage", || {
        // SAFETY: `raw` is writable memory of the size of the structure that the call fills.
        match unsafe { libc::getrusage(who, raw.as_mut_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    })?;
    // SAFETY: zeroed above, and all-zero bytes are a valid rusage; the call filled it.
    let raw = unsafe { raw.assume_init() };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    Ok(Usage {
        user_ns: ns(raw.ru_utime),
        system_ns: ns(raw.ru_stime),
        minor_faults: raw.ru_minflt as u64,
        major_faults: raw.ru_majflt as u64,
        voluntary_switches: raw.ru_nvcsw as u64,
        involuntary_switches: raw.ru_nivcsw as u64,
        peak_rss_bytes: raw.ru_maxrss as u64 * 1024,
        read_bytes: raw.ru_inblock as u64 * 512,
        written_bytes: raw.ru_oublock as u64 * 512,
    })
}

/// Sends a signal, by its number, to a child that was not waited for yet: until then its number is
/// given to no other process.
pub fn signal_child(child: &std::process::Child, signal: i32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    let pid = Pid::from_child(child);
    call("kill", || Ok(kill_process(pid, signal)?))
}

/// Returns whether a child has ended, or was ended; it is still to be waited for, and until then
/// the system tells what it did.
pub fn has_ended(child: &std::process::Child) -> io::Result<bool> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = retry_on_interrupt(|| {
        call("waitid", || Ok(waitid(WaitId::Pid(Pid::from_child(child)), how)?))
    })?;
    Ok(ended.is_some())
}

/// Returns the number of descriptors that this process may have open; `None` without a limit.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// Raises the number of descriptors to the most that this process may have, and returns it;
/// `None` without a limit.
pub fn raise_open_files_limit() -> io::Result<Option<u64>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    call("setrlimit", || Ok(setrlimit(Resource::Nofile, raised)?))?;
    Ok(limit.maximum)
}

/// Clock ticks per second, the unit of [`CpuTicks`] and [`ProcessStat`].
pub fn ticks_per_second() -> u64 {
    configured(libc::_SC_CLK_TCK, 100)
}

/// What the control group at the root of the tree that this process sees allows, bytes; `None`
/// without a limit. That is a container's own; deeper groups are not looked at.
pub fn memory_limit_bytes() -> Option<u64> {
    let places = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let told = places.iter().find_map(|path| read_text(Path::new(path)).ok()?.trim().parse().ok());
    // The first version of control groups says "none" by a number that no memory reaches.
    told.filter(|bytes| *bytes < 1 << 60)
}

/// Page size, bytes.
pub fn page_bytes() -> u64 {
    configured(libc::_SC_PAGESIZE, 4096)
}

/// Processors that the calling thread may run on, at least 1.
pub fn affinity_cpus() -> io::Result<u32> {
    let set = call("sched_getaffinity", || Ok(rustix::thread::sched_getaffinity(None)?))?;
    Ok(set.count().max(1))
}

/// Returns a number of the system's configuration. Asked of libc, because rustix reads it from the
/// auxiliary vector in a way that does not work below valgrind, which the instruction gate uses.
fn configured(name: libc::c_int, usual: u64) -> u64 {
    // SAFETY: sysconf takes any number and touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|n| *n > 0).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let before = process_io().unwrap();
        let bytes = std::fs::read("/proc/self/maps").unwrap().len() as u64;
        let after = process_io().unwrap();
        assert!(after.read_chars >= before.read_chars + bytes);
        let status = status().unwrap();
        assert!(status.peak_rss_bytes.unwrap() >= status.rss_anon_bytes.unwrap());
        assert!(smaps_rollup().unwrap().rss_bytes.unwrap() > 0);
        let me = std::process::id();
        assert!(processes().unwrap().iter().any(|p| p.pid == me));
        assert!(system_stat().unwrap().total.total() > 0);
        assert!(page_bytes().is_power_of_two() && ticks_per_second() > 0);
    }

    #[test]
    fn a_child_that_ended_still_tells_what_it_did() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read x"]);
        let mut child = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(!has_ended(&child).unwrap());
        let path = format!("/proc/{}/io", child.id());
        let mut kept = ProcFile::open(Path::new(&path), 512).unwrap();
        drop(child.stdin.take());
        while !has_ended(&child).unwrap() {
            std::thread::yield_now();
        }
        assert!(parse::parse_io(kept.read().unwrap()).unwrap().read_chars > 0);
        child.wait().unwrap();
        assert!(has_ended(&child).is_err() && kept.read().is_err());
    }

    #[test]
    fn a_kept_account_is_that_of_its_thread_and_grows() {
        let mut sched = ThreadSched::open().unwrap();
        let before = sched.read().unwrap();
        let used = usage(UsageOf::Thread).unwrap();
        let mut x = 1u64;
        while usage(UsageOf::Thread).unwrap().user_ns <= used.user_ns + 20_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let after = sched.read().unwrap();
        if after == SchedStat::default() {
            println!("skipped: this kernel does not count schedstat");
            return;
        }
        assert!(after.on_cpu_ns > before.on_cpu_ns, "{before:?} {after:?}");
        let moved = std::thread::spawn(move || sched.read().unwrap()).join().unwrap();
        assert!(moved.on_cpu_ns >= after.on_cpu_ns, "still the account of the first thread");
    }

    #[test]
    fn faults_are_counted_per_thread() {
        let before = usage(UsageOf::Thread).unwrap();
        let touched = vec![1u8; 8 << 20];
        std::hint::black_box(&touched);
        let after = usage(UsageOf::Thread).unwrap();
        assert!(after.minor_faults > before.minor_faults);
        assert!(usage(UsageOf::Process).unwrap().minor_faults >= after.minor_faults);
    }

    #[test]
    fn disks_are_the_same_in_both_places() {
        let Some(row) = diskstats()
            .unwrap_or_default()
            .into_iter()
            .find(|row| Path::new("/sys/block").join(&row.name).is_dir())
        else {
            println!("skipped: no block device");
            return;
        };
        let own = disk_stat(&row.name).unwrap();
        assert!(own.reads >= row.reads && own.name == row.name);
        inflight(&row.name).unwrap();
        assert!(inflight("no-such-device").is_err());
    }

    #[test]
    fn a_long_text_is_cut_at_the_buffer() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        std::fs::write(&path, vec![b'a'; 5000]).unwrap();
        assert_eq!(ProcFile::open(&path, 4096).unwrap().read().unwrap().len(), 4096);
        assert_eq!(ProcFile::open(&path, 9000).unwrap().read().unwrap().len(), 5000);
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert_eq!(ProcFile::open(&path, 64).unwrap().read().unwrap(), "ab");
    }
}
