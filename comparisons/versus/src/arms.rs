//! The arms: our commands, the grid of peers, and fio.

use crate::cli::{DigestKind, Fields, Input, ListForm, Plan, Walker};
use crate::fio;
use crate::record::{ArmFacts, Kind};
use crate::set::FileSet;
use anyhow::{Context, Result, anyhow, bail};
use ioloom_versus::facts::version;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// The peers to compare with ioloom's defaults.
const FULL: &str = "rayon:1x,rayon:4x,rayon:16x,rayon:64x,\
    std-threads:1,std-threads:2,std-threads:4,std-threads:8,std-threads:16,std-threads:32,\
    std-threads:64,std-threads:128,std-threads:256,\
    tokio:16,tokio:64,tokio:256,tokio:512,tokio-stream:64,\
    read-loop,mmap:16x,leanest-hash:1x,leanest:1x,leanest:16x";
/// One or two of each kind, for a first look.
const QUICK: &str = "rayon:1x,rayon:16x,std-threads:32,tokio:64,read-loop,leanest:1x";
/// For files of many megabytes.
const LARGE: &str = "std-threads:1,std-threads:2,std-threads:4,std-threads:8,std-threads:16,\
    read-loop,leanest:1,leanest:4,leanest:16";

/// A command that does the work.
pub(crate) struct Arm {
    pub(crate) facts: ArmFacts,
    pub(crate) argv: Vec<OsString>,
    /// The list on standard input.
    pub(crate) stdin: Option<PathBuf>,
    /// A list file passed by name.
    pub(crate) list: Option<PathBuf>,
    pub(crate) reply: Reply,
}

/// How to read the output of an arm.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// One JSON document with configurable fields; the expected digest.
    Ours { fields: Fields, digest: Option<String> },
    /// The line of a peer; the expected digest.
    Peer { digest: Option<String> },
    /// The JSON of fio.
    Fio,
}

/// All arms of a plan, and the arms that cannot run on this file set, with reasons.
pub(crate) fn all(
    plan: &Plan,
    set: &FileSet,
    cores: u32,
) -> Result<(Vec<Arm>, BTreeMap<String, String>)> {
    let mut arms = Vec::new();
    for (index, template) in plan.ours.iter().enumerate() {
        arms.push(ours(plan, set, template, index)?);
    }
    let grid = match plan.peers.as_str() {
        "full" => FULL,
        "quick" => QUICK,
        "large" => LARGE,
        "none" => "",
        list => list,
    };
    for spec in grid.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        let arm = peer(plan, set, &PeerSpec::parse(spec, cores)?)?;
        // Two spellings of the same number, such as 1x and 2 on two cores, are one arm.
        if arms.iter().all(|a: &Arm| a.facts.name != arm.facts.name) {
            arms.push(arm);
        }
    }
    let mut refused = BTreeMap::new();
    if let Some(grid) = &plan.fio {
        for (name, outcome) in fio::arms(grid, set, plan.condition)? {
            match outcome {
                Ok((argv, shown)) => {
                    arms.push(finish(name, Kind::Fio, argv, Some(shown), set, Reply::Fio)?);
                }
                Err(reason) => {
                    refused.insert(name, reason);
                }
            }
        }
    }
    let mut names: Vec<&str> = arms.iter().map(|a| a.facts.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        bail!("two arms are named {}; give each --ours its own NAME=", pair[0]);
    }
    if arms.is_empty() {
        bail!("no arm to run; give --ours, --peers or --fio");
    }
    Ok((arms, refused))
}

