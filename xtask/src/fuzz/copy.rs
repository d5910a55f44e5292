//! `fuzz-copy`: random trees, options and targets for the system's cp and ours.
//!
//! Both programs copy from equal sources over equal targets. The checker then compares the whole
//! working directory: the target, the source, and a directory outside that must not change.

use super::copy_accepted::{
    accepts, by_result, is_mode_of_source, only_relinks, retain_reachable, retain_repeated,
    retain_unkept,
};
use super::copy_case::Case;
use super::copy_names::{retain_doubled, retain_named};
use super::copy_parents::retain_unparented;
use super::copy_run::Run;
use super::place::{Place, remove};
use super::program::{Ended, run};
use super::random::Random;
use super::snapshot::{Difference, Record, Snapshot, take};
use super::tree::PLAIN;
use anyhow::Context;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Orders of creation that are tried for a difference that can depend on the order.
const ORDERS: usize = 12;

/// What GNU's says of a directory that is a source, and in another one.
const REPEATED: &str = "will not create hard link";

/// Whose cp runs.
#[derive(Clone, Copy)]
enum Who<'a> {
    System,
    Ours(&'a Path),
}

impl Case {
    /// Runs both programs and returns the differences. `reference` is a tmpfs.
    pub(super) fn differences(
        &self,
        place: &Place,
        reference: &Place,
        program: &Path,
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        if !self.is_comparable() {
            return Ok(Vec::new());
        }
        let dir = place.fresh(number)?;
        let system = self.run(&dir.join("system"), Who::System);
        let ours = self.run(&dir.join("ours"), Who::Ours(program));
        let found = system.and_then(|system| {
            let ours = ours?;
            let found = self.compare(&dir, (place, reference), (&system, &ours), number)?;
            Ok(self.describe_all(&found, &system, &ours))
        });
        remove(&dir)?;
        found
    }

    fn compare(
        &self,
        dir: &Path,
        (place, reference): (&Place, &Place),
        (system, ours): (&Run, &Run),
        number: u64,
    ) -> anyhow::Result<Vec<String>> {
        if system.0.code.is_none() && ours.0.code.is_none() {
            return Ok(Vec::new());
        }
        let on_fuse = place.name == "fuse";
        let mut differences = by_result(self, system, ours, on_fuse);
        let mut same_code = system.0.code == ours.0.code;
        if differences.is_empty() && same_code {
            return Ok(Vec::new());
        }
        if system.0.err.contains(REPEATED) {
            let apart = self.run_apart(&dir.join("apart"))?;
            retain_repeated(self, &mut differences, &apart, ours, on_fuse);
            same_code |= apart.0.code == ours.0.code;
        }
        let given: Vec<usize> = (0..self.source.entries.len()).collect();
        let since = self.start(&dir.join("before"), &given)?;
        let before = take(&dir.join("before"), since)?;
        retain_unkept(self, &mut differences, (system, ours), &before);
        same_code |= retain_reachable(self, &mut differences, (system, ours), &before);
        same_code |= only_relinks(self, system, ours);
        same_code |= retain_unparented(self, &mut differences, (system, ours));
        retain_named(self, &mut differences, (system, ours), &before);
        same_code |= retain_doubled(self, &mut differences, (system, ours));
        if differences.is_empty() && same_code {
            return Ok(Vec::new());
        }
        let references = self.references(reference, on_fuse, number)?;
        Ok(self.unexplained(&differences, same_code, (ours, on_fuse), &references))
    }

    /// Runs the system's cp on tmpfs, with the entries of the source created in several orders.
    fn references(&self, place: &Place, on_fuse: bool, number: u64) -> anyhow::Result<Vec<Run>> {
        let mut random = Random::new(number);
        let mut orders = vec![(0..self.source.entries.len()).collect::<Vec<usize>>()];
        match self.depends_on_order() {
            true => {
                orders.push(self.source.order(|length| length - 1));
                orders.extend((2..ORDERS).map(|_| self.source.order(|n| random.index(n))));
            }
            false if !on_fuse => return Ok(Vec::new()),
            false => {}
        }
        let dir = place.fresh(number)?;
        let mut all = Vec::new();
        for (index, order) in orders.iter().enumerate() {
            let dir = dir.join(index.to_string());
            let since = self.start(&dir, order)?;
            let ended = self.execute(&dir, Who::System, &self.operands)?;
            all.push((ended, take(&dir, since)?));
        }
        remove(&dir)?;
        Ok(all)
    }

    /// Creates the start in `dir`, runs a program there, and takes a snapshot.
    fn run(&self, dir: &Path, who: Who<'_>) -> anyhow::Result<Run> {
        let given: Vec<usize> = (0..self.source.entries.len()).collect();
        let since = self.start(dir, &given)?;
        let ended = self.execute(dir, who, &self.operands)?;
        Ok((ended, take(dir, since)?))
    }

