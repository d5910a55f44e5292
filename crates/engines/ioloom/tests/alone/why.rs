//! What limited a run, with planted limits. On a busy machine other programs may be the limit of any
//! run; the plants check that no wrong cause is named. Children of one plant would count for another.

use crate::support::{make, plan, roots};
use ioloom::Run;
use ioloom_sys::clock::thread_cpu_ns;
use std::time::Duration;

fn word<T, E>(run: &Run<T, E>) -> &str {
    run.measured.bottleneck.as_ref().map_or("", |limit| limit.word.as_str())
}

fn shares_add_up<T, E>(run: &Run<T, E>) {
    let limit = run.measured.bottleneck.as_ref().unwrap();
    assert_eq!(limit.shares.values().sum::<u32>(), 100, "{limit:?}");
    assert!(run.why().starts_with(&format!("limited by {}: ", limit.word)), "{}", run.why());
}

/// What a plant found instead of its limit.
type Found = Result<(), String>;

/// Checks that a run was limited by what was planted, or by other programs.
fn limited_by<T, E>(run: &Run<T, E>, planted: &str) -> Found {
    shares_add_up(run);
    if [planted, "other programs"].contains(&word(run)) { Ok(()) } else { Err(run.why()) }
}

/// Time for which a virtual machine does not run may count as that of the system call or the function
/// which it interrupts. So each plant has several tries.
pub(crate) fn planted_limits_are_found() {
    const TRIES: usize = 5;
    let plants: [fn() -> Found; 8] = [
        a_function_that_sleeps_is_not_the_device,
        a_function_that_sleeps_at_the_end_of_files_is_found,
        a_slow_producer_is_the_input_list,
        a_slow_caller_is_not_the_function,
        functions_that_wait_for_memory_do_not_wait_for_themselves,
        processor_time_of_the_caller_is_not_the_function,
        a_function_that_pulls_computes_in_its_own_thread,
        a_function_that_waits_for_children_is_not_the_device,
    ];
    for plant in plants {
        let wrong: Vec<String> = (0..TRIES).map_while(|_| plant().err()).collect();
        assert!(wrong.len() < TRIES, "{wrong:#?}");
    }
    a_function_that_always_fails_has_no_limit();
    the_largest_file_is_timed();
}

fn a_function_that_sleeps_is_not_the_device() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 60]);
    let mut measured = Vec::new();
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2", "read/roles:r=1,h=0,c=2,w=8"] {
        let run = ioloom::list(&paths).pin(plan(text)).map(|f| f.len()).run().unwrap();
        measured.push((text, run.measured));
    }
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2"] {
        let pieces = ioloom::list(&paths).pin(plan(text)).chunks(1 << 16);
        let last = |bytes: usize, _: &std::path::Path| bytes;
        let run = pieces.fold_file(|_| 0_usize, |bytes, c| *bytes += c.bytes().len(), last).run();
        measured.push((text, run.unwrap().measured));
    }
    for (text, measured) in measured {
        let (bytes, ns) = (measured.largest_file_bytes, measured.largest_file_ns);
        assert_eq!(bytes, 2 << 20, "{text}");
        // Starts are kept in steps of 100 µs.
        assert!(ns > 0 && ns <= measured.elapsed_ns + 100_000, "{text}: {ns}");
    }
}
