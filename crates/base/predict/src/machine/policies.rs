//! The rules of thumb of source 000 (its summary, S1 to S7) as controllers.
//!
//! The rules name thread counts and when to change them; a thread that reads is a request in flight.
//! The numbers are those of the source: 12 readers with 12 compute threads, 24 and up to 64 threads
//! that map files, 16 threads for small files. The simulated machine has no mapping, so S1 and S6 count
//! with their thread numbers only, and what mapping itself saves or costs is not part of their scores.

use ioloom_control::{Batch, Decision, Phase, Reason, Tuner};

/// Names of the rules.
pub const NAMES: [&str; 7] = ["S1", "S2", "S3", "S4", "S5", "S6", "S7"];

/// Mean file size up to which files count as smaller than a page, in bytes.
const PAGE: f64 = 4096.0;
/// Mean file size from which files count as large: that of the large set.
const LARGE: f64 = 524_288.0;
/// Most threads of any rule; the source used 64.
const THREADS_MAX: f64 = 64.0;

/// Returns what a rule says.
pub fn statement(name: &str) -> &'static str {
    match name {
        "S1" => "small files: 24 threads that map; others: 12 readers",
        "S2" => "twice as many reads whenever the queue ran empty",
        "S3" => "four more readers whenever the queue keeps running empty",
        "S4" => "24 threads, divided by the share of time that computes",
        "S5" => "large files: 1 thread; others: 16",
        "S6" => "small files: 64 threads; others: 16",
        "S7" => "reads spread over the run: as many in flight as complete in two batches",
        _ => "",
    }
}

/// Creates a rule by name.
pub fn create(name: &str) -> Option<Box<dyn Tuner>> {
    let (rule, window) = match name {
        "S1" => (Rule::Mapped { small: 24, other: 12 }, 12),
        "S2" => (Rule::NeverEmpty, 12),
        "S3" => (Rule::MoreReaders { empty: 0 }, 4),
        "S4" => (Rule::Divide { computing: 0.5 }, 12),
        "S5" => (Rule::FewForLarge, 16),
        "S6" => (Rule::Mapped { small: 64, other: 16 }, 16),
        "S7" => (Rule::Spread { completed: 0.0 }, 24),
        _ => return None,
    };
    Some(Box::new(Policy { rule, window, now_ns: 0, bytes: 0, files: 0 }))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Mapped { small: u32, other: u32 },
    NeverEmpty,
    MoreReaders { empty: u32 },
    Divide { computing: f64 },
    FewForLarge,
    Spread { completed: f64 },
}

/// A rule with what it has seen.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Policy {
    rule: Rule,
    window: u32,
    now_ns: u64,
    bytes: u64,
    files: u64,
}

impl Tuner for Policy {
    fn window(&self) -> u32 {
        self.window
    }

    fn observe(&mut self, batch: &Batch) -> Option<Decision> {
        self.now_ns += batch.elapsed_ns;
        self.bytes += batch.bytes;
        self.files += batch.files;
        let mean = self.bytes as f64 / self.files.max(1) as f64;
        let known = self.files > 0;
        let now = f64::from(self.window);
        // The device had nothing to do for part of the batch, and not for lack of input.
        let empty = batch.in_flight < 1.0 && batch.misses > 0 && batch.input_limited < 0.5;
        let wanted = match &mut self.rule {
            Rule::Mapped { small, other } if known => {
                f64::from(if mean <= PAGE { *small } else { *other })
            }
            Rule::NeverEmpty if empty => 2.0 * now,
            Rule::MoreReaders { empty: times } => {
                *times = if empty { *times + 1 } else { 0 };
                if *times >= 2 { now + 4.0 } else { now }
            }
            Rule::Divide { computing } => {
                *computing += 0.1 * (1.0 - batch.idle - *computing);
                24.0 * (1.0 - *computing)
            }
            Rule::FewForLarge if known => {
                if mean >= LARGE {
                    1.0
                } else {
                    16.0
                }
            }
            Rule::Spread { completed } => {
                *completed += 0.1 * ((batch.misses + batch.hits) as f64 - *completed);
                2.0 * *completed
            }
            _ => now,
        };
        let from = self.window;
        self.window = wanted.round().clamp(1.0, THREADS_MAX) as u32;
        (self.window != from).then_some(Decision {
            at_ns: self.now_ns,
            from,
            window: self.window,
            phase: Phase::Hold,
            reason: Reason::Rule { value: wanted },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: u64, files: u64, in_flight: f64) -> Batch {
        Batch { elapsed_ns: 5_000_000, bytes, files, misses: files, in_flight, ..Batch::default() }
    }

    #[test]
    fn each_rule_does_what_its_statement_says() {
        let after = |name: &str, batch: Batch, times: usize| {
            let mut rule = create(name).unwrap();
            for _ in 0..times {
                rule.observe(&batch);
            }
            rule.window()
        };
        let (small, large) = (batch(40_000, 10, 8.0), batch(40 << 20, 10, 8.0));
        let starved = batch(40_000, 10, 0.4);
        assert_eq!((after("S1", small, 1), after("S1", large, 1)), (24, 12));
        assert_eq!((after("S2", small, 3), after("S2", starved, 2)), (12, 48));
        assert_eq!((after("S3", small, 3), after("S3", starved, 3)), (4, 12));
        let computing = Batch { idle: 0.0, ..small };
        let waiting = Batch { idle: 1.0, ..small };
        assert_eq!((after("S4", computing, 99), after("S4", waiting, 99)), (1, 24));
        assert_eq!((after("S5", small, 1), after("S5", large, 1)), (16, 1));
        assert_eq!((after("S6", small, 1), after("S6", large, 1)), (64, 16));
        assert_eq!(after("S7", small, 99), 20);
        assert!(create("S8").is_none());
        assert!(NAMES.iter().all(|name| !statement(name).is_empty()));
    }
}
