//! Whether a history can be explained by orders that happened one after the other.
//!
//! A server is linearizable if every request seems to happen at one moment between its call and its
//! answer (Herlihy and Wing, 1990). The search here goes through the calls and answers by their time
//! and holds every state that the stocks may be in, with the open requests that have happened in it
//! already. A request must have happened when its answer is there; what else must have happened before
//! it is tried then and not earlier (Lowe, 2017), so states stay few: orders that were carried out
//! commute, and equal states are one.
//!
//! - Without a list stocks do not touch each other, and each is checked by itself; that is sound
//!   because the property is local.
//! - A list of all stocks is one request on the whole state ([`Lists::Atomic`]). The assignment asks
//!   for less: each stock of a list at some moment of its own ([`Lists::PerStock`]); then a list falls
//!   apart into a reading of each stock, and stocks are again checked by themselves.
//! - A request without an answer may happen at any time after its call, or never.
//!
//! Cost: exponential in the requests that are open at the same time in the worst case, so the states
//! are bounded, and beyond the bound the verdict is that there is none.

use crate::draw::Op;
use crate::history::{Event, History, Outcome};
use ioloom_exchange::{Refused, Side};
use std::collections::{BTreeMap, HashSet};

/// States that are held at the same time, with what is open in them.
pub const STATES_MAX: usize = 200_000;
/// Requests that may be open at the same time: one bit each.
const OPEN_MAX: usize = 64;

/// What a list promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// All stocks at one moment.
    Atomic,
    /// Each stock at a moment of its own.
    PerStock,
}

/// What the search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is an order that explains every answer.
    Explained,
    /// No order explains this answer and those before it.
    Violated {
        /// The request, in words.
        request: String,
        /// What is left of the stocks in some of the states that it could have met.
        states: Vec<Vec<u32>>,
    },
    /// There were too many possibilities.
    Undecided {
        /// Which bound was met.
        reason: String,
    },
}

/// Checks a history; at most `states_max` states are held at a time.
pub fn check(history: &History, lists: Lists, states_max: usize) -> Verdict {
    let places: BTreeMap<u32, usize> =
        history.initial.iter().enumerate().map(|(at, line)| (line.id, at)).collect();
    let left: Vec<u32> = history.initial.iter().map(|line| line.left).collect();
    let mut all: Vec<Step> = Vec::new();
    for event in &history.events {
        match step(event, &places) {
            Some(step) => all.push(step),
            // A list without an answer changes nothing and says nothing.
            None if event.outcome == Outcome::Unknown => {}
            None => {
                return Verdict::Violated { request: format!("{event:?}"), states: vec![left] };
            }
        }
    }
    let is_list = |step: &Step| matches!(step.what, What::List(_));
    if lists == Lists::Atomic && all.iter().any(is_list) {
        return search(&left, &all, states_max);
    }
    for (at, left) in left.iter().enumerate() {
        let of_this: Vec<Step> = all.iter().filter_map(|step| step.of(at)).collect();
        match search(&[*left], &of_this, states_max) {
            Verdict::Explained => {}
            other => return other,
        }
    }
    Verdict::Explained
}

/// A request as the search sees it.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    call_ns: u64,
    ret_ns: Option<u64>,
    what: What,
    words: String,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// An order on the stock at a place, with what came of it.
    Trade { place: usize, order: ioloom_exchange::Order, outcome: Outcome },
    /// Everything, or the one stock of a search by itself.
    List(Vec<u32>),
}

fn step(event: &Event, places: &BTreeMap<u32, usize>) -> Option<Step> {
    let what = match (&event.op, &event.outcome) {
        (Op::Show, Outcome::Shown(left)) if left.len() == places.len() => What::List(left.clone()),
        (Op::Show, _) | (Op::Trade(_), Outcome::Shown(_)) => return None,
        (Op::Trade(order), outcome) => {
            let (order, outcome) = (*order, outcome.clone());
            What::Trade { place: *places.get(&order.stock())?, order, outcome }
        }
    };
    let words = match event.op {
        Op::Show => format!("client {}: show → {:?}", event.client, event.outcome),
        Op::Trade(order) => {
            let word = if order.side() == Side::Buy { "buy" } else { "sell" };
            let (stock, count) = (order.stock(), order.count());
            format!("client {}: {word} {stock} {count} → {:?}", event.client, event.outcome)
        }
    };
    Some(Step { call_ns: event.call_ns, ret_ns: event.ret_ns, what, words })
}

