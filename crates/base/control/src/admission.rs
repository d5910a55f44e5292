//! Next step of a worker with a window.

/// The next step of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Start reading the next file of the list.
    Issue,
    /// Run the function on the oldest ready file.
    Compute,
    /// Wait for a completion: nothing is ready, and the window is full or the list is exhausted.
    Reap,
    /// Wait for memory: nothing is in flight here and memory is short.
    AwaitMemory,
    /// Nothing is in flight here and no path is available yet: wait for one.
    AwaitInput,
    /// Nothing is in flight here and this worker has no part of the window: wait for one.
    AwaitPart,
    /// The list has ended and this worker has nothing left.
    Done,
}

/// The part of a worker's state that determines its decisions.
///
/// Reads come first: while the window has room and memory is available, a worker starts another
/// read before it computes, so the device never waits for the function. Ready files also count
/// towards the window because they hold memory.
#[derive(Debug, Clone)]
pub struct Admission {
    window: u32,
    /// Most files in flight.
    limit: u32,
    in_flight: u32,
    ready: u32,
    list_ended: bool,
    input_empty: bool,
    memory_short: bool,
}

impl Admission {
    /// Creates a worker with up to `window` files in flight or ready.
    pub fn new(window: u32) -> Self {
        Self {
            window,
            limit: window,
            in_flight: 0,
            ready: 0,
            list_ended: false,
            input_empty: false,
            memory_short: false,
        }
    }

    /// Changes the files that may be in flight or ready, and those of them that may be in flight.
    /// With less, nothing is started until enough files have finished; with nothing in flight, the
    /// worker finishes what it has.
    #[inline]
    pub fn set_window(&mut self, window: u32, limit: u32) {
        (self.window, self.limit) = (window, limit);
    }

    /// Returns how many files may be in flight or ready, and how many in flight.
    #[inline]
    pub fn window(&self) -> (u32, u32) {
        (self.window, self.limit)
    }

    /// Returns the next step.
    #[inline]
    pub fn next(&self) -> Action {
        let room = self.in_flight < self.limit && self.in_flight + self.ready < self.window;
        if room && !self.list_ended && !self.input_empty && !self.memory_short {
            Action::Issue
        } else if self.ready > 0 {
            Action::Compute
        } else if self.in_flight > 0 {
            Action::Reap
        } else if self.list_ended {
            Action::Done
        } else if self.limit == 0 {
            Action::AwaitPart
        } else if self.input_empty {
            Action::AwaitInput
        } else {
            Action::AwaitMemory
        }
    }

    /// Records that a read was started.
    #[inline]
    pub fn issued(&mut self) {
        self.in_flight += 1;
    }

    /// Records that a file became ready, either after a read in flight or immediately (a hit).
    #[inline]
    pub fn completed(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a completion follows an issue");
        self.ready += 1;
    }

    /// Records that a file in flight failed.
    pub fn failed(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a failure follows an issue");
    }

    /// Records that a ready file was taken for computing, here or by another worker.
    #[inline]
    pub fn taken(&mut self) {
        self.ready = self.ready.checked_sub(1).expect("only ready files can be taken");
    }

    /// Records that a file was computed and its memory released, so another file may fit.
    pub fn gave_back(&mut self) {
        self.memory_short = false;
    }

    /// Records that a reservation did not fit. No read is started until memory is released.
    pub fn memory_short(&mut self) {
        self.memory_short = true;
    }

    /// Records that no path is available yet. The worker finishes what it has before it waits.
    pub fn input_empty(&mut self) {
        self.input_empty = true;
    }

    /// Records that a path may be available again, or that the list has ended.
    pub fn input_changed(&mut self) {
        self.input_empty = false;
    }

    /// Reports whether the last attempt found no path.
    pub fn is_input_empty(&self) -> bool {
        self.input_empty
    }

    /// Records that the list has ended.
    pub fn list_ended(&mut self) {
        self.list_ended = true;
    }

