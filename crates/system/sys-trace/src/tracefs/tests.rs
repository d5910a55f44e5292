use super::event::{Event, EventData};
use super::page::Page;
use super::*;
use ioloom_sys::clock::monotonic_ns;

fn open_or_skip() -> Option<Instance> {
    match Instance::open() {
        Ok(instance) => Some(instance),
        Err(e) => {
            println!("skipped: no tracefs instance: {e}");
            None
        }
    }
}

fn all(pipes: &mut [Pipe], decoder: &Decoder) -> Vec<Event> {
    let mut events = Vec::new();
    for pipe in pipes {
        let cpu = pipe.cpu;
        while let Some(bytes) = pipe.next_page().unwrap() {
            let page = Page::parse(bytes).unwrap();
            assert_eq!(page.missed, None);
            events.extend(page.events().filter_map(|(at, e)| decoder.decode(at, cpu, e)));
        }
    }
    events
}

#[test]
fn ring_pages_are_those_of_the_system_unless_larger_ones_are_reported() {
    assert_eq!(ring_page_bytes(65536, ""), 65536, "before Linux 6.8");
    assert_eq!(ring_page_bytes(65536, "64\n"), 65536);
    assert_eq!(ring_page_bytes(4096, "4\n"), 4096);
    assert_eq!(ring_page_bytes(4096, "16\n"), 16384);
    assert_eq!(ring_page_bytes(4096, "0\n"), 4096);
    assert_eq!(ring_page_bytes(4096, "18446744073709551615\n"), 1 << 20);
}

#[test]
fn marks_switches_and_wakeups_have_the_right_times() {
    let Some(mut instance) = open_or_skip() else { return };
    let mut decoder = Decoder::default();
    let me = crate::perf::thread_id();
    let filter = format!("pid=={me}");
    instance.enable(Kind::Waking, &filter, &mut decoder).unwrap();
    // Those of all threads could fill the buffers during a pause.
    instance.enable(Kind::Switch, &format!("prev_pid=={me}"), &mut decoder).unwrap();
    instance.enable(Kind::Mark, "", &mut decoder).unwrap();
    let mut pipes = instance.pipes().unwrap();
    instance.set_recording(true).unwrap();
    let start = monotonic_ns();
    instance.mark("here").unwrap();
    let marked = monotonic_ns();
    for _ in 0..10 {
        std::thread::sleep(std::time::Duration::from_micros(300));
    }
    instance.set_recording(false).unwrap();
    let events = all(&mut pipes, &decoder);
    let marks: Vec<_> = events.iter().filter(|e| e.what == EventData::Mark).collect();
    assert_eq!(marks.len(), 1);
    assert!((start..=marked).contains(&marks[0].at_ns));
    let wakes = events.iter().filter(|e| e.what == (EventData::Waking { tid: me })).count();
    assert!(wakes >= 10, "{wakes}");
    let others = events.iter().any(|e| matches!(e.what, EventData::Waking { tid } if tid != me));
    assert!(!others, "the filter must be effective");
    let away = |e: &&Event| matches!(e.what, EventData::Switch { prev_tid, .. } if prev_tid == me);
    assert!(events.iter().filter(away).count() >= 5);
    assert_eq!(pipes[0].stats().unwrap().lost(), 0);
    let dir = instance.dir.clone();
    assert!(dir.exists());
    drop((pipes, instance));
    assert!(!dir.exists() || dir.to_string_lossy().contains("ioloom-user-"), "{}", dir.display());
}

#[test]
fn instances_of_dead_processes_are_removed() {
    let Ok(tree) = Tree::open() else { return };
    let dead = tree.instances().join(format!("{OWN_PREFIX}1-1-0"));
    if std::fs::create_dir(&dead).is_err() {
        println!("skipped: instances cannot be created here");
        return;
    }
    let mine = Instance::create(&tree).unwrap();
    tree.remove_leftovers();
    assert!(!dead.exists() && mine.exists());
    std::fs::remove_dir(mine).unwrap();
}

#[test]
fn an_instance_in_use_is_not_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let tree = Tree { root: dir.path().to_owned(), _mount: None };
    // Its process is in another container. It is in use, so it cannot be removed.
    let other = tree.instances().join(format!("{OWN_PREFIX}{}-1-0", u32::MAX / 2));
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("tracing_on"), "1").unwrap();
    assert_eq!(tree.remove_leftovers(), 0);
    assert_eq!(std::fs::read_to_string(other.join("tracing_on")).unwrap(), "1");
}

#[test]
fn the_usual_mount_point_is_preferred() {
    let points = |names: &[&str]| preferred(names.iter().map(PathBuf::from));
    let debug = "/sys/kernel/debug/tracing";
    assert_eq!(points(&[debug, USUAL_PATH]), Some(USUAL_PATH.into()));
    assert_eq!(points(&[debug]), Some(debug.into()));
    assert_eq!(points(&[]), None);
}

#[test]
fn owners_are_identified_by_number_and_start_time() {
    let me = owner(std::process::id()).unwrap();
    assert!(is_running(&me) && is_running(&format!("{me}-7")));
    assert!(!is_running(&format!("{}-1-0", std::process::id())), "the process ID was reused");
    assert!(is_running("not a number"), "unknown names must not be removed");
}

#[test]
fn losses_are_parsed() {
    let text = "entries: 5\noverrun: 7\ncommit overrun: 2\nbytes: 1\nnow ts: 1.5\n\
                dropped events: 3\nread events: 9\n";
    assert_eq!(PipeStats::parse(text), PipeStats { overrun: 7, dropped: 5 });
    assert_eq!(PipeStats::parse("").lost(), 0);
}
