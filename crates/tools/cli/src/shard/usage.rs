//! Adds up the parts of `du`.

use super::report::Shown;
use super::{report, text};
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use crate::sharding::{failure, place};
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_shard::census::Census;
use ioloom_shard::part;
use ioloom_shard::plan::Plan;
use ioloom_shard::summary::Summary;
use ioloom_shard::usage::{self, Link};
use serde_json::json;
use std::collections::HashMap;

/// The command in the work of these parts.
pub(super) const COMMAND: &str = "du";

/// The usage of all shards.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    apparent_bytes: u64,
    disk_bytes: u64,
    inodes: u64,
    /// Inodes with links in several shards, which count once.
    shared_inodes: u64,
    /// What they would count more if each shard counted alone.
    shared_disk_bytes: u64,
    errors: Vec<String>,
}

impl Sum {
    /// Adds the usage of a shard. `seen` holds the inodes with several links of the shards before.
    fn add(&mut self, part: usage::Usage, seen: &mut HashMap<(Option<u64>, u64), bool>) {
        let mut add = |apparent_bytes: u64, disk_bytes: u64, inodes: u64| {
            self.apparent_bytes = self.apparent_bytes.saturating_add(apparent_bytes);
            self.disk_bytes = self.disk_bytes.saturating_add(disk_bytes);
            self.inodes = self.inodes.saturating_add(inodes);
        };
        add(part.apparent_bytes, part.disk_bytes, part.inodes);
        for Link { device, inode, apparent_bytes, disk_bytes, .. } in part.links {
            match seen.get_mut(&(device, inode)) {
                None => drop(seen.insert((device, inode), false)),
                Some(shared) => {
                    self.shared_inodes += u64::from(!*shared);
                    *shared = true;
                    self.shared_disk_bytes = self.shared_disk_bytes.saturating_add(disk_bytes);
                    self.apparent_bytes = self.apparent_bytes.saturating_sub(apparent_bytes);
                    self.disk_bytes = self.disk_bytes.saturating_sub(disk_bytes);
                    self.inodes = self.inodes.saturating_sub(1);
                }
            }
        }
        self.errors.extend(part.errors);
    }
}

/// Adds up the parts of a complete census, and prints the sum.
pub(super) fn merge(plan: &Plan, census: &Census, shown: Shown<'_>) -> Ended {
    let summary = Summary::of(census);
    let mut sum = Sum { errors: plan.header.errors.clone(), ..Sum::default() };
    let mut seen = HashMap::new();
    for complete in census.complete() {
        let changed = |why: &str| {
            let path = place(&complete.path);
            Failure::failed(format!("cannot use {path}: {why}; remove it and run its shard again"))
        };
        let part = part::read(&complete.path).map_err(failure)?;
        if part.checksum != complete.checksum {
            return Err(changed("it changed during the merge"));
        }
        let found = usage::decode(&part.body);
        sum.add(found.ok_or_else(|| changed("it holds no usage"))?, &mut seen);
    }
    let errors = summary.errors.saturating_add(plan.header.errors_count);
    text::print_errors(&sum.errors, errors);
    if let Some(shards) = text::with_errors(census) {
        crate::stderr::message(&format!("directories could not be read in {shards}"));
    }
    report::write(shown.report, plan, census, &summary, || report::Result {
        answer: format!(
            "{} ({} bytes) in {}.",
            format_size(sum.disk_bytes),
            format_count(sum.disk_bytes),
            format_counted(sum.inodes, "inode", "inodes")
        ),
        doubts: Vec::new(),
        facts: vec![
            ("apparent", format_size(sum.apparent_bytes)),
            ("inodes in several shards", format_count(sum.shared_inodes)),
        ],
        errors: sum.errors.clone(),
        errors_count: errors,
    })?;
    let printed = match (shown.json, shown.quiet) {
        (true, _) => out::print_json(&document(plan, census, &summary, &sum)),
        (false, true) => Ok(()),
        (false, false) => out::print(&words(&summary, &sum, errors)),
    };
    out::then(printed, Ok(if errors > 0 { Exit::Failed } else { Exit::Ok }))
}

fn words(summary: &Summary, sum: &Sum, errors: u64) -> String {
    let partial = match errors {
        0 => String::new(),
        errors => format!("  (partial: {})", format_counted(errors, "error", "errors")),
    };
    let mut text = format!(
        "disk usage  {} ({} bytes){partial}\napparent    {}\ninodes      {}\n",
        format_size(sum.disk_bytes),
        format_count(sum.disk_bytes),
        format_size(sum.apparent_bytes),
        format_count(sum.inodes),
    );
    if sum.shared_inodes > 0 {
        text += &format!(
            "hard links  {} with links in several shards, counted once ({} left out)\n",
            format_counted(sum.shared_inodes, "inode", "inodes"),
            format_size(sum.shared_disk_bytes),
        );
    }
    text += &format!(
        "time        {} ({} of work on {})\n",
        format_ns(summary.elapsed_ns as f64),
        format_ns(summary.busy_ns as f64),
        format_counted(summary.timeline.len() as u64, "worker", "workers"),
    );
    text + &text::hosts(summary)
}

fn document(plan: &Plan, census: &Census, summary: &Summary, sum: &Sum) -> serde_json::Value {
    json!({
        "schema": 1,
        "command": "shard merge",
        "plan": plan.checksum,
        "shards": plan.header.shards,
        "complete": true,
        "work": census.work,
        "apparent_bytes": sum.apparent_bytes,
        "disk_bytes": sum.disk_bytes,
        "inodes": sum.inodes,
        "shared_inodes": sum.shared_inodes,
        "shared_disk_bytes": sum.shared_disk_bytes,
        "errors": summary.errors.saturating_add(plan.header.errors_count),
        "error_samples": sum.errors.iter().take(crate::each::output::ERRORS_PRINTED).collect::<Vec<_>>(),
        "started_ns": summary.started_ns,
        "elapsed_ns": summary.elapsed_ns,
        "busy_ns": summary.busy_ns,
        "cpu_ns": summary.cpu_ns,
        "median_ns": summary.median_ns,
        "hosts": summary.hosts,
        "slowest": text::slowest(summary),
        "timeline": summary.timeline,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_shard::usage::Usage;

    #[test]
    fn an_inode_in_three_shards_counts_once() {
        let link =
            |device, inode| Link { device, inode, links: 3, apparent_bytes: 10, disk_bytes: 4096 };
        let part = |links: Vec<Link>| Usage {
            apparent_bytes: 110,
            disk_bytes: 8192,
            inodes: 5,
            links,
            errors: Vec::new(),
        };
        let (mut sum, mut seen) = (Sum::default(), HashMap::new());
        for _ in 0..3 {
            sum.add(part(vec![link(None, 7)]), &mut seen);
        }
        // The same number on another device is another inode.
        sum.add(part(vec![link(Some(1), 7)]), &mut seen);
        assert_eq!((sum.apparent_bytes, sum.disk_bytes, sum.inodes), (420, 24_576, 18));
        assert_eq!((sum.shared_inodes, sum.shared_disk_bytes), (1, 8192));
    }
}
