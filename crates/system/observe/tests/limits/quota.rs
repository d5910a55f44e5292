//! Processor quotas of control groups.

use super::{consistent, of};
use ioloom_observe::limit::{Facts, Limit, decide};

#[test]
fn throttled_time_counts_as_far_as_threads_were_ready() {
    let hogs = of("processor hogs");
    let all = Facts { throttled_ns: hogs.ready_ns.unwrap(), ..hogs };
    let verdict = decide(&all);
    assert_eq!(verdict.limit, Limit::Quota, "{}", verdict.sentence(&all));
    assert!(verdict.sentence(&all).contains("a larger quota"), "{}", verdict.sentence(&all));
    // Other processes of the group were throttled, too.
    assert_eq!(decide(&Facts { throttled_ns: u64::MAX, ..all }).shares, verdict.shares);
    let ran = Facts { throttled_ns: u64::MAX, ..of("a function that computes") };
    let verdict = decide(&ran);
    assert_eq!(verdict.limit, Limit::Compute, "{}", verdict.sentence(&ran));
    // Nothing is known of threads whose time in the queue is not reported.
    let blind = Facts { ready_ns: None, ..all };
    assert_eq!(decide(&blind).shares.unwrap().of(Limit::Quota), 0);
}

/// `each --exec` with one command at a time, in a group with a tenth of a processor.
#[test]
fn a_quota_keeps_child_processes_that_are_ready_from_running() {
    let ms = 1_000_000;
    let throttled = Facts {
        elapsed_ns: 2371 * ms,
        cores: 1,
        files: 8,
        threads: 1,
        threads_ns: 2371 * ms,
        on_cpu_ns: 2 * ms,
        user_ns: 2 * ms,
        ready_ns: Some(245 * ms),
        function_wall_ns: 2371 * ms,
        calls: 8,
        child_ns: 2124 * ms,
        child_ready_ns: 1897 * ms,
        children_ns: 240 * ms,
        children_faults: 800,
        others_ns: Some(1000 * ms),
        throttled_ns: 2000 * ms,
        ..Facts::default()
    };
    let verdict = decide(&throttled);
    let sentence = verdict.sentence(&throttled);
    assert_eq!(verdict.limit, Limit::Quota, "{sentence}");
    assert!(sentence.contains("a larger quota"), "{sentence}");
    consistent(&throttled);
    // What the quota took from our threads does not count again.
    let ours = Facts { throttled_ns: 245 * ms, others_ns: Some(0), ..throttled };
    let verdict = decide(&ours);
    assert_eq!(verdict.limit, Limit::ChildProcesses, "{}", verdict.sentence(&ours));
    assert_eq!(verdict.shares.unwrap().of(Limit::Quota), 10);
    // Other processes of the group were throttled, too.
    let idle = Facts { child_ready_ns: 0, ..throttled };
    assert_eq!(decide(&idle).limit, Limit::ChildProcesses);
    // Other programs kept them from running for longer than the quota.
    let others = Facts { throttled_ns: 500 * ms, others_ns: Some(4000 * ms), ..throttled };
    assert_eq!(decide(&others).limit, Limit::OtherPrograms);
    consistent(&others);
}
