//! What a play is, and its settings.

use ioloom_model::units::{format_size, parse_size};
use ioloom_model::{AnyPlan, SubjectPlan};
use ioloom_sys::file::Writing;

/// Largest block and file that a plan may ask for.
const BLOCK_MAX: u64 = 64 << 20;
const BYTES_MAX: u64 = 64 << 30;

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
}

/// Writing one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) how: Writing,
    pub(super) end: End,
    pub(super) block: usize,
    pub(super) bytes: u64,
}

/// A play.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Play {
    ReadTwice(ReadTwice),
    Write(Write),
    Limits,
}

fn bytes(plan: &SubjectPlan, key: &str, usual: u64, most: u64) -> Result<u64, String> {
    let Some(text) = plan.settings.get(key) else { return Ok(usual) };
    let found = parse_size(text).map_err(|e| format!("{plan}: {key}: {e}"))?;
    if !(4096..=most).contains(&found) || !found.is_multiple_of(4096) {
        let most = format_size(most);
        return Err(format!("{plan}: {key} is a multiple of 4 KiB, at most {most}"));
    }
    Ok(found)
}

fn word<T: Copy>(
    plan: &SubjectPlan,
    key: &str,
    usual: T,
    known: &[(&str, T)],
) -> Result<T, String> {
    let Some(text) = plan.settings.get(key) else { return Ok(usual) };
    known.iter().find(|(word, _)| word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        format!("{plan}: {key} is one of {}", words.join(", "))
    })
}

const HOW: [(&str, Writing); 4] = [
    ("buffered", Writing::Buffered),
    ("direct", Writing::Direct),
    ("sync", Writing::Sync),
    ("dsync", Writing::DataSync),
];
const END: [(&str, End); 3] =
    [("returned", End::Returned), ("fdatasync", End::DataSync), ("rm", End::Removed)];

impl Play {
    pub(super) fn of(plan: &AnyPlan) -> Result<Self, String> {
        let own = plan.of("pagecache").ok_or_else(|| format!("{plan}: not of the page cache"))?;
        match own.method.as_str() {
            "read-twice" => {
                own.only(&["block"])?;
                let block = bytes(own, "block", 128 << 10, BLOCK_MAX)? as usize;
                Ok(Self::ReadTwice(ReadTwice { block }))
            }
            "write" => {
                own.only(&["how", "end", "block", "bytes"])?;
                let block = bytes(own, "block", 1 << 20, BLOCK_MAX)?;
                let all = bytes(own, "bytes", 256 << 20, BYTES_MAX)?;
                if !all.is_multiple_of(block) {
                    return Err(format!("{plan}: bytes must be a multiple of block"));
                }
                let how = word(own, "how", Writing::Buffered, &HOW)?;
                let end = word(own, "end", End::Returned, &END)?;
                Ok(Self::Write(Write { how, end, block: block as usize, bytes: all }))
            }
            "limits" => own.only(&[]).map(|()| Self::Limits),
            other => {
                Err(format!("{plan}: no play '{other}'; there are: read-twice, write, limits"))
            }
        }
    }

    /// What it does, for people.
    pub(super) fn sentence(self) -> String {
        match self {
            Self::ReadTwice(play) => format!(
                "the file is read from the device, then from memory, {} a call; then another \
                 process reads it",
                format_size(play.block as u64)
            ),
            Self::Write(play) => {
                let how = match play.how {
                    Writing::Buffered => "through the page cache",
                    Writing::Direct => "past the page cache",
                    Writing::Sync => "with O_SYNC",
                    Writing::DataSync => "with O_DSYNC",
                };
                let end = match play.end {
                    End::Returned => "until the last call returns",
                    End::DataSync => "then one fdatasync",
                    End::Removed => "then the file is removed",
                };
                let (bytes, block) = (format_size(play.bytes), format_size(play.block as u64));
                format!("{bytes} are written {how}, {block} a call, {end}")
            }
            Self::Limits => "the limits of dirty pages are read beside memory".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_understood_or_refused_with_a_word() {
        let of = |text: &str| Play::of(&text.parse().unwrap());
        let write =
            Write { how: Writing::Direct, end: End::DataSync, block: 1 << 20, bytes: 64 << 20 };
        let text = "pagecache:write/how=direct,end=fdatasync,bytes=64MiB";
        assert_eq!(of(text), Ok(Play::Write(write)));
        assert_eq!(of("pagecache:limits"), Ok(Play::Limits));
        for (text, part) in [
            ("pagecache:write/how=fast", "one of buffered, direct"),
            ("pagecache:write/block=5000", "multiple of 4 KiB"),
            ("pagecache:write/block=3MiB,bytes=64MiB", "multiple of block"),
            ("pagecache:write/speed=1", "no setting 'speed'"),
            ("pagecache:forget", "no play 'forget'"),
            ("read/threads:n=1", "not of the page cache"),
        ] {
            let error = of(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
