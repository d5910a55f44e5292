//! What a play is, and its settings.

use ioloom_model::units::format_size;
use ioloom_model::{AnyPlan, SubjectPlan};
use ioloom_sys::file::WriteMode;

/// Largest block and file that a plan may ask for.
const BLOCK_MAX: u64 = 64 << 20;
const BYTES_MAX: u64 = 64 << 30;
/// Files in a row at most, and their requests, as published.
const RUNS_MAX: u64 = 1000;
const AGAIN_BLOCK_BYTES: usize = 1 << 20;
/// What is dropped, or read through the device, usually, and what it is a multiple of.
const PART_BYTES: u64 = 16 << 20;
pub(super) const PART_STEP: u64 = 1 << 20;
/// Limits of memory are multiples of this, so that each part of them is one of 1 MiB.
const LIMIT_STEP: u64 = 16 << 20;
/// What a slow disk moves and syncs: bytes per second, and seconds for a call.
const SLOW_BYTES_PER_S: f64 = 20e6;
const SLOW_SYNC_S: f64 = 0.02;
/// Seconds that a file is left to the kernel, usually and at most.
const WAIT_S: u32 = 8;
const WAIT_MAX_S: u64 = 120;

/// Reading one file twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadTwice {
    pub(super) block: usize,
}

/// How a written file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// When the last write has returned.
    Returned,
    /// With one fdatasync.
    DataSync,
    /// It is removed at once.
    Removed,
    /// It is left to the kernel for at most so many seconds.
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

/// Writing one file again and again, past the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) runs: usize,
    /// Of each file.
    pub(super) bytes: u64,
}

impl Again {
    /// One of its files.
    pub(super) fn one(self) -> Write {
        let (how, end) = (WriteMode::Direct, End::Returned);
        Write { how, end, block: AGAIN_BLOCK_BYTES, bytes: self.bytes }
    }
}

/// Making memory short in a group of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reclaim {
    /// Memory of the group.
    pub(super) limit_bytes: u64,
}

impl Reclaim {
    /// Bytes of clean pages before, and as many of changed ones.
    pub(super) fn kind_bytes(self) -> u64 {
        self.limit_bytes / 8 * 3
    }

    /// Memory that is then taken, bytes: a third of what stands in its way can stay.
    pub(super) fn taken_bytes(self) -> u64 {
        self.limit_bytes / 4 * 3
    }
}

/// A part of the file, from its beginning.
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

/// A play.
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
            .ok_or_else(|| format!("{plan}: not of the page cache"))?;
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
                            return Err(format!(
                                "{plan}: wait is for files that are left: end=left"
                            ));
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
                    return Err(format!("{plan}: runs is 6 or more, bytes a multiple of 1 MiB"));
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
                "{plan}: no scenario '{other}'; there are: read-twice, write, again, reclaim, drop, \
                 device, shell, limits"
            )),
        }
    }

    /// Seconds that it takes on a slow disk beyond going once through the `bytes` of its file: what it
    /// writes is not that file, but as much as the plan says.
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

    /// What it does, for people.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::ReadTwice(scenario) => format!(
                "the file is read from the device, then from memory, {} a call; then another \
                 process reads it",
                format_size(scenario.block as u64)
            ),
            Self::Write(scenario) => {
                let how = match scenario.how {
                    WriteMode::Buffered => "through the page cache",
                    WriteMode::Direct => "past the page cache",
                    WriteMode::Sync => "with O_SYNC",
                    WriteMode::DataSync => "with O_DSYNC",
                };
                let end = match scenario.end {
                    End::Returned => "until the last call returns",
                    End::DataSync => "then one fdatasync",
                    End::Removed => "then the file is removed",
                    End::Left(_) => "then nobody asks for it, and it is looked when it is written",
                };
                let (bytes, block) =
                    (format_size(scenario.bytes), format_size(scenario.block as u64));
                format!("{bytes} are written {how}, {block} a call, {end}")
            }
            Self::Again(scenario) => format!(
                "{} are written past the page cache {} times in a row, each time to a new file",
                format_size(scenario.bytes),
                scenario.runs
            ),
            Self::Reclaim(scenario) => format!(
                "in a group with {} of memory {} of clean pages and as many changed ones come in in \
                 turn; then {} of memory are taken, and it is looked at what goes",
                format_size(scenario.limit_bytes),
                format_size(scenario.kind_bytes()),
                format_size(scenario.taken_bytes())
            ),
            Self::Dropped(scenario) => format!(
                "{0} of a file are read, {0} of another one written, {0} put into a file that lives \
                 in memory; then the caches of the system are dropped, first without and then after \
                 a sync",
                format_size(scenario.bytes)
            ),
            Self::Device(scenario) => format!(
                "{} of the file are read through the file and then through the device that holds \
                 it; then a file is written and read through the device before and after it is \
                 there",
                format_size(scenario.bytes)
            ),
            Self::Shell => "a user who may not write a file asks every shell that is here to send \
                            the output of a command to it"
                .to_owned(),
            Self::Limits => "the limits of dirty pages are read beside memory".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_play_has_time_for_what_it_writes_and_not_for_its_file_alone() {
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
            ("pagecache:write/speed=1", "no setting 'speed'"),
            ("pagecache:write/end=rm,wait=3", "wait is for files that are left"),
            ("pagecache:again/runs=2", "runs is 6 or more"),
            ("pagecache:reclaim/limit=40MiB", "multiple of 16.0 MiB"),
            ("pagecache:drop/bytes=5KiB", "multiple of"),
            ("pagecache:device/bytes=0", "bytes"),
            ("pagecache:shell/bytes=1MiB", "no setting"),
            ("pagecache:forget", "no scenario 'forget'"),
            ("read/threads:n=1", "not of the page cache"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
