//! Published tables: no text panics, and every row has the width of the header.
#![no_main]

use ioloom_claims::data::Table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(table) = Table::parse("fuzz", text) {
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
    }
});
