//! Linearizability checking of histories.
//!
//! A server is linearizable if every request appears to take effect at one moment between its call
//! and its answer (Herlihy and Wing, 1990). The search processes calls and answers in order of time
//! and keeps every possible state of the stocks, together with the open requests that have taken
//! effect in it. When the answer to a request arrives, that request must have taken effect; only
//! then are other requests tried that must precede it (Lowe, 2017). This limits the number of
//! states: executed orders commute, and equal states are merged. An order on another stock than the
//! answered one is tried only if an open list shows another number of shares of its stock: it
//! commutes with all other requests and can take effect later.
//!
//! - Without lists, stocks are independent and each is checked separately; this is sound because
//!   linearizability is local.
//! - A list of all stocks is a single request on the whole state ([`Lists::Atomic`]). The
//!   assignment only requires that each stock in a list is consistent with some moment
//!   ([`Lists::PerStock`]). A list is then split into one read per stock, and stocks are again
//!   checked separately.
//! - A request without an answer may take effect at any time after its call, or never.
//!
//! Cost: exponential in the number of concurrent requests in the worst case. The number of states
//! is therefore limited; if the limit is exceeded, the check is undecided.

use crate::draw::Op;
use crate::history::{Event, History, Outcome};
use ioloom_exchange::Refused;
use std::collections::{BTreeMap, HashSet};

/// Maximum number of states stored at the same time.
pub const STATES_MAX: usize = 200_000;
/// Maximum number of concurrent requests; each one takes one bit.
const OPEN_MAX: usize = 64;

/// The consistency of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lists {
    /// All stocks at the same moment.
    Atomic,
    /// Each stock at some moment.
    PerStock,
}

/// Result of the search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// At least one order of execution explains every answer.
    Explained,
    /// No order of execution explains this answer and the previous ones.
    Violated {
        /// Description of the request.
        request: String,
        /// Remaining shares of the stocks in some of the possible states.
        states: Vec<Vec<u32>>,
    },
    /// There were too many possible states.
    Undecided {
        /// Which limit was reached.
        reason: String,
    },
}

/// Checks a history with at most `states_max` states at a time.
pub fn check(history: &History, lists: Lists, states_max: usize) -> Verdict {
    let places: BTreeMap<u32, usize> =
        history.initial.iter().enumerate().map(|(at, line)| (line.id, at)).collect();
    let left: Vec<u32> = history.initial.iter().map(|line| line.left).collect();
    let mut all: Vec<Step> = Vec::new();
    for event in &history.events {
        match step(event, &places) {
            Some(step) => all.push(step),
            // A list without an answer has no effect and reveals nothing.
            None if event.outcome == Outcome::Unknown => {}
            None => {
                return Verdict::Violated { request: described(event), states: vec![left] };
            }
        }
    }
    let is_list = |step: &Step| matches!(step.what, What::List(_));
    let mut undecided = None;
    if lists == Lists::Atomic && all.iter().any(is_list) {
        match search(&left, &all, states_max) {
            // A stock that cannot be explained alone cannot be explained with the others.
            verdict @ Verdict::Undecided { .. } => undecided = Some(verdict),
            verdict => return verdict,
        }
    }
    for (at, left) in left.iter().enumerate() {
        let of_this: Vec<Step> = all.iter().filter_map(|step| step.of(at)).collect();
        match search(&[*left], &of_this, states_max) {
            Verdict::Explained => {}
            // Another stock may prove a violation.
            verdict @ Verdict::Undecided { .. } => {
                undecided.get_or_insert(verdict);
            }
            verdict @ Verdict::Violated { .. } => return verdict,
        }
    }
    undecided.unwrap_or(Verdict::Explained)
}

/// A request as seen by the search.
#[derive(Debug, Clone, PartialEq)]
struct Step {
    call_ns: u64,
    ret_ns: Option<u64>,
    what: What,
    description: String,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// An order on the stock at an index, and its outcome.
    Trade { place: usize, order: ioloom_exchange::Order, outcome: Outcome },
    /// A read of all stocks, or of the single stock in a separate search.
    List(Vec<u32>),
}

impl What {
    /// Returns the contents of a list.
    fn list(&self) -> Option<&Vec<u32>> {
        if let Self::List(left) = self { Some(left) } else { None }
    }

    /// Returns whether a request may have to take effect before the answered one. `lists` are the open
    /// lists that have not taken effect.
    fn may_precede(&self, asked: Option<&Self>, left: &[u32], lists: &[&Vec<u32>]) -> bool {
        let Self::Trade { place, .. } = self else { return true };
        matches!(asked, Some(Self::Trade { place: other, .. }) if other == place)
            || lists.iter().any(|shown| shown[*place] != left[*place])
    }
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
    let description = described(event);
    Some(Step { call_ns: event.call_ns, ret_ns: event.ret_ns, what, description })
}

fn described(event: &Event) -> String {
    format!("client {}: {} → {}", event.client, event.op, event.outcome)
}

impl Step {
    /// Returns the part that concerns the stock at this index, as a step on that stock alone.
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

    /// Returns the state afterwards, if the request can take effect in this state with its answer.
    fn after(&self, left: &[u32]) -> Option<Vec<u32>> {
        let (place, order, outcome) = match &self.what {
            What::List(shown) => return (shown == left).then(|| left.to_vec()),
            What::Trade { place, order, outcome } => (*place, order, outcome),
        };
        match (order.left_after(left[place]), outcome) {
            (Ok(now), Outcome::Done(reported))
                if reported.is_none_or(|reported| reported == now) =>
            {
                Some(with(left, place, now))
            }
            // Without an answer, the order may have been executed; a refusal has no effect.
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

/// A possible state of the stocks, with the open requests that have taken effect in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    left: Vec<u32>,
    happened: u64,
}

fn search(left: &[u32], steps: &[Step], states_max: usize) -> Verdict {
    // Process calls before answers with the same timestamp: if the order is unclear, both orders
    // must be considered.
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
                let reason = format!("more than {OPEN_MAX} requests were concurrent");
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
            return Verdict::Violated { request: steps[at].description.clone(), states };
        }
        open[bit] = None;
        states = next;
    }
    Verdict::Explained
}

