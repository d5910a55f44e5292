//! Automation for this repository; `cargo xtask help` lists the commands.
//!
//! Everything longer than one command line is here rather than in shell scripts: typed, tested and
//! the same on every machine. This crate is built before anything else can be checked, so it
//! depends only on `anyhow`, `serde_json`, `rustix`, `signal-hook` and the small crates `control`,
//! `predict`, `stats` and `testbed`.

#![expect(clippy::print_stdout, reason = "printing is the purpose of this program")]

mod api;
mod cells;
mod ci;
mod crash;
mod damage;
mod debian;
mod dependencies;
mod evidence;
mod fuzz;
mod gate;
mod gnu;
mod guard;
mod package;
mod regret;
mod repo;
mod simulate;
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

  ci [--strict]    every check: packages, formatting, lints, tests, documents, tidy,
                   dependencies, viewer, release build, first command of the README,
                   crashes, instruction gate; --strict fails when a step was skipped
  tidy             the rules of ARCHITECTURE.md: arrows, cyclic files, purity, sizes,
                   words, links, documents
  ui [--build]     check the viewer; --build writes its embedded file
  gate [--bless]   instructions of `crates/test/gate` against xtask/gate.toml;
                   --bless rewrites that file
  api [--bless]    the public interface of the library against
                   crates/engines/ioloom/public-api.txt; --bless rewrites that file
  semver REVISION  changes of that interface since a tag or commit that the version does
                   not permit
  crash [N [SEED]] kill a study, the creation of a file set, a copy, a server with each of
                   its stores, and one with a PostgreSQL database N times (default: 100)
                   at moments from SEED (default: 1), and check that nothing finished is
                   lost and nothing is torn
  crash copy [N [SEED]]
                   kill copies only, of a tree and of a file, over nothing and over older
                   files; print one line of JSON per kill
  gnu --source DIR [--only cp|du] [--test NAME] [--user NAME] [--program PATH] [--ours]
                [--out DIR]
                   GNU's tests of cp and du, from an unpacked coreutils source, with the
                   system's programs and ours, as root and as nobody; --ours leaves out the
                   system's, --out stores the results
  fuzz-copy N SEED [--fs NAME,…] [--user] [--program PATH]
  fuzz-du N SEED [--fs NAME,…] [--user] [--program PATH]
                   N random cases for the system's cp or du and ours, on ext4, XFS, btrfs,
                   tmpfs, overlay and FUSE (as root, in private mounts); every third case, and
                   with --user every case, runs as a plain user
  sweep [--program PATH] [--out DIR]
                   inject an error into each call of `ioloom cp` on its files with strace, and
                   check that nothing is lost silently; rounds in which the program did not
                   start or the call was not made are counted separately; --out stores the table
  damage [N [SEED]]
                   open copies of every store with a flipped bit, cut or zeroed page, N of each
                   per store and durability (default: 200), and print how many were intact,
                   refused, or opened with less
  soak [MINUTES [PACKAGE…]]
                   repeat the tests of packages (default: those with threads, randomness
                   or kills) for MINUTES (default: 10); stop at the first failure
  simulate [design|test|build|traps|seed=N] [--csv FILE] [--auto]
                   run the controller of the automatic mode and others on the simulated machine
                   and print their losses against the best fixed window (default: design); seed=N
                   draws another set like the test, --auto leaves out the other controllers,
                   and traps prints decisions and timelines instead
  regret [--list] [--summary] [--set test|design] [--cell NAME]… [--blocks N] [--out DIR]
                   [--dir DIR] [--program PATH] [--drop-caches]
                   the time of the plan auto in the cells of comparisons/regret/cells.json,
                   divided by that of the best fixed plan of a sweep; continues where it was
                   interrupted. Limits, traps and images need root, as --drop-caches does.
                   The exit code is 1 if a cell failed or could not be measured
  predict-cells [--summary] [--cell NAME]… [--runs N] [--out DIR] [--dir DIR]
                   [--program PATH] [--delayfs PATH]
                   calibrate, predict the cells of results/predict-cells, measure them, and print
                   the score next to that of the nearest probe; needs root; continues where it
                   was interrupted
  licences         list the licence of every dependency
  package [--check]
                   package the crates to publish, unpack them outside the workspace and build
                   them there; --check only does a dry run of the publication
  deb [PROFILE]    build a Debian package in target/debian (default profile: dist)
  help             print this text
