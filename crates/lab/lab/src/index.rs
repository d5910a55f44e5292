//! The index: a SQLite cache of the store for queries.
//!
//! `index.sqlite` in the store directory holds the main columns of every run and its record as
//! JSON. It stores the length of each session file: new or longer files are read again, and missing
//! files are removed. A damaged index or one with another version is deleted and rebuilt, if its first
//! bytes say that it is an index. Another file of that name is left alone: the index is then built in
//! memory, as it is if the directory is not writable, as with a read-only export. All of its contents
//! come from the session files.

use crate::store::{Listing, Store, StoreError};
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::{Outcome, RunRecord};
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Transaction, params, params_from_iter};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Schema version. An index with another version is rebuilt.
const VERSION: i64 = 2;

/// SQLite's number of the program to which a database belongs.
const APPLICATION: u32 = u32::from_be_bytes(*b"iolm");

/// The name in the directory of a store.
const NAME: &str = "index.sqlite";

/// SQLite's name of a database in memory.
const IN_MEMORY: &str = ":memory:";

const TABLES: &str = "
CREATE TABLE files (path TEXT PRIMARY KEY, session TEXT NOT NULL, bytes INTEGER NOT NULL);
CREATE TABLE sessions (
    session TEXT PRIMARY KEY, study TEXT NOT NULL, subject TEXT NOT NULL, mode TEXT NOT NULL,
    seed INTEGER NOT NULL, machine TEXT NOT NULL, version TEXT NOT NULL,
    started_unix_ms INTEGER NOT NULL, runs_planned INTEGER NOT NULL, ended INTEGER NOT NULL);
CREATE TABLE runs (
    session TEXT NOT NULL, position INTEGER NOT NULL, study TEXT NOT NULL,
    experiment TEXT NOT NULL, arm TEXT NOT NULL, set_name TEXT NOT NULL, medium TEXT NOT NULL,
    condition TEXT NOT NULL, compute TEXT NOT NULL, block INTEGER NOT NULL, plan TEXT NOT NULL,
    outcome TEXT NOT NULL, elapsed_ns INTEGER, files_per_s REAL, bytes_per_s REAL,
    doubts TEXT NOT NULL, started_unix_ms INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (session, position));
CREATE INDEX runs_by_name ON runs (study, experiment, arm);
";

/// An error of the index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// SQLite failed.
    #[error("index {}: {source}; delete the file; it will be rebuilt from the sessions", quoted(.path))]
    Sqlite {
        /// Path of the index.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
    /// A record in the index cannot be parsed.
    #[error("index {}: invalid record ({reason}); delete the file", quoted(.path))]
    Record {
        /// Path of the index.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// An index that was up to date when opened.
#[derive(Debug)]
pub struct Index {
    connection: Connection,
    path: PathBuf,
    unreadable: Vec<StoreError>,
    write_error: Option<String>,
}

/// A session in a list.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct SessionRow {
    /// Identifier.
    pub session: String,
    /// Name of the study.
    pub study: String,
    /// `quick` or `full`.
    pub mode: String,
    /// Seed of the order.
    pub seed: u64,
    /// Fingerprint of the machine.
    pub machine: String,
    /// Version and commit of the program.
    pub version: String,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Number of runs in its list.
    pub runs_planned: u64,
    /// Number of recorded runs.
    pub runs_done: u64,
    /// Whether it is complete. An incomplete session can be resumed.
    pub ended: bool,
}

/// A query for runs. An empty filter matches everything; text must match exactly.
#[derive(Debug, Clone, Default)]
pub struct RunFilter {
    /// Identifier of the session.
    pub session: Option<String>,
    /// Name of the study.
    pub study: Option<String>,
    /// Name of the experiment.
    pub experiment: Option<String>,
    /// Name of the arm.
    pub arm: Option<String>,
    /// Name of the set.
    pub set: Option<String>,
    /// Name of the condition.
    pub condition: Option<String>,
    /// `done`, `refused`, `failed` or `timed-out`.
    pub outcome: Option<String>,
}

/// Whose file has the name of an index.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// It does not exist, or is empty.
    None,
    /// It is an index, perhaps a damaged one.
    Index,
    /// It is a database of another program, no database, or cannot be read.
    Other,
}

/// Determines from the first bytes of a file whose it is. Indexes that were made before they had a
/// number of the program are known by their tables.
fn owner(path: &Path) -> Owner {
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(100).read_to_end(&mut head)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Owner::None,
        Ok(0) => return Owner::None,
        _ => {}
    }
    // https://sqlite.org/fileformat.html: a magic text, and the number at offset 68.
    let number = head.get(68..72).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes);
    let of_sqlite = head.starts_with(b"SQLite format 3\0");
    match number {
        Some(APPLICATION) if of_sqlite => Owner::Index,
        Some(0) if of_sqlite && has_our_tables(path).unwrap_or(false) => Owner::Index,
        _ => Owner::Other,
    }
}

fn has_our_tables(path: &Path) -> rusqlite::Result<bool> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let mut query = connection.prepare(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name",
    )?;
    let names: Vec<String> = query.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(names == ["files", "runs", "sessions"])
}

