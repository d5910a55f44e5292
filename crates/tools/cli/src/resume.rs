//! Selects the session or batch that `ioloom study --resume` continues.
//!
//! A single study continues its own session, which the laboratory selects. A command with several
//! studies creates a batch, which only the same command continues. The latest batch counts: a study whose
//! session in it does not match begins a new one. Studies that such a new batch lacks count as complete if
//! they are complete in the batch that it replaces. A batch is unfinished if one of its sessions has no
//! end record or if some studies have no session yet. If the batch is finished, the
//! command is refused: the user did not ask for hours of new runs. If nothing is stored, the first
//! session starts, so the same command can be repeated until the batch is finished.

use crate::exit::Failure;
use crate::sessions;
use ioloom_lab::store::{Listing, SessionFile, SessionHeader};
use ioloom_lab::{Mode, Store};
use ioloom_model::{MachineFacts, StudySpec};

/// The flag of this module.
const FLAG: &str = "--resume";

/// Flags that are ignored when comparing two command lines because they do not change the runs, and
/// whether they have a value.
const IGNORED: [(&str, bool); 5] =
    [(FLAG, false), ("--json", false), ("--report", true), ("--export", true), ("--budget", true)];

/// What to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Nothing: start new sessions.
    Nothing,
    /// The unfinished session of a single study, if it exists.
    Session,
    /// The batch with the first name. The others are those that it replaced, newest first.
    Batch(Vec<String>),
}

impl Resume {
    /// Returns the batch of the next study, given those of the sessions of this command so far: the one to be
    /// continued, unless a study that did not match began another one.
    pub(crate) fn batch<'a>(
        &self,
        so_far: impl DoubleEndedIterator<Item = &'a str>,
    ) -> Option<String> {
        let batches: &[String] = match self {
            Self::Batch(batches) => batches,
            Self::Nothing | Self::Session => &[],
        };
        let is_new = |batch: &&str| !batches.iter().any(|known| known.as_str() == *batch);
        so_far.rev().find(is_new).map(str::to_owned).or_else(|| batches.first().cloned())
    }
}

/// The properties that a session must share with this command.
pub(crate) struct Request<'a> {
    pub(crate) mode: Mode,
    pub(crate) machine: &'a MachineFacts,
    pub(crate) version: &'a str,
    pub(crate) command: &'a [String],
}

impl Request<'_> {
    /// Returns the properties of a session that differ.
    fn differs(&self, header: &SessionHeader) -> Vec<&'static str> {
        let same = [
            ("mode", header.mode == self.mode),
            ("machine", header.machine.fingerprint == self.machine.fingerprint),
            ("number of usable processors", header.machine.cpus_usable == self.machine.cpus_usable),
            ("program version", header.version == self.version),
            ("command line", self.is_command(header)),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
    }

    /// Returns whether a session was started by the same command line. Sessions of `claims --verify` have
    /// another stopping rule.
    fn is_command(&self, header: &SessionHeader) -> bool {
        header.sequential.is_none() && deciding(&header.command) == deciding(self.command)
    }
}

/// Returns the words of a command line that decide which runs are made.
fn deciding(line: &[String]) -> Vec<&str> {
    let mut left = Vec::new();
    let mut words = line.iter();
    while let Some(word) = words.next() {
        let flag = word.split_once('=').map_or(word.as_str(), |(flag, _)| flag);
        match IGNORED.iter().find(|(ignored, _)| *ignored == flag) {
            // Its value is the next word.
            Some((_, true)) if flag == word => _ = words.next(),
            Some(_) => {}
            None => left.push(word.as_str()),
        }
    }
    left
}

