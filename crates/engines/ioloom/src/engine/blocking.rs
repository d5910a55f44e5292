//! Threads that process one file after another: the `threads` schedule, and windows of blocking
//! reads.
//!
//! Under `window` with `read` or `direct:read`, L such threads share P permits: a thread reads
//! without a permit and takes one to run the function.
//!
//! A thread reuses the buffer of its last file if every thread has one anyway.

use super::work::{Work, Worker};
use crate::arena::Lease;
use crate::error::FileError;
use crate::fetch::{Cx, Fetch, Reaped, Started};
use crate::loaded::Loaded;
use crate::source::{Claim, Next};
use ioloom_model::CallKind;

pub(super) fn run<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    mut fetch: Box<dyn Fetch<'e, W::State> + 'e>,
) {
    let shared = worker.shared;
    let mut reaped = Reaped::new();
    let mut claim = Claim::default();
    let mut spare: Option<Lease> = None;
    while !shared.stopping() {
        let item = match shared.source.next(&mut claim, shared.take()) {
            Next::Item(item) => item,
            Next::Failed(error) => {
                worker.failed(error);
                continue;
            }
            Next::Empty => {
                spare = None;
                await_input(worker);
                continue;
            }
            Next::Ended => {
                shared.list_ended();
                break;
            }
        };
        worker.meter.file_starts();
        worker.in_flight(1);
        let lease = match shared.first_bytes {
            0 => None,
            bytes => spare.take().or_else(|| fetch.arena(shared).try_lease(bytes).ok().flatten()),
        };
        let mut cx = Cx { shared, meter: &mut worker.meter, may_wait: true, idle: true };
        let mut started = fetch.start(&mut cx, item, lease);
        loop {
            let loaded = match started {
                Started::Ready(loaded) => Ok(loaded),
                Started::Failed(error) => Err(error),
                Started::Pending => match wait(worker, &mut *fetch, &mut reaped) {
                    Some(result) => result,
                    None => return,
                },
                Started::Later(_) => unreachable!("an idle thread waits for a descriptor"),
            };
            worker.in_flight(0);
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
                    let mut cx =
                        Cx { shared, meter: &mut worker.meter, may_wait: true, idle: true };
                    started = fetch.resume(&mut cx, loaded);
                }
            }
        }
    }
    worker.in_flight(0);
}

/// Waits for a path.
fn await_input<W: Work>(worker: &mut Worker<'_, W>) {
    let shared = worker.shared;
    worker.meter.step_timed();
    let source = shared.source;
    source.bell().rest(|_| (shared.stopping() || source.is_settled_surely()).then_some(()));
    worker.meter.lap(CallKind::Input, 0);
}

/// Waits for the one piece in flight. Returns `None` if the run has ended.
fn wait<'e, W: Work>(
    worker: &mut Worker<'e, W>,
    fetch: &mut dyn Fetch<'e, W::State>,
    reaped: &mut Reaped<'e, W::State>,
) -> Option<Result<Loaded<'e, W::State>, FileError>> {
    let shared = worker.shared;
    let mut cx = Cx { shared, meter: &mut worker.meter, may_wait: true, idle: true };
    if let Err(error) = fetch.reap(&mut cx, true, reaped) {
        shared.fail(error);
        return None;
    }
    reaped.pop_front()
}
