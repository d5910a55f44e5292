//! `cargo xtask ci`: runs every check of the repository. Some builds run in the background of steps that
//! leave processors idle; everything else runs one after another.
//!
//! A failed step does not stop later ones, so one run reports all problems.

use crate::guard::{self, Ended, Job};
use crate::repo::Repo;
use crate::smoke::{self, User};
use crate::steps::{Outcome, Steps};
use crate::{api, crash, dependencies, evidence, gate, package, tidy, tools, ui};
use std::path::Path;

/// Crates that only the exchange needs.
const HEAVY: [&str; 6] = ["rustls", "redb", "fjall", "tokio", "tokio-postgres", "ioloom-serve"];

/// Maximum number of failed tests to retry; more failures are not random. The builds in the
/// background write to the disk and evict pages, which some tests observe.
const UNSTEADY_MAX: usize = 5;

/// Features that are off by default, which no other step compiles. The tests of the workspace run with
/// them, so that their dependencies compile once; all other steps check the program without them.
const OPTIONAL: &str = "ioloom-objects/s3,ioloom-cli/objects,ioloom-queue/nats,ioloom-cli/queue";

/// Runs all steps. Returns false if a step failed or, under `strict`, was skipped.
pub(crate) fn run(repo: &Repo, strict: bool) -> anyhow::Result<bool> {
    let mut steps = Steps::default();
    steps.take("packages", || packages(repo));
    steps.take("fetch", || cargo(repo, "fetch --locked", 600));
    // Two builds that other steps need later use the time in which tests and single crates leave
    // processors idle.
    let cargo_deny = dependencies::install(repo)?;
    // It gets what the steps before its result leave, so its limit is that of all of them.
    let release = cargo_job(repo, gate::BUILD, 7200).in_background();
    steps.take("format", || cargo(repo, "fmt --all --check", 120));
    steps.take("lints", || {
        cargo(repo, "clippy --locked --workspace --all-targets -- -D warnings", 900)
    });
    steps.take("without defaults", || without_defaults(repo));
    steps.take("tests", || tests(repo));
    steps.take("tidy", || Ok(tidy::outcome(&tidy::check(repo)?)));
    steps.take("findings", || evidence::findings(repo));
    steps.take("dependencies", || dependencies::check(repo, cargo_deny));
    steps.take("advisories", || dependencies::advisories(repo));
    steps.take("ui", || ui::run(repo, false));
    steps.take("release", || Ok(judge(&release.join()?)));
    let others = std::thread::scope(|scope| {
        let others = scope.spawn(|| guard::in_background(|| builds(repo)));
        runs(repo, &mut steps);
        others.join().map_err(|_| anyhow::anyhow!("a background step panicked"))
    })?;
    steps.append(others);
    steps.take("gate", || gate::run(repo, false));
    print!("{}", steps.summary());
    Ok(steps.fine(strict))
}

/// Builds that nothing else needs. They use the processors that the studies leave idle.
fn builds(repo: &Repo) -> Steps {
    let mut steps = Steps::default();
    steps.take("guide", || guide(repo));
    steps.take("comparisons", || comparisons(repo));
    steps.take("interleavings", || interleavings(repo));
    steps.take("documents", || documents(repo));
    steps.take("public interface", || api::run(repo, false));
    steps.take("publication", || package::dry_run(repo));
    steps.take("oldest rustc", || package::oldest_compiler(repo));
    steps
}

/// Runs the release build as users do. These runs must succeed; their speed is not judged.
fn runs(repo: &Repo, steps: &mut Steps) {
    let built = steps.passed("release");
    let with_build = |run: &dyn Fn(&Path) -> anyhow::Result<Outcome>| {
        if !built {
            return Ok(Outcome::Skipped("no release build".to_owned()));
        }
        run(&repo.target_dir()?.join("release/ioloom"))
    };
    for (name, user) in [("study", User::Current), ("study, unprivileged", User::Unprivileged)] {
        steps.take(name, || with_build(&|program| smoke::run(repo, program, user)));
    }
    steps.take("verdicts", || with_build(&|program| evidence::verdicts(repo, program)));
    steps.take("crash", || with_build(&|program| crash::crash(program, crash::ROUNDS_SHORT, 1)));
}