";

fn main() -> ExitCode {
    if let Some(code) = gnu::run_if_called() {
        return code;
    }
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
    match words.as_slice() {
        ["fuzz-copy", rest @ ..] => return fuzz::run(&repo, fuzz::What::Copy, rest),
        ["predict-cells", rest @ ..] => return cells::run(&repo, rest),
        ["fuzz-du", rest @ ..] => return fuzz::run(&repo, fuzz::What::Du, rest),
        _ => {}
    }
    let fine = match words.as_slice() {
        ["ci"] => ci::run(&repo, false)?,
        ["ci", "--strict"] => ci::run(&repo, true)?,
        ["tidy"] => tidy::run(&repo)?,
        ["ui"] => ui::run(&repo, false)?.print_alone("ui"),
        ["ui", "--build"] => ui::run(&repo, true)?.print_alone("ui"),
        ["gate"] => gate::run(&repo, false)?.print_alone("gate"),
        ["gate", "--bless"] => gate::run(&repo, true)?.print_alone("gate"),
        ["api"] => api::run(&repo, false)?.print_alone("api"),
        ["api", "--bless"] => api::run(&repo, true)?.print_alone("api"),
        ["semver", since] => api::semver(&repo, since)?.print_alone("semver"),
        ["crash", rest @ ..] => {
            let (what, rest) = match rest {
                ["copy", rest @ ..] => (crash::What::Copies, rest),
                rest => (crash::What::Each, rest),
            };
            let [rounds, seed] = match rest {
                [] => [u64::from(crash::ROUNDS), 1],
                [rounds] => [number(rounds)?, 1],
                [rounds, seed] => [number(rounds)?, number(seed)?],
                _ => bail!("usage: crash [copy] [ROUNDS [SEED]]"),
            };
            let rounds = u32::try_from(rounds).unwrap_or(u32::MAX);
            crash::run(&repo, what, rounds, seed)?.print_alone("crash")
        }
        ["gnu", rest @ ..] => gnu::run(&repo, rest)?.print_alone("gnu"),
        ["sweep", rest @ ..] => fuzz::sweep::run(&repo, rest)?.print_alone("sweep"),
        ["damage"] => damage::run(&repo, damage::CASES, 1)?.print_alone("damage"),
        ["damage", cases] => damage::run(&repo, number(cases)?, 1)?.print_alone("damage"),
        ["damage", cases, seed] => {
            damage::run(&repo, number(cases)?, number(seed)?)?.print_alone("damage")
        }
        ["soak"] => soak::run(&repo, soak::MINUTES, &[])?.print_alone("soak"),
        ["soak", minutes, named @ ..] => {
            soak::run(&repo, number(minutes)?, named)?.print_alone("soak")
        }
        ["regret", rest @ ..] => return regret::run(&repo, rest),
        ["simulate", rest @ ..] => simulate::run(rest)?,
        ["package"] => package::build(&repo)?.print_alone("package"),
        ["package", "--check"] => package::dry_run(&repo)?.print_alone("package"),
        ["deb"] => debian::build(&repo, "dist")?.print_alone("deb"),
        ["deb", profile] => debian::build(&repo, profile)?.print_alone("deb"),
        ["licences"] => dependencies::list(&repo)?,
        _ => {
            print!("{HELP}");
            bail!("'{}' is not a command", words.join(" "));
        }
    };
    Ok(if fine { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn number(word: &str) -> anyhow::Result<u64> {
    word.parse().map_err(|_| anyhow::anyhow!("'{word}' is not an integer"))
}
