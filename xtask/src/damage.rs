//! `cargo xtask damage`: the damage matrix of the order stores, with any number of cases.
//!
//! The cases are those of the test `damage_is_never_silent` of `ioloom-serve`, which needs the
//! stores' own code to make and judge them. It fails if a loss is silent, if a state is wrong, or if
//! a readable store is refused; the table is printed and written to `target/damage.md`.

use crate::guard::Job;
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;

/// Default number of cases per store, durability and kind of damage.
pub(crate) const CASES: u64 = 200;
/// Time limit in seconds.
const LIMIT: u64 = 4 * 3600;
const TEST: &str = "store::matrix::damage_is_never_silent";

/// Runs the matrix.
pub(crate) fn run(repo: &Repo, cases: u64, seed: u64) -> anyhow::Result<Outcome> {
    let table = repo.target_dir()?.join("damage.md");
    let _ = std::fs::remove_file(&table);
    let args = ["test", "--locked", "-p", "ioloom-serve", "--lib", "--", "--exact", TEST];
    let done = Job::new("cargo", &args, &repo.root, LIMIT)
        .env("IOLOOM_DAMAGE", cases.to_string())
        .env("IOLOOM_SEED", seed.to_string())
        .env("IOLOOM_DAMAGE_TABLE", table.to_string_lossy())
        .run()?;
    if !done.fine() {
        return Ok(Outcome::Failed(done.word()));
    }
    let text = std::fs::read_to_string(&table).context("read the table")?;
    println!("{text}");
    Ok(Outcome::Passed(format!("seed {seed}, {cases} cases of each kind: nothing was silent")))
}
