//! Reads /proc, /sys and process resource usage.
//!
//! Reading and parsing are separate: [`parse`] has pure functions on text, this module makes the
//! calls. A file that is read repeatedly stays open ([`ProcFile`]) and is read from its start into
//! its own buffer, which costs one system call and no allocation. Most of the cost is the kernel
//! formatting the text; /proc/stat and smaps_rollup are the most expensive.

mod keyed;
pub mod parse;

pub use keyed::Keyed;
pub use parse::{
    CpuTicks, DiskCounters, DiskStat, Pressure, ProcessIo, ProcessStat, SchedStat, SmapsRollup,
    Status, SystemStat,
};

use crate::fault::{call, retry_on_interrupt};
use rustix::fs::{Mode, OFlags};
use rustix::process::WaitIdOptions;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;

/// A small kernel text file that stays open. A file below `/proc/thread-self` always refers to the
/// thread that opened it.
#[derive(Debug)]
pub struct ProcFile {
    file: OwnedFd,
    buffer: Vec<u8>,
    /// Number of lines in the last text that was read completely.
    lines: usize,
}

impl ProcFile {
    /// Opens `path`; texts longer than `bytes_max` are truncated.
    pub fn open(path: &Path, bytes_max: usize) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = retry_on_interrupt(|| {
            call("open", || Ok(rustix::fs::open(path, flags, Mode::empty())?))
        })?;
        Ok(Self { file, buffer: vec![0; bytes_max], lines: 0 })
    }

    /// Reads the current text, in one call if it is shorter than a page. The text ends at the first
    /// byte that is not valid UTF-8.
    pub fn read(&mut self) -> io::Result<&str> {
        let mut filled = 0;
        while filled < self.buffer.len() {
            let rest = &mut self.buffer[filled..];
            let read = retry_on_interrupt(|| {
                call("pread", || Ok(rustix::io::pread(&self.file, &mut *rest, filled as u64)?))
            })?;
            filled += read;
            // A small file arrives in one piece; after a full page there may be more.
            if read == 0 || read < 1024 {
                break;
            }
        }
        Ok(readable(&self.buffer[..filled]))
    }

    /// Reads only the first `bytes` of the current text, in one call; the kernel formats little
    /// more than that.
    pub fn read_first(&mut self, bytes: usize) -> io::Result<&str> {
        let into = bytes.min(self.buffer.len());
        let into = &mut self.buffer[..into];
        let read = retry_on_interrupt(|| {
            call("pread", || Ok(rustix::io::pread(&self.file, &mut *into, 0)?))
        })?;
        Ok(readable(&self.buffer[..read]))
    }

    /// Like [`ProcFile::read`], for a text of about a page whose number of lines rarely changes: it
    /// is complete when it has as many lines as the previous one. A further read to detect the end
    /// would make the kernel compute all counters again.
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
            // The kernel returns at most a page per call, ending at a line.
            if read == 0 || filled < SHORT_BYTES || lines == self.lines {
                break;
            }
        }
        Ok(readable(&self.buffer[..filled]))
    }
}

/// A shorter text cannot have been truncated at the end of a page.
const SHORT_BYTES: usize = 2048;

/// Returns the text before the first byte that is not valid UTF-8.
fn readable(bytes: &[u8]) -> &str {
    match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => std::str::from_utf8(&bytes[..e.valid_up_to()]).unwrap_or(""),
    }
}

/// Returns the identifier of this boot.
///
/// # Errors
/// Fails if the kernel does not provide it.
pub fn boot_id() -> io::Result<String> {
    read_text(Path::new("/proc/sys/kernel/random/boot_id")).map(|id| id.trim().to_owned())
}

/// Removes access by other users from the files that this process creates from now on.
pub fn restrict_umask() {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    rustix::process::umask(before | Mode::RWXG | Mode::RWXO);
}