impl Step {
    /// Its part that touches the stock at this place, as a step of that stock alone.
    fn of(&self, at: usize) -> Option<Self> {
        let what = match &self.what {
            What::Trade { place, order, outcome } if *place == at => {
                What::Trade { place: 0, order: *order, outcome: outcome.clone() }
            }
            What::Trade { .. } => return None,
            What::List(left) => What::List(vec![left[at]]),
        };
        Some(Self { what, ..self.clone() })
    }

    /// The state after it, if it can happen in this one with its answer.
    fn after(&self, left: &[u32]) -> Option<Vec<u32>> {
        let (place, order, outcome) = match &self.what {
            What::List(shown) => return (shown == left).then(|| left.to_vec()),
            What::Trade { place, order, outcome } => (*place, order, outcome),
        };
        match (order.left_after(left[place]), outcome) {
            (Ok(now), Outcome::Done(told)) if told.is_none_or(|told| told == now) => {
                Some(with(left, place, now))
            }
            // Without an answer it may have been carried out; if it was refused, nothing happened.
            (Ok(now), Outcome::Unknown) => Some(with(left, place, now)),
            (Err(Refused::NotEnough), Outcome::NotEnough)
            | (Err(Refused::TooMany), Outcome::TooMany) => Some(left.to_vec()),
            _ => None,
        }
    }
}

fn with(left: &[u32], place: usize, now: u32) -> Vec<u32> {
    let mut left = left.to_vec();
    left[place] = now;
    left
}

/// A state that the stocks may be in, and the open requests that have happened in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    left: Vec<u32>,
    happened: u64,
}

fn search(left: &[u32], steps: &[Step], states_max: usize) -> Verdict {
    // Calls come before answers of the same moment: whoever cannot tell must assume both orders.
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * steps.len());
    for (at, step) in steps.iter().enumerate() {
        moments.push((step.call_ns, false, at));
        moments.extend(step.ret_ns.map(|ret_ns| (ret_ns, true, at)));
    }
    moments.sort_unstable();
    let mut open: [Option<usize>; OPEN_MAX] = [None; OPEN_MAX];
    let mut states = HashSet::from([State { left: left.to_vec(), happened: 0 }]);
    for (_, is_answer, at) in moments {
        if !is_answer {
            let Some(bit) = open.iter().position(Option::is_none) else {
                let reason = format!("more than {OPEN_MAX} requests were open at the same time");
                return Verdict::Undecided { reason };
            };
            open[bit] = Some(at);
            continue;
        }
        let bit = open.iter().position(|open| *open == Some(at)).unwrap_or_default();
        let Some(next) = answered(&states, steps, &open, bit, states_max) else {
            let reason = format!("more than {states_max} states were possible");
            return Verdict::Undecided { reason };
        };
        if next.is_empty() {
            let states = states.iter().take(8).map(|state| state.left.clone()).collect();
            return Verdict::Violated { request: steps[at].words.clone(), states };
        }
        open[bit] = None;
        states = next;
    }
    Verdict::Explained
}

