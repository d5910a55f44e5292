//! Devices with four or five parameters each, as next-free times and short queues.
//!
//! Times are in nanoseconds, sizes in bytes. What is left out: writes, caches of the drive, thermal
//! limits, and the merging of requests.

use super::random::Draws;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// One request at a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// The law of a device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Model {
    /// A disk with one head. To a request ahead it reads on, unless a seek is shorter: `near_ns` for near
    /// tracks, `far_ns + seek_ns · √distance` else, then the rotation. Of 32 requests, the next one less than
    /// 512 KiB ahead is first, then the one with the shortest way. Always taking the shortest way would pass
    /// over requests of a sequence with gaps and seek back to each, so that reading less would take longer.
    /// The square root for short seeks is from Ruemmler and Wilkes, "An introduction to disk drive
    /// modeling", 1994.
    Disk {
        /// Time of a seek to a near track.
        near_ns: u64,
        /// Shortest time of a long seek.
        far_ns: u64,
        /// Coefficient of a long seek.
        seek_ns: u64,
        /// Time of one rotation.
        rotation_ns: u64,
        /// Bytes per second at the head.
        bytes_per_s: f64,
        /// Size of the disk in bytes.
        bytes: u64,
    },
    /// Flash: pieces of 32 KiB on `units` that work independently, one bus, and a fixed time in the
    /// firmware. It follows `simple_ftl.c` of NVMeVirt, whose figures for a Samsung 970 Pro are 16
    /// units of 36 µs, 21.5 µs of firmware and 3,360 MB/s.
    Flash {
        /// Units that read at the same time.
        units: u32,
        /// Time of one piece on its unit.
        piece_ns: u64,
        /// Time of one command at the controller.
        command_ns: u64,
        /// Time in the firmware, for each request at the same time.
        firmware_ns: u64,
        /// Bytes per second of the bus.
        bytes_per_s: f64,
    },
    /// A USB stick: one request at a time, fast within the four regions of 4 MiB used last. Its
    /// figures are chosen so that few requests in flight are best, as published for walks.
    Stick {
        /// Time of a request in an open region.
        hit_ns: u64,
        /// Time of another request.
        miss_ns: u64,
        /// Bytes per second.
        bytes_per_s: f64,
    },
    /// A server behind a network or a FUSE file system: a latency, and a number of requests that are
    /// served at the same time.
    Network {
        /// Round trip, for each request at the same time.
        latency_ns: u64,
        /// Requests served at the same time.
        servers: u32,
        /// Time of one request at a server.
        service_ns: u64,
        /// Bytes per second of the connection.
        bytes_per_s: f64,
    },
}

/// A limit in front of a device, as clouds and control groups have it: a token bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cap {
    /// Requests per second.
    pub requests_per_s: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Seconds of tokens that the bucket holds.
    pub burst_s: f64,
}

/// A device: its law, an optional cap, and how much single requests vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// The law.
    pub model: Model,
    /// The cap in front of it.
    pub cap: Option<Cap>,
    /// Standard deviation of the logarithm of service times.
    pub jitter: f64,
}

const PIECE: u64 = 32 << 10;
const READ_THROUGH: u64 = 512 << 10;
const NEAR: u64 = 64 << 20;
const TRACK: u64 = 1 << 20;
const DRIVE_QUEUE: usize = 32;
const REGION: u64 = 4 << 20;
const REGIONS: usize = 4;

#[derive(Debug, Clone)]
enum Core {
    /// One request at a time from a queue: disks and sticks.
    Serial { queue: VecDeque<Request>, active: Option<(u64, u64)>, head: u64, open: Vec<u64> },
    /// Completion times are known when a request arrives.
    Parallel { free: Vec<u64>, bus: u64, command: u64, done: BinaryHeap<Reverse<(u64, u64)>> },
    /// The same with any number of interchangeable servers: the one that is free first serves.
    Servers { free: BinaryHeap<Reverse<u64>>, bus: u64, done: BinaryHeap<Reverse<(u64, u64)>> },
}

#[derive(Debug, Clone)]
struct Gate {
    cap: Cap,
    queue: VecDeque<Request>,
    tokens: [f64; 2],
    filled: u64,
}

impl Gate {
    fn fill(&mut self, now: u64) {
        let seconds = now.saturating_sub(self.filled) as f64 / 1e9;
        self.filled = self.filled.max(now);
        for (tokens, rate) in
            self.tokens.iter_mut().zip([self.cap.requests_per_s, self.cap.bytes_per_s])
        {
            // One request always fits, whatever the burst.
            let most = (rate * self.cap.burst_s).max(1.0);
            *tokens = (*tokens + rate * seconds).min(most);
        }
    }

    /// Returns when the oldest request may pass: a bucket may go into debt, so it must be positive.
    fn release(&self) -> Option<u64> {
        self.queue.front()?;
        let mut wait = 0.0f64;
        for (tokens, rate) in
            self.tokens.iter().zip([self.cap.requests_per_s, self.cap.bytes_per_s])
        {
            wait = wait.max((1.0 - tokens) / rate);
        }
        Some(self.filled + (wait * 1e9).ceil() as u64)
    }
}

