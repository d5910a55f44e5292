//! `shard merge --report`: the result of all shards as a page.

use super::text;
use crate::atomic_file;
use crate::each::output::ERRORS_PRINTED;
use crate::exit::Failure;
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_report::shards::{HostRow, ShardsReport, SlowRow, shards_page};
use ioloom_report::svg::lanes::{Bar, Lane, Lanes};
use ioloom_shard::census::Census;
use ioloom_shard::plan::Plan;
use ioloom_shard::summary::{self, SLOW_FACTOR, Summary};
use std::path::Path;

/// Workers that are drawn.
const LANES_MAX: usize = 200;

/// How a result is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown<'a> {
    pub(super) json: bool,
    pub(super) quiet: bool,
    /// The file of the page.
    pub(super) report: Option<&'a Path>,
}

/// What a command found, in words.
pub(super) struct Result {
    /// The first sentence.
    pub(super) answer: String,
    /// What a reader must know before trusting it.
    pub(super) doubts: Vec<String>,
    /// Names and values, such as the digest.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) errors: Vec<String>,
    pub(super) errors_count: u64,
}

/// Writes the page to a file, if one is named.
pub(super) fn write(
    file: Option<&Path>,
    plan: &Plan,
    census: &Census,
    summary: &Summary,
    result: impl FnOnce() -> Result,
) -> std::result::Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    let page = shards_page(&report(plan, census, summary, result()));
    atomic_file::write(file, page)
}

fn report(plan: &Plan, census: &Census, summary: &Summary, result: Result) -> ShardsReport {
    let Result { answer, mut doubts, mut facts, mut errors, errors_count } = result;
    let command = census.work.as_ref().map_or("shards", |work| work.command.as_str());
    let work = census.work.as_ref().map_or_else(String::new, |work| work.words());
    let paths = plan.header.roots.iter().map(|root| root.path().to_string_lossy().into_owned());
    let paths: Vec<String> = paths.collect();
    let of = if paths.is_empty() { "a list".to_owned() } else { paths.join(", ") };
    if let Some(shards) = text::with_errors(census) {
        doubts.push(format!("Not all was processed in {shards}."));
    }
    if summary.hosts.len() > 1 {
        doubts.push(
            "Times of several hosts are as comparable as the clocks of these hosts.".to_owned(),
        );
    }
    facts.extend([
        ("shards", format_count(plan.header.shards)),
        ("took", format_ns(summary.elapsed_ns as f64)),
        ("work", format_ns(summary.busy_ns as f64)),
        ("CPU time", format_ns(summary.cpu_ns as f64)),
        ("median shard", format_ns(summary.median_ns as f64)),
        ("slow shards", format_count(summary.slow)),
        ("command", work),
        ("plan", plan.checksum.clone()),
    ]);
    errors.truncate(ERRORS_PRINTED);
    ShardsReport {
        title: format!("{command} of {of}"),
        answer,
        doubts,
        facts,
        hosts: summary.hosts.iter().map(host_row).collect(),
        lanes: lanes(summary),
        more_lanes: summary.timeline.len().saturating_sub(LANES_MAX),
        slowest: slowest(summary),
        errors,
        errors_count,
    }
}

fn host_row(host: &summary::Host) -> HostRow {
    let limit = match (&host.limited_by, &host.why) {
        (Some(word), Some(why)) => format!("{word}: {why}"),
        (Some(word), None) => word.clone(),
        (None, _) => String::new(),
    };
    HostRow {
        host: host.host.clone(),
        shards: host.shards,
        files: host.files,
        bytes: host.bytes,
        errors: host.errors,
        busy_ns: host.busy_ns,
        cpu_ns: host.cpu_ns,
        limit,
    }
}

fn slowest(summary: &Summary) -> Vec<SlowRow> {
    let median = summary.median_ns.max(1) as f64;
    let each = summary.slowest.iter().map(|(shard, host, elapsed_ns)| SlowRow {
        shard: *shard,
        host: host.clone(),
        elapsed_ns: *elapsed_ns,
        times_median: *elapsed_ns as f64 / median,
    });
    each.collect()
}

fn lanes(summary: &Summary) -> Lanes {
    let slow_ns = summary.median_ns.saturating_mul(SLOW_FACTOR);
    let description = format!(
        "Each row is a worker, each bar its shards. Hatched bars are shards that took more than {SLOW_FACTOR} times \
         the median of {}.",
        format_ns(summary.median_ns as f64)
    );
    Lanes {
        title: "Workers over time".to_owned(),
        description,
        elapsed_ns: summary.elapsed_ns,
        lanes: summary.timeline.iter().take(LANES_MAX).map(|l| lane(l, slow_ns)).collect(),
    }
}

fn lane(lane: &summary::Lane, slow_ns: u64) -> Lane {
    let name = match &lane.worker {
        Some(worker) => format!("{} {worker}", lane.host),
        None => lane.host.clone(),
    };
    let busy_ns = lane.shards.iter().map(|span| span.end_ns.saturating_sub(span.start_ns));
    let busy_ns = busy_ns.fold(0, u64::saturating_add);
    let files = lane.shards.iter().map(|span| span.files).fold(0, u64::saturating_add);
    let note = format!(
        "{}, {}, {} busy",
        format_counted(lane.shards.len() as u64, "shard", "shards"),
        format_counted(files, "file", "files"),
        format_ns(busy_ns as f64)
    );
    let bars = lane.shards.iter().map(|span| {
        let took_ns = span.end_ns.saturating_sub(span.start_ns);
        let mark = (took_ns > slow_ns).then(|| {
            let tip = format!(
                "shard {} on {name}: {}, {}",
                span.shard,
                format_ns(took_ns as f64),
                format_counted(span.files, "file", "files")
            );
            (span.shard.to_string(), tip)
        });
        Bar { start_ns: span.start_ns, end_ns: span.end_ns, mark }
    });
    Lane { note, bars: bars.collect(), name: name.clone() }
}

/// Returns the files and bytes of all shards as a sentence.
pub(super) fn amount(summary: &Summary) -> String {
    format!(
        "{}, {} in {} on {}.",
        format_counted(summary.files, "file", "files"),
        format_size(summary.bytes),
        format_ns(summary.elapsed_ns as f64),
        format_counted(summary.hosts.len() as u64, "host", "hosts")
    )
}
