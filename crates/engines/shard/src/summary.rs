//! What parts say about hosts, workers and time.

use crate::census::Census;
use crate::part::PartHeader;
use serde::Serialize;
use std::collections::BTreeMap;

/// Shards that took longer than this many times the median are slow.
pub const SLOW_FACTOR: u64 = 3;
/// The number of slowest shards that are listed.
const SLOWEST: usize = 10;

/// The shards of one host.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Host {
    /// Its name.
    pub host: String,
    /// Its shards.
    pub shards: u64,
    /// Files that were processed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that failed.
    pub errors: u64,
    /// Sum of the durations of its shards, in nanoseconds.
    pub busy_ns: u64,
    /// Processor time, in nanoseconds.
    pub cpu_ns: u64,
    /// What limited its shards: time in nanoseconds by word.
    pub limits_ns: BTreeMap<String, u64>,
    /// What limited them most.
    pub limited_by: Option<String>,
    /// The sentence of the longest shard with that limit.
    pub why: Option<String>,
}

/// The shards that one worker ran one after another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lane {
    /// The host.
    pub host: String,
    /// The name that the user gave the worker. Otherwise, shards of a host that do not overlap are
    /// attributed to the same lane.
    pub worker: Option<String>,
    /// Its shards in the order of their start.
    pub shards: Vec<Span>,
}

/// One shard of a worker.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    /// The number of the shard.
    pub shard: u64,
    /// Its start, in nanoseconds after the first shard of all.
    pub start_ns: u64,
    /// Its end on the same scale.
    pub end_ns: u64,
    /// Files that were processed or failed.
    pub files: u64,
}

/// What parts say about hosts, workers and time. Times of several hosts are as comparable as the
/// clocks of these hosts.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Files that were processed.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Files that failed.
    pub errors: u64,
    /// Start of the first shard, in nanoseconds since 1970.
    pub started_ns: u64,
    /// Time from the start of the first shard to the end of the last.
    pub elapsed_ns: u64,
    /// Sum of the durations of all shards.
    pub busy_ns: u64,
    /// Processor time.
    pub cpu_ns: u64,
    /// Median duration of a shard.
    pub median_ns: u64,
    /// All hosts by name.
    pub hosts: Vec<Host>,
    /// The slowest shards: number, host and duration.
    pub slowest: Vec<(u64, String, u64)>,
    /// The number of shards that took longer than [`SLOW_FACTOR`] times the median.
    pub slow: u64,
    /// The shards of each worker.
    pub timeline: Vec<Lane>,
}

impl Summary {
    /// Summarises the valid parts of a census.
    pub fn of(census: &Census) -> Self {
        let parts: Vec<&PartHeader> = census.complete().map(|part| &part.header).collect();
        let mut all = Self::default();
        let mut hosts: BTreeMap<&str, Vec<&PartHeader>> = BTreeMap::new();
        for part in &parts {
            all.files = all.files.saturating_add(part.found.files);
            all.bytes = all.bytes.saturating_add(part.found.bytes);
            all.errors = all.errors.saturating_add(part.found.errors);
            all.busy_ns = all.busy_ns.saturating_add(part.found.elapsed_ns);
            all.cpu_ns = all.cpu_ns.saturating_add(part.found.cpu_ns);
            hosts.entry(&part.by.host).or_default().push(part);
        }
        all.started_ns = parts.iter().map(|part| part.by.started_ns).min().unwrap_or(0);
        let end = parts.iter().map(|part| end_ns(part)).max().unwrap_or(0);
        all.elapsed_ns = end.saturating_sub(all.started_ns);
        let mut by_time: Vec<_> = parts
            .iter()
            .map(|part| (part.shard, part.by.host.clone(), part.found.elapsed_ns))
            .collect();
        by_time.sort_by_key(|(shard, _, ns)| (std::cmp::Reverse(*ns), *shard));
        all.median_ns = by_time.get(by_time.len() / 2).map_or(0, |(_, _, ns)| *ns);
        let slow = all.median_ns.saturating_mul(SLOW_FACTOR);
        all.slow = by_time.iter().filter(|(_, _, ns)| *ns > slow).count() as u64;
        by_time.truncate(SLOWEST);
        all.slowest = by_time;
        all.hosts = hosts.iter().map(|(name, parts)| host(name, parts)).collect();
        for parts in hosts.values() {
            all.timeline.extend(lanes(parts, all.started_ns));
        }
        all
    }
}

