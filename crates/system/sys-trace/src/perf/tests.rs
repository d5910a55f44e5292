use super::record::{Record, records};
use super::*;
use ioloom_sys::clock::monotonic_ns;
use std::time::Duration;

fn open_or_skip(target: Target, faults: Faults, bytes: usize) -> Option<Ring> {
    match Ring::open(target, faults, bytes) {
        Ok(ring) => Some(ring),
        Err(e) => {
            println!("skipped: perf events are not available here: {e}");
            None
        }
    }
}

fn all(ring: &mut Ring) -> Vec<Record> {
    let mut bytes = Vec::new();
    ring.drain(&mut bytes);
    records(&bytes).collect()
}

#[test]
fn each_sleep_is_a_switch_out_and_in() {
    let Some(mut ring) = open_or_skip(Target::ThisThread, Faults::Major, RING_BYTES) else {
        return;
    };
    let head = ring.head();
    let before = head.position();
    let start = monotonic_ns();
    for _ in 0..20 {
        std::thread::sleep(Duration::from_micros(200));
    }
    let end = monotonic_ns();
    assert!(head.position() > before);
    let (mut outs, mut last) = (0, start);
    for record in all(&mut ring) {
        if let Record::Switch { at_ns, tid, out, .. } = record
            && at_ns >= start
            && at_ns <= end
        {
            assert_eq!(tid, thread_id());
            assert!(at_ns >= last, "records must be in order");
            last = at_ns;
            outs += u32::from(out);
        }
    }
    assert!(outs >= 20, "{outs}");
    assert_eq!(ring.lost().unwrap_or(0), 0);
    assert!(all(&mut ring).len() < 8, "a drained ring must contain only new records");
}

/// Returns how often this thread has left a processor.
fn leaves() -> u64 {
    let usage = ioloom_sys::proc::usage(ioloom_sys::proc::UsageOf::Thread).unwrap();
    usage.voluntary_switches + usage.involuntary_switches
}

/// Sleeps until this thread has left a processor another `count` times. A short sleep can end before
/// that.
fn leave(count: u64) {
    let until = leaves() + count;
    while leaves() < until {
        std::thread::sleep(Duration::from_micros(1));
    }
}

#[test]
fn a_full_ring_counts_lost_records() {
    let bytes = ioloom_sys::proc::page_bytes() as usize;
    let Some(mut ring) = open_or_skip(Target::ThisThread, Faults::None, bytes) else { return };
    leave(300);
    let lost = ring.lost();
    let got = all(&mut ring).len() as u64;
    assert!(got < 200);
    if let Some(lost) = lost {
        // Some kernels omit a switch now and then.
        assert!(lost + got >= 550, "{got} records and {lost} lost of 600 switches");
    }
    leave(1);
    let in_ring = all(&mut ring).iter().any(|r| matches!(r, Record::Lost { count } if *count > 0));
    assert!(in_ring, "the ring must contain a record of the loss");
}

#[test]
fn touched_pages_are_faults_with_their_address() {
    let Some(mut ring) = open_or_skip(Target::ThisThread, Faults::All, RING_BYTES) else { return };
    let page = ioloom_sys::proc::page_bytes() as usize;
    let mut memory = ioloom_sys::buffer::Buffer::fresh(16 * page).unwrap();
    let start = memory.whole_mut().as_ptr() as u64;
    memory.touch_pages();
    let range = start..start + 16 * page as u64;
    let hits = all(&mut ring)
        .iter()
        .filter(|r| matches!(r, Record::Fault { address, .. } if range.contains(address)))
        .count();
    assert!((1..=16).contains(&hits), "{hits}");
}

#[test]
fn a_tree_of_processes_is_followed() {
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "sleep 0.01; sleep 0.01"]);
    let held = paused::PausedChild::start(command).unwrap();
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let pid = held.pid();
    let rings: Result<Vec<_>, _> = (0..cpus)
        .map(|cpu| Ring::open(Target::Tree { pid, cpu }, Faults::Major, RING_BYTES))
        .collect();
    held.release().unwrap().wait().unwrap();
    let Ok(mut rings) = rings else {
        println!("skipped: {rings:?}");
        return;
    };
    let records: Vec<_> = rings.iter_mut().flat_map(all).collect();
    let begun = records.iter().filter(|r| matches!(r, Record::Begin { .. })).count();
    assert!(begun >= 1, "{records:?}");
    let mut names = records.iter().filter_map(|r| match r {
        Record::Name { name, .. } => Some(name),
        _ => None,
    });
    assert!(names.any(|name| name.starts_with(b"sleep\0")));
    assert!(records.iter().any(|r| matches!(r, Record::Switch { tid, .. } if *tid != pid)));
}

#[test]
fn invalid_sizes_are_refused() {
    let refused = Ring::open(Target::ThisThread, Faults::None, 1000).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
}
