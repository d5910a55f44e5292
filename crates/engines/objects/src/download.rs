//! Copies objects to files.
//!
//! A file is written under a hidden name and renamed when it is complete, so a killed copy leaves no
//! part of a file under its final name. The result of `close` is checked before that, because it can report
//! that data was not stored. The contents are compared with the MD5 in the `ETag` where it
//! is one: not for uploads in parts, and not for objects encrypted with keys of KMS or of the client.
//! Otherwise only the length was verified. Some servers give versions that look like an MD5 and are
//! none, of all objects or of those that consist of segments: where the sums differ, the object is read again,
//! and the file is kept if both readings agree. Such files are reported, since damage in the store looks the
//! same.

use crate::case::{Named, Published, folds_case};
use crate::cloud::Cloud;
use crate::error::{Action, Kind, ObjectError};
use crate::mode::{DefaultAcl, Modes, Old};
use crate::options::{Options, until_set};
use crate::pace::{Pace, paced};
use crate::reason::Reason;
use crate::record::digits;
use crate::retries::ATTEMPTS_MAX;
use crate::run::{Run, run};
use crate::store::Store;
use crate::wire::watched;
use crate::work::{Piece, Work, WorkError};
use futures_util::TryStreamExt;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_sys::attr::umask;
use ioloom_sys::descriptor;
use ioloom_sys::fault::call;
use ioloom_sys::make::random_number;
use md5::{Digest, Md5};
use object_store::GetOptions;
use object_store::path::Path as Key;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Errors that are kept.
const ERRORS_KEPT: usize = 1000;

/// Attempts to find an unused hidden name.
const NAME_TRIES: u32 = 8;

/// Where the files go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Below this directory, by their keys relative to the prefix.
    Below(PathBuf),
    /// One object to this file in a directory that exists, or to that of the symbolic link. Special files are refused.
    As(PathBuf),
}

/// The result of copying objects to files.
#[derive(Debug)]
pub struct Downloaded {
    /// Files whose contents have the checksum that the store has for the object.
    pub verified: u64,
    /// Files of which only the length was verified, because the store has no checksum.
    pub length_only: u64,
    /// Files of objects whose `ETag` looks like an MD5 and is not that of the contents, which were the same
    /// in two readings: it is another sum, or the object is damaged in the store.
    pub other_e_tag: u64,
    /// The first 1000 URLs of their objects, in no particular order.
    pub other_e_tag_urls: Vec<String>,
    /// Whether the `ETag` of an object that is not empty was the MD5 of its contents.
    pub has_sums: bool,
    /// The first 1000 messages, in no particular order.
    pub errors: Vec<String>,
    /// The run.
    pub run: Run<()>,
}

/// Copies every object of a location to a file.
///
/// # Errors
///
/// Returns an error if the client cannot be started. Failures of objects are in
/// [`Downloaded::errors`], and their number is in [`Run::failed`].
pub fn download(
    store: &Store,
    place: &Place,
    options: &Options<'_>,
) -> Result<Downloaded, ObjectError> {
    let work = Writing {
        place,
        root: store.location().url(),
        store,
        stop: options.stop.clone(),
        own_name: AtomicBool::default(),
        published: Published::default(),
        default_acl: DefaultAcl::default(),
        // If it is unknown, only the owner gets rights.
        umask: umask().unwrap_or(0o077),
    };
    let mut run = run(store, options, &work)?;
    let mut all = Written::default();
    for local in std::mem::take(&mut run.locals) {
        all.verified += local.verified;
        all.length_only += local.length_only;
        all.has_sums |= local.has_sums;
        all.other_e_tag += local.other_e_tag;
        all.other_e_tag_urls.extend(local.other_e_tag_urls);
        all.errors.extend(local.errors);
    }
    all.errors.truncate(ERRORS_KEPT);
    all.other_e_tag_urls.truncate(ERRORS_KEPT);
    let Written { verified, length_only, other_e_tag, other_e_tag_urls, has_sums, errors } = all;
    let run = run.without_locals();
    Ok(Downloaded { verified, length_only, other_e_tag, other_e_tag_urls, has_sums, errors, run })
}

