//! Trace files: no input causes a panic, and parsed traces can be summed, judged, written and read
//! back.
#![no_main]

use ioloom_trace::{Trace, csv, file, findings, perfetto, shares, viewer};
use libfuzzer_sys::fuzz_target;

fn use_it(trace: &Trace) {
    for lane in shares::Lanes::new(trace).lanes() {
        let thread = lane.thread();
        assert_eq!(lane.within(0, u64::MAX).total(), thread.end_ns - thread.start_ns);
        let _ = lane.columns(0, trace.elapsed_ns, 16);
    }
    let found = findings(trace);
    let _ = viewer::payload(trace, &found);
    let _ = perfetto::encode(trace);
    let _ = (csv::segments(trace), csv::spans(trace), csv::requests(trace));
}

fuzz_target!(|bytes: &[u8]| {
    // Use the input as is, and as the contents of each section with a correct checksum.
    if let Ok(trace) = file::read(bytes) {
        use_it(&trace);
        assert!(file::read(&file::write(&trace)).is_ok());
    }
    for tag in [b"HEAD", b"THRD", b"DEVS", b"CORE", b"SERI", b"MARK", b"FILE"] {
        if let Ok(trace) = file::read(&file::single_section(tag, bytes)) {
            use_it(&trace);
        }
    }
});
