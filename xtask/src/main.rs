//! Automation of this repository; `cargo xtask help` lists the commands.
//!
//! Everything that is more than one command line lives here and not in shell scripts, so that it
//! is typed, tested and the same on every machine. Only `anyhow`, `serde_json` and `rustix` are
//! used: this crate is built before anything else can be checked, and must build fast.

#![expect(clippy::print_stdout, reason = "a program whose only product is what it prints")]

mod ci;
mod gate;
mod guard;
mod licence;
mod repo;
mod smoke;
mod steps;
mod tidy;
mod tools;
mod ui;

use anyhow::bail;
use repo::Repo;
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  ci [--strict]    everything that must hold: packages, formatting, lints, tests, documents,
                   tidy, viewer, release build, first command of the README, instruction gate;
                   --strict fails when a step was skipped
  tidy             the rules of ARCHITECTURE.md, sizes, words, links, licences
  ui [--build]     check the viewer; --build writes its one embedded file anew
  gate [--bless]   instructions of the example `gate` against xtask/gate.toml;
                   --bless rewrites that file
  licences         the licence of every dependency
  help             this text
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "guard") {
        return guard::child(&args[1..]);
    }
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if matches!(words.as_slice(), [] | ["help" | "--help" | "-h"]) {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let repo = Repo::find()?;
    let fine = match words.as_slice() {
        ["ci"] => ci::run(&repo, false)?,
        ["ci", "--strict"] => ci::run(&repo, true)?,
        ["tidy"] => tidy::run(&repo)?,
        ["ui"] => ui::run(&repo, false)?.print_alone("ui"),
        ["ui", "--build"] => ui::run(&repo, true)?.print_alone("ui"),
        ["gate"] => gate::run(&repo, false)?.print_alone("gate"),
        ["gate", "--bless"] => gate::run(&repo, true)?.print_alone("gate"),
        ["licences"] => licence::list(&repo)?,
        _ => {
            print!("{HELP}");
            bail!("'{}' is not a command", words.join(" "));
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
