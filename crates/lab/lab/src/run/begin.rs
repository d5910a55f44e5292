//! Starts, resumes or looks up the session of a study.
//!
//! A session is resumed only with the same list of runs, files, machine and program. Otherwise its runs
//! would not be comparable with the new ones.

use super::options::RunOptions;
use super::plan::{Planned, plan};
use super::progress::Event;
use crate::error::LabError;
use crate::sets::Sets;
use crate::spec::is_built_in;
use crate::store::{
    Listing, STORE_SCHEMA, Session, SessionFile, SessionHeader, SessionNote, Store, Writer,
};
use crate::subject::Subject;
use ioloom_model::StudySpec;
use ioloom_sys::clock;
use std::path::Path;

/// Looks up the session to resume, or starts a new one.
pub(super) fn begin(
    spec: &StudySpec,
    subject: &dyn Subject,
    store: &Store,
    planned: &Planned,
    sets: &Sets,
    options: &RunOptions<'_>,
) -> Result<(Writer, Session), LabError> {
    if options.resume
        && let Some(resumed) = resume(spec, store, planned, sets, options)?
    {
        return Ok(resumed);
    }
    let now = clock::unix_ms();
    let batch = match &options.batch {
        // The session of this study in the batch does not match, so this is another batch.
        Some(batch) if options.resume && has_study(store, spec, batch)? => None,
        batch => batch.clone(),
    };
    let header = SessionHeader {
        schema: STORE_SCHEMA,
        session: format!("{}-{}", spec.name, time_word(now)),
        study: spec.name.clone(),
        subject: subject.name().to_owned(),
        mode: options.mode,
        seed: planned.seed,
        spec_hash: planned.spec_hash.clone(),
        comparisons: planned.comparisons.clone(),
        order: planned.order.clone(),
        machine: options.machine.clone(),
        version: options.version.clone(),
        command: options.command.clone(),
        started_unix_ms: now,
        part: 0,
        pictures: planned.pictures.clone(),
        batch,
        claims: options.claims.clone(),
        circumstances: circumstances(options),
        sequential: options.sequential.as_ref().map(|(rule, _)| rule.clone()),
        spec: (!is_built_in(spec)).then(|| Box::new(spec.clone())),
    };
    let (writer, header) = store.create(header)?;
    options.progress.event(&Event::Begun(&header.session, 0, header.order.len()));
    Ok((writer, Session::new(header)))
}

/// Returns whether a batch has a session of this study.
fn has_study(store: &Store, spec: &StudySpec, batch: &str) -> Result<bool, LabError> {
    let files = store.list()?.files;
    Ok(files.iter().any(|f| f.header.study == spec.name && f.header.batch() == batch))
}

/// Continues the newest unfinished session that matches, or reports why there is none. Within a batch,
/// sessions of other commands do not count.
///
/// # Errors
/// Only the files of the unfinished sessions differ, and one with the current files has finished.
fn resume(
    spec: &StudySpec,
    store: &Store,
    planned: &Planned,
    sets: &Sets,
    options: &RunOptions<'_>,
) -> Result<Option<(Writer, Session)>, LabError> {
    let Listing { mut files, errors } = store.list()?;
    for error in errors {
        options.progress.event(&Event::Note(&error.to_string()));
    }
    let in_batch =
        |header: &SessionHeader| options.batch.as_ref().is_none_or(|batch| header.batch() == batch);
    files.retain(|f| f.header.study == spec.name && in_batch(&f.header));
    let (mut ended, unfinished): (Vec<_>, Vec<_>) = files.into_iter().partition(|f| f.ended);
    let alike = |f: &&SessionFile| differs(&f.header, planned, options).is_empty();
    let mut has_other_files = false;
    for file in unfinished.iter().rev().filter(alike) {
        let name = &file.header.session;
        if !has_files(&store.read(name)?, sets, options) {
            has_other_files = true;
            continue;
        }
        let (mut writer, session) = store.reopen(name)?;
        // Another command may have finished it since the files were listed.
        if session.end.is_some() {
            return Err(already_finished(name));
        }
        if session.torn_bytes > 0 {
            let text = format!("removed a torn last line of {} bytes", session.torn_bytes);
            options.progress.event(&Event::Note(&text));
        }
        writer.note(SessionNote::RESUMED, clock::unix_ms())?;
        let (done, all) = (session.runs.len(), session.header.order.len());
        options.progress.event(&Event::Begun(name, done, all));
        return Ok(Some((writer, session)));
    }
    if has_other_files && options.files.is_some() {
        ended.retain(|f| alike(&f));
        if let Some(session) = newest_with_files(&ended, store, sets, options)? {
            return Err(already_finished(&session.header.session));
        }
    }
    // A finished session counts within a batch only, and if it differs.
    let in_question =
        |f: &&SessionFile| options.batch.is_some() && (options.files.is_some() || !alike(f));
    let newest = unfinished.last().or_else(|| ended.last().filter(in_question));
    let text = nothing_to_resume(newest, store, planned, options);
    options.progress.event(&Event::Note(&text));
    Ok(None)
}

