//! When the next request may start: the number in flight, the pace, and the memory budget.
//!
//! Tasks that start requests wait one after the other, in the order in which they came, so one waiter
//! is woken. Requests that are repeated keep their place and their memory and wait for the pace only.

use ioloom_control::{Pace, Started};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};

/// Fewer refusals are no outage, however long they take.
const OUTAGE_REFUSALS: u64 = 16;

/// What the task that starts requests waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Waiting {
    /// Nothing: it is starting requests.
    #[default]
    Nothing,
    /// A listed object.
    List,
    /// A place in flight.
    Window,
    /// The pace.
    Pace,
    /// Memory.
    Memory,
}

/// What has happened so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Responses that were used, and their bytes.
    pub(crate) answered: u64,
    pub(crate) bytes: u64,
    /// Requests sent.
    pub(crate) sent: u64,
    /// Requests that the server refused because there were too many.
    pub(crate) refused: u64,
    /// Sum of the latencies of `answered`.
    pub(crate) latency_ns: u64,
    /// Most requests in flight, and bytes of memory.
    pub(crate) in_flight_max: u32,
    pub(crate) memory_max: u64,
}

/// Refusals during which nothing else was answered.
#[derive(Debug)]
struct Outage {
    /// How long it may last.
    limit_ns: u64,
    /// The time of the first refusal.
    since_ns: u64,
    refused: u64,
    is_over_limit: bool,
}

impl Outage {
    fn refused(&mut self, now_ns: u64) {
        if self.refused == 0 {
            self.since_ns = now_ns;
        }
        self.refused += 1;
        self.is_over_limit |= self.refused >= OUTAGE_REFUSALS
            && now_ns.saturating_sub(self.since_ns) >= self.limit_ns;
    }
}

#[derive(Debug)]
struct State {
    in_flight: u32,
    limit: u32,
    memory: u64,
    memory_limit: u64,
    pace: Pace,
    outage: Outage,
    stopped: bool,
    waiting: Waiting,
    counts: Counts,
}

/// The limits that all requests of a run share.
#[derive(Debug)]
pub(crate) struct Gate {
    state: Mutex<State>,
    /// Held by the task that waits.
    turn: tokio::sync::Mutex<()>,
    wake: Notify,
    stopped: watch::Sender<bool>,
    start: Instant,
}

impl Gate {
    pub(crate) fn new(memory: u64, limit: u32) -> Self {
        let state = State {
            in_flight: 0,
            limit,
            memory: 0,
            memory_limit: memory,
            pace: Pace::default(),
            outage: Outage { limit_ns: u64::MAX, since_ns: 0, refused: 0, is_over_limit: false },
            stopped: false,
            waiting: Waiting::Nothing,
            counts: Counts::default(),
        };
        Self {
            state: Mutex::new(state),
            turn: tokio::sync::Mutex::default(),
            wake: Notify::new(),
            stopped: watch::Sender::new(false),
            start: Instant::now(),
        }
    }

