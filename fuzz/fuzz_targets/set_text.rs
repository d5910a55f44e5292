//! File sets in text form: no input causes a panic, and complete specifications survive a round
//! trip.
#![no_main]

use ioloom_fileset::{SetText, spell};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if text.len() > 512 {
        return;
    }
    if let Ok(SetText::Spec(spec)) = text.parse::<SetText>() {
        let spelled = spell(&spec);
        assert!(spelled.parse::<SetText>().is_ok(), "{text} → {spelled}");
    }
});
