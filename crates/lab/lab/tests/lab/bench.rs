//! A fake subject, study and children.

use ioloom_lab::child::Runner;
use ioloom_lab::files::SET_MANIFEST;
use ioloom_lab::run::Silent;
use ioloom_lab::{
    ChildAnswer, Cost, Mode, Progress, Removed, RunOptions, SetProgress, Sets, Store, Subject,
};
use ioloom_model::record::{RunOrder, Span};
use ioloom_model::{
    AnyPlan, CallKind, Compute, Doubt, FileSetRealised, FileSetSpec, MachineFacts, Measured,
    Method, Outcome, StudySpec,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub(crate) const FILES: u64 = 20;
pub(crate) const FILE_BYTES: u64 = 5000;

/// Creates files of zeros and recognizes them by their specification text.
#[derive(Default)]
pub(crate) struct Mock {
    pub(crate) prepared: AtomicU64,
}

impl Mock {
    fn text(spec: &FileSetSpec) -> String {
        serde_json::to_string(spec).unwrap()
    }
}

impl Subject for Mock {
    fn name(&self) -> &str {
        "mock"
    }

    fn sets(&self) -> &dyn Sets {
        self
    }

    fn probe(&self, plan: &AnyPlan, _: &Compute, _: &Path) -> Result<(), String> {
        match plan.files().map(|plan| plan.method) {
            Some(Method::DirectRead) => Err("no direct reads on this file system".to_owned()),
            _ => Ok(()),
        }
    }

    fn run(&self, _: &RunOrder) -> ChildAnswer {
        unreachable!("runs are performed by shell scripts")
    }

    fn verify(&self, _: &RunOrder, _: &FileSetRealised, _: &Measured) -> Vec<Doubt> {
        Vec::new()
    }
}

impl Sets for Mock {
    fn cost(&self, spec: &FileSetSpec) -> Cost {
        let bytes = (0..spec.count.min(100)).map(|i| spec.size.value(spec.seed, i)).sum::<u64>();
        let bytes = bytes * spec.count / spec.count.min(100);
        Cost { bytes, files: spec.count, seconds: bytes as f64 / 500e6 }
    }

    fn known(&self, spec: &FileSetSpec, dir: &Path) -> Option<FileSetRealised> {
        let text = std::fs::read_to_string(dir.join(SET_MANIFEST)).ok()?;
        (text == Self::text(spec)).then(|| realised("known", spec.count, 0))
    }

    fn items(&self, dir: &Path) -> PathBuf {
        dir.join("files")
    }

    fn prepare(
        &self,
        name: &str,
        spec: &FileSetSpec,
        dir: &Path,
        _: u64,
        progress: SetProgress<'_>,
    ) -> Result<FileSetRealised, String> {
        self.prepared.fetch_add(1, Ordering::Relaxed);
        let files = dir.join("files");
        std::fs::create_dir_all(&files).map_err(|e| e.to_string())?;
        let mut total = 0;
        for i in 0..spec.count {
            let size = spec.size.value(spec.seed, i);
            total += size;
            std::fs::write(files.join(format!("{i:06}")), vec![0u8; size as usize])
                .map_err(|e| e.to_string())?;
            if !progress(i + 1, spec.count) {
                return Err("interrupted".to_owned());
            }
        }
        std::fs::write(dir.join(SET_MANIFEST), Self::text(spec)).map_err(|e| e.to_string())?;
        Ok(realised(name, spec.count, total))
    }

    fn remove(&self, dir: &Path) -> Result<Removed, String> {
        let files = std::fs::read_dir(dir.join("files")).map_err(|e| e.to_string())?.count();
        std::fs::remove_dir_all(dir).map_err(|e| e.to_string())?;
        Ok(Removed { files: files as u64, ..Removed::default() })
    }

    fn survey(&self, dir: &Path) -> Result<FileSetRealised, String> {
        let files = std::fs::read_dir(dir).map_err(|e| e.to_string())?.count();
        Ok(realised(&dir.display().to_string(), files as u64, 0))
    }
}

fn realised(name: &str, files: u64, bytes_total: u64) -> FileSetRealised {
    FileSetRealised {
        name: name.to_owned(),
        files,
        bytes_total,
        bytes_mean: bytes_total as f64 / files.max(1) as f64,
        compute_ns_mean: None,
        hash: format!("{files:016x}"),
        medium: None,
    }
}

/// Everything needed for a study, in a temporary directory on the build disk.
pub(crate) struct Bench {
    pub(crate) dir: PathBuf,
    _owned: Option<tempfile::TempDir>,
    pub(crate) stop: AtomicBool,
    pub(crate) subject: Mock,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let owned = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let bench = Self::at(owned.path());
        Self { _owned: Some(owned), ..bench }
    }

    pub(crate) fn at(dir: &Path) -> Self {
        let bench = Self {
            dir: dir.to_owned(),
            _owned: None,
            stop: AtomicBool::new(false),
            subject: Mock::default(),
        };
        let total = FILES * FILE_BYTES;
        bench.answer("good", &done(FILES, total, "00000000000000aa"));
        bench.answer("liar", &done(FILES, total, "00000000000000bb"));
        bench.answer("short", &done(FILES - 1, total - FILE_BYTES, "00000000000000cc"));
        bench
    }

    fn answer(&self, name: &str, outcome: &Outcome) {
        let answer = ChildAnswer { outcome: outcome.clone(), device_bytes: Some(FILES * 8192) };
        let text = serde_json::to_string(&answer).unwrap();
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    /// Returns the log file to which each child appends a line at startup.
    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn started(&self) -> usize {
        std::fs::read_to_string(self.log()).map_or(0, |t| t.lines().count())
    }

    /// Returns children that log, wait for `pause` seconds and answer depending on the plan's
    /// method.
    pub(crate) fn runner(&self, pause: &str) -> Runner {
        let script = format!(
            "cd '{}'; read -r order; echo x >> log; sleep {pause}; case $order in \
             *'\"plan\":\"mmap'*) kill -BUS $$;; \
             *'\"plan\":\"nowait'*) cat liar;; \
             *'\"plan\":\"uring'*) cat short;; \
             *) cat good;; esac",
            self.dir.display()
        );
        Runner {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
        }
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.dir.join("store")).unwrap()
    }

    pub(crate) fn options<'a>(&'a self, progress: &'a dyn Progress) -> RunOptions<'a> {
        let machine = MachineFacts {
            fingerprint: "made-up".to_owned(),
            cpus_usable: 2,
            ..MachineFacts::default()
        };
        let work = self.dir.join("work");
        let options = RunOptions::new(&work, self.runner("0"), machine, &self.stop, progress);
        RunOptions { mode: Mode::Full, reserve_bytes: 0, spans_max: 0, ..options }
    }

    pub(crate) fn silent(&self) -> RunOptions<'_> {
        self.options(&Silent)
    }
}

pub(crate) fn done(files: u64, bytes: u64, digest: &str) -> Outcome {
    let measured = Measured {
        elapsed_ns: 20_000_000,
        files,
        bytes,
        digest: digest.to_owned(),
        others_cpu: Some(0.01),
        spans: vec![vec![Span { kind: CallKind::Read, start_ns: 0, ns: 1, file: 0 }]],
        ..Measured::default()
    };
    Outcome::Done { measured: Box::new(measured) }
}

/// Returns a study with these arms over 20 files of 5000 bytes, with three blocks.
pub(crate) fn study(arms: &str) -> StudySpec {
    let text = format!(
        r#"
name = "made-up"
title = "Made up"
question = "Does the laboratory work?"
seed = 5
[sets.S]
about = "small"
full = {{ count = {FILES}, size = "{FILE_BYTES}" }}
[[experiment]]
name = "x"
question = "Which?"
sets = ["S"]
blocks_full = 3
arm = [ {arms} ]
"#
    );
    ioloom_lab::spec::parse(&text, "made-up").unwrap()
}

pub(crate) const TWO_ARMS: &str = r#"{ name = "t{n}", plan = "read/threads:n={n}", with = { n = [1, 2] }, headline_with = { n = [1] } }"#;
