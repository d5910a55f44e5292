//! `fuzz-du`: random trees and options for the system's du and ours.
//!
//! Output, messages and exit codes must be equal, except for what [`ACCEPTED`] lists.

use super::place::{Place, remove};
use super::program::{Ended, run};
use super::random::Random;
use super::tree::{Entry, Limits, OLD, Tree, What};
use anyhow::Context;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// The differences that are not failures, with their reasons.
pub(super) const ACCEPTED: [&str; 10] = [
    "order of lines: ours are sorted by name, so that output does not depend on the file system or \
     on threads; GNU's are in the order of the directory",
    "a file with several links: ours is charged to the link whose path sorts first, GNU's to the one \
     found first; sums of directories that contain only some of the links differ",
    "-L without -l: an entry reached in several ways is listed, or named in a message, under one of \
     its paths, GNU's by directory order; the totals of the arguments are compared",
    "-L with --exclude: a pattern can match one of several paths of a directory, and GNU's uses the one \
     that it finds first. Ours must print what GNU's prints for a tree whose entries were created in \
     another order",
    "a dangling link with -L: GNU du 9.1 leaves out the reason, 'No such file or directory'",
    "a name with a quote and, at its end, an escaped character: GNU du 9.1 begins it with two more quotes, \
     which a shell reads as nothing",
    "--time before 1970: GNU's prints 1970 for the directories that it enters first. Of lines with times until \
     then, sizes and names are compared",
    "quotes of names in messages: GNU's are curved in a UTF-8 locale, ours are those that a shell reads, so that a name \
     can be copied from a message",
    "a failed write: GNU du 9.1 leaves out the reason; a directory below itself: ours is one line, and is reported \
     even if a mount point is between the two",
    "order and repetition of messages; a name that is not ASCII is not escaped in the locale C",
];

/// Orders of creation that are tried for a difference that can depend on the order.
const ORDERS: usize = 12;

/// How many of 100 trees contain times before 1970. They hide differences between times.
const OLD_PERCENT: u64 = 10;

/// What times before 1970, and those that GNU's prints instead, begin with in all styles.
const EARLY: [&[u8]; 4] = [b"1969-", b"1970-01-01", b"-", b"0."];

/// Spellings of options.
const TOTAL: [&str; 3] = ["-c", "--total", "--to"];
const SEPARATE: [&str; 3] = ["-S", "--separate-dirs", "--sep"];
const CHANGE_TIME: [&str; 3] = ["--time=ctime", "--time=status", "--time=c"];

/// Removes the time between the size and the name if it passes a test.
fn remove_time(line: &mut Vec<u8>, test: impl Fn(&[u8]) -> bool) {
    let mut tabs = line.iter().enumerate().filter(|(_, byte)| **byte == b'\t').map(|(at, _)| at);
    if let (Some(first), Some(second)) = (tabs.next(), tabs.next())
        && test(&line[first + 1..second])
    {
        line.drain(first..second);
    }
}

fn is_early(time: &[u8]) -> bool {
    EARLY.iter().any(|start| time.starts_with(start))
}

/// A case: a tree, options and arguments, and variables.
#[derive(Debug, Clone)]
pub(super) struct Case {
    tree: Tree,
    options: Vec<String>,
    operands: Vec<PathBuf>,
    variables: Vec<(&'static str, &'static str)>,
    root: bool,
}

