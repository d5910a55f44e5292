//! A pool of threads, each of which serves one connection until it closes.
//!
//! Accepted connections wait in a bounded queue. While it is full, the server accepts none, so
//! further ones wait in the backlog of the kernel, as with the bounded buffer of the original
//! assignment: its accepting thread blocks. With [`Limits::busy_when_full`](crate::Limits), they are
//! accepted and get `BUSY` instead.

use super::blocking::{Gate, Handler, OpenSockets, accept_all};
use super::port::Port;
use crate::error::{ServeError, SystemOperation};
use crate::metrics::Rejected;
use crate::service::Service;
use ioloom_exchange::Settings;
use ioloom_sys::clock;
use ioloom_sys_net::{Socket, Waker};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// A connection, its settings, and the time when it was accepted.
type Waiting = (Socket, Settings, u64);

/// Bounded queue between the accepting thread and the pool.
struct Buffer {
    waiting: Mutex<VecDeque<Waiting>>,
    changed: Condvar,
    most: usize,
    /// Wakes the accepting thread when the full queue has room again.
    room: Waker,
}

impl Buffer {
    fn insert(&self, socket: Socket, settings: Settings) -> Result<(), Socket> {
        let mut waiting = self.waiting.lock().expect("the lock must not be poisoned");
        if waiting.len() >= self.most {
            return Err(socket);
        }
        waiting.push_back((socket, settings, clock::monotonic_ns()));
        debug_assert!(waiting.len() <= self.most, "the pool queue must be bounded");
        self.changed.notify_one();
        Ok(())
    }

    fn remove(&self, service: &Service) -> Option<Waiting> {
        let mut waiting = self.waiting.lock().expect("the lock must not be poisoned");
        loop {
            if let Some(next) = waiting.pop_front() {
                if waiting.len() + 1 == self.most {
                    self.room.wake();
                }
                return Some(next);
            }
            if service.is_stopping() {
                return None;
            }
            waiting = self.changed.wait(waiting).expect("the lock must not be poisoned");
        }
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().expect("the lock must not be poisoned").is_empty()
    }

    fn has_room(&self) -> bool {
        self.waiting.lock().expect("the lock must not be poisoned").len() < self.most
    }
}

/// Serves with a pool of threads until a stop is requested.
pub(super) fn run(service: &Arc<Service>, ports: &[Port]) -> Result<(), ServeError> {
    let open = OpenSockets::default();
    let buffer = Buffer {
        waiting: Mutex::default(),
        changed: Condvar::new(),
        most: service.limits.waiting.max(1),
        room: Waker::new().map_err(ServeError::system(SystemOperation::CreateWaker))?,
    };
    let (open, buffer) = (&open, &buffer);
    let has_room = || buffer.has_room();
    let gate = Gate { waker: &buffer.room, has_room: &has_room };
    let gate = (!service.limits.busy_when_full).then_some(&gate);
    std::thread::scope(|scope| {
        let mut ended = Ok(());
        for number in 0..service.limits.threads.max(1) {
            let builder = std::thread::Builder::new().name(format!("pool-{number}"));
            let worker = move || {
                let others_wait = || !buffer.is_empty();
                let handler = Handler { service, open, others_wait: Some(&others_wait) };
                while let Some((socket, settings, accepted_ns)) = buffer.remove(service) {
                    let waited_ns = clock::monotonic_ns().saturating_sub(accepted_ns);
                    service.times.pool.observe(waited_ns, 1);
                    handler.serve(number, socket, &settings);
                }
                open.end();
            };
            open.begin();
            if let Err(source) = builder.spawn_scoped(scope, worker) {
                open.end();
                service.stop();
                ended = Err(ServeError::System { operation: SystemOperation::StartThread, source });
                break;
            }
        }
        let ended = ended.and_then(|()| {
            accept_all(service, ports, gate, |socket, port| {
                if let Err(socket) = buffer.insert(socket, port.settings) {
                    port.turn_away(service, &socket);
                    service.rejected(Rejected::Queue);
                    service.leave(socket.mark());
                }
                Ok(())
            })
        });
        // Also applies if accepting failed. Idle threads see it once they get the lock.
        service.end();
        drop(buffer.waiting.lock().expect("the lock must not be poisoned"));
        buffer.changed.notify_all();
        service.wait_for_end_of_reading();
        open.end_reading();
        open.give_time(service.limits.stop);
        ended
    })
}
