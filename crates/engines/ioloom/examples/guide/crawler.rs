//! Follows `#include "…"` from a first file: the result of each file adds paths to the input.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

/// The files that a source includes. Each has one path: the joined paths of files that include one
/// another as `../a/b.h` would grow with every step.
fn includes(file: &ioloom::File<'_>) -> Vec<PathBuf> {
    let here = file.path().parent().unwrap_or(Path::new(""));
    let text = String::from_utf8_lossy(file.bytes());
    let names = text.lines().filter_map(|line| line.strip_prefix("#include \"")?.strip_suffix('"'));
    names.map(|name| canonical(here.join(name))).collect()
}

fn canonical(path: PathBuf) -> PathBuf {
    path.canonicalize().unwrap_or(path)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let first = std::env::args_os().nth(1).ok_or("usage: crawler FILE")?;
    let first = canonical(first.into());
    let (send, paths) = channel();
    send.send(first.clone())?;
    let mut seen = HashSet::from([first]);
    // The input is a stream, so each file is read as soon as its path has been sent.
    let run = ioloom::files(paths).map(includes).scope(|results| {
        let mut pending = 1;
        let mut missing = Vec::new();
        while pending > 0 {
            let Some(result) = results.next() else { break };
            pending -= 1;
            match result {
                Err(error) => missing.push(error),
                Ok(found) => {
                    for path in found {
                        if seen.insert(path.clone()) && send.send(path).is_ok() {
                            pending += 1;
                        }
                    }
                }
            }
        }
        missing
    })?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{} files, {} missing", seen.len(), run.value.len())?;
    for error in run.value {
        writeln!(out, "{error}")?;
    }
    Ok(())
}
