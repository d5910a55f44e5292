//! What `ioloom study --resume` goes on with.
//!
//! A study that is asked for alone goes on with its own session, which the laboratory finds. Several
//! studies of one command are a sitting: it was left where a session of it has no end, or where it
//! broke off between two studies, so that some have no session at all. Where everything came to its
//! end there is nothing to go on with, and beginning hours of runs anew is not what was asked for:
//! that is refused with a word. Where nothing like it is stored, the first session begins, so that
//! one line can be given until it is done.

use crate::exit::Failure;
use ioloom_lab::store::{SessionFile, SessionHeader};
use ioloom_lab::{Mode, Store};
use ioloom_model::StudySpec;
use std::collections::BTreeSet;

/// The word that does not count when two command lines are compared.
const WORD: &str = "--resume";

/// What is gone on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GoOn {
    /// Nothing: sessions begin.
    Nothing,
    /// The session of the one study, if it has one without an end.
    Session,
    /// The sitting of this name.
    Sitting(String),
}

/// What is asked for now, as far as a session must be like it.
pub(crate) struct Asked<'a> {
    pub(crate) mode: Mode,
    pub(crate) machine: &'a str,
    pub(crate) version: &'a str,
    pub(crate) command: &'a [String],
}

impl Asked<'_> {
    /// What of a session is another.
    fn differs(&self, header: &SessionHeader) -> Vec<&'static str> {
        let same = [
            ("mode", header.mode == self.mode),
            ("machine", header.machine.fingerprint == self.machine),
            ("version of this program", header.version == self.version),
        ];
        same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
    }

    /// Whether a session is of the same command line.
    fn is_command(&self, header: &SessionHeader) -> bool {
        let words = |line: &[String]| -> Vec<String> {
            line.iter().filter(|word| *word != WORD).cloned().collect()
        };
        words(&header.command) == words(self.command)
    }
}

/// The sitting that was left by a command over several studies; what keeps it from being gone on with
/// is told.
///
/// # Errors
/// The store cannot be read, or the newest sitting of the same command came to its end.
pub(crate) fn of_several(
    store: &Store,
    specs: &[StudySpec],
    asked: &Asked<'_>,
) -> Result<GoOn, Failure> {
    let mut files = store.files().map_err(Failure::failed)?;
    files.retain(|f| specs.iter().any(|study| study.name == f.header.study));
    let alike = |f: &&SessionFile| asked.differs(&f.header).is_empty();
    if let Some(left) = files.iter().rev().filter(alike).find(|f| !f.ended) {
        return Ok(GoOn::Sitting(left.header.batch().to_owned()));
    }
    let same = files.iter().rev().filter(alike).find(|f| asked.is_command(&f.header));
    if let Some(newest) = same {
        let sitting = newest.header.batch();
        let of_it = files.iter().filter(|f| f.header.batch() == sitting);
        let ran: BTreeSet<&str> = of_it.map(|f| f.header.study.as_str()).collect();
        if specs.iter().any(|study| !ran.contains(study.name.as_str())) {
            return Ok(GoOn::Sitting(sitting.to_owned()));
        }
        return Err(ended(sitting));
    }
    let why = match files.iter().rev().find(|f| !f.ended) {
        Some(f) => format!(
            "the unfinished session {} has another {}",
            f.header.session,
            asked.differs(&f.header).join(", another ")
        ),
        None => "no unfinished session of these studies is stored".to_owned(),
    };
    crate::stderr::line(&format!("Nothing to resume: {why}; all studies begin anew."));
    Ok(GoOn::Nothing)
}

/// The refusal to begin anew what came to its end.
pub(crate) fn ended(session: &str) -> Failure {
    Failure::refused(format!(
        "nothing to resume: session {session} came to its end (`ioloom report {session}` shows it); \
         leave {WORD} out to measure anew"
    ))
}