/// Reports whether a process has ended or is being killed: it does not exist, is a zombie, has
/// started to exit, or has a pending SIGKILL. Its locks are released within moments. A process that
/// exists but is hidden, as by the mount option `hidepid`, counts as running.
pub fn is_ending(pid: u32) -> bool {
    const EXITING: u64 = 0x4;
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(stat) = read_text(Path::new(&format!("/proc/{pid}/stat"))) else {
        return !exists(pid);
    };
    let fields = stat.rsplit_once(") ").map(|(_, rest)| rest).unwrap_or_default();
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    // Field 9 of the manual page; the state is field 3.
    let flags = fields.nth(5).and_then(|flags| flags.parse::<u64>().ok()).unwrap_or(0);
    let status = read_text(Path::new(&format!("/proc/{pid}/status"))).unwrap_or_default();
    let pending = |name| {
        let mask = parse::value(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.unwrap_or(0) & KILL != 0
    };
    matches!(state, "Z" | "X") || flags & EXITING != 0 || pending("SigPnd") || pending("ShdPnd")
}

/// Returns when a process started, in ticks since boot, which distinguishes processes that reused a number. Returns
/// `None` if it does not exist.
pub fn start_ticks(pid: u32) -> Option<u64> {
    let text = read_text(Path::new(&format!("/proc/{pid}/stat"))).ok()?;
    parse::parse_process_stat(&text).map(|stat| stat.start_ticks)
}

/// Returns the PID namespace of this process, as `pid:[INODE]`. Returns `None` if the kernel does not provide it.
pub fn pid_namespace() -> Option<String> {
    let link = call("readlink", || std::fs::read_link("/proc/self/ns/pid")).ok()?;
    link.into_os_string().into_string().ok()
}

/// Returns the process that holds a `flock` on a file, from its device and inode number. Returns
/// `None` if there is none, or if it is in another PID namespace.
pub fn lock_holder(device: (u32, u32), inode: u64) -> Option<u32> {
    let locks = read_text(Path::new("/proc/locks")).ok()?;
    let wanted = format!("{:02x}:{:02x}:{inode}", device.0, device.1);
    locks.lines().find_map(|line| {
        // 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF
        let mut words = line.split_ascii_whitespace().skip(1);
        (words.next() == Some("FLOCK")).then_some(())?;
        let pid = words.nth(2)?;
        (words.next() == Some(wanted.as_str())).then_some(())?;
        pid.parse().ok().filter(|pid| *pid > 0)
    })
}

/// Reads a text file; bytes that are not UTF-8 are replaced.
pub fn read_text(path: &Path) -> io::Result<String> {
    let bytes = retry_on_interrupt(|| call("read-text", || std::fs::read(path)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the number of the calling thread.
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Returns for how long the first thread of a process was ready to run without running; `None` if the kernel does not
/// report it. It is kept until a process that has ended is waited for.
pub fn run_delay_ns(id: u32) -> Option<u64> {
    delay_in(&format!("/proc/{id}/schedstat"))
}

/// Returns the same for a thread of this process. `None` also if /proc is that of another PID namespace, where the
/// number may be that of another program's thread.
pub fn thread_run_delay_ns(thread: u32) -> Option<u64> {
    delay_in(&format!("/proc/self/task/{thread}/schedstat"))
}

fn delay_in(path: &str) -> Option<u64> {
    let text = read_text(Path::new(path)).ok()?;
    parse::parse_schedstat(&text).map(|stat| stat.run_delay_ns)
}

fn read_parsed<T>(path: &str, parse: impl FnOnce(&str) -> Option<T>) -> io::Result<T> {
    parse(&read_text(Path::new(path))?).ok_or_else(|| unreadable(path))
}

fn unreadable(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("unexpected contents of {path}"))
}

/// Returns the I/O counters of this process.
pub fn process_io() -> io::Result<ProcessIo> {
    read_parsed("/proc/self/io", parse::parse_io)
}

/// Returns the I/O counters of another process of the same user.
pub fn process_io_of(pid: u32) -> io::Result<ProcessIo> {
    read_parsed(&format!("/proc/{pid}/io"), parse::parse_io)
}

/// Returns memory, context switches and capabilities of this process.
pub fn status() -> io::Result<Status> {
    read_parsed("/proc/self/status", |text| Some(parse::parse_status(text)))
}

/// Returns the same for another process; the context switches are those of its main thread.
pub fn status_of(pid: u32) -> io::Result<Status> {
    read_parsed(&format!("/proc/{pid}/status"), |text| Some(parse::parse_status(text)))
}

/// Returns the exact memory of another process of the same user; walks its page tables.
pub fn smaps_rollup_of(pid: u32) -> io::Result<SmapsRollup> {
    read_parsed(&format!("/proc/{pid}/smaps_rollup"), |text| Some(parse::parse_smaps_rollup(text)))
}

/// Returns the exact memory of this process; walks its page tables.
pub fn smaps_rollup() -> io::Result<SmapsRollup> {
    read_parsed("/proc/self/smaps_rollup", |text| Some(parse::parse_smaps_rollup(text)))
}

/// Returns the processor times of the machine.
pub fn system_stat() -> io::Result<SystemStat> {
    read_parsed("/proc/stat", parse::parse_system_stat)
}

/// Returns the nanoseconds that tasks have run on all processors (/proc/schedstat). A slice is counted
/// when its task leaves the processor.
pub fn ran_ns() -> io::Result<u64> {
    read_parsed("/proc/schedstat", parse::parse_ran_ns)
}

/// Returns the nanoseconds that the tasks of the topmost control group have run. In a container that is
/// the group of the container.
pub fn group_ran_ns() -> io::Result<u64> {
    let read = |path| read_parsed(path, |text| text.trim().parse().ok());
    read("/sys/fs/cgroup/cpuacct/cpuacct.usage")
        .or_else(|_| read("/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"))
}

/// Returns the time during which tasks waited for a processor (/proc/pressure/cpu).
pub fn cpu_pressure() -> io::Result<Pressure> {
    read_parsed("/proc/pressure/cpu", parse::parse_pressure)
}

/// Returns the counters of all block devices.
pub fn diskstats() -> io::Result<Vec<DiskStat>> {
    read_parsed("/proc/diskstats", |text| Some(parse::parse_diskstats(text)))
}

/// Returns the counters of the block device `name` (/sys/block/NAME/stat).
pub fn disk_stat(name: &str) -> io::Result<DiskStat> {
    let mut stat = read_parsed(&format!("/sys/block/{name}/stat"), parse::parse_disk_stat)?;
    name.clone_into(&mut stat.name);
    Ok(stat)
}

/// Returns the numbers of reads and writes in flight on the block device `name`.
pub fn inflight(name: &str) -> io::Result<(u64, u64)> {
    read_parsed(&format!("/sys/block/{name}/inflight"), parse::parse_inflight)
}

/// Returns all processes. Opens and reads one file per process; processes that exit during the call
/// are skipped.
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

/// Returns device and inode of each file mapping in a process.
pub fn mapped_files(pid: u32) -> io::Result<Vec<((u32, u32), u64)>> {
    read_parsed(&format!("/proc/{pid}/maps"), |text| {
        Some(parse::parse_mapped_files(text).collect())
    })
}

/// Scheduler statistics of the thread that opened them.
#[derive(Debug)]
pub struct ThreadSched(ProcFile);

impl ThreadSched {
    /// Opens the statistics of the calling thread.
    ///
    /// # Errors
    ///
    /// Fails if the kernel does not count them.
    pub fn open() -> io::Result<Self> {
        let mut stat = Self(ProcFile::open(Path::new("/proc/thread-self/schedstat"), 128)?);
        if stat.read()?.is_counted() {
            return Ok(stat);
        }
        Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel does not count it"))
    }

    /// Reads the current statistics with one call and no allocation.
    pub fn read(&mut self) -> io::Result<SchedStat> {
        parse::parse_schedstat(self.0.read()?).ok_or_else(|| unreadable("schedstat"))
    }
}

/// The threads or processes whose resource usage [`usage`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageOf {
    /// All threads of this process, including exited ones.
    Process,
    /// The calling thread.
    Thread,
    /// Children that have exited and were waited for.
    Children,
}

/// Resources used so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Time in user mode in nanoseconds; the resolution can be a tick.
    pub user_ns: u64,
    /// Time in the kernel in nanoseconds.
    pub system_ns: u64,
    /// Page faults without I/O.
    pub minor_faults: u64,
    /// Page faults that waited for I/O.
    pub major_faults: u64,
    /// Switches because the thread waited.
    pub voluntary_switches: u64,
    /// Switches because the thread was preempted.
    pub involuntary_switches: u64,
    /// Peak resident size of the process in bytes.
    pub peak_rss_bytes: u64,
    /// Bytes read from devices.
    pub read_bytes: u64,
    /// Bytes written to devices.
    pub written_bytes: u64,
}

/// Returns the resources used by `who`.
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

/// Sends a signal by number to a child that has not been waited for; until then, no other process
/// can get its ID.
pub fn signal_child(child: &std::process::Child, signal: i32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    let pid = Pid::from_child(child);
    call("kill", || Ok(kill_process(pid, signal)?))
}

/// Sends a signal by number to the process group that a child leads. The child must not have been
/// waited for; until then, no other process or group can get its ID.
pub fn signal_group(leader: u32, signal: i32) -> io::Result<()> {
    use rustix::process::{Signal, kill_process_group};
    let signal = Signal::from_named_raw(signal).ok_or(io::ErrorKind::InvalidInput)?;
    let leader = pid(leader)?;
    call("kill", || Ok(kill_process_group(leader, signal)?))
}

/// What [`until_ended`] has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The child has exited.
    Ended,
    /// The system has stopped the child, because it uses the terminal from a background process group.
    WantsTerminal,
}

