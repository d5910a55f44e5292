//! The request pool: one thread reads and writes, others carry out requests.
//!
//! A connection has one batch of requests away at a time, so its answers keep their order. What waits
//! for the workers is bounded; beyond that requests are answered with `BUSY`.

use super::Port;
use super::event_loop::{Carrier, EventLoop, Incoming, Parcel};
use crate::error::ServeError;
use crate::service::Service;
use crate::sharing::Job;
use ioloom_exchange::{Answer, Command, Stop};
use ioloom_sys_net::wait::Waiter;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex};

/// Batches that may wait for each worker.
const WAITING_EACH: usize = 256;

/// Answers jobs for which there is no room.
pub(super) fn refuse(jobs: &mut [Job]) {
    for job in jobs {
        job.answer = Some(match job.request.command {
            Command::Local(local) => Answer::Local(local),
            _ => Answer::Stopped(Stop::Busy),
        });
    }
}

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
            if let Err(reason) = builder.spawn_scoped(scope, worker) {
                return Err(ServeError::System { operation: "start a thread", reason });
            }
        }
        drop(to_loop);
        let carrier = Carrier::Away { send: sender(to_workers), back: for_loop };
        EventLoop::new(service, 0, Box::new(waiter), Incoming::Own(ports), carrier)?.run()
    })
}

fn sender(to_workers: SyncSender<Parcel>) -> Box<dyn Fn(Parcel) -> Result<(), Parcel>> {
    Box::new(move |parcel| match to_workers.try_send(parcel) {
        Ok(()) => Ok(()),
        Err(TrySendError::Full(parcel) | TrySendError::Disconnected(parcel)) => Err(parcel),
    })
}

fn work(service: &Service, for_workers: &Mutex<Receiver<Parcel>>, to_loop: &Sender<Parcel>) {
    loop {
        let next = for_workers.lock().expect("no panic under this lock").recv();
        let Ok(mut parcel) = next else { return };
        // The store failed: the service is stopping, and the answers stay here.
        if service.answer(&mut parcel.jobs).is_err() {
            parcel.jobs.clear();
        }
        if to_loop.send(parcel).is_err() {
            return;
        }
        service.waker(0).wake();
    }
}
