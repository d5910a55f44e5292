//! The results store: append-only lines of JSON, one file per session.
//!
//! A session is one execution of one study. Its file `sessions/SESSION.jsonl` begins with the
//! [`SessionHeader`] (study, comparisons, ordered list of runs, machine, command). The file is
//! locked while the session runs. Each run appends one line, which is synced to the device before
//! the next run starts, so a killed study loses only the current run. If a kill or a full disk
//! leaves a torn last line, readers ignore it and a resumed session removes it; both report it.
//! Complete lines are never rewritten.
//!
//! An export (see [`crate::export`]) is a flat directory of such files, possibly several per
//! session, and is read by the same code. [`crate::index`] caches the lines.

mod error;
mod lines;
mod session;

pub use error::StoreError;
pub use session::{
    EndReason, Picture, STORE_SCHEMA, Sequential, Session, SessionEnd, SessionHeader, SessionNote,
};

pub(crate) use lines::{encode_end, encode_header, encode_note, encode_picture, encode_run};

use crate::judge::Judge;
use ioloom_failure::Operation;
use ioloom_model::RunRecord;
use ioloom_sys::file::open_regular;
use lines::{decode, encode};
use rustix::fs::{Access, AtFlags, CWD, access, accessat};
use session::Line;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Maximum line length in bytes. Protects against files that are not session files.
const LINE_MAX: u64 = 256 << 20;

const ADVICE_READ: &str = "check the path and its permissions, or use --store DIR";
const ADVICE_WRITE: &str = "recorded runs are safe; free space or use --store DIR, then resume";

fn io_error(
    operation: Operation,
    path: &Path,
    advice: &'static str,
) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { operation, path, source, advice }
}

/// A directory of sessions: a store or an export.
#[derive(Debug, Clone)]
pub struct Store {
    dir: PathBuf,
}

/// Summary of a session file, without its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionFile {
    /// The file.
    pub path: PathBuf,
    /// Its header.
    pub header: SessionHeader,
    /// Whether its last line marks the end.
    pub ended: bool,
    /// Length, bytes.
    pub bytes: u64,
}

/// The session files of a store.
#[derive(Debug, Default)]
pub struct Listing {
    /// Those whose header can be read, oldest first.
    pub files: Vec<SessionFile>,
    /// Why others cannot be read.
    pub errors: Vec<StoreError>,
}

/// Returns whether a path has the name of a file of a session, or of a part of its export.
fn is_part(path: &Path, session: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let rest = name.strip_prefix(session).and_then(|rest| rest.strip_suffix(".jsonl"));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".part"))
}

/// Checks that no part of a session is missing before one that is there; they are in order. A part may be there
/// twice.
fn complete(parts: &[SessionFile]) -> Result<(), StoreError> {
    let mut next = 0;
    for SessionFile { path, header, .. } in parts {
        if header.part > next {
            let session = header.session.clone();
            return Err(StoreError::NoPart { path: path.clone(), session, part: next });
        }
        next = header.part.saturating_add(1).max(next);
    }
    Ok(())
}

/// Returns the paths of the parts that another part follows. A part that is there twice is left out, because the
/// other file may have what one of them lacks.
fn followed(parts: &[SessionFile]) -> BTreeSet<PathBuf> {
    let number = |file: &SessionFile| file.header.part;
    let last = parts.iter().map(number).max();
    let is_once = |file: &SessionFile| {
        parts.iter().filter(|other| number(other) == number(file)).count() == 1
    };
    let before = parts.iter().filter(|file| Some(number(file)) < last && is_once(file));
    before.map(|file| file.path.clone()).collect()
}

/// Checks that a part that another one follows has no torn line: only the last part can have been written last.
fn check_whole(
    path: &Path,
    part: &Session,
    followed: &BTreeSet<PathBuf>,
) -> Result<(), StoreError> {
    if part.torn_bytes == 0 || !followed.contains(path) {
        return Ok(());
    }
    let text = std::fs::read(path).map_err(io_error(Operation::Read, path, ADVICE_READ))?;
    let whole = text.len().saturating_sub(part.torn_bytes as usize);
    let line = 1 + text[..whole].iter().filter(|byte| **byte == b'\n').count();
    let reason = "the line is torn, but another part follows".to_owned();
    Err(StoreError::Line { path: path.to_owned(), line, reason })
}

