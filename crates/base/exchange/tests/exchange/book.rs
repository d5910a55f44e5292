//! The stock file format.

use ioloom_exchange::{BadStockFile, COUNT_MAX, Exchange, Line};
use proptest::prelude::*;

#[test]
fn the_example_of_the_assignment_round_trips_sorted() {
    let text = "1 7 1000\n5 3 3700\n3 10 1200\n4 8 5000\n2 6 20000\n";
    let exchange = Exchange::from_text(text).unwrap();
    let sorted = "1 7 1000\n2 6 20000\n3 10 1200\n4 8 5000\n5 3 3700\n";
    assert_eq!(exchange.to_text(), sorted);
    assert_eq!(Exchange::from_text("1 7 1000\r\n\r\n 2 6 20000").unwrap().len(), 2);
}

#[test]
fn invalid_stock_files_are_rejected_with_the_line() {
    let bad = |text: &str| Exchange::from_text(text).unwrap_err();
    let line = |text: &str| match bad(text) {
        BadStockFile::Line { line, .. } => line,
        other => panic!("{other}"),
    };
    assert_eq!(bad(""), BadStockFile::Empty);
    assert_eq!(bad("1 2 3\n1 5 6\n"), BadStockFile::Twice { line: 2, id: 1 });
    for text in ["1 2\n", "1 2 3 4\n", "1 -2 3\n", "a 2 3\n", "1 2147483648 3\n", "1 +2 3\n"] {
        assert_eq!(line(&format!("9 9 9\n{text}")), 2, "{text}");
    }
}

proptest! {
    #[test]
    fn written_files_read_back(stocks in prop::collection::btree_map(
        0..=COUNT_MAX, (0..=COUNT_MAX, 0..=COUNT_MAX), 1..50,
    )) {
        let lines = stocks.iter().map(|(id, (left, price))| Line {
            id: *id, left: *left, price: *price,
        });
        let exchange: Exchange = lines.collect();
        prop_assert_eq!(&Exchange::from_text(&exchange.to_text()).unwrap(), &exchange);
    }

    #[test]
    fn no_text_panics(text in ".{0,200}") {
        let _ = Exchange::from_text(&text);
    }
}
