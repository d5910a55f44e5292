//! Accepts connections, passes them to other loops, and gives each of its own a slot.
//!
//! With edge triggering, a listener is reported once for all waiting connections. Those that a turn
//! leaves behind, and those for which descriptors have run out, are therefore remembered.

use super::super::port::connections_max;
use super::{CONNECTIONS, EventLoop, Slot};
use crate::connection::Connection;
use crate::metrics::Rejected;
use ioloom_exchange::Settings;
use ioloom_sys_net::wait::Interest;
use ioloom_sys_net::{Socket, concerns_one_connection, is_out_of_sockets};
use std::io;

/// Maximum number of connections accepted per turn.
const ACCEPT_MAX: usize = 256;

impl EventLoop<'_> {
    /// Accepts waiting connections of a listener, as many as one turn may.
    pub(super) fn accept(&mut self, at: usize) {
        for _ in 0..ACCEPT_MAX {
            let Some(port) = self.ports.get(at) else { return };
            let settings = port.settings;
            match port.listener.accept(false) {
                Ok(mut socket) => {
                    let most = connections_max(self.service);
                    match self.service.admit(most, || socket.peer()) {
                        None => port.turn_away(self.service, &socket),
                        Some(seat) => {
                            socket.set_mark(seat);
                            self.place(socket, settings);
                        }
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) if concerns_one_connection(&e) => {}
                Err(e) if is_out_of_sockets(&e) => {
                    let listener = &port.listener;
                    let turned = self.reserve.as_mut().is_some_and(|r| r.reject_one(listener));
                    if turned {
                        self.service.rejected(Rejected::Descriptors);
                    }
                    // Edge triggering will not report this connection again, nor those queued
                    // behind it.
                    match self.waiter.is_edge_triggered() {
                        true if turned => break,
                        true => self.starved.push(at),
                        false => {}
                    }
                    return;
                }
                Err(_) if self.waiter.is_edge_triggered() => break,
                Err(_) => return,
            }
        }
        self.more_to_accept.push(at);
    }

    /// Keeps a new connection or passes it to the next loop in round-robin order.
    fn place(&mut self, socket: Socket, settings: Settings) {
        self.handed += 1;
        let to = self.handed % (self.hand_to.len() + 1);
        let seat = socket.mark();
        if to == 0 {
            self.insert(socket, settings);
        } else if self.hand_to[to - 1].send((socket, settings)).is_ok() {
            self.service.waker(to).wake();
        } else {
            self.service.leave(seat);
        }
    }

    fn insert(&mut self, socket: Socket, settings: Settings) {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let by_edge = self.waiter.is_edge_triggered();
        let transport = (self.service.transport(), settings);
        let connection = Connection::new(socket, transport, by_edge, self.now_ns);
        let interest = if by_edge { Interest::BOTH } else { connection.interest };
        if self.waiter.add(&connection.socket, at + CONNECTIONS, interest).is_err() {
            self.free.push(at);
            self.service.leave(connection.socket.mark());
            return;
        }
        debug_assert!(self.slots[at].is_none(), "two connections would share a slot");
        self.slots[at] = Some(Slot { connection, is_away: false, active_turn: 0, is_dead: false });
        self.open += 1;
    }

    /// Takes the connections that another loop has accepted.
    pub(super) fn take_inbox(&mut self) {
        while let Some(Ok((socket, settings))) = self.inbox.as_ref().map(|inbox| inbox.0.try_recv())
        {
            if self.stop_ns.is_some() {
                self.service.leave(socket.mark());
                continue;
            }
            self.insert(socket, settings);
        }
    }
}
