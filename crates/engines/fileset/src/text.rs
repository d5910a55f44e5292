//! The text form of a file set.
//!
//! `count=10000,size=exp(mean=4KiB,min=1KiB,max=1MiB),compute=normal(mean=0.4ms,sd=0.4ms),`
//! `layout=nested,seed=3`; or a preset, optionally followed by changes (`source000:C,count=20000`);
//! or `like:DIR`, which copies the shape of a tree. Commas inside parentheses are not separators.
//! The syntax of an inline TOML table, with braces and quotes, is also accepted.

use crate::{SetError, spec_from_tree};
use ioloom_model::{Creation, DirectoryLayout, Distribution, FileSetSpec, ParseError};
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::str::FromStr;

/// The sets of the published study 000 (A to H), and realistic trees.
const PRESETS: [(&str, &str); 10] = [
    ("source000:A", "count=40,size=512MiB,layout=flat"),
    (
        "source000:B",
        "count=50,size=normal(mean=1MiB,sd=512KiB,min=1KiB,max=2MiB),layout=flat,\
         compute=normal(mean=0.8ms,sd=0.8ms,min=50us,max=2500us)",
    ),
    ("source000:C", "count=1000000,size=4KiB,compute=normal(mean=400us,sd=400us,min=50us,max=5ms)"),
    (
        "source000:D",
        "count=10000,size=exp(mean=512KiB,min=1KiB,max=4MiB),\
         compute=normal(mean=400us,sd=400us,min=50us,max=5ms)",
    ),
    (
        "source000:E",
        "count=10000,size=exp(mean=4KiB,min=1KiB,max=1MiB),\
         compute=normal(mean=400us,sd=400us,min=50us,max=5ms)",
    ),
    (
        "source000:F",
        "count=1000000,size=exp(mean=4KiB,min=1KiB,max=1MiB),\
         compute=normal(mean=400us,sd=400us,min=50us,max=5ms)",
    ),
    (
        "source000:G",
        "count=11,layout=flat,size=list(512;1KiB;4KiB;16KiB;64KiB;256KiB;1MiB;8MiB;32MiB;128MiB;\
         512MiB)",
    ),
    ("source000:H", "count=10000,size=4KiB"),
    // The walk study does not open files, so sparse files represent the published tree.
    (
        "source001",
        "count=2835154,size=lognormal(mu=5.858,sigma=2.17,max=64MiB),layout=tree,data=sparse",
    ),
    // Approximates the size distribution of home and source trees; the maximum keeps a single draw
    // from filling a disk.
    ("tree", "count=10000,size=lognormal(mu=8.2,sigma=1.6,max=64MiB)"),
];

const KEYS: &str = "count, size, compute, layout, data, order, links and seed, or begin with a preset \
                    (source000:A to source000:H, source001, tree) or like:DIR";

/// Separates the directory of `like:` from the seed.
const SEED: &str = ",seed=";

/// A parsed file set: either complete or derived from a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum SetText {
    /// A complete description.
    Spec(FileSetSpec),
    /// The shape of the tree below a directory, with this seed for the contents.
    Like {
        /// The tree.
        dir: PathBuf,
        /// Seed for the contents.
        seed: u64,
    },
}

impl SetText {
    /// Returns the description; walks the tree if necessary.
    ///
    /// # Errors
    /// The tree cannot be read completely. [`spec_from_tree`] returns the shape of the rest.
    pub fn resolve(self) -> Result<FileSetSpec, SetError> {
        let (dir, seed) = match self {
            Self::Spec(spec) => return Ok(spec),
            Self::Like { dir, seed } => (dir, seed),
        };
        let shape = spec_from_tree(&dir, seed)?;
        match shape.first_error {
            None => Ok(shape.spec),
            Some(reason) => Err(SetError::Incomplete { dir, errors: shape.errors_count, reason }),
        }
    }

