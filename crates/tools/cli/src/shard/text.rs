//! Text about shards: numbers as ranges, hosts, and what is wrong with the parts.

use crate::each::output::{ERRORS_PRINTED, one_line};
use crate::sharding::place;
use crate::stderr;
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_shard::Invalid;
use ioloom_shard::census::{Census, Unfinished};
use ioloom_shard::summary::Summary;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Ranges and paths that a message lists.
const LISTED: usize = 8;
/// Hosts and shards that a summary lists.
const ROWS: usize = 5;

/// Returns sorted numbers as ranges: `1-3, 7`.
pub(super) fn ranges(numbers: &[u64]) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == *number => *end = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    listed(words)
}

/// Joins the first words.
fn listed(words: impl ExactSizeIterator<Item = String>) -> String {
    let more = words.len().saturating_sub(LISTED);
    let mut words: Vec<String> = words.take(LISTED).collect();
    if more > 0 {
        words.push(format!("and {} more", format_count(more as u64)));
    }
    words.join(", ")
}

/// Returns what is wrong with the parts, one line for each kind of fault.
pub(super) fn faults(census: &Census) -> Vec<String> {
    let count = |count: usize, one, many| format_counted(count as u64, one, many);
    let files = |files: &[(PathBuf, Invalid)]| {
        let words = files.iter().map(|(path, why)| {
            let why = crate::out::readable(why.to_string().as_bytes());
            format!("{}: {why}", place(path))
        });
        listed(words.collect::<Vec<_>>().into_iter())
    };
    let mut lines = Vec::new();
    if !census.missing.is_empty() {
        let shards = count(census.missing.len(), "shard has no part", "shards have no part");
        lines.push(format!(
            "{shards}: {}; run them with the same command as the others",
            ranges(&census.missing)
        ));
    }
    if !census.double.is_empty() {
        let shards = count(census.double.len(), "shard has", "shards have");
        let each = census.double.iter().map(|(shard, paths)| {
            let paths: Vec<String> = paths.iter().map(|path| place(path)).collect();
            format!("{shard} ({})", paths.join(" and "))
        });
        let each = listed(each.collect::<Vec<_>>().into_iter());
        lines.push(format!("{shards} several parts: {each}; remove all but one of each"));
    }
    if !census.foreign.is_empty() {
        let parts = count(census.foreign.len(), "part does", "parts do");
        let foreign = files(&census.foreign);
        let them = if census.foreign.len() == 1 { "it" } else { "them" };
        lines.push(format!("{parts} not belong to this result: {foreign}; leave {them} out"));
    }
    if !census.damaged.is_empty() {
        let parts = count(census.damaged.len(), "part is", "parts are");
        let damaged = files(&census.damaged);
        let advice = match census.damaged.len() {
            1 => "remove it and run its shard again",
            _ => "remove them and run their shards again",
        };
        lines.push(format!("{parts} damaged: {damaged}; {advice}"));
    }
    lines
}

/// Returns which shards have files that failed, and what to do, if there are any.
pub(super) fn with_errors(census: &Census) -> Option<String> {
    let shards = census.with_errors();
    let (word, them) = if shards.len() == 1 { ("shard", "it") } else { ("shards", "them") };
    (!shards.is_empty()).then(|| {
        format!(
            "{word} {}; run {them} again with '--shard … --redo' when the cause is corrected",
            ranges(&shards)
        )
    })
}

/// Returns the same for JSON.
pub(super) fn faults_json(census: &Census) -> Value {
    let files = |files: &[(PathBuf, Invalid)]| {
        let each = files.iter();
        let each =
            each.map(|(path, why)| json!({"path": path.to_string_lossy(), "why": why.to_string()}));
        each.collect::<Vec<_>>()
    };
    let double = census.double.iter().map(|(shard, paths)| {
        let paths: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        json!({"shard": shard, "parts": paths})
    });
    json!({
        "missing": census.missing,
        "double": double.collect::<Vec<_>>(),
        "foreign": files(&census.foreign),
        "damaged": files(&census.damaged),
        "unfinished": unfinished_json(&census.unfinished),
        "superseded": unfinished_json(&census.superseded),
    })
}