/// Restores the default action of SIGCHLD. If the caller of this process ignores the signal, this process
/// inherits that, and the system then discards the exit codes of its children.
pub fn keep_exit_codes_of_children() {
    // SAFETY: the structure is plain data, for which zeros are valid: the default action with an empty mask.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(libc::SIGCHLD, &raw const default, std::ptr::null_mut());
    }
}

/// Stops this process as the terminal would have done if SIGTSTP were not caught: until SIGCONT, and not
/// at all if no shell could continue it (an orphaned process group).
pub fn stop_as_the_terminal_does() {
    // SAFETY: both structures are plain data, for which zeros are valid: the default action with an empty
    // mask. The old action is restored, so handlers that other code installed stay valid. Raised in this
    // thread, so the signal is delivered before `raise` returns.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        let mut caught: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGTSTP, &raw const default, &raw mut caught) == 0 {
            libc::raise(libc::SIGTSTP);
            libc::sigaction(libc::SIGTSTP, &raw const caught, std::ptr::null_mut());
        }
    }
}

/// Waits until a child has exited, or is stopped for its use of the terminal. It still has to be waited
/// for by its handle, so its ID stays in use. Children that a signal has stopped are waited for on.
pub fn until_ended(child: u32) -> io::Result<Waited> {
    loop {
        if let Some(waited) = look_at(child, WaitIdOptions::empty())? {
            return Ok(waited);
        }
    }
}

