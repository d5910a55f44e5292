//! Store records and orders to a child: no input causes a panic, and parsed values survive a round
//! trip through JSON.
#![no_main]

use ioloom_model::RunRecord;
use ioloom_model::record::RunOrder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = serde_json::from_slice::<RunRecord>(bytes) {
        let first = serde_json::to_string(&record).expect("a record is JSON");
        let again: RunRecord = serde_json::from_str(&first).expect("it reads back");
        assert_eq!(serde_json::to_string(&again).expect("a record is JSON"), first);
        let _ = record.measured().map(|m| (m.metric("share.io"), m.files_per_s()));
    }
    let _ = serde_json::from_slice::<RunOrder>(bytes);
});
