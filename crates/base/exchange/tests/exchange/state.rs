//! Orders against an oracle of 128-bit sums, and the log against the state it produces.

use ioloom_exchange::{
    Answer, COUNT_MAX, Clients, Exchange, Order, OrderOutcome, Record, Refused, RequestId, Seen,
    Side, State, Stop, WINDOW,
};
use proptest::prelude::*;
use std::collections::HashMap;

fn start() -> State {
    State::new(Exchange::from_text("1 100 10\n2 0 20\n7 2147483647 30\n").unwrap(), 0)
}

fn buy(stock: u32, count: u32) -> Order {
    Order::new(Side::Buy, stock, count).unwrap()
}

fn request_id(client: &str, request: u64) -> RequestId {
    RequestId { client: client.into(), request }
}

#[derive(Debug, Clone)]
struct Step {
    order: Order,
    request_id: Option<RequestId>,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let count = prop_oneof![1..20u32, Just(COUNT_MAX)];
    let side = prop_oneof![Just(Side::Buy), Just(Side::Sell)];
    let sender = prop::option::of((0..3u8, 0..10u64));
    let step = (side, prop_oneof![Just(1u32), Just(2), Just(7), Just(9)], count, sender).prop_map(
        |(side, stock, count, sender)| Step {
            order: Order::new(side, stock, count).unwrap(),
            request_id: sender.map(|(name, request)| request_id(&format!("c{name}"), request)),
        },
    );
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn orders_match_plain_sums(steps in steps()) {
        let mut state = start();
        let mut oracle: HashMap<u32, i128> = [(1, 100), (2, 0), (7, i128::from(COUNT_MAX))].into();
        let mut answered: HashMap<RequestId, (Order, Answer)> = HashMap::new();
        let mut records: Vec<Record> = Vec::new();
        for Step { order, request_id } in &steps {
            let before = state.clone();
            let (answer, record) = state.trade(order, request_id.as_ref());
            if let Some(earlier) = request_id.as_ref().and_then(|request_id| answered.get(request_id)) {
                let (known, earlier) = earlier;
                let reused = Answer::Stopped(Stop::Reused);
                let expected = if known == order { earlier } else { &reused };
                prop_assert_eq!((&answer, &record), (expected, &None));
                prop_assert_eq!(&state, &before);
                continue;
            }
            let sign = if order.side() == Side::Buy { -1 } else { 1 };
            let after = oracle.get(&order.stock()).map(|n| n + sign * i128::from(order.count()));
            let expected = match after {
                None => Err(Refused::UnknownStock),
                Some(n) if n < 0 => Err(Refused::NotEnough),
                Some(n) if n > i128::from(COUNT_MAX) => Err(Refused::TooMany),
                Some(n) => Ok(n),
            };
            match (&answer, expected) {
                (Answer::Done { left, seq }, Ok(n)) => {
                    prop_assert_eq!(i128::from(*left), n);
                    prop_assert_eq!(*seq, before.seq() + 1);
                    oracle.insert(order.stock(), n);
                }
                (Answer::Refused(refused), Err(why)) => {
                    prop_assert_eq!(*refused, why);
                    prop_assert_eq!(state.exchange(), before.exchange());
                }
                (answer, expected) => prop_assert!(false, "{:?} {:?}", answer, expected),
            }
            if let Some(request_id) = request_id {
                answered.insert(request_id.clone(), (*order, answer));
            }
            records.extend(record);
        }
        // The log has no gaps and reproduces the state, including the client history.
        let mut again = start();
        for record in &records {
            again.replay(record).unwrap();
        }
        prop_assert_eq!(again.exchange(), state.exchange());
        prop_assert_eq!(again.seq(), state.seq());
        for (request_id, (order, answer)) in &answered {
            let before = again.seq();
            prop_assert_eq!(&again.trade(order, Some(request_id)).0, answer);
            prop_assert_eq!(again.seq(), before);
        }
        // A log with a gap is rejected.
        if records.len() > 1 {
            let mut cut = start();
            prop_assert!(records[1..].iter().any(|record| cut.replay(record).is_err()));
        }
    }
}