    /// Stops when the server has refused every request for so long.
    pub(crate) fn stopping_after(self, outage: Duration) -> Self {
        self.state().outage.limit_ns = u64::try_from(outage.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the nanoseconds since the start.
    pub(crate) fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Waits until a request for `bytes` may start. Returns `None` if the run was stopped.
    pub(crate) async fn enter(&self, bytes: u64) -> Option<Started> {
        let _turn = self.turn.lock().await;
        loop {
            let mut wait = None;
            {
                let mut state = self.state();
                if state.stopped {
                    return None;
                }
                let now_ns = self.now_ns();
                // The oldest request always fits, and so does one of the task that holds the memory.
                let fits =
                    state.memory == 0 || bytes == 0 || state.memory + bytes <= state.memory_limit;
                state.waiting = if state.in_flight >= state.limit {
                    Waiting::Window
                } else if !fits {
                    Waiting::Memory
                } else {
                    match state.pace.wait_ns(now_ns) {
                        0 => return Some(state.enter(bytes, now_ns)),
                        ns => {
                            wait = Some(Duration::from_nanos(ns));
                            Waiting::Pace
                        }
                    }
                };
            }
            match wait {
                Some(wait) => {
                    let _ = tokio::time::timeout(wait, self.wake.notified()).await;
                }
                None => self.wake.notified().await,
            }
        }
    }

    /// Waits until memory is free that no request needs. Returns `None` if the run was stopped.
    pub(crate) async fn hold(&self, bytes: u64) -> Option<()> {
        let _turn = self.turn.lock().await;
        loop {
            {
                let mut state = self.state();
                if state.stopped {
                    return None;
                }
                if state.memory == 0 || state.memory + bytes <= state.memory_limit {
                    state.waiting = Waiting::Nothing;
                    state.take_memory(bytes);
                    return Some(());
                }
                state.waiting = Waiting::Memory;
            }
            self.wake.notified().await;
        }
    }

    /// Waits until the pace allows a request that is repeated. Returns `None` if the run was stopped.
    pub(crate) async fn again(&self) -> Option<Started> {
        loop {
            let wait = {
                let mut state = self.state();
                if state.stopped {
                    return None;
                }
                let now_ns = self.now_ns();
                match state.pace.wait_ns(now_ns) {
                    0 => {
                        state.counts.sent += 1;
                        return Some(state.pace.issued(now_ns));
                    }
                    ns => Duration::from_nanos(ns),
                }
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Notes a response that will be used.
    pub(crate) fn answered(&self, latency_ns: u64, bytes: u64) {
        let now_ns = self.now_ns();
        let mut state = self.state();
        state.pace.admitted(now_ns);
        state.outage.refused = 0;
        state.counts.answered += 1;
        state.counts.bytes += bytes;
        state.counts.latency_ns += latency_ns;
    }

    /// Notes a refused request.
    pub(crate) fn refused(&self, started: Started) {
        let now_ns = self.now_ns();
        let mut state = self.state();
        state.pace.refused(now_ns, started);
        state.counts.refused += 1;
        state.outage.refused(now_ns);
        let is_over_limit = state.outage.is_over_limit;
        drop(state);
        if is_over_limit {
            self.stop();
        }
    }

    /// Notes a request that failed for another reason.
    pub(crate) fn failed(&self) {
        self.state().outage.refused = 0;
    }

    /// Returns whether it has stopped because the server refused every request for too long.
    pub(crate) fn has_given_up(&self) -> bool {
        self.state().outage.is_over_limit
    }

    /// Notes that a request is no longer in flight.
    pub(crate) fn leave(&self) {
        self.free(Waiting::Window, |state| state.in_flight -= 1);
    }

    /// Changes the state, and wakes the request that waits for that. There is at most one, which has the turn and has
    /// noted under the same lock what it waits for.
    fn free(&self, waits_for: Waiting, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let is_waited_for = state.waiting == waits_for;
        drop(state);
        if is_waited_for {
            self.wake.notify_one();
        }
    }

    /// Reserves more memory for a request in flight. An eighth of the budget, in which each range fits,
    /// stays free: the next range of an object that was begun may have to arrive before this one is processed.
    pub(crate) fn grow(&self, bytes: u64) -> bool {
        let mut state = self.state();
        let limit = state.memory_limit - state.memory_limit / 8;
        let fits = state.memory.checked_add(bytes).is_some_and(|sum| sum <= limit);
        if fits {
            state.take_memory(bytes);
        }
        fits
    }

    /// Returns whether a request may ever grow by so much.
    pub(crate) fn may_grow(&self, bytes: u64) -> bool {
        bytes <= self.state().memory_limit / 4
    }

    /// Reserves memory, if it is free.
    #[cfg(test)]
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let mut state = self.state();
        let fits = state.memory + bytes <= state.memory_limit;
        if fits {
            state.take_memory(bytes);
        }
        fits
    }

    /// Returns memory.
    pub(crate) fn release(&self, bytes: u64) {
        self.free(Waiting::Memory, |state| state.memory -= bytes);
    }

    /// Sets the number of requests that may be in flight.
    pub(crate) fn set_limit(&self, limit: u32) {
        let mut state = self.state();
        let more = limit > state.limit;
        state.limit = limit;
        drop(state);
        if more {
            self.wake.notify_one();
        }
    }

    /// Sets the memory budget.
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.state().memory_limit = bytes;
        self.wake.notify_one();
    }

    /// Notes that the task that starts requests waits for the list, or no longer does.
    pub(crate) fn wait_for_list(&self, waits: bool) {
        self.state().waiting = if waits { Waiting::List } else { Waiting::Nothing };
    }

    /// Lets no more requests start.
    pub(crate) fn stop(&self) {
        self.state().stopped = true;
        self.stopped.send_replace(true);
        self.wake.notify_one();
    }

    /// Waits until no more requests start.
    pub(crate) async fn until_stopped(&self) {
        let _ = self.stopped.subscribe().wait_for(|stopped| *stopped).await;
    }

    /// Returns what happened, the requests in flight, what is waited for, and the rate of the pace.
    pub(crate) fn look(&self) -> (Counts, u32, Waiting, Option<f64>) {
        let state = self.state();
        (state.counts, state.in_flight, state.waiting, state.pace.rate())
    }
}

impl State {
    fn enter(&mut self, bytes: u64, now_ns: u64) -> Started {
        self.waiting = Waiting::Nothing;
        self.in_flight += 1;
        self.counts.sent += 1;
        self.counts.in_flight_max = self.counts.in_flight_max.max(self.in_flight);
        self.take_memory(bytes);
        self.pace.issued(now_ns)
    }

    fn take_memory(&mut self, bytes: u64) {
        self.memory += bytes;
        self.counts.memory_max = self.counts.memory_max.max(self.memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_many_refusals_over_its_time() {
        let outage = || Outage { limit_ns: 100, since_ns: 0, refused: 0, is_over_limit: false };
        let mut few = outage();
        for at in 1..OUTAGE_REFUSALS {
            few.refused(at * 1000);
        }
        assert!(!few.is_over_limit);
        let mut short = outage();
        (0..=99).for_each(|at| short.refused(1000 + at));
        assert!(!short.is_over_limit);
        short.refused(1100);
        assert!(short.is_over_limit);
        let mut answered = outage();
        (0..=99).for_each(|at| answered.refused(1000 + at));
        answered.refused = 0;
        (0..=99).for_each(|at| answered.refused(1100 + at));
        assert!(!answered.is_over_limit);
    }
}
