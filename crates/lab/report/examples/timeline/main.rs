//! Writes pages of synthetic traces, and the shares that they must show, into a directory:
//! `cargo run -p ioloom-report --example timeline -- DIR [million]`.

mod synthetic;

use ioloom_model::State;
use ioloom_report::timeline::{SvgOptions, Theme, timeline_page, timeline_svg, timeline_text};
use ioloom_trace::Trace;
use ioloom_trace::shares::{Lanes, Shares};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(dir) = arguments.next() else { return ExitCode::from(2) };
    let million = arguments.next().is_some_and(|a| a == "million");
    if write_all(Path::new(&dir), million).is_err() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn write_all(dir: &Path, million: bool) -> std::io::Result<()> {
    if million {
        return std::fs::write(dir.join("million.html"), timeline_page(&[synthetic::million()]));
    }
    let (sync, roles) = (synthetic::sync_threads(), synthetic::reader_and_computers());
    let account = synthetic::account_only();
    std::fs::write(dir.join("one.html"), timeline_page(std::slice::from_ref(&sync)))?;
    std::fs::write(dir.join("account.html"), timeline_page(std::slice::from_ref(&account)))?;
    for (name, theme) in [("auto", Theme::Auto), ("light", Theme::Light), ("dark", Theme::Dark)] {
        let options = SvgOptions { theme, ..SvgOptions::default() };
        std::fs::write(dir.join(format!("sync-{name}.svg")), timeline_svg(&sync, &options))?;
    }
    std::fs::write(dir.join("sync.txt"), timeline_text(&sync, 100))?;
    std::fs::write(dir.join("account.txt"), timeline_text(&account, 80))?;
    let golden = json!({
        "one": [expected(&sync)],
        "account": [expected(&account)],
        "pair": [expected(&sync), expected(&roles)],
    });
    std::fs::write(dir.join("expected.json"), golden.to_string())?;
    std::fs::write(
        dir.join("pair.html"),
        timeline_page(&[sync, roles, synthetic::mapped(), account]),
    )
}

/// Returns the shares by the Rust arithmetic for ranges from the whole run to a few microseconds.
fn expected(trace: &Trace) -> Value {
    let lanes = Lanes::new(trace);
    let end = trace.elapsed_ns;
    let ranges = [
        (0, end),
        (1_234_567, 20_000_001),
        (end / 3, end / 2),
        (7_000_000, 7_400_000),
        (9_111_111, 9_151_111),
        (12_345_678, 12_346_789),
    ];
    let rows = ranges.map(|(from, to)| {
        let roles: Vec<Value> = ioloom_trace::shares::roles(trace)
            .iter()
            .map(|r| json!({ "role": r.role, "ns": named(&lanes.role(&r.role, from, to)) }))
            .collect();
        json!({ "from": from, "to": to, "ns": named(&lanes.all(from, to)), "roles": roles })
    });
    json!({ "title": trace.title, "elapsed_ns": end, "ranges": rows })
}

fn named(shares: &Shares) -> Value {
    State::ALL.iter().map(|s| (s.name().to_owned(), json!(shares.of(*s)))).collect()
}