fn unfinished_json(unfinished: &[Unfinished]) -> Vec<Value> {
    let each = unfinished.iter().map(|begun| {
        json!({
            "shard": begun.shard,
            "host": begun.by.host,
            "pid": begun.by.pid,
            "worker": begun.by.worker,
            "started_ns": begun.by.started_ns,
            "ended": begun.ended,
        })
    });
    each.collect()
}

/// Returns lines about hosts and slow shards.
pub(super) fn hosts(summary: &Summary) -> String {
    let mut text = String::new();
    for (row, host) in summary.hosts.iter().take(ROWS).enumerate() {
        let head = if row == 0 { "hosts" } else { "" };
        let limit = host.limited_by.as_ref().filter(|word| *word != "unknown");
        let limit = limit.map_or(String::new(), |word| {
            format!(", limited by {}", crate::out::readable(word.as_bytes()))
        });
        let errors = match host.errors {
            0 => String::new(),
            errors => format!(", {}", format_counted(errors, "error", "errors")),
        };
        text += &format!(
            "{head:12}{}: {}, {}, {} busy{errors}{limit}\n",
            crate::out::readable(host.host.as_bytes()),
            format_counted(host.shards, "shard", "shards"),
            format_counted(host.files, "file", "files"),
            format_ns(host.busy_ns as f64),
        );
    }
    if summary.hosts.len() > ROWS {
        let more = format_count((summary.hosts.len() - ROWS) as u64);
        text += &format!("{:12}and {more} more; --json lists all\n", "");
    }
    if let Some((shard, host, ns)) = summary.slowest.first() {
        text += &format!(
            "slowest     shard {shard} on {} took {}; median {}\n",
            crate::out::readable(host.as_bytes()),
            format_ns(*ns as f64),
            format_ns(summary.median_ns as f64),
        );
    }
    text
}

/// Prints the first errors, and how many more there are.
pub(super) fn print_errors(errors: &[String], count: u64) {
    for error in errors.iter().take(ERRORS_PRINTED) {
        stderr::message(&one_line(error));
    }
    let more = count.saturating_sub(errors.len().min(ERRORS_PRINTED) as u64);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more)));
    }
}

/// Returns the files, bytes and time of all parts.
pub(super) fn totals(summary: &Summary) -> String {
    format!(
        "{}, {} in {}  ({} of work on {})\n",
        format_counted(summary.files, "file", "files"),
        format_size(summary.bytes),
        format_ns(summary.elapsed_ns as f64),
        format_ns(summary.busy_ns as f64),
        format_counted(summary.timeline.len() as u64, "worker", "workers"),
    )
}

/// Returns the slowest shards for JSON.
pub(super) fn slowest(summary: &Summary) -> Vec<Value> {
    let each = summary.slowest.iter();
    each.map(|(shard, host, ns)| json!({"shard": shard, "host": host, "elapsed_ns": ns})).collect()
}

#[cfg(test)]
mod tests {
    use super::{hosts, ranges};
    use ioloom_shard::summary::{Host, Summary};

    #[test]
    fn words_of_parts_cannot_control_the_terminal() {
        let host = Host { limited_by: Some("\u{1b}[2J".to_owned()), ..Host::default() };
        let text = hosts(&Summary { hosts: vec![host], ..Summary::default() });
        assert!(text.contains("limited by \\u{1b}[2J"), "{text}");
    }

    #[test]
    fn neighbours_are_one_range() {
        assert_eq!(ranges(&[1, 2, 3, 7, 9, 10]), "1-3, 7, 9-10");
        assert_eq!(ranges(&[]), "");
        let many: Vec<u64> = (1..=20).step_by(2).collect();
        assert_eq!(ranges(&many), "1, 3, 5, 7, 9, 11, 13, 15, and 2 more");
    }
}
