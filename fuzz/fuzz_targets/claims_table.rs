//! Published tables: no input causes a panic, and every row is as wide as the header.
#![no_main]

use ioloom_claims::data::Table;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(table) = Table::parse("fuzz", text) {
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
    }
});
