//! Writes a sample report from synthetic records: `cargo run -p ioloom-report --example sample --
//! OUT.html [OUT-COMPARE.html [OUT-CHAPTERS.html]]`; the last is a page of two studies that both
//! have timelines.

mod records;
#[path = "../timeline/synthetic.rs"]
#[allow(dead_code, reason = "other pages use the rest")]
mod synthetic;

use ioloom_report::{Input, PictureRow};
use ioloom_trace::Trace;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut paths = std::env::args_os().skip(1);
    let Some(out) = paths.next() else {
        return ExitCode::from(2);
    };
    let first = records::sample(1);
    let mut pages = vec![(out, ioloom_report::html(&first))];
    if let Some(path) = paths.next() {
        pages.push((path, ioloom_report::compare_html(&first, &records::sample(2))));
    }
    if let Some(path) = paths.next() {
        pages.push((path, ioloom_report::html_all(&chapters())));
    }
    for (path, text) in pages {
        if std::fs::write(path, text).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Two studies with two traced runs each.
fn chapters() -> [Input; 2] {
    let chapter = |seed: u64, traces: [Trace; 2]| {
        let mut input = records::sample(seed);
        input.prefix = format!("s{seed}-");
        input.pictures = traces
            .map(|trace| PictureRow {
                experiment: "sync-or-reader".to_owned(),
                arm: trace.title.clone(),
                compute: "none".parse().expect("none is a compute"),
                trace,
            })
            .into();
        input
    };
    [
        chapter(1, [synthetic::sync_threads(), synthetic::reader_and_computers()]),
        chapter(2, [synthetic::mapped(), synthetic::account_only()]),
    ]
}
