//! `copy_cases`: runs the named cases of copying trees and files and of summing up trees, each as
//! one interleaved experiment of `copy_versus` or `walk_versus`.
//!
//! The program to judge, the same program before a change and their peers run in each case; a
//! program that is not given is left out. Every case has its own directory below `--out`; one that
//! has a summary is not run again, and one that was interrupted is set aside and starts again, so a
//! stopped series can be continued.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use ioloom_versus::{interleaved, kept};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Run named comparisons of ioloom cp and du with other programs (root).
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Print the names of the cases and what they compare.
    #[arg(long)]
    list: bool,
    /// Directory for the results, one directory per case.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    out: Option<PathBuf>,
    /// Directory for trees and images; its file system is the one of the cases `disk-…`.
    #[arg(long, value_name = "DIR", required_unless_present = "list")]
    scratch: Option<PathBuf>,
    /// The ioloom to judge; also creates the trees.
    #[arg(long, value_name = "PROGRAM", required_unless_present = "list")]
    ours: Option<PathBuf>,
    /// The ioloom before a change.
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// Another GNU cp in addition to the system's.
    #[arg(long, value_name = "PROGRAM")]
    cp: Option<PathBuf>,
    /// The program xcp.
    #[arg(long, value_name = "PROGRAM")]
    xcp: Option<PathBuf>,
    /// The program cpz.
    #[arg(long, value_name = "PROGRAM")]
    cpz: Option<PathBuf>,
    /// Directory with diskus, pdu, dust and dua, for the cases `du-…`.
    #[arg(long, value_name = "DIR")]
    walkers: Option<PathBuf>,
    /// Cases to run (default: all).
    #[arg(long, value_delimiter = ',', value_name = "CASE")]
    cases: Vec<String>,
    /// Number of runs per program and case.
    #[arg(long, default_value = "8")]
    blocks: u32,
    /// Number of files in the trees to copy.
    #[arg(long, default_value = "40000")]
    files: u64,
    /// Number of files in the tree to sum up.
    #[arg(long, default_value = "500000")]
    walked: u64,
    /// Size of the large file.
    #[arg(long, default_value = "1024", value_name = "MIB")]
    large_mib: u64,
    /// Keep the trees for another series.
    #[arg(long)]
    keep: bool,
    /// Memory to write to before each run, so a virtual machine's host has provided it.
    #[arg(long, value_name = "MIB", default_value = "1500")]
    touch_memory_mib: u64,
    /// Seed of the orders.
    #[arg(long, default_value = "1")]
    seed: u64,
}

/// The files of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Files {
    /// A tree with the sizes of source trees.
    Tree,
    Large,
    /// A tree that is only summed up.
    Walked,
}

/// One case.
struct Case {
    name: &'static str,
    what: &'static str,
    files: Files,
    /// Arguments of `copy_versus` or `walk_versus`.
    arguments: &'static [&'static str],
}

const WARM: &str = "--condition=warm";
const COLD: &str = "--condition=cold";
const DROP: &str = "--drop-caches";
const REMOVED: &str = "--removed";
const OUTSIDE: &str = "--source-outside";
const EXT4: &str = "--volume=ext4";
const EXT4_NO_JOURNAL: &str = "--volume=ext4-no-journal";
const XFS: &str = "--volume=xfs";
const BTRFS: &str = "--volume=btrfs";

const fn tree(name: &'static str, what: &'static str, arguments: &'static [&'static str]) -> Case {
    Case { name, what, files: Files::Tree, arguments }
}

