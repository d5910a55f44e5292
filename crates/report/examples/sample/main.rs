//! Writes a sample report from invented records: `cargo run -p ioloom-report --example sample --
//! OUT.html [OUT-COMPARE.html]`.

mod records;

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
    for (path, text) in pages {
        if std::fs::write(path, text).is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
