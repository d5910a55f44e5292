//! Selects sessions from the store and from the exports in `results`.

use crate::directories::{StoreArg, short};
use crate::exit::{Exit, Failure};
use ioloom_failure::quoted;
use ioloom_lab::store::{Listing, SessionFile};
use ioloom_lab::{Session, Store, StoreError};
use ioloom_model::units::{format_counted, readable};
use ioloom_sys::file::open_regular;
use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The directory of exports in a clone of the source.
const KEPT: &str = "results";

/// Opens the store for reading. Without a store, the error says how to create one.
pub(crate) fn open(arg: &StoreArg) -> Result<Store, Failure> {
    let dir = arg.dir()?;
    if !dir.exists() {
        return Err(no_results(&dir));
    }
    Store::open_to_read(&dir).map_err(Failure::failed)
}

fn no_results(dir: &Path) -> Failure {
    Failure::failed(format!("no results in {}; run `ioloom study` first", short(dir)))
}

/// Returns the sessions of a store without duplicates, oldest first, and whether others cannot be read. Those are
/// reported and left out.
fn list(store: &Store) -> Result<(Vec<SessionFile>, bool), Failure> {
    let Listing { mut files, mut errors } = store.list().map_err(Failure::failed)?;
    errors.extend(once(store, &mut files));
    report_unreadable(&errors);
    Ok((files, !errors.is_empty()))
}

/// Removes further files of the same sessions of a store, and other sessions of the same name. Returns an
/// error for each of the latter.
fn once(store: &Store, files: &mut Vec<SessionFile>) -> Vec<StoreError> {
    let errors = store.namesakes(files);
    let mut seen = BTreeSet::new();
    files.retain(|file| {
        let is_read = errors.iter().all(|error| error.path() != file.path);
        is_read && seen.insert(file.header.session.clone())
    });
    errors
}

/// Reports sessions that cannot be read, each once.
pub(crate) fn report_unreadable(errors: &[StoreError]) {
    errors.iter().for_each(|error| report_once(error.to_string()));
}

/// Prints a message unless this command has printed it before.
fn report_once(text: String) {
    // The reason of an invalid line can quote it.
    let text = readable(&text);
    static REPORTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&text) {
        crate::stderr::message(&text);
        reported.insert(text);
    }
}

/// Reports a torn last line and missing runs.
fn report_damage(session: &Session) {
    let name = &session.header.session;
    let missing = session.missing().len();
    if missing > 0 {
        let runs = format_counted(missing as u64, "planned run is", "planned runs are");
        report_once(format!("session {name}: {runs} missing from its file"));
    }
    if session.torn_bytes > 0 {
        let bytes = format_counted(session.torn_bytes, "byte", "bytes");
        report_once(format!(
            "session {name}: ignored a torn last line of {bytes}, left by a kill or a full disk"
        ));
    }
}

/// Reads a session by its name, and reports a torn last line and missing runs.
pub(crate) fn read_named(store: &Store, name: &str) -> Result<Session, Failure> {
    let session = store.read(name).map_err(Failure::failed)?;
    report_damage(&session);
    Ok(session)
}

/// Resolves a name, a prefix, `latest` or `latest-N` to a session name.
pub(crate) fn pick(store: &Store, word: &str) -> Result<String, Failure> {
    let (files, has_unreadable) = list(store)?;
    if files.is_empty() && has_unreadable {
        let dir = short(store.dir());
        return Err(Failure::failed(format!("no session in {dir} can be read")));
    }
    if files.is_empty() {
        return Err(no_results(store.dir()));
    }
    // `latest-N` counts commands, not the studies of one command. The store can lack the first one.
    let mut batches = BTreeSet::new();
    let counted =
        files.iter().filter(|f| !word.starts_with("latest") || batches.insert(command_of(f)));
    let names: Vec<String> = counted.map(|f| f.header.session.clone()).collect();
    choose(&names, word).map_err(|reason| {
        Failure::failed(format!("{reason} in {}; `ioloom results list` lists them", {
            short(store.dir())
        }))
    })
}

/// Returns what identifies the command of a session: its batch and machine. Commands that start on two machines in
/// the same second have one batch.
fn command_of(file: &SessionFile) -> (&str, &str) {
    (file.header.batch(), &file.header.machine.fingerprint)
}

fn choose(names: &[String], word: &str) -> Result<String, String> {
    if names.iter().any(|name| name == word) {
        return Ok(word.to_owned());
    }
    let back = match word.strip_prefix("latest") {
        Some("") => Some(0),
        Some(rest) => rest.strip_prefix('-').and_then(|n| n.parse::<usize>().ok()),
        None => None,
    };
    if let Some(back) = back {
        let found = names.iter().rev().nth(back);
        return found.cloned().ok_or_else(|| {
            let count = match names.len() {
                1 => "1 command of `study` is".to_owned(),
                count => format!("{count} commands of `study` are"),
            };
            format!("no session '{word}': only {count} stored")
        });
    }
    let is_meant = |name: &&String| !word.is_empty() && name.starts_with(word);
    let found: Vec<&String> = names.iter().filter(is_meant).collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(format!("no session '{word}'")),
        many => Err(format!("'{word}' matches {} sessions; use a longer prefix", many.len())),
    }
}

/// Reads the selected session.
pub(crate) fn read(store: &Store, word: &str) -> Result<Session, Failure> {
    let name = pick(store, word)?;
    read_named(store, &name)
}

