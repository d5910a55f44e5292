//! Killed copies: the target must be absent, unchanged, or complete and correct.
//!
//! "Complete and correct" means that bytes, mode and time of every file match the source. There are
//! two callers. Rounds of all kinds copy a file set, which is verified by its manifest
//! ([`Copying`]). [`crash`] kills copies of a tree and of one big file, with and without existing
//! older files, with a resume record, and with each file synced before it is renamed into place.
//! Each kill takes the interrupted copy, another complete copy, and two reads of all data.

use super::home::{Home, Random, SetHome};
use crate::steps::Outcome;
use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Size of the big file: several direct-I/O requests, some tens of milliseconds.
const BIG_BYTES: usize = 48 << 20;
/// Contents of the target before a copy replaces it.
const OLD: &[u8] = b"old";
/// Kills occur within this multiple of the undisturbed copy time; some copies finish first.
const LATEST: f64 = 1.1;
/// Maximum number of copies started per kill; copies that finish before their kill time do not
/// count.
const STARTS_PER_KILL: u32 = 5;

/// A file set to copy.
pub(super) struct Copying {
    source: String,
    /// Duration of an undisturbed copy.
    takes: Duration,
}

impl Copying {
    pub(super) fn new(reference: &SetHome) -> anyhow::Result<Self> {
        let home = &reference.0;
        let source = home.0.join("set").to_string_lossy().into_owned();
        let since = Instant::now();
        home.well(&["cp", "-aT", &source, "copy"])?;
        Ok(Self { source, takes: since.elapsed() })
    }

    /// Copies the set, killing the copy up to three times. Returns the number of kills.
    pub(super) fn crash(&self, program: &Path, random: &mut Random) -> anyhow::Result<u32> {
        let home = Home::new(program, "copy")?;
        let resume = random.next().is_multiple_of(2);
        let mut args = vec!["cp", "-aT", &self.source, "copy"];
        if resume {
            args.push("--resume");
        }
        let mut killed = 0;
        for _ in 0..1 + random.next() % 3 {
            let mut running = home.start(&args)?;
            let ended = running.wait(random.moment(self.takes))?;
            drop(running);
            match ended {
                Some(code) => ensure!(code == 0, "the copy exited with {code}"),
                None => killed += 1,
            }
            let copy = home.0.join("copy");
            if copy.exists() {
                remove_parts(&copy)?;
                home.well(&["fileset", "verify", "copy"]).context("a torn copy")?;
            }
        }
        home.well(&args)?;
        remove_parts(&home.0.join("copy"))?;
        home.well(&["fileset", "verify", "copy"])?;
        let parts = parts(&home.0)?;
        ensure!(!resume || parts == 0, "a resumed copy left {parts} partial files");
        Ok(killed)
    }
}

/// Removes partial files left under temporary names by killed copies. A copy that does not resume
/// cannot determine whose they are and leaves them alone.
fn remove_parts(dir: &Path) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("list {}", dir.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            remove_parts(&path)?;
        } else if name.starts_with('.') && name.contains(".ioloom-") && name.ends_with(".part") {
            std::fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the names of unfinished copies in a directory.
fn parts(dir: &Path) -> anyhow::Result<usize> {
    let entries = std::fs::read_dir(dir).with_context(|| format!("list {}", dir.display()))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.contains(".ioloom-")).count())
}

/// The source, and the previous contents of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shape {
    Tree,
    TreeOverOld,
    File,
    FileOverOld,
}

impl Shape {
    const ALL: [Self; 4] = [Self::Tree, Self::TreeOverOld, Self::File, Self::FileOverOld];

    const fn name(self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::TreeOverOld => "tree over old files",
            Self::File => "file",
            Self::FileOverOld => "file over an old one",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::Tree | Self::TreeOverOld => "set",
            Self::File | Self::FileOverOld => "big",
        }
    }

    const fn is_over_old(self) -> bool {
        matches!(self, Self::TreeOverOld | Self::FileOverOld)
    }
}

/// Options of the copy.
const WAYS: [&[&str]; 4] =
    [&[], &["--resume"], &["--durable", "file"], &["--resume", "--durable", "file"]];

/// The state after a kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// No file under the final name.
    Absent,
    /// Numbers of old and of complete files.
    Files { old: usize, complete: usize },
}

impl Found {
    fn word(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Files { complete: 0, .. } => "old",
            Self::Files { old: 0, .. } => "complete",
            Self::Files { .. } => "old and complete files",
        }
    }
}

