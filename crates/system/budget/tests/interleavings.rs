//! All interleavings of small cases under loom, and the same cases on real threads without loom.

use ioloom_budget::{Budget, Part, Permits, Reserve, Window};

#[cfg(loom)]
use loom::{sync::Arc, sync::atomic::AtomicU64, sync::atomic::Ordering, thread};
#[cfg(not(loom))]
use std::{sync::Arc, sync::atomic::AtomicU64, sync::atomic::Ordering, thread};

fn explore(case: impl Fn() + Sync + Send + 'static) {
    #[cfg(loom)]
    loom::model(case);
    #[cfg(not(loom))]
    for _ in 0..500 {
        case();
    }
}

#[test]
fn permits_are_bounded_and_no_wake_up_is_lost() {
    explore(|| {
        let permits = Arc::new(Permits::new(1));
        let inside = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (permits, inside) = (permits.clone(), inside.clone());
                thread::spawn(move || {
                    let permit = permits.take();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    drop(permit);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(permits.try_take().is_some());
    });
}

#[test]
fn the_budget_holds_and_all_reservations_succeed() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        let threads: Vec<_> = [7u64, 6]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                thread::spawn(move || {
                    assert_eq!(budget.reserve(bytes), Reserve::Reserved);
                    assert!(budget.used() <= 10);
                    budget.release(bytes);
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(budget.used(), 0);
        assert!(budget.peak() <= 10);
    });
}

#[test]
fn waits_end_when_everything_is_retained_or_closed() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(8), Reserve::Reserved);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(5))
        };
        budget.retain(8);
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
        budget.release_retained(8);
        assert_eq!(budget.reserve(10), Reserve::Reserved);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(1))
        };
        budget.close();
        assert_eq!(waiter.join().unwrap(), Reserve::Closed);
        assert_eq!(budget.reserve(11), Reserve::TooLarge);
    });
}

#[test]
fn a_thread_that_the_system_refuses_memory_waits_while_others_use_some() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(2), Reserve::Reserved);
        assert_eq!(budget.reserve(3), Reserve::Reserved);
        assert!(!budget.await_release(5), "all are its own");
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || while budget.await_release(2) {})
        };
        budget.release(3);
        // Also if the bytes came back before the wait.
        waiter.join().unwrap();
        assert_eq!((budget.used(), budget.is_waited_for()), (2, false));
        budget.close();
        assert!(!budget.await_release(0));
    });
}

#[test]
fn threads_that_the_system_refuses_memory_do_not_all_wait() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(5), Reserve::Reserved);
        let waiters: Vec<_> = [2, 3]
            .into_iter()
            .map(|holding| {
                let budget = budget.clone();
                thread::spawn(move || {
                    while budget.await_release(holding) {}
                    budget.release(holding);
                })
            })
            .collect();
        for waiter in waiters {
            waiter.join().unwrap();
        }
        assert_eq!((budget.used(), budget.is_waited_for()), (0, false));
    });
}

#[test]
fn parts_stay_within_the_window_while_its_limit_changes() {
    let case = || {
        let window = Arc::new(Window::new(3, 2));
        let in_flight = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..2)
            .map(|worker| {
                window.joins();
                let (window, in_flight) = (window.clone(), in_flight.clone());
                thread::spawn(move || {
                    let mut part = Part::new(worker, u32::MAX);
                    for _ in 0..2 {
                        let files = part.room(&window, 0).files;
                        let sum = in_flight.fetch_add(files.into(), Ordering::SeqCst);
                        assert!(sum + u64::from(files) <= 3);
                        in_flight.fetch_sub(files.into(), Ordering::SeqCst);
                    }
                    part
                })
            })
            .collect();
        window.set_limit(1);
        let mut parts: Vec<_> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        for _ in 0..2 {
            for part in &mut parts {
                part.room(&window, 0);
            }
        }
        let rooms = parts.iter_mut().map(|part| part.room(&window, 0));
        let (files, in_flight) = rooms.fold((0, 0), |(files, in_flight), room| {
            (files + room.files, in_flight + room.in_flight)
        });
        assert_eq!((files, in_flight), (3, 1), "no place is lost");
    };
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(case);
    }
    #[cfg(not(loom))]
    explore(case);
}

#[test]
fn a_forgotten_permit_returns_when_adopted() {
    explore(|| {
        let permits = Arc::new(Permits::new(1));
        permits.take().forget();
        let taker = {
            let permits = permits.clone();
            // Sleeps until the forgotten permit is adopted and dropped.
            thread::spawn(move || permits.take().forget())
        };
        drop(permits.adopt());
        taker.join().unwrap();
        assert!(permits.try_take().is_none(), "the taker must have forgotten its permit again");
        drop(permits.adopt());
        assert!(permits.try_take().is_some());
    });
}