const CASES: &[Case] = &[
    tree("disk-warm", "a tree in memory, on the file system of --scratch", &[WARM]),
    tree("disk-cold", "the same tree from the device", &[COLD, DROP]),
    tree("ext4-warm", "a new ext4 with a journal", &[WARM, EXT4]),
    tree("ext4-cold", "the same from the device", &[COLD, DROP, EXT4]),
    tree("ext4-removed", "the same right after rm -r of a copy", &[WARM, EXT4, REMOVED]),
    tree("ext4-no-journal-warm", "a new ext4 without a journal", &[WARM, EXT4_NO_JOURNAL]),
    tree("ext4-no-journal-cold", "the same from the device", &[COLD, DROP, EXT4_NO_JOURNAL]),
    tree(
        "ext4-no-journal-removed",
        "the same right after rm -r of a copy",
        &[WARM, EXT4_NO_JOURNAL, REMOVED],
    ),
    tree("xfs-warm", "a new XFS, blocks may be shared", &[WARM, XFS]),
    tree("xfs-cold", "the same from the device", &[COLD, DROP, XFS]),
    tree("xfs-removed", "the same right after rm -r of a copy", &[WARM, XFS, REMOVED]),
    tree("xfs-outside-warm", "from --scratch into a new XFS", &[WARM, XFS, OUTSIDE]),
    tree("xfs-outside-cold", "the same from the device", &[COLD, DROP, XFS, OUTSIDE]),
    tree("btrfs-warm", "a new btrfs, blocks may be shared", &[WARM, BTRFS]),
    tree("btrfs-cold", "the same from the device", &[COLD, DROP, BTRFS]),
    tree("btrfs-removed", "the same right after rm -r of a copy", &[WARM, BTRFS, REMOVED]),
    tree("btrfs-outside-warm", "from --scratch into a new btrfs", &[WARM, BTRFS, OUTSIDE]),
    tree("btrfs-outside-cold", "the same from the device", &[COLD, DROP, BTRFS, OUTSIDE]),
    Case {
        name: "large-cold",
        what: "one large file from the device, on the file system of --scratch",
        files: Files::Large,
        arguments: &[COLD, DROP],
    },
    Case {
        name: "large-warm",
        what: "the same file in memory",
        files: Files::Large,
        arguments: &[WARM],
    },
    Case {
        name: "du-warm",
        what: "sum of a large tree in memory",
        files: Files::Walked,
        arguments: &[WARM],
    },
    Case {
        name: "du-cold",
        what: "the same tree from the device",
        files: Files::Walked,
        arguments: &[COLD, DROP],
    },
    Case {
        name: "du-cold-busy",
        what: "the same while another program keeps a processor busy",
        files: Files::Walked,
        arguments: &[COLD, DROP, "--busy=1"],
    },
    Case {
        name: "du-warm-busy",
        what: "the same in memory while another program keeps a processor busy",
        files: Files::Walked,
        arguments: &[WARM, "--busy=1"],
    },
];

/// Paths of a series.
struct Series<'a> {
    cli: &'a Cli,
    out: &'a Path,
    scratch: &'a Path,
    ours: String,
}

impl<'a> Series<'a> {
    fn new(cli: &'a Cli) -> Result<Self> {
        let (out, scratch) = cli.out.as_deref().zip(cli.scratch.as_deref()).context("no --out")?;
        let ours = text(cli.ours.as_deref().context("no --ours")?)?;
        Ok(Self { cli, out, scratch, ours })
    }

    /// Returns the path of the files of a case and creates them if they are missing.
    fn files(&self, files: Files) -> Result<PathBuf> {
        let (name, spec) = match files {
            Files::Tree => ("tree", tree_of(self.cli.files)),
            Files::Walked => ("walked", walked_of(self.cli.walked)),
            Files::Large => {
                let size = self.cli.large_mib;
                ("large", format!("count=1,size={size}MiB,layout=flat"))
            }
        };
        let dir = self.scratch.join(name);
        let status = Command::new(&self.ours)
            .args(["fileset", "create", &spec])
            .arg(&dir)
            .status()
            .context("cannot run ioloom")?;
        ensure!(status.success(), "cannot create the files");
        if files != Files::Large {
            return Ok(dir);
        }
        let named = |entry: &fs::DirEntry| !entry.file_name().to_string_lossy().starts_with('.');
        let large = self.cli.large_mib << 20;
        largest(&dir, &named)
            .filter(|path| path.metadata().is_ok_and(|meta| meta.len() == large))
            .context("the large file is missing")
    }

