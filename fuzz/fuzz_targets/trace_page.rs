//! Pages of the kernel's trace ring and event formats: no input causes a panic, every iteration
//! terminates, and decoded data comes from the page.
#![no_main]

use ioloom_sys_trace::tracefs::event::{Decoder, Kind};
use ioloom_sys_trace::tracefs::format::Format;
use ioloom_sys_trace::tracefs::page::Page;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, bytes) = input;
    let mut decoder = Decoder::default();
    if let Some(format) = Format::parse(text) {
        for kind in Kind::ALL {
            decoder.learn(kind, &format);
        }
    }
    if let Some(page) = Page::parse(bytes) {
        let events: Vec<_> = page.events().collect();
        assert!(events.len() <= bytes.len() / 4);
        for (at_ns, record) in events {
            let _ = decoder.decode(at_ns, 0, record);
        }
    }
});
