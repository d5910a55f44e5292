//! A case of `fuzz-copy`: trees, options and operands, drawn from a seed.

use super::random::Random;
use super::tree::{Limits, OLD, Tree, What};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// A case.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) source: Tree,
    /// The target before the copy; `None` if it does not exist.
    pub(super) target: Option<Tree>,
    pub(super) options: Vec<String>,
    pub(super) operands: Vec<PathBuf>,
    pub(super) umask: u32,
    pub(super) root: bool,
}

impl Case {
    /// Draws the case of a seed.
    pub(super) fn draw(seed: u64, root: bool) -> Self {
        let mut random = Random::new(seed);
        let limits = Limits { root, entries_max: 25, special: true, closed: !root, earliest: OLD };
        let source = Tree::draw(&mut random, b"source", limits);
        let existing = random.chance(55);
        let target = existing.then(|| {
            let limits = Limits { special: random.chance(15), closed: false, ..limits };
            source.draw_target(&mut random, b"source", limits)
        });
        let options = draw_options(&mut random);
        let operands = draw_operands(&mut random, &source, existing);
        let umask = [0o022, 0o077, 0o000, 0o027][random.index(4)];
        Self { source, target, options, operands, umask, root }
    }

    /// Returns true if the result can depend on the order in which names are found.
    pub(super) fn depends_on_order(&self) -> bool {
        let has_links =
            |tree: &Tree| tree.entries.iter().any(|entry| matches!(entry.what, What::Link(_)));
        let leads =
            |tree: &Tree| tree.entries.iter().any(|entry| matches!(entry.what, What::Symlink(_)));
        let follows = self.has(&["-rL", "-L", "-l", "--link", "-rH", "-H"]);
        has_links(&self.source)
            || follows && leads(&self.source)
            || self.target.as_ref().is_some_and(|target| has_links(target) || leads(target))
    }

    pub(super) fn is_directory(&self, path: &Path) -> bool {
        let entry = self.source.index_of(path).map(|at| &self.source.entries[at].what);
        entry == Some(&What::Directory)
    }

    pub(super) fn has(&self, starts: &[&str]) -> bool {
        self.options.iter().any(|word| starts.iter().any(|start| word.starts_with(start)))
    }

    /// Returns false if the system's cp, which gets other options, would name a backup differently.
    pub(super) fn is_comparable(&self) -> bool {
        const NAME_MAX: usize = 253;
        let is_long = self.source.entries.iter().any(|entry| entry.name.len() > NAME_MAX);
        !(is_long && self.options.iter().any(|word| word.contains("=simple")))
    }

    /// Returns the options for the system's cp. Its `--backup=simple` has an error, and names of
    /// numbered backups, which `existing` looks for, are in no tree.
    pub(super) fn options_for_system(&self) -> Vec<String> {
        self.options.iter().map(|word| word.replace("=simple", "=existing")).collect()
    }

    pub(super) fn preserves(&self) -> bool {
        self.has(&["-a", "-p", "-rp", "--pr", "--ar"])
    }

    pub(super) fn preserves_times(&self) -> bool {
        let words = ["-a", "-rp", "-p", "--ar", "--preserve=all", "--preserve=timestamps"];
        let stays = self.has(&["--no-preserve=timestamps", "--no-preserve=all"]);
        !stays && (self.has(&words) || self.options.iter().any(|word| word == "--preserve"))
    }

    pub(super) fn preserves_links(&self) -> bool {
        let with = ["-a", "--archive", "-dR", "-d", "--preserve=all", "--preserve=links"];
        let without = ["--no-preserve=all", "--no-preserve=ownership,links"];
        let last = |words: &[&str]| self.options.iter().rposition(|w| words.contains(&w.as_str()));
        last(&with) > last(&without)
    }

    /// Returns true if a directory contains the target of a source that is not one itself, and so
    /// is not copied.
    pub(super) fn is_above_target(&self, path: &Path) -> bool {
        let Some((target, sources)) = self.operands.split_last() else { return false };
        let has_files = sources.iter().any(|source| !self.is_directory(source));
        has_files && (path == target || target.parent() == Some(path))
    }

    /// Returns the places to which the sources are copied, each with the source.
    pub(super) fn places(&self) -> Vec<(PathBuf, &Path)> {
        let Some((target, sources)) = self.operands.split_last() else { return Vec::new() };
        let whole = self.has(&["--parents"]);
        let name = |source: &Path| match whole {
            true => Some(target.join(source)),
            false => source.file_name().map(|name| target.join(name)),
        };
        sources.iter().filter_map(|source| Some((name(source)?, source.as_path()))).collect()
    }

    /// Returns the entries of the source that a path at the target can be a copy of.
    pub(super) fn originals(&self, path: &Path) -> Vec<usize> {
        let from = |(place, source): (PathBuf, &Path)| {
            let below = path.strip_prefix(place).ok()?;
            let all = if below.as_os_str().is_empty() { source.into() } else { source.join(below) };
            Some(self.source.original(self.source.index_of(&all)?))
        };
        self.places().into_iter().filter_map(from).collect()
    }