struct Writing<'a> {
    place: &'a Place,
    root: String,
    store: &'a Store,
    stop: Arc<AtomicBool>,
    /// Whether a file has the name of the location: an object of that name and one below it with the
    /// same last segment would be one file.
    own_name: AtomicBool,
    published: Published,
    default_acl: DefaultAcl,
    umask: u32,
}

/// What a thread has done.
#[derive(Debug, Default)]
struct Written {
    verified: u64,
    length_only: u64,
    other_e_tag: u64,
    other_e_tag_urls: Vec<String>,
    has_sums: bool,
    errors: Vec<String>,
}

impl Written {
    fn fail(&mut self, message: String) {
        if self.errors.len() < ERRORS_KEPT {
            self.errors.push(message);
        }
    }
}

/// A file that is removed when it is dropped before it has its name.
struct Partial {
    file: Option<File>,
    hidden: PathBuf,
    path: PathBuf,
    modes: Modes,
    is_published: bool,
    bytes: u64,
    sum: Md5,
    expected: Option<String>,
}

impl Partial {
    /// Gives the complete file its permissions and closes it.
    fn close(&mut self) -> Result<(), PathError> {
        let Some(file) = self.file.take() else { return Ok(()) };
        self.modes.apply(&file).map_err(PathError::on(Operation::ChangeMode, &self.path))?;
        descriptor::close(file.into()).map_err(PathError::on(Operation::Close, &self.path))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.hidden);
        }
    }
}