    /// Commands of the programs that copy.
    fn copiers(&self, files: Files) -> Result<Vec<String>> {
        let recursive = if files == Files::Tree { "-rT " } else { "" };
        let mut arms = vec![format!("--ours=ioloom={} cp {recursive}{{from}} {{to}}", self.ours)];
        let mut add = |name: &str, program: &Option<PathBuf>, flags: &str| -> Result<()> {
            if let Some(program) = program {
                arms.push(format!("--arm={name}={} {flags}{{from}} {{to}}", text(program)?));
            }
            Ok(())
        };
        add("before", &self.cli.before, &format!("cp {recursive}"))?;
        add("cp", &Some("cp".into()), recursive)?;
        add("another cp", &self.cli.cp, recursive)?;
        add("xcp", &self.cli.xcp, if files == Files::Tree { "-r -T " } else { "" })?;
        add("cpz", &self.cli.cpz, "")?;
        if files == Files::Large {
            let durable =
                format!("--arm=ioloom durable={} cp --durable=full {{from}} {{to}}", self.ours);
            arms.push(durable);
        }
        Ok(arms)
    }

    /// Commands of the programs that sum up a tree.
    fn walkers(&self) -> Result<Vec<String>> {
        let mut arms = vec![format!("--ours=ioloom={} du -s {{dir}}", self.ours)];
        if let Some(before) = &self.cli.before {
            arms.push(format!("--arm=before={} du -s {{dir}}", text(before)?));
        }
        if let Some(walkers) = &self.cli.walkers {
            arms.push(format!("--peers={}", text(walkers)?));
            // The fastest numbers of the peers: one per core in memory, many from a device.
            arms.push("--threads=2,16".to_owned());
        }
        Ok(arms)
    }

    /// Runs a case. Returns whether every run counted.
    fn run(&self, case: &Case) -> Result<bool> {
        let out = self.out.join(case.name);
        if out.join("summary.md").exists() {
            let complete = interleaved::is_complete(&out)?;
            kept::say(&format!("{}: exists", case.name));
            return Ok(complete);
        }
        if let Some(aside) = set_aside(&out)? {
            kept::say(&format!("{}: interrupted, set aside as {}", case.name, aside.display()));
        }
        let files = self.files(case.files)?;
        let walks = case.files == Files::Walked;
        let program = if walks { "walk_versus" } else { "copy_versus" };
        // Other mount namespaces would copy the mounts of this one and keep them in use.
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation=private"]);
        command.arg(std::env::current_exe()?.with_file_name(program));
        command.args(case.arguments).arg(format!("--out={}", text(&out)?));
        command.arg(format!("--blocks={}", self.cli.blocks));
        command
            .arg(format!("--seed={}", self.cli.seed))
            .arg(format!("--what={}", self.describe(case)));
        if walks {
            command.arg(format!("--dir={}", text(&files)?)).args(self.walkers()?);
        } else {
            command.arg(format!("--touch-memory-mib={}", self.cli.touch_memory_mib));
            command.arg(format!("--source={}", text(&files)?));
            command.arg(format!("--into={}", text(self.scratch)?)).args(self.copiers(case.files)?);
        }
        kept::say(&format!("{}: {}", case.name, case.what));
        let status = command.status().with_context(|| format!("cannot start {program}"))?;
        Ok(status.success())
    }

    fn describe(&self, case: &Case) -> String {
        let cli = self.cli;
        let files = match case.files {
            Files::Tree => format!("fileset {}", tree_of(cli.files)),
            Files::Walked => format!("fileset {}", walked_of(cli.walked)),
            Files::Large => format!("one file of {} MiB", cli.large_mib),
        };
        format!("{files}; {}", case.what)
    }
}

/// Renames the directory of an interrupted case, because results are never overwritten. Returns its
/// new path, or `None` if there was nothing in it.
fn set_aside(out: &Path) -> Result<Option<PathBuf>> {
    if !fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(None);
    }
    let numbered = |number: u32| {
        let mut name = out.as_os_str().to_owned();
        name.push(format!(".interrupted-{number}"));
        PathBuf::from(name)
    };
    let aside = (1..).map(numbered).find(|path| !path.exists()).context("too many results")?;
    fs::rename(out, &aside).with_context(|| format!("cannot rename {}", out.display()))?;
    Ok(Some(aside))
}

/// Files with the sizes of source trees, 40 in a directory.
fn tree_of(files: u64) -> String {
    format!("tree,count={files},layout=tree")
}

