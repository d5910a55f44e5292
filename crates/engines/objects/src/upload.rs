//! Copies files to objects.

use crate::descriptors::requests_max;
use crate::error::{Action, Kind, ObjectError};
use crate::gate::Gate;
use crate::options::{Options, Progress, until_set};
use crate::paced::{LONG_SILENCE, Paced, Problem};
use crate::pilot::{INTERVAL, Pilot};
use crate::reason::Reason;
use crate::record::left;
use crate::retries::Retries;
use crate::run::{REPORT, Requests, given_up};
use crate::send::{PART, Sender};
use crate::store::Store;
use crate::verify::Sent;
use crate::wire::watched;
use ioloom_failure::{Operation, PathError};
use ioloom_sys::fault::call;
use object_store::path::Path as Key;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Files in flight or waiting for it.
const FILES: usize = 512;
/// Files that the store refuses one by one before the others are not tried any more.
const REFUSED_MAX: usize = 8;
/// Errors that are kept.
const ERRORS_KEPT: usize = 1000;
/// Bytes in flight until the throughput is known, and then seconds of it: over a slow line each of
/// many parts at the same time would take longer than the client waits for an answer.
const FIRST_BYTES: u64 = 4 * PART;
const SECONDS_IN_FLIGHT: f64 = 30.0;

/// The result of copying files to objects.
#[derive(Debug, Default)]
pub struct Uploaded {
    /// Files that are objects now.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects whose checksum is that of the file.
    pub verified: u64,
    /// Objects of which only the length was verified.
    pub length_only: u64,
    /// Files that failed.
    pub failed: u64,
    /// Uploads of killed runs that were aborted.
    pub aborted: u64,
    /// The first 1000 messages, in no particular order.
    pub errors: Vec<String>,
    /// Whether the run was stopped.
    pub cancelled: bool,
    /// Whether the run ended early because the store refuses every file. The others were not tried.
    pub gave_up: bool,
    /// Messages about refused files, while no other file succeeded.
    refused: Vec<String>,
    /// Requests.
    pub requests: Requests,
    /// Time.
    pub elapsed: Duration,
}

impl Uploaded {
    fn fail(&mut self, message: String) {
        self.failed += 1;
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(message);
        }
    }

    /// Takes the result of a file.
    fn take(&mut self, bytes: u64, sent: Result<Sent, Problem>) {
        match sent {
            Ok(Sent::Stopped) => {}
            Ok(sent) => {
                self.report_refused();
                self.files += 1;
                self.bytes += bytes;
                self.verified += u64::from(sent == Sent::Verified);
                self.length_only += u64::from(sent == Sent::LengthOnly);
            }
            // Every file would fail for this reason: the first one is enough.
            Err(problem) if self.files == 0 && problem.is_of_the_store() => {
                if !self.gave_up {
                    self.fail(problem.text);
                }
                self.gave_up = true;
            }
            Err(_) if self.gave_up => {}
            // A single key can be refused; all the first ones mean that every key is.
            Err(problem) if self.files == 0 && problem.is_refused() => {
                self.refused.push(problem.text);
                if self.refused.len() >= REFUSED_MAX {
                    self.give_up();
                }
            }
            Err(problem) => self.fail(problem.text),
        }
    }

    /// Reports the first refused file for all of them, and for those that are not tried.
    fn give_up(&mut self) {
        self.refused.truncate(1);
        self.gave_up = true;
        self.report_refused();
    }

    /// Reports why no other file is tried, once.
    fn end_early(&mut self, error: &ObjectError) {
        if !self.gave_up {
            self.report_refused();
            self.fail(error.to_string());
            self.gave_up = true;
        }
    }

    /// Counts the refused files, all of which were tried, and reports the first one, if no file succeeded.
    fn end(&mut self) {
        let mut refused = std::mem::take(&mut self.refused).into_iter();
        let first = refused.next();
        self.failed += refused.len() as u64;
        first.into_iter().for_each(|text| self.fail(text));
    }

    /// Reports each refused file.
    fn report_refused(&mut self) {
        std::mem::take(&mut self.refused).into_iter().for_each(|text| self.fail(text));
    }

    fn progress(&self, found: u64, complete: bool) -> Progress {
        Progress { objects: self.files, bytes: self.bytes, found, complete }
    }
}