/// The states after the answer of the open request `bit`; `None` if there are too many.
fn answered(
    states: &HashSet<State>,
    steps: &[Step],
    open: &[Option<usize>; OPEN_MAX],
    bit: usize,
    states_max: usize,
) -> Option<HashSet<State>> {
    let mut next = HashSet::new();
    let mut seen: HashSet<State> = states.clone();
    let mut rest: Vec<State> = states.iter().cloned().collect();
    while let Some(state) = rest.pop() {
        if state.happened >> bit & 1 == 1 {
            // Its bit is free again.
            next.insert(State { happened: state.happened & !(1 << bit), ..state });
            continue;
        }
        for (other, at) in open.iter().enumerate() {
            let Some(at) = at.filter(|_| state.happened >> other & 1 == 0) else { continue };
            let Some(left) = steps[at].after(&state.left) else { continue };
            let after = State { left, happened: state.happened | 1 << other };
            if seen.insert(after.clone()) {
                rest.push(after);
            }
        }
        if seen.len() > states_max {
            return None;
        }
    }
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::{Line, Order};
    use proptest::prelude::*;

    fn trade(side: Side, stock: u32, count: u32) -> Op {
        Op::Trade(Order::new(side, stock, count).unwrap())
    }

    fn history(left: &[u32], events: Vec<Event>) -> History {
        let line = |(at, left): (usize, &u32)| Line { id: at as u32 + 1, left: *left, price: 1 };
        History { initial: left.iter().enumerate().map(line).collect(), events }
    }

    fn event(client: u32, times: (u64, u64), op: Op, outcome: Outcome) -> Event {
        Event { client, op, call_ns: times.0, ret_ns: Some(times.1), outcome }
    }

    fn explained(history: &History, lists: Lists) -> bool {
        match check(history, lists, STATES_MAX) {
            Verdict::Explained => true,
            Verdict::Violated { .. } => false,
            Verdict::Undecided { reason } => panic!("{reason}"),
        }
    }

    #[test]
    fn answers_must_fit_the_times_at_which_they_came() {
        let buy = |times, outcome| event(0, times, trade(Side::Buy, 1, 1), outcome);
        let two = |first: (u64, u64), second: (u64, u64)| {
            let events = vec![buy(first, Outcome::NotEnough), buy(second, Outcome::Done(None))];
            explained(&history(&[1], events), Lists::Atomic)
        };
        // One piece: refused first and carried out afterwards cannot be, at the same time it can.
        assert!(!two((1, 2), (3, 4)));
        assert!(two((1, 5), (3, 4)));
        assert!(two((3, 4), (1, 2)));
        // Two moments that cannot be told apart are at the same time.
        assert!(two((1, 3), (3, 4)));
    }

    #[test]
    fn what_was_left_must_be_told_rightly() {
        let buys = |told: [u32; 2]| {
            let done = |at: usize| Outcome::Done(Some(told[at]));
            let op = trade(Side::Buy, 1, 1);
            let events = vec![event(0, (1, 9), op, done(0)), event(1, (2, 8), op, done(1))];
            explained(&history(&[5], events), Lists::Atomic)
        };
        assert!(buys([4, 3]) && buys([3, 4]));
        assert!(!buys([4, 4]) && !buys([3, 3]));
    }

    #[test]
    fn an_order_without_an_answer_may_have_happened_late_or_never() {
        let lost = Event {
            client: 0,
            op: trade(Side::Buy, 1, 5),
            call_ns: 1,
            ret_ns: None,
            outcome: Outcome::Unknown,
        };
        let show = |times, left: u32| event(1, times, Op::Show, Outcome::Shown(vec![left]));
        let seen = |lefts: &[u32]| {
            let mut events = vec![lost.clone()];
            events.extend(
                lefts
                    .iter()
                    .enumerate()
                    .map(|(i, left)| show((i as u64 * 10 + 2, i as u64 * 10 + 3), *left)),
            );
            explained(&history(&[7], events), Lists::Atomic)
        };
        assert!(seen(&[7, 7]) && seen(&[7, 2]) && seen(&[2, 2]));
        assert!(!seen(&[2, 7]) && !seen(&[6]));
    }

    /// While a list is made stock by stock, one client moves a piece from the first to the second.
    fn moved_during_a_list() -> History {
        history(
            &[10, 10],
            vec![
                event(0, (1, 100), Op::Show, Outcome::Shown(vec![10, 11])),
                event(1, (10, 20), trade(Side::Buy, 1, 1), Outcome::Done(Some(9))),
                event(1, (30, 40), trade(Side::Sell, 2, 1), Outcome::Done(Some(11))),
            ],
        )
    }

    #[test]
    fn a_list_stock_by_stock_is_found_to_be_none_of_one_moment() {
        let history = moved_during_a_list();
        assert!(explained(&history, Lists::PerStock));
        let Verdict::Violated { request, .. } = check(&history, Lists::Atomic, STATES_MAX) else {
            panic!("it was explained");
        };
        assert!(request.contains("show"), "{request}");
    }

    #[test]
    fn bounds_are_told() {
        let op = trade(Side::Sell, 1, 1);
        let open = |n: u32| {
            (0..n)
                .map(|client| Event {
                    client,
                    op: trade(Side::Sell, 1, 1 << (client % 20)),
                    call_ns: 1,
                    ret_ns: None,
                    outcome: Outcome::Unknown,
                })
                .collect::<Vec<_>>()
        };
        let mut many = open(15);
        many.push(event(99, (2, 3), op, Outcome::Done(Some(1))));
        let undecided = |events| {
            matches!(check(&history(&[7], events), Lists::Atomic, 50), Verdict::Undecided { .. })
        };
        assert!(undecided(many));
        assert!(undecided(open(65)));
    }

    /// Tries every order of the requests, and every choice of those without an answer.
    fn by_hand(events: &[Event], done: u32, left: &[u32]) -> bool {
        let is_open = |at: usize| done >> at & 1 == 0;
        let must = |event: &Event| event.ret_ns.is_some();
        if (0..events.len()).all(|at| !is_open(at) || !must(&events[at])) {
            return true;
        }
        let earliest =
            (0..events.len()).filter(|at| is_open(*at)).filter_map(|at| events[at].ret_ns).min();
        (0..events.len()).filter(|at| is_open(*at)).any(|at| {
            let event = &events[at];
            if earliest.is_some_and(|earliest| event.call_ns > earliest) {
                return false;
            }
            let mut next = left.to_vec();
            let fits = match (event.op, &event.outcome) {
                (Op::Show, Outcome::Shown(shown)) => shown == left,
                (Op::Show, _) => true,
                (Op::Trade(order), outcome) => {
                    let place = order.stock() as usize - 1;
                    let count = i64::from(order.count());
                    let count = if order.side() == Side::Buy { -count } else { count };
                    let now = i64::from(left[place]) + count;
                    next[place] = u32::try_from(now).unwrap_or(left[place]);
                    match outcome {
                        Outcome::Done(told) => now >= 0 && told.is_none_or(|t| i64::from(t) == now),
                        Outcome::NotEnough => now < 0,
                        Outcome::Unknown => now >= 0,
                        _ => false,
                    }
                }
            };
            fits && by_hand(events, done | 1 << at, &next)
        })
    }

    fn any_event() -> impl Strategy<Value = Event> {
        let op = prop_oneof![
            Just(Op::Show),
            (1u32..=2, 1u32..=2, any::<bool>()).prop_map(|(stock, count, buy)| {
                trade(if buy { Side::Buy } else { Side::Sell }, stock, count)
            }),
        ];
        (op, 0u64..12, 1u64..8, 0u32..4, 0u32..4, 0u8..5).prop_map(
            |(op, call_ns, long, a, b, how)| {
                let outcome = match (op, how) {
                    (Op::Show, _) => Outcome::Shown(vec![a, b]),
                    (_, 0) => Outcome::Unknown,
                    (_, 1) => Outcome::NotEnough,
                    (_, 2) => Outcome::Done(Some(a)),
                    _ => Outcome::Done(None),
                };
                let ret_ns = (outcome != Outcome::Unknown).then_some(call_ns + long);
                Event { client: 0, op, call_ns, ret_ns, outcome }
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn the_search_agrees_with_every_order_tried(
            left in prop::collection::vec(0u32..4, 2),
            events in prop::collection::vec(any_event(), 1..6),
        ) {
            let tried = by_hand(&events, 0, &left);
            prop_assert_eq!(explained(&history(&left, events), Lists::Atomic), tried);
        }
    }
}
