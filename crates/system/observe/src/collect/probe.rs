//! Determines which sources of evidence work here, and how to enable the others.

use super::check::{OtherIds, clock_of_marks};
use ioloom_failure::reason;
use ioloom_sys::proc::{self, ThreadSched};
use ioloom_sys_trace::perf::{Faults, Ring, Target};
use ioloom_sys_trace::tracefs::Instance;
use ioloom_sys_trace::tracefs::event::{Decoder, Kind};
use serde::Serialize;
use std::io;
use std::path::Path;

/// A source of events or counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Name, as in the evidence of a result.
    pub source: String,
    /// Evidence level of the source.
    pub level: u8,
    /// Whether it works.
    pub ok: bool,
    /// What it provides.
    pub gives: String,
    /// Why it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How to make it work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Tries every source. Takes several milliseconds and requires no privileges.
pub fn probe() -> Vec<Probe> {
    let mut all = vec![
        one("spans", 0, "per-thread records of calls", Ok(())),
        one("thread clock", 0, "processor time of each thread", Ok(())),
        one(
            "schedstat",
            0,
            "time that a thread was ready to run but had no processor",
            ThreadSched::open().map(drop).map_err(|e| {
                (reason(&e), "boot a kernel with CONFIG_SCHED_INFO and mounted /proc".to_owned())
            }),
        ),
        one(
            "proc.syscall",
            0,
            "watch: the system call in which a thread of another program waits",
            syscall().map_err(|e| (reason(&e), "run as the same user, or as root".to_owned())),
        ),
    ];
    let ring = |faults| {
        Ring::open(Target::ThisThread, faults, ioloom_sys_trace::perf::RING_BYTES)
            .map(drop)
            .map_err(|e| (reason(&e), remedy_of_own_events(&e)))
    };
    all.push(one(
        "perf.switch",
        1,
        "every context switch of the process's threads, exact, with the processor",
        ring(Faults::None),
    ));
    all.push(one(
        "perf.major-fault",
        1,
        "every page fault that waited for a device",
        ring(Faults::Major),
    ));
    kernel(&mut all);
    all
}

fn one(source: &str, level: u8, gives: &str, result: Result<(), (String, String)>) -> Probe {
    let (why, remedy) = result.err().unzip();
    Probe {
        source: source.to_owned(),
        level,
        ok: why.is_none(),
        gives: gives.to_owned(),
        why,
        remedy,
    }
}

/// Kernel events and what each of them provides.
pub(super) const KERNEL: [(Kind, &str, &str); 7] = [
    (Kind::Waking, "tracefs.sched_waking", "wake-ups: distinguishes ready from blocked"),
    (Kind::Switch, "tracefs.sched_switch", "the threads on every processor"),
    (Kind::Issue, "tracefs.block_rq_issue", "requests to devices"),
    (
        Kind::Complete,
        "tracefs.block_rq_complete",
        "their completions: latency and requests in flight",
    ),
    (Kind::LockBegin, "tracefs.contention", "waits for locks inside the kernel"),
    (Kind::LockEnd, "tracefs.contention_end", "end times of those waits"),
    (Kind::NewTask, "tracefs.task_newtask", "watch: threads and children that a program starts"),
];

fn kernel(all: &mut Vec<Probe>) {
    let mut instance = Instance::open().and_then(|mut instance| {
        clock_of_marks(&mut instance, &mut Decoder::default())?;
        Ok(instance)
    });
    for (kind, source, gives) in KERNEL {
        let result = match &mut instance {
            Ok(instance) => {
                let mut decoder = Decoder::default();
                instance
                    .enable(kind, "", &mut decoder)
                    .map_err(|e| (reason(&e), "boot a kernel that has this trace event".to_owned()))
            }
            Err(e) => Err((reason(e), remedy_of_kernel(e))),
        };
        all.push(one(source, 2, gives, result));
    }
}

fn syscall() -> io::Result<()> {
    proc::read_text(Path::new("/proc/thread-self/syscall")).map(drop)
}

/// Returns the kernel setting that restricts perf events.
fn paranoid() -> Option<i32> {
    let text = proc::read_text(Path::new("/proc/sys/kernel/perf_event_paranoid")).ok()?;
    text.trim().parse().ok()
}

/// Returns how to enable perf events for the process's threads.
pub(super) fn remedy_of_own_events(error: &io::Error) -> String {
    let setting = paranoid();
    match error.kind() {
        io::ErrorKind::PermissionDenied if setting.is_none_or(|p| p > 2) => {
            "sudo sysctl kernel.perf_event_paranoid=2, or sudo setcap cap_perfmon+ep on ioloom"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "the kernel setting permits it, so the container's seccomp filter denies it: start \
            the container with --cap-add PERFMON; or, with many threads, sudo sysctl \
            kernel.perf_event_mlock_kb=4096"
                .to_owned()
        }
        io::ErrorKind::NotFound | io::ErrorKind::Unsupported => {
            "boot a kernel with CONFIG_PERF_EVENTS".to_owned()
        }
        _ => {
            "close other programs that use kernel events, or raise the open files limit".to_owned()
        }
    }
}

/// Returns how to enable tracefs.
pub(super) fn remedy_of_kernel(error: &io::Error) -> String {
    if error.get_ref().is_some_and(|e| e.is::<OtherIds>()) {
        return "run outside the container, or start the container with --pid=host".to_owned();
    }
    match error.kind() {
        io::ErrorKind::ResourceBusy => "wait until the other trace has finished".to_owned(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => {
            let user = ioloom_sys_trace::tracefs::grant::user();
            if user == 0 {
                "run outside the container, or start the container with --privileged --pid=host"
                    .to_owned()
            } else {
                format!("run as root, or once: sudo ioloom trace grant --user {user}")
            }
        }
        _ => {
            "boot a kernel with CONFIG_FTRACE, and mount tracefs on /sys/kernel/tracing".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_listed_and_failures_have_a_remedy() {
        let all = probe();
        assert_eq!(all.len(), 13);
        assert!(all[0].ok && all[1].ok, "spans and clocks must always work");
        for probe in &all {
            assert_eq!(probe.ok, probe.why.is_none(), "{probe:?}");
            assert_eq!(probe.ok, probe.remedy.is_none(), "{probe:?}");
        }
    }
}
