//! End-to-end tests of `ioloom cp`: kills, power failures and command lines of users.

#![allow(clippy::print_stdout, reason = "skipped tests print why")]

mod append_only;
mod counters;
mod gnu;
mod killed;
mod memory;
mod prompt;
mod scripts;
mod shards;
mod together;
mod typed;
mod views;
mod without_proc;

use std::path::Path;
use std::process::{Command, Output};

/// The program under test.
fn ioloom() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    command.env_remove("IOLOOM_FAULT").env("COLUMNS", "80");
    command
}

fn cp(dir: &Path, args: &[&str]) -> Output {
    ioloom().current_dir(dir).arg("cp").args(args).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn place() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut all: Vec<_> =
        entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}