/// Copies a file to the object that the location names, or, if it ends with a slash, to one with the
/// name of the file below it. Copies the regular files below a directory to objects below the
/// location; other files are errors.
///
/// Files larger than 8 MiB are uploaded in parts. The IDs of such uploads are recorded in the directory
/// `records` before the first part. First, uploads below the location that killed runs left are aborted.
///
/// An object appears when it is complete, and replaces one with the same key: of several writers, the
/// last one wins.
///
/// # Errors
///
/// Returns an error if the client cannot be started, or if the location is on a web server. Failures of files are in [`Uploaded::errors`].
pub fn upload(
    store: &Store,
    source: &Path,
    records: &Path,
    options: &Options<'_>,
) -> Result<Uploaded, ObjectError> {
    if store.location.is_web_file() {
        let reason = "files on web servers can only be read, not written";
        return Err(ObjectError::new(
            Action::Write,
            store.location.url(),
            Kind::Unsupported,
            reason,
        ));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads.clamp(1, 4) as usize)
        .thread_name("ioloom-client")
        .enable_all()
        .build()
        .map_err(|error| store.no_client(&error))?;
    let most = requests_max(&store.location, 1, options.window.unwrap_or(1))?;
    let began = Instant::now();
    let mut done = Uploaded::default();
    runtime.block_on(async {
        abort_left(store, records, options, &mut done).await;
        send_all(store, (source, records), (options, most), &mut done).await;
    });
    runtime.shutdown_timeout(Duration::from_millis(100));
    done.elapsed = began.elapsed();
    Ok(done)
}

/// Aborts uploads of killed runs. One that cannot be aborted keeps its record and is an error.
async fn abort_left(store: &Store, records: &Path, options: &Options<'_>, done: &mut Uploaded) {
    for (record, url, id) in left(records, &store.endpoint, &store.location.url()) {
        let key = url.strip_prefix(&store.location.url_of("")).and_then(|key| Key::parse(key).ok());
        let Some(key) = key else { continue };
        if options.stop.load(Ordering::Relaxed) {
            done.cancelled = true;
            return;
        }
        let (aborted, seen) = tokio::select! {
            aborted = watched(store.patient.abort_multipart(&key, &id)) => aborted,
            () = until_set(&options.stop) => {
                done.cancelled = true;
                return;
            }
        };
        match aborted {
            Ok(()) => done.aborted += 1,
            Err(_) if seen.is_no_upload() => {}
            Err(error) => {
                let reason = Reason::of(&error, &seen);
                let problem =
                    Problem::new(ObjectError::new(Action::Abort, url, reason.kind, reason.text));
                let is_of_all = problem.is_of_the_store() || problem.is_refused();
                done.fail(problem.text);
                // The others keep their records, too.
                if is_of_all {
                    return;
                }
                continue;
            }
        }
        record.remove();
    }
}

async fn send_all(
    store: &Store,
    (source, records): (&Path, &Path),
    (options, most): (&Options<'_>, u32),
    done: &mut Uploaded,
) {
    let memory = options.budget();
    let mut pilot = Pilot::new(options, most);
    let files_max = FILES.min(most as usize);
    let gate = Gate::new(memory.min(FIRST_BYTES), pilot.limit(0, false));
    let gate = Arc::new(gate.stopping_after(options.outage));
    let paced = Paced {
        store: store.clone(),
        gate: gate.clone(),
        retries: Arc::new(Retries::with_pause(options.retry_pause)),
        long_silence: LONG_SILENCE,
    };
    let sender = Arc::new(Sender { paced, records: records.to_owned() });
    let mut files = Files::below(source, store, &options.stop);
    files.stopped = done.cancelled;
    let mut flight: JoinSet<(u64, Result<Sent, Problem>)> = JoinSet::new();
    let (mut found, mut listed) = (0, false);
    let mut interval = tokio::time::interval(INTERVAL);
    let mut reported = Instant::now();
    loop {
        if gate.has_given_up() {
            done.end_early(&given_up(store, Action::Write, options.outage));
        }
        while !listed && !done.gave_up && flight.len() < files_max && !files.is_stopped() {
            match files.next() {
                None => listed = !files.is_stopped(),
                Some(Err(message)) => done.fail(message),
                Some(Ok((path, key))) => {
                    found += 1;
                    let sender = sender.clone();
                    flight.spawn(async move { sender.file(&path, key).await });
                }
            }
        }
        if flight.is_empty() {
            break;
        }
        tokio::select! {
            Some(ended) = flight.join_next() => match ended {
                Ok((bytes, sent)) => done.take(bytes, sent),
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                Err(_) => {}
            },
            _ = interval.tick() => {
                steer(&mut pilot, &gate, memory, done.files);
                if files.is_stopped() || done.gave_up {
                    gate.stop();
                }
            }
        }
        if reported.elapsed() >= REPORT {
            reported = Instant::now();
            (options.progress)(&done.progress(found, listed));
        }
    }
    done.end();
    done.cancelled = files.is_stopped();
    let counts = gate.look().0;
    let repeated = sender.paced.retries.taken();
    done.requests = Requests { sent: counts.sent, refused: counts.refused, repeated };
}

/// Adjusts the number of requests and bytes in flight.
fn steer(pilot: &mut Pilot, gate: &Gate, memory: u64, files: u64) {
    pilot.tick(gate, files);
    let seconds = gate.now_ns() as f64 / 1e9;
    let per_s = gate.look().0.bytes as f64 / seconds;
    gate.set_memory(memory.min(FIRST_BYTES.max((per_s * SECONDS_IN_FLIGHT) as u64)));
}

/// The files of a source, and their keys.
struct Files<'a> {
    store: &'a Store,
    /// Ends the walk, also between directories without files.
    stop: &'a AtomicBool,
    /// Whether the flag was seen. A flag that is lowered again starts nothing.
    stopped: bool,
    root: PathBuf,
    /// Paths that were found and not returned yet.
    stack: Vec<PathBuf>,
}