/// Returns when a shard ended. The clock can have been set since it began, so its duration decides.
fn end_ns(part: &PartHeader) -> u64 {
    part.by.started_ns.saturating_add(part.found.elapsed_ns)
}

fn host(name: &str, parts: &[&PartHeader]) -> Host {
    let mut host = Host { host: name.to_owned(), ..Host::default() };
    for part in parts {
        let found = &part.found;
        host.shards += 1;
        host.files = host.files.saturating_add(found.files);
        host.bytes = host.bytes.saturating_add(found.bytes);
        host.errors = host.errors.saturating_add(found.errors);
        host.busy_ns = host.busy_ns.saturating_add(found.elapsed_ns);
        host.cpu_ns = host.cpu_ns.saturating_add(found.cpu_ns);
        if let Some(word) = &found.limited_by {
            let limit_ns = host.limits_ns.entry(word.clone()).or_default();
            *limit_ns = limit_ns.saturating_add(found.elapsed_ns);
        }
    }
    let most = host.limits_ns.iter().max_by_key(|(_, ns)| **ns);
    host.limited_by = most.map(|(word, _)| word.clone());
    let longest = parts
        .iter()
        .filter(|part| part.found.limited_by == host.limited_by)
        .max_by_key(|part| part.found.elapsed_ns);
    host.why = longest.and_then(|part| part.found.why.clone());
    host
}

/// Attributes the shards of a host to workers.
fn lanes(parts: &[&PartHeader], origin: u64) -> Vec<Lane> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|part| (part.by.started_ns, part.shard));
    let mut lanes: Vec<(u64, Lane)> = Vec::new();
    for part in parts {
        let (start, end) = (part.by.started_ns, end_ns(part));
        let span = Span {
            shard: part.shard,
            start_ns: start.saturating_sub(origin),
            end_ns: end.saturating_sub(origin),
            files: part.found.files.saturating_add(part.found.errors),
        };
        let free = lanes.iter_mut().find(|(until, lane)| {
            lane.worker == part.by.worker && (part.by.worker.is_some() || *until <= start)
        });
        match free {
            Some((until, lane)) => {
                *until = end.max(*until);
                lane.shards.push(span);
            }
            None => {
                let (host, worker) = (part.by.host.clone(), part.by.worker.clone());
                lanes.push((end, Lane { host, worker, shards: vec![span] }));
            }
        }
    }
    lanes.into_iter().map(|(_, lane)| lane).collect()
}

/// How far a plan is.
#[derive(Debug, Default, Clone, PartialEq, Serialize)]
pub struct Progress {
    /// Files of complete shards per second, from the start of the first shard to now, or to the end of
    /// the last if no shard is running.
    pub files_per_s: Option<f64>,
    /// Time for the remaining files at this rate, if any shard is running.
    pub eta_ns: Option<u64>,
    /// Running shards that take longer than [`SLOW_FACTOR`] times the median of the complete ones.
    pub stragglers: Vec<u64>,
}

impl Progress {
    /// Computes the progress at `now_ns`, with `files` in the whole plan.
    pub fn of(census: &Census, summary: &Summary, files: u64, now_ns: u64) -> Self {
        let running: Vec<_> = census.unfinished.iter().filter(|begun| !begun.ended).collect();
        let end = match running.is_empty() {
            true => summary.started_ns.saturating_add(summary.elapsed_ns),
            false => now_ns,
        };
        let seconds = end.saturating_sub(summary.started_ns) as f64 / 1e9;
        let done = summary.files.saturating_add(summary.errors);
        let rate = (done > 0 && seconds > 0.0).then(|| done as f64 / seconds);
        let rest = files.saturating_sub(done) as f64;
        let eta = rate.filter(|_| !running.is_empty()).map(|rate| (rest / rate * 1e9) as u64);
        let slow = summary.median_ns.saturating_mul(SLOW_FACTOR);
        let is_slow = |started: u64| slow > 0 && now_ns.saturating_sub(started) > slow;
        let stragglers = running.iter().filter(|begun| is_slow(begun.by.started_ns));
        let stragglers = stragglers.map(|begun| begun.shard).collect();
        Self { files_per_s: rate, eta_ns: eta, stragglers }
    }
}