/// Returns the error for a session that has no runs left.
fn already_finished(name: &str) -> LabError {
    LabError::Refused(format!(
        "nothing to resume: session {name} is finished (`ioloom report {name}` shows it); omit --resume to \
         measure again"
    ))
}

/// Returns why the newest session cannot be resumed.
fn nothing_to_resume(
    newest: Option<&SessionFile>,
    store: &Store,
    planned: &Planned,
    options: &RunOptions<'_>,
) -> String {
    let Some(f) = newest else {
        return "nothing to resume; starting a new session".to_owned();
    };
    let different = match differs(&f.header, planned, options).as_slice() {
        [] => format!("different files{}", files_that_change(store, options)),
        differences => format!("a different {}", differences.join(" and a different ")),
    };
    let (name, state) = (&f.header.session, if f.ended { "finished" } else { "unfinished" });
    format!("nothing to resume: the {state} session {name} has {different}; starting a new session")
}

/// Returns a note if the files of the user change with every run.
fn files_that_change(store: &Store, options: &RunOptions<'_>) -> &'static str {
    let real = |dir: &Path| std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    match &options.files {
        Some(dir) if real(store.dir()).starts_with(real(dir)) => {
            "; their directory contains the store, which grows with every run (use --store DIR to \
             resume later sessions)"
        }
        _ => "",
    }
}

/// Returns the newest session of these files whose runs used the files that are there now.
fn newest_with_files(
    files: &[SessionFile],
    store: &Store,
    sets: &Sets,
    options: &RunOptions<'_>,
) -> Result<Option<Session>, LabError> {
    for file in files.iter().rev() {
        let session = store.read(&file.header.session)?;
        if has_files(&session, sets, options) {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

/// Returns whether the runs of a session used the files that are there now.
fn has_files(session: &Session, sets: &Sets, options: &RunOptions<'_>) -> bool {
    let header = &session.header;
    session.runs.iter().all(|run| {
        let slot = header.order.get(run.key.position as usize);
        let comparison = slot.and_then(|slot| header.comparisons.get(slot.0 as usize));
        let arm = slot.zip(comparison).and_then(|(slot, of)| of.arms.get(slot.1 as usize));
        let now = comparison.zip(arm).and_then(|(of, arm)| sets.of(of, arm, options));
        now.is_none_or(|now| now.realised.hash == run.set.hash)
    })
}

/// Returns what decides how runs are made, besides the list of runs. Images and file systems in memory
/// have device numbers that change. The list of runs has a directory of the user as it was named, which
/// can be relative, so it is absolute here.
fn circumstances(options: &RunOptions<'_>) -> Vec<String> {
    let of_disk = |number: &&str| !number.starts_with("0:") && !number.starts_with("7:");
    let media = options.workspaces.iter().map(|place| {
        let medium = &place.medium;
        let disk = Some(medium.device.as_str()).filter(of_disk).unwrap_or_default();
        format!("medium {} {} {disk}", medium.name, medium.file_system).trim_end().to_owned()
    });
    let evidence = options.evidence.map(|level| format!("evidence {}", level.number()));
    let permitted = [("drop caches", options.drop_caches), ("settings", options.allow_sysctl)];
    let permitted = permitted.into_iter().filter(|(_, yes)| *yes).map(|(what, _)| what.to_owned());
    let files = options.files.as_ref().map(|dir| {
        let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
        format!("files {}", dir.display())
    });
    media.chain(evidence).chain(permitted).chain(files).collect()
}

/// Returns the differences between a session and the requested study; empty if it can be resumed.
fn differs(
    header: &SessionHeader,
    planned: &Planned,
    options: &RunOptions<'_>,
) -> Vec<&'static str> {
    let rule = options.sequential.as_ref().map(|(rule, _)| rule);
    let same = [
        ("mode", header.mode == options.mode),
        ("seed", header.seed == planned.seed),
        ("list of experiments, sets and blocks", header.spec_hash == planned.spec_hash),
        ("machine", header.machine.fingerprint == options.machine.fingerprint),
        // The fingerprint lacks the affinity and the quotas of control groups.
        ("number of usable processors", header.machine.cpus_usable == options.machine.cpus_usable),
        ("version of this program", header.version == options.version),
        ("stopping rule", header.sequential.as_ref() == rule),
        (
            "medium, directory of files, evidence level or permission to drop caches or change \
             settings",
            header.circumstances.is_empty() || header.circumstances == circumstances(options),
        ),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
}

/// Returns the session in which a study has finished, if it matches the current request. The first batch
/// that has the study counts. A resumed command over several studies does not repeat finished studies.
///
/// # Errors
/// The options specify something that does not exist, or the store or the directory of the user's files
/// cannot be read.
pub fn finished(
    spec: &StudySpec,
    subject: &dyn Subject,
    store: &Store,
    options: &RunOptions<'_>,
    batches: &[String],
) -> Result<Option<Session>, LabError> {
    let planned = plan(spec, options)?;
    let mut files = store.list()?.files;
    files.retain(|f| f.header.study == spec.name);
    let has = |batch: &&String| files.iter().any(|f| f.header.batch() == batch.as_str());
    let Some(batch) = batches.iter().find(has) else { return Ok(None) };
    files.retain(|f| {
        let here = f.ended && f.header.batch() == batch;
        here && differs(&f.header, &planned, options).is_empty()
    });
    let Some(newest) = files.last() else { return Ok(None) };
    if options.files.is_none() {
        return Ok(Some(store.read(&newest.header.session)?));
    }
    let sets = Sets::prepare(&planned.comparisons, subject.sets(), options)?;
    newest_with_files(&files, store, &sets, options)
}

/// Returns the newest session that matches the list, machine and program of this request.
fn newest_alike<'f>(
    files: &'f [SessionFile],
    planned: &Planned,
    options: &RunOptions<'_>,
) -> Option<&'f SessionFile> {
    files.iter().rev().find(|f| differs(&f.header, planned, options).is_empty())
}

/// Returns the newest session that matches the current request, if it has finished and no other
/// session can be resumed. Resuming would then start from the beginning.
///
/// # Errors
/// The options specify something that does not exist, or the store cannot be read.
pub fn ended_before(
    spec: &StudySpec,
    store: &Store,
    options: &RunOptions<'_>,
) -> Result<Option<String>, LabError> {
    let planned = plan(spec, options)?;
    let mut files = store.list()?.files;
    files.retain(|f| f.header.study == spec.name);
    let (ended, unfinished): (Vec<_>, Vec<_>) = files.into_iter().partition(|f| f.ended);
    if newest_alike(&unfinished, &planned, options).is_some() {
        return Ok(None);
    }
    Ok(newest_alike(&ended, &planned, options).map(|f| f.header.session.clone()))
}

fn time_word(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| unix_ms.to_string(), |t| t.strftime("%Y%m%dT%H%M%SZ").to_string())
}