impl Writing<'_> {
    /// Returns the path of an object's file.
    fn path_of(&self, url: &str) -> Result<PathBuf, WorkError> {
        let directory = match self.place {
            Place::As(path) => return Ok(path.clone()),
            Place::Below(directory) => directory,
        };
        let root = self.root.trim_end_matches('/');
        let below = match url.strip_prefix(root) {
            // The URL of an object itself; its name is the last segment.
            Some("") => match self.store.location.name() {
                Some(name) => name,
                None => {
                    return Err(format!("cannot copy {url}: the URL has no name of a file").into());
                }
            },
            Some(below) if below.starts_with('/') => below.trim_start_matches('/'),
            _ => {
                let [url, root] = [url, root].map(|url| quoted(Path::new(url)).to_string());
                return Err(format!("cannot copy {url}: it is not below {root}").into());
            }
        };
        Ok(directory.join(below))
    }

    /// Refuses the second object with the file of the location's own name.
    fn claim(&self, url: &str, path: &Path) -> Result<(), WorkError> {
        let Place::Below(directory) = self.place else { return Ok(()) };
        let own = self.root.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if path != directory.join(own) || !self.own_name.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let [url, root] = [url, &self.root].map(|url| quoted(Path::new(url)).to_string());
        Err(format!(
            "cannot copy {url}: another object has the same file {}; copy what is below {root} with a \
             slash at its end, and {root} without -r",
            quoted(path)
        )
        .into())
    }

    /// Creates the directories of a file below the target. There no symbolic link is followed, so that no
    /// file is written outside of it.
    fn create_directories(&self, directory: &Path) -> Result<(), WorkError> {
        let Place::Below(root) = self.place else { return Ok(()) };
        call("make-directory", || std::fs::create_dir_all(root))
            .map_err(PathError::on(Operation::CreateDir, root))?;
        let mut path = root.to_owned();
        for name in directory.strip_prefix(root).into_iter().flatten() {
            path.push(name);
            match call("make-directory", || std::fs::create_dir(&path)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    let found = call("stat", || std::fs::symlink_metadata(&path))
                        .map_err(PathError::on(Operation::Stat, &path))?;
                    if found.is_symlink() {
                        return Err(format!(
                            "cannot create directory {}: it is a symbolic link, which cp does not \
                             follow below the target",
                            quoted(&path)
                        )
                        .into());
                    }
                    if !found.is_dir() {
                        return Err(PathError::on(Operation::CreateDir, &path)(error).into());
                    }
                }
                made => made.map_err(PathError::on(Operation::CreateDir, &path))?,
            }
        }
        Ok(())
    }

    /// Returns the MD5 of the contents of the version `e_tag` of an object, which is read again.
    fn read_again(&self, url: &str, e_tag: &str) -> Result<String, WorkError> {
        let failed = |kind, text| ObjectError::new(Action::Verify, url, kind, text);
        let key = url.strip_prefix(&self.store.location.url_of("")).unwrap_or_default();
        let key = Key::parse(key)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let read = || async {
            let result = self.store.patient.get_opts(&key, GetOptions::default()).await?;
            let same = |text: &str| text.trim_matches('"').eq_ignore_ascii_case(e_tag);
            if !result.meta.e_tag.as_deref().is_some_and(same) {
                return Ok(None);
            }
            let (mut sum, mut body) = (Md5::new(), paced(result.into_stream(), Pace::new()));
            while let Some(part) = body.try_next().await? {
                sum.update(&part);
            }
            Ok::<_, object_store::Error>(Some(digits(&sum.finalize())))
        };
        // The client repeats requests, and not contents that come too slowly or end early.
        let read_often = async {
            for _ in 1..ATTEMPTS_MAX {
                let (read, seen) = watched(read()).await;
                let is_interrupted = |error| Reason::of(error, &seen).kind == Kind::Interrupted;
                if seen.status.is_none() || !read.as_ref().is_err_and(is_interrupted) {
                    return (read, seen);
                }
            }
            watched(read()).await
        };
        let read = async {
            tokio::select! {
                read = read_often => Some(read),
                () = until_set(&self.stop) => None,
            }
        };
        let Some((read, seen)) = runtime.block_on(read) else {
            return Err(failed(Kind::Interrupted, "the run was stopped".to_owned()).into());
        };
        let read = read.map_err(|error| {
            let reason = Reason::of(&error, &seen);
            failed(reason.kind, reason.text)
        })?;
        let text = "it was replaced while it was read".to_owned();
        Ok(read.ok_or_else(|| failed(Kind::Changed, text))?)
    }

    /// Closes a file and gives it its name.
    fn publish(&self, url: &str, partial: &mut Partial) -> Result<(), WorkError> {
        partial.close()?;
        let Partial { hidden, path, .. } = &*partial;
        let folds = matches!(self.place, Place::Below(_)) && folds_case(hidden);
        match self.published.rename(hidden, path, folds)? {
            Named::Done => {
                partial.is_published = true;
                Ok(())
            }
            Named::Taken => Err(format!(
                "cannot copy {}: the target ignores case, and another object has the same file {}; copy it \
                 alone to another directory",
                quoted(Path::new(url)),
                quoted(path)
            )
            .into()),
        }
    }

    fn begin_file(&self, index: usize, url: &str) -> Result<Partial, WorkError> {
        let (path, old) = match self.place {
            Place::As(path) => replaced(path)?,
            Place::Below(_) => {
                let path = self.path_of(url)?;
                let old = refuse_special(&path)?;
                (path, old)
            }
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.claim(url, &path)?;
        self.create_directories(directory)?;
        let modes = Modes::of(self.default_acl.is_in(directory), old, self.umask);
        let mut tries = 0;
        let (hidden, file) = loop {
            let (process, random) = (std::process::id(), random_number());
            let hidden = directory.join(format!(".ioloom-{process}-{index}-{random:016x}"));
            // Never an existing file: it may be an object of this name, or a link.
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(modes.created);
            match call("create", || options.open(&hidden)) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < NAME_TRIES => {
                    tries += 1;
                }
                created => {
                    let created = created.map_err(PathError::on(Operation::Create, &path))?;
                    break (hidden, created);
                }
            }
        };
        let (file, sum) = (Some(file), Md5::new());
        let (bytes, expected, is_published) = (0, None, false);
        Ok(Partial { file, hidden, path, modes, is_published, bytes, sum, expected })
    }
}

