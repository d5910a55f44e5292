//! Threads that process one file after another: the `threads` schedule, and windows of blocking
//! reads.
//!
//! Under `window` with `read` or `direct:read`, L such threads share P permits: a thread reads
//! without a permit and takes one to run the function.
//!
//! A thread reuses the buffer of its last file if every thread has one anyway.

use super::work::{Work, Worker};
use crate::arena::Lease;
use crate::claim::Claim;
use crate::error::FileError;
use crate::fetch::{Cx, Fetch, Reaped, Started};
use crate::loaded::Loaded;
use crate::source::{Item, Next};
use crate::take::Take;
use ioloom_model::CallKind;
use ioloom_model::layout::Role;
use ioloom_sys::clock::monotonic_ns;
use std::sync::atomic::Ordering;

pub(super) fn run<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    role: Role,
    mut fetch: Box<dyn Fetch<'e, W::State> + 'e>,
) {
    let shared = worker.shared;
    let mut reaped = Reaped::new();
    let mut claim = Claim::default();
    let mut spare: Option<Lease> = None;
    let mut helps = (role == Role::Blocking).then(Helps::default);
    while !shared.stopping() {
        // No other thread could take what this one has claimed.
        if let Some(helps) = &mut helps
            && claim.is_empty()
        {
            helps.rest_if_idle(worker, &mut spare);
        }
        // A thread that helps should not claim what others could read while it waits.
        let take = || match role {
            Role::Blocking => Take { stripe: 1, ..shared.take() },
            _ => shared.take(),
        };
        let Some(mut item) = next(worker, &mut claim, take, &mut spare) else { break };
        worker.meter.file_starts();
        item.began = worker.meter.file_begins();
        worker.in_flight(1);
        let lease = match shared.first_bytes {
            0 => None,
            bytes => spare.take().or_else(|| fetch.arena(shared).try_lease(bytes).ok().flatten()),
        };
        let mut began_ns = helps.as_ref().map(|_| monotonic_ns());
        let mut cx = alone(worker);
        let mut started = fetch.start(&mut cx, item, lease);
        loop {
            let loaded = match started {
                Started::Ready(loaded) => Ok(loaded),
                Started::Failed(error) => Err(error),
                Started::Pending => match wait(worker, &mut *fetch, &mut reaped) {
                    Some(result) => {
                        shared.gauges.waited(worker.number);
                        result
                    }
                    None => return,
                },
                Started::Later(_) => unreachable!("an idle thread waits for a descriptor"),
            };
            worker.in_flight(0);
            if let (Some(began_ns), Ok(_)) = (began_ns.take(), &loaded) {
                shared.blocking.took(began_ns, monotonic_ns());
            }
            match loaded {
                Err(error) => {
                    worker.failed(error);
                    break;
                }
                Ok(mut loaded) => {
                    let permit = shared.permits.as_ref().map(|permits| {
                        let permit = permits.take();
                        worker.meter.lap(CallKind::HandOver, loaded.item.index);
                        permit
                    });
                    let more = worker.compute(&mut loaded);
                    drop(permit);
                    if !more || shared.stopping() {
                        spare = loaded.take_spare(shared);
                        loaded.release(&mut worker.meter);
                        break;
                    }
                    worker.in_flight(1);
                    let mut cx = alone(worker);
                    started = fetch.resume(&mut cx, loaded);
                }
            }
        }
    }
    worker.in_flight(0);
}

/// Files after which a blocking thread checks whether it is still needed.
const HELP_FILES: u32 = 8;

/// When a blocking thread helps: while reads of any thread block because the filesystem does not
/// support `RWF_NOWAIT`, and no more such threads run than may.
#[derive(Default)]
struct Helps {
    files: u32,
    unanswered: u64,
}

impl Helps {
    /// Rests if no such read has happened for [`HELP_FILES`] files, or too many threads run.
    fn rest_if_idle<W: Work>(&mut self, worker: &mut Worker<'_, W>, spare: &mut Option<Lease>) {
        let shared = worker.shared;
        let blocked = || shared.unanswered.load(Ordering::Relaxed);
        self.files += 1;
        let idle = self.files >= HELP_FILES && blocked() == self.unanswered;
        if idle || shared.blocking.is_over() {
            // Others may wait for the memory.
            *spare = None;
            worker.meter.step_timed();
            let seen = self.unanswered;
            shared.blocking.rest(
                || !idle || blocked() != seen,
                || shared.stopping() || shared.source.has_ended(),
            );
            worker.meter.lap(CallKind::Input, 0);
        } else if self.files < HELP_FILES {
            return;
        }
        self.files = 0;
        self.unanswered = blocked();
    }
}

/// Returns the next file, after waiting for its path if necessary. `None`: the run is over.
fn next<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    claim: &mut Claim,
    take: impl Fn() -> Take,
    spare: &mut Option<Lease>,
) -> Option<Item<'e, W::State>> {
    let shared = worker.shared;
    while !shared.stopping() {
        match shared.source.next(claim, take()) {
            Next::Item(item) => return Some(item),
            Next::Failed(error) => worker.failed(error),
            Next::Empty => {
                *spare = None;
                await_input(worker);
            }
            Next::Ended => {
                shared.list_ended();
                return None;
            }
        }
    }
    None
}

/// Waits for a path.
fn await_input<W: Work>(worker: &mut Worker<'_, W>) {
    let shared = worker.shared;
    worker.meter.step_timed();
    let source = shared.source;
    source.bell().rest(|_| (shared.stopping() || source.is_settled_surely()).then_some(()));
    worker.meter.lap(CallKind::Input, 0);
}

/// Returns the context of a thread that has one file at a time and reads without a permit.
#[inline]
fn alone<'a, 'e, W: Work>(worker: &'a mut Worker<'e, W>) -> Cx<'a, 'e> {
    let (shared, meter) = (worker.shared, &mut worker.meter);
    Cx { shared, meter, may_wait: true, idle: true, kept: None }
}

/// Waits for the one piece in flight. Returns `None` if the run has ended.
fn wait<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    fetch: &mut dyn Fetch<'e, W::State>,
    reaped: &mut Reaped<'e, W::State>,
) -> Option<Result<Loaded<'e, W::State>, FileError>> {
    let shared = worker.shared;
    let mut cx = alone(worker);
    if let Err(error) = fetch.reap(&mut cx, true, reaped) {
        shared.fail(error);
        return None;
    }
    reaped.pop_front()
}