impl Case {
    /// Draws the case of a seed.
    pub(super) fn draw(seed: u64, root: bool) -> Self {
        let mut random = Random::new(seed);
        let earliest = if Random::new(!seed).chance(OLD_PERCENT) { OLD } else { 1 };
        let limits = Limits { root, entries_max: 40, special: true, closed: !root, earliest };
        let tree = Tree::draw(&mut random, b"tree", limits);
        let mut options = draw_options(&mut random);
        // Lines of such names are distinguishable only if they end with a zero byte.
        if tree.entries.iter().any(|entry| entry.name.contains(&b'\n')) {
            options.push("-0".to_owned());
        }
        let mut operands = Vec::new();
        for _ in 0..1 + random.below(3) * u64::from(random.chance(40)) {
            let index = if random.chance(65) { 0 } else { random.index(tree.entries.len()) };
            let mut path = tree.path(index).into_os_string();
            let directory = tree.entries[index].what == What::Directory;
            if directory && random.chance(10) {
                path.push("/");
            }
            operands.push(PathBuf::from(path));
        }
        if random.chance(4) {
            operands.push("absent".into());
        }
        let locale = ["C", "C.UTF-8"][random.index(2)];
        let mut variables = vec![
            ("LC_ALL", locale),
            ("TZ", ["UTC0", "CET-1CEST,M3.5.0,M10.5.0/3"][random.index(2)]),
        ];
        if random.chance(15) {
            let name = ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE"][random.index(3)];
            variables.push((name, ["1", "K", "MB", "si", "x", "512", "human"][random.index(7)]));
        }
        if random.chance(8) {
            variables.push(("POSIXLY_CORRECT", "1"));
        }
        let mut case = Self { tree, options, operands, variables, root };
        if case.compares_nothing() {
            case.options.push("-c".to_owned());
        }
        case
    }

    /// Returns true if the accepted differences include the lines of all arguments, and no total is
    /// printed.
    fn compares_nothing(&self) -> bool {
        let end = if self.has(&["-0", "--null"]) { 0 } else { b'\n' };
        let mut out = Vec::new();
        let total = self.has(&TOTAL).then_some(OsStr::new("total"));
        let there = self.operands.iter().filter(|operand| *operand != Path::new("absent"));
        for name in there.map(|operand| operand.as_os_str()).chain(total) {
            out.extend_from_slice(b"4\t");
            out.extend_from_slice(name.as_bytes());
            out.push(end);
        }
        self.lines(&out).iter().all(Vec::is_empty)
    }

    /// Runs both programs and returns the differences.
    pub(super) fn differences(
        &self,
        (place, reference): (&Place, &Place),
        program: &Path,
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        let own = program.to_string_lossy();
        let ours = [own.as_ref(), "du"];
        let in_order: Vec<usize> = (0..self.tree.entries.len()).collect();
        let ended = self.run(place, number, &in_order, &[&["du"], &ours])?;
        let found = self.compare(&ended[0], &ended[1]);
        if found.is_empty() || !self.depends_on_order() {
            return Ok(found);
        }
        let ours = self.run(reference, number, &in_order, &[&ours])?;
        let mut random = Random::new(number);
        for at in 0..ORDERS {
            let order = match at {
                0 => self.tree.order(|length| length - 1),
                _ => self.tree.order(|length| random.index(length)),
            };
            let system = self.run(reference, number, &order, &[&["du"]])?;
            if self.compare(&system[0], &ours[0]).is_empty() {
                return Ok(Vec::new());
            }
        }
        Ok(found)
    }

    /// Returns true if the output can depend on the order in which entries were created.
    fn depends_on_order(&self) -> bool {
        self.has(&["-L", "--dereference"])
            && self.options.iter().any(|word| word.starts_with("--exclude="))
    }

