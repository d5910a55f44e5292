//! `cargo xtask package`: packages the crates to publish and builds the packages as a user of the
//! registry would get them, outside the workspace.
//!
//! None of the crates is in a registry yet, so the unpacked crates replace each other by patches.
//! Everything else comes from the registry, in the versions of `Cargo.lock`.

use crate::guard::{self, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use anyhow::Context;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Files that each package must contain.
const FILES: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "Cargo.toml"];

/// Messages of cargo that indicate a missing network rather than a bug.
const NO_NETWORK: [&str; 6] = [
    "Could not resolve host",
    "Couldn't connect",
    "download of config.json",
    "failed to download",
    "spurious network error",
    "Operation timed out",
];

/// Runs the publication without building or uploading; skipped if the registry is unreachable.
pub(crate) fn dry_run(repo: &Repo) -> anyhow::Result<Outcome> {
    let args = ["publish", "--dry-run", "--workspace", "--no-verify", "--allow-dirty", "--locked"];
    let ended = Job::new("cargo", &args, &repo.root, 600).run()?;
    let published = repo.published()?.len();
    let uploaded = ended.lines.iter().filter(|line| line.contains(" Uploading ")).count();
    let lines: Vec<&str> = ended.lines.iter().map(String::as_str).collect();
    Ok(judge(ended.fine(), &lines, uploaded, published).unwrap_or_else(|| {
        // The words of the program say more than its exit code.
        let error = lines.iter().find(|line| line.starts_with("error"));
        Outcome::Failed(error.map_or_else(|| ended.word(), ToString::to_string))
    }))
}

/// `None` is a failure that the lines describe.
fn judge(fine: bool, lines: &[&str], uploaded: usize, published: usize) -> Option<Outcome> {
    if fine && uploaded == published {
        return Some(Outcome::Passed(format!("{published} crates")));
    }
    if fine {
        let text = format!("{uploaded} crates instead of {published}");
        return Some(Outcome::Failed(text));
    }
    unreachable(lines.iter().copied())
}

/// Returns the outcome of a job whose lines contain network errors of cargo; `None` without such a line.
pub(crate) fn unreachable<'a>(mut lines: impl Iterator<Item = &'a str>) -> Option<Outcome> {
    let is_offline = lines.any(|line| NO_NETWORK.iter().any(|word| line.contains(word)));
    is_offline.then(|| Outcome::Skipped("the registry cannot be reached".to_owned()))
}

/// Packages and unpacks all crates, and builds them outside the workspace.
pub(crate) fn build(repo: &Repo) -> anyhow::Result<Outcome> {
    let args = ["package", "--workspace", "--no-verify", "--allow-dirty", "--locked"];
    let published = repo.published()?;
    let mut args: Vec<&str> = args.to_vec();
    for package in &published {
        args.extend(["--package", text(package, "name")]);
    }
    args.retain(|arg| *arg != "--workspace");
    let ended = Job::new("cargo", &args, &repo.root, 600).run()?;
    if !ended.fine() {
        return Ok(Outcome::Failed(ended.word()));
    }
    let target = repo.target_dir()?;
    let home = Unpacked::make(repo, &target.join("package"), &published)?;
    let dir = home.0.to_string_lossy().into_owned();
    // The library alone first: other packages may enable features of its dependencies.
    for what in [["--package", "ioloom", "--lib"].as_slice(), &["--workspace"]] {
        let args = [["build", "--locked"].as_slice(), what].concat();
        let job = Job::new("cargo", &args, &home.0, 1800)
            .env("CARGO_TARGET_DIR", target.join("packaged").to_string_lossy())
            .env("CARGO_INCREMENTAL", "0");
        let ended = job.run()?;
        if !ended.fine() {
            return Ok(Outcome::Failed(format!("{} in {dir}", ended.word())));
        }
    }
    let program = target.join("packaged/debug/ioloom");
    let ended = Job::built(program, &["--version"], &home.0, 60).run()?;
    if !ended.fine() {
        return Ok(Outcome::Failed(format!("ioloom --version: {}", ended.word())));
    }
    Ok(Outcome::Passed(format!("{} crates build outside the workspace", published.len())))
}

/// A directory with the unpacked crates, removed on drop.
struct Unpacked(PathBuf);