    /// Returns the set-id and sticky bits of the sources that are copied to the names of one file, except
    /// those with the permissions of `mode`.
    pub(super) fn bits_of_other_sources(&self, names: &[&Path], mode: u32) -> u32 {
        let sources = names.iter().flat_map(|name| self.originals(name));
        let others =
            sources.filter(|index| self.source.entries[*index].mode & 0o777 != mode & 0o777);
        others.fold(0, |bits, index| bits | self.source.special_bits(&self.source.path(index)))
    }

    /// Returns simpler cases.
    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        // The first one is recursive: without it, a pipe would wait for a writer.
        for index in 1..self.options.len() {
            let mut case = self.clone();
            case.options.remove(index);
            all.push(case);
        }
        for index in (1..self.source.entries.len()).rev() {
            let path = self.source.path(index);
            let used = self.operands.iter().any(|operand| operand.starts_with(&path));
            if let Some(source) = self.source.without(index).filter(|_| !used) {
                all.push(Self { source, ..self.clone() });
            }
        }
        if let Some(target) = &self.target {
            for index in (1..target.entries.len()).rev() {
                if let Some(target) = target.without(index) {
                    all.push(Self { target: Some(target), ..self.clone() });
                }
            }
        }
        all
    }

    /// Describes the case: the command and the trees.
    pub(super) fn describe(&self) -> String {
        let (options, operands) = (&self.options, &self.operands);
        let user = if self.root { "root" } else { "plain user" };
        let source = self.source.describe();
        let target = self.target.as_ref().map_or("  absent\n".to_owned(), Tree::describe);
        format!(
            "{user}, umask {:03o}: cp {options:?} {operands:?}\n{source}in 't' before:\n{target}",
            self.umask
        )
    }
}

fn draw_options(random: &mut Random) -> Vec<String> {
    let mut options = Vec::new();
    let mut add = |random: &mut Random, percent: u64, choices: &[&str]| {
        if random.chance(percent) {
            options.push((*random.pick(choices)).to_owned());
        }
    };
    // Pipes of the source are copied as contents without -R, which would wait for a writer.
    add(
        random,
        100,
        &["-a", "-r", "-R", "-dR", "-rp", "-a", "--recursive", "--archive", "-rL", "-rH", "-rP"],
    );
    let preserve = [
        "-p",
        "--preserve",
        "--preserve=all",
        "--preserve=mode",
        "--preserve=timestamps",
        "--preserve=ownership",
        "--preserve=links",
        "--preserve=xattr",
        "--preserve=mode,xattr",
        "--no-preserve=mode",
        "--no-preserve=timestamps",
        "--no-preserve=all",
        "--no-preserve=ownership,links",
        "--no-pres=xattr",
        "--pre=mode,ownership",
    ];
    add(random, 40, &preserve);
    add(random, 15, &preserve);
    add(random, 12, &["--sparse=always", "--sparse=never", "--sparse=auto"]);
    add(random, 8, &["--reflink=auto", "--reflink=never"]);
    add(random, 10, &["-u", "-n", "--no-clobber", "--update"]);
    add(random, 12, &["-f", "--force", "--remove-destination", "--rem"]);
    add(
        random,
        10,
        &["-b", "--backup=numbered", "--backup=simple", "-S.old", "--backup=t", "--backup"],
    );
    add(random, 8, &["-l", "-s", "--link"]);
    add(random, 6, &["--attributes-only"]);
    add(random, 8, &["-x", "--one-file-system"]);
    add(random, 15, &["-T", "--no-target-directory"]);
    add(random, 6, &["--parents"]);
    add(random, 8, &["-v", "-P", "-L", "-H", "-d", "--no-dereference"]);
    options
}

/// Draws the operands: the whole source or parts of it, to a path that exists or not.
fn draw_operands(random: &mut Random, source: &Tree, existing: bool) -> Vec<PathBuf> {
    let any = |random: &mut Random| source.path(random.index(source.entries.len()));
    match random.below(10) {
        0..4 => vec!["source".into(), "t".into()],
        4 => vec!["source".into(), "t/source".into()],
        5 if !existing => vec!["source".into(), "t/new".into()],
        6 => vec!["source/.".into(), if existing { "t/source".into() } else { "t".into() }],
        7 => vec![any(random), any(random), "t".into()],
        8 => vec![any(random), "t".into()],
        _ => {
            // A file with the same name in the target.
            let files: Vec<usize> = (1..source.entries.len())
                .filter(|index| source.entries[*index].what != What::Directory)
                .collect();
            let Some(index) = files.get(random.index(files.len().max(1))) else {
                return vec!["source".into(), "t".into()];
            };
            let path = source.path(*index);
            let target = if existing { PathBuf::from("t").join(&path) } else { "t/new".into() };
            let slash = |path: PathBuf| {
                let mut path = OsString::from(path);
                path.push("/");
                PathBuf::from(path)
            };
            let target = if random.chance(5) { slash(target) } else { target };
            vec![path, target]
        }
    }
}
