//! Session files of the store: reading arbitrary contents returns a session or an error.
#![no_main]

use ioloom_lab::store::Store;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;

/// Reuses one directory per process; only its single file changes.
fn dir() -> &'static std::path::Path {
    static DIR: OnceLock<std::path::PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("ioloom-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("sessions")).expect("create a directory for the store");
        dir
    })
}

fuzz_target!(|bytes: &[u8]| {
    let file = dir().join("sessions/s.jsonl");
    std::fs::write(file, bytes).expect("write the session");
    let store = Store::open_to_read(dir()).expect("open the store");
    let _ = store.files();
    let _ = store.read("s");
});
