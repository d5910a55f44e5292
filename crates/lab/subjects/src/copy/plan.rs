//! Copy scenarios and their settings.

use ioloom_copy::{Durable, Mode, Tuning, Verify};
use ioloom_lab::subject::{Cost, Room};
use ioloom_model::units::format_size;
use ioloom_model::{AnyPlan, SubjectPlan};

/// Maximum block size of a plan.
const BLOCK_MAX: u64 = 64 << 20;
/// Maximum number of requests in flight, threads and copies in a series.
const DEPTH_MAX: u64 = 256;
const THREADS_MAX: u64 = 64;
const RUNS_MAX: u64 = 1000;
/// Request size of the published program.
const PUBLISHED_BLOCK_BYTES: u32 = 64 << 10;
/// Requests in flight of the published program.
const PUBLISHED_DEPTH: u32 = 4;

/// How to copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct How {
    /// The copy method; `None` lets the engine choose.
    pub(super) mode: Option<Mode>,
    pub(super) tuning: Tuning,
    /// Its description.
    words: &'static str,
    /// Whether the settings are those of the published program, as stated in the description.
    published: bool,
}

/// State of the source in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Cold,
    Warm,
    /// Under the experiment's cache condition (only for trees).
    Given,
}

/// What happens after the copy has returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settle {
    /// The file and its directory are synced.
    Sync,
    /// Nothing: writeback is left to the kernel.
    Alone,
}

/// Targets of a series of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Targets {
    /// One name; the previous copy is removed first.
    New,
    /// One name, overwriting the previous copy.
    Over,
    /// A new name for each copy.
    Kept,
}

/// Copying one file once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct One {
    pub(super) how: How,
    pub(super) source: Source,
    pub(super) settle: Settle,
    pub(super) verify: Verify,
}

/// Copying one file many times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Series {
    pub(super) how: How,
    pub(super) runs: usize,
    pub(super) targets: Targets,
}

/// Copying a tree of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) threads: Option<usize>,
    pub(super) source: Source,
    /// What the engine syncs.
    pub(super) durable: Durable,
}

/// Copying under memory pressure next to a file in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bystander {
    pub(super) how: How,
    /// Size of the file in use.
    pub(super) bystander_bytes: u64,
    /// Memory for both.
    pub(super) limit_bytes: u64,
}

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    One(One),
    Series(Series),
    Requests,
    Tree(Tree),
    Bystander(Bystander),
}

/// Settings of the copy method.
const TUNING: [&str; 4] = ["block", "depth", "threads", "presized"];

impl How {
    /// Returns the method named by `word`, with the settings of the plan.
    fn of(plan: &SubjectPlan, word: &str) -> Result<Self, String> {
        let published = |mode, depth, words| {
            if let Some(key) = TUNING.iter().find(|key| plan.settings.contains_key(**key)) {
                return Err(format!("{plan}: {word} fixes {key}; remove it"));
            }
            let tuning = Tuning {
                block_bytes: Some(PUBLISHED_BLOCK_BYTES),
                depth: Some(depth),
                threads: Some(1),
                extends: true,
            };
            Ok(Self { mode: Some(mode), tuning, words, published: true })
        };
        let mode = match word {
            "seed003-buffered" => {
                let words = "as published: through the page cache, 64 KiB per call, into a \
                    growing file";
                return published(Mode::Buffered, 1, words);
            }
            "seed003-direct" => {
                let words = "as published: by direct I/O, 64 KiB per request, 4 in flight, into a \
                             growing file, with a padded last block that is truncated";
                return published(Mode::Direct, PUBLISHED_DEPTH, words);
            }
            "auto" => None,
            other => Some(other.parse::<Mode>().map_err(|_| {
                format!(
                    "{plan}: no method '{other}'; there are: auto, buffered, uncached, range, \
                    direct, \
                     mmap, reflink, seed003-buffered, seed003-direct, and the scenarios series, \
                     requests, tree, beside"
                )
            })?),
        };
        let block = plan.size("block", BLOCK_MAX)?;
        let tuning = Tuning {
            block_bytes: block.map(|bytes| bytes as u32),
            depth: plan.count("depth", DEPTH_MAX)?.map(|n| n as u32),
            threads: plan.count("threads", THREADS_MAX)?.map(|n| n as u32),
            extends: !plan.choice("presized", true, &[("yes", true), ("no", false)])?,
        };
        if mode.is_none() && tuning != Tuning::default() {
            return Err(format!(
                "{plan}: auto chooses its own settings; name a method to set them"
            ));
        }
        Ok(Self { mode, tuning, words: words(mode), published: false })
    }