    /// Runs programs on the tree, its entries created in an order.
    fn run(
        &self,
        place: &Place,
        number: u64,
        order: &[usize],
        programs: &[&[&str]],
    ) -> anyhow::Result<Vec<Ended>> {
        let dir = place.fresh(number)?;
        std::fs::create_dir(dir.join("outside")).context("create a directory")?;
        std::fs::write(dir.join("outside/kept"), "kept").context("write a file")?;
        self.tree.create_in(&dir, order)?;
        // Links lead to these, too. Their times must not depend on when a tree is created.
        for name in ["outside/kept", "outside", "."] {
            let file = std::fs::File::open(dir.join(name)).context("open")?;
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1 << 30)).context("set a time")?;
        }
        let operands: Vec<&OsStr> = self.operands.iter().map(|path| path.as_os_str()).collect();
        let mut all = Vec::new();
        for program in programs {
            let mut words: Vec<String> = program.iter().map(|word| (*word).to_owned()).collect();
            words.extend(self.options.iter().cloned());
            words.push("--".to_owned());
            all.push(run(&words, &operands, &dir, self.root, &self.variables)?);
        }
        remove(&dir)?;
        Ok(all)
    }

    fn compare(&self, system: &Ended, ours: &Ended) -> Vec<String> {
        let mut found = Vec::new();
        if system.code != ours.code {
            found.push(format!("exit code: du {:?}, ours {:?}", system.code, ours.code));
        }
        let (theirs, own) = (self.lines(&system.out), self.lines(&ours.out));
        for (name, these, others) in [("only du", &theirs, &own), ("only ours", &own, &theirs)] {
            for line in these.iter().filter(|line| !others.contains(line)) {
                found.push(format!("{name}: {}", String::from_utf8_lossy(line).escape_debug()));
            }
        }
        if found.is_empty() && theirs != own {
            found.push("a line is repeated".to_owned());
        }
        let utf8 = self.variables.contains(&("LC_ALL", "C.UTF-8"));
        let (theirs, own) = (messages(&system.err, "du"), messages(&ours.err, "ioloom"));
        let by_order = self.has(&["-L", "--dereference"]) && !self.has(&["-l", "--count-links"]);
        if utf8 && !by_order && theirs != own {
            found.push(format!("messages: du {theirs:?}, ours {own:?}"));
        }
        if !found.is_empty() {
            found.push(format!("du said: {}", system.err.trim().escape_debug()));
            found.push(format!("ours said: {}", ours.err.trim().escape_debug()));
        }
        found
    }

    fn has(&self, spellings: &[&str]) -> bool {
        self.options.iter().any(|word| spellings.contains(&word.as_str()))
    }

    /// Returns the lines to compare, sorted, after the accepted differences are removed.
    fn lines(&self, out: &[u8]) -> Vec<Vec<u8>> {
        let end = if self.has(&["-0", "--null"]) { 0 } else { b'\n' };
        let mut lines: Vec<Vec<u8>> = out.split(|byte| *byte == end).map(<[u8]>::to_vec).collect();
        if !self.has(&["-l", "--count-links"]) {
            if self.has(&["-L", "--dereference"]) || self.starts_at_link() {
                self.keep_operands(&mut lines);
            } else {
                self.mask_links(&mut lines);
            }
        }
        if self.has(&CHANGE_TIME) && self.depends_on_order() {
            // The trees were created at different times.
            lines.iter_mut().for_each(|line| remove_time(line, |_| true));
        } else if self.has(&["--time"]) && self.tree.entries.iter().any(Entry::is_old) {
            lines.iter_mut().for_each(|line| remove_time(line, is_early));
        }
        lines.sort();
        lines
    }

    /// Returns true if a symbolic link given as an argument is followed: paths below it have other
    /// names than in the tree.
    fn starts_at_link(&self) -> bool {
        let named = |at: usize| self.operands.contains(&self.tree.path(at));
        let what = |at: usize| &self.tree.entries[self.tree.original(at)].what;
        let is_link = |at: &usize| matches!(what(*at), What::Symlink(_));
        self.has(&["-D", "-H", "--dereference-args"])
            && (0..self.tree.entries.len()).filter(is_link).any(named)
    }

    /// Keeps the lines of the arguments and of the total.
    fn keep_operands(&self, lines: &mut Vec<Vec<u8>>) {
        lines.retain(|line| {
            let path = path_of(line);
            path == b"total" || self.operands.iter().any(|own| own.as_os_str().as_bytes() == path)
        });
        // The path decides which argument an entry belongs to, and with -S, which directory.
        if self.operands.len() > 1 || self.has(&SEPARATE) {
            lines.retain(|line| path_of(line) == b"total");
        }
    }

    /// Replaces names of linked files by their group, and removes directories that contain only
    /// some of the links of a file.
    fn mask_links(&self, lines: &mut Vec<Vec<u8>>) {
        let separate = self.has(&SEPARATE);
        let mut names: BTreeMap<PathBuf, usize> = BTreeMap::new();
        let mut masked: Vec<PathBuf> = Vec::new();
        for (number, group) in self.tree.link_groups().iter().enumerate() {
            for member in group {
                names.insert(member.clone(), number);
                for above in member.ancestors().skip(1) {
                    let within = |path: &&PathBuf| {
                        if separate {
                            path.parent() == Some(above)
                        } else {
                            path.starts_with(above)
                        }
                    };
                    let count = group.iter().filter(within).count();
                    if count > 0 && count < group.len() {
                        masked.push(above.to_owned());
                    }
                }
            }
        }
        lines.retain(|line| !masked.iter().any(|dir| dir == normal(path_of(line))));
        for line in lines {
            let path = path_of(line);
            if let Some(number) = names.get(normal(path)) {
                let keep = line.len() - path.len();
                line.truncate(keep);
                line.extend_from_slice(format!("(group {number})").as_bytes());
            }
        }
    }

    /// Returns simpler cases.
    pub(super) fn simpler(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for index in 0..self.options.len() {
            let mut case = self.clone();
            case.options.remove(index);
            if case.has(&["-0", "--null"]) || !self.has(&["-0", "--null"]) {
                all.push(case);
            }
        }
        if self.operands.len() > 1 {
            for index in 0..self.operands.len() {
                let mut case = self.clone();
                case.operands.remove(index);
                all.push(case);
            }
        }
        for index in (1..self.tree.entries.len()).rev() {
            let path = self.tree.path(index);
            let used =
                self.operands.iter().any(|operand| normal(operand.as_os_str().as_bytes()) == path);
            if let Some(tree) = self.tree.without(index).filter(|_| !used) {
                all.push(Self { tree, ..self.clone() });
            }
        }
        all
    }

    /// Describes the case: the command and the tree.
    pub(super) fn describe(&self) -> String {
        let (options, operands) = (&self.options, &self.operands);
        let user = if self.root { "root" } else { "plain user" };
        let tree = self.tree.describe();
        format!("{user}: {:?} du {options:?} {operands:?}\n{tree}", self.variables)
    }
}

