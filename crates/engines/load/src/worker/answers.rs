//! Processes answers: checks them, classifies them, and updates the stock balance and the history.

use super::Worker;
use crate::client_codec::{Expected, Reply, Response};
use crate::connection::InFlight;
use crate::draw::Op;
use crate::history::{Event, Outcome};
use crate::judge::Verdict;
use crate::tally::Times;
use ioloom_exchange::Order;
use ioloom_sys::clock;
use std::sync::atomic::Ordering::Relaxed;

impl Worker<'_> {
    pub(super) fn unrequested(&mut self, at: usize, reply: &Reply) {
        if reply.response == Response::Busy {
            self.tally.outcomes.turned_away += 1;
            self.connections[at].was_busy = true;
        } else {
            self.tally.wrong(format!("{} was sent without a request", reply.response));
        }
    }

    pub(super) fn answered(&mut self, at: usize, flight: InFlight, reply: Reply, now_ns: u64) {
        let Expected::Op(op) = flight.asked else {
            match reply.response {
                Response::Hello | Response::Plain(_) => {}
                Response::Busy => self.unrequested(at, &reply),
                other => self.tally.wrong(format!("a greeting was answered with {other}")),
            }
            return;
        };
        let latest = &mut self.connections[at].seq;
        let verdict = self.shared.known.judge_reply(op, flight.id, &reply, latest);
        self.keep(at, flight, Some(now_ns), &verdict, &reply.response);
        let outcomes = &mut self.tally.outcomes;
        self.connections[at].was_busy = verdict == Verdict::TurnedAway;
        match verdict {
            Verdict::Traded => {
                outcomes.traded += 1;
                self.traded(op);
            }
            Verdict::Refused => outcomes.refused += 1,
            Verdict::Listed => outcomes.listed += 1,
            Verdict::TurnedAway => {
                outcomes.turned_away += 1;
                self.failed(&flight);
                return self.end_session(at, now_ns);
            }
            Verdict::Unsure => {
                self.unanswered(&flight);
                self.record_unsure(op);
                return self.end_session(at, now_ns);
            }
            Verdict::Wrong(sample) => {
                self.tally.wrong(sample);
                self.failed(&flight);
                self.record_unsure(op);
                self.served(at);
                return self.next_request(at, now_ns);
            }
        }
        self.served(at);
        self.shared.answered.fetch_add(1, Relaxed);
        if flight.due_ns >= self.count_from_ns {
            self.tally.outcomes.answered += 1;
            self.tally.outcomes.answered_in_time += u64::from(now_ns <= self.end_ns);
            let second = (flight.due_ns - self.start_ns) / 1_000_000_000;
            let times = Times { due_ns: flight.due_ns, sent_ns: flight.sent_ns, now_ns };
            self.tally.latency(op, times, second as usize);
        }
        self.next_request(at, now_ns);
    }

    /// Records that the server is alive.
    fn served(&mut self, at: usize) {
        self.connections[at].was_served = true;
        self.shared.served();
    }

    /// Counts a request without a correct answer, unless it was due in the warm-up.
    pub(super) fn failed(&mut self, flight: &InFlight) {
        self.tally.outcomes.failed += u64::from(flight.due_ns >= self.count_from_ns);
    }

    pub(super) fn unanswered(&mut self, flight: &InFlight) {
        let is_counted = flight.due_ns >= self.count_from_ns;
        self.tally.outcomes.unanswered += 1;
        self.tally.outcomes.unanswered_counted += u64::from(is_counted);
        self.failed(flight);
    }

    fn traded(&mut self, op: Op) {
        let Op::Trade(order) = op else { return };
        if let Some(place) = self.place(&order) {
            self.tally.holdings.traded(place, order.side(), order.count());
        }
    }

    fn place(&self, order: &Order) -> Option<usize> {
        self.shared.known.place(order.stock())
    }

    /// Records that an order may or may not have been executed.
    pub(super) fn record_unsure(&mut self, op: Op) {
        if let Op::Trade(order) = op
            && let Some(place) = self.place(&order)
        {
            self.tally.holdings.unknown(place, order.side(), order.count());
        }
    }

    /// Records a request for the history check. A request without an answer counts with its waiting
    /// time, so a server does not appear faster by not answering.
    pub(super) fn keep(
        &mut self,
        at: usize,
        flight: InFlight,
        ret_ns: Option<u64>,
        verdict: &Verdict,
        response: &Response,
    ) {
        let Expected::Op(op) = flight.asked else { return };
        if ret_ns.is_none() && flight.due_ns >= self.count_from_ns {
            self.tally.waited(op, clock::monotonic_ns().saturating_sub(flight.due_ns));
        }
        if !self.plan.keep_history || *verdict == Verdict::TurnedAway {
            return;
        }
        let is_wrong = matches!(verdict, Verdict::Wrong(_));
        let outcome = match (ret_ns.filter(|_| !is_wrong), response) {
            // The effect of an order with a wrong answer is unknown.
            (None, _) => Outcome::Unknown,
            (_, Response::Done { left, .. }) => Outcome::Done(*left),
            (_, Response::NotEnough) => Outcome::NotEnough,
            (_, Response::TooMany) => Outcome::TooMany,
            (_, Response::Shown { lines, .. }) => {
                Outcome::Shown(lines.iter().map(|line| line.left).collect())
            }
            _ => Outcome::Unknown,
        };
        let ret_ns = ret_ns.filter(|_| outcome != Outcome::Unknown);
        let client = self.connections[at].number as u32;
        self.tally.history.push(Event { client, op, call_ns: flight.sent_ns, ret_ns, outcome });
    }
}
