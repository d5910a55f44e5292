//! `shard status --queue` and `shard watch`: how far a queue is.

use super::queue_args::WatchArgs;
use crate::exit::{Ended, Exit, Failure};
use crate::queueing::{address, failure as queue_failure};
use crate::{interrupt, out};
use ioloom_model::units::{format_count, format_counted, format_ns};
use ioloom_queue::{Queue, QueueError, Stalled, Status, WorkerReport};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Hosts, workers and parked shards that a status lists.
const ROWS: usize = 8;
/// Time between two looks at the flag of interrupts.
const LOOK: Duration = Duration::from_millis(50);

/// Prints the status of a queue.
pub(super) fn status(url: &str, as_json: bool) -> Ended {
    let queue = Queue::connect(&address(url)?).map_err(queue_failure)?;
    let status = queue.status().map_err(queue_failure)?;
    match as_json {
        true => out::print_json(&document(&status))?,
        false => out::print(&words(&status))?,
    }
    Ok(Exit::Ok)
}

/// Follows a queue.
pub(super) fn watch(args: &WatchArgs) -> Ended {
    let stop = interrupt::stop_flag();
    let address = address(&args.queue)?;
    let queue = Queue::connect(&address).map_err(queue_failure)?;
    let (mut last, mut stalled) = (String::new(), Stalled::default());
    let read = || match queue.status_patiently(&stop) {
        Err(_) if stop.load(Ordering::Relaxed) => Err(Failure::new(Exit::Interrupted, "")),
        status => status.map_err(queue_failure),
    };
    loop {
        let status = read()?;
        let mut text = match args.json {
            true => format!("{}\n", document(&status)),
            false => Some(line(&status)).filter(|line| *line != last).unwrap_or_default(),
        };
        if status.is_finished() {
            if !args.json {
                text += &words(&status);
            }
            let failed = status.counts.parked > 0 || status.counts.with_errors > 0;
            let exit = if failed { Exit::Failed } else { Exit::Ok };
            return out::then(out::print(&text), Ok(exit));
        }
        if !text.is_empty() {
            out::print(&text)?;
            last = text;
        }
        if let Some(shards) = status.lost()
            && read()?.counts == status.counts
        {
            return Err(queue_failure(QueueError::Lost { queue: address.to_string(), shards }));
        }
        if status.is_stalled(&mut stalled) {
            return Err(queue_failure(QueueError::Unfinished { queue: address.to_string() }));
        }
        let until = Instant::now() + Duration::from_secs(u64::from(args.interval));
        while Instant::now() < until {
            if stop.load(Ordering::Relaxed) {
                return Err(Failure::new(Exit::Interrupted, ""));
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Returns the progress in a line.
fn line(status: &Status) -> String {
    let counts = status.counts;
    let mut text = format!(
        "{} of {} done, {} running",
        format_count(counts.done),
        format_counted(status.terms.shards, "shard", "shards"),
        format_count(status.running().count() as u64),
    );
    if counts.parked > 0 {
        text += &format!(", {} parked", format_count(counts.parked));
    }
    if let Some(left) = status.left_ns().filter(|_| !status.is_finished()) {
        text += &format!(", {} left", format_ns(left));
    }
    let slow = status.stragglers();
    if !slow.is_empty() {
        let named: Vec<String> = slow.iter().take(ROWS).map(u64::to_string).collect();
        text += &format!(", stragglers: {}", named.join(", "));
    }
    if slow.len() > ROWS {
        text += &format!(" and {} more", format_count((slow.len() - ROWS) as u64));
    }
    text + "\n"
}

/// What the workers of a host did together.
#[derive(Debug, Default)]
struct Host {
    workers: u64,
    shards: u64,
    files: u64,
    errors: u64,
    failed: u64,
    limited_by: Option<String>,
}

fn hosts(status: &Status) -> BTreeMap<&str, Host> {
    let mut hosts: BTreeMap<&str, Host> = BTreeMap::new();
    for WorkerReport { host, shards, files, errors, failed, limited_by, .. } in &status.workers {
        let sum = hosts.entry(host).or_default();
        sum.workers += 1;
        // What workers report is not verified.
        sum.shards = sum.shards.saturating_add(*shards);
        sum.files = sum.files.saturating_add(*files);
        sum.errors = sum.errors.saturating_add(*errors);
        sum.failed = sum.failed.saturating_add(*failed);
        sum.limited_by = limited_by.clone().or(sum.limited_by.take());
    }
    hosts
}

fn words(status: &Status) -> String {
    let counts = status.counts;
    let slow = status.stragglers();
    let mut running: Vec<_> = status.running().collect();
    running.sort_by_key(|(_, shard, _)| !slow.contains(shard));
    let waiting =
        status.terms.shards.saturating_sub(counts.done + counts.parked + running.len() as u64);
    let mut text = format!(
        "shards      {} of {} done, {} running, {} waiting, {} parked\n",
        format_count(counts.done),
        format_count(status.terms.shards),
        format_count(running.len() as u64),
        format_count(waiting),
        format_count(counts.parked),
    );
    if !status.submitted {
        text +=
            "submission  not finished; if it was interrupted, run 'ioloom shard submit' again\n";
    }
    if let Some(work) = &status.work {
        text += &format!("work        {}\n", out::readable(work.as_bytes()));
    }
    if let Some(rate) = status.shards_per_s() {
        let files: u64 = status.workers.iter().map(|w| w.files).fold(0, u64::saturating_add);
        text +=
            &format!("speed       {rate:.1} shards/s, {}", format_counted(files, "file", "files"));
        if let Some(left) = status.left_ns().filter(|_| !status.is_finished()) {
            text += &format!(", {} left", format_ns(left));
        }
        text.push('\n');
    }
    if counts.with_errors > 0 {
        let shards = format_counted(counts.with_errors, "shard", "shards");
        text +=
            &format!("errors      {shards} with failed files; 'ioloom shard merge' names them\n");
    }
    text += &host_lines(status);
    for (worker, shard, ns) in running.iter().take(ROWS) {
        let mark = if slow.contains(shard) { ": a straggler" } else { "" };
        text += &format!(
            "running     shard {shard} on {} since {}{mark}\n",
            out::readable(worker.host.as_bytes()),
            format_ns(*ns as f64),
        );
    }
    for parked in status.parked.iter().take(ROWS) {
        text += &format!(
            "parked      shard {} on {}: {}\n",
            parked.shard,
            out::readable(parked.host.as_bytes()),
            out::readable(parked.error.as_bytes()),
        );
    }
    if counts.parked as usize > ROWS {
        text += &format!("{:12}and {} more\n", "", format_count(counts.parked - ROWS as u64));
    }
    if counts.parked > 0 {
        text +=
            "to do       fix the cause, then run 'ioloom shard submit PLAN --queue URL --unpark'\n";
    }
    text
}

fn host_lines(status: &Status) -> String {
    let hosts = hosts(status);
    let mut text = String::new();
    for (row, (name, host)) in hosts.iter().take(ROWS).enumerate() {
        let head = if row == 0 { "hosts" } else { "" };
        text += &format!(
            "{head:12}{}: {}, {}, {}",
            out::readable(name.as_bytes()),
            format_counted(host.workers, "worker", "workers"),
            format_counted(host.shards, "shard", "shards"),
            format_counted(host.files, "file", "files"),
        );
        if host.errors > 0 {
            text += &format!(", {}", format_counted(host.errors, "failed file", "failed files"));
        }
        if host.failed > 0 {
            text += &format!(", {}", format_counted(host.failed, "failed try", "failed tries"));
        }
        if let Some(limit) = host.limited_by.as_ref().filter(|word| *word != "unknown") {
            text += &format!(", limited by {}", out::readable(limit.as_bytes()));
        }
        text.push('\n');
    }
    if hosts.len() > ROWS {
        text += &format!("{:12}and {} more\n", "", format_count((hosts.len() - ROWS) as u64));
    }
    text
}

fn document(status: &Status) -> Value {
    let running = status.running().map(|(worker, shard, ns)| {
        json!({"shard": shard, "host": worker.host, "pid": worker.pid, "running_ns": ns})
    });
    json!({
        "schema": 1,
        "command": "shard status",
        "plan": status.terms.plan,
        "terms": status.terms,
        "work": status.work,
        "submitted": status.submitted,
        "shards": status.terms.shards,
        "done": status.counts.done,
        "parked": status.counts.parked,
        "with_errors": status.counts.with_errors,
        "leases_queued": status.counts.queued,
        "finished": status.is_finished(),
        "running": running.collect::<Vec<_>>(),
        "stragglers": status.stragglers(),
        "shards_per_s": status.shards_per_s(),
        "left_ns": status.left_ns(),
        "workers": status.workers,
        "parked_shards": status.parked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_queue::{Counts, Terms};

    #[test]
    fn forged_reports_neither_overflow_nor_control_the_terminal() {
        let report = WorkerReport {
            host: "h".to_owned(),
            shards: u64::MAX,
            files: u64::MAX,
            errors: u64::MAX,
            failed: u64::MAX,
            limited_by: Some("\u{1b}[2J".to_owned()),
            ..WorkerReport::default()
        };
        let (plan, shards, files) = ("p".to_owned(), 1, 1);
        let status = Status {
            terms: Terms { plan, shards, files, lease_ms: 1, tries: 1, created_ns: 1 },
            submitted: true,
            submitted_through: 1,
            work: None,
            counts: Counts::default(),
            workers: vec![report.clone(), report],
            parked: Vec::new(),
            now_ns: 1,
        };
        let text = words(&status);
        assert!(text.contains("limited by \\u{1b}[2J"), "{text}");
    }

    #[test]
    fn stragglers_are_named_before_other_running_shards() {
        const S: u64 = 1_000_000_000;
        let worker = |shard: u64| WorkerReport {
            seen_ns: 100 * S,
            shards: 10,
            busy_ns: 10 * S,
            current: Some((shard, if shard == 12 { 90 * S } else { 99 * S })),
            ..WorkerReport::default()
        };
        let (plan, shards, files) = ("p".to_owned(), 200, 200);
        let status = Status {
            terms: Terms { plan, shards, files, lease_ms: 1, tries: 1, created_ns: 1 },
            submitted: true,
            submitted_through: 200,
            work: None,
            counts: Counts::default(),
            workers: (1..=12).map(worker).collect(),
            parked: Vec::new(),
            now_ns: 100 * S,
        };
        assert!(line(&status).contains(", stragglers: 12\n"), "{}", line(&status));
        let text = words(&status);
        let first = text.lines().find(|line| line.starts_with("running")).unwrap();
        assert!(first.starts_with("running     shard 12 ") && first.ends_with("a straggler"));
    }
}
