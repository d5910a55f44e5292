//! The window of a run, divided among its workers.
//!
//! The window has a fixed size, for which memory and descriptors are planned: so many files may be in
//! flight or ready. Each worker holds a part of it. It reads the number of workers with one relaxed
//! load, computes its part, and exchanges the difference with the free places. A part that becomes
//! smaller is returned as its files finish, so the parts never add up to more than the window.
//!
//! A smaller limit holds for the files in flight, which a controller may change while the workers
//! run. It is in the same word. A worker over its part of the limit starts nothing until enough have
//! finished. The number of workers that share the window can be limited, too: the others then have
//! only their own place, and no part of the limit.
//!
//! Each worker owns one of the places and never returns it: a new worker can begin although the
//! others have taken the whole window. Under a limit of N, workers 0 to N - 1 have a part of it, so
//! worker 0 always goes on.

use crate::{AtomicU64, Ordering};

/// The window of a run.
#[derive(Debug)]
pub struct Window {
    size: u32,
    /// The limit in the upper half, the number of workers that share it in the lower half.
    setting: AtomicU64,
    /// Most workers that share it.
    sharers: AtomicU64,
    /// Places that no worker holds.
    free: AtomicU64,
}

/// Among how many workers what is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Setting {
    limit: u32,
    /// Workers that have joined.
    joined: u32,
    /// Those of them that share the window: the first ones.
    sharing: u32,
}

/// What one worker holds.
#[derive(Debug)]
pub struct Part {
    worker: u32,
    /// Most places that this worker can use.
    cap: u32,
    /// The setting for which `wanted` and `limit` were computed.
    seen: Setting,
    wanted: u32,
    held: u32,
    limit: u32,
}

/// How many files a worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// In flight or ready, at least one.
    pub files: u32,
    /// In flight; zero if other workers have the whole limit.
    pub in_flight: u32,
}

const WORKERS: u64 = u32::MAX as u64;

impl Window {
    /// Creates a window of `size` places, raised to the number of workers, for at most `workers`
    /// workers, none of which has joined. The limit is the size.
    pub fn new(size: u32, workers: u32) -> Self {
        let size = size.max(workers).max(1);
        Self {
            size,
            setting: AtomicU64::new(u64::from(size) << 32),
            sharers: AtomicU64::new(WORKERS),
            free: AtomicU64::new(u64::from(size - workers)),
        }
    }

    /// Returns the size.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Returns the limit on files in flight.
    pub fn limit(&self) -> u32 {
        (self.setting.load(Ordering::Relaxed) >> 32) as u32
    }

    /// Sets the limit on files in flight, at least 1 and at most the size. Called by one thread.
    pub fn set_limit(&self, limit: u32) {
        let limit = u64::from(limit.clamp(1, self.size));
        let mut setting = self.setting.load(Ordering::Relaxed);
        while let Err(now) = self.setting.compare_exchange_weak(
            setting,
            limit << 32 | setting & WORKERS,
            Ordering::Relaxed,
            Ordering::Relaxed,
        ) {
            setting = now;
        }
    }

    /// Sets how many workers share the window, at least 1: those with the lowest numbers. Called by
    /// one thread.
    pub fn set_sharers(&self, workers: u32) {
        self.sharers.store(u64::from(workers.max(1)), Ordering::Relaxed);
    }

    #[inline]
    fn now(&self) -> Setting {
        let setting = self.setting.load(Ordering::Relaxed);
        let joined = (setting & WORKERS).max(1) as u32;
        let sharers = self.sharers.load(Ordering::Relaxed) as u32;
        Setting { limit: (setting >> 32) as u32, joined, sharing: joined.min(sharers) }
    }

