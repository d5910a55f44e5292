//! Automation of this repository; `cargo xtask help` lists the commands.
//!
//! Everything that is more than one command line lives here and not in shell scripts, so that it
//! is typed, tested and the same on every machine. Only `anyhow`, `serde_json`, `rustix` and the small
//! crate `testbed` are used: this crate is built before anything else can be checked, and must build
//! fast.

#![expect(clippy::print_stdout, reason = "a program whose only product is what it prints")]

mod ci;
mod crash;
mod gate;
mod guard;
mod licence;
mod repo;
mod smoke;
mod soak;
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
  crash [N [SEED]] kills a study, the making of a file set, a copy, a server with each of its stores,
                   and one before a PostgreSQL database or that N times (100) at moments from the
                   seed (1), and looks that nothing finished is lost and nothing is torn
  crash copy [N [SEED]]
                   kills copies alone, of a tree and of a file, over nothing and over old ones; a line
                   of JSON tells what each kill left
  soak [MINUTES [PACKAGE…]]
                   repeats the tests of packages (those with threads, randomness or kills) for so
                   many minutes (10); the first failure ends it
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
        ["crash", rest @ ..] => {
            let (what, rest) = match rest {
                ["copy", rest @ ..] => (crash::What::Copies, rest),
                rest => (crash::What::Each, rest),
            };
            let [rounds, seed] = match rest {
                [] => [u64::from(crash::ROUNDS), 1],
                [rounds] => [number(rounds)?, 1],
                [rounds, seed] => [number(rounds)?, number(seed)?],
                _ => bail!("crash takes the number of rounds and a seed"),
            };
            let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
            crash::run(&repo, what, rounds, seed)?.print_alone("crash")
        }
        ["soak"] => soak::run(&repo, soak::MINUTES, &[])?.print_alone("soak"),
        ["soak", minutes, named @ ..] => {
            soak::run(&repo, number(minutes)?, named)?.print_alone("soak")
        }
        ["licences"] => licence::list(&repo)?,
        _ => {
            print!("{HELP}");
            bail!("'{}' is not a command", words.join(" "));
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn number(word: &str) -> anyhow::Result<u64> {
    word.parse().map_err(|_| anyhow::anyhow!("'{word}' is no whole number"))
}