impl Index {
    /// Opens the index of a store and updates it. Sessions that cannot be read are left out; see
    /// [`Index::unreadable`].
    ///
    /// # Errors
    /// The store cannot be read, or SQLite fails even with a new file.
    pub fn open(store: &Store) -> Result<Self, IndexError> {
        let path = Self::path(store);
        let made = |path: &Path| -> Result<Self, IndexError> {
            let mut index = Self::open_at(path)?;
            index.unreadable = index.refresh(store)?;
            Ok(index)
        };
        let mut write_error = None;
        if owner(&path) != Owner::Other {
            match made(&path) {
                Err(IndexError::Sqlite { source, .. }) => write_error = Some(source.to_string()),
                other => return other,
            }
            // It is only a cache, so a damaged one, or one of another version, begins again. Another
            // program may hold it for longer than a wait: then it is as good as not writable.
            if Self::remove(store).is_ok()
                && let Ok(index) = made(&path)
            {
                return Ok(index);
            }
        }
        let index = made(Path::new(IN_MEMORY))?;
        Ok(Self { write_error, ..index })
    }

    /// Returns whether it is a file, rather than in memory because none can be written.
    pub fn is_file(&self) -> bool {
        self.path.as_path() != Path::new(IN_MEMORY)
    }

    /// Returns SQLite's reason why it is in memory; `None` if it is a file, or if its name is that of another file.
    pub fn write_error(&self) -> Option<&str> {
        self.write_error.as_deref()
    }

    /// Returns the path of the index of a store, which may not exist.
    pub fn path(store: &Store) -> PathBuf {
        store.dir().join(NAME)
    }

    /// Deletes the index of a store.
    ///
    /// # Errors
    /// It cannot be deleted, or the file is not an index.
    pub fn remove(store: &Store) -> Result<(), PathError> {
        let path = Self::path(store);
        let removed = match owner(&path) {
            Owner::None => return Ok(()),
            Owner::Index => std::fs::remove_file(&path),
            Owner::Other => Err(std::io::Error::other("it is not an index of ioloom")),
        };
        removed.map_err(PathError::on(Operation::Remove, &path))
    }

    fn open_at(path: &Path) -> Result<Self, IndexError> {
        let fail = |source| IndexError::Sqlite { path: path.to_owned(), source };
        let connection = Connection::open(path).map_err(fail)?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(fail)?;
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        if version == 0 {
            let text = format!(
                "BEGIN IMMEDIATE; {TABLES} PRAGMA application_id = {APPLICATION}; \
                 PRAGMA user_version = {VERSION}; COMMIT;"
            );
            connection.execute_batch(&text).map_err(fail)?;
        } else if version != VERSION {
            return Err(fail(rusqlite::Error::InvalidQuery));
        }
        let path = path.to_owned();
        Ok(Self { connection, path, unreadable: Vec::new(), write_error: None })
    }

    fn fail(&self, source: rusqlite::Error) -> IndexError {
        IndexError::Sqlite { path: self.path.clone(), source }
    }

    /// Returns why sessions are missing from the index: their files cannot be read, or an older session has
    /// their name.
    pub fn unreadable(&self) -> &[StoreError] {
        &self.unreadable
    }

    /// Reads the sessions that changed since the index was written. Returns why others cannot be read.
    fn refresh(&self, store: &Store) -> Result<Vec<StoreError>, IndexError> {
        let fail = |e| self.fail(e);
        let mut known = BTreeMap::new();
        {
            let mut query =
                self.connection.prepare("SELECT path, session, bytes FROM files").map_err(fail)?;
            let rows = query
                .query_map([], |row| {
                    Ok((
                        row.get::<_, String>(0)?,
                        (row.get::<_, String>(1)?, row.get::<_, i64>(2)?),
                    ))
                })
                .map_err(fail)?;
            for row in rows {
                let (path, entry) = row.map_err(fail)?;
                known.insert(path, entry);
            }
        }
        let Listing { files, mut errors } = store.list()?;
        errors.extend(store.namesakes(&files));
        let mut now = BTreeMap::new();
        for file in &files {
            let name = file.path.strip_prefix(store.dir()).unwrap_or(&file.path);
            let entry = (file.header.session.clone(), file.bytes as i64);
            now.insert(name.to_string_lossy().into_owned(), entry);
        }
        if known == now {
            return Ok(errors);
        }
        let mut stale: Vec<&String> = Vec::new();
        stale.extend(known.iter().filter(|(p, e)| now.get(*p) != Some(*e)).map(|(_, e)| &e.0));
        stale.extend(now.iter().filter(|(p, e)| known.get(*p) != Some(*e)).map(|(_, e)| &e.0));
        stale.sort();
        stale.dedup();
        let change = self.connection.unchecked_transaction().map_err(fail)?;
        for session in stale {
            for table in ["files", "sessions", "runs"] {
                let text = format!("DELETE FROM {table} WHERE session = ?1");
                change.execute(&text, [session]).map_err(fail)?;
            }
            if now.values().any(|(s, _)| s == session) {
                match store.read(session) {
                    Ok(read) => insert(&change, &read).map_err(fail)?,
                    Err(error) => {
                        // Its files are not in the index, so the next refresh reads them again.
                        if errors.iter().all(|known| known.path() != error.path()) {
                            errors.push(error);
                        }
                        continue;
                    }
                }
            }
            for (path, (_, bytes)) in now.iter().filter(|(_, (s, _))| s == session) {
                change
                    .execute("INSERT INTO files VALUES (?1, ?2, ?3)", params![path, session, bytes])
                    .map_err(fail)?;
            }
        }
        change.commit().map_err(fail)?;
        Ok(errors)
    }

