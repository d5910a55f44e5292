//! What a thread of a load makes of the answers: whether they can be right, what they count as, and
//! what the books and the history have to know of them.

use super::Worker;
use crate::connection::Flight;
use crate::draw::Op;
use crate::history::{Event, Outcome};
use crate::judge::Verdict;
use crate::speech::{Asked, Reply, Said};
use crate::tally::Times;
use ioloom_exchange::Order;
use ioloom_sys::clock;
use std::sync::atomic::Ordering::Relaxed;

impl Worker<'_> {
    pub(super) fn unasked(&mut self, at: usize, reply: &Reply) {
        if reply.said == Said::Busy {
            self.tally.outcomes.turned_away += 1;
            self.connections[at].was_busy = true;
        } else {
            self.tally.wrong(format!("{:?} was said without being asked", reply.said));
        }
    }

    pub(super) fn answered(&mut self, at: usize, flight: Flight, reply: Reply, now_ns: u64) {
        let Asked::Op(op) = flight.asked else {
            match reply.said {
                Said::Hello => {}
                Said::Busy => self.unasked(at, &reply),
                other => self.tally.wrong(format!("a greeting was answered with {other:?}")),
            }
            return;
        };
        let verdict = self.shared.known.judge(op, &reply.said);
        let verdict = match reply.id {
            Some(id) if id != flight.id => {
                Verdict::Wrong(format!("request {} was answered as {id}", flight.id))
            }
            _ => verdict,
        };
        self.keep(at, flight, Some(now_ns), &verdict, &reply.said);
        let outcomes = &mut self.tally.outcomes;
        self.connections[at].was_busy = verdict == Verdict::TurnedAway;
        match verdict {
            Verdict::Traded => {
                outcomes.traded += 1;
                self.traded(at, op, &reply.said);
            }
            Verdict::Refused => outcomes.refused += 1,
            Verdict::Listed => outcomes.listed += 1,
            Verdict::TurnedAway => {
                outcomes.turned_away += 1;
                return self.free_again(at, 1, now_ns);
            }
            Verdict::Unsure => {
                outcomes.unanswered += 1;
                self.unsure(op);
                return self.free_again(at, 1, now_ns);
            }
            Verdict::Wrong(sample) => self.tally.wrong(sample),
        }
        self.shared.failures.store(0, Relaxed);
        self.shared.answered.fetch_add(1, Relaxed);
        if flight.due_ns >= self.count_from_ns {
            self.tally.outcomes.answered += 1;
            self.tally.outcomes.answered_in_time += u64::from(now_ns <= self.end_ns);
            let second = (flight.due_ns - self.start_ns) / 1_000_000_000;
            let times = Times { due_ns: flight.due_ns, sent_ns: flight.sent_ns, now_ns };
            self.tally.latency(op, times, second as usize);
        }
        self.go_on(at, now_ns);
    }

    fn traded(&mut self, at: usize, op: Op, said: &Said) {
        let Op::Trade(order) = op else { return };
        if let Some(place) = self.place(&order) {
            self.tally.holdings.traded(place, order.side(), order.count());
        }
        if let Said::Done { seq: Some(seq), .. } = said {
            let connection = &mut self.connections[at];
            if *seq <= connection.seq {
                self.tally.wrong(format!("number {seq} of the log came after {}", connection.seq));
            } else {
                connection.seq = *seq;
            }
        }
    }

    fn place(&self, order: &Order) -> Option<usize> {
        self.shared.known.place(order.stock())
    }

    /// Notes that an order may have been carried out or not.
    pub(super) fn unsure(&mut self, op: Op) {
        if let Op::Trade(order) = op
            && let Some(place) = self.place(&order)
        {
            self.tally.holdings.unknown(place, order.side(), order.count());
        }
    }

    /// Keeps a request for the check of the history; one without an answer counts with the time that
    /// it has waited, so that a server is not the faster for those that it leaves without one.
    pub(super) fn keep(
        &mut self,
        at: usize,
        flight: Flight,
        ret_ns: Option<u64>,
        verdict: &Verdict,
        said: &Said,
    ) {
        let Asked::Op(op) = flight.asked else { return };
        if ret_ns.is_none() && flight.due_ns >= self.count_from_ns {
            self.tally.waited(op, clock::monotonic_ns().saturating_sub(flight.due_ns));
        }
        if !self.plan.keep_history || *verdict == Verdict::TurnedAway {
            return;
        }
        let outcome = match (ret_ns, said) {
            (None, _) => Outcome::Unknown,
            (_, Said::Done { left, .. }) => Outcome::Done(*left),
            (_, Said::NotEnough) => Outcome::NotEnough,
            (_, Said::TooMany) => Outcome::TooMany,
            (_, Said::Shown { lines, .. }) => {
                Outcome::Shown(lines.iter().map(|line| line.left).collect())
            }
            // A wrong answer is counted as such; what it did is not known.
            _ => Outcome::Unknown,
        };
        let ret_ns = ret_ns.filter(|_| outcome != Outcome::Unknown);
        let client = self.connections[at].number as u32;
        self.tally.history.push(Event { client, op, call_ns: flight.sent_ns, ret_ns, outcome });
    }
}
