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
use crate::store::{Listing, STORE_SCHEMA, Session, SessionFile, SessionHeader, Store, Writer};
use crate::subject::Subject;
use ioloom_model::StudySpec;
use ioloom_sys::clock;

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
        batch: options.batch.clone(),
        claims: options.claims.clone(),
        circumstances: circumstances(options),
        sequential: options.sequential.as_ref().map(|(rule, _)| rule.clone()),
        spec: (!is_built_in(spec)).then(|| Box::new(spec.clone())),
    };
    let (writer, header) = store.create(header)?;
    options.progress.event(&Event::Begun(&header.session, 0, header.order.len()));
    Ok((writer, Session::new(header)))
}

/// Continues the newest unfinished session that matches, or reports why there is none. Within a batch,
/// sessions of other commands do not count.
fn resume(
    spec: &StudySpec,
    store: &Store,
    planned: &Planned,
    sets: &Sets,
    options: &RunOptions<'_>,
) -> Result<Option<(Writer, Session)>, LabError> {
    let Listing { files: mut unfinished, errors } = store.list()?;
    for error in errors {
        options.progress.event(&Event::Note(&error.to_string()));
    }
    let in_batch =
        |header: &SessionHeader| options.batch.as_ref().is_none_or(|batch| header.batch() == batch);
    unfinished.retain(|f| !f.ended && f.header.study == spec.name && in_batch(&f.header));
    let alike = |f: &&SessionFile| differs(&f.header, planned, options).is_empty();
    for file in unfinished.iter().rev().filter(alike) {
        let name = &file.header.session;
        if !has_files(&store.read(name)?, sets, options) {
            continue;
        }
        let (mut writer, session) = store.reopen(name)?;
        if session.torn_bytes > 0 {
            let text = format!("removed a torn last line of {} bytes", session.torn_bytes);
            options.progress.event(&Event::Note(&text));
        }
        writer.note("resumed", clock::unix_ms())?;
        let (done, all) = (session.runs.len(), session.header.order.len());
        options.progress.event(&Event::Begun(name, done, all));
        return Ok(Some((writer, session)));
    }
    let text = match unfinished.last() {
        None => "nothing to resume; starting a new session".to_owned(),
        Some(f) => {
            let different = match differs(&f.header, planned, options).as_slice() {
                [] => "different files".to_owned(),
                differences => format!("a different {}", differences.join(" and a different ")),
            };
            let name = &f.header.session;
            format!(
                "nothing to resume: the unfinished session {name} has {different}; starting a new \
                session"
            )
        }
    };
    options.progress.event(&Event::Note(&text));
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

/// Returns the session in which a study of this batch has finished, if it matches the current
/// request. A resumed command over several studies does not repeat finished studies.
///
/// # Errors
/// The options specify something that does not exist, or the store cannot be read.
pub fn finished(
    spec: &StudySpec,
    store: &Store,
    options: &RunOptions<'_>,
    batch: &str,
) -> Result<Option<Session>, LabError> {
    let planned = plan(spec, options)?;
    let found = store.list()?.files.into_iter().rev().find(|f| {
        let here = f.ended && f.header.study == spec.name && f.header.batch() == batch;
        here && differs(&f.header, &planned, options).is_empty()
    });
    Ok(found.map(|f| store.read(&f.header.session)).transpose()?)
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