    /// Adds a worker. Workers join in the order of their numbers, before they compute their part.
    pub fn joins(&self) {
        self.setting.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes back the count of the last worker that joined, which could not be started.
    pub fn leaves(&self) {
        let before = self.setting.fetch_sub(1, Ordering::Relaxed);
        assert!(before & WORKERS > 0, "a worker that leaves has joined");
    }

    /// Takes up to `wanted` free places.
    fn take(&self, wanted: u32) -> u32 {
        let mut free = self.free.load(Ordering::Relaxed);
        loop {
            let taken = free.min(u64::from(wanted));
            if taken == 0 {
                return 0;
            }
            match self.free.compare_exchange_weak(
                free,
                free - taken,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken as u32,
                Err(now) => free = now,
            }
        }
    }

    fn give(&self, places: u32) {
        // The files that used these places finished before another worker takes them.
        let before = self.free.fetch_add(u64::from(places), Ordering::Release);
        debug_assert!(
            before + u64::from(places) < u64::from(self.size),
            "a place was returned twice: more files would be in flight than planned"
        );
    }
}

impl Part {
    /// Returns the part of a worker that can use at most `cap` places (at least one).
    pub fn new(worker: u32, cap: u32) -> Self {
        Self { worker, cap: cap.max(1), seen: Setting::default(), wanted: 0, held: 1, limit: 0 }
    }

    /// Returns how many files the worker may have; it has `used` in flight or ready.
    #[inline]
    pub fn room(&mut self, window: &Window, used: u32) -> Room {
        let now = window.now();
        if now != self.seen || self.held != self.wanted {
            self.exchange(window, now, used);
        }
        Room { files: self.held, in_flight: self.limit }
    }

    /// Reports whether the worker may have a file in flight now.
    pub fn is_wanted(&self, window: &Window) -> bool {
        let Setting { limit, sharing, .. } = window.now();
        self.share(limit, sharing) > 0
    }

    /// Returns the part of this worker if the first `workers` share `places`.
    fn share(&self, places: u32, workers: u32) -> u32 {
        if self.worker >= workers {
            return 0;
        }
        places / workers + u32::from(self.worker < places % workers)
    }