impl<'a> Files<'a> {
    fn below(source: &Path, store: &'a Store, stop: &'a AtomicBool) -> Self {
        let (root, stack) = (source.to_owned(), vec![source.to_owned()]);
        Self { store, stop, stopped: false, root, stack }
    }

    /// Returns whether the run was stopped.
    fn is_stopped(&mut self) -> bool {
        self.stopped |= self.stop.load(Ordering::Relaxed);
        self.stopped
    }

    fn key_of(&self, path: &Path) -> Result<Key, String> {
        let location = &self.store.location;
        let below = match path.strip_prefix(&self.root) {
            Ok(below) if !below.as_os_str().is_empty() => Some(below),
            _ if location.is_prefix => path.file_name().map(Path::new),
            _ => None,
        };
        let Some(below) = below else { return Ok(location.key.clone()) };
        let shown = ioloom_failure::quoted(path);
        let Some(below) = below.to_str() else {
            return Err(format!("cannot copy {shown}: the name is not UTF-8, which keys must be"));
        };
        let prefix = location.key.as_ref();
        let key = if prefix.is_empty() { below.to_owned() } else { format!("{prefix}/{below}") };
        Key::parse(&key).ok().filter(|parsed| parsed.as_ref() == key).ok_or_else(|| {
            format!("cannot copy {shown}: keys with control characters are not supported")
        })
    }

    fn visit(&mut self, path: PathBuf) -> Result<Option<(PathBuf, Key)>, String> {
        let is_root = path == self.root;
        let stat =
            || if is_root { std::fs::metadata(&path) } else { std::fs::symlink_metadata(&path) };
        let kind = call("stat", stat)
            .map_err(PathError::on(Operation::Stat, &path))
            .map_err(|error| error.to_string())?;
        if kind.is_dir() {
            let entries =
                call("list", || std::fs::read_dir(&path)?.map(|entry| Ok(entry?.path())).collect());
            let mut entries: Vec<PathBuf> = entries.map_err(|error: std::io::Error| {
                PathError::on(Operation::ReadDir, &path)(error).to_string()
            })?;
            entries.sort_unstable_by(|a, b| b.cmp(a));
            self.stack.append(&mut entries);
            return Ok(None);
        }
        if !kind.is_file() {
            let kind = if kind.is_symlink() { "a symbolic link" } else { "not a regular file" };
            let shown = ioloom_failure::quoted(&path);
            return Err(format!("cannot copy {shown}: it is {kind}, which no object represents"));
        }
        let key = self.key_of(&path)?;
        Ok(Some((path, key)))
    }
}

impl Iterator for Files<'_> {
    type Item = Result<(PathBuf, Key), String>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_stopped()
            && let Some(path) = self.stack.pop()
        {
            if let Some(found) = self.visit(path).transpose() {
                return Some(found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Location;

    #[test]
    fn a_stop_ends_the_walk_of_directories_without_files() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c"), "x").unwrap();
        let location = Location::parse("s3://b/p/").unwrap();
        let store = Store::with_variables(location, [("AWS_SKIP_SIGNATURE", "true")]).unwrap();
        let stop = AtomicBool::new(true);
        let mut files = Files::below(dir.path(), &store, &stop);
        assert!(files.next().is_none());
        assert_eq!(files.stack, [dir.path()], "nothing was listed");
        stop.store(false, Ordering::Relaxed);
        assert!(files.next().is_none() && files.is_stopped(), "it stays stopped");
        let mut files = Files::below(dir.path(), &store, &stop);
        let (path, key) = files.next().unwrap().unwrap();
        assert_eq!((path, key.as_ref()), (dir.path().join("a/b/c"), "p/a/b/c"));
    }
}
