//! The evidence in one sentence.

use super::decide::{NoVerdict, Verdict};
use super::facts::Facts;
use super::kind::Limit;
use super::shares::Shares;
use ioloom_model::CallKind;
use ioloom_model::units::format_ns;

/// Requests in flight are not worth mentioning if the device has a smaller share.
const SMALL_PERCENT: u32 = 5;

/// Mean size of files from which reads spend their processor time on copying.
const COPIED_BYTES: u64 = 1 << 20;

impl Verdict {
    /// Returns the evidence in one sentence, without the word of the limit.
    pub fn sentence(&self, facts: &Facts) -> String {
        let Some(shares) = &self.shares else { return self.without_shares(facts) };
        if self.limit == Limit::Unknown {
            let why = match self.reason {
                Some(NoVerdict::Spread) => "no single cause took a quarter of the time",
                _ => "the evidence does not explain most of the time",
            };
            return format!("{why}; usable processor time: {}", listed(shares, &[]));
        }
        let mut text = format!(
            "{} {} % of the usable processor time{}",
            cause(self.limit, facts),
            shares.of(self.limit),
            parts(self.limit, shares)
        );
        let mut named = vec![self.limit];
        if let Some(close) = self.close {
            text += &format!(", closely followed by {} with {} %", name(close), shares.of(close));
            named.push(close);
        }
        let rest = listed(shares, &named);
        if !rest.is_empty() {
            text += &format!(" (the rest: {rest})");
        }
        format!("{text}: {}", advice(self.limit, facts, shares))
    }

    fn without_shares(&self, facts: &Facts) -> String {
        match self.reason {
            Some(NoVerdict::NoFiles) => "no file was processed".to_owned(),
            Some(NoVerdict::TooShort) => {
                let elapsed = format_ns(facts.elapsed_ns as f64);
                format!("the run took only {elapsed}, too short to judge")
            }
            _ => "nothing ran".to_owned(),
        }
    }
}

/// Returns subject and verb of the sentence about a limit.
fn cause(limit: Limit, facts: &Facts) -> String {
    match limit {
        Limit::Device if facts.device_bytes == Some(0) => {
            "waiting for the file system, which read no local device, took".to_owned()
        }
        Limit::Device => "waiting for data took".to_owned(),
        Limit::Metadata => match facts.costliest {
            Some(kind) => format!("system calls on files, most of all {}, took", kind.name()),
            None => "system calls took".to_owned(),
        },
        Limit::Compute => "the function took".to_owned(),
        Limit::HandOver => "threads waiting for each other took".to_owned(),
        Limit::Memory => "waiting for the memory budget took".to_owned(),
        Limit::InputList => "waiting for the next path took".to_owned(),
        Limit::OtherPrograms => "other programs took".to_owned(),
        Limit::Quota => "the processor quota of the control group took".to_owned(),
        Limit::ChildProcesses => "child processes took".to_owned(),
        Limit::FunctionWaits => "sleep, locks and other waits inside the function took".to_owned(),
        Limit::Output => "waiting for the reader of results took".to_owned(),
        Limit::Unknown => String::new(),
    }
}

/// Returns the parts of a share, if there are two.
fn parts(limit: Limit, shares: &Shares) -> String {
    let all = shares.of(limit);
    match limit {
        Limit::ChildProcesses => {
            let ran = shares.children_ran;
            format!(", {ran} % running and {} % waiting", all - ran)
        }
        Limit::OtherPrograms if shares.others_device > 0 => {
            let device = shares.others_device;
            format!(", {} % on the processors and {device} % on the device", all - device)
        }
        _ => String::new(),
    }
}

/// Returns the name of a limit within a sentence.
fn name(limit: Limit) -> &'static str {
    match limit {
        Limit::HandOver => "waits for other threads",
        Limit::InputList => "waits for the input list",
        Limit::FunctionWaits => "waits inside the function",
        Limit::Output => "waits for the reader of results",
        Limit::Memory => "the memory budget",
        Limit::Quota => "the processor quota",
        other => other.word(),
    }
}