/// Returns the latest batch of a command with several studies, or prints why there is none.
///
/// # Errors
/// The store cannot be read, or the latest batch of the same command is finished.
pub(crate) fn of_several(
    store: &Store,
    specs: &[StudySpec],
    request: &Request<'_>,
) -> Result<Resume, Failure> {
    let Listing { mut files, errors } = store.list().map_err(Failure::failed)?;
    sessions::report_unreadable(&errors);
    files.retain(|f| specs.iter().any(|study| study.name == f.header.study));
    let alike: Vec<&SessionFile> =
        files.iter().filter(|f| request.differs(&f.header).is_empty()).collect();
    let batches = batches(&alike);
    if let Some(newest) = batches.first() {
        if specs.iter().any(|study| is_left(&study.name, &batches, &alike)) {
            return Ok(Resume::Batch(batches));
        }
        return Err(finished(newest));
    }
    let why = match files.iter().rev().find(|f| !f.ended) {
        Some(f) => format!(
            "the unfinished session {} has another {}",
            f.header.session,
            request.differs(&f.header).join(", another ")
        ),
        None => "no unfinished session of these studies".to_owned(),
    };
    crate::stderr::line(&format!("Nothing to resume: {why}. Starting all studies."));
    Ok(Resume::Nothing)
}

/// Returns the latest batch of one command, whose sessions are given oldest first, and the batches that it
/// replaced, newest first. A batch that was not begun by `--resume` replaces none: the user asked for new runs.
fn batches(alike: &[&SessionFile]) -> Vec<String> {
    let mut batches: Vec<String> = Vec::new();
    for SessionFile { header, .. } in alike {
        let batch = header.batch();
        let is_known = batches.iter().any(|known| known == batch);
        if !is_known && !header.command.iter().any(|word| word == FLAG) {
            batches.clear();
        }
        batches.retain(|known| known != batch);
        batches.push(batch.to_owned());
    }
    batches.reverse();
    batches
}

/// Returns whether a study is not complete in the newest batch that has it.
fn is_left(study: &str, batches: &[String], alike: &[&SessionFile]) -> bool {
    let own = |batch: &str| {
        let is_own = |f: &SessionFile| f.header.study == study && f.header.batch() == batch;
        let ended: Vec<bool> = alike.iter().filter(|f| is_own(f)).map(|f| f.ended).collect();
        (!ended.is_empty()).then(|| ended.iter().all(|ended| *ended))
    };
    batches.iter().find_map(|batch| own(batch)) != Some(true)
}

/// Returns the error for a finished session.
pub(crate) fn finished(session: &str) -> Failure {
    Failure::refused(format!(
        "nothing to resume: session {session} is finished (`ioloom report {session}` shows it); omit \
         {FLAG} to measure again"
    ))
}

#[cfg(test)]
mod tests {
    use super::{Resume, deciding};

    #[test]
    fn flags_that_do_not_change_the_runs_are_ignored() {
        let of = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let plain = of("ioloom study --full --random 7");
        for same in [
            "ioloom study --resume --full --random 7 --json",
            "ioloom study --full --budget 1h --random 7 --report a.html",
            "ioloom study --budget=1h --full --export=x.json --random 7",
        ] {
            assert_eq!(deciding(&of(same)), deciding(&plain), "{same}");
        }
        for other in ["ioloom study --full", "ioloom study pipeline --full --random 7"] {
            assert_ne!(deciding(&of(other)), deciding(&plain), "{other}");
        }
    }

    #[test]
    fn a_complete_study_of_a_replaced_batch_does_not_change_the_batch() {
        let resume = Resume::Batch(vec!["b".to_owned(), "a".to_owned()]);
        for (so_far, batch) in
            [(vec![], "b"), (vec!["a"], "b"), (vec!["a", "b"], "b"), (vec!["a", "c", "a"], "c")]
        {
            assert_eq!(resume.batch(so_far.iter().copied()).as_deref(), Some(batch), "{so_far:?}");
        }
        assert_eq!(Resume::Nothing.batch(["a"].into_iter()).as_deref(), Some("a"));
        assert_eq!(Resume::Session.batch(std::iter::empty()), None);
    }
}