/// A device at work.
#[derive(Debug, Clone)]
pub(super) struct Running {
    device: Device,
    core: Core,
    gate: Option<Gate>,
    draws: Draws,
    extra_ns: u64,
    delayed: BinaryHeap<Reverse<(u64, u64)>>,
}

impl Running {
    pub(super) fn new(device: Device, seed: u64) -> Self {
        let core = match device.model {
            Model::Disk { .. } | Model::Stick { .. } => {
                Core::Serial { queue: VecDeque::new(), active: None, head: 0, open: Vec::new() }
            }
            Model::Flash { units, .. } => Core::Parallel {
                free: vec![0; units.max(1) as usize],
                bus: 0,
                command: 0,
                done: BinaryHeap::new(),
            },
            Model::Network { servers, .. } => Core::Servers {
                free: vec![Reverse(0); servers.max(1) as usize].into(),
                bus: 0,
                done: BinaryHeap::new(),
            },
        };
        let mut running = Self {
            device,
            core,
            gate: None,
            draws: Draws::new(seed, 77),
            extra_ns: 0,
            delayed: BinaryHeap::new(),
        };
        if let Some(cap) = device.cap {
            running.cap(0, cap);
        }
        running
    }

    /// Sets the cap from `now` on; the bucket is full at the start and empty after a change.
    pub(super) fn cap(&mut self, now: u64, cap: Cap) {
        let queue = self.gate.take().map(|gate| gate.queue).unwrap_or_default();
        let full = if now == 0 { cap.burst_s } else { 0.0 };
        let tokens = [cap.requests_per_s * full, cap.bytes_per_s * full].map(|t| t.max(1.0));
        self.gate = Some(Gate { cap, queue, tokens, filled: now });
    }

    /// Adds `extra_ns` to each completion from now on.
    pub(super) fn slower(&mut self, extra_ns: u64) {
        self.extra_ns = extra_ns;
    }

    /// Serves nothing for `ns` from now on, and then goes on where it was.
    pub(super) fn stall(&mut self, now: u64, ns: u64) {
        let postpone = |events: &mut BinaryHeap<Reverse<(u64, u64)>>| {
            *events = events.drain().map(|Reverse((end, id))| Reverse((end + ns, id))).collect();
        };
        match &mut self.core {
            Core::Serial { active, .. } => {
                *active = active.map(|(end, id)| (end + ns, id));
            }
            Core::Parallel { free, bus, command, done } => {
                for at in free.iter_mut().chain([bus, command]) {
                    *at = now.max(*at) + ns;
                }
                postpone(done);
            }
            Core::Servers { free, bus, done } => {
                *free = free.drain().map(|Reverse(at)| Reverse(now.max(at) + ns)).collect();
                *bus = now.max(*bus) + ns;
                postpone(done);
            }
        }
        if let Some(gate) = &mut self.gate {
            gate.fill(now);
            gate.filled = now + ns;
        }
        postpone(&mut self.delayed);
    }

    pub(super) fn submit(&mut self, now: u64, request: Request) {
        match &mut self.gate {
            Some(gate) => gate.queue.push_back(request),
            None => self.start(now, request),
        }
    }