    /// Parses a description whose directory need not be UTF-8.
    ///
    /// # Errors
    /// It is invalid.
    pub fn from_os(text: &OsStr) -> Result<Self, ParseError> {
        let lossy = text.to_string_lossy();
        let mut parsed: Self = lossy.parse()?;
        if let (Self::Like { dir, .. }, None) = (&mut parsed, text.to_str()) {
            let inner = text.as_bytes().trim_ascii();
            let braced = inner.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
            let bytes = braced.unwrap_or(inner).trim_ascii().strip_prefix(b"like:");
            let reason = "around a directory that is not UTF-8, only ASCII spaces are accepted";
            let bytes = bytes.ok_or_else(|| ParseError::new("file set", &lossy, reason))?;
            let seed = bytes.windows(SEED.len()).rposition(|part| part == SEED.as_bytes());
            *dir = OsStr::from_bytes(&bytes[..seed.unwrap_or(bytes.len())]).into();
        }
        Ok(parsed)
    }

    /// Returns the presets: names and definitions.
    pub const fn presets() -> &'static [(&'static str, &'static str)] {
        &PRESETS
    }
}

#[derive(Default)]
struct Parts {
    count: Option<u64>,
    size: Option<Distribution>,
    compute: Option<Distribution>,
    layout: DirectoryLayout,
    making: Creation,
    seed: u64,
}

impl FromStr for SetText {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |reason: String| ParseError::new("file set", text, reason);
        let inner = text.trim();
        let inner = inner.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(inner);
        if let Some(dir) = inner.trim().strip_prefix("like:") {
            // Directory names can contain commas and equal signs.
            let (dir, seed) = match dir.rsplit_once(SEED) {
                Some((dir, seed)) => (dir, number(seed).map_err(refuse)?),
                None => (dir, 0),
            };
            if dir.is_empty() {
                return Err(refuse("like: needs a directory, as in like:/usr/share".to_owned()));
            }
            return Ok(Self::Like { dir: dir.into(), seed });
        }
        let mut parts = Parts::default();
        for (i, item) in split(inner).into_iter().enumerate() {
            match item.split_once('=') {
                Some((key, value)) => parts.set(key, value).map_err(refuse)?,
                None if i == 0 => {
                    let preset =
                        preset(item.trim()).ok_or_else(|| refuse(format!("use {KEYS}")))?;
                    for (key, value) in split(preset).iter().filter_map(|p| p.split_once('=')) {
                        parts.set(key, value).map_err(refuse)?;
                    }
                }
                None => return Err(refuse(format!("'{item}' has no '='; use {KEYS}"))),
            }
        }
        Ok(Self::Spec(FileSetSpec {
            count: parts.count.ok_or_else(|| refuse("count is required".to_owned()))?,
            size: parts.size.ok_or_else(|| refuse("size is required".to_owned()))?,
            compute: parts.compute,
            layout: parts.layout,
            making: parts.making,
            seed: parts.seed,
        }))
    }
}

/// Returns a preset by name. Older versions spelled `source000:E` as `seed000:E`, which is still
/// accepted.
fn preset(name: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let name = match name.strip_prefix("seed") {
        Some(rest) => format!("source{rest}"),
        None => name,
    };
    PRESETS.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name)).map(|(_, text)| *text)
}

impl Parts {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let value = value.trim().trim_matches('"');
        let drawn = || value.parse::<Distribution>().map_err(|e| e.to_string());
        match key.trim() {
            "count" => {
                let count = number(value)?;
                if count == 0 {
                    return Err("count must be at least 1".to_owned());
                }
                self.count = Some(count);
            }
            "size" => self.size = Some(drawn()?),
            "compute" => {
                let times = || Distribution::of_times(value).map_err(|e| e.to_string());
                self.compute = (value != "none").then(times).transpose()?;
            }
            "layout" => {
                self.layout = match value {
                    "flat" => DirectoryLayout::Flat,
                    "nested" => DirectoryLayout::Nested,
                    "tree" => DirectoryLayout::Tree,
                    "deep" => DirectoryLayout::Deep,
                    _ => {
                        return Err(format!(
                            "layout must be flat, nested, tree or deep, not '{value}'"
                        ));
                    }
                }
            }
            "data" => {
                self.making.sparse = match value {
                    "sparse" => true,
                    "written" => false,
                    _ => return Err(format!("data must be written or sparse, not '{value}'")),
                }
            }
            "order" => {
                self.making.shuffled = match value {
                    "shuffled" => true,
                    "listed" => false,
                    _ => return Err(format!("order must be listed or shuffled, not '{value}'")),
                }
            }
            "links" => {
                self.making.links = number(value)?
                    .try_into()
                    .map_err(|_| format!("links must be a small number, not '{value}'"))?;
            }
            "seed" => self.seed = number(value)?,
            key => return Err(format!("unknown key '{key}'; use {KEYS}")),
        }
        Ok(())
    }
}

