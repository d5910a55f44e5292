//! Lines of a session file, and the session that they make.

use crate::expand::{Comparison, Mode};
use crate::order::Slot;
use ioloom_model::{Doubt, MachineFacts, RunRecord, StudySpec};
use serde::{Deserialize, Serialize};

/// Version of the lines of a session file.
pub const STORE_SCHEMA: u32 = 1;

/// The first line of a session: all that is needed to understand its runs and to go on with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// [`STORE_SCHEMA`].
    pub schema: u32,
    /// Identifier: study, time of the start and a number if there were two in that second.
    pub session: String,
    /// Name of the study.
    pub study: String,
    /// Name of the subject.
    pub subject: String,
    /// Quick or full.
    pub mode: Mode,
    /// Seed of the order.
    pub seed: u64,
    /// Fingerprint of what was to run: comparisons and arms, 16 digits.
    pub spec_hash: String,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// The ordered list of runs, drawn before the first one.
    pub order: Vec<Slot>,
    /// The machine.
    pub machine: MachineFacts,
    /// Version and commit of the program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Number of this file among those of an exported session, from 0.
    #[serde(default)]
    pub part: u32,
    /// Runs that are traced for timelines before the first block; they are no part of `order` and of
    /// no statistics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Comparison>,
    /// Identifier of the first session of the same command, when it ran several studies one after
    /// another: all of them are shown as one report under this name.
    #[serde(default, rename = "sitting", skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The study as it was asked for, when it is not the built-in one of its name: its file may be
    /// gone or changed when the report is made again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<StudySpec>>,
}

impl SessionHeader {
    /// The name under which the report of the session is made: that of its batch, or its own.
    pub fn batch(&self) -> &str {
        self.batch.as_deref().unwrap_or(&self.session)
    }
}

/// A run that was traced for a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The run. Its position counts the pictures.
    pub record: RunRecord,
    /// Name of the trace in `traces/SESSION` beside the sessions; `None` when there is none.
    pub trace: Option<String>,
    /// Length of the trace, bytes.
    pub trace_bytes: u64,
}

/// How a session ended. A session without an end can be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// Every run of the list has a record.
    Finished,
    /// The budget of time was used up; blocks were dropped.
    Budget,
}

/// The last line of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Blocks of the list that were dropped.
    pub blocks_dropped: u32,
    /// Doubts about the session as a whole.
    pub doubts: Vec<Doubt>,
    /// When, milliseconds since 1970.
    pub ended_unix_ms: u64,
}

/// Something that happened to a session, such as its being resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// What.
    pub text: String,
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    Session(Box<SessionHeader>),
    Run(Box<RunRecord>),
    Picture(Box<Picture>),
    Note(SessionNote),
    End(SessionEnd),
}

/// A session as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The header.
    pub header: SessionHeader,
    /// The runs in the order in which they ran.
    pub runs: Vec<RunRecord>,
    /// Traced runs.
    pub pictures: Vec<Picture>,
    /// Notes.
    pub notes: Vec<SessionNote>,
    /// The end, if it came to one.
    pub end: Option<SessionEnd>,
    /// Bytes of a torn last line that were left out.
    pub torn_bytes: u64,
}

impl Session {
    /// A session of which nothing but the header is there.
    pub(crate) fn new(header: SessionHeader) -> Self {
        let (runs, pictures, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { header, runs, pictures, notes, end: None, torn_bytes: 0 }
    }
}