fn ours(plan: &Plan, set: &FileSet, template: &str, index: usize) -> Result<Arm> {
    let (name, command) = split_name(template);
    let name = name.map_or_else(
        || if index == 0 { "ours".to_owned() } else { format!("ours-{}", index + 1) },
        str::to_owned,
    );
    let words =
        shlex::split(command).ok_or_else(|| anyhow!("--ours {template}: a quote is not closed"))?;
    let reads_list = words.iter().any(|w| w.contains("{list}") || w.contains("{list0}"));
    if plan.ours_stdin.is_none() && !reads_list && !words.iter().any(|w| w.contains("{dir}")) {
        bail!("--ours {template}: without {{dir}}, {{list}} or {{list0}} it reads nothing");
    }
    let list = if command.contains("{list}") { Some(set.list()?) } else { None };
    let list0 = set.list0();
    let mut argv = Vec::with_capacity(words.len());
    for word in words {
        argv.push(fill(&word, set.dir(), list.as_deref(), &list0));
    }
    let digest = match plan.ours_digest {
        DigestKind::Combined => Some(set.combined.clone()),
        DigestKind::CombinedAbsolute => Some(set.combined_absolute.clone()),
        DigestKind::Sum => Some(set.totals.hex()),
        DigestKind::None => None,
    };
    let reply = Reply::Ours { fields: plan.ours_fields.clone(), digest };
    let mut arm = finish(name, Kind::Ours, argv, None, set, reply)?;
    let stdin = match plan.ours_stdin {
        Some(ListForm::List) => Some((set.list()?, "{list}")),
        Some(ListForm::List0) => Some((set.list0(), "{list0}")),
        None => None,
    };
    if let Some((list, shown)) = stdin {
        arm.facts.command.extend(["<".to_owned(), shown.to_owned()]);
        arm.stdin = Some(list);
    }
    arm.list = if command.contains("{list0}") { Some(list0) } else { list };
    Ok(arm)
}

/// Splits `NAME=COMMAND`; the name contains no path characters or spaces.
fn split_name(template: &str) -> (Option<&str>, &str) {
    match template.split_once('=') {
        Some((name, command))
            if !name.is_empty()
                && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) =>
        {
            (Some(name), command)
        }
        _ => (None, template),
    }
}

fn fill(word: &str, dir: &Path, list: Option<&Path>, list0: &Path) -> OsString {
    let mut filled = OsString::new();
    let mut rest = word;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        filled.push(before);
        let known = [("{dir}", Some(dir)), ("{list0}", Some(list0)), ("{list}", list)];
        match known.into_iter().find(|(name, path)| from.starts_with(name) && path.is_some()) {
            Some((name, Some(path))) => {
                filled.push(path);
                rest = &from[name.len()..];
            }
            _ => {
                filled.push("{");
                rest = &from[1..];
            }
        }
    }
    filled.push(rest);
    filled
}

/// A peer with its number.
#[derive(Debug, PartialEq, Eq)]
struct PeerSpec {
    name: String,
    args: Vec<String>,
    kind: Kind,
    hashes: bool,
}

impl PeerSpec {
    /// Parses `NAME`, `NAME:N` or `NAME:Nx` (per core).
    fn parse(spec: &str, cores: u32) -> Result<Self> {
        let (word, number) = match spec.split_once(':') {
            Some((word, text)) => (
                word,
                Some(count(text, cores).with_context(|| {
                    format!("--peers {spec}: after the colon: a number above 0, or one with x")
                })?),
            ),
            None => (spec, None),
        };
        let (args, flag): (&[&str], Option<&str>) = match word {
            "rayon" | "std-threads" | "mmap" | "leanest" => (&[word], Some("--threads")),
            "leanest-hash" => (&["leanest", "--hash"], Some("--threads")),
            "tokio" => (&["tokio"], Some("--concurrency")),
            "tokio-stream" => (&["tokio", "--form", "stream"], Some("--concurrency")),
            "read-loop" => (&["read-loop"], None),
            _ => bail!(
                "--peers {spec}: known are rayon, std-threads, tokio, tokio-stream, read-loop, \
                 mmap, leanest and leanest-hash"
            ),
        };
        let mut args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let name = match (flag, number) {
            (Some(flag), Some(number)) => {
                args.extend([flag.to_owned(), number.to_string()]);
                format!("{word}:{number}")
            }
            (None, None) => word.to_owned(),
            (Some(_), None) => bail!("--peers {spec}: {word} needs a number, such as {word}:16"),
            (None, Some(_)) => bail!("--peers {spec}: {word} takes no number"),
        };
        let kind = match word {
            "leanest" => Kind::Floor,
            "leanest-hash" => Kind::Lean,
            _ => Kind::Peer,
        };
        Ok(Self { name, args, kind, hashes: kind != Kind::Floor })
    }
}

fn count(text: &str, cores: u32) -> Option<u32> {
    let number = match text.strip_suffix('x') {
        Some(per_core) => per_core.parse::<u32>().ok()?.checked_mul(cores)?,
        None => text.parse().ok()?,
    };
    (number > 0).then_some(number)
}

