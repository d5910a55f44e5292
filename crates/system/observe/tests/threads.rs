//! A system that refuses to start a thread, as with a limit of tasks. A separate test program because
//! fault injection affects the whole process.

use ioloom_model::Level;
use ioloom_observe::collect::selftest::{SelftestError, SelftestOptions, selftest};
use ioloom_sys::fault;

#[test]
fn a_self_test_that_cannot_start_a_thread_ends_with_one_error() {
    let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let plan = SelftestOptions {
        levels: vec![Level::Account],
        runs: 1,
        run_ms: 10,
        tasks: 0,
        dir: dir.path().to_owned(),
    };
    // The first partner, the last worker, and the first thread that keeps a processor busy.
    for nth in [1, 8, 9] {
        fault::set(&format!("start-thread:{nth}:11"));
        let error = selftest(&plan, &|_| {}).unwrap_err();
        assert!(matches!(error, SelftestError::Thread(_)), "{nth}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("cannot start a thread of the self-test: "), "{nth}: {text}");
    }
    fault::set("");
    assert_eq!(selftest(&plan, &|_| {}).unwrap().len(), 1);
}