/// Mostly tiny files, because their content is not read.
fn walked_of(files: u64) -> String {
    format!("count={files},size=lognormal(mu=5.86,sigma=2.17,max=16MiB),layout=tree")
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(str::to_owned).context("paths must be UTF-8")
}

/// Returns the largest file below a directory.
fn largest(dir: &Path, named: &dyn Fn(&fs::DirEntry) -> bool) -> Option<PathBuf> {
    let entries = fs::read_dir(dir).ok()?.filter_map(Result::ok).filter(named);
    let files = entries.filter_map(|entry| {
        let path = entry.path();
        if path.is_dir() { largest(&path, named) } else { Some(path) }
    });
    files.max_by_key(|path| path.metadata().map_or(0, |meta| meta.len()))
}

/// Returns the cases with these names.
fn chosen(names: &[String]) -> Result<Vec<&'static Case>> {
    if names.is_empty() {
        return Ok(CASES.iter().collect());
    }
    let find = |name: &String| {
        let found = CASES.iter().find(|case| case.name == name);
        found.with_context(|| format!("unknown case '{name}'; --list prints all"))
    };
    names.iter().map(find).collect()
}

fn series(cli: &Cli) -> Result<bool> {
    if cli.list {
        let width = CASES.iter().map(|case| case.name.len()).max().unwrap_or(0);
        CASES.iter().for_each(|case| kept::say(&format!("{:width$}  {}", case.name, case.what)));
        return Ok(true);
    }
    let (cases, series) = (chosen(&cli.cases)?, Series::new(cli)?);
    for dir in [series.out, series.scratch] {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
    }
    let mut index = format!("# Cases\n\nCommand:\n\n```sh\n{}\n```\n\n", kept::command());
    let mut complete = true;
    for case in &cases {
        let counted = series.run(case).with_context(|| format!("cannot run {}", case.name))?;
        complete &= counted;
        let note = if counted { "" } else { " (not every run counts)" };
        writeln!(index, "- [{}]({0}/summary.md): {}{note}", case.name, case.what)?;
        fs::write(series.out.join("README.md"), &index).context("cannot write README.md")?;
    }
    if !cli.keep {
        for name in ["tree", "walked", "large"] {
            let dir = series.scratch.join(name);
            if dir.exists() {
                fs::remove_dir_all(&dir).context("cannot remove the files")?;
            }
        }
    }
    Ok(complete)
}

fn main() -> ExitCode {
    kept::exit("copy_cases", series(&Cli::parse()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_case_has_its_name_and_arguments_that_parse() {
        let names: HashSet<_> = CASES.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), CASES.len());
        for case in CASES {
            let cold = case.arguments.contains(&COLD);
            assert_eq!(cold, case.arguments.contains(&DROP), "{}", case.name);
            assert_eq!(cold, case.name.contains("cold"), "{}", case.name);
            assert_eq!(case.arguments.contains(&REMOVED), case.name.contains("removed"));
        }
        assert_eq!(chosen(&["xfs-cold".to_owned()]).expect("a case")[0].name, "xfs-cold");
        assert!(chosen(&["xfs".to_owned()]).is_err());
    }

    #[test]
    fn an_interrupted_case_is_set_aside_and_a_summary_alone_is_not_trusted() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let out = dir.path().join("disk-warm");
        assert_eq!(set_aside(&out).expect("nothing to do"), None);
        for number in 1..=2 {
            fs::create_dir(&out).expect("makes a directory");
            assert_eq!(set_aside(&out).expect("nothing to do"), None);
            fs::write(out.join("raw.jsonl"), "").expect("writes");
            let aside = dir.path().join(format!("disk-warm.interrupted-{number}"));
            assert_eq!(set_aside(&out).expect("renames"), Some(aside.clone()));
            assert!(aside.join("raw.jsonl").exists() && !out.exists());
        }
        fs::create_dir(&out).expect("makes a directory");
        fs::write(out.join("summary.md"), "").expect("writes");
        let path = dir.path().to_str().expect("UTF-8");
        let cli = Cli::parse_from(["copy_cases", "--out", path, "--scratch", path, "--ours", "o"]);
        let series = Series::new(&cli).expect("paths");
        assert!(series.run(&CASES[0]).is_err(), "{} has no raw data", CASES[0].name);
    }
}