/// Reads the selected session and the rest of its batch, in execution order.
pub(crate) fn batch(store: &Store, word: &str) -> Result<Vec<Session>, Failure> {
    batch_names(store, word)?.iter().map(|name| read_named(store, name)).collect()
}

/// Returns the names of the selected session and the rest of its batch, in execution order.
pub(crate) fn batch_names(store: &Store, word: &str) -> Result<Vec<String>, Failure> {
    let name = pick(store, word)?;
    let (files, _) = list(store)?;
    let Some(meant) = files.iter().find(|f| f.header.session == name) else {
        return Ok(vec![name]);
    };
    // The name of a later session in a batch selects only that session.
    let alone = meant.header.batch() != name && !word.starts_with("latest");
    let belongs = |f: &&SessionFile| match alone {
        true => f.header.session == name,
        false => command_of(f) == command_of(meant),
    };
    Ok(files.iter().filter(belongs).map(|f| f.header.session.clone()).collect())
}

/// Returns the sessions of the store, if it exists, and of the exports in `./results`. The store takes
/// precedence. What cannot be read is skipped with a message; the exit code says whether that was a damaged
/// session of the store.
pub(crate) fn all(arg: &StoreArg) -> Result<(Vec<Session>, Exit), Failure> {
    let dir = arg.dir()?;
    if arg.store.is_some() && !dir.exists() {
        return Err(Failure::failed(format!("no store in {}", quoted(&dir))));
    }
    all_so_far(arg)
}

/// Returns what [`all`] does, for commands that create the store.
pub(crate) fn all_so_far(arg: &StoreArg) -> Result<(Vec<Session>, Exit), Failure> {
    let (mut sessions, mut exit) = (Vec::new(), Exit::Ok);
    let dir = arg.dir()?;
    if dir.exists() {
        let store = Store::open_to_read(&dir).map_err(Failure::failed)?;
        let errors = take(&store, &mut sessions)?;
        report_unreadable(&errors);
        // A session that has the name of another one is not damaged.
        if errors.iter().any(|error| !matches!(error, StoreError::SameName { .. })) {
            exit = Exit::Failed;
        }
    }
    for dir in exports(Path::new(KEPT)) {
        let kept = Store::open_to_read(&dir).map_err(Failure::failed);
        match kept.and_then(|store| take(&store, &mut sessions)) {
            Ok(errors) => errors.iter().for_each(|error| match error {
                StoreError::SameName { .. } => report_once(error.to_string()),
                _ => report_once(format!("skipped: {error}")),
            }),
            Err(failure) => report_once(format!("skipped: {}", failure.message)),
        }
    }
    Ok((sessions, exit))
}

/// Adds the sessions of a store. Returns why others cannot be read.
fn take(store: &Store, into: &mut Vec<Session>) -> Result<Vec<StoreError>, Failure> {
    let Listing { mut files, mut errors } = store.list().map_err(Failure::failed)?;
    errors.extend(once(store, &mut files));
    for file in files {
        let name = &file.header.session;
        if let Some(known) = into.iter().find(|s| s.header.session == *name) {
            if !known.header.is_of_same_session(&file.header) {
                let path = quoted(&file.path);
                report_once(format!("skipped {path}: another session has the same name"));
            }
            continue;
        }
        match store.read(name) {
            Ok(session) => {
                report_damage(&session);
                into.push(session);
            }
            Err(error) => errors.push(error),
        }
    }
    Ok(errors)
}

/// Maximum directory depth of exports: `superseded/QUESTION/DATE-HOST`.
const KEPT_DEPTH_MAX: usize = 3;

/// Returns `root` and the directories below it that contain a session. Other JSON lines in the same
/// directories, such as raw comparison data, are skipped silently.
fn exports(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut level = found.clone();
    for _ in 0..KEPT_DEPTH_MAX {
        level = level
            .iter()
            .flat_map(|dir| std::fs::read_dir(dir).into_iter().flatten().flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.extend(level.iter().cloned());
    }
    found.sort();
    found.retain(|dir| {
        let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| begins_session(&entry.path()))
    });
    found
}

/// Returns whether a file begins with a session header.
fn begins_session(path: &Path) -> bool {
    const HEAD: &[u8] = b"{\"session\":";
    if path.extension().is_none_or(|x| x != "jsonl") {
        return false;
    }
    let mut begin = [0; HEAD.len()];
    let read = open_regular(path).and_then(|mut file| file.read_exact(&mut begin));
    read.is_ok() && begin == *HEAD
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn sessions_are_selected_by_name_prefix_or_age() {
        let names = ["a-1", "b-1", "b-12"].map(str::to_owned);
        for (word, name) in [
            ("a", "a-1"),
            ("b-1", "b-1"),
            ("latest", "b-12"),
            ("latest-2", "a-1"),
            ("b-12", "b-12"),
        ] {
            assert_eq!(choose(&names, word).as_deref(), Ok(name));
        }
        let missing = choose(&names[..1], "latest-3").unwrap_err();
        assert!(missing.ends_with("only 1 command of `study` is stored"), "{missing}");
        for word in ["b", "c", "latest-3", "latest-x", "latestx"] {
            assert!(choose(&names, word).is_err(), "{word}");
        }
        assert!(choose(&names[..1], "").is_err(), "an empty word is not a prefix");
    }
}
