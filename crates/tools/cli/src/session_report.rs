//! Converts stored sessions to report input, for `study`, `report` and `compare`.
//!
//! A session contains its study unless the study is built in. Sessions of built-in studies contain
//! only the comparisons; the questions come from the built-in study of the same name, and without it
//! only the comparisons are shown. Study files from `--studies` take precedence, so texts can be
//! changed after the runs.

use crate::exit::Failure;
use crate::ledger::Ledger;
use crate::out;
use crate::study_end::spec_failure;
use ioloom_claims::{Claim, ClaimVerdict, Contrast, Effect, Part, Verdict};
use ioloom_lab::expand::{AGAIN, SetSource};
use ioloom_lab::store::{Picture, SessionHeader};
use ioloom_lab::{Comparison, Session, Store};
use ioloom_model::study::{Arm, Chart, Experiment, MediaUse, fill};
use ioloom_model::units::format_counted;
use ioloom_model::{Compute, Doubt, RunRecord, StudySpec};
use ioloom_report::{ClaimCurve, ClaimRow, DoubtRow, Input, PictureRow, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Doubts about a series of runs; those about single runs are in their records.
const OF_SERIES: [Doubt; 5] =
    [Doubt::Drift, Doubt::Alternation, Doubt::FirstRun, Doubt::TwoRegimes, Doubt::NoiseFloor];

/// Returns the report input for the sessions of one command, one chapter each. A study just read from
/// a file is passed with its session; others are looked up.
pub(crate) fn inputs(
    sessions: Vec<(Session, Option<StudySpec>)>,
    studies: Option<&Path>,
    ledger: &Ledger,
    store: &Path,
) -> Vec<(Input, Vec<ClaimVerdict>)> {
    let several = sessions.len() > 1;
    let one = |(session, study)| {
        let (mut input, verdicts) = of_study(session, study, studies, ledger, store);
        if several {
            input.prefix = format!("{}-", input.study.name);
        }
        (input, verdicts)
    };
    sessions.into_iter().map(one).collect()
}

/// Checks the directory of `--studies`, from which [`inputs`] and [`input`] take only what fits.
///
/// # Errors
/// The directory has no studies, or a study cannot be used.
pub(crate) fn check_studies(dir: Option<&Path>) -> Result<(), Failure> {
    let Some(dir) = dir else { return Ok(()) };
    ioloom_lab::spec::all(Some(dir)).map(|_| ()).map_err(spec_failure)
}

/// The report input for a session, with verdicts on the study's claims from this session alone.
pub(crate) fn input(
    session: Session,
    studies: Option<&Path>,
    ledger: &Ledger,
    store: &Path,
) -> (Input, Vec<ClaimVerdict>) {
    of_study(session, None, studies, ledger, store)
}

/// Says why the runs of a session that has not ended decide nothing.
fn not_ended(verdict: &mut ClaimVerdict) {
    const WORDS: &str = "the session has not ended; repeat its command with --resume";
    if verdict.verdict != Verdict::Undecided {
        return;
    }
    verdict.sentence = WORDS.to_owned();
    for part in verdict.parts.iter_mut().filter(|part| part.verdict == Verdict::Undecided) {
        part.sentence = WORDS.to_owned();
    }
}

fn of_study(
    session: Session,
    study: Option<StudySpec>,
    studies: Option<&Path>,
    ledger: &Ledger,
    store: &Path,
) -> (Input, Vec<ClaimVerdict>) {
    let evidence = ledger.evidence(vec![session.clone()]);
    let (duration_ms, continued_by) = (session.running_ms(), continued_by(&session));
    let mut header = session.header;
    let mut study = study.unwrap_or_else(|| spec(&mut header, studies));
    as_planned(&mut study, &header.comparisons);
    let pictures = pictures(&session.pictures, &store.join("traces").join(&header.session));
    let claims = ledger.of_study(&header.study);
    let mut verdicts = ledger.judge(&claims, &evidence);
    if !evidence.unfinished.is_empty() {
        verdicts.iter_mut().for_each(not_ended);
    }
    let records = session.runs;
    let curves = |arm: &str, name: &str| recorded_curve(&records, arm, name);
    let rows: Vec<ClaimRow> =
        claims.iter().zip(&verdicts).map(|(c, v)| claim_row(c, v, &curves)).collect();
    let doubts = doubts(session.end.as_ref().map_or(&[], |e| &e.doubts), &verdicts);
    let explained = explained(&study, &records);
    let metric_names = metric_names(&study);
    let user_files = has_user_files(&header);
    let tree = crate::tree_map::walked(&study, header.mode, &records);
    let input = Input {
        study,
        mode: header.mode,
        is_scaled: header.sequential.is_some_and(|rule| !rule.scaled.is_empty()),
        command: header.command.join(" "),
        machine: header.machine,
        records,
        runs_planned: header.order.len(),
        continued_by,
        user_files,
        pictures,
        verdicts: rows,
        session: header.session,
        started_unix_ms: header.started_unix_ms,
        duration_s: duration_ms as f64 / 1e3,
        version: header.version,
        seed: header.seed,
        spec_hash: header.spec_hash,
        doubts,
        since: None,
        report_path: None,
        store_path: Some(crate::directories::short(store)),
        explained,
        metric_names,
        published: published_tables(&claims),
        tree,
        prefix: String::new(),
    };
    (input, verdicts)
}

/// Returns the command that continues a session, unless it has ended.
fn continued_by(session: &Session) -> Option<&'static str> {
    let command = match session.header.sequential {
        Some(_) => "the same ioloom claims --verify command",
        None => "ioloom study --resume and the same options",
    };
    session.end.is_none().then_some(command)
}

