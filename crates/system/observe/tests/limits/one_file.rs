//! Runs of which one file takes almost the whole time.

use crate::consistent;
use ioloom_model::{CallKind, Measured};
use ioloom_observe::limit::{Facts, Limit, decide};

/// A run of one second on two processors with warm files: the milliseconds that the largest one took, and for
/// which the threads read and computed.
fn with_large_file(threads: u32, files: u64, [largest, fetch, function]: [u64; 3]) -> Facts {
    let ms = 1_000_000;
    let threads_ns = u64::from(threads) * 1000 * ms;
    Facts {
        elapsed_ns: 1000 * ms,
        cores: 2,
        files,
        bytes: 300 << 20,
        largest_ns: largest * ms,
        threads,
        threads_ns,
        on_cpu_ns: (fetch + function) * ms,
        ready_ns: Some(0),
        hand_over_ns: threads_ns.saturating_sub((fetch + function) * ms),
        fetch_wall_ns: fetch * ms,
        function_wall_ns: function * ms,
        calls: files,
        user_ns: function * ms,
        kernel_ns: fetch * ms,
        others_ns: Some(0),
        device_bytes: Some(0),
        costliest: Some(CallKind::Read),
        ..Facts::default()
    }
}

#[test]
fn other_threads_can_do_nothing_for_one_large_file() {
    let no_threads = "so more threads would not help";
    for threads in [1, 2] {
        // One large file and two small ones with a function; one file; two large files.
        for (files, times, limit, advice) in [
            (3, [990, 100, 880], Limit::Compute, "faster function would help; one file took 99 %"),
            (1, [980, 970, 0], Limit::Metadata, "the page cache is the work; one file took 98 %"),
            (2, [800, 980, 0], Limit::Metadata, "the page cache is the work; one file took 80 %"),
            (2, [790, 980, 0], Limit::Metadata, "the page cache is the work, and more "),
        ] {
            let facts = with_large_file(threads, files, times);
            let verdict = decide(&facts);
            let sentence = verdict.sentence(&facts);
            // On the other side of the edge, half of the processors are idle.
            if threads == 1 || times[0] >= 800 {
                assert_eq!((verdict.limit, verdict.close), (limit, None), "{sentence}");
                assert!(sentence.contains(advice), "{sentence}");
                assert_eq!(sentence.contains(no_threads), times[0] >= 800, "{sentence}");
            }
            assert!(!sentence.contains("larger files"), "{sentence}");
            consistent(&facts);
        }
    }
    // Two large files at the same time on two threads.
    let both = with_large_file(2, 2, [990, 1250, 0]);
    assert_eq!(decide(&both).limit, Limit::Metadata);
    let small = Facts { bytes: 2000, ..with_large_file(2, 2, [0, 1900, 0]) };
    let sentence = decide(&small).sentence(&small);
    assert!(sentence.contains("fewer and larger files"), "{sentence}");
}

#[test]
fn a_file_with_less_than_half_of_the_bytes_is_one_of_many() {
    let run = |bytes| Measured {
        bytes,
        largest_file_bytes: 50,
        largest_file_ns: 9,
        ..Measured::default()
    };
    assert_eq!(Facts::of(&run(100), 1, 1).largest_ns, 9);
    assert_eq!(Facts::of(&run(101), 1, 1).largest_ns, 0);
}