/// Tries once to install missing packages if this user is permitted to, and lists the rest.
fn packages(repo: &Repo) -> anyhow::Result<Outcome> {
    let missing = tools::missing();
    if missing.is_empty() {
        return Ok(Outcome::Passed("all tools are installed".to_owned()));
    }
    let mut names: Vec<&str> = missing.iter().map(|p| p.package).collect();
    names.dedup();
    let may = rustix::process::geteuid().is_root() && tools::find("apt-get").is_some();
    if may {
        let apt = |args: &[&str], limit_s: u64| {
            Job::new("apt-get", args, &repo.root, limit_s)
                .env("DEBIAN_FRONTEND", "noninteractive")
                .run()
        };
        apt(&["update"], 180)?;
        let install = [&["install", "-y", "--no-install-recommends"], names.as_slice()].concat();
        apt(&install, 600)?;
        // One name that a release does not have fails the whole call.
        let mut left: Vec<&str> = tools::missing().iter().map(|p| p.package).collect();
        left.dedup();
        for name in left {
            apt(&["install", "-y", "--no-install-recommends", name], 300)?;
        }
    } else {
        println!("not root, or no apt-get; run: apt-get install {}", names.join(" "));
    }
    let missing = tools::missing();
    for tool in &missing {
        println!(
            "missing: {} (package {}), needed for {}",
            tool.program, tool.package, tool.needed_for
        );
    }
    Ok(if missing.is_empty() {
        Outcome::Passed(format!("installed {}", names.join(" ")))
    } else {
        let names: Vec<&str> = missing.iter().map(|p| p.package).collect();
        Outcome::Skipped(format!("not installed: {}", names.join(" ")))
    })
}

fn cargo(repo: &Repo, line: &str, limit_s: u64) -> anyhow::Result<Outcome> {
    Ok(judge(&cargo_job(repo, line, limit_s).run()?))
}

fn cargo_job(repo: &Repo, line: &str, limit_s: u64) -> Job {
    let args: Vec<&str> = line.split(' ').collect();
    Job::new("cargo", &args, &repo.root, limit_s)
}

fn judge(ended: &Ended) -> Outcome {
    if ended.fine() { Outcome::Passed(String::new()) } else { Outcome::Failed(ended.word()) }
}

/// Checks the build without default features: without the exchange, and with only the public interface
/// of the library, because nothing else in this build enables its feature `lab`. Then checks the walker
/// without inode tables. No other step compiles their refusals. Heavy dependencies must not return to
/// that build.
fn without_defaults(repo: &Repo) -> anyhow::Result<Outcome> {
    let args = ["clippy", "--locked", "-p", "ioloom-cli", "--no-default-features"];
    let args = [&args[..], &["--", "-D", "warnings"]].concat();
    let ended = Job::new("cargo", &args, &repo.root, 600).run()?;
    if !ended.fine() {
        return Ok(Outcome::Failed(ended.word()));
    }
    let tree = ["tree", "--locked", "-p", "ioloom-cli", "--no-default-features", "-e", "normal"];
    let tree = guard::ask("cargo", &[&tree[..], &["--prefix", "none"]].concat(), &repo.root)?;
    let features = ["tree", "--locked", "-p", "ioloom-cli", "--no-default-features"];
    let features = [&features[..], &["-e", "normal,features", "-i", "ioloom"]].concat();
    if guard::ask("cargo", &features, &repo.root)?.contains("ioloom feature \"lab\"") {
        return Ok(Outcome::Failed("the tools enable the feature 'lab' of ioloom".to_owned()));
    }
    let heavy: Vec<&str> = HEAVY.into_iter().filter(|name| has_crate(&tree, name)).collect();
    if !heavy.is_empty() {
        return Ok(Outcome::Failed(format!("the tools depend on {}", heavy.join(", "))));
    }
    cargo(repo, "test --locked -p ioloom-walk --lib", 600)
}

