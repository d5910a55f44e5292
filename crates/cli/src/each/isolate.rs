//! Mapped plans in a child process.

use super::{EachArgs, input};
use crate::exit::{Ended, Exit, Failure};
use crate::tell;
use ioloom_sys::map::BUS_EXIT_CODE;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Runs this very command line in a child, and turns its end by SIGBUS into one error.
pub(super) fn run(args: &EachArgs) -> Ended {
    let program = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
    // The child gets the interrupt of the terminal itself and drains; the parent waits for it.
    let _stop = super::stop_flag();
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--mapped-here")
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot start a child process: {e}")))?;
    let mut faulted = None;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            match line.strip_prefix(b"ioloom-sigbus ") {
                Some(index) => {
                    faulted = String::from_utf8_lossy(index).trim().parse::<usize>().ok();
                }
                None => {
                    let mut err = std::io::stderr();
                    let _ = err.write_all(&line).and_then(|()| err.write_all(b"\n"));
                }
            }
        }
    }
    let status = child
        .wait()
        .map_err(|e| Failure::failed(format!("cannot wait for the child process: {e}")))?;
    match status.code() {
        Some(0) => Ok(Exit::Ok),
        Some(BUS_EXIT_CODE) => Err(Failure::failed(cut_short(args, faulted))),
        Some(1) => Ok(Exit::Failed),
        Some(2) => Ok(Exit::Usage),
        Some(3) => Ok(Exit::Refused),
        Some(130) => Ok(Exit::Interrupted),
        _ => {
            tell(&format!("the child process of the mapped plan ended with {status}"));
            Ok(Exit::Failed)
        }
    }
}

/// The one error of a file that was cut while it was mapped.
fn cut_short(args: &EachArgs, index: Option<usize>) -> String {
    let listed = (args.paths.as_slice() != [std::path::PathBuf::from("-")])
        .then(|| input::read(args).ok().and_then(|i| i.files))
        .flatten();
    let name = match (index, listed) {
        (Some(index), Some(list)) if index < list.len() => list.path(index).display().to_string(),
        (Some(index), _) => format!("file {} of the list", index + 1),
        (None, _) => "a file".to_owned(),
    };
    format!(
        "cannot map {name}: it was cut short while it was read; nothing was lost, run again with a \
         method that reads"
    )
}
