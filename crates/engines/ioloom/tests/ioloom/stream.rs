//! Streams: a file is processed before the next path exists.

use crate::support::{NEVER, evict, guarded, lacks, make, plan, roots};
use ioloom::{Cancel, Error, ReadOrder};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

/// Methods that the public form accepts, each under every schedule.
const METHODS: [&str; 8] = [
    "read",
    "nowait",
    "uring",
    "uring:open",
    "uring:registered",
    "direct:read",
    "direct:uring",
    "null",
];
const SCHEDULES: [&str; 5] = [
    "threads:n=3",
    "window:l=16,p=2",
    "roles:r=1,h=0,c=2,w=8",
    "roles:r=0,h=2,c=1,w=8,order=read-first",
    "roles:r=1,h=1,c=0,w=8,order=compute-first",
];

/// Every plan that runs over streams, in both orders, and the default plan.
fn plans() -> Vec<Option<String>> {
    let all = METHODS.iter().flat_map(|method| {
        SCHEDULES.iter().flat_map(move |schedule| {
            ["list", "inode"].map(|order| Some(format!("{method}/{schedule}/order={order}")))
        })
    });
    all.chain([None, Some("nowait/window:l=64,p=1/blocking=8".to_owned())]).collect()
}

/// Sends the first path, and each further path when the previous one was processed.
#[test]
fn the_next_path_may_depend_on_the_last_result() {
    for cold in [false, true] {
        for text in plans() {
            let what = format!("{text:?}, cold: {cold}");
            guarded(what.clone(), move || {
                let (_dir, paths) = make(&roots()[0], &[5000; 12]);
                if cold {
                    evict(&paths);
                }
                let (send, stream) = channel::<PathBuf>();
                send.send(paths[0].clone()).unwrap();
                let files = match &text {
                    Some(text) => ioloom::files(stream).pin(plan(text)),
                    None => ioloom::files(stream).read_order(ReadOrder::List),
                };
                let send = std::sync::Mutex::new(Some(send));
                let run = files
                    .map(|f| {
                        let mut send = send.lock().unwrap();
                        match (paths.get(f.index() + 1), &*send) {
                            (Some(next), Some(sender)) => sender.send(next.clone()).unwrap(),
                            _ => *send = None,
                        }
                        f.len()
                    })
                    .sum::<u64>();
                match (run, &text) {
                    (Ok(sum), _) => {
                        assert!(sum == 60_000 || what.contains("null"), "{what}: {sum}")
                    }
                    (Err(error), Some(text)) => {
                        assert!(lacks(&plan(text), &error), "{what}: {error}");
                    }
                    (Err(error), None) => panic!("{error}"),
                }
            });
        }
    }
}

/// A function that takes long does not keep the files whose reads its thread has begun from others.
#[test]
fn long_functions_over_few_cold_files_run_at_once() {
    const THREADS: usize = 4;
    for form in ["stream", "tree"] {
        guarded(form.to_owned(), move || {
            let (dir, paths) = make(&roots()[0], &[5000; 8]);
            evict(&paths);
            let files = match form {
                "stream" => ioloom::files(paths),
                _ => ioloom::tree(dir.path()).into_files(),
            };
            // Functions that have begun. They end four at a time.
            let (begun, changed) = (Mutex::new(0_usize), Condvar::new());
            let run = files.threads(THREADS as u32).map(|f| {
                // Not even the last of four is short.
                std::thread::sleep(Duration::from_millis(1));
                let mut now = begun.lock().unwrap();
                *now += 1;
                let together = now.next_multiple_of(THREADS);
                changed.notify_all();
                let alone = |now: &mut usize| *now < together;
                let (_now, waited) = changed.wait_timeout_while(now, NEVER, alone).unwrap();
                (f.len(), waited.timed_out())
            });
            let run = run.run().unwrap();
            assert_eq!(run.value, [(5000, false); 8], "{form}");
        });
    }
}

/// A run that is cancelled while its iterator sleeps returns without it.
#[test]
fn a_cancelled_run_does_not_wait_for_the_iterator() {
    for text in plans() {
        guarded(format!("{text:?}"), move || {
            let (_dir, paths) = make(&roots()[0], &[5000; 3]);
            let (release, released) = channel::<()>();
            let stream = paths.clone().into_iter().chain(std::iter::from_fn(move || {
                let _ = released.recv();
                None
            }));
            let token = Cancel::new();
            let files = match &text {
                Some(text) => ioloom::files(stream).pin(plan(text)),
                None => ioloom::files(stream),
            };
            let last = std::sync::atomic::AtomicUsize::new(0);
            let run = files
                .cancel(&token)
                .map(|_| {
                    if last.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 2 {
                        token.cancel();
                    }
                })
                .run();
            match (run, &text) {
                (Err(Error::Cancelled { files }), _) => assert_eq!(files, 3),
                (Err(error), Some(text)) if lacks(&plan(text), &error) => {}
                (other, _) => panic!("{text:?}: {other:?}"),
            }
            drop(release);
        });
    }
}

/// While one function waits, other threads process the paths that arrive.
#[test]
fn a_slow_function_does_not_hold_back_the_next_path() {
    guarded("default plan".to_owned(), || {
        let (_dir, paths) = make(&roots()[0], &[100; 2]);
        let (send, stream): (Sender<PathBuf>, _) = channel();
        let (second, done): (Sender<()>, _) = channel();
        send.send(paths[0].clone()).unwrap();
        let (send, done) = (std::sync::Mutex::new(Some(send)), std::sync::Mutex::new(done));
        let run = ioloom::files(stream).map(|f| {
            if f.index() == 0 {
                let send = send.lock().unwrap().take().unwrap();
                send.send(paths[1].clone()).unwrap();
                drop(send);
                done.lock().unwrap().recv_timeout(NEVER).unwrap();
            } else {
                second.send(()).unwrap();
            }
            f.len()
        });
        if ioloom::usable_cores() > 1 {
            assert_eq!(run.sum::<u64>().unwrap(), 200);
        }
    });
}