/// Parses an integer. `20k` and `1M` use powers of 1000 because they count files.
fn number(text: &str) -> Result<u64, String> {
    let text = text.trim().replace('_', "");
    let thousands = match text.char_indices().next_back() {
        Some((at, 'k')) => text[..at].parse::<u64>().ok().and_then(|n| n.checked_mul(1_000)),
        Some((at, 'M')) => text[..at].parse::<u64>().ok().and_then(|n| n.checked_mul(1_000_000)),
        _ => text.parse().ok(),
    };
    thousands.ok_or_else(|| format!("'{text}' is not a whole number, as in 10000, 20k or 1M"))
}

/// Splits at commas outside parentheses and quotes; drops empty parts.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut quoted, mut start, mut parts) = (0u32, false, 0, Vec::new());
    for (i, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 && !quoted => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Returns the one-line form of a set, which parses back to the same set. Long size lists are
/// shortened to `list(…1000 sizes)` and then cannot be parsed.
pub fn spell(spec: &FileSetSpec) -> String {
    let size = match &spec.size {
        Distribution::List(sizes) if sizes.len() > 16 => format!("list(…{} sizes)", sizes.len()),
        size => size.to_string(),
    };
    let mut text = format!("count={},size={size}", spec.count);
    if let Some(compute) = &spec.compute {
        let _ = write!(text, ",compute={compute}");
    }
    let layout = match spec.layout {
        DirectoryLayout::Flat => "flat",
        DirectoryLayout::Nested => "nested",
        DirectoryLayout::Tree => "tree",
        DirectoryLayout::Deep => "deep",
    };
    let _ = write!(text, ",layout={layout}");
    let Creation { sparse, shuffled, links } = spec.making;
    text.push_str(if sparse { ",data=sparse" } else { "" });
    text.push_str(if shuffled { ",order=shuffled" } else { "" });
    if links > 0 {
        let _ = write!(text, ",links={links}");
    }
    let _ = write!(text, ",seed={}", spec.seed);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::spec;
    use proptest::prelude::*;

    #[test]
    fn commas_inside_parentheses_do_not_separate() {
        let set = spec(
            "count=10k, size=exp(mean=4KiB,min=1KiB,max=1MiB),compute=normal(mean=1ms,sd=1ms),\
             layout=flat,seed=3",
        );
        assert_eq!((set.count, set.layout, set.seed), (10_000, DirectoryLayout::Flat, 3));
        assert_eq!(set.size, "exp(mean=4096,min=1024,max=1048576)".parse().unwrap());
        assert!(set.compute.is_some());
    }

    #[test]
    fn a_toml_table_is_accepted() {
        let set = spec("{ count = 40, size = \"exp(mean=4KiB,max=1MiB)\", layout = \"flat\" }");
        assert_eq!(set, spec("count=40,size=exp(mean=4KiB,max=1MiB),layout=flat"));
    }

    #[test]
    fn presets_match_the_study_and_can_be_changed() {
        for (name, _) in SetText::presets() {
            assert!(matches!(name.parse().unwrap(), SetText::Spec(_)), "{name}");
        }
        let c = spec("source000:C,count=20k,seed=9");
        assert_eq!((c.count, c.seed), (20_000, 9));
        assert_eq!(c.size, Distribution::Identical(4096));
        // The published tree: 10.5 GB in total, with many files below 1 kB.
        let walk = spec("source001,count=100k");
        let sizes: Vec<u64> = (0..walk.count).map(|i| walk.size.value(1, i)).collect();
        let mean = sizes.iter().sum::<u64>() as f64 / walk.count as f64;
        assert!((3300.0..4100.0).contains(&mean), "{mean}");
        assert!(sizes.iter().filter(|s| **s < 1000).count() > 60_000);
        let total: u64 = (0..40).map(|i| spec("source000:A").size.value(0, i)).sum();
        assert_eq!(total, 20 << 30);
        // The published parameters of set E yield about 40 MiB, not the published 33.33.
        let e = spec("source000:E");
        let mib = (0..e.count).map(|i| e.size.value(1, i)).sum::<u64>() as f64 / 1048576.0;
        assert!((45.0..52.0).contains(&mib), "{mib}");
    }

    #[test]
    fn old_names_of_presets_are_accepted() {
        for (name, _) in SetText::presets() {
            let old = name.replace("source", "seed");
            assert_eq!(spec(&old), spec(name), "{old}");
        }
        assert_eq!(spec("SEED000:e,count=5"), spec("source000:E,count=5"));
        assert!("seed".parse::<SetText>().is_err() && "seed002".parse::<SetText>().is_err());
    }

    #[test]
    fn a_tree_name_may_contain_separators() {
        let like = |text: &str| text.parse::<SetText>().unwrap();
        let dir = PathBuf::from("/a,b=c (d)");
        assert_eq!(like("like:/a,b=c (d)"), SetText::Like { dir: dir.clone(), seed: 0 });
        assert_eq!(like("like:/a,b=c (d),seed=4"), SetText::Like { dir, seed: 4 });
    }

    #[test]
    fn a_tree_name_need_not_be_utf8() {
        for (text, name, seed) in [
            (&b"like:/\xff\xa0"[..], &b"/\xff\xa0"[..], 0),
            (b"like:/\xff,seed=1,seed=4", b"/\xff,seed=1", 4),
            (b"like:/a,seed=4", b"/a", 4),
            (b" { like:/\xff,seed=4 } ", b"/\xff", 4),
        ] {
            let dir = PathBuf::from(OsStr::from_bytes(name));
            let parsed = SetText::from_os(OsStr::from_bytes(text)).unwrap();
            assert_eq!(parsed, SetText::Like { dir, seed });
        }
        for wrong in [&b"like:/\xff,seed=\xff"[..], b"\xe3\x80\x80like:/\xff"] {
            assert!(SetText::from_os(OsStr::from_bytes(wrong)).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn invalid_texts_are_explained() {
        for (text, word) in [
            ("", "count is required"),
            ("count=5", "size is required"),
            ("count=0,size=1", "at least 1"),
            ("count=-5,size=1", "whole number"),
            ("count=5,size=1,layout=odd", "flat, nested, tree or deep"),
            ("count=5,size=exp(", "missing ')'"),
            ("count=5,size=1,colour=red", "unknown key"),
            ("count=5,size=1,tree", "no '='"),
            ("forest", "preset"),
            ("like:", "directory"),
        ] {
            let error = text.parse::<SetText>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn spelled_sets_read_back(
            count in 1u64..u64::MAX, seed: u64, layout in 0usize..4, mean in 1u64..100_000,
            timed: bool, sparse: bool, shuffled: bool, links in 0u32..9,
        ) {
            let layout = [DirectoryLayout::Flat, DirectoryLayout::Nested, DirectoryLayout::Tree, DirectoryLayout::Deep][layout];
            let making = Creation { sparse, shuffled, links };
            let size = format!("exp(mean={mean},max=1MiB)").parse().unwrap();
            let compute = timed.then(|| "normal(mean=5us,sd=1us,min=1,max=9us)".parse().unwrap());
            let set = FileSetSpec { count, size, compute, layout, making, seed };
            prop_assert_eq!(spell(&set).parse::<SetText>().unwrap(), SetText::Spec(set));
        }
        #[test]
        fn no_text_panics(text in "(count|size|=|,|exp\\(|\\)|\\{|\\}|\"|mean|5|k|é|like:|tree){0,20}") {
            let _ = text.parse::<SetText>();
        }
    }
}
