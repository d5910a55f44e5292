//! The request pool: one thread reads and writes; others execute requests.
//!
//! The workers have at most one batch of requests per connection, so its answers remain in order.
//! The queue to the workers is bounded; requests that do not fit are answered with `BUSY`.

use super::event_loop::{EventLoop, Incoming};
use super::executor::{Executor, JobBatch};
use super::port::Port;
use crate::error::{ServeError, SystemOperation};
use crate::service::Service;
use ioloom_sys::clock;
use ioloom_sys_net::wait::Waiter;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex};

/// Queue length per worker, in batches.
const WAITING_EACH: usize = 256;

pub(super) fn run(
    service: &Arc<Service>,
    waiter: impl Waiter + 'static,
    ports: Vec<Port>,
) -> Result<(), ServeError> {
    let threads = service.limits.threads.max(1);
    let (to_workers, for_workers) = sync_channel(threads * WAITING_EACH);
    let (to_loop, for_loop) = channel();
    let for_workers = Mutex::new(for_workers);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (to_loop, for_workers) = (to_loop.clone(), &for_workers);
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            let worker = move || work(service, for_workers, &to_loop);
            if let Err(source) = builder.spawn_scoped(scope, worker) {
                return Err(ServeError::System { operation: SystemOperation::StartThread, source });
            }
        }
        drop(to_loop);
        let executor = Executor::Workers { send: sender(to_workers), done: for_loop };
        EventLoop::new(service, 0, Box::new(waiter), Incoming::Own(ports), executor)?.run()
    })
}

fn sender(to_workers: SyncSender<JobBatch>) -> Box<dyn Fn(JobBatch) -> Result<(), JobBatch>> {
    Box::new(move |batch| match to_workers.try_send(batch) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(batch) | TrySendError::Disconnected(batch)) => Err(batch),
    })
}

fn work(service: &Service, for_workers: &Mutex<Receiver<JobBatch>>, to_loop: &Sender<JobBatch>) {
    loop {
        let next = for_workers.lock().expect("the lock must not be poisoned").recv();
        let Ok(mut batch) = next else { return };
        // The store failed: the service is stopping, and no answers may be sent.
        let waited_ns = clock::monotonic_ns().saturating_sub(batch.arrived_ns);
        service.times.queue.observe(waited_ns, batch.jobs.len());
        if service.answer(&mut batch.jobs, batch.arrived_ns).is_err() {
            batch.jobs.clear();
        }
        if to_loop.send(batch).is_err() {
            return;
        }
        service.waker(0).wake();
    }
}
