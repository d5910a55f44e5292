//! What verification was asked for, and the place where its runs are made.

use crate::directories::{StoreArg, work_dir};
use crate::exit::Failure;
use crate::facts;
use crate::ledger::{Evidence, Ledger};
use crate::media::{Media, MediaArgs};
use crate::sessions;
use crate::shell_line::command_line;
use crate::study::RUN_WORD;
use ioloom_claims::{Claim, Rule};
use ioloom_lab::child::Runner;
use ioloom_lab::spec::{self, SpecError};
use ioloom_lab::store::{Listing, SessionHeader};
use ioloom_lab::{Mode, Overrides, Progress, RunOptions, Store, Subject, Workspace};
use ioloom_model::{MachineFacts, StudySpec};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Options of a verification.
pub(crate) struct Request<'a> {
    pub(crate) ledger: &'a Ledger,
    /// The runs that were stored before the verification.
    pub(crate) evidence: &'a Evidence,
    /// The claims to decide, without those that runs on this machine have decided.
    pub(crate) claims: Vec<&'a Claim>,
    /// Those of them whose arms were refused.
    pub(crate) untestable: BTreeSet<String>,
    /// Whether the claims were named, so that those given up earlier are tried again.
    pub(crate) named: bool,
    pub(crate) store: &'a StoreArg,
    pub(crate) dir: Option<&'a Path>,
    pub(crate) studies: Option<&'a Path>,
    pub(crate) budget: Option<Duration>,
    pub(crate) dry_run: bool,
    /// Whether large file sets keep their published size.
    pub(crate) full_size: bool,
    pub(crate) image: bool,
    pub(crate) media: bool,
    pub(crate) drop_caches: bool,
    pub(crate) allow_sysctl: bool,
}

/// The place where runs are made.
pub(super) struct Bench<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) store: Store,
    pub(super) machine: MachineFacts,
    pub(super) stop: Arc<AtomicBool>,
    work_dir: PathBuf,
    runner: Runner,
}

/// Returns the fingerprint of this machine, as runs in this work directory record it.
pub(crate) fn fingerprint(dir: Option<&Path>) -> Result<String, Failure> {
    Ok(facts::facts(Path::new("/"), &work_dir(dir)?).fingerprint)
}

impl<'a> Bench<'a> {
    pub(super) fn new(request: &'a Request<'a>) -> Result<Self, Failure> {
        let work_dir = work_dir(request.dir)?;
        let machine = facts::facts(Path::new("/"), &work_dir);
        let store = Store::open(&request.store.dir()?).map_err(Failure::failed)?;
        let runner = Runner::of_this_program(RUN_WORD)
            .map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
        Ok(Self { request, store, machine, stop: crate::interrupt::stop_flag(), work_dir, runner })
    }

    /// Returns the sequential sessions of this machine and program, old to new, with whether they
    /// ended.
    pub(super) fn sessions(&self) -> Result<Vec<(SessionHeader, bool)>, Failure> {
        let Listing { files, errors } = self.store.list().map_err(Failure::failed)?;
        sessions::report_unreadable(&errors);
        let own = |header: &SessionHeader| {
            header.sequential.is_some()
                && header.version == crate::version::VERSION
                && header.machine.fingerprint == self.machine.fingerprint
                && header.machine.cpus_usable == self.machine.cpus_usable
        };
        Ok(files
            .into_iter()
            .map(|f| (f.header, f.ended))
            .filter(|(header, _)| own(header))
            .collect())
    }

    /// Reads the stored runs again, with those of sessions that ended since.
    pub(super) fn evidence(&self) -> Result<Evidence, Failure> {
        let (stored, _) = sessions::all(self.request.store)?;
        Ok(self.request.ledger.evidence(stored))
    }

    /// Returns the options of every session: full mode, all experiments, the blocks of the last look.
    pub(super) fn options<'b>(
        &'b self,
        spec: &StudySpec,
        progress: &'b dyn Progress,
    ) -> RunOptions<'b> {
        let (machine, runner) = (self.machine.clone(), self.runner.clone());
        let usual = RunOptions::new(&self.work_dir, runner, machine, &self.stop, progress);
        RunOptions {
            mode: Mode::Full,
            overrides: Overrides {
                experiments: spec.experiments.iter().map(|e| e.name.clone()).collect(),
                blocks: Rule::LOOKS.last().copied(),
                ..Overrides::default()
            },
            workspaces: vec![Workspace::describe("work", &self.work_dir)],
            drop_caches: self.request.drop_caches,
            allow_sysctl: self.request.allow_sysctl,
            resume: true,
            version: crate::version::VERSION.to_owned(),
            command: command_line(),
            ..usual
        }
    }

    /// Returns the media of a session.
    pub(super) fn media(
        &self,
        spec: &StudySpec,
        subject: &dyn Subject,
        options: &RunOptions<'_>,
    ) -> Result<Media, Failure> {
        let args = MediaArgs::new(self.request.media, self.request.image);
        Media::make(&args, false, subject, spec, options, &self.work_dir)
    }

    /// Returns a study by name.
    pub(super) fn study(&self, name: &str) -> Result<StudySpec, SpecError> {
        spec::load(name, self.request.studies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_a_round_has_stored_count_in_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::empty();
        let evidence = ledger.evidence(Vec::new());
        let request = Request {
            ledger: &ledger,
            evidence: &evidence,
            claims: Vec::new(),
            untestable: BTreeSet::new(),
            named: false,
            store: &StoreArg { store: Some(dir.path().join("store")) },
            dir: Some(dir.path()),
            studies: None,
            budget: None,
            dry_run: false,
            full_size: false,
            image: false,
            media: false,
            drop_caches: false,
            allow_sysctl: false,
        };
        let bench = Bench::new(&request).unwrap();
        let before = bench.evidence().unwrap().records.len();
        let name = "memory-20261123T085502Z.jsonl";
        let fixture = Path::new("../../../tests/fixtures/a8ad189/results/store/sessions");
        std::fs::copy(fixture.join(name), dir.path().join("store/sessions").join(name)).unwrap();
        assert!(bench.evidence().unwrap().records.len() > before);
    }
}
