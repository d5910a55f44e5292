//! Limits per client address: open connections, requests per second, and bytes per second.
//!
//! A client is an IPv4 address or an IPv6 network of 64 bits. Each accepted connection has a seat
//! number, which finds its client without a search. Rates are limited by the time at which the
//! client would have been allowed to send everything it has sent: it may be up to a second in the
//! future, so a second's worth can arrive at once. Beyond that, orders and lists are answered `busy`
//! and not executed. Monitoring and set-up requests are always answered.
//!
//! Without such limits there are no seats, and a connection costs one comparison per turn. With
//! them, each batch takes one lock.

use crate::limits::Limits;
use crate::sharing::Job;
use ioloom_exchange::{Answer, Command, Stop};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

/// How far a client may be ahead of its rates, in nanoseconds.
const BURST_NS: u64 = 1_000_000_000;
/// Maximum delay that bytes can cause, in nanoseconds.
const DEBT_NS: u64 = 10_000_000_000;
/// Clients without connections are forgotten when there are more than this.
const KEPT: usize = 4096;

#[derive(Default)]
struct Client {
    address: Option<IpAddr>,
    open: usize,
    /// Time at which it may have sent all its requests.
    requests_ns: u64,
    /// Time at which it may have sent all its bytes.
    bytes_ns: u64,
}

#[derive(Default)]
struct Table {
    /// Clients by seat number minus one.
    clients: Vec<Client>,
    seats: HashMap<IpAddr, u32>,
    free: Vec<u32>,
}

impl Table {
    fn seat(&mut self, address: IpAddr, now_ns: u64) -> u32 {
        if let Some(seat) = self.seats.get(&address) {
            return *seat;
        }
        if self.seats.len() >= KEPT {
            self.forget(now_ns);
        }
        let seat = self.free.pop().unwrap_or_else(|| {
            self.clients.push(Client::default());
            self.clients.len() as u32
        });
        *self.client(seat) = Client { address: Some(address), ..Client::default() };
        self.seats.insert(address, seat);
        seat
    }

    fn client(&mut self, seat: u32) -> &mut Client {
        &mut self.clients[seat as usize - 1]
    }

    /// Removes clients without connections that may send at their full rate again.
    fn forget(&mut self, now_ns: u64) {
        let (clients, free) = (&mut self.clients, &mut self.free);
        self.seats.retain(|_, seat| {
            let client = &clients[*seat as usize - 1];
            let keeps = client.open > 0 || client.requests_ns > now_ns || client.bytes_ns > now_ns;
            if !keeps {
                free.push(*seat);
            }
            keeps
        });
    }
}

/// All clients with connections.
#[derive(Default)]
pub(crate) struct Peers {
    connections: AtomicUsize,
    requests_per_s: AtomicU32,
    bytes_per_s: AtomicU64,
    table: Mutex<Table>,
}

/// Returns the part of an address that identifies a client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() >> 64 << 64;
            IpAddr::V6(bits.into())
        }
        address => address,
    }
}

impl Peers {
    pub(crate) fn new(limits: &Limits) -> Self {
        let peers = Self::default();
        peers.set(limits);
        peers
    }

    /// Replaces the limits. Connections that were accepted without limits stay without.
    pub(crate) fn set(&self, limits: &Limits) {
        self.connections.store(limits.client_connections, Ordering::Relaxed);
        self.requests_per_s.store(limits.client_rate, Ordering::Relaxed);
        self.bytes_per_s.store(limits.client_bytes, Ordering::Relaxed);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("the lock must not be poisoned")
    }

    fn has_limits(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > 0
            || self.requests_per_s.load(Ordering::Relaxed) > 0
            || self.bytes_per_s.load(Ordering::Relaxed) > 0
    }

    /// Registers a connection and returns its seat, which is 0 without limits; `None` if its client
    /// has too many connections.
    pub(crate) fn enter(
        &self,
        address: impl FnOnce() -> Option<IpAddr>,
        now_ns: u64,
    ) -> Option<u32> {
        // A client that has already disconnected has no address.
        let Some(address) = self.has_limits().then(address).flatten() else { return Some(0) };
        let most = self.connections.load(Ordering::Relaxed);
        let mut table = self.table();
        let seat = table.seat(network(address), now_ns);
        let client = table.client(seat);
        if most > 0 && client.open >= most {
            return None;
        }
        client.open += 1;
        Some(seat)
    }

    /// Unregisters a connection.
    pub(crate) fn leave(&self, seat: u32) {
        if seat > 0 {
            let mut table = self.table();
            let client = table.client(seat);
            debug_assert!(client.open > 0, "a connection was unregistered twice");
            client.open = client.open.saturating_sub(1);
        }
    }

