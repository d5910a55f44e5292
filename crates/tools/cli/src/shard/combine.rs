//! Combines the results of all files in the order of the plan.

use crate::each::digest::Hashes;
use crate::each::input::Roots;
use crate::each::line::{Form, write_line};
use crate::each::output::one_line;
use crate::each::work::json_line;
use crate::exit::Failure;
use crate::sharding::{failure, place};
use crate::{out, stderr};
use ioloom_model::{Compute, Hash};
use ioloom_shard::census::Census;
use ioloom_shard::part;
use ioloom_shard::plan::Plan;
use ioloom_shard::record::{self, Record};
use ioloom_walk::PathList;
use serde_json::json;
use std::path::Path;

/// Bytes of lines that are written at once.
const BUFFER: usize = 64 << 10;

/// What is printed for each file.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lines {
    /// Nothing.
    None,
    /// The line of a checksum program.
    Text(Form, Hash),
    /// A JSON object.
    Json,
}

/// The results of all files.
#[derive(Debug, Default)]
pub(super) struct Combined {
    /// The digest of one `each`, if its work gives one.
    pub(super) digest: Option<String>,
    /// Files that failed because they do not exist.
    pub(super) gone: u64,
    /// The messages of failed files, sorted.
    pub(super) errors: Vec<String>,
}

/// Returns the hash that the work of the parts computes.
pub(super) fn hash_of(census: &Census) -> Option<Hash> {
    let work = census.work.as_ref()?;
    work.options.get("compute")?.parse::<Compute>().ok()?.hash()
}

/// Reads all parts of a complete census. Prints lines of files, and with `digest` computes the digest.
pub(super) fn combine(
    plan: &Plan,
    census: &Census,
    lines: Lines,
    digest: bool,
) -> Result<Combined, Failure> {
    let mut all = Combined { errors: plan.header.errors.clone(), ..Combined::default() };
    // As in `each`, commands and runs that hash nothing have no digest.
    let work = census.work.as_ref().map(|work| &work.options);
    let processes_all = |compute: &String| !matches!(compute.as_str(), "none" | "touch");
    let hashes_all = work.is_some_and(|options| {
        options.get("compute").is_some_and(processes_all) && !options.contains_key("method")
    });
    let mut hashes = Some(Hashes::default()).filter(|_| digest && hashes_all);
    let (mut text, mut unread) = (Vec::new(), false);
    for (entry, complete) in plan.entries().zip(&census.parts) {
        let Some(complete) = complete else { continue };
        let changed = |why: &str| {
            let path = place(&complete.path);
            Failure::failed(format!("cannot use {path}: {why}; remove it and run its shard again"))
        };
        let names = plan.names(&entry).map_err(failure)?;
        let part = part::read(&complete.path).map_err(failure)?;
        if part.checksum != complete.checksum {
            return Err(changed("it changed during the merge"));
        }
        let records = record::decode(&part.body).unwrap_or_default();
        let failed = records.iter().filter(|r| matches!(r, Record::Failed { .. })).count() as u64;
        let found = &part.header.found;
        let counted = (found.files, found.errors);
        if records.len() != names.len() || counted != (records.len() as u64 - failed, failed) {
            return Err(changed("its results are not those of its files"));
        }
        for (name, record) in names.iter().zip(records) {
            if !unread {
                write(&mut text, lines, name, &record);
            }
            match record {
                Record::Done { xxh3: Some(xxh3), .. } => {
                    hashes.iter_mut().for_each(|hashes| hashes.push(xxh3, name));
                }
                Record::Done { xxh3: None, .. } => hashes = None,
                Record::Failed { gone, message } => {
                    all.gone += u64::from(gone);
                    if !matches!(lines, Lines::None) {
                        stderr::message(&one_line(&message));
                    }
                    all.errors.push(message);
                }
            }
            if text.len() >= BUFFER {
                print(&mut text, &mut unread)?;
            }
        }
    }
    print(&mut text, &mut unread)?;
    all.errors.sort();
    let roots = Roots::new(plan.header.tree.as_ref().map(|tree| tree.path().to_owned()));
    all.digest = hashes.map(|hashes| hashes.digest(&PathList::new(), |path| roots.shown(path)));
    Ok(all)
}

/// Prints lines, unless the reader has closed the pipe: the results after that are still combined, for the exit code.
fn print(text: &mut Vec<u8>, unread: &mut bool) -> Result<(), Failure> {
    if !*unread {
        match out::print_bytes(text) {
            Err(failure) if failure.is_quiet() => *unread = true,
            printed => printed?,
        }
    }
    text.clear();
    Ok(())
}

/// Writes the line of a file.
fn write(text: &mut Vec<u8>, lines: Lines, name: &[u8], record: &Record) {
    use std::os::unix::ffi::OsStrExt;
    let path = Path::new(std::ffi::OsStr::from_bytes(name));
    match (lines, record) {
        (Lines::None, _) | (Lines::Text(..), Record::Failed { .. }) => {}
        (Lines::Text(form, hash), Record::Done { hash: hex, .. }) => {
            write_line(text, form, hash, hex.as_deref().unwrap_or_default(), name);
        }
        (Lines::Json, Record::Done { bytes, hash, .. }) => {
            json_line(text, path, &json!({"bytes": bytes, "hash": hash}));
        }
        (Lines::Json, Record::Failed { message, .. }) => {
            json_line(text, path, &json!({"error": message}));
        }
    }
}
