use super::*;
use ioloom_sys_trace::perf::paused::PausedChild;
use ioloom_trace::SpanKind;
use std::process::Command;

fn quick() -> TraceOptions {
    TraceOptions { calibrate: false, ..TraceOptions::default() }
}

/// Returns a shell that starts two sleeps after each other.
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
fn children_are_sampled_without_any_rights() {
    let raw = watched(Level::Account).unwrap();
    let thread = sleeper(&raw);
    assert!(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep), "{thread:?}");
    assert!(thread.accounts.len() >= 2 && thread.cpu_ns.is_some());
    assert!(thread.start_ns <= thread.end_ns && thread.end_ns <= raw.elapsed_ns);
}

/// What is wrong with an observation by events, if anything. Some kernels leave out a switch now
/// and then without counting it as lost, so one short life may be seen without its sleep.
fn seen_by_switches(raw: &Raw, level: Level) -> Result<(), String> {
    let thread = sleeper(raw);
    let told = |right: bool| if right { Ok(()) } else { Err(format!("{level:?}: {thread:?}")) };
    told(raw.level == Some(level))?;
    told(raw.threads.iter().filter(|t| t.name == "sleep").count() == 2)?;
    told(thread.switches.iter().any(|s| s.out && !s.preempted))?;
    told(thread.spans.iter().any(|s| s.kind == SpanKind::Sleep))?;
    told((level == Level::Kernel) != thread.wakes.is_empty())?;
    told(raw.evidence.notes.iter().any(|n| n.contains("named by samples")))
}

#[test]
fn children_are_followed_by_their_switches() {
    for level in [Level::Switch, Level::Kernel] {
        let mut told = Ok(());
        for _ in 0..5 {
            let Some(raw) = watched(level) else { break };
            told = seen_by_switches(&raw, level);
            if told.is_ok() {
                break;
            }
        }
        told.unwrap();
    }
}

#[test]
fn a_process_that_is_not_there_is_refused() {
    let refused = Watch::start(Some(Level::Account), u32::MAX / 2, quick()).err().unwrap();
    assert!(refused.to_string().contains("is not there"), "{refused}");
}