    /// Counts received bytes and requests, and answers those beyond the rates.
    pub(crate) fn charge(&self, seat: u32, bytes: usize, jobs: &mut [Job], now_ns: u64) {
        if seat == 0 {
            return;
        }
        let per_s = self.requests_per_s.load(Ordering::Relaxed);
        let bytes_per_s = self.bytes_per_s.load(Ordering::Relaxed);
        let mut table = self.table();
        let client = table.client(seat);
        debug_assert!(client.address.is_some(), "a seat must belong to a client");
        let until_ns = now_ns + BURST_NS;
        let bytes_ns = (bytes as u64).saturating_mul(1_000_000_000);
        if let Some(cost_ns) = bytes_ns.checked_div(bytes_per_s) {
            client.bytes_ns = (client.bytes_ns.max(now_ns) + cost_ns).min(now_ns + DEBT_NS);
        }
        for job in jobs {
            if !matches!(job.request.command, Command::Trade(_) | Command::Show) {
                continue;
            }
            let mut is_over = bytes_per_s > 0 && client.bytes_ns > until_ns;
            if per_s > 0 && !is_over {
                let next_ns = client.requests_ns.max(now_ns) + 1_000_000_000 / u64::from(per_s);
                is_over = next_ns > until_ns;
                if !is_over {
                    client.requests_ns = next_ns;
                }
            }
            if is_over {
                job.answer = Some(Answer::Stopped(Stop::Busy));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::{Form, Request};

    fn limits(connections: usize, rate: u32, bytes: u64) -> Limits {
        Limits {
            client_connections: connections,
            client_rate: rate,
            client_bytes: bytes,
            ..Limits::default()
        }
    }

    fn jobs(count: usize) -> Vec<Job> {
        let request = Request {
            command: Command::Show,
            request_id: None,
            deadline_ms: None,
            form: Form::Resp,
        };
        (0..count)
            .map(|_| Job { token: 0, request: request.clone(), due_ns: 0, answer: None })
            .collect()
    }

    fn busy(peers: &Peers, seat: u32, count: usize, bytes: usize, now_ns: u64) -> usize {
        let mut jobs = jobs(count);
        peers.charge(seat, bytes, &mut jobs, now_ns);
        jobs.iter().filter(|job| job.answer.is_some()).count()
    }

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const TWO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const S: u64 = 1_000_000_000;

    #[test]
    fn connections_are_limited_by_address() {
        let peers = Peers::new(&limits(2, 0, 0));
        let enter = |address| peers.enter(|| Some(address), S);
        let (first, second) = (enter(ONE).unwrap(), enter(ONE).unwrap());
        assert_eq!((first, second, enter(ONE)), (1, 1, None));
        assert_eq!(enter(TWO), Some(2));
        peers.leave(first);
        assert_eq!(enter(ONE), Some(1));
        peers.set(&Limits::default());
        assert_eq!(enter(ONE), Some(0), "without limits there are no seats");
        let v6 = |text: &str| network(text.parse().unwrap());
        assert_eq!(v6("2001:db8::1"), v6("2001:db8::2:3"));
        assert_ne!(v6("2001:db8::1"), v6("2001:db8:0:1::1"));
        assert_eq!(v6("::ffff:10.0.0.1"), ONE);
    }

    #[test]
    fn a_second_of_requests_can_arrive_at_once() {
        let peers = Peers::new(&limits(0, 10, 0));
        let seat = peers.enter(|| Some(ONE), S).unwrap();
        let other = peers.enter(|| Some(TWO), S).unwrap();
        assert_eq!(busy(&peers, seat, 25, 0, S), 15);
        assert_eq!(busy(&peers, other, 10, 0, S), 0, "others are not affected");
        assert_eq!(busy(&peers, seat, 1, 0, S), 1);
        assert_eq!(busy(&peers, seat, 6, 0, S + S / 2), 1);
        // A new connection does not renew the rate.
        peers.leave(seat);
        let seat = peers.enter(|| Some(ONE), S + S / 2).unwrap();
        assert_eq!(busy(&peers, seat, 1, 0, S + S / 2), 1);
    }

    #[test]
    fn bytes_delay_requests_for_a_limited_time() {
        let peers = Peers::new(&limits(0, 0, 1000));
        let seat = peers.enter(|| Some(ONE), S).unwrap();
        assert_eq!(busy(&peers, seat, 1, 900, S), 0);
        assert_eq!(busy(&peers, seat, 1, 900, S), 1);
        assert_eq!(busy(&peers, seat, 1, 0, 2 * S), 0);
        assert_eq!(busy(&peers, seat, 1, 1 << 30, 2 * S), 1);
        assert_eq!(busy(&peers, seat, 1, 0, 13 * S), 0);
    }

    #[test]
    fn clients_that_have_left_are_forgotten() {
        let peers = Peers::new(&limits(1, 0, 0));
        for number in 0..3 * KEPT as u32 {
            let address = IpAddr::V4(number.into());
            let seat = peers.enter(|| Some(address), S).unwrap();
            peers.leave(seat);
        }
        assert!(peers.table().clients.len() <= KEPT);
    }
}