/// Returns whether the files of a session are a directory of the user.
fn has_user_files(header: &SessionHeader) -> bool {
    let mut arms = header.comparisons.iter().flat_map(|c| &c.arms);
    arms.any(|arm| matches!(arm.source, SetSource::Directory(_)))
}

/// Sets in a study what the session recorded of its arms: their kernel settings, how files are made cold, and
/// the number of files. The study can have been changed since. If arms of one family differ in what is
/// recorded, and the study does not say so, that of the last one is kept.
fn as_planned(study: &mut StudySpec, comparisons: &[Comparison]) {
    for comparison in comparisons {
        let same = |experiment: &&mut Experiment| experiment.name == comparison.experiment;
        let Some(experiment) = study.experiments.iter_mut().find(same) else { continue };
        for planned in &comparison.arms {
            let same = |arm: &&mut Arm| {
                fill(&arm.name, &planned.factors).is_ok_and(|name| name == planned.name)
            };
            let Some(arm) = experiment.arms.iter_mut().find(same) else { continue };
            arm.settings.clone_from(&planned.settings);
            arm.cold_by = planned.cold_by;
            let files_max = arm.files_max.as_ref().and_then(|max| fill(max, &planned.factors).ok());
            let recorded = planned.files_max.map(|max| max.to_string());
            if files_max != recorded {
                arm.files_max = recorded;
            }
        }
    }
}

