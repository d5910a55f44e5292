//! What can be observed here, found out by use, and what would make the rest work.

use ioloom_sys::proc::{self, ThreadSched};
use ioloom_sys_trace::perf::{Faults, Ring, Target};
use ioloom_sys_trace::tracefs::Instance;
use ioloom_sys_trace::tracefs::event::{Decoder, Kind};
use serde::Serialize;
use std::io;
use std::path::Path;

/// One source of events or counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Its name, as in the evidence of a result.
    pub source: String,
    /// The level that it belongs to.
    pub level: u8,
    /// Whether it works.
    pub ok: bool,
    /// What it gives.
    pub gives: String,
    /// Why it does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What would make it work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// Tries every source. Takes some milliseconds; needs nothing.
pub fn probe() -> Vec<Probe> {
    let mut all = vec![
        one("spans", 0, "what each thread says it does", Ok(())),
        one("thread clock", 0, "processor time of each thread", Ok(())),
        one(
            "schedstat",
            0,
            "time that a thread stood ready without a processor",
            schedstat().map_err(|e| {
                (e.to_string(), "boot a kernel with CONFIG_SCHED_INFO and mounted /proc".to_owned())
            }),
        ),
        one(
            "proc.syscall",
            0,
            "watch: the call in which a thread of another program waits",
            syscall().map_err(|e| (e.to_string(), "run as the same user, or as root".to_owned())),
        ),
    ];
    let ring = |faults| {
        Ring::open(Target::ThisThread, faults, ioloom_sys_trace::perf::RING_BYTES)
            .map(drop)
            .map_err(|e| (e.to_string(), remedy_of_own_events(&e)))
    };
    all.push(one(
        "perf.switch",
        1,
        "each switch of own threads, exact, with the processor",
        ring(Faults::None),
    ));
    all.push(one(
        "perf.major-fault",
        1,
        "each page fault that waited for a device",
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

/// What each event of the kernel gives.
pub(super) const KERNEL: [(Kind, &str, &str); 7] = [
    (Kind::Waking, "tracefs.sched_waking", "who woke whom when: ready apart from blocked"),
    (Kind::Switch, "tracefs.sched_switch", "who ran instead; lanes of the processors"),
    (Kind::Issue, "tracefs.block_rq_issue", "requests to devices"),
    (Kind::Complete, "tracefs.block_rq_complete", "their ends: latency and requests in flight"),
    (Kind::LockBegin, "tracefs.contention", "waits for locks inside the kernel"),
    (Kind::LockEnd, "tracefs.contention_end", "their ends"),
    (Kind::NewTask, "tracefs.task_newtask", "watch: threads and children that a program starts"),
];

fn kernel(all: &mut Vec<Probe>) {
    let mut instance = Instance::open();
    for (kind, source, gives) in KERNEL {
        let result = match &mut instance {
            Ok(instance) => {
                let mut decoder = Decoder::default();
                instance.enable(kind, "", &mut decoder).map_err(|e| {
                    (e.to_string(), "boot a kernel that has this trace event".to_owned())
                })
            }
            Err(e) => Err((e.to_string(), remedy_of_kernel(e))),
        };
        all.push(one(source, 2, gives, result));
    }
}

fn schedstat() -> io::Result<()> {
    // The account of a thread that never left its processor may still be empty.
    std::thread::sleep(std::time::Duration::from_micros(1));
    let stat = ThreadSched::open()?.read()?;
    if stat.on_cpu_ns == 0 && stat.run_delay_ns == 0 {
        return Err(io::Error::other("the kernel does not count it"));
    }
    Ok(())
}

fn syscall() -> io::Result<()> {
    proc::read_text(Path::new("/proc/thread-self/syscall")).map(drop)
}

/// Returns the setting of the kernel that says who may have kernel events.
fn paranoid() -> Option<i32> {
    let text = proc::read_text(Path::new("/proc/sys/kernel/perf_event_paranoid")).ok()?;
    text.trim().parse().ok()
}

/// What makes events of own threads work.
pub(super) fn remedy_of_own_events(error: &io::Error) -> String {
    let setting = paranoid();
    match error.kind() {
        io::ErrorKind::PermissionDenied if setting.is_none_or(|p| p > 2) => {
            "sudo sysctl kernel.perf_event_paranoid=2, or sudo setcap cap_perfmon+ep on ioloom"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "the setting of the kernel allows it, so a container's filter refuses it: start the \
             container with --cap-add PERFMON; or, with many threads, sudo sysctl \
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

/// What makes the trace file system work.
pub(super) fn remedy_of_kernel(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ResourceBusy => "wait until the other observation has ended".to_owned(),
        io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => {
            let user = ioloom_sys_trace::tracefs::grant::user();
            if user == 0 {
                "run it outside the container, or give the container --privileged".to_owned()
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
    fn every_source_is_told_and_what_fails_has_a_remedy() {
        let all = probe();
        assert_eq!(all.len(), 13);
        assert!(all[0].ok && all[1].ok, "spans and clocks always work");
        for probe in &all {
            assert_eq!(probe.ok, probe.why.is_none(), "{probe:?}");
            assert_eq!(probe.ok, probe.remedy.is_none(), "{probe:?}");
        }
    }
}