    /// Runs the system's cp once for each source.
    fn run_apart(&self, dir: &Path) -> anyhow::Result<Run> {
        let given: Vec<usize> = (0..self.source.entries.len()).collect();
        let since = self.start(dir, &given)?;
        let (target, sources) = self.operands.split_last().context("no operands")?;
        let mut all = Ended { code: Some(0), out: Vec::new(), err: String::new() };
        for source in sources {
            let one = self.execute(dir, Who::System, &[source.clone(), target.clone()])?;
            all.code = all.code.max(one.code);
            all.err += &one.err;
        }
        Ok((all, take(dir, since)?))
    }

    /// Creates the start in `dir`, with the entries of the source in an order. Returns the time
    /// from which on times are "now".
    fn start(&self, dir: &Path, order: &[usize]) -> anyhow::Result<i64> {
        std::fs::create_dir(dir).context("create a working directory")?;
        std::fs::create_dir(dir.join("outside")).context("create a directory")?;
        std::fs::write(dir.join("outside/kept"), "kept").context("write a file")?;
        self.source.create_in(dir, order)?;
        std::fs::create_dir(dir.join("t")).context("create a directory")?;
        if let Some(target) = &self.target {
            target.create(&dir.join("t"))?;
        }
        if rustix::process::getuid().is_root() && !self.root {
            for owned in ["", "t", "outside", "outside/kept"] {
                std::os::unix::fs::chown(dir.join(owned), Some(PLAIN), Some(PLAIN))
                    .context("give a directory to the plain user")?;
            }
        }
        // The time of a coarse clock can be before that of a fine one.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(now.as_secs()).unwrap_or(i64::MAX) - 3600)
    }

    fn execute(&self, dir: &Path, who: Who<'_>, operands: &[PathBuf]) -> anyhow::Result<Ended> {
        let (program, options) = match who {
            Who::System => (vec!["cp".to_owned()], self.options_for_system()),
            Who::Ours(path) => {
                (vec![path.to_string_lossy().into_owned(), "cp".to_owned()], self.options.clone())
            }
        };
        let script = format!("umask {:o}; exec \"$0\" \"$@\"", self.umask);
        let mut words = vec!["sh".to_owned(), "-c".to_owned(), script];
        words.extend(program);
        words.extend(options);
        words.push("--".to_owned());
        let operands: Vec<&OsStr> = operands.iter().map(|path| path.as_os_str()).collect();
        run(&words, &operands, dir, self.root, &[("LC_ALL", "C")])
    }

    /// Returns the differences that no order of names explains, nor the modes of FUSE.
    fn unexplained(
        &self,
        differences: &[Difference],
        same_code: bool,
        (ours, on_fuse): (&Run, bool),
        references: &[Run],
    ) -> Vec<String> {
        let by_order = self.depends_on_order();
        let has_all = |path: &OsStr, reference: &Snapshot| {
            let there = reference.get(Path::new(path));
            let value = |field: &str| there.and_then(|record| record.fields.get(field));
            differences.iter().filter(|other| other.path == path).all(|other| match other.field {
                // The file systems update them by different rules.
                "atime" => true,
                "entry" => there.map_or("absent", Record::word) == other.ours,
                "extents" => value("contents") == ours.1[Path::new(path)].fields.get("contents"),
                field => {
                    let theirs = value(field).cloned().unwrap_or_default();
                    let to_reference = Difference { theirs, ..other.clone() };
                    to_reference.theirs == other.ours
                        || accepts(self, &to_reference, &ours.1)
                        || field == "mode" && on_fuse && is_mode_of_source(self, other, &ours.1)
                }
            })
        };
        let explained = |difference: &&Difference| {
            let mode = |reference: &Snapshot| {
                let record = reference.get(Path::new(&difference.path));
                record.and_then(|record| record.fields.get("mode")) == Some(&difference.ours)
            };
            let first = references.first().filter(|_| difference.field == "mode");
            let is_mode = first.is_some_and(|(_, reference)| mode(reference));
            let mut all = references.iter().filter(|_| by_order);
            is_mode || all.any(|(_, reference)| has_all(&difference.path, reference))
        };
        let mut found: Vec<String> = Vec::new();
        for difference in differences.iter().filter(|difference| !explained(difference)) {
            let Difference { path, field, theirs, ours } = difference;
            found.push(format!("{path:?} {field}: cp '{theirs}', ours '{ours}'"));
        }
        let mut all = references.iter().filter(|_| by_order);
        if !same_code && !all.any(|(ended, _)| ended.code == ours.0.code) {
            found.push(format!("exit code: ours {:?}", ours.0.code));
        }
        found
    }

    fn describe_all(&self, found: &[String], system: &Run, ours: &Run) -> Vec<String> {
        let mut all = found.to_vec();
        if !found.is_empty() {
            all.push(format!("exit codes: cp {:?}, ours {:?}", system.0.code, ours.0.code));
            all.push(format!("cp said: {}", system.0.err.trim().escape_debug()));
            all.push(format!("ours said: {}", ours.0.err.trim().escape_debug()));
        }
        all
    }
}