/// Returns a path without slashes at its end.
fn normal(path: &[u8]) -> &Path {
    let length = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    Path::new(OsStr::from_bytes(&path[..length]))
}

/// Returns the path of a line: what follows the last tab before the name, which can contain tabs.
fn path_of(line: &[u8]) -> &[u8] {
    let starts: [&[u8]; 3] = [b"\ttree", b"\ttotal", b"\tabsent"];
    let at = starts
        .iter()
        .filter_map(|start| line.windows(start.len()).position(|part| part == *start))
        .min();
    at.map_or(line, |at| &line[at + 1..])
}

/// Returns messages without the program's name and advice, sorted, without repetitions.
fn messages(text: &str, name: &str) -> Vec<String> {
    let prefix = format!("{name}: ");
    let line = |line: &str| {
        let plain = line.replace(['‘', '’'], "'");
        let own = plain
            .strip_prefix(&prefix)
            .unwrap_or(&plain)
            .replace("'ioloom du --help'", "'du --help'")
            .replace(" '''", " '");
        let own = own.trim_end_matches(": No such file or directory").to_owned();
        own.rsplit_once("; ").map_or(own.clone(), |(before, _)| before.to_owned())
    };
    let mut all: Vec<String> = text.lines().map(line).collect();
    all.sort();
    all.dedup();
    all
}