    /// Returns whether the source is always read from the device.
    pub(super) fn reads_device(&self) -> bool {
        self.mode == Some(Mode::Direct)
    }

    fn numbers(&self) -> String {
        let Tuning { block_bytes, depth, threads, extends } = self.tuning;
        let mut text = String::new();
        if let Some(bytes) = block_bytes {
            text.push_str(&format!(", {} per request", format_size(bytes.into())));
        }
        for (number, what) in [(depth, "in flight"), (threads, "threads")] {
            if let Some(number) = number.filter(|n| *n > 1) {
                text.push_str(&format!(", {number} {what}"));
            }
        }
        if extends {
            text.push_str(", into a growing file");
        }
        text
    }

    fn sentence(&self) -> String {
        if self.published {
            return self.words.to_owned();
        }
        format!("{}{}", self.words, self.numbers())
    }
}

const fn words(mode: Option<Mode>) -> &'static str {
    match mode {
        None => "by the method chosen by the engine",
        Some(Mode::Reflink) => "by sharing blocks",
        Some(Mode::Range) => "by the kernel (copy_file_range)",
        Some(Mode::Buffered) => "through the page cache",
        Some(Mode::Uncached) => "through page cache pages that are dropped after writeback",
        Some(Mode::Direct) => "by direct I/O",
        Some(Mode::Mmap) => "from a mapping of the source",
    }
}

const SOURCE: [(&str, Source); 2] = [("cold", Source::Cold), ("warm", Source::Warm)];
const SOURCE_TREE: [(&str, Source); 3] = [SOURCE[0], SOURCE[1], ("given", Source::Given)];
const SETTLE: [(&str, Settle); 2] = [("sync", Settle::Sync), ("alone", Settle::Alone)];
const TARGETS: [(&str, Targets); 3] =
    [("new", Targets::New), ("over", Targets::Over), ("kept", Targets::Kept)];
const DURABLE: [(&str, Durable); 3] =
    [("none", Durable::None), ("file", Durable::File), ("full", Durable::Full)];
const VERIFY: [(&str, Verify); 4] = [
    ("none", Verify::None),
    ("in-flight", Verify::InFlight),
    ("cache", Verify::Cache),
    ("device", Verify::Device),
];

impl Scenario {
    pub(super) fn of(plan: &AnyPlan) -> Result<Self, String> {
        let own = plan.for_subject("copy").ok_or_else(|| format!("{plan}: not a copy"))?;
        let only = |keys: &[&str]| own.allow_only(&[keys, &TUNING].concat());
        let named = || {
            let way =
                own.settings.get("way").ok_or_else(|| format!("{plan}: way=WAY is needed"))?;
            How::of(own, way)
        };
        match own.method.as_str() {
            "requests" => own.allow_only(&[]).map(|()| Self::Requests),
            "series" => {
                only(&["way", "runs", "target"])?;
                let runs = own.count("runs", RUNS_MAX)?.unwrap_or(12) as usize;
                if runs < 6 {
                    return Err(format!("{plan}: a series needs at least 6 runs"));
                }
                let targets = own.choice("target", Targets::New, &TARGETS)?;
                Ok(Self::Series(Series { how: named()?, runs, targets }))
            }
            "tree" => {
                // Named `workers` because ladders over `threads` also run in small images, which
                // have no room for copies.
                own.allow_only(&["workers", "source", "durable"])?;
                let threads = own.count("workers", THREADS_MAX)?.map(|n| n as usize);
                let source = own.choice("source", Source::Warm, &SOURCE_TREE)?;
                let durable = own.choice("durable", Durable::None, &DURABLE)?;
                Ok(Self::Tree(Tree { threads, source, durable }))
            }
            "beside" => {
                only(&["way", "bystander", "memory"])?;
                let bystander = own.size("bystander", u64::MAX)?.unwrap_or(64 << 20);
                let limit = own.size("memory", u64::MAX)?.unwrap_or(192 << 20);
                let how = named()?;
                Ok(Self::Bystander(Bystander {
                    how,
                    bystander_bytes: bystander,
                    limit_bytes: limit,
                }))
            }
            way => {
                let how = How::of(own, way)?;
                only(&["source", "settle", "verify"])?;
                let source = own.choice("source", Source::Cold, &SOURCE)?;
                let settle = own.choice("settle", Settle::Sync, &SETTLE)?;
                let verify = own.choice("verify", Verify::None, &VERIFY)?;
                Ok(Self::One(One { how, source, settle, verify }))
            }
        }
    }