impl Store {
    /// Opens the store in `dir` for writing. Creates the directory if it does not exist.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let sessions = dir.join("sessions");
        std::fs::create_dir_all(&sessions).map_err(io_error(
            Operation::CreateDir,
            &sessions,
            ADVICE_READ,
        ))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Opens a store or an export for reading. Creates nothing.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open_to_read(dir: &Path) -> Result<Self, StoreError> {
        std::fs::read_dir(dir).map_err(io_error(Operation::ReadDir, dir, ADVICE_READ))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Returns the directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the trace directory of a session. It exists only if the session has traces.
    pub fn traces_dir(&self, session: &str) -> PathBuf {
        self.dir.join("traces").join(session)
    }

    /// Returns all session files, like [`Store::list`].
    ///
    /// # Errors
    /// A directory or file cannot be read, or was written by a newer program.
    pub fn files(&self) -> Result<Vec<SessionFile>, StoreError> {
        let Listing { files, errors } = self.list()?;
        errors.into_iter().next().map_or(Ok(files), Err)
    }

    /// Returns the session files, oldest first, and why others cannot be read. Omits files with the
    /// beginning of a header only, left by sessions that were killed before the first run.
    ///
    /// # Errors
    /// A directory cannot be read.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let (mut files, mut errors) = (Vec::new(), Vec::new());
        for dir in [self.dir.join("sessions"), self.dir.clone()] {
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(io_error(Operation::ReadDir, &dir, ADVICE_READ)(e)),
            };
            for entry in entries {
                let path = entry.map_err(io_error(Operation::ReadDir, &dir, ADVICE_READ))?.path();
                if path.extension().is_none_or(|e| e != "jsonl") {
                    continue;
                }
                match peek(&path) {
                    Ok(file) => files.extend(file),
                    Err(error) => errors.push(error),
                }
            }
        }
        let key =
            |f: &SessionFile| (f.header.started_unix_ms, f.header.session.clone(), f.header.part);
        files.sort_by_key(key);
        errors.sort_by_cached_key(ToString::to_string);
        Ok(Listing { files, errors })
    }

    /// Returns an error for each of these files, oldest first, whose session has the name of another one,
    /// as if two machines had started it in the same second, and which [`Store::read`] leaves out. That
    /// reads the file of this name, or else the oldest.
    pub fn namesakes(&self, files: &[SessionFile]) -> Vec<StoreError> {
        let mut kept: BTreeMap<&str, &SessionFile> = BTreeMap::new();
        for file in files {
            let name = file.header.session.as_str();
            if !kept.contains_key(name) || file.path == self.direct(name) {
                kept.insert(name, file);
            }
        }
        let error = |file: &SessionFile| {
            let kept = kept.get(file.header.session.as_str())?;
            let is_other = !kept.header.is_of_same_session(&file.header);
            is_other
                .then(|| StoreError::SameName { path: file.path.clone(), kept: kept.path.clone() })
        };
        files.iter().filter_map(error).collect()
    }

    /// Returns the path of a session that was made in this store.
    fn direct(&self, session: &str) -> PathBuf {
        self.dir.join("sessions").join(format!("{session}.jsonl"))
    }

    /// Reads a session from all of its files.
    ///
    /// # Errors
    /// The session does not exist, a file cannot be read, or a line is invalid.
    pub fn read(&self, session: &str) -> Result<Session, StoreError> {
        let mut whole = self.read_parts(session)?;
        Judge::doubt_minorities(&mut whole.runs);
        Ok(whole)
    }

    fn read_parts(&self, session: &str) -> Result<Session, StoreError> {
        let direct = self.direct(session);
        if !session.contains('/')
            && direct.is_file()
            && let Some(read) = read_file(&direct, None)?
        {
            return Ok(read);
        }
        let Listing { files, errors } = self.list()?;
        if let Some(error) = errors.into_iter().find(|error| is_part(error.path(), session)) {
            return Err(error);
        }
        let mut parts: Vec<SessionFile> =
            files.into_iter().filter(|f| f.header.session == session).collect();
        // Runs of another session of the same name must not be mixed with those of the oldest.
        let oldest = parts.first().map(|f| f.header.clone());
        parts.retain(|f| oldest.as_ref().is_some_and(|o| o.is_of_same_session(&f.header)));
        complete(&parts)?;
        let followed = followed(&parts);
        let mut parts = parts.into_iter();
        let missing =
            || StoreError::NoSession { session: session.to_owned(), dir: self.dir.clone() };
        let first = parts.next().ok_or_else(missing)?;
        let mut whole = read_file(&first.path, None)?.ok_or_else(missing)?;
        check_whole(&first.path, &whole, &followed)?;
        // A part left over from an earlier export may repeat runs of another part.
        let mut known: BTreeSet<u32> = whole.runs.iter().map(|r| r.key.position).collect();
        let mut pictured: BTreeSet<u32> =
            whole.pictures.iter().map(|p| p.record.key.position).collect();
        for part in parts {
            if let Some(more) = read_file(&part.path, Some(&whole.header))? {
                check_whole(&part.path, &more, &followed)?;
                whole.runs.extend(more.runs.into_iter().filter(|r| known.insert(r.key.position)));
                let pictures = more.pictures.into_iter();
                whole.pictures.extend(pictures.filter(|p| pictured.insert(p.record.key.position)));
                whole.notes.extend(more.notes);
                whole.end = whole.end.or(more.end);
                whole.torn_bytes += more.torn_bytes;
            }
        }
        Ok(whole)
    }

    /// Checks that a session can be created. Creates nothing.
    ///
    /// # Errors
    /// The directory of the sessions does not exist or cannot be written.
    pub(crate) fn check_writable(&self) -> Result<(), StoreError> {
        let dir = self.dir.join("sessions");
        let wanted = Access::WRITE_OK | Access::EXEC_OK;
        // Old sandboxes refuse the first call; the second one ignores capabilities of ordinary users.
        accessat(CWD, &dir, wanted, AtFlags::EACCESS)
            .or_else(|_| access(&dir, wanted))
            .map_err(|error| io_error(Operation::CreateIn, &dir, ADVICE_READ)(error.into()))
    }

    /// Starts a session by writing and syncing its header. If the name in the header is taken,
    /// appends a number to it. Returns the writer and the header as written.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(&self, mut header: SessionHeader) -> Result<(Writer, SessionHeader), StoreError> {
        let dir = self.dir.join("sessions");
        let wish = header.session.clone();
        for number in 2.. {
            let path = dir.join(format!("{}.jsonl", header.session));
            match OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => {
                    let mut writer = Writer::lock(file, path, 0)?;
                    writer.write(&Line::Session(Box::new(header.clone())))?;
                    File::open(&dir).and_then(|d| d.sync_all()).map_err(io_error(
                        Operation::Sync,
                        &dir,
                        ADVICE_WRITE,
                    ))?;
                    return Ok((writer, header));
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    header.session = format!("{wish}-{number}");
                }
                Err(e) => return Err(io_error(Operation::Create, &path, ADVICE_WRITE)(e)),
            }
        }
        unreachable!("the number range is unbounded")
    }

    /// Opens a session to resume it: locks the file, removes a torn last line, and returns the
    /// session.
    ///
    /// # Errors
    /// The session does not exist, is being written by another process, or cannot be read.
    pub fn reopen(&self, session: &str) -> Result<(Writer, Session), StoreError> {
        let path = self.direct(session);
        let missing =
            || StoreError::NoSession { session: session.to_owned(), dir: self.dir.clone() };
        let file = match OpenOptions::new().read(true).append(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(missing()),
            Err(e) => return Err(io_error(Operation::Open, &path, ADVICE_READ)(e)),
        };
        let mut writer = Writer::lock(file, path.clone(), 0)?;
        let read = read_file(&path, None)?.ok_or_else(missing)?;
        let fail = |source| io_error(Operation::Truncate, &path, ADVICE_WRITE)(source);
        let length = writer.file.metadata().map_err(fail)?.len();
        writer.good = length - read.torn_bytes;
        if read.torn_bytes > 0 {
            let fail = |source| io_error(Operation::Truncate, &path, ADVICE_WRITE)(source);
            writer.file.set_len(writer.good).and_then(|()| writer.file.sync_all()).map_err(fail)?;
        }
        Ok((writer, read))
    }
}