fn draw_options(random: &mut Random) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    let mut add = |random: &mut Random, percent: u64, choices: &[&str]| {
        if random.chance(percent) {
            options.push((*random.pick(choices)).to_owned());
        }
    };
    match random.below(4) {
        0 => add(random, 100, &["-s", "--summarize", "--su"]),
        1 => add(random, 100, &["-a", "--all", "--al"]),
        2 => add(random, 100, &["-d1", "-d0", "-d2", "--max-depth=1", "--max=3", "-d 1"]),
        _ => {}
    }
    for _ in 0..1 + random.below(2) {
        let units = [
            "-h",
            "--si",
            "-k",
            "-m",
            "-b",
            "-B1",
            "-BK",
            "-BkB",
            "-BMiB",
            "-B512",
            "--block-size=1000",
            "-B010",
            "--bl=human-readable",
            "-Bsi",
            "--apparent-size",
            "--app",
            "--inodes",
            "--by",
        ];
        add(random, 60, &units);
    }
    add(random, 20, &SEPARATE);
    add(random, 20, &TOTAL);
    add(random, 25, &["-l", "--count-links"]);
    add(
        random,
        30,
        &["-L", "--dereference", "-D", "-H", "-P", "--no-dereference", "--dereference-args"],
    );
    add(random, 8, &["-L", "-P", "-D"]);
    add(random, 10, &["-x", "--one-file-system"]);
    add(random, 40, &["-0", "--null"]);
    add(random, 15, &["-t5000", "--th=1", "--threshold=-8K", "-t", "--threshold=4K", "-t0"]);
    let patterns = [
        "--exclude=a*",
        "--exclude=?",
        "--exclude=??",
        "--exclude=*[0-9]",
        "--exclude=[!a-c]*",
        "--exclude=b/*",
        "--exclude=tree",
        "--exclude=\\*",
        "--exclude=[[:alpha:]]",
        "--exclude=[[:letter:]]",
        "--exclude=[[.a.]-c]*",
        "--exclude=*[[=b=]]",
        "--exclude=",
        "--exclude=/?",
        "--exclude=*\u{e9}*",
        "--exclude=new*",
        "--exclude=.*",
    ];
    add(random, 20, &patterns);
    add(
        random,
        20,
        &["--time", "--time=ctime", "--time=status", "--time=mtime", "--time=c", "--time="],
    );
    add(
        random,
        12,
        &["--time-style=full-iso", "--time-style=iso", "--time-style=+%s.%N", "--time-style=x"],
    );
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_compares_something() {
        let mut old = 0;
        for seed in 0..200_u64 {
            let case = Case::draw(seed, !seed.is_multiple_of(3));
            assert!(!case.compares_nothing(), "seed {seed}: {}", case.describe());
            old += u32::from(case.tree.entries.iter().any(Entry::is_old));
        }
        assert!((1..60).contains(&old), "{old} of 200 trees have times before 1970");
    }

    #[test]
    fn only_times_before_1970_are_not_compared() {
        let is_old = |case: &Case| case.tree.entries.iter().any(Entry::is_old);
        let draw = |old: bool, options: &[&str]| {
            let case = (0..).map(|seed| Case::draw(seed, true)).find(|case| is_old(case) == old);
            let options = options.iter().map(|word| (*word).to_owned()).collect();
            Case { options, operands: vec!["tree".into()], ..case.unwrap() }
        };
        let differs = |case: &Case, times: [&str; 2]| {
            let [one, other] =
                times.map(|time| case.lines(format!("4\t{time}\ttree\n").as_bytes()));
            one != other
        };
        let early = ["1969-01-01 00:00", "1970-01-01 00:00"];
        let late = ["1975-01-01 00:00", "1976-01-01 00:00"];
        let old = draw(true, &["--time", "-l"]);
        assert!(!differs(&old, early) && differs(&old, late));
        assert!(!differs(&old, ["-31536000.999999999", "0.000000000"]));
        assert!(differs(&draw(false, &["--time", "-l"]), early));
        assert!(differs(&draw(true, &["--time=ctime", "-l"]), early));
        let ordered = draw(true, &["--time=ctime", "-l", "-L", "--exclude=x"]);
        assert!(!differs(&ordered, late));
    }
}
