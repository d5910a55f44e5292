//! File set specifications as TOML and as JSON.
#![no_main]

use ioloom_model::FileSetSpec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = toml::from_str::<FileSetSpec>(text);
    if let Ok(spec) = serde_json::from_str::<FileSetSpec>(text) {
        let again = serde_json::to_string(&spec).expect("a spec is JSON");
        assert!(serde_json::from_str::<FileSetSpec>(&again).is_ok(), "{again}");
    }
});
