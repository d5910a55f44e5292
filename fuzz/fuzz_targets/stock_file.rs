//! Stock files: no input causes a panic, and parsed files survive a round trip.
#![no_main]

use ioloom_exchange::Exchange;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(exchange) = Exchange::from_text(text) {
        assert_eq!(Exchange::from_text(&exchange.to_text()).as_ref(), Ok(&exchange));
    }
});
