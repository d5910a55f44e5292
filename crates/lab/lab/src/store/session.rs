//! The lines of a session file and the resulting session.

use crate::expand::{Comparison, Mode};
use crate::order::Slot;
use ioloom_model::record::RunKey;
use ioloom_model::{Doubt, MachineFacts, Outcome, RunRecord, StudySpec};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Version of the session file format.
pub const STORE_SCHEMA: u32 = 1;

/// The first line of a session. It contains everything needed to understand and resume the session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionHeader {
    /// [`STORE_SCHEMA`].
    pub schema: u32,
    /// Identifier: study and start time, plus a number if two sessions started in the same second.
    pub session: String,
    /// Name of the study.
    pub study: String,
    /// Name of the subject.
    pub subject: String,
    /// Quick or full.
    pub mode: Mode,
    /// Seed of the order.
    pub seed: u64,
    /// Fingerprint of the comparisons and arms, 16 digits.
    pub spec_hash: String,
    /// The comparisons.
    pub comparisons: Vec<Comparison>,
    /// The ordered list of runs, drawn before the first run.
    pub order: Vec<Slot>,
    /// The machine.
    pub machine: MachineFacts,
    /// Version and commit of the program.
    pub version: String,
    /// The command line.
    pub command: Vec<String>,
    /// When it started, milliseconds since 1970.
    pub started_unix_ms: u64,
    /// Number of this file within an exported session, from 0.
    #[serde(default)]
    pub part: u32,
    /// Runs traced for timelines before the first block. They are excluded from `order` and from
    /// statistics.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Comparison>,
    /// Identifier of the first session of the same command, if it ran several studies. They are
    /// shown as one report under this name. Stored under the key `sitting`.
    #[serde(default, rename = "sitting", skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Fingerprints of the tests of claims that the runs were made to decide, by claim. Stored before
    /// the first run, so a test or threshold changed later can be recognised. Empty in sessions made
    /// before they were recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub claims: BTreeMap<String, String>,
    /// The media of the runs, by name with file system and disk, what the user permitted or asked for that
    /// changes how runs are made, and the directory of the user's files. A session is resumed only with the
    /// same. Empty in sessions made before they were recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub circumstances: Vec<String>,
    /// The rule by which the session stops, if it does not run its whole list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequential: Option<Sequential>,
    /// The study, unless it is the built-in one of its name. Its file may be gone or changed when
    /// the report is regenerated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<StudySpec>>,
}

impl SessionHeader {
    /// Returns the name of the report: the batch name, or the session name.
    pub fn batch(&self) -> &str {
        self.batch.as_deref().unwrap_or(&self.session)
    }

    /// Returns whether two headers are of one session. The name does not say it: studies that start on two
    /// machines in the same second have one name.
    pub fn is_of_same_session(&self, other: &Self) -> bool {
        let of = |header: &Self| {
            (header.session.clone(), header.started_unix_ms, header.machine.fingerprint.clone())
        };
        of(self) == of(other)
    }

    /// Checks that a run is of this session and in its list of runs.
    pub(super) fn check_planned(&self, key: &RunKey) -> Result<(), String> {
        if key.session != self.session {
            return Err(format!("the run is of session {:?}", key.session));
        }
        let slot = self.order.get(key.position as usize).filter(|slot| slot.2 == key.block);
        let comparison = slot.and_then(|slot| self.comparisons.get(slot.0 as usize));
        let comparison = comparison.filter(|c| c.experiment == key.experiment);
        let arm = slot.zip(comparison).and_then(|(slot, of)| of.arms.get(slot.1 as usize));
        match arm.is_some_and(|arm| arm.name == key.arm) {
            true => Ok(()),
            false => Err(format!(
                "run {} of {:?} in block {} is not in the list of runs",
                key.position, key.arm, key.block
            )),
        }
    }
}

/// A session that ends when its claims are decided. The list of runs is drawn for the last look; arms
/// that no open claim needs are left out after each look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequential {
    /// The claims.
    pub claims: Vec<String>,
    /// Numbers of blocks after which the claims are judged.
    pub looks: Vec<u32>,
    /// Sets that are reduced to their quick size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<String>,
}

/// A run traced for a timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    /// The run. Its position is relative to the traced runs.
    pub record: RunRecord,
    /// Name of the trace in `traces/SESSION`; `None` if there is none.
    pub trace: Option<String>,
    /// Length of the trace, bytes.
    pub trace_bytes: u64,
}

/// How a session ended. A session without this line can be resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// Every run of the list was recorded.
    Finished,
    /// The time budget was exhausted and blocks were dropped.
    Budget,
    /// No claim of a sequential session needed the remaining blocks.
    Decided,
}

/// The last line of a session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Why it ended.
    pub reason: EndReason,
    /// Number of blocks in the list that did not run.
    pub blocks_dropped: u32,
    /// Doubts about the whole session.
    pub doubts: Vec<Doubt>,
    /// When, milliseconds since 1970.
    pub ended_unix_ms: u64,
}