/// Returns what [`until_ended`] waits for, if that has happened. A stop is reported once.
pub fn ended_by_now(child: u32) -> io::Result<Option<Waited>> {
    look_at(child, WaitIdOptions::NOHANG)
}

fn look_at(child: u32, how: WaitIdOptions) -> io::Result<Option<Waited>> {
    use rustix::process::{Signal, WaitId, waitid};
    let child = WaitId::Pid(pid(child)?);
    let wait = |how| retry_on_interrupt(|| call("waitid", || Ok(waitid(child.clone(), how)?)));
    let either = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT | how;
    while let Some(status) = wait(either)? {
        if !status.stopped() {
            return Ok(Some(Waited::Ended));
        }
        // Takes the report of the stop. It is gone if the child goes on again.
        let stop = wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)?;
        let signal = stop.and_then(|status| status.stopping_signal());
        if [Signal::TTIN, Signal::TTOU].map(|signal| Some(signal.as_raw())).contains(&signal) {
            return Ok(Some(Waited::WantsTerminal));
        }
    }
    Ok(None)
}

/// Returns whether a process exists, even if /proc does not show it.
fn exists(id: u32) -> bool {
    use rustix::process::test_kill_process;
    pid(id).is_ok_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

fn pid(id: u32) -> io::Result<rustix::process::Pid> {
    let id = i32::try_from(id).ok().and_then(rustix::process::Pid::from_raw);
    id.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Reports whether a child has exited. It still has to be waited for, and until then the system
/// keeps its statistics.
pub fn has_ended(child: &std::process::Child) -> io::Result<bool> {
    use rustix::process::{Pid, WaitId, waitid};
    let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let ended = retry_on_interrupt(|| {
        call("waitid", || Ok(waitid(WaitId::Pid(Pid::from_child(child)), how)?))
    })?;
    Ok(ended.is_some())
}

/// Returns the maximum number of open descriptors of this process; `None` if unlimited.
pub fn open_files_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// The descriptor limit before this process raised it first.
static FIRST_LIMIT: OnceLock<rustix::process::Rlimit> = OnceLock::new();

/// Raises the descriptor limit to its maximum and returns it; `None` if unlimited. Children inherit it
/// unless they are started with [`with_first_limit`].
pub fn raise_open_files_limit() -> io::Result<Option<u64>> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    FIRST_LIMIT.get_or_init(|| limit);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    call("setrlimit", || Ok(setrlimit(Resource::Nofile, raised)?))?;
    Ok(limit.maximum)
}

/// Gives a child the descriptor limit that this process was started with: programs that use `select`
/// or close all descriptors do badly with a high one. Where it was raised, the child is started by
/// `fork`, which is slower.
pub fn with_first_limit(command: &mut std::process::Command) -> &mut std::process::Command {
    use rustix::process::{Resource, getrlimit, setrlimit};
    use std::os::unix::process::CommandExt;
    let Some(first) = FIRST_LIMIT.get() else { return command };
    if getrlimit(Resource::Nofile) == *first {
        return command;
    }
    let first = *first;
    // SAFETY: the closure runs between fork and exec. It makes one system call and
    // allocates nothing: an error is its number.
    unsafe { command.pre_exec(move || Ok(setrlimit(Resource::Nofile, first)?)) }
}

/// Kills a child when the thread that starts it ends, whatever ends its process: the child could catch another
/// signal and go on. The child is started by `fork`, which is slower.
pub fn ending_with_parent(command: &mut std::process::Command) -> &mut std::process::Command {
    use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
    use std::os::unix::process::CommandExt;
    let parent = getpid();
    let set = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have ended before the call.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: the closure runs between fork and exec. It makes two system calls and allocates nothing: an
    // error is a number or a kind.
    unsafe { command.pre_exec(set) }
}

/// Returns the clock ticks per second, the unit of [`CpuTicks`] and [`ProcessStat`].
pub fn ticks_per_second() -> u64 {
    configured(libc::_SC_CLK_TCK, 100)
}

/// Returns the page size in bytes.
pub fn page_bytes() -> u64 {
    configured(libc::_SC_PAGESIZE, 4096)
}

/// Returns the number of processors on which the calling thread can run, at least 1.
pub fn affinity_cpus() -> io::Result<u32> {
    let set = call("sched_getaffinity", || Ok(rustix::thread::sched_getaffinity(None)?))?;
    Ok(set.count().max(1))
}

/// Returns a system configuration value. Uses libc because rustix takes it from the auxiliary
/// vector in a way that fails under valgrind, which the instruction gate uses.
fn configured(name: libc::c_int, usual: u64) -> u64 {
    // SAFETY: sysconf accepts any number and accesses none of our memory.
    u64::try_from(unsafe { libc::sysconf(name) }).ok().filter(|n| *n > 0).unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_readable() {
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
    fn the_holder_of_a_lock_is_found_and_a_killed_process_is_ending() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let facts = crate::attr::of_file(file.as_file()).unwrap();
        assert_eq!(lock_holder(facts.device, facts.inode), None);
        assert!(crate::make::try_lock(file.as_file()).unwrap());
        assert_eq!(lock_holder(facts.device, facts.inode), Some(std::process::id()));
        assert!(!is_ending(std::process::id()));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        assert!(is_ending(child.id()), "not reaped yet");
        child.wait().unwrap();
        assert!(is_ending(child.id()));
        assert!(exists(std::process::id()) && !exists(child.id()));
    }

    #[test]
    fn an_ended_child_keeps_its_statistics() {
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
        let is_known = Path::new("/proc/self/schedstat").exists();
        assert_eq!(run_delay_ns(child.id()).is_some(), is_known);
        assert!(parse::parse_io(kept.read().unwrap()).unwrap().read_chars > 0);
        child.wait().unwrap();
        assert!(has_ended(&child).is_err() && kept.read().is_err());
    }

    #[test]
    fn thread_statistics_belong_to_their_thread_and_grow() {
        let Ok(mut sched) = ThreadSched::open() else {
            println!("skipped: this kernel does not count schedstat");
            return;
        };
        let before = sched.read().unwrap();
        let used = usage(UsageOf::Thread).unwrap();
        let mut x = 1u64;
        while usage(UsageOf::Thread).unwrap().user_ns <= used.user_ns + 20_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        let after = sched.read().unwrap();
        assert!(after.on_cpu_ns > before.on_cpu_ns, "{before:?} {after:?}");
        let moved = std::thread::spawn(move || sched.read().unwrap()).join().unwrap();
        assert!(moved.on_cpu_ns >= after.on_cpu_ns, "still the statistics of the first thread");
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
    fn both_files_give_the_same_disk_counters() {
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
    fn a_long_text_is_truncated() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        std::fs::write(&path, vec![b'a'; 5000]).unwrap();
        assert_eq!(ProcFile::open(&path, 4096).unwrap().read().unwrap().len(), 4096);
        assert_eq!(ProcFile::open(&path, 9000).unwrap().read().unwrap().len(), 5000);
        std::fs::write(&path, b"ab\xffcd").unwrap();
        assert_eq!(ProcFile::open(&path, 64).unwrap().read().unwrap(), "ab");
    }
}