#[test]
fn forgotten_permits_stay_bounded() {
    explore(|| {
        let permits = Arc::new(Permits::new(1));
        let out = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (permits, out) = (permits.clone(), out.clone());
                thread::spawn(move || {
                    permits.take().forget();
                    assert_eq!(out.fetch_add(1, Ordering::SeqCst), 0);
                    out.fetch_sub(1, Ordering::SeqCst);
                    drop(permits.adopt());
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(permits.try_take().is_some());
    });
}

#[test]
fn bytes_of_waiting_threads_count_as_idle() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(2), Reserve::Reserved);
        assert_eq!(budget.reserve(6), Reserve::Reserved);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve_holding(5, 2))
        };
        // The other six bytes change from in use to retained.
        budget.retain(6);
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
        assert!(!budget.is_held(), "no thread is waiting anymore");
        budget.begin_idle(2);
        assert!(budget.is_held());
        budget.end_idle(2);
    });
}

#[test]
fn functions_that_reserve_all_go_on() {
    let case = || {
        let budget = Arc::new(Budget::new(10));
        budget.reserve_working(6, false);
        let threads: Vec<_> = [20u64, 5]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                thread::spawn(move || {
                    budget.reserve_working(bytes, false);
                    assert!(budget.used() <= 10 + 20);
                    budget.release_working(bytes);
                })
            })
            .collect();
        budget.reserve_working(1, true);
        budget.release_working(1);
        budget.release_working(6);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(budget.used(), 0);
        assert!(budget.try_reserve(10), "no thread is counted as waiting");
    };
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(case);
    }
    #[cfg(not(loom))]
    explore(case);
}

#[test]
fn releasers_keep_waits_alive() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(8), Reserve::Reserved);
        budget.add_releaser();
        budget.retain(8);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(5))
        };
        budget.release_retained(8);
        budget.remove_releaser();
        assert_eq!(waiter.join().unwrap(), Reserve::Reserved);
        // The consumer starts waiting for values without having dropped anything.
        budget.add_releaser();
        budget.retain(5);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(6))
        };
        budget.remove_releaser();
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
    });
}

/// Time is not modelled by loom.
#[cfg(not(loom))]
#[test]
fn a_thread_that_releases_while_another_waits_is_waited_for() {
    for _ in 0..100 {
        let grace = std::time::Duration::from_secs(60);
        let budget = Arc::new(Budget::with_grace(10, grace));
        assert_eq!(budget.reserve(10), Reserve::Reserved);
        budget.retain(10);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(5))
        };
        while !budget.is_waited_for() && !waiter.is_finished() {
            thread::yield_now();
        }
        budget.release_retained(2);
        thread::yield_now();
        budget.release_retained(3);
        assert_eq!(waiter.join().unwrap(), Reserve::Reserved);
    }
}

#[test]
fn a_permit_is_handed_over_to_a_starved_thread_and_not_lost() {
    explore(|| {
        let permits = Arc::new(Permits::new(1));
        let held = permits.take();
        let waiter = {
            let permits = permits.clone();
            thread::spawn(move || drop(permits.take()))
        };
        // Barges in as often as it can.
        drop(held);
        drop(permits.try_take());
        drop(permits.try_take());
        drop(permits.try_take());
        waiter.join().unwrap();
        assert_eq!(permits.held(), 0);
        assert!(permits.try_take().is_some());
    });
}

#[test]
fn an_unused_wake_up_does_not_suppress_the_next() {
    let case = || {
        let permits = Arc::new(Permits::new(1));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let permits = permits.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        drop(permits.take());
                    }
                })
            })
            .collect();
        drop(permits.take());
        for thread in threads {
            thread.join().unwrap();
        }
        assert!(permits.try_take().is_some());
    };
    #[cfg(loom)]
    {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(4);
        model.check(case);
    }
    #[cfg(not(loom))]
    for _ in 0..500 {
        case();
    }
}

#[cfg(not(loom))]
#[test]
fn many_threads_share_few_permits() {
    let permits = Arc::new(Permits::new(2));
    let threads: Vec<_> = (0..64)
        .map(|_| {
            let permits = permits.clone();
            thread::spawn(move || {
                for i in 0..500 {
                    let permit = permits.take();
                    if i % 7 == 0 {
                        thread::yield_now();
                    }
                    drop(permit);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}