/// Reports whether the output of `cargo tree --prefix none` lists a crate.
fn has_crate(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

/// Runs all tests. Retries up to [`UNSTEADY_MAX`] failed tests individually: most tests that fail
/// observe shared machine state (page cache, devices, counters), where a `sync` by another process
/// can make a correct program fail. The summary lists a test that passes on retry as unsteady; a
/// test that fails again is a failure. Nothing is retried if a test program aborted.
fn tests(repo: &Repo) -> anyhow::Result<Outcome> {
    let args = ["test", "--locked", "--workspace", "--features", OPTIONAL, "--no-fail-fast"];
    let ended = Job::new("cargo", &args, &repo.root, 2000).run()?;
    if ended.fine() || !can_retry(&ended) {
        return Ok(judge_tests(&ended));
    }
    let failed = &ended.tests.failed;
    println!("retrying individually: {}", failed.join(", "));
    let mut passed = Vec::new();
    for name in failed {
        // Use the whole workspace, which is already compiled; a single package would not be.
        let args = [&args[..], &["--", "--exact", name]].concat();
        let again = Job::new("cargo", &args, &repo.root, 600).run()?;
        if again.fine() && again.tests.passed > 0 {
            passed.push(name.as_str());
        }
    }
    Ok(if failed.iter().all(|name| passed.contains(&name.as_str())) {
        let all = ended.tests.passed as usize + failed.len();
        Outcome::Passed(format!("{all} tests, unsteady: {}", failed.join(", ")))
    } else {
        judge_tests(&ended)
    })
}

/// Returns whether the failed tests with names, and few of them, are all that failed.
fn can_retry(ended: &Ended) -> bool {
    let is_few = (1..=UNSTEADY_MAX).contains(&ended.tests.failed.len());
    ended.killed.is_none() && is_few && ended.tests.names_all_failures()
}

/// Downloads the dependencies of a workspace outside the main one. Returns an outcome if this failed:
/// skipped if the registry is unreachable.
fn fetch(repo: &Repo, manifest: &str) -> anyhow::Result<Option<Outcome>> {
    let args = ["fetch", "--locked", "--manifest-path", manifest];
    Ok(judge_fetch(&Job::new("cargo", &args, &repo.root, 600).run()?))
}

fn judge_fetch(ended: &Ended) -> Option<Outcome> {
    if ended.fine() {
        return None;
    }
    let lines = ended.lines.iter().map(String::as_str);
    Some(package::unreachable(lines).unwrap_or_else(|| judge(ended)))
}

/// Runs the programs of the library's guide. They are outside the workspace, so they compile as a
/// user's would: with the default features of the library and nothing else of this repository.
fn guide(repo: &Repo) -> anyhow::Result<Outcome> {
    if let Some(outcome) = fetch(repo, "guide/Cargo.toml")? {
        return Ok(outcome);
    }
    let args = ["test", "--locked", "--manifest-path", "guide/Cargo.toml"];
    let ended = Job::new("cargo", &args, &repo.root, 900)
        .env("CARGO_TARGET_DIR", repo.target_dir()?.join("guide").to_string_lossy())
        .run()?;
    Ok(judge_tests(&ended))
}

/// Checks that the comparisons with peers compile. They are outside the workspace, which keeps the
/// peers' dependencies out of the product.
fn comparisons(repo: &Repo) -> anyhow::Result<Outcome> {
    if let Some(outcome) = fetch(repo, "comparisons/Cargo.toml")? {
        return Ok(outcome);
    }
    cargo(
        repo,
        "check --locked --workspace --all-targets --manifest-path comparisons/Cargo.toml",
        900,
    )
}

/// Runs the loom tests of shared state under every interleaving. They need different compiler
/// flags, so both crates build in a separate target directory.
fn interleavings(repo: &Repo) -> anyhow::Result<Outcome> {
    let mut passed = 0;
    for which in [["ioloom-budget", "--test"], ["ioloom-walk", "--lib"]] {
        let args = ["test", "--locked", "--release", "--package"];
        let args = [&args, which.as_slice(), &["interleavings"]].concat();
        let ended = Job::new("cargo", &args, &repo.root, 900)
            .env("RUSTFLAGS", "--cfg loom")
            .env("CARGO_TARGET_DIR", repo.target_dir()?.join("loom").to_string_lossy())
            .run()?;
        match judge_tests(&ended) {
            Outcome::Passed(_) => passed += ended.tests.passed,
            other => return Ok(other),
        }
    }
    Ok(Outcome::Passed(format!("{passed} tests")))
}

fn judge_tests(ended: &Ended) -> Outcome {
    let passed = ended.tests.passed;
    if ended.fine() && passed > 0 {
        return Outcome::Passed(format!("{passed} tests"));
    }
    let aborted = ended.tests.aborted().into_iter().map(|name| format!("no result: {name}"));
    let failed: Vec<String> = ended.tests.failed.iter().cloned().chain(aborted).collect();
    Outcome::Failed(format!("{} {} ({passed} passed)", ended.word(), failed.join(", ")))
}

fn documents(repo: &Repo) -> anyhow::Result<Outcome> {
    // Document only libraries: the binary has the same name as the library and would overwrite its
    // pages.
    let args = ["doc", "--locked", "--workspace", "--no-deps", "--lib", "--keep-going"];
    let job = Job::new("cargo", &args, &repo.root, 600).env("RUSTDOCFLAGS", "-D warnings");
    Ok(judge(&job.run()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guard::Tests;

    fn ended(lines: &[&str]) -> Ended {
        let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        Ended { code: 101, killed: None, tests: Tests::of(&lines), lines: lines.into() }
    }

    #[test]
    fn nothing_is_retried_after_an_abort() {
        let flaky = [
            "     Running tests/a.rs (target/debug/deps/a-1)",
            "running 2 tests",
            "test steady ... ok",
            "test flaky ... FAILED",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored",
        ];
        let aborted = ["     Running tests/b.rs (target/debug/deps/b-1)", "running 1 test"];
        assert!(can_retry(&ended(&flaky)));
        let both = ended(&[&flaky[..], &aborted].concat());
        assert!(!can_retry(&both));
        let Outcome::Failed(text) = judge_tests(&both) else { panic!("not a failure") };
        assert!(text.contains("flaky, no result: tests/b.rs"), "{text}");
        assert!(!can_retry(&ended(&aborted)));
    }

    #[test]
    fn only_an_unreachable_registry_is_skipped() {
        for offline in [
            "error: failed to download from `https://x.invalid/api/v1/crates/a/1.0.0/download`",
            "warning: spurious network error (3 tries remaining): [28] Timeout was reached",
        ] {
            let outcome = judge_fetch(&ended(&["   Updating crates.io index", offline]));
            assert!(matches!(outcome, Some(Outcome::Skipped(_))), "{outcome:?}");
        }
        let lock = "error: the lock file Cargo.lock needs to be updated but --locked was passed";
        assert!(matches!(judge_fetch(&ended(&[lock])), Some(Outcome::Failed(_))));
        let fine = Ended { code: 0, ..ended(&[]) };
        assert_eq!(judge_fetch(&fine), None);
    }

    #[test]
    fn crates_of_a_tree_are_found_by_whole_name() {
        let tree = "ioloom-cli v0.1.0 (x)\ntokio-util v0.7.1\nredb v4.5.0\n";
        assert!(has_crate(tree, "redb"));
        assert!(!has_crate(tree, "tokio"));
    }
}