    /// Returns the time of the next internal event.
    pub(super) fn next(&self) -> u64 {
        let gate = self.gate.as_ref().and_then(Gate::release);
        let core = match &self.core {
            Core::Serial { active, .. } => active.map(|(end, _)| end),
            Core::Parallel { done, .. } | Core::Servers { done, .. } => {
                done.peek().map(|Reverse((end, _))| *end)
            }
        };
        let late = self.delayed.peek().map(|Reverse((end, _))| *end);
        [gate, core, late].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Handles all events up to `now` and appends the completed requests to `out`.
    pub(super) fn advance(&mut self, now: u64, out: &mut Vec<u64>) {
        while let Some(gate) = &mut self.gate {
            gate.fill(now);
            if gate.release().is_none_or(|at| at > now) {
                break;
            }
            let Some(request) = gate.queue.pop_front() else { break };
            gate.tokens[0] -= 1.0;
            gate.tokens[1] -= request.bytes as f64;
            self.start(now, request);
        }
        let first = out.len();
        let ended = match &mut self.core {
            Core::Parallel { done, .. } | Core::Servers { done, .. } => {
                while let Some(Reverse((end, id))) = done.peek().copied()
                    && end <= now
                {
                    done.pop();
                    out.push(id);
                }
                false
            }
            Core::Serial { active, .. } => match *active {
                Some((end, id)) if end <= now => {
                    *active = None;
                    out.push(id);
                    true
                }
                _ => false,
            },
        };
        if ended {
            self.serve(now);
        }
        if self.extra_ns > 0 {
            for id in out.drain(first..) {
                self.delayed.push(Reverse((now + self.extra_ns, id)));
            }
        }
        while let Some(Reverse((end, id))) = self.delayed.peek().copied()
            && end <= now
        {
            self.delayed.pop();
            out.push(id);
        }
    }

    fn start(&mut self, now: u64, request: Request) {
        let vary = (self.device.jitter * self.draws.normal(request.id)).exp();
        let (device, draws) = (self.device.model, self.draws);
        match (&mut self.core, device) {
            (Core::Serial { queue, active, .. }, _) => {
                queue.push_back(request);
                if active.is_none() {
                    self.serve(now);
                }
            }
            (
                Core::Parallel { free, bus, command, done },
                Model::Flash { piece_ns, command_ns, firmware_ns, bytes_per_s, .. },
            ) => {
                *command = now.max(*command) + command_ns;
                let pieces = request.bytes.div_ceil(PIECE).max(1);
                let first = draws.bits(request.at / PIECE);
                let piece = (piece_ns as f64 * vary) as u64;
                let mut read = 0;
                for i in 0..pieces {
                    let unit = (first.wrapping_add(i) % free.len() as u64) as usize;
                    free[unit] = free[unit].max(*command) + piece;
                    read = read.max(free[unit]);
                }
                *bus = read.max(*bus) + (request.bytes as f64 / bytes_per_s * 1e9) as u64;
                done.push(Reverse((*bus + firmware_ns, request.id)));
            }
            (
                Core::Servers { free, bus, done },
                Model::Network { latency_ns, service_ns, bytes_per_s, .. },
            ) => {
                let Reverse(idle) = free.pop().expect("at least one server");
                let arrives = now + (latency_ns as f64 * vary / 2.0) as u64;
                let served = idle.max(arrives) + service_ns;
                free.push(Reverse(served));
                *bus = served.max(*bus) + (request.bytes as f64 / bytes_per_s * 1e9) as u64;
                done.push(Reverse((*bus + (latency_ns as f64 * vary / 2.0) as u64, request.id)));
            }
            _ => unreachable!("the core follows from the model"),
        }
    }

    /// Starts the next request of a serial device.
    fn serve(&mut self, now: u64) {
        let (device, jitter, draws) = (self.device.model, self.device.jitter, self.draws);
        let Core::Serial { queue, active, head, open } = &mut self.core else { return };
        let choice = match device {
            Model::Disk { .. } => (0..queue.len().min(DRIVE_QUEUE))
                .map(|i| (rank(&device, now, *head, queue[i].at), i))
                .min()
                .map(|(_, i)| i),
            _ => (!queue.is_empty()).then_some(0),
        };
        let Some(request) = choice.and_then(|i| queue.remove(i)) else { return };
        let vary = (jitter * draws.normal(request.id)).exp();
        let ns = match device {
            Model::Disk { bytes_per_s, .. } => {
                let position = position_ns(&device, now, *head, request.at);
                position as f64 + request.bytes as f64 / bytes_per_s * 1e9 * vary
            }
            Model::Stick { hit_ns, miss_ns, bytes_per_s } => {
                let region = request.at / REGION;
                let found = open.iter().position(|r| *r == region);
                let time = if found.is_some() { hit_ns } else { miss_ns };
                if let Some(i) = found {
                    open.remove(i);
                } else if open.len() == REGIONS {
                    open.remove(0);
                }
                open.push(region);
                time as f64 * vary + request.bytes as f64 / bytes_per_s * 1e9
            }
            _ => unreachable!("only disks and sticks are serial"),
        };
        *head = request.at + request.bytes;
        *active = Some((now + ns as u64, request.id));
    }
}

/// Returns the rank of a request at `to` in the queue of a disk, the first being the least: requests that
/// reading on reaches soon, then the others by the time until the head is there.
fn rank(model: &Model, now: u64, head: u64, to: u64) -> (bool, u64) {
    match to.checked_sub(head).filter(|ahead| *ahead < READ_THROUGH) {
        Some(ahead) => (false, ahead),
        None => (true, position_ns(model, now, head, to)),
    }
}

/// Returns the time until the head of a disk is at `to`.
fn position_ns(model: &Model, now: u64, head: u64, to: u64) -> u64 {
    let Model::Disk { near_ns, far_ns, seek_ns, rotation_ns, bytes_per_s, bytes } = *model else {
        return 0;
    };
    let distance = head.abs_diff(to);
    let seek = if distance < NEAR {
        near_ns
    } else {
        far_ns + (seek_ns as f64 * (distance as f64 / bytes as f64).sqrt()) as u64
    };
    let angle = (to % TRACK) * rotation_ns / TRACK;
    let at = (now + seek) % rotation_ns;
    let sought = seek + (angle + rotation_ns - at) % rotation_ns;
    match to >= head {
        true => sought.min((distance as f64 / bytes_per_s * 1e9) as u64),
        false => sought,
    }
}