/// Returns the traces of a session, starting with those whose threads had enough processors. Missing
/// traces, which exports leave out, are counted in a message; unreadable ones are reported and skipped.
fn pictures(pictures: &[Picture], dir: &Path) -> Vec<PictureRow> {
    let mut rows: Vec<(bool, PictureRow)> = Vec::new();
    let mut missing = 0;
    for picture in pictures {
        let Some(name) = picture.trace.as_deref().filter(|name| !name.contains('/')) else {
            continue;
        };
        let key = &picture.record.key;
        let path = dir.join(name);
        if !path.exists() {
            missing += 1;
            continue;
        }
        let mut trace = match crate::trace::input::read(&path) {
            Ok(trace) => trace,
            Err(failure) => {
                crate::stderr::message(&failure.message);
                continue;
            }
        };
        trace.title = match &key.compute {
            Compute::None => format!("{}: {}", key.arm, trace.title),
            work => format!("{} ({work}): {}", key.arm, trace.title),
        };
        let row = PictureRow {
            experiment: key.experiment.clone(),
            arm: key.arm.clone(),
            compute: key.compute.clone(),
            trace,
        };
        rows.push((picture.record.doubts.contains(&Doubt::Oversubscribed), row));
    }
    if missing > 0 {
        let traces = format_counted(missing, "trace is", "traces are");
        crate::stderr::message(&format!("{traces} not stored; timelines are left out"));
    }
    rows.sort_by_key(|(crowded, _)| *crowded);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Describes the plans of a subject that defines its own plan syntax.
fn explained(study: &StudySpec, records: &[RunRecord]) -> BTreeMap<String, String> {
    let Ok(subject) = ioloom_subjects::named(&study.subject) else { return BTreeMap::new() };
    let own = records.iter().filter(|r| r.plan.files().is_none());
    own.map(|r| (r.plan.to_string(), subject.explain(&r.plan).unwrap_or_default())).collect()
}

/// Returns the names of the numbers that only runs of this subject record.
fn metric_names(study: &StudySpec) -> BTreeMap<String, String> {
    let subject = ioloom_subjects::named(&study.subject);
    let names = subject.map_or(&[][..], |subject| subject.metric_names());
    names.iter().map(|(name, words)| ((*name).to_owned(), (*words).to_owned())).collect()
}

/// Returns the published tables that the claims come from.
fn published_tables(claims: &[&Claim]) -> BTreeMap<String, Table> {
    let seeds: BTreeSet<u32> = claims.iter().map(|claim| claim.source).collect();
    let of = |name: &str| seeds.iter().any(|seed| name.starts_with(&format!("{seed:03}_")));
    let names = ioloom_claims::data::TABLES.iter().map(|(name, _)| *name).filter(|name| of(name));
    let read = names.filter_map(|name| Some((name, ioloom_claims::data::table(name).ok()?)));
    read.map(|(name, table)| {
        let title = name.to_owned();
        let published =
            Table { columns: table.header, rows: table.rows, title, ..Table::default() };
        (name.to_owned(), published)
    })
    .collect()
}

/// Returns the study of a session: from a file, from the session, built in, or rebuilt from the
/// comparisons.
fn spec(header: &mut SessionHeader, studies: Option<&Path>) -> StudySpec {
    let stored = header.spec.take().map(|spec| *spec);
    let given = studies.and_then(|dir| ioloom_lab::spec::load(&header.study, Some(dir)).ok());
    let built_in = || ioloom_lab::spec::load(&header.study, None).ok();
    let experiments: BTreeSet<&str> =
        header.comparisons.iter().map(|c| c.experiment.as_str()).collect();
    let fits = |spec: &StudySpec| {
        experiments.iter().all(|name| spec.experiments.iter().any(|e| e.name == *name))
    };
    let known = given.filter(fits).or(stored).or_else(built_in).filter(fits);
    known.unwrap_or_else(|| reconstructed(header))
}

fn reconstructed(header: &SessionHeader) -> StudySpec {
    let mut experiments: Vec<Experiment> = Vec::new();
    for comparison in &header.comparisons {
        match experiments.iter_mut().find(|e| e.name == comparison.experiment) {
            Some(known) => {
                add_new(&mut known.sets, &comparison.set);
                add_new(&mut known.conditions, &comparison.condition);
                add_new(&mut known.computes, &comparison.compute);
            }
            None => experiments.push(experiment(comparison)),
        }
    }
    StudySpec {
        name: header.study.clone(),
        subject: header.subject.clone(),
        title: format!("Study {}", header.study),
        question:
            "The study file was not found, so its questions are not shown; use --studies DIR \
                   to specify it."
                .to_owned(),
        seed: header.seed,
        quick_budget_s: 90.0,
        sets: BTreeMap::new(),
        experiments,
    }
}

fn add_new<T: PartialEq + Clone>(list: &mut Vec<T>, item: &T) {
    if !list.contains(item) {
        list.push(item.clone());
    }
}

fn experiment(comparison: &Comparison) -> Experiment {
    let arms = comparison.arms.iter().filter(|arm| !arm.name.ends_with(AGAIN));
    Experiment {
        name: comparison.experiment.clone(),
        question: comparison.experiment.clone(),
        sets: vec![comparison.set.clone()],
        conditions: vec![comparison.condition],
        computes: vec![comparison.compute.clone()],
        topic: None,
        usual: None,
        chart: Chart::Dots,
        axis: None,
        metric: "elapsed_ns".to_owned(),
        blocks_full: comparison.blocks,
        blocks_quick: comparison.blocks,
        again: true,
        media: MediaUse::First,
        pictures: Vec::new(),
        arms: arms
            .map(|arm| Arm {
                name: arm.name.clone(),
                plan: arm.plan.to_string(),
                says: None,
                with: BTreeMap::new(),
                headline: true,
                headline_with: BTreeMap::new(),
                files_max: arm.files_max.map(|max| max.to_string()),
                set: (arm.set != comparison.set).then(|| arm.set.clone()),
                cold_by: arm.cold_by,
                settings: arm.settings.clone(),
            })
            .collect(),
    }
}

/// Returns the names that make arms of two sessions comparable.
fn place(names: [&String; 4]) -> [&str; 4] {
    names.map(String::as_str)
}

/// Maximum number of earlier sessions that are read to find a comparable one.
const EARLIER_MAX: usize = 16;

/// Returns what changed since the latest comparable session of the same study on the same machine.
pub(crate) fn since(store: &Store, input: &Input, studies: Option<&Path>) -> Option<String> {
    let files = store.list().ok()?.files;
    let alike = |header: &SessionHeader| {
        header.study == input.study.name
            && header.machine.fingerprint == input.machine.fingerprint
            && header.machine.cpus_usable == input.machine.cpus_usable
            && header.mode == input.mode
            && header.sequential.is_none()
            && header.started_unix_ms < input.started_unix_ms
    };
    let ran = input.records.iter().map(|record| &record.key);
    let ran = ran.map(|key| place([&key.experiment, &key.set, &key.medium, &key.arm]));
    let ran: BTreeSet<[&str; 4]> = ran.collect();
    let shares_arms = |header: &SessionHeader| {
        let arms = header.comparisons.iter().flat_map(|c| c.arms.iter().map(move |arm| (c, arm)));
        let mut arms = arms.map(|(c, arm)| place([&c.experiment, &arm.set, &c.medium, &arm.name]));
        has_user_files(header) == input.user_files && arms.any(|arm| ran.contains(&arm))
    };
    // A session has a file per part.
    let mut seen = BTreeSet::new();
    let headers = files.iter().rev().map(|file| &file.header);
    let headers = headers.filter(|header| alike(header) && shares_arms(header));
    let names = headers.map(|header| header.session.as_str()).filter(|name| seen.insert(*name));
    let candidates = names.take(EARLIER_MAX).filter_map(|name| {
        let mut session = store.read(name).ok().filter(|session| !session.runs.is_empty())?;
        let ended = session.end.is_some();
        // Neither timelines nor verdicts are compared.
        session.pictures.clear();
        Some((ended, of_study(session, None, studies, &Ledger::empty(), store.dir()).0))
    });
    let before = ioloom_report::compare::earlier(candidates, input)?;
    Some(ioloom_report::compare::since(&before, input))
}

/// Prints the summaries, followed by the path of the report.
pub(crate) fn print_summary(inputs: &[Input]) -> Result<(), Failure> {
    out::print(&ioloom_report::terminal_all(inputs, out::columns(), out::colour()))
}

/// Returns the path of a session's report.
pub(crate) fn report_path(store: &Path, session: &str) -> PathBuf {
    store.join("reports").join(format!("{session}.html"))
}

/// Maximum number of points in a drawn curve.
const CURVE_POINTS_MAX: usize = 120;

/// Returns a recorded curve, thinned to the middle point of each group of neighbours by `x`.
fn recorded_curve(records: &[RunRecord], arm: &str, name: &str) -> Vec<(f64, f64)> {
    let of = |r: &RunRecord| r.measured().and_then(|m| m.curves.get(name)).cloned();
    let mut points = records.iter().filter(|r| r.key.arm == arm).find_map(of).unwrap_or_default();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let chunk = points.len().div_ceil(CURVE_POINTS_MAX).max(1);
    points
        .chunks(chunk)
        .map(|near| {
            let mut near = near.to_vec();
            near.sort_by(|a, b| a.1.total_cmp(&b.1));
            near[near.len() / 2]
        })
        .collect()
}

/// Returns the points recorded under a name by the runs of an arm.
type Recorded<'a> = dyn Fn(&str, &str) -> Vec<(f64, f64)> + 'a;

/// Returns the curves behind the contrasts of a claim: factor levels with their medians, or curves
/// recorded by the runs.
fn claim_curves(claim: &Claim, verdict: &ClaimVerdict, recorded: &Recorded<'_>) -> Vec<ClaimCurve> {
    let mut out = Vec::new();
    for (contrast, part) in claim.contrasts.iter().zip(&verdict.parts) {
        let (axis, metric, mut points) = match &contrast.contrast {
            Contrast::Curve(recorded_curve) => {
                let curve = recorded_curve.curve.as_str();
                let arm = part.evidence.arms.first();
                let points = arm.map_or(Vec::new(), |arm| recorded(arm, curve));
                ("offset_bytes".to_owned(), format!("{curve}_ns"), points)
            }
            _ => {
                let Some(axis) = contrast.axis() else { continue };
                let start = format!("median_at_{axis}_");
                let level = |(name, value): (&String, &f64)| {
                    Some((name.strip_prefix(start.as_str())?.parse::<f64>().ok()?, *value))
                };
                let points = part.evidence.numbers.iter().filter_map(level).collect();
                let metric = contrast.metrics().first().map_or("", |m| m).to_owned();
                (axis.to_owned(), metric, points)
            }
        };
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.len() >= 2 {
            out.push(ClaimCurve { place: part.place.clone(), axis, metric, points });
        }
    }
    out
}

/// Returns the reason for a verdict, what would decide it if it is open, and what the tests cannot show.
fn with_caveat(verdict: &ClaimVerdict) -> String {
    let mut words = verdict.sentence.clone();
    if !verdict.needs.is_empty() {
        words.push_str(&format!("; needs {}", verdict.needs.join("; ")));
    }
    if let Some(caveat) = &verdict.caveat {
        words.push_str(&format!(". {caveat}"));
    }
    words
}

fn claim_row(claim: &Claim, verdict: &ClaimVerdict, recorded: &Recorded<'_>) -> ClaimRow {
    let effect = match &verdict.evidence {
        e if e.effect_is == Effect::Ratio => {
            e.effect.zip(e.lo).zip(e.hi).map(|((v, l), h)| (v, l, h))
        }
        _ => None,
    };
    ClaimRow {
        id: verdict.id.clone(),
        same_as: verdict.same_as.clone(),
        statement: verdict.statement.clone(),
        published: published(verdict),
        verdict: verdict.verdict,
        sentence: with_caveat(verdict),
        effect,
        curves: claim_curves(claim, verdict, recorded),
        published_values: verdict
            .published
            .iter()
            .map(|p| (p.what.clone(), p.value, p.unit.clone()))
            .collect(),
    }
}

/// Prints a message if sessions were created with `--claims` and this command lacks it. The store
/// contains runs but no claims.
pub(crate) fn report_missing_ledger<'h>(
    headers: impl Iterator<Item = &'h SessionHeader>,
    given: Option<&Path>,
) {
    if given.is_some() {
        return;
    }
    let ledgers: BTreeSet<&str> = headers.filter_map(|h| flag(&h.command, "--claims")).collect();
    for ledger in ledgers {
        crate::stderr::message(&format!(
            "a session used --claims {ledger}; claims are not stored, so repeat --claims {ledger} to \
             include their verdicts"
        ));
    }
}

