//! `shard status`: which shards are done, running and missing, how fast, and until when.

use super::{text, usage};
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use crate::sharding::{check_file, failure, host, now_ns};
use clap::Args;
use ioloom_model::units::{format_count, format_counted, format_ns};
use ioloom_shard::census::{Census, Unfinished, glance};
use ioloom_shard::plan::Plan;
use ioloom_shard::summary::{Progress, Summary};
use serde_json::json;
use std::path::PathBuf;

/// Show which shards are done, running and missing
///
/// Reads the plan and the first lines of the parts only; workers are not contacted. A shard that was begun is assumed to
/// run, unless its process was one of this host and has ended. The exit code is 0 even if shards are
/// missing; merge verifies completeness.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom shard status data.shards parts
  watch ioloom shard status data.shards parts")]
pub(super) struct StatusArgs {
    /// Plan that the shards belong to
    #[arg(required_unless_present = "queue")]
    plan: Option<PathBuf>,

    /// Directories with parts, or parts
    #[arg(required_unless_present = "queue", value_name = "PARTS")]
    places: Vec<PathBuf>,

    /// Show the status of a queue: nats://HOST[:PORT]/NAME, or tls://HOST[:PORT]/NAME
    ///
    /// Needs a build with the cargo feature queue.
    #[arg(long, value_name = "URL", conflicts_with_all = ["plan", "places"])]
    queue: Option<String>,

    /// Print the status as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatusArgs) -> Ended {
    if let Some(_url) = &args.queue {
        #[cfg(feature = "queue")]
        return super::queue::status(_url, args.json);
        #[cfg(not(feature = "queue"))]
        return Err(crate::sharding::no_queues());
    }
    let Some(plan) = &args.plan else { return Err(Failure::usage("name the plan")) };
    check_file(plan)?;
    args.places.iter().try_for_each(|place| check_file(place))?;
    let plan = Plan::read(plan).map_err(failure)?;
    let census = glance(&plan, &args.places, &host()).map_err(failure)?;
    let summary = Summary::of(&census);
    let now = now_ns();
    let mut progress = Progress::of(&census, &summary, plan.header.files, now);
    if plan.header.subtrees {
        // How much is left below a directory is unknown.
        progress.eta_ns = None;
    }
    if args.json {
        out::print_json(&json!({
            "schema": 1,
            "command": "shard status",
            "plan": plan.checksum,
            "shards": plan.header.shards,
            "done": census.complete().count(),
            "complete": census.is_complete(),
            "faults": text::faults_json(&census),
            "work": census.work,
            "files_total": plan.header.files,
            "files": summary.files,
            "bytes": summary.bytes,
            "errors": summary.errors,
            "progress": progress,
            "median_ns": summary.median_ns,
            "slow": summary.slow,
            "hosts": summary.hosts,
            "slowest": text::slowest(&summary),
            "timeline": summary.timeline,
        }))?;
        return Ok(Exit::Ok);
    }
    out::print(&words(&plan, &census, &summary, &progress, now))?;
    Ok(Exit::Ok)
}

fn words(plan: &Plan, census: &Census, summary: &Summary, progress: &Progress, now: u64) -> String {
    let done = census.complete().count() as u64;
    let (ended, running): (Vec<&Unfinished>, Vec<_>) =
        census.unfinished.iter().partition(|begun| begun.ended);
    let mut text = format!(
        "shards      {} of {} done, {} missing",
        format_count(done),
        format_count(plan.header.shards),
        format_count(census.missing.len() as u64),
    );
    if !running.is_empty() {
        text += &format!(" ({} running)", format_count(running.len() as u64));
    }
    let files = format_count(summary.files.saturating_add(summary.errors));
    let command = census.work.as_ref().map(|work| work.command.as_str());
    let what = if command == Some(usage::COMMAND) { "inodes" } else { "files" };
    text += &match plan.header.subtrees {
        true => format!("\n{what:12}{files}"),
        false => format!("\n{what:12}{files} of {}", format_count(plan.header.files)),
    };
    if let Some(rate) = progress.files_per_s {
        text += &format!(", {} {what}/s", format_count(rate as u64));
    }
    if let Some(eta) = progress.eta_ns {
        text += &format!(", {} left", format_ns(eta as f64));
    }
    text.push('\n');
    if let Some(shards) = text::with_errors(census) {
        let files = format_counted(summary.errors, "file", "files");
        text += &format!("errors      {files} in {shards}\n");
    }
    text += &text::hosts(summary);
    for begun in running {
        let slow = progress.stragglers.contains(&begun.shard);
        text += &format!(
            "running     shard {} on {} since {}{}\n",
            begun.shard,
            out::readable(begun.by.host.as_bytes()),
            format_ns(now.saturating_sub(begun.by.started_ns) as f64),
            if slow { ": a straggler" } else { "" },
        );
    }
    for begun in &census.superseded {
        text += &format!(
            "superseded  shard {} on {} since {}: complete by another worker\n",
            begun.shard,
            out::readable(begun.by.host.as_bytes()),
            format_ns(now.saturating_sub(begun.by.started_ns) as f64),
        );
    }
    if !ended.is_empty() {
        let shards: Vec<u64> = ended.iter().map(|begun| begun.shard).collect();
        text += &format!("killed      shards {}; run them again\n", text::ranges(&shards));
    }
    for fault in text::faults(census) {
        text += &format!("to do       {fault}\n");
    }
    text
}