/// The only writer of a session file.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
    /// Total length of the complete lines in bytes.
    good: u64,
}

impl Writer {
    fn lock(file: File, path: PathBuf, good: u64) -> Result<Self, StoreError> {
        match file.try_lock() {
            Ok(()) => Ok(Self { file, path, good }),
            Err(TryLockError::WouldBlock) => Err(StoreError::Busy { path }),
            Err(TryLockError::Error(e)) => Err(io_error(Operation::Lock, &path, ADVICE_READ)(e)),
        }
    }

    /// Returns the path of the session file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a run and syncs it to the device.
    ///
    /// # Errors
    /// The disk is full or fails. Earlier lines remain readable.
    pub fn append(&mut self, record: &RunRecord) -> Result<(), StoreError> {
        self.write(&Line::Run(Box::new(record.clone())))
    }

    /// Appends a traced run.
    ///
    /// # Errors
    /// Same as [`Writer::append`].
    pub fn append_picture(&mut self, picture: &Picture) -> Result<(), StoreError> {
        self.write(&Line::Picture(Box::new(picture.clone())))
    }

    /// Appends a note.
    ///
    /// # Errors
    /// Same as [`Writer::append`].
    pub fn note(&mut self, text: &str, unix_ms: u64) -> Result<(), StoreError> {
        self.write(&Line::Note(SessionNote { text: text.to_owned(), unix_ms }))
    }

