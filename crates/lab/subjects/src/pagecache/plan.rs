//! Page cache scenarios and their settings.

use ioloom_model::units::format_size;
use ioloom_model::{AnyPlan, SubjectPlan};
use ioloom_sys::file::WriteMode;

/// Maximum block size and file size of a plan.
const BLOCK_MAX: u64 = 64 << 20;
const BYTES_MAX: u64 = 64 << 30;
/// Maximum number of files in a series, and their published request size.
const RUNS_MAX: u64 = 1000;
const AGAIN_BLOCK_BYTES: usize = 1 << 20;
/// Default size and granularity of data that is dropped or read through the device.
const PART_BYTES: u64 = 16 << 20;
pub(super) const PART_STEP: u64 = 1 << 20;
/// Granularity of memory limits, which makes each part of a limit a multiple of 1 MiB.
const LIMIT_STEP: u64 = 16 << 20;
/// Speed of a slow disk: bytes per second, and seconds per sync.
const SLOW_BYTES_PER_S: f64 = 20e6;
const SLOW_SYNC_S: f64 = 0.02;
/// Default and maximum number of seconds that a file is left to writeback.
const WAIT_S: u32 = 8;
const WAIT_MAX_S: u64 = 120;

/// Reading one file twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadTwice {
    pub(super) block: usize,
}

/// How a write finishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// After the last write has returned.
    Returned,
    /// After fdatasync.
    DataSync,
    /// The file is removed immediately.
    Removed,
    /// The file is left to the kernel's writeback for up to this many seconds.
    Left(u32),
}

/// Writing one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) how: WriteMode,
    pub(super) end: End,
    pub(super) block: usize,
    pub(super) bytes: u64,
}

/// Writing a series of files with direct I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) runs: usize,
    /// Size of each file.
    pub(super) bytes: u64,
}

impl Again {
    /// Returns the scenario for writing one of its files.
    pub(super) fn one(self) -> Write {
        let (how, end) = (WriteMode::Direct, End::Returned);
        Write { how, end, block: AGAIN_BLOCK_BYTES, bytes: self.bytes }
    }
}

/// Memory pressure in a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reclaim {
    /// Memory limit of the group.
    pub(super) limit_bytes: u64,
}

impl Reclaim {
    /// Returns the bytes of clean pages, which equal the bytes of dirty pages.
    pub(super) fn kind_bytes(self) -> u64 {
        self.limit_bytes / 8 * 3
    }

    /// Returns the bytes of memory to allocate, which leaves room for a third of the page cache.
    pub(super) fn taken_bytes(self) -> u64 {
        self.limit_bytes / 4 * 3
    }
}

/// The first part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// A multiple of [`PART_STEP`].
    pub(super) bytes: u64,
}

impl Part {
    fn of(plan: &AnyPlan, own: &SubjectPlan) -> Result<Self, String> {
        own.allow_only(&["bytes"])?;
        let bytes = own.size("bytes", BYTES_MAX)?.unwrap_or(PART_BYTES);
        if bytes == 0 || !bytes.is_multiple_of(PART_STEP) {
            let step = format_size(PART_STEP);
            return Err(format!("{plan}: bytes must be a multiple of {step}, at least one"));
        }
        Ok(Self { bytes })
    }
}

/// A scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    ReadTwice(ReadTwice),
    Write(Write),
    Again(Again),
    Reclaim(Reclaim),
    Dropped(Part),
    Device(Part),
    Shell,
    Limits,
}

const HOW: [(&str, WriteMode); 4] = [
    ("buffered", WriteMode::Buffered),
    ("direct", WriteMode::Direct),
    ("sync", WriteMode::Sync),
    ("dsync", WriteMode::DataSync),
];
const END: [(&str, End); 4] = [
    ("returned", End::Returned),
    ("fdatasync", End::DataSync),
    ("rm", End::Removed),
    ("left", End::Left(WAIT_S)),
];

