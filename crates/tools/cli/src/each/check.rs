//! `each --check`: verifies files against lines `HASH  PATH`.

use super::args::EachArgs;
use super::digest::{Line, read_line};
use super::input::Roots;
use super::job::{CHUNK_BYTES, Job};
use super::work::{EachWork, Lines};
use crate::exit::{Ended, Exit, Failure};
use crate::stderr;
use ioloom::Cancel;
use ioloom::engine::{self, RunOptions};
use ioloom_failure::{Explained, Operation, quoted};
use ioloom_model::Compute;
use ioloom_walk::PathList;
use std::io::Read;
use std::path::Path;

pub(super) fn run(args: &EachArgs, list: &Path) -> Ended {
    if !args.paths.is_empty() {
        return Err(Failure::usage("--check reads paths from the list; do not give others"));
    }
    let text = read_all(list)?;
    let separator = if args.zero { 0 } else { b'\n' };
    let mut unreadable = 0u64;
    let mut lines: Vec<Line<'_>> = Vec::new();
    for line in text.split(|b| *b == separator).filter(|l| !l.is_empty()) {
        match read_line(line) {
            Some(line) => lines.push(line),
            None => unreadable += 1,
        }
    }
    if lines.is_empty() {
        return Err(Failure::failed(format!(
            "{}: no line of the form HASH  PATH with an XXH3-64, MD5 or BLAKE3 hash",
            named(list)
        )));
    }
    let (mut files, mut wrong) = (0, 0);
    for compute in [Compute::Xxh3, Compute::Md5, Compute::Blake3] {
        let of_kind: Vec<&Line<'_>> =
            lines.iter().filter(|l| l.hex.len() == digits(&compute)).collect();
        if !of_kind.is_empty() {
            let (done, failed) = run_kind(args, compute, &of_kind)?;
            files += done;
            wrong += failed;
        }
    }
    if unreadable > 0 {
        stderr::message(&format!("{} of {} not understood", lines_of(unreadable), named(list)));
    }
    if wrong > 0 {
        stderr::message(&format!("{wrong} of {} files do not match their hash", files + wrong));
    }
    Ok(if wrong + unreadable > 0 { Exit::Failed } else { Exit::Ok })
}

/// Returns the name of the list for messages.
fn named(list: &Path) -> String {
    match list.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => quoted(list).to_string(),
    }
}

fn lines_of(count: u64) -> String {
    if count == 1 { "1 line".to_owned() } else { format!("{count} lines") }
}

fn digits(compute: &Compute) -> usize {
    match compute {
        Compute::Xxh3 => 16,
        Compute::Md5 => 32,
        _ => 64,
    }
}

fn run_kind(args: &EachArgs, compute: Compute, lines: &[&Line<'_>]) -> Result<(u64, u64), Failure> {
    let mut paths = PathList::new();
    for line in lines {
        paths.push(&line.path);
    }
    let mut plan = args.plan();
    if plan.method.is_mmap() || plan.method == ioloom_model::Method::Null {
        return Err(Failure::refused("--check needs a method that reads; choose another --method"));
    }
    plan.chunk_bytes = plan.chunk_bytes.or(Some(CHUNK_BYTES));
    let job = Job { plan, compute, exec: None };
    let expected = lines.iter().map(|l| l.hex.clone()).collect();
    let work = EachWork::new(&job, Lines::Compare { expected, quiet: args.quiet }, true);
    let stop = crate::interrupt::stop_flag();
    let options = RunOptions { cancel: Cancel::from_flag(stop), ..RunOptions::default() };
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let mut executed = match engine::run(&paths, None, plan, &options, &work) {
        Ok(executed) => executed,
        Err(ioloom::Error::Refused(reason)) => return Err(Failure::refused(reason)),
        Err(error) => return Err(Failure::failed(error)),
    };
    if executed.cancelled {
        return Err(Failure::new(Exit::Interrupted, "interrupted"));
    }
    let measured = executed.measured(1, 1);
    let outcome = work.outcome(executed.locals, measured, (Some(&paths), &Roots::default()))?;
    for error in &outcome.errors {
        stderr::message(&super::output::one_line(error));
    }
    let wrong = outcome.measured.errors;
    Ok((lines.len() as u64 - wrong, wrong))
}

fn read_all(list: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = if list.as_os_str() == "-" {
        std::io::stdin().read_to_end(&mut text).map(|_| ())
    } else {
        std::fs::read(list).map(|all| text = all)
    };
    read.map_err(|e| {
        let explained = Explained::new(Operation::Read, &e);
        Failure::failed(format!("cannot read {}: {explained}", named(list)))
    })?;
    Ok(text)
}