    /// Appends the end marker. The session can no longer be resumed.
    ///
    /// # Errors
    /// Same as [`Writer::append`].
    pub fn finish(mut self, end: SessionEnd) -> Result<(), StoreError> {
        self.write(&Line::End(end))
    }

    fn write(&mut self, line: &Line) -> Result<(), StoreError> {
        let text = encode(line).map_err(io_error(Operation::Write, &self.path, ADVICE_WRITE))?;
        let done = self.file.write_all(&text).and_then(|()| self.file.sync_data());
        if let Err(error) = done {
            // The next line must not follow a partial line.
            let _ = self.file.set_len(self.good);
            return Err(io_error(Operation::Write, &self.path, ADVICE_WRITE)(error));
        }
        self.good += text.len() as u64;
        Ok(())
    }
}

impl Drop for Writer {
    /// Unlocks explicitly: a child being forked by another thread shares the open file and would
    /// hold the lock until exec.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Reads the header of a session file and whether it ended; `None` if the header was not completely written.
pub(crate) fn peek(path: &Path) -> Result<Option<SessionFile>, StoreError> {
    let fail = |source| io_error(Operation::Read, path, ADVICE_READ)(source);
    let mut file = open_regular(path).map_err(fail)?;
    let bytes = file.metadata().map_err(fail)?.len();
    let mut first = Vec::new();
    BufReader::new((&mut file).take(LINE_MAX)).read_until(b'\n', &mut first).map_err(fail)?;
    if first.pop_if(|b| *b == b'\n').is_none() {
        // A kill while the header is written leaves its beginning.
        const HEAD: &[u8] = b"{\"session\":";
        let length = first.len().min(HEAD.len());
        if first[..length] == HEAD[..length] {
            return Ok(None);
        }
        let reason = "no header".to_owned();
        return Err(StoreError::Line { path: path.to_owned(), line: 1, reason });
    }
    let Line::Session(header) = decode(path, 1, &first)? else {
        let reason = "the first line of a session must be its header".to_owned();
        return Err(StoreError::Line { path: path.to_owned(), line: 1, reason });
    };
    const END_MAX: u64 = 4096;
    file.seek(SeekFrom::Start(bytes.saturating_sub(END_MAX))).map_err(fail)?;
    let mut tail = Vec::new();
    file.take(END_MAX).read_to_end(&mut tail).map_err(fail)?;
    let complete = &tail[..tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at)];
    let last = complete.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    let ended = complete[last..].starts_with(b"{\"end\":");
    Ok(Some(SessionFile { path: path.to_owned(), header: *header, ended, bytes }))
}

/// Reads a session file; `None` without a complete first line. `first` is the header of the first part if this
/// is another one, which has no list of runs.
fn read_file(path: &Path, first: Option<&SessionHeader>) -> Result<Option<Session>, StoreError> {
    let fail = |source| io_error(Operation::Read, path, ADVICE_READ)(source);
    let invalid = |line, reason| StoreError::Line { path: path.to_owned(), line, reason };
    let mut reader = BufReader::new(open_regular(path).map_err(fail)?);
    let mut session: Option<Session> = None;
    let mut by_position = BTreeMap::new();
    let (mut number, mut text) = (0, Vec::new());
    loop {
        text.clear();
        (&mut reader).take(LINE_MAX).read_until(b'\n', &mut text).map_err(fail)?;
        number += 1;
        if text.pop_if(|b| *b == b'\n').is_none() {
            break;
        }
        let line = match decode(path, number, &text) {
            // A power failure can leave zeros, which no written line contains, in the last line. Another
            // line that cannot be decoded is damaged.
            Err(StoreError::Line { .. })
                if number > 1 && text.contains(&0) && at_end(&mut reader) =>
            {
                text.push(b'\n');
                break;
            }
            other => other?,
        };
        match (&mut session, line) {
            (None, Line::Session(header)) => {
                session = Some(Session::new(*header));
            }
            (Some(s), Line::Run(run)) => {
                let planned = first.unwrap_or(&s.header).check_planned(&run.key);
                planned.map_err(|reason| invalid(number, reason))?;
                if by_position.insert(run.key.position, number).is_none() {
                    s.runs.push(*run);
                }
            }
            (Some(s), Line::Picture(picture)) => s.pictures.push(*picture),
            (Some(s), Line::Note(note)) => s.notes.push(note),
            (Some(s), Line::End(end)) => s.end = Some(end),
            (None, _) | (Some(_), Line::Session(_)) => {
                let reason = "the header must be the first line and the only header".to_owned();
                return Err(invalid(number, reason));
            }
        }
    }
    if let Some(session) = &mut session {
        session.torn_bytes = text.len() as u64;
    }
    Ok(session)
}

fn at_end(reader: &mut impl BufRead) -> bool {
    reader.fill_buf().is_ok_and(<[u8]>::is_empty)
}