/// Returns the file that a copy to `path` replaces, that of a symbolic link, and its permissions. A device, a pipe or
/// another special file would be lost, so it is refused.
fn replaced(path: &Path) -> Result<(PathBuf, Option<Old>), WorkError> {
    let found = match call("stat", || std::fs::metadata(path)) {
        // Also a link to a file that does not exist, which is replaced itself.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok((path.to_owned(), None)),
        found => found.map_err(PathError::on(Operation::Stat, path))?,
    };
    if !found.is_file() && !found.is_dir() {
        return Err(special(path));
    }
    let old = Old::of(&found);
    let link = call("stat", || std::fs::symlink_metadata(path))
        .map_err(PathError::on(Operation::Stat, path))?;
    if !link.is_symlink() {
        return Ok((path.to_owned(), old));
    }
    let resolved = call("resolve", || std::fs::canonicalize(path))
        .map_err(PathError::on(Operation::Resolve, path))?;
    Ok((resolved, old))
}

/// Refuses to replace a device, a pipe or another special file. A symbolic link is replaced itself. Returns the
/// permissions of a regular file.
fn refuse_special(path: &Path) -> Result<Option<Old>, WorkError> {
    match call("stat", || std::fs::symlink_metadata(path)) {
        Ok(found) if !found.is_file() && !found.is_dir() && !found.is_symlink() => {
            Err(special(path))
        }
        Ok(found) => Ok(Old::of(&found)),
        // What cannot be queried cannot be replaced either, which is then reported.
        Err(_) => Ok(None),
    }
}

fn special(path: &Path) -> WorkError {
    format!(
        "cannot copy to {}: it is not a regular file, and a copy would replace it; copy to a file \
         first",
        quoted(path)
    )
    .into()
}

impl Work for Writing<'_> {
    /// The URL, and the file after the first piece.
    type State = (String, Option<Partial>);
    type Local = Written;

    fn local(&self) -> Written {
        Written::default()
    }

    fn begin(&self, _: usize, url: &str) -> Self::State {
        (url.to_owned(), None)
    }

    fn piece(&self, (url, state): &mut Self::State, piece: Piece<'_>) -> Result<(), WorkError> {
        let partial = match state {
            Some(partial) => partial,
            None => state.insert(self.begin_file(piece.index, url)?),
        };
        let Some(file) = &mut partial.file else { return Err("the file is closed".into()) };
        call("write", || file.write_all(piece.bytes))
            .map_err(PathError::on(Operation::Write, &partial.path))?;
        partial.bytes += piece.bytes.len() as u64;
        if let Some(expected) = piece.md5 {
            partial.sum.update(piece.bytes);
            partial.expected = Some(expected.to_owned());
        }
        Ok(())
    }

    fn finish(
        &self,
        local: &mut Written,
        (url, state): Self::State,
        _: usize,
        _: &str,
    ) -> Result<(), WorkError> {
        let mut partial = state.ok_or("the object has no piece")?;
        let Some(expected) = partial.expected.take() else {
            self.publish(&url, &mut partial)?;
            local.length_only += 1;
            return Ok(());
        };
        let found = digits(&std::mem::take(&mut partial.sum).finalize());
        if found == expected {
            self.publish(&url, &mut partial)?;
            local.verified += 1;
            // Servers without sums can have that of an empty object.
            local.has_sums |= partial.bytes > 0;
            return Ok(());
        }
        // At S3, contents that are the same twice can have a version that looks like a sum and is none.
        let is_certain = self.store.location.cloud != Cloud::S3;
        if is_certain || self.read_again(&url, &expected)? != found {
            return Err(format!(
                "cannot verify {}: the contents have the MD5 {found}, the store has {expected}",
                quoted(Path::new(&url))
            )
            .into());
        }
        self.publish(&url, &mut partial)?;
        local.other_e_tag += 1;
        if local.other_e_tag_urls.len() < ERRORS_KEPT {
            local.other_e_tag_urls.push(url);
        }
        Ok(())
    }

    fn function_failed(&self, local: &mut Written, _: usize, _: &str, error: WorkError) {
        local.fail(error.to_string());
    }

    fn failed(&self, local: &mut Written, _: Option<usize>, error: &ObjectError) {
        local.fail(error.to_string());
    }
}