    /// Returns all sessions, newest first.
    ///
    /// # Errors
    /// SQLite fails.
    pub fn sessions(&self) -> Result<Vec<SessionRow>, IndexError> {
        let fail = |e| self.fail(e);
        let mut query = self
            .connection
            .prepare(
                "SELECT s.session, study, mode, seed, machine, version, started_unix_ms,
                    runs_planned, ended,
                    (SELECT count(*) FROM runs r WHERE r.session = s.session)
                 FROM sessions s ORDER BY started_unix_ms DESC, s.session DESC",
            )
            .map_err(fail)?;
        let rows = query
            .query_map([], |row| {
                Ok(SessionRow {
                    session: row.get(0)?,
                    study: row.get(1)?,
                    mode: row.get(2)?,
                    seed: row.get::<_, i64>(3)? as u64,
                    machine: row.get(4)?,
                    version: row.get(5)?,
                    started_unix_ms: row.get::<_, i64>(6)? as u64,
                    runs_planned: row.get::<_, i64>(7)? as u64,
                    ended: row.get(8)?,
                    runs_done: row.get::<_, i64>(9)? as u64,
                })
            })
            .map_err(fail)?;
        rows.map(|row| row.map_err(fail)).collect()
    }

    /// Returns the records that match a filter, oldest session first, in execution order.
    ///
    /// # Errors
    /// SQLite fails, or a record cannot be parsed.
    pub fn runs(&self, filter: &RunFilter) -> Result<Vec<RunRecord>, IndexError> {
        let fail = |e| self.fail(e);
        let mut text = "SELECT json FROM runs WHERE 1".to_owned();
        let mut values = Vec::new();
        for (column, wanted) in [
            ("session", &filter.session),
            ("study", &filter.study),
            ("experiment", &filter.experiment),
            ("arm", &filter.arm),
            ("set_name", &filter.set),
            ("condition", &filter.condition),
            ("outcome", &filter.outcome),
        ] {
            if let Some(wanted) = wanted {
                values.push(Value::Text(wanted.clone()));
                text.push_str(&format!(" AND {column} = ?{}", values.len()));
            }
        }
        text.push_str(" ORDER BY started_unix_ms, session, position");
        let mut query = self.connection.prepare(&text).map_err(fail)?;
        let rows = query
            .query_map(params_from_iter(values), |row| row.get::<_, String>(0))
            .map_err(fail)?;
        rows.map(|row| {
            let json = row.map_err(fail)?;
            serde_json::from_str(&json)
                .map_err(|e| IndexError::Record { path: self.path.clone(), reason: e.to_string() })
        })
        .collect()
    }
}

fn insert(change: &Transaction<'_>, read: &crate::store::Session) -> rusqlite::Result<()> {
    let header = &read.header;
    change.execute(
        "INSERT INTO sessions VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        params![
            header.session,
            header.study,
            header.subject,
            header.mode.name(),
            header.seed as i64,
            header.machine.fingerprint,
            header.version,
            header.started_unix_ms as i64,
            header.order.len() as i64,
            read.end.is_some(),
        ],
    )?;
    let mut insert = change.prepare(
        "INSERT OR REPLACE INTO runs VALUES
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
    )?;
    for run in &read.runs {
        let measured = run.measured();
        let doubts: Vec<_> = run.doubts.iter().map(|d| d.name()).collect();
        let json = serde_json::to_string(run)
            .map_err(|e| rusqlite::Error::ToSqlConversionFailure(Box::new(e)))?;
        insert.execute(params![
            run.key.session,
            run.key.position,
            run.key.study,
            run.key.experiment,
            run.key.arm,
            run.key.set,
            run.key.medium,
            run.key.condition.name(),
            run.key.compute.to_string(),
            run.key.block,
            run.plan.to_string(),
            outcome_word(&run.outcome),
            measured.map(|m| m.elapsed_ns as i64),
            measured.map(|m| m.files_per_s()),
            measured.map(|m| m.bytes_per_s()),
            doubts.join(", "),
            run.started_unix_ms as i64,
            json,
        ])?;
    }
    Ok(())
}

/// Returns the name of an outcome in filters and lists.
pub fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done { .. } => "done",
        Outcome::Refused { .. } => "refused",
        Outcome::Failed { .. } => "failed",
        Outcome::TimedOut { .. } => "timed-out",
    }
}
