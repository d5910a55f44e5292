//! The session of a study: a new one, one that goes on, or one that came to its end before.
//!
//! A session goes on only with the list, the machine and the program that it was begun with: runs of
//! another list would be no runs of this one, and those of another program would be compared with what
//! they are not.

use super::options::RunOptions;
use super::plan::{Planned, plan};
use super::progress::Event;
use crate::error::LabError;
use crate::spec::is_built_in;
use crate::store::{STORE_SCHEMA, Session, SessionFile, SessionHeader, Store, Writer};
use crate::subject::Subject;
use ioloom_model::StudySpec;
use ioloom_sys::clock;

/// Finds the session to resume or begins a new one.
pub(super) fn begin(
    spec: &StudySpec,
    subject: &dyn Subject,
    store: &Store,
    planned: &Planned,
    options: &RunOptions<'_>,
) -> Result<(Writer, Session), LabError> {
    if options.resume {
        let mut unfinished: Vec<_> = store.files()?;
        unfinished.retain(|f| !f.ended && f.header.study == spec.name);
        if let Some(file) = newest_alike(&unfinished, planned, options) {
            let (mut writer, session) = store.reopen(&file.header.session)?;
            if session.torn_bytes > 0 {
                let text = format!("a torn last line of {} bytes was cut off", session.torn_bytes);
                options.progress.event(&Event::Note(&text));
            }
            writer.note("resumed", clock::unix_ms())?;
            let (done, all) = (session.runs.len(), session.header.order.len());
            options.progress.event(&Event::Begun(&session.header.session, done, all));
            return Ok((writer, session));
        }
        let text = match unfinished.last() {
            None => "nothing to resume; a new session begins".to_owned(),
            Some(f) => format!(
                "nothing to resume: the unfinished session {} has another {}; a new session begins",
                f.header.session,
                differs(&f.header, planned, options).join(", another ")
            ),
        };
        options.progress.event(&Event::Note(&text));
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
        spec: (!is_built_in(spec)).then(|| Box::new(spec.clone())),
    };
    let (writer, header) = store.create(header)?;
    options.progress.event(&Event::Begun(&header.session, 0, header.order.len()));
    Ok((writer, Session::new(header)))
}

/// What keeps a session from being gone on with: runs of another list, machine or program are no
/// runs of this one.
fn differs(
    header: &SessionHeader,
    planned: &Planned,
    options: &RunOptions<'_>,
) -> Vec<&'static str> {
    let same = [
        ("mode", header.mode == options.mode),
        ("seed", header.seed == planned.seed),
        ("list of experiments, sets and blocks", header.spec_hash == planned.spec_hash),
        ("machine", header.machine.fingerprint == options.machine.fingerprint),
        ("version of this program", header.version == options.version),
    ];
    same.into_iter().filter(|(_, same)| !same).map(|(what, _)| what).collect()
}

/// The session in which a study came to its end in a batch, if it was the study as it is asked for
/// now. A command over several studies that goes on does not repeat those.
///
/// # Errors
/// The options name what is not there, or the store cannot be read.
pub fn finished(
    spec: &StudySpec,
    store: &Store,
    options: &RunOptions<'_>,
    batch: &str,
) -> Result<Option<Session>, LabError> {
    let planned = plan(spec, options)?;
    let found = store.files()?.into_iter().rev().find(|f| {
        let here = f.ended && f.header.study == spec.name && f.header.batch() == batch;
        here && differs(&f.header, &planned, options).is_empty()
    });
    Ok(found.map(|f| store.read(&f.header.session)).transpose()?)
}

/// The newest of these sessions that is of the list, machine and program asked for now.
fn newest_alike<'f>(
    files: &'f [SessionFile],
    planned: &Planned,
    options: &RunOptions<'_>,
) -> Option<&'f SessionFile> {
    files.iter().rev().find(|f| differs(&f.header, planned, options).is_empty())
}

/// The newest session of a study as it is asked for now, if it came to its end and no other is left
/// to go on with: whoever asks to go on would begin anew.
///
/// # Errors
/// The options name what is not there, or the store cannot be read.
pub fn ended_before(
    spec: &StudySpec,
    store: &Store,
    options: &RunOptions<'_>,
) -> Result<Option<String>, LabError> {
    let planned = plan(spec, options)?;
    let mut files = store.files()?;
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