/// Returns the value of a flag in a command line.
fn flag<'c>(command: &'c [String], name: &str) -> Option<&'c str> {
    let at = command.iter().position(|word| word.split('=').next() == Some(name))?;
    match command[at].split_once('=') {
        Some((_, value)) => Some(value),
        None => command.get(at + 1).map(String::as_str),
    }
}

/// Formats the published numbers of a claim.
pub(crate) fn published(verdict: &ClaimVerdict) -> String {
    let numbers = verdict.published.iter().map(|p| format!("{} {} {}", p.what, p.value, p.unit));
    numbers.map(|text| text.trim().to_owned()).collect::<Vec<_>>().join("; ")
}

/// Returns the doubts about the session and the series behind verdicts, once per experiment.
fn doubts(of_session: &[Doubt], verdicts: &[ClaimVerdict]) -> Vec<DoubtRow> {
    let whole = |doubt: &Doubt| DoubtRow {
        doubt: *doubt,
        experiment: None,
        arm: None,
        detail: String::new(),
    };
    let mut rows: Vec<DoubtRow> = of_session.iter().map(whole).collect();
    let mut seen: BTreeMap<(Doubt, &str), Vec<&str>> = BTreeMap::new();
    for verdict in verdicts {
        for part in verdict.parts.iter().filter(|part| part.evidence.blocks > 0) {
            for doubt in part.doubts.iter().filter(|doubt| OF_SERIES.contains(doubt)) {
                let ids = seen.entry((*doubt, experiment_of(part))).or_default();
                if !ids.contains(&verdict.id.as_str()) {
                    ids.push(&verdict.id);
                }
            }
        }
    }
    rows.extend(seen.into_iter().map(|((doubt, experiment), ids)| DoubtRow {
        doubt,
        experiment: Some(experiment.to_owned()),
        arm: None,
        detail: format!("detected in the blocks behind {}", ids.join(", ")),
    }));
    rows
}