impl Drop for Unpacked {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Unpacked {
    fn make(repo: &Repo, packages: &Path, published: &[Value]) -> anyhow::Result<Self> {
        let dir = std::env::temp_dir().join(format!("ioloom-package-{}", std::process::id()));
        std::fs::create_dir(&dir).with_context(|| format!("create {}", dir.display()))?;
        let home = Self(dir);
        for package in published {
            let folder = folder(package);
            let file = packages.join(format!("{folder}.crate"));
            // Packages have old, fixed times; with them cargo would reuse results of other versions.
            guard::ask("tar", &["-xzmf", &file.to_string_lossy()], &home.0)?;
            for name in FILES {
                let path = home.0.join(&folder).join(name);
                anyhow::ensure!(path.is_file(), "{folder}: {name} is not in the package");
            }
        }
        let manifest = home.0.join("Cargo.toml");
        std::fs::write(&manifest, workspace(published)).context("write a workspace")?;
        // The lock file of the repository also lists private crates, which cargo removes.
        std::fs::copy(repo.root.join("Cargo.lock"), home.0.join("Cargo.lock"))
            .context("copy Cargo.lock")?;
        guard::ask("cargo", &["update", "--workspace", "--offline"], &home.0)?;
        Ok(home)
    }
}

/// Returns the manifest of a workspace in which the unpacked crates replace those of the registry.
fn workspace(published: &[Value]) -> String {
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\n");
    for package in published {
        let _ = writeln!(manifest, "    \"{}\",", folder(package));
    }
    manifest += "]\n\n[profile.dev]\ndebug = false\n\n[patch.crates-io]\n";
    for package in published {
        let _ =
            writeln!(manifest, "{} = {{ path = \"{}\" }}", text(package, "name"), folder(package));
    }
    manifest
}

fn folder(package: &Value) -> String {
    format!("{}-{}", text(package, "name"), text(package, "version"))
}

fn text<'a>(package: &'a Value, field: &str) -> &'a str {
    package[field].as_str().unwrap_or_default()
}

/// Checks the published crates with the oldest supported compiler; skipped if it is not installed.
pub(crate) fn oldest_compiler(repo: &Repo) -> anyhow::Result<Outcome> {
    let published = repo.published()?;
    let version = text(published.first().context("nothing is published")?, "rust_version");
    // rustup installs releases under their full version.
    let toolchain = format!("+{version}.0");
    if guard::ask("cargo", &[&toolchain, "--version"], &repo.root).is_err() {
        let install = format!("rustup toolchain install {version}.0 --profile minimal");
        return Ok(Outcome::Skipped(format!("rustc {version} is missing; run: {install}")));
    }
    let features = ["--features", "ioloom-cli/objects,ioloom-cli/queue"];
    let crates = [&toolchain, "check", "--locked", "-p", "ioloom", "-p", "ioloom-cli"];
    let args = [&crates[..], &features].concat();
    let job = Job::new("cargo", &args, &repo.root, 1200)
        .env("CARGO_TARGET_DIR", repo.target_dir()?.join("oldest").to_string_lossy());
    let ended = job.run()?;
    Ok(if ended.fine() {
        Outcome::Passed(format!("rustc {version}"))
    } else {
        Outcome::Failed(ended.word())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_an_unreachable_registry_is_skipped() {
        let of = |fine, line, uploaded| judge(fine, &[line], uploaded, 3);
        assert!(matches!(of(true, "", 3), Some(Outcome::Passed(_))));
        assert!(matches!(of(true, "", 2), Some(Outcome::Failed(_))));
        let offline = "  [6] Could not resolve hostname (Could not resolve host: x.invalid)";
        assert!(matches!(of(false, offline, 0), Some(Outcome::Skipped(_))));
        let slow = "error: failed to download from `https://x.invalid/`: Operation timed out";
        assert!(matches!(of(false, slow, 0), Some(Outcome::Skipped(_))));
        assert!(of(false, "error: readme `README.md` does not appear to exist", 0).is_none());
    }

    #[test]
    fn unpacked_crates_replace_those_of_the_registry() {
        let manifest = workspace(&[json!({"name": "a", "version": "0.2.0"})]);
        assert!(manifest.contains("\n    \"a-0.2.0\",\n"), "{manifest}");
        assert!(manifest.contains("[patch.crates-io]\na = { path = \"a-0.2.0\" }\n"), "{manifest}");
    }
}