/// Kills copies and reports each kill as one line of JSON.
pub(super) fn crash(program: &Path, kills: u32, seed: u64) -> anyhow::Result<Outcome> {
    let place = Copies::new(program)?;
    let mut random = Random(seed);
    let mut takes = BTreeMap::new();
    let (mut killed, mut finished, mut seen) = (0, 0, BTreeMap::<_, u32>::new());
    for start in 0..kills.saturating_mul(STARTS_PER_KILL) {
        if killed == kills {
            break;
        }
        let (shape, way) = (start as usize % Shape::ALL.len(), random.next() as usize % WAYS.len());
        let (shape, way) = (Shape::ALL[shape], WAYS[way]);
        let of =
            |e: anyhow::Error| e.context(format!("copy {start} of seed {seed}: {shape:?} {way:?}"));
        let whole = match takes.get(&(shape, way)) {
            Some(known) => *known,
            None => {
                *takes.entry((shape, way)).or_insert(place.undisturbed(shape, way).map_err(of)?)
            }
        };
        let moment = random.moment(whole.mul_f64(LATEST));
        let line = place.copy(shape, way, moment).map_err(of)?;
        let word = line["found"].as_str().unwrap_or_default().to_owned();
        match line["killed_after_us"].is_null() {
            true => finished += 1,
            false => {
                killed += 1;
                *seen.entry(word).or_default() += 1;
            }
        }
        println!("{line}");
    }
    ensure!(killed == kills, "only {killed} of {kills} copies ran long enough to be killed");
    let seen: Vec<_> = seen.iter().map(|(word, count)| format!("{count} {word}")).collect();
    Ok(Outcome::Passed(format!(
        "{kills} kills of seed {seed}: {}; none torn. {finished} copies finished before their \
        kill time, and all completed when repeated",
        seen.join(", ")
    )))
}

/// A home that contains the copy sources.
struct Copies(Home);

impl Copies {
    fn new(program: &Path) -> anyhow::Result<Self> {
        let reference = SetHome::new(program, "copies")?;
        reference.undisturbed()?;
        let SetHome(home) = reference;
        let mut random = Random(BIG_BYTES as u64);
        let big: Vec<u8> =
            (0..BIG_BYTES / 8).flat_map(|_| random.next().to_le_bytes()).chain([7]).collect();
        let path = home.0.join("big");
        fs::write(&path, big).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).context("set a mode")?;
        Ok(Self(home))
    }

    fn target(&self) -> PathBuf {
        self.0.0.join("to/copy")
    }

    /// Prepares the target directory with its previous contents.
    fn prepare(&self, shape: Shape) -> anyhow::Result<()> {
        let to = self.0.0.join("to");
        if to.exists() {
            fs::remove_dir_all(&to).context("remove the last copy")?;
        }
        fs::create_dir(&to).context("create a directory for a copy")?;
        if !shape.is_over_old() {
            return Ok(());
        }
        for name in names(&self.0.0.join(shape.source()))? {
            let path = self.target().join(name);
            let parent = path.parent().context("a target has a directory")?;
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
            // The path of a single file ends in a separator, which is not part of its name.
            let path: PathBuf = path.components().collect();
            fs::write(&path, OLD).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }

    fn args<'a>(shape: Shape, way: &'a [&str]) -> Vec<&'a str> {
        [&["cp", "-aT", shape.source(), "to/copy"], way].concat()
    }

    /// Measures an undisturbed copy.
    fn undisturbed(&self, shape: Shape, way: &[&str]) -> anyhow::Result<Duration> {
        self.prepare(shape)?;
        let since = Instant::now();
        self.0.well(&Self::args(shape, way))?;
        let takes = since.elapsed();
        self.must_be_complete(shape)?;
        Ok(takes)
    }

    /// Starts a copy, kills it at this time, checks the remaining state, and repeats the copy to
    /// completion. Returns the state after the kill.
    fn copy(&self, shape: Shape, way: &[&str], moment: Duration) -> anyhow::Result<Value> {
        self.prepare(shape)?;
        let args = Self::args(shape, way);
        let mut running = self.0.start(&args)?;
        let ended = running.wait(moment)?;
        drop(running);
        self.0.nobody_left()?;
        let found = self.look(shape)?;
        if let Some(code) = ended {
            ensure!(code == 0, "the copy exited with {code}");
            self.must_be_complete(shape)?;
        }
        let left = hidden(&self.0.0.join("to"))?;
        self.0.well(&args)?;
        self.must_be_complete(shape)?;
        let (old, complete) = match found {
            Found::Absent => (0, 0),
            Found::Files { old, complete } => (old, complete),
        };
        Ok(json!({
            "copy": shape.name(),
            "options": way.join(" "),
            "killed_after_us": ended.is_none().then_some(moment.as_micros() as u64),
            "found": found.word(),
            "files_old": old,
            "files_complete": complete,
            "hidden_left": left,
        }))
    }

    fn must_be_complete(&self, shape: Shape) -> anyhow::Result<()> {
        let found = self.look(shape)?;
        ensure!(found.word() == "complete", "a finished copy is {found:?}");
        Ok(())
    }

    /// Compares the target with the source and with its previous contents.
    fn look(&self, shape: Shape) -> anyhow::Result<Found> {
        let (from, to) = (self.0.0.join(shape.source()), self.target());
        if !to.exists() {
            ensure!(!shape.is_over_old(), "the old file is gone");
            return Ok(Found::Absent);
        }
        let (mut old, mut complete) = (0, 0);
        for name in names(&from)? {
            let (from, to) = (from.join(&name), to.join(&name));
            // A single file has an empty name below itself, as above.
            let to: PathBuf = to.components().collect();
            let from: PathBuf = from.components().collect();
            if is_copy(&from, &to)? {
                complete += 1;
            } else if shape.is_over_old() && fs::read(&to).is_ok_and(|bytes| bytes == OLD) {
                old += 1;
            } else {
                bail!("{} is neither absent nor old nor correct", to.display());
            }
        }
        for name in names(&to)? {
            let visible = !is_hidden(&name);
            let known = from.join(&name).components().collect::<PathBuf>().exists();
            ensure!(known || !visible, "{} is unexpected", to.join(&name).display());
        }
        Ok(Found::Files { old, complete })
    }
}