/// Returns the experiment of a contrast; its place begins with the name.
fn experiment_of(part: &Part) -> &str {
    part.place.split(", ").next().unwrap_or(&part.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_lab::Overrides;

    /// The texts of a study can be changed after the runs, but not what its arms were.
    #[test]
    fn the_arms_of_a_study_are_those_that_ran() {
        let study = ioloom_lab::spec::load("pagecache", None).expect("a built-in study");
        let mode = ioloom_lab::Mode::Full;
        let comparisons = ioloom_lab::expand::expand(&study, mode, &Overrides::default(), 2);
        let mut edited = study.clone();
        let mut arms = study.experiments.iter().flat_map(|e| &e.arms);
        assert!(arms.any(|arm| !arm.settings.is_empty()), "the test needs such an arm");
        for arm in edited.experiments.iter_mut().flat_map(|e| &mut e.arms) {
            arm.settings.clear();
            arm.files_max = Some("7".to_owned());
        }
        assert_ne!(edited, study);
        as_planned(&mut edited, &comparisons.expect("comparisons"));
        assert_eq!(edited, study);
    }

    #[test]
    fn the_value_of_a_flag_stands_beside_or_behind_it() {
        let line = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        for text in ["ioloom study x --claims a/b --full", "ioloom study --claims=a/b"] {
            assert_eq!(flag(&line(text), "--claims"), Some("a/b"), "{text}");
        }
        assert_eq!(flag(&line("ioloom study claims --full"), "--claims"), None);
        assert_eq!(flag(&line("ioloom study --claims"), "--claims"), None);
    }
}