    /// Returns the number of reads in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of files ready to be computed.
    pub fn ready(&self) -> u32 {
        self.ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::collections::VecDeque;

    struct Memory {
        free: Cell<u64>,
    }

    impl Memory {
        fn try_take(&self, bytes: u64) -> bool {
            let fits = self.free.get() >= bytes;
            if fits {
                self.free.set(self.free.get() - bytes);
            }
            fits
        }
        fn give(&self, bytes: u64) {
            self.free.set(self.free.get() + bytes);
        }
    }

    struct Worker {
        admission: Admission,
        flying: Vec<u64>,
        ready: VecDeque<u64>,
        pending: Option<u64>,
    }

    /// Runs workers over files of the specified sizes with one shared memory limit. `random`
    /// selects which completion comes next, and when windows change. Returns the completed files and
    /// the peak number in flight.
    fn simulate(sizes: &[u64], windows: &[u32], memory: u64, mut random: u64) -> (usize, u32) {
        let shared = Memory { free: Cell::new(memory) };
        let mut list = sizes.iter().copied();
        let mut workers: Vec<_> = windows
            .iter()
            .map(|w| Worker {
                admission: Admission::new(*w),
                flying: Vec::new(),
                ready: VecDeque::new(),
                pending: None,
            })
            .collect();
        let (mut done, mut most, mut idle) = (0, 0, 0);
        while idle < 200 * workers.len() {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (random >> 33) as usize % workers.len();
            let w = &mut workers[at];
            idle += 1;
            if (random >> 20).is_multiple_of(8) {
                // Worker 0 always has a part, and so has one that holds a path.
                let least = u32::from(at == 0 || w.pending.is_some());
                let limit = ((random >> 44) as u32 % (windows[at] + 1)).max(least);
                w.admission.set_window(windows[at], limit);
            }
            match w.admission.next() {
                Action::Issue => match w.pending.take().or_else(|| list.next()) {
                    None => w.admission.list_ended(),
                    Some(size) if shared.try_take(size) => {
                        w.flying.push(size);
                        w.admission.issued();
                        idle = 0;
                    }
                    Some(size) => {
                        w.pending = Some(size);
                        w.admission.memory_short();
                    }
                },
                Action::Reap => {
                    let size = w.flying.swap_remove((random >> 40) as usize % w.flying.len());
                    w.ready.push_back(size);
                    w.admission.completed();
                    idle = 0;
                }
                Action::Compute => {
                    let size = w.ready.pop_front().unwrap();
                    w.admission.taken();
                    shared.give(size);
                    w.admission.gave_back();
                    done += 1;
                    idle = 0;
                }
                Action::AwaitMemory => w.admission.gave_back(),
                Action::AwaitInput => unreachable!("the list is complete"),
                Action::AwaitPart => {
                    assert!(at > 0 && w.pending.is_none());
                    if list.len() == 0 {
                        w.admission.list_ended();
                    }
                }
                Action::Done => {}
            }
            most = most.max(workers.iter().map(|w| w.admission.in_flight()).sum());
        }
        assert!(workers.iter().all(|w| w.admission.next() == Action::Done), "a worker is stuck");
        assert_eq!(shared.free.get(), memory, "memory was leaked");
        (done, most)
    }

    proptest! {
        #[test]
        fn every_file_is_done_within_window_and_memory(
            sizes in proptest::collection::vec(1u64..100, 0..200),
            windows in proptest::collection::vec(1u32..20, 1..5),
            memory in 100u64..500,
            random: u64,
        ) {
            let (done, most) = simulate(&sizes, &windows, memory, random);
            prop_assert_eq!(done, sizes.len());
            prop_assert!(most <= windows.iter().sum());
        }
    }

    #[test]
    fn reads_go_before_compute_until_the_window_is_full() {
        let mut a = Admission::new(2);
        assert_eq!(a.next(), Action::Issue);
        a.issued();
        a.completed();
        assert_eq!(a.next(), Action::Issue);
        a.issued();
        assert_eq!(a.next(), Action::Compute);
        a.taken();
        a.memory_short();
        assert_eq!(a.next(), Action::Reap);
        a.failed();
        assert_eq!(a.next(), Action::AwaitMemory);
        a.gave_back();
        a.list_ended();
        assert_eq!(a.next(), Action::Done);
    }

    #[test]
    fn a_worker_without_a_part_finishes_what_it_has() {
        let mut a = Admission::new(4);
        a.issued();
        a.issued();
        a.completed();
        a.set_window(4, 0);
        assert_eq!(a.next(), Action::Compute);
        a.taken();
        assert_eq!(a.next(), Action::Reap);
        a.completed();
        a.taken();
        a.input_empty();
        assert_eq!(a.next(), Action::AwaitPart);
        a.set_window(4, 1);
        assert_eq!(a.next(), Action::AwaitInput);
        a.input_changed();
        assert_eq!(a.next(), Action::Issue);
        a.issued();
        assert_eq!(a.next(), Action::Reap, "one in flight is the limit");
        a.completed();
        assert_eq!(a.next(), Action::Issue, "a ready file is not in flight");
    }

    #[test]
    fn a_worker_waits_for_a_path_only_with_nothing_else_to_do() {
        let mut a = Admission::new(4);
        a.issued();
        a.completed();
        a.issued();
        a.input_empty();
        assert_eq!(a.next(), Action::Compute);
        a.taken();
        assert_eq!(a.next(), Action::Reap);
        a.completed();
        a.taken();
        assert_eq!(a.next(), Action::AwaitInput);
        a.input_changed();
        assert_eq!(a.next(), Action::Issue);
    }
}