/// Returns the states after the answer to open request `bit`, or `None` if there are too many.
fn answered(
    states: &HashSet<State>,
    steps: &[Step],
    open: &[Option<usize>; OPEN_MAX],
    bit: usize,
    states_max: usize,
) -> Option<HashSet<State>> {
    let asked = open[bit].map(|at| &steps[at].what);
    let mut next = HashSet::new();
    let mut seen: HashSet<State> = states.clone();
    let mut rest: Vec<State> = states.iter().cloned().collect();
    while let Some(state) = rest.pop() {
        if state.happened >> bit & 1 == 1 {
            // The bit can be reused.
            next.insert(State { happened: state.happened & !(1 << bit), ..state });
            continue;
        }
        let is_pending = |other: usize| state.happened >> other & 1 == 0;
        let pending = open.iter().enumerate().filter(|(other, _)| is_pending(*other));
        let lists: Vec<&Vec<u32>> =
            pending.filter_map(|(_, at)| steps[(*at)?].what.list()).collect();
        for (other, at) in open.iter().enumerate() {
            let Some(at) = at.filter(|_| is_pending(other)) else { continue };
            if !steps[at].what.may_precede(asked, &state.left, &lists) {
                continue;
            }
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
    use ioloom_exchange::{Line, Order, Side};
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
    fn answers_must_match_their_times() {
        let buy = |times, outcome| event(0, times, trade(Side::Buy, 1, 1), outcome);
        let two = |first: (u64, u64), second: (u64, u64)| {
            let events = vec![buy(first, Outcome::NotEnough), buy(second, Outcome::Done(None))];
            explained(&history(&[1], events), Lists::Atomic)
        };
        // With one share, a refusal followed by an execution is impossible, but both are possible
        // if the requests are concurrent.
        assert!(!two((1, 2), (3, 4)));
        assert!(two((1, 5), (3, 4)));
        assert!(two((3, 4), (1, 2)));
        // Requests with equal times count as concurrent.
        assert!(two((1, 3), (3, 4)));
    }

    #[test]
    fn reported_shares_must_be_right() {
        let buys = |reported: [u32; 2]| {
            let done = |at: usize| Outcome::Done(Some(reported[at]));
            let op = trade(Side::Buy, 1, 1);
            let events = vec![event(0, (1, 9), op, done(0)), event(1, (2, 8), op, done(1))];
            explained(&history(&[5], events), Lists::Atomic)
        };
        assert!(buys([4, 3]) && buys([3, 4]));
        assert!(!buys([4, 4]) && !buys([3, 3]));
    }

    #[test]
    fn orders_without_an_answer_may_take_effect_late_or_never() {
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

    /// A client moves a share from the first stock to the second while a per-stock list is read.
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
    fn per_stock_lists_are_found_not_to_be_atomic() {
        let history = moved_during_a_list();
        assert!(explained(&history, Lists::PerStock));
        let Verdict::Violated { request, .. } = check(&history, Lists::Atomic, STATES_MAX) else {
            panic!("the history must not be explainable");
        };
        assert_eq!(request, "client 0: show → 10, 11 left");
    }

    #[test]
    fn limits_are_reported() {
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
        assert!(undecided(many.clone()));
        assert!(undecided(open(65)));
        // A wrong answer about another stock is a violation all the same.
        many.push(event(98, (2, 3), trade(Side::Sell, 2, 1), Outcome::Done(Some(9))));
        let verdict = |events| check(&history(&[7, 7], events), Lists::Atomic, 50);
        assert!(matches!(verdict(many.clone()), Verdict::Violated { .. }));
        // Also if a list makes all stocks a single search.
        many.push(event(97, (20, 21), Op::Show, Outcome::Shown(vec![8, 7])));
        assert!(matches!(verdict(many), Verdict::Violated { .. }));
    }

    #[test]
    fn orders_on_other_stocks_are_not_tried() {
        let unanswered = |client: u32| {
            let (op, outcome) = (trade(Side::Sell, client + 2, 1), Outcome::Unknown);
            Event { client, op, call_ns: 1, ret_ns: None, outcome }
        };
        let events = |listed: u32| {
            let mut events: Vec<Event> = (0..40).map(unanswered).collect();
            let (op, done) = (trade(Side::Buy, 1, 1), Outcome::Done(Some(4)));
            events.push(event(50, (2, 3), op, done));
            let shown = (0..41).map(|at| if at == 0 { 4 } else { 5 + u32::from(at == listed) });
            events.push(event(51, (4, 5), Op::Show, Outcome::Shown(shown.collect())));
            history(&[5; 41], events)
        };
        // Their number would exceed the limit: each one may have taken effect or not.
        for listed in [0, 7] {
            assert_eq!(check(&events(listed), Lists::Atomic, 50), Verdict::Explained, "{listed}");
        }
    }

    /// Tries every order of requests, and both possibilities for each request without an answer.
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
                        Outcome::Done(reported) => {
                            now >= 0 && reported.is_none_or(|t| i64::from(t) == now)
                        }
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
        fn the_search_agrees_with_brute_force(
            left in prop::collection::vec(0u32..4, 2),
            events in prop::collection::vec(any_event(), 1..6),
        ) {
            let tried = by_hand(&events, 0, &left);
            prop_assert_eq!(explained(&history(&left, events), Lists::Atomic), tried);
        }
    }
}
