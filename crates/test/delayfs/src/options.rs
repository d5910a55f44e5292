//! What the file system contains and how slow it is; as values, and as arguments of a command line.

use ioloom_model::units::{parse_duration_ns, parse_size, spell_size};
use std::num::NonZeroUsize;
use std::time::Duration;

/// Contents and delays of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Number of files.
    pub files: usize,
    /// Sizes in bytes, used cyclically: file `i` has the size `sizes[i % sizes.len()]`.
    pub sizes: Vec<u64>,
    /// Number of directories, which hold consecutive files.
    pub dirs: NonZeroUsize,
    /// Delay of a lookup.
    pub lookup: Duration,
    /// Delay of a query of attributes.
    pub getattr: Duration,
    /// Delay of an open.
    pub open: Duration,
    /// Delay of a read.
    pub read: Duration,
    /// Most requests served at the same time; others wait in order of arrival, and their delay
    /// begins when they are served.
    pub limit: Option<NonZeroUsize>,
    /// Opens files for direct I/O, so that the kernel caches nothing, and returns at most this many
    /// bytes for a read. The file system then has blocks, as one that stores files.
    pub short: Option<NonZeroUsize>,
    /// Ends all delays of opens as soon as this many opens have been in flight at the same time, and
    /// all delays of reads likewise. A test with a long delay then proves an overlap without
    /// depending on how fast threads start, and takes the long delay only if it fails.
    pub until_overlap: Option<NonZeroUsize>,
}

impl Options {
    /// Returns options for `files` files of `size` bytes in four directories, without delays.
    pub fn new(files: usize, size: u64) -> Self {
        Self {
            files,
            sizes: vec![size],
            dirs: NonZeroUsize::MIN.saturating_add(3),
            lookup: Duration::ZERO,
            getattr: Duration::ZERO,
            open: Duration::ZERO,
            read: Duration::ZERO,
            limit: None,
            short: None,
            until_overlap: None,
        }
    }

    /// Parses arguments such as `--files 3000 --size 4KiB --open 2ms --read 2ms`. Several sizes are
    /// separated by commas.
    ///
    /// # Errors
    /// A sentence that names the argument.
    pub fn parse<'a>(args: impl IntoIterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self::new(1000, 4096);
        let mut args = args.into_iter();
        while let Some(flag) = args.next() {
            let value = args.next().ok_or_else(|| format!("'{flag}' needs a value"))?;
            match flag {
                "--files" => options.files = number(flag, value)?,
                "--size" => {
                    let sizes = value.split(',').map(parse_size).collect::<Result<_, _>>();
                    options.sizes = sizes.map_err(|error| error.to_string())?;
                }
                "--dirs" => options.dirs = number(flag, value)?,
                "--lookup" => options.lookup = duration(value)?,
                "--getattr" => options.getattr = duration(value)?,
                "--open" => options.open = duration(value)?,
                "--read" => options.read = duration(value)?,
                "--limit" => options.limit = Some(number(flag, value)?),
                "--short" => options.short = Some(number(flag, value)?),
                "--until-overlap" => options.until_overlap = Some(number(flag, value)?),
                _ => return Err(format!("unknown argument '{flag}'")),
            }
        }
        Ok(options)
    }

    /// Returns the arguments from which [`parse`](Self::parse) makes the same options.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(|size| spell_size(*size)).collect();
        let mut args = vec![
            ("--files", self.files.to_string()),
            ("--size", sizes.join(",")),
            ("--dirs", self.dirs.to_string()),
        ];
        let delays = [
            ("--lookup", self.lookup),
            ("--getattr", self.getattr),
            ("--open", self.open),
            ("--read", self.read),
        ];
        args.extend(delays.map(|(flag, delay)| (flag, format!("{}ns", delay.as_nanos()))));
        args.extend(self.limit.map(|limit| ("--limit", limit.to_string())));
        args.extend(self.short.map(|bytes| ("--short", bytes.to_string())));
        args.extend(self.until_overlap.map(|n| ("--until-overlap", n.to_string())));
        args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }
}

fn number<T: std::str::FromStr>(flag: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("invalid number '{text}' after '{flag}'"))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_round_trip() {
        let text = "--files 30 --size 0,4KiB,1000 --dirs 3 --lookup 1us --getattr 2us --open 2ms \
                    --read 3ms --limit 8 --short 100 --until-overlap 64";
        let options = Options::parse(text.split(' ')).unwrap();
        assert_eq!(options.sizes, [0, 4096, 1000]);
        assert_eq!((options.open, options.read).1, Duration::from_millis(3));
        let args = options.to_args();
        assert_eq!(Options::parse(args.iter().map(String::as_str)), Ok(options));
        let plain = Options::new(7, 5);
        let args = plain.to_args();
        assert_eq!(Options::parse(args.iter().map(String::as_str)), Ok(plain));
    }

    #[test]
    fn bad_arguments_are_named() {
        for (args, word) in [
            (["--files", "x"], "--files"),
            (["--limit", "0"], "--limit"),
            (["--open", "2"], "2"),
            (["--size", "4KiB,"], ""),
            (["--what", "1"], "--what"),
        ] {
            let error = Options::parse(args).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
        assert!(Options::parse(["--files"]).is_err());
    }
}