/// Lists the shares of limits that are not `named`.
fn listed(shares: &Shares, named: &[Limit]) -> String {
    let ranked = shares.ranked().into_iter();
    let rest = ranked.filter(|(limit, percent)| *percent > 0 && !named.contains(limit));
    let words: Vec<_> =
        rest.map(|(limit, percent)| format!("{} {percent} %", name(limit))).collect();
    words.join(", ")
}

/// Reports whether most processor time of system calls is that of copying from the page cache.
fn copies(facts: &Facts) -> bool {
    let reads = matches!(facts.costliest, Some(CallKind::Read | CallKind::Completion));
    let mean = facts.bytes / facts.files.max(1);
    reads && (mean >= COPIED_BYTES || facts.one_file_percent().is_some())
}

/// Returns the advice if one file took almost the whole run, where more threads would help otherwise.
fn of_one_file(limit: Limit, facts: &Facts) -> Option<String> {
    let percent = facts.one_file_percent()?;
    let (helps, does) = match limit {
        Limit::Device if facts.device_bytes == Some(0) => {
            ("a faster file system would help", "reads")
        }
        Limit::Device => ("a faster device would help", "reads"),
        Limit::Metadata if copies(facts) => ("copying from the page cache is the work", "reads"),
        Limit::Compute => ("a faster function would help", "computes"),
        _ => return None,
    };
    Some(format!(
        "{helps}; one file took {percent} % of the run, and one thread {does} each file, so more \
         threads would not help"
    ))
}

fn advice(limit: Limit, facts: &Facts, shares: &Shares) -> String {
    if let Some(advice) = of_one_file(limit, facts) {
        return advice;
    }
    let fewer_threads = facts.threads < facts.cores || facts.fewer_permits;
    match limit {
        Limit::Device if facts.device_bytes == Some(0) => {
            "a faster file system, or more requests in flight, would help".to_owned()
        }
        Limit::Device => "a faster device, or more reads in flight, would help".to_owned(),
        Limit::Compute if facts.files < u64::from(facts.threads.max(2).min(facts.cores)) => {
            "a faster function would help; one thread computes each file, so more threads would not"
                .to_owned()
        }
        Limit::Metadata if copies(facts) => {
            let more = if fewer_threads { "more threads" } else { "more cores" };
            format!("copying from the page cache is the work, and {more} would help")
        }
        Limit::Metadata if fewer_threads => "more threads, or fewer files, would help".to_owned(),
        Limit::Metadata => "more cores, or fewer and larger files, would help".to_owned(),
        Limit::Compute => {
            let more = if fewer_threads { "more threads" } else { "more cores" };
            let device = if shares.of(Limit::Device) < SMALL_PERCENT {
                ", a faster device would not"
            } else {
                ""
            };
            format!("{more}, or a faster function, would help{device}")
        }
        Limit::HandOver => "another schedule or number of threads may help".to_owned(),
        Limit::Memory if facts.reserve_ns > facts.memory_ns => {
            "a larger memory budget, or smaller reservations of the function, would help".to_owned()
        }
        Limit::Memory => {
            "a larger memory budget, or dropping retained bytes sooner, would help".to_owned()
        }
        Limit::InputList => "a faster source of paths would help, nothing else would".to_owned(),
        Limit::OtherPrograms => "the run would be faster on an idle machine".to_owned(),
        Limit::Quota => "a larger quota of the control group would help".to_owned(),
        Limit::ChildProcesses => "a faster program, or more of them at once, would help".to_owned(),
        Limit::FunctionWaits => {
            "more calls at once help if they sleep, shorter waits in any case".to_owned()
        }
        Limit::Output => "a faster reader of the results would help, nothing else would".to_owned(),
        Limit::Unknown => String::new(),
    }
}