    /// Returns the most that a run stores in addition to its set of the given cost.
    pub(super) fn writes(self, set: Cost) -> Room {
        let (copies, more) = match self {
            Self::Requests | Self::One(_) | Self::Tree(_) => (1, 0),
            Self::Bystander(scenario) => (1, scenario.bystander_bytes),
            Self::Series(Series { targets: Targets::Kept, runs, .. }) => (runs as u64, 0),
            // A copy replaces the one before, so both exist for a moment.
            Self::Series(_) => (2, 0),
        };
        Room {
            bytes: set.bytes.saturating_mul(copies).saturating_add(more),
            files: set.files.saturating_mul(copies),
        }
    }

    /// Returns a human-readable description.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::One(one) => {
                let from = match one.source {
                    Source::Cold | Source::Given => "from the device",
                    Source::Warm => "from the page cache",
                };
                let then = match one.settle {
                    Settle::Sync => "then the file and its directory are synced",
                    Settle::Alone => "then it is left to the kernel's writeback",
                };
                let verified = match one.verify {
                    Verify::None => "",
                    Verify::InFlight => ", hashed during the copy",
                    Verify::Cache => ", read back through the page cache",
                    Verify::Device => ", read back from the device",
                };
                format!("a file {from} is copied {}{verified}; {then}", one.how.sentence())
            }
            Self::Series(series) => {
                let target = match series.targets {
                    Targets::New => "each after removing the previous copy",
                    Targets::Over => "each overwriting the previous copy",
                    Targets::Kept => "each to a new name",
                };
                let (runs, how) = (series.runs, series.how.sentence());
                format!("the file is copied {runs} times {how}, {target}")
            }
            Self::Requests => {
                "direct requests of 335, 981 and 7171 bytes, and truncating a padded \
                               file"
                    .to_owned()
            }
            Self::Tree(tree) => {
                let threads = match tree.threads {
                    None => "an automatic number of threads".to_owned(),
                    Some(1) => "one thread".to_owned(),
                    Some(n) => format!("{n} threads"),
                };
                let from = match tree.source {
                    Source::Cold => "data from the device",
                    Source::Warm => "data from the page cache",
                    Source::Given => "data in the condition of the experiment",
                };
                let waits = match tree.durable {
                    Durable::None => "",
                    Durable::File => ", syncing each file before it gets its name",
                    Durable::Full => ", syncing files and directories before the end",
                };
                format!(
                    "a tree is copied by {threads}, {from}{waits}; then the file system is synced"
                )
            }
            Self::Bystander(scenario) => format!(
                "with {} of memory, a file is copied {} while {} remain in use",
                format_size(scenario.limit_bytes),
                scenario.how.sentence(),
                format_size(scenario.bystander_bytes)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Scenario, String> {
        Scenario::of(&text.parse().unwrap())
    }

    #[test]
    fn the_published_plans_are_what_was_published() {
        let Ok(Scenario::One(one)) = of("copy:seed003-direct/source=warm") else { panic!("one") };
        let tuning =
            Tuning { block_bytes: Some(65536), depth: Some(4), threads: Some(1), extends: true };
        assert_eq!((one.how.mode, one.how.tuning), (Some(Mode::Direct), tuning));
        assert_eq!((one.source, one.settle), (Source::Warm, Settle::Sync));
        let Ok(Scenario::Series(series)) = of("copy:series/way=seed003-buffered") else {
            panic!("a series")
        };
        assert_eq!((series.how.mode, series.runs), (Some(Mode::Buffered), 12));
        assert!(series.how.tuning.extends);
        assert!(of("copy:auto").is_ok_and(|scenario| scenario.sentence().contains("chosen")));
    }

    #[test]
    fn what_no_machine_could_do_is_refused_with_a_word() {
        for (text, part) in [
            ("copy:fast", "no method 'fast'"),
            ("copy:seed003-direct/depth=8", "fixes depth"),
            ("copy:auto/block=64KiB", "chooses its own settings"),
            ("copy:direct/block=5000", "multiple of 4 KiB"),
            ("copy:direct/depth=0", "depth must be 1 to 256"),
            ("copy:direct/presized=maybe", "presized must be one of yes, no"),
            ("copy:direct/speed=1", "unknown setting 'speed'"),
            ("copy:series/way=direct,runs=5", "at least 6"),
            ("copy:series", "way=WAY is needed"),
            ("copy:requests/depth=1", "unknown setting 'depth'"),
            ("copy:tree/block=64KiB", "unknown setting 'block'"),
            ("copy:direct/source=given", "source must be one of cold, warm"),
            ("copy:tree/durable=yes", "durable must be one of none, file, full"),
            ("read/threads:n=1", "not a copy"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
