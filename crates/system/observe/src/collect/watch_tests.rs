use super::*;
use ioloom_sys_trace::perf::paused::PausedChild;
use ioloom_trace::SpanKind;
use std::process::Command;

fn quick() -> TraceOptions {
    TraceOptions { calibrate: false, ..TraceOptions::default() }
}

/// Observes a shell that runs two sleeps in sequence.
fn watched(level: Level) -> Option<Raw> {
    let mut command = Command::new("sh");
    command.args(["-c", "sleep 0.15; sleep 0.15"]);
    let held = PausedChild::start(command).unwrap();
    let watch = Watch::start(Some(level), held.pid(), quick());
    held.release()
        .map(|mut child| {
            if watch.is_ok() {
                child.wait().unwrap();
            } else {
                let _ = child.kill();
                let _ = child.wait();
            }
        })
        .unwrap();
    watch.map(Watch::stop).map_err(|e| println!("skipped: {e}")).ok()
}

fn sleeper(raw: &Raw) -> &RawThread {
    let found = raw.threads.iter().find(|t| t.name == "sleep");
    found.unwrap_or_else(|| panic!("{:?}", raw.threads.iter().map(|t| &t.name).collect::<Vec<_>>()))
}

#[test]
fn children_are_sampled_without_privilege() {
    let raw = watched(Level::Account).unwrap();
    let thread = sleeper(&raw);
    assert!(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep), "{thread:?}");
    assert!(thread.accounts.len() >= 2 && thread.cpu_ns.is_some());
    assert!(thread.start_ns <= thread.end_ns && thread.end_ns <= raw.elapsed_ns);
}

/// Checks an event-based observation. Some kernels occasionally omit a switch without counting it
/// as lost, so one short process may appear without its sleep.
fn seen_by_switches(raw: &Raw, level: Level) -> Result<(), String> {
    let thread = sleeper(raw);
    let check = |ok: bool| if ok { Ok(()) } else { Err(format!("{level:?}: {thread:?}")) };
    check(raw.level == Some(level))?;
    check(raw.threads.iter().filter(|t| t.name == "sleep").count() == 2)?;
    check(thread.switches.iter().any(|s| s.out && !s.preempted))?;
    check(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep))?;
    check((level == Level::Kernel) != thread.wakes.is_empty())?;
    check(raw.evidence.notes.iter().any(|n| n.contains("/proc samples identify")))
}

#[test]
fn children_are_followed_by_their_switches() {
    for level in [Level::Switch, Level::Kernel] {
        let mut found = Ok(());
        for _ in 0..5 {
            let Some(raw) = watched(level) else { break };
            found = seen_by_switches(&raw, level);
            if found.is_ok() {
                break;
            }
        }
        found.unwrap();
    }
}

#[test]
fn a_missing_process_is_refused() {
    let refused = Watch::start(Some(Level::Account), u32::MAX / 2, quick()).err().unwrap();
    assert!(refused.to_string().contains("no such process"), "{refused}");
}
