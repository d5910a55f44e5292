//! Every interleaving of small cases under loom, and the same cases on real threads without it.

use ioloom_budget::{Budget, Permits, Reserve};

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
fn no_more_than_p_hold_a_permit_and_no_wake_is_lost() {
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
fn the_budget_is_never_passed_and_everybody_gets_through() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        let threads: Vec<_> = [7u64, 6]
            .into_iter()
            .map(|bytes| {
                let budget = budget.clone();
                thread::spawn(move || {
                    assert_eq!(budget.reserve(bytes), Reserve::Reserved);
                    assert!(budget.used() <= 10);
                    budget.give(bytes);
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
fn waiting_ends_when_all_is_kept_or_the_budget_closes() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(8), Reserve::Reserved);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(5))
        };
        budget.keep(8);
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
        budget.give_kept(8);
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
fn a_forgotten_permit_comes_back_where_it_is_adopted() {
    explore(|| {
        let permits = Arc::new(Permits::new(1));
        permits.take().forget();
        let taker = {
            let permits = permits.clone();
            // Sleeps until the permit that travelled is adopted and dropped.
            thread::spawn(move || permits.take().forget())
        };
        drop(permits.adopt());
        taker.join().unwrap();
        assert!(permits.try_take().is_none(), "the taker forgot it again");
        drop(permits.adopt());
        assert!(permits.try_take().is_some());
    });
}

#[test]
fn permits_that_travel_are_never_more_than_there_are() {
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
fn who_waits_with_bytes_in_hand_does_not_hide_that_all_is_kept() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(2), Reserve::Reserved);
        assert_eq!(budget.reserve(6), Reserve::Reserved);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve_holding(5, 2))
        };
        // The other six turn from being in use to being kept.
        budget.keep(6);
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
        assert!(!budget.is_held(), "nobody waits any more");
        budget.begin_idle(2);
        assert!(budget.is_held());
        budget.end_idle(2);
    });
}

#[test]
fn kept_bytes_are_waited_for_while_a_consumer_may_drop_them() {
    explore(|| {
        let budget = Arc::new(Budget::new(10));
        assert_eq!(budget.reserve(8), Reserve::Reserved);
        budget.begin_hope();
        budget.keep(8);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(5))
        };
        budget.give_kept(8);
        budget.end_hope();
        assert_eq!(waiter.join().unwrap(), Reserve::Reserved);
        // The consumer comes to wait for values without having dropped anything.
        budget.begin_hope();
        budget.keep(5);
        let waiter = {
            let budget = budget.clone();
            thread::spawn(move || budget.reserve(6))
        };
        budget.end_hope();
        assert_eq!(waiter.join().unwrap(), Reserve::Held);
    });
}

#[test]
fn a_wake_that_nobody_hears_does_not_silence_the_next() {
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
fn a_crowd_gets_through_a_few_permits() {
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