/// An event of a session, such as being resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionNote {
    /// The event.
    pub text: String,
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
}

impl SessionNote {
    /// Text of the note that a command adds when it resumes the session.
    pub const RESUMED: &str = "resumed";
}

/// One line of a session file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Line {
    Session(Box<SessionHeader>),
    Run(Box<RunRecord>),
    Picture(Box<Picture>),
    Note(SessionNote),
    End(SessionEnd),
}

/// A session read from the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Session {
    /// The header.
    pub header: SessionHeader,
    /// The runs in the order of execution.
    pub runs: Vec<RunRecord>,
    /// Traced runs.
    pub pictures: Vec<Picture>,
    /// Notes.
    pub notes: Vec<SessionNote>,
    /// The end marker, if the session has ended.
    pub end: Option<SessionEnd>,
    /// Length in bytes of a torn last line that was ignored.
    pub torn_bytes: u64,
}

impl Session {
    /// Returns a session that consists only of its header.
    pub(crate) fn new(header: SessionHeader) -> Self {
        let (runs, pictures, notes) = (Vec::new(), Vec::new(), Vec::new());
        Self { header, runs, pictures, notes, end: None, torn_bytes: 0 }
    }

    /// Returns the positions of the runs that an ended session lacks, in order: its file has lost lines. A
    /// budget ends the list after the last stored run. A sequential session leaves out the arms that no
    /// claim needs, but only at a look, so that an arm has no gap between two looks.
    pub fn missing(&self) -> Vec<u32> {
        let Some(end) = &self.end else { return Vec::new() };
        let stored: BTreeSet<u32> = self.runs.iter().map(|run| run.key.position).collect();
        let planned = || (0_u32..).zip(&self.header.order);
        let absent: Vec<(u32, &Slot)> =
            planned().filter(|(position, _)| !stored.contains(position)).collect();
        let Some(rule) = &self.header.sequential else {
            let newest = stored.last().copied().unwrap_or(0);
            let ran = |position: &u32| end.reason == EndReason::Finished || *position < newest;
            return absent.into_iter().map(|(position, _)| position).filter(ran).collect();
        };
        let of = |slot: &Slot| {
            let looks = rule.looks.iter().filter(|look| **look <= slot.2).count();
            (slot.0, slot.1, looks)
        };
        // The list is in the order of blocks.
        let ran = planned().filter(|(position, _)| stored.contains(position));
        let last: BTreeMap<_, u32> = ran.map(|(_, slot)| (of(slot), slot.2)).collect();
        let is_gap = |slot: &Slot| last.get(&of(slot)).is_some_and(|block| slot.2 < *block);
        let gaps = absent.into_iter().filter(|(_, slot)| is_gap(slot));
        gaps.map(|(position, _)| position).collect()
    }

    /// Returns how long the commands of the session ran, milliseconds. A command that was interrupted counts up to
    /// the end of its last stored run, and the time until it was resumed does not count.
    pub fn running_ms(&self) -> u64 {
        let run_end = |run: &RunRecord| {
            let elapsed_ns = run.measured().map_or(0, |measured| measured.elapsed_ns);
            run.started_unix_ms.saturating_add(elapsed_ns / 1_000_000)
        };
        let pictures = self.pictures.iter().map(|picture| &picture.record);
        let ends: Vec<u64> = self.runs.iter().chain(pictures).map(run_end).collect();
        let resumed = self.notes.iter().filter(|note| note.text == SessionNote::RESUMED);
        let mut starts = vec![self.header.started_unix_ms];
        starts.extend(resumed.map(|note| note.unix_ms));
        let of_command = |(at, start): (usize, &u64)| {
            let next = starts.get(at + 1).copied();
            let is_own = |end: &&u64| **end >= *start && next.is_none_or(|next| **end <= next);
            let last = ends.iter().filter(is_own).max().copied();
            let end = match &self.end {
                Some(end) if next.is_none() => Some(end.ended_unix_ms),
                _ => last,
            };
            end.map_or(0, |end| end.saturating_sub(*start))
        };
        starts.iter().enumerate().map(of_command).sum()
    }

    /// Returns a failed run for each missing run of an arm with a stored run, for judgements of all runs.
    pub fn lost_runs(&self) -> Vec<RunRecord> {
        let order = &self.header.order;
        let lost = self.missing().into_iter().filter_map(|position| {
            let slot = order.get(position as usize)?;
            let is_like = |run: &&RunRecord| {
                let other = order.get(run.key.position as usize);
                other.is_some_and(|other| (other.0, other.1) == (slot.0, slot.1))
            };
            let mut run = self.runs.iter().find(is_like)?.clone();
            (run.key.position, run.key.block) = (position, slot.2);
            let reason = "it is missing from the file of its session".to_owned();
            run.outcome = Outcome::Failed { reason };
            (run.proof, run.doubts) = (None, Vec::new());
            Some(run)
        });
        lost.collect()
    }
}