/// Reports whether two files have the same bytes, mode and time.
fn is_copy(from: &Path, to: &Path) -> anyhow::Result<bool> {
    let Ok(copied) = fs::symlink_metadata(to) else { return Ok(false) };
    let wanted = fs::symlink_metadata(from).with_context(|| format!("stat {}", from.display()))?;
    let same = wanted.mode() == copied.mode()
        && wanted.modified().ok() == copied.modified().ok()
        && wanted.len() == copied.len();
    let read = |path: &Path| fs::read(path).with_context(|| format!("read {}", path.display()));
    Ok(same && read(from)? == read(to)?)
}

/// Lists the files below a directory by relative name; a file itself has the empty name.
fn names(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    fn add(dir: &Path, below: &Path, all: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        let of = || format!("list {}", dir.display());
        for entry in fs::read_dir(dir).with_context(of)? {
            let entry = entry.with_context(of)?;
            let name = below.join(entry.file_name());
            if entry.file_type().with_context(of)?.is_dir() {
                add(&entry.path(), &name, all)?;
            } else {
                all.push(name);
            }
        }
        Ok(())
    }
    if !path.is_dir() {
        return Ok(vec![PathBuf::new()]);
    }
    let mut all = Vec::new();
    add(path, Path::new(""), &mut all)?;
    Ok(all)
}

/// Returns whether this is the temporary name of an incomplete copy.
fn is_hidden(name: &Path) -> bool {
    name.iter().any(|part| {
        let part = part.to_string_lossy();
        part.starts_with('.') && part.contains(".ioloom-")
    })
}

/// Counts the unfinished files below a directory.
fn hidden(dir: &Path) -> anyhow::Result<usize> {
    Ok(names(dir)?.iter().filter(|name| is_hidden(name)).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_copy_is_seen() {
        let dir = std::env::temp_dir().join(format!("ioloom-copies-test-{}", std::process::id()));
        let place = Copies(Home(dir.clone()));
        fs::create_dir_all(dir.join("set/below")).unwrap();
        fs::write(dir.join("set/below/a"), "new").unwrap();
        fs::write(dir.join("set/b"), "new").unwrap();
        fs::write(dir.join("big"), "new and long").unwrap();
        let over = Shape::TreeOverOld;
        place.prepare(Shape::Tree).unwrap();
        assert_eq!(place.look(Shape::Tree).unwrap(), Found::Absent);
        assert!(place.look(Shape::FileOverOld).unwrap_err().to_string().contains("gone"));
        place.prepare(over).unwrap();
        assert_eq!(place.look(over).unwrap(), Found::Files { old: 2, complete: 0 });
        let keep = |name: &str| {
            let (from, to) = (dir.join("set").join(name), place.target().join(name));
            fs::copy(&from, &to).unwrap();
            let time = fs::metadata(&from).unwrap().modified().unwrap();
            fs::File::options().write(true).open(&to).unwrap().set_modified(time).unwrap();
        };
        keep("b");
        assert_eq!(place.look(over).unwrap().word(), "old and complete files");
        assert!(
            place.look(Shape::Tree).is_err(),
            "a tree without old files must be complete or \
            absent"
        );
        keep("below/a");
        assert_eq!(place.look(over).unwrap().word(), "complete");
        fs::write(place.target().join(".x.ioloom-1.part"), "").unwrap();
        assert_eq!((hidden(&place.target()).unwrap(), place.look(over).is_ok()), (1, true));
        fs::write(place.target().join("x"), "").unwrap();
        assert!(place.look(over).unwrap_err().to_string().contains("is unexpected"));
        place.prepare(Shape::FileOverOld).unwrap();
        assert_eq!(place.look(Shape::FileOverOld).unwrap().word(), "old");
        fs::write(place.target(), "new").unwrap();
        assert!(place.look(Shape::FileOverOld).unwrap_err().to_string().contains("neither"));
    }
}