    #[cold]
    fn exchange(&mut self, window: &Window, now: Setting, used: u32) {
        self.seen = now;
        self.limit = self.share(now.limit, now.sharing).min(self.cap);
        // The others keep their own places.
        let shared = window.size - (now.joined - now.sharing);
        self.wanted = self.share(shared, now.sharing).clamp(1, self.cap);
        if self.held < self.wanted {
            self.held += window.take(self.wanted - self.held);
        } else {
            let keep = self.wanted.max(used).min(self.held);
            window.give(self.held - keep);
            self.held = keep;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A worker and its files.
    struct Worker {
        part: Part,
        used: u32,
    }

    #[derive(Debug, Clone)]
    enum Event {
        Join,
        Limit(u32),
        Sharers(u32),
        /// A worker starts what it may.
        Start(usize),
        /// A worker finishes so many files.
        Finish(usize, u32),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let one = prop_oneof![
            Just(Event::Join),
            (0u32..40).prop_map(Event::Limit),
            (0u32..8).prop_map(Event::Sharers),
            (0usize..6).prop_map(Event::Start),
            (0usize..6, 1u32..20).prop_map(|(at, files)| Event::Finish(at, files)),
        ];
        proptest::collection::vec(one, 0..200)
    }

    proptest! {
        #[test]
        fn parts_never_exceed_the_window_and_reach_the_limit(
            size in 1u32..40, workers_max in 1u32..6, events in events(),
        ) {
            let window = Window::new(size, workers_max);
            let mut workers: Vec<Worker> = Vec::new();
            for event in [Event::Join].into_iter().chain(events) {
                match event {
                    Event::Join if workers.len() < workers_max as usize => {
                        window.joins();
                        let part = Part::new(workers.len() as u32, u32::MAX);
                        workers.push(Worker { part, used: 0 });
                    }
                    Event::Join => {}
                    Event::Limit(limit) => window.set_limit(limit),
                    Event::Sharers(workers) => window.set_sharers(workers),
                    Event::Start(at) => if let Some(w) = workers.get_mut(at) {
                        w.used = w.used.max(w.part.room(&window, w.used).files);
                    },
                    Event::Finish(at, files) => if let Some(w) = workers.get_mut(at) {
                        w.used = w.used.saturating_sub(files);
                        w.part.room(&window, w.used);
                    },
                }
                prop_assert!(workers.iter().map(|w| w.used).sum::<u32>() <= window.size());
            }
            // All files finish, then the parts are the whole window, divided evenly among those that
            // share it.
            for _ in 0..2 {
                for w in &mut workers {
                    w.used = 0;
                    w.part.room(&window, 0);
                }
            }
            let rooms: Vec<Room> = workers.iter_mut().map(|w| w.part.room(&window, 0)).collect();
            // The own places of workers that have not joined are not in use.
            let absent = workers_max - workers.len() as u32;
            prop_assert_eq!(rooms.iter().map(|r| r.files).sum::<u32>(), window.size() - absent);
            prop_assert_eq!(rooms.iter().map(|r| r.in_flight).sum::<u32>(), window.limit());
            prop_assert!(rooms[0].in_flight >= 1, "worker 0 goes on");
            let (sharing, others) = rooms.split_at(window.now().sharing as usize);
            let even = sharing.iter().all(|room| {
                rooms[0].in_flight - room.in_flight <= 1
                    && (absent > 0 || rooms[0].files - room.files <= 1)
            });
            prop_assert!(even, "{rooms:?}");
            let none = Room { files: 1, in_flight: 0 };
            prop_assert!(others.iter().all(|room| *room == none), "{rooms:?}");
        }
    }

    fn room(files: u32, in_flight: u32) -> Room {
        Room { files, in_flight }
    }

    #[test]
    fn a_worker_that_joins_late_begins_with_its_own_place() {
        let window = Window::new(10, 2);
        window.joins();
        let mut first = Part::new(0, u32::MAX);
        assert_eq!(first.room(&window, 0), room(9, 10), "one place is of the other worker");
        window.joins();
        let mut second = Part::new(1, u32::MAX);
        assert_eq!(second.room(&window, 0), room(1, 5));
        assert_eq!(first.room(&window, 9), room(9, 5), "it starts nothing");
        assert_eq!(second.room(&window, 1), room(1, 5), "the files of the other have not finished");
        assert_eq!(first.room(&window, 6), room(6, 5));
        assert_eq!(second.room(&window, 1), room(4, 5));
        window.set_limit(1);
        assert_eq!((first.room(&window, 0), second.room(&window, 0)), (room(5, 1), room(5, 0)));
        assert!(first.is_wanted(&window) && !second.is_wanted(&window));
        window.set_limit(u32::MAX);
        assert_eq!(second.room(&window, 0), room(5, 5));
    }

    #[test]
    fn workers_that_do_not_share_the_window_keep_their_own_place() {
        let window = Window::new(10, 3);
        let mut parts = [0, 1, 2].map(|worker| {
            window.joins();
            Part::new(worker, u32::MAX)
        });
        window.set_sharers(2);
        window.set_limit(7);
        let mut rooms = || {
            // What one gives back, another takes.
            for part in &mut parts {
                part.room(&window, 0);
            }
            [0, 1, 2].map(|worker: usize| parts[worker].room(&window, 0))
        };
        assert_eq!(rooms(), [room(5, 4), room(4, 3), room(1, 0)]);
        window.set_sharers(u32::MAX);
        rooms();
        assert_eq!(rooms(), [room(4, 3), room(3, 2), room(3, 2)]);
    }

    #[test]
    fn a_worker_with_a_cap_leaves_the_rest_free() {
        let window = Window::new(8, 1);
        window.joins();
        assert_eq!(Part::new(0, 3).room(&window, 0), room(3, 3));
    }
}
