//! Walks trees and prints the totals, with as little code around the walker as possible.
//!
//! `walk [--threads N|auto] [--method METHOD] [--follow] ROOT…` prints one line: entries,
//! directories, apparent and disk bytes, threads, seconds, and the reason for the thread count. A
//! file with several hard links is counted once for each.

use ioloom_walk::{Control, DirRef, Fields, Follow, Found, Method, NewDir, Threads, Visitor, Walk};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

/// The totals of one thread.
#[derive(Default)]
struct Sums {
    bytes: u64,
    disk_bytes: u64,
}

impl Visitor for Sums {
    type Dir = ();

    fn enter(&mut self, dir: &NewDir<'_, ()>) -> Option<()> {
        if let Some(meta) = dir.meta {
            self.bytes += meta.bytes;
            self.disk_bytes += meta.disk_bytes();
        }
        Some(())
    }

    #[inline]
    fn entry(&mut self, _dir: DirRef<'_, ()>, found: &Found<'_>) -> Control {
        if let Some(meta) = found.meta {
            self.bytes += meta.bytes;
            self.disk_bytes += meta.disk_bytes();
        }
        Control::Continue
    }
}

fn run() -> Result<bool, Box<dyn std::error::Error>> {
    let mut walk = Walk { fields: Fields::BYTES | Fields::DISK | Fields::LINKS, ..Walk::default() };
    let mut roots = Vec::new();
    let mut arguments = std::env::args_os().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next().and_then(|value| value.into_string().ok());
            value.ok_or("this flag requires a value")
        };
        match argument.to_str() {
            Some("--threads") => walk.threads = value()?.parse::<Threads>()?,
            Some("--method") => walk.method = value()?.parse::<Method>()?,
            Some("--follow") => walk.follow = Follow::Always,
            _ => roots.push(PathBuf::from(argument)),
        }
    }
    let start = std::time::Instant::now();
    let (sums, report) = walk.run(&roots, |_| Sums::default())?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes: u64 = sums.iter().map(|sums| sums.bytes).sum();
    let disk_bytes: u64 = sums.iter().map(|sums| sums.disk_bytes).sum();
    let mut err = std::io::stderr();
    for error in &report.errors {
        writeln!(err, "{error}")?;
    }
    writeln!(
        std::io::stdout(),
        "entries {} directories {} bytes {bytes} disk_bytes {disk_bytes} threads {} \
         ring_workers {} seconds {seconds:.4} ({})",
        report.entries,
        report.directories,
        report.threads,
        report.ring_workers.unwrap_or(0),
        report.threads_why,
    )?;
    Ok(report.errors_count == 0)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "walk: {error}");
            ExitCode::from(2)
        }
    }
}