#[test]
fn orders_older_than_the_window_are_not_executed_again() {
    let mut state = start();
    for request in 0..=WINDOW as u64 {
        assert!(state.trade(&buy(7, 1), Some(&request_id("a", request))).1.is_some());
    }
    let left = state.exchange().get(7).unwrap().left;
    assert_eq!(state.trade(&buy(7, 1), Some(&request_id("a", 0))).0, Answer::Stopped(Stop::TooOld));
    let Answer::Done { .. } = state.trade(&buy(7, 1), Some(&request_id("a", 1))).0 else {
        panic!()
    };
    assert_eq!(state.exchange().get(7).unwrap().left, left);
}

/// The documentation says so; a name that is unknown may also be that of a new client.
#[test]
fn orders_of_a_forgotten_client_are_new() {
    let mut clients = Clients::new(2);
    for (name, seq) in [("a", 1), ("b", 2), ("a", 3), ("c", 4)] {
        clients.keep(&request_id(name, seq), &buy(1, 1), OrderOutcome::Done { left: 1, seq });
    }
    let seen = |name, request| clients.seen(&request_id(name, request), &buy(1, 1));
    assert_eq!(seen("b", 2), Seen::New);
    assert_eq!(seen("a", 1), Seen::Before(OrderOutcome::Done { left: 1, seq: 1 }));
    assert!(matches!(seen("c", 4), Seen::Before(_)));
}

#[test]
fn a_number_of_another_order_executes_nothing() {
    let mut state = start();
    let id = request_id("a", 1);
    let (answer, record) = state.trade(&buy(1, 1), Some(&id));
    assert_eq!(answer, Answer::Done { left: 99, seq: 1 });
    let mut restarted = start();
    restarted.replay(&record.unwrap()).unwrap();
    let sale = Order::new(Side::Sell, 1, 1).unwrap();
    for state in [&mut state, &mut restarted] {
        for other in [sale, buy(2, 1), buy(1, 2)] {
            let reused = (Answer::Stopped(Stop::Reused), None);
            assert_eq!(state.trade(&other, Some(&id)), reused);
        }
        assert_eq!((state.exchange().get(1).unwrap().left, state.seq()), (99, 1));
        assert_eq!(state.trade(&buy(1, 1), Some(&id)).0, answer);
    }
}

#[test]
fn orders_trimmed_from_the_log_are_not_executed_again() {
    let mut state = start();
    let mut records = Vec::new();
    for request in [3, 5, 8] {
        records.extend(state.trade(&buy(7, 1), Some(&request_id("a", request))).1);
    }
    // The first record was removed from the log.
    let mut again = State::new(state.exchange().clone(), state.seq());
    records[1..].iter().for_each(|record| again.remember(record));
    again.forget_older();
    let mut ask = |client, request| again.trade(&buy(7, 1), Some(&request_id(client, request))).0;
    assert_eq!(ask("a", 3), Answer::Stopped(Stop::TooOld));
    assert_eq!(ask("a", 5), Answer::Done { left: COUNT_MAX - 2, seq: 2 });
    assert_eq!(ask("a", 6), Answer::Done { left: COUNT_MAX - 4, seq: 4 });
    assert_eq!(ask("b", 0), Answer::Done { left: COUNT_MAX - 5, seq: 5 });
}

#[test]
fn lists_are_atomic_and_shared_until_the_next_order() {
    let mut state = start();
    let first = state.show();
    assert!(std::sync::Arc::ptr_eq(&first, &state.show()));
    state.trade(&buy(1, 1), None);
    let second = state.show();
    assert_eq!((first.seq, second.seq), (0, 1));
    assert_eq!((first.lines[0].left, second.lines[0].left), (100, 99));
    assert_eq!(state.trade(&buy(9, 1), None), (Answer::Refused(Refused::UnknownStock), None));
}