/// The same in a list that is known from the start, however short.
#[test]
fn slow_functions_over_a_short_list_run_at_once() {
    guarded("default plan".to_owned(), || {
        let (_dir, paths) = make(&roots()[0], &[100; 2]);
        let (sends, receives): (Vec<Sender<()>>, Vec<_>) = (0..2).map(|_| channel()).unzip();
        let receives: Vec<_> = receives.into_iter().map(std::sync::Mutex::new).collect();
        let run = ioloom::list(&paths).map(|f| {
            sends[1 - f.index()].send(()).unwrap();
            receives[f.index()].lock().unwrap().recv_timeout(NEVER).unwrap();
        });
        if ioloom::usable_cores() > 1 {
            run.run().unwrap();
        }
    });
}

#[test]
fn links_of_a_list_are_followed_in_inode_order() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("file", &link).unwrap();
    for order in [ReadOrder::List, ReadOrder::Inode] {
        let paths = vec![link.clone(), file.clone()].into_iter();
        let found = ioloom::files(paths).read_order(order).map(|f| f.len()).collect().unwrap();
        assert_eq!(found, [1, 1], "{order:?}");
    }
}

/// A team whose first thread does one half of the work needs the others from the start.
#[test]
fn teams_start_whole_on_demand() {
    for schedule in ["r=1,h=0,c=1,w=4", "r=0,h=2,c=0,w=4", "r=1,h=1,c=0,w=4", "r=2,h=0,c=2,w=1"] {
        for (files, streamed) in [(2, false), (2, true), (300, false), (300, true)] {
            let what = format!("{schedule}: {files} files, streamed: {streamed}");
            guarded(what.clone(), move || {
                let (_dir, paths) = make(&roots()[0], &vec![100; files]);
                let input =
                    if streamed { ioloom::files(paths.clone()) } else { ioloom::list(&paths) };
                let input = input.pin(plan(&format!("read/roles:{schedule}")));
                let run = input.start_on_demand(true).map(|f| f.len()).run().unwrap();
                assert_eq!(run.value, vec![100; files], "{what}");
            });
        }
    }
}

#[test]
fn a_short_list_starts_no_more_workers_than_it_has_files() {
    let (_dir, paths) = make(&roots()[0], &[100; 3]);
    let threads = || {
        let files = ioloom::list(&paths).pin(plan("nowait/window:l=16,p=8"));
        let files = files.start_on_demand(true).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
        });
        files.run().unwrap().measured.threads.len()
    };
    // Waits of other tests in this process may start more.
    let started: Vec<usize> = (0..5).map(|_| threads()).collect();
    assert!(started.iter().any(|threads| *threads <= 3), "{started:?}");
}

/// A reader whose window is full rests, although it has waited for a path before and one is ready.
#[test]
fn a_reader_without_room_rests_while_paths_wait() {
    let (_dir, paths) = make(&roots()[0], &[100; 3]);
    // Time for which a virtual machine does not run may count as time on the processor.
    let spent: Vec<u64> = (0..3).map(|_| time_of_readers(&paths)).collect();
    let most = BUSY.as_nanos() / 2;
    assert!(spent.iter().any(|ns| u128::from(*ns) < most), "{spent:?} ns");
}

const BUSY: Duration = Duration::from_millis(400);

/// Returns the processor time of readers while the function is busy.
fn time_of_readers(paths: &[PathBuf]) -> u64 {
    // Both readers have found no path when the first one arrives.
    let paths = paths.to_vec();
    let stream = paths.into_iter().enumerate().map(|(at, path)| {
        std::thread::sleep(Duration::from_millis(if at == 0 { 150 } else { 20 }));
        path
    });
    let files = ioloom::files(stream).pin(plan("read/roles:r=2,h=0,c=1,w=1"));
    let run = files.map(|_| std::thread::sleep(BUSY)).run().unwrap();
    let readers = run.measured.threads.iter().filter(|thread| thread.role == "reader");
    readers.map(|thread| thread.on_cpu_ns).sum()
}

/// The call before a file waits for the result of the file before the last one.
#[test]
fn a_call_before_each_file_can_wait_for_results() {
    for as_list in [false, true] {
        guarded(format!("list: {as_list}"), move || {
            let (_dir, paths) = make(&roots()[0], &[5000; 40]);
            let done = std::sync::Arc::new((Mutex::new(0), Condvar::new()));
            let files = match as_list {
                true => ioloom::list(&paths),
                false => ioloom::files(paths.clone()),
            };
            let results = done.clone();
            let files = files.before_each(move |position| {
                let mut count = results.0.lock().unwrap();
                while *count + 1 < position {
                    count = results.1.wait(count).unwrap();
                }
            });
            let run = files
                .map(|f| {
                    let mut count = done.0.lock().unwrap();
                    *count += 1;
                    done.1.notify_all();
                    // At most two files are taken and not done.
                    assert!(f.index() <= *count, "{} of {}", f.index(), *count);
                })
                .run()
                .unwrap();
            assert_eq!(run.measured.files, 40);
        });
    }
}
