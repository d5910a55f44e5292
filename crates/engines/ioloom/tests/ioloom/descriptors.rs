//! Runs under low limits on open files and address space.

use crate::support::{NEVER, child, content, evict, guarded, make, plan, roots};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

const FILES: usize = 300;

#[test]
fn the_default_plan_fits_low_limits() {
    let exe = std::env::current_exe().unwrap();
    for limit in [16, 32, 64, 128, 256, 512, 1024] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]);
        let (ok, text) = child("descriptors::child_with_the_default_plan", &exe, command);
        assert!(ok, "limit {limit}: {text}");
    }
}

#[test]
#[ignore = "run by the_default_plan_fits_low_limits in a child"]
fn child_with_the_default_plan() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = |i: usize| dir.path().join(format!("{}/{}/{i}", i % 10, i % 30));
    let paths: Vec<PathBuf> = (0..FILES).map(path).collect();
    for (i, path) in paths.iter().enumerate() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content(i as u64, 40_000)).unwrap();
    }
    for cold in [false, true] {
        let prepare = || {
            if cold {
                evict(&paths)
            }
        };
        prepare();
        let run = ioloom::list(&paths).map(|f| f.len()).run().unwrap();
        assert_eq!(run.value, [40_000; FILES], "list, cold: {cold}");
        prepare();
        let run = ioloom::tree(dir.path()).map(|f| f.len()).run().unwrap();
        assert_eq!(run.value, [40_000; FILES], "tree, cold: {cold}");
        prepare();
        let run = ioloom::files(paths.clone()).map(|f| f.len()).run().unwrap();
        assert_eq!(run.value, [40_000; FILES], "stream, cold: {cold}");
    }
    for threads in [16, 64] {
        for files in [ioloom::list(&paths), ioloom::list(&paths).memory(256 << 10)] {
            let run = files.threads(threads).map(|f| f.len()).run().unwrap();
            assert_eq!(run.value, [40_000; FILES], "{threads} threads");
        }
    }
}

#[test]
fn too_low_a_limit_is_refused_and_lost_descriptors_end_a_run() {
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 12; exec \"$0\" \"$@\""]);
    let (ok, text) = child("descriptors::child_without_descriptors", &exe, command);
    assert!(ok, "{text}");
}

#[test]
#[ignore = "run by too_low_a_limit_is_refused_and_lost_descriptors_end_a_run in a child"]
fn child_without_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..FILES).map(|i| dir.path().join(i.to_string())).collect();
    for path in &paths {
        std::fs::write(path, b"x").unwrap();
    }
    let text = ioloom::tree(dir.path()).map(|f| f.len()).run().unwrap_err().to_string();
    assert!(text.contains("the limit is 12; raise the limit with 'ulimit -n 14'"), "{text}");
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    // With a wait for every file it would take minutes.
    let begun = Instant::now();
    let one = plan("read/threads:n=1");
    let run = ioloom::list(&paths).pin(one).on_error(ioloom::OnError::Skip).map(|f| f.len());
    let run = run.run().unwrap();
    assert_eq!((run.value.len(), run.failed), (0, FILES as u64));
    assert!(begun.elapsed() < NEVER);
}

#[test]
fn a_thread_that_cannot_be_started_ends_the_run() {
    let exe = std::env::current_exe().unwrap();
    let command = Command::new("env");
    let (ok, text) = child("descriptors::child_without_address_space", &exe, command);
    assert!(ok, "{text}");
}

#[test]
#[ignore = "run by a_thread_that_cannot_be_started_ends_the_run in a child"]
fn child_without_address_space() {
    let (_dir, paths) = make(&roots()[0], &[1000; 20]);
    guarded("no room for a stack".to_owned(), move || {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let bytes = pages * ioloom_sys::proc::page_bytes() + (1 << 20);
        let mut limit = Command::new("prlimit");
        limit.arg(format!("--pid={}", std::process::id())).arg(format!("--as={bytes}"));
        assert!(limit.status().unwrap().success());
        for text in ["read/threads:n=4", "nowait/window:l=8,p=2", "read/roles:r=2,h=0,c=1,w=8"] {
            let run = ioloom::list(&paths).pin(plan(text)).map(|f| f.len()).run();
            let error = run.unwrap_err().to_string();
            assert!(
                error.contains("cannot start a thread") && error.contains("ulimit -v"),
                "{text}: {error}"
            );
        }
        let run = ioloom::list(&paths).map(|f| f.len()).run();
        assert!(run.unwrap_err().to_string().contains("cannot start a thread"));
        // The calling thread could read a few files alone, but not watch itself.
        let few = ioloom::list(&paths[..9]).map(|f| f.len()).run();
        assert!(few.unwrap_err().to_string().contains("cannot start a thread"));
        let found = ioloom::tree("src").walk();
        let error = found.errors[0].to_string();
        assert!(error.starts_with("cannot walk 'src': cannot start a thread: "), "{error}");
        assert!(error.contains("ulimit -v"), "{error}");
    });
}