fn peer(plan: &Plan, set: &FileSet, spec: &PeerSpec) -> Result<Arm> {
    let mut argv = vec![plan.peer.clone().into_os_string()];
    argv.extend(spec.args.iter().map(OsString::from));
    argv.push(set.dir().into());
    let list = match plan.input {
        Input::Walk => {
            argv.extend(
                [
                    "--walk",
                    match plan.walker {
                        Walker::Walkdir => "walkdir",
                        Walker::Ignore => "ignore",
                    },
                ]
                .map(OsString::from),
            );
            None
        }
        Input::List => {
            argv.extend([OsString::from("--list"), set.list0().into_os_string()]);
            Some(set.list0())
        }
    };
    let reply = Reply::Peer { digest: spec.hashes.then(|| set.totals.hex()) };
    let mut arm = finish(spec.name.clone(), spec.kind, argv, None, set, reply)?;
    arm.list = list;
    Ok(arm)
}

/// Completes an arm with its recorded properties. `shown` replaces the command in the record.
fn finish(
    name: String,
    kind: Kind,
    argv: Vec<OsString>,
    shown: Option<Vec<String>>,
    set: &FileSet,
    reply: Reply,
) -> Result<Arm> {
    let program = argv.first().map(PathBuf::from).with_context(|| format!("{name}: no program"))?;
    let (version, program_xxh3) = identify(&program).with_context(|| format!("arm {name}"))?;
    let command = shown.unwrap_or_else(|| argv.iter().map(|w| show(w, set)).collect());
    let command = command
        .into_iter()
        .enumerate()
        .map(|(i, word)| match (i, program.file_name()) {
            (0, Some(name)) => name.to_string_lossy().into_owned(),
            _ => word,
        })
        .collect();
    let facts = ArmFacts { name, kind, command, version, program_xxh3 };
    Ok(Arm { facts, argv, stdin: None, list: None, reply })
}

/// Returns a word of a command with placeholders for the paths of this machine.
fn show(word: &OsString, set: &FileSet) -> String {
    let text = word.to_string_lossy();
    let dir = set.dir().to_string_lossy();
    let list0 = set.list0();
    let (list0, parent) = (list0.to_string_lossy(), list0.parent().unwrap_or(Path::new("")));
    let list = parent.join("list");
    text.replace(&*list0, "{list0}")
        .replace(&*list.to_string_lossy(), "{list}")
        .replace(&*dir, "{dir}")
}

/// Returns the first line of `--version` and the XXH3-64 of the program file.
fn identify(program: &Path) -> Result<(String, String)> {
    let file = find(program).with_context(|| {
        format!("{} is not an executable file; build it or give its path", program.display())
    })?;
    let bytes = std::fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let version = version(&file).with_context(|| format!("cannot start {}", file.display()))?;
    Ok((version, format!("{:016x}", xxh3_64(&bytes))))
}

/// Finds the file of a program, given a path or a name that is looked up as by a shell.
fn find(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grids_are_understood() {
        for grid in [FULL, QUICK, LARGE] {
            for spec in grid.split(',').map(str::trim) {
                PeerSpec::parse(spec, 4).expect(spec);
            }
        }
        let spec = PeerSpec::parse("tokio-stream:16x", 4).expect("a known peer");
        assert_eq!(spec.name, "tokio-stream:64");
        assert_eq!(spec.args, ["tokio", "--form", "stream", "--concurrency", "64"]);
        assert_eq!(PeerSpec::parse("leanest:2", 4).expect("known").kind, Kind::Floor);
        assert!(PeerSpec::parse("leanest-hash:2", 4).expect("known").hashes);
        for bad in ["rayon", "rayon:", "rayon:0x", "rayon:-1", "read-loop:2", "ryaon:2"] {
            assert!(PeerSpec::parse(bad, 4).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_template_may_have_a_name_and_placeholders() {
        assert_eq!(split_name("a-1=prog {dir}"), (Some("a-1"), "prog {dir}"));
        assert_eq!(split_name("./prog --x=1"), (None, "./prog --x=1"));
        let fill = |word| fill(word, Path::new("/d"), Some(Path::new("/l")), Path::new("/l0"));
        assert_eq!(fill("{dir}"), "/d");
        assert_eq!(fill("--list={list0},{list}"), "--list=/l0,/l");
        assert_eq!(fill("{other}{"), "{other}{");
    }
}