impl Scenario {
    pub(super) fn of(plan: &AnyPlan) -> Result<Self, String> {
        let own = plan
            .for_subject("pagecache")
            .ok_or_else(|| format!("{plan}: not a plan of the page cache"))?;
        match own.method.as_str() {
            "read-twice" => {
                own.allow_only(&["block"])?;
                let block = own.size("block", BLOCK_MAX)?.unwrap_or(128 << 10) as usize;
                Ok(Self::ReadTwice(ReadTwice { block }))
            }
            "write" => {
                own.allow_only(&["how", "end", "block", "bytes", "wait"])?;
                let block = own.size("block", BLOCK_MAX)?.unwrap_or(1 << 20);
                let all = own.size("bytes", BYTES_MAX)?.unwrap_or(256 << 20);
                if !all.is_multiple_of(block) {
                    return Err(format!("{plan}: bytes must be a multiple of block"));
                }
                let how = own.choice("how", WriteMode::Buffered, &HOW)?;
                let end =
                    match (own.choice("end", End::Returned, &END)?, own.count("wait", WAIT_MAX_S)?)
                    {
                        (End::Left(_), Some(seconds)) => End::Left(seconds as u32),
                        (_, Some(_)) => {
                            return Err(format!("{plan}: wait needs end=left"));
                        }
                        (end, None) => end,
                    };
                Ok(Self::Write(Write { how, end, block: block as usize, bytes: all }))
            }
            "again" => {
                own.allow_only(&["runs", "bytes"])?;
                let runs = own.count("runs", RUNS_MAX)?.unwrap_or(20) as usize;
                let bytes = own.size("bytes", BYTES_MAX)?.unwrap_or(16 << 20);
                if runs < 6 || !bytes.is_multiple_of(AGAIN_BLOCK_BYTES as u64) {
                    return Err(format!(
                        "{plan}: runs must be at least 6, bytes a multiple of 1 MiB"
                    ));
                }
                Ok(Self::Again(Again { runs, bytes }))
            }
            "reclaim" => {
                own.allow_only(&["limit"])?;
                let limit_bytes = own.size("limit", BYTES_MAX)?.unwrap_or(128 << 20);
                if !limit_bytes.is_multiple_of(LIMIT_STEP) {
                    let step = format_size(LIMIT_STEP);
                    return Err(format!("{plan}: limit must be a multiple of {step}"));
                }
                Ok(Self::Reclaim(Reclaim { limit_bytes }))
            }
            "drop" => Part::of(plan, own).map(Self::Dropped),
            "device" => Part::of(plan, own).map(Self::Device),
            "shell" => own.allow_only(&[]).map(|()| Self::Shell),
            "limits" => own.allow_only(&[]).map(|()| Self::Limits),
            other => Err(format!(
                "{plan}: no scenario '{other}'; there are: read-twice, write, again, reclaim, \
                drop, \
                 device, shell, limits"
            )),
        }
    }

    /// Returns the seconds on a slow disk beyond reading the `bytes` of its file once. It writes
    /// another file, of the size in the plan.
    pub(super) fn takes_s(self, bytes: u64) -> f64 {
        let moved = |bytes: u64| bytes as f64 / SLOW_BYTES_PER_S;
        match self {
            Self::ReadTwice(_) => moved(bytes),
            Self::Write(scenario) => {
                let each = matches!(scenario.how, WriteMode::Sync | WriteMode::DataSync);
                let syncs = if each { scenario.bytes / scenario.block as u64 } else { 1 };
                let left =
                    if let End::Left(seconds) = scenario.end { f64::from(seconds) } else { 0.0 };
                moved(scenario.bytes) + syncs as f64 * SLOW_SYNC_S + left
            }
            Self::Again(scenario) => moved(scenario.runs as u64 * scenario.bytes),
            Self::Reclaim(scenario) => moved(4 * scenario.limit_bytes),
            Self::Dropped(scenario) => moved(3 * scenario.bytes) + SLOW_SYNC_S,
            Self::Device(scenario) => moved(3 * scenario.bytes) + 4.0 * SLOW_SYNC_S,
            Self::Shell | Self::Limits => 0.0,
        }
    }

    /// Returns the bytes of the files that it has written and not yet removed.
    pub(super) fn writes_bytes(self) -> u64 {
        match self {
            Self::ReadTwice(_) | Self::Shell | Self::Limits => 0,
            Self::Write(scenario) => scenario.bytes,
            Self::Again(scenario) => 2 * scenario.bytes,
            Self::Reclaim(scenario) => 2 * scenario.kind_bytes(),
            Self::Dropped(scenario) | Self::Device(scenario) => scenario.bytes,
        }
    }

