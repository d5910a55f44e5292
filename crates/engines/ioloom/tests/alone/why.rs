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
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2", "read/roles:r=1,h=0,c=2,w=8"] {
        let files = ioloom::files(paths.clone()).pin(plan(text));
        let run = files.map(|_| std::thread::sleep(Duration::from_millis(2))).run().unwrap();
        limited_by(&run, "function waits")?;
    }
    Ok(())
}

/// A thread times one of eight pieces, which are rarely the last ones.
fn a_function_that_sleeps_at_the_end_of_files_is_found() -> Found {
    let (_dir, paths) = make(&roots()[0], &[53_000; 6]);
    for text in ["read/window:l=2,p=1", "nowait/window:l=2,p=1"] {
        let files = ioloom::list(&paths).pin(plan(text)).chunks(4096);
        let slow = |bytes: usize, _: &std::path::Path| {
            std::thread::sleep(Duration::from_millis(20));
            bytes
        };
        let run =
            files.fold_file(|_| 0_usize, |bytes, c| *bytes += c.bytes().len(), slow).run().unwrap();
        limited_by(&run, "function waits")?;
    }
    Ok(())
}

fn a_slow_producer_is_the_input_list() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 30]);
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2", "read/roles:r=1,h=0,c=2,w=8"] {
        let slow = paths.clone().into_iter().inspect(|_| {
            std::thread::sleep(Duration::from_millis(3));
        });
        let run = ioloom::files(slow).pin(plan(text)).map(|f| f.len()).run().unwrap();
        limited_by(&run, "input list")?;
    }
    Ok(())
}

/// A caller that takes values slowly, and a lock around a slow writer.
fn a_slow_caller_is_not_the_function() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 600]);
    let slow = Duration::from_millis(1);
    for text in ["read/threads:n=2", "nowait/window:l=8,p=2", "read/roles:r=1,h=0,c=2,w=8"] {
        let files = || ioloom::list(&paths).pin(plan(text));
        let taken = files()
            .map(|f| f.len())
            .scope(|results| results.inspect(|_| std::thread::sleep(slow)).count());
        let taken = taken.unwrap();
        limited_by(&taken, "output")?;
        let lock = std::sync::Mutex::new(());
        let written = files().map(|_| {
            ioloom::writing(|| {
                let _held = lock.lock().unwrap();
                std::thread::sleep(slow);
            });
        });
        let written = written.run().unwrap();
        limited_by(&written, "output")?;
    }
    Ok(())
}

/// One of eight functions sleeps with a reservation that leaves no room for others.
fn functions_that_wait_for_memory_do_not_wait_for_themselves() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 60]);
    let reserves = |f: &ioloom::File<'_>| {
        let _reserved = f.reserve(8 << 20);
        std::thread::sleep(Duration::from_millis(3));
    };
    let run = ioloom::list(&paths).threads(8).memory(8 << 20).map(reserves).run().unwrap();
    limited_by(&run, "memory")
}

/// Computes in user mode: reading the clock is a system call.
fn spin(time: Duration) {
    let until = thread_cpu_ns() + time.as_nanos() as u64;
    while thread_cpu_ns() < until {
        for i in 0..20_000_u64 {
            std::hint::black_box(i);
        }
    }
}

fn processor_time_of_the_caller_is_not_the_function() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 40]);
    let slow = Duration::from_millis(3);
    for text in ["read/threads:n=1", "nowait/window:l=8,p=2"] {
        let produced = paths.clone().into_iter().inspect(move |_| spin(slow));
        let run = ioloom::files(produced).pin(plan(text)).map(|f| f.len()).run().unwrap();
        limited_by(&run, "input list")?;
        let taken = ioloom::list(&paths)
            .pin(plan(text))
            .map(|f| f.len())
            .scope(|results| results.inspect(|_| spin(slow)).count());
        let taken = taken.unwrap();
        if word(&taken) == "compute" {
            return Err(taken.why());
        }
    }
    Ok(())
}

fn a_function_that_pulls_computes_in_its_own_thread() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 40]);
    let run = ioloom::list(&paths)
        .chunks(4096)
        .map_reader(|_, reader| {
            spin(Duration::from_millis(3));
            std::io::copy(reader, &mut std::io::sink()).unwrap()
        })
        .unwrap();
    limited_by(&run, "compute")
}

fn a_function_that_waits_for_children_is_not_the_device() -> Found {
    let (_dir, paths) = make(&roots()[0], &[100; 20]);
    let child = |_: &ioloom::File<'_>| {
        let status = std::process::Command::new("sleep").arg("0.01").status();
        assert!(status.unwrap().success());
    };
    let run = ioloom::files(paths.clone()).pin(plan("read/threads:n=2")).map(child).run().unwrap();
    limited_by(&run, "child processes")?;
    assert!(run.measured.children_faults > 0 && run.measured.children_cpu_ns > 0);
    Ok(())
}

fn a_function_that_always_fails_has_no_limit() {
    let (_dir, paths) = make(&roots()[0], &[100; 30]);
    let fails = |_: &ioloom::File<'_>| -> Result<(), String> {
        std::thread::sleep(Duration::from_millis(2));
        Err("nothing works".to_owned())
    };
    let files = ioloom::files(paths.clone()).on_error(ioloom::OnError::Collect);
    let run = files.try_map(fails).run().unwrap();
    assert_eq!((word(&run), run.failed), ("unknown", 30));
    assert!(run.why().starts_with("limit unknown: no file was processed"), "{}", run.why());
}

/// Also in pieces, which other threads may compute.
fn the_largest_file_is_timed() {
    let (_dir, paths) = make(&roots()[0], &[100, 2 << 20, 1 << 20, 100]);
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
        // Starts are kept in steps of 131 µs.
        assert!(ns > 0 && ns <= measured.elapsed_ns + 131_072, "{text}: {ns}");
    }
}