    /// Returns a human-readable description.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::ReadTwice(scenario) => format!(
                "the file is read from the device, then from the page cache, {} per call; then \
                 another process reads it",
                format_size(scenario.block as u64)
            ),
            Self::Write(scenario) => {
                let how = match scenario.how {
                    WriteMode::Buffered => "through the page cache",
                    WriteMode::Direct => "by direct I/O",
                    WriteMode::Sync => "with O_SYNC",
                    WriteMode::DataSync => "with O_DSYNC",
                };
                let end = match scenario.end {
                    End::Returned => "until the last call returns",
                    End::DataSync => "then one fdatasync",
                    End::Removed => "then the file is removed",
                    End::Left(_) => "then it is left to the kernel's writeback",
                };
                let (bytes, block) =
                    (format_size(scenario.bytes), format_size(scenario.block as u64));
                format!("{bytes} is written {how}, {block} per call, {end}")
            }
            Self::Again(scenario) => format!(
                "{} is written by direct I/O {} times, each time to a new file",
                format_size(scenario.bytes),
                scenario.runs
            ),
            Self::Reclaim(scenario) => format!(
                "in a cgroup with {} of memory, {} of clean pages and as many dirty pages are \
                loaded; then {} of memory is allocated, and the reclaimed pages are counted",
                format_size(scenario.limit_bytes),
                format_size(scenario.kind_bytes()),
                format_size(scenario.taken_bytes())
            ),
            Self::Dropped(scenario) => format!(
                "{0} is read from a file, {0} is written to another file and {0} to a file on \
                tmpfs; then the page cache of the system is dropped, first without and then after \
                a sync",
                format_size(scenario.bytes)
            ),
            Self::Device(scenario) => format!(
                "{} is read through the file and then through its device; then another file is \
                overwritten and read through the device before and after a sync",
                format_size(scenario.bytes)
            ),
            Self::Shell => {
                "every installed shell redirects the output of a command to a file that its user \
                cannot write"
                    .to_owned()
            }
            Self::Limits => "the dirty page limits are compared with memory".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_limit_covers_what_a_scenario_writes() {
        let takes = |text: &str| Scenario::of(&text.parse().unwrap()).unwrap().takes_s(1 << 20);
        assert!(takes("pagecache:write/bytes=16GiB") > 800.0);
        assert!(takes("pagecache:write/how=sync,block=4KiB,bytes=64MiB") > 300.0);
        assert!(takes("pagecache:write/how=sync,block=1MiB,bytes=4MiB") < 1.0);
        assert_eq!(takes("pagecache:limits"), 0.0);
        let left = takes("pagecache:write/end=left,bytes=1MiB,wait=30");
        assert!((30.0..31.0).contains(&left), "{left}");
    }

    #[test]
    fn plans_are_understood_or_refused_with_a_word() {
        let of = |text: &str| Scenario::of(&text.parse().unwrap());
        let write =
            Write { how: WriteMode::Direct, end: End::DataSync, block: 1 << 20, bytes: 64 << 20 };
        let text = "pagecache:write/how=direct,end=fdatasync,bytes=64MiB";
        assert_eq!(of(text), Ok(Scenario::Write(write)));
        assert_eq!(of("pagecache:limits"), Ok(Scenario::Limits));
        for (text, part) in [
            ("pagecache:write/how=fast", "one of buffered, direct"),
            ("pagecache:write/block=5000", "multiple of 4 KiB"),
            ("pagecache:write/block=3MiB,bytes=64MiB", "multiple of block"),
            ("pagecache:write/speed=1", "unknown setting 'speed'"),
            ("pagecache:write/end=rm,wait=3", "wait needs end=left"),
            ("pagecache:again/runs=2", "runs must be at least 6"),
            ("pagecache:reclaim/limit=40MiB", "multiple of 16.0 MiB"),
            ("pagecache:drop/bytes=5KiB", "multiple of"),
            ("pagecache:device/bytes=0", "bytes"),
            ("pagecache:shell/bytes=1MiB", "unknown setting"),
            ("pagecache:forget", "no scenario 'forget'"),
            ("read/threads:n=1", "not a plan of the page cache"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
