//! `cargo xtask deb`: the Debian package of the program, made by cargo-deb.
//!
//! The program writes its own manual pages and completions, so they match its flags. Documents are
//! packaged without the links to files that only the repository has. cargo-deb takes the list of files
//! from `crates/tools/cli/Cargo.toml`.

use crate::guard::{self, Ended, Job};
use crate::repo::Repo;
use crate::steps::Outcome;
use crate::tidy::links;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Installs the tool without optimisation, which halves the build time.
const INSTALL: &str = "install cargo-deb --locked --debug";

/// The generated files, relative to the root. The manifest of the program names this directory, so
/// it does not depend on the target directory.
const GENERATED: &str = "target/deb";

/// Shells with the names of their completion scripts, as each shell searches for them.
const SHELLS: [(&str, &str); 3] = [("bash", "ioloom"), ("zsh", "_ioloom"), ("fish", "ioloom.fish")];

/// Builds the program in `profile`, generates its documents, and packages them.
pub(crate) fn build(repo: &Repo, profile: &str) -> anyhow::Result<Outcome> {
    if !cargo(repo, "deb --version", 60)?.fine() && !cargo(repo, INSTALL, 1200)?.fine() {
        return Ok(Outcome::Failed(format!("cargo-deb is missing; run: cargo {INSTALL}")));
    }
    let ended = cargo(repo, &format!("build --locked --profile {profile} -p ioloom-cli"), 3600)?;
    if !ended.fine() {
        return Ok(Outcome::Failed(ended.word()));
    }
    // Only this profile has another name than its directory.
    let built = if profile == "dev" { "debug" } else { profile };
    let program = repo.target_dir()?.join(built).join("ioloom");
    generate(repo, &program)?;
    // The profile decides whether symbols are stripped.
    let line = format!("deb --no-build --no-strip --profile {profile} -p ioloom-cli");
    let ended = cargo(repo, &line, 600)?;
    if !ended.fine() {
        return Ok(Outcome::Failed(ended.word()));
    }
    let file = ended.lines.iter().rev().find(|line| line.ends_with(".deb"));
    let file = file.context("cargo-deb named no package")?.trim().to_owned();
    let contents = guard::ask("dpkg-deb", &["--contents", &file], &repo.root)?;
    print!("{contents}");
    let missing = missing(&contents);
    if !missing.is_empty() {
        return Ok(Outcome::Failed(format!("not in the package: {}", missing.join(", "))));
    }
    let bytes = std::fs::metadata(&file).with_context(|| format!("stat {file}"))?.len();
    Ok(Outcome::Passed(format!("{file}, {bytes} bytes")))
}

/// Files that every package contains, with at least one page of a command.
const CONTENTS: [&str; 16] = [
    "/usr/bin/ioloom",
    "/usr/share/man/man1/ioloom.1.gz",
    "/usr/share/man/man1/ioloom-each.1.gz",
    "/usr/share/bash-completion/completions/ioloom",
    "/usr/share/zsh/vendor-completions/_ioloom",
    "/usr/share/fish/vendor_completions.d/ioloom.fish",
    "/usr/lib/systemd/system/ioloom-serve.service",
    "/usr/lib/systemd/system/ioloom-serve.socket",
    "/usr/share/doc/ioloom/copyright",
    "/usr/share/doc/ioloom/README.md",
    "/usr/share/doc/ioloom/docs/findings/README.md",
    "/usr/share/doc/ioloom/docs/reference/json.md",
    "/usr/share/doc/ioloom/docs/objects.md",
    "/usr/share/doc/ioloom/docs/predict.md",
    "/usr/share/doc/ioloom/docs/scale.md",
    "/usr/share/doc/ioloom/docs/serve.md",
];

/// Returns the files of [`CONTENTS`] that a listing of dpkg-deb lacks.
fn missing(contents: &str) -> Vec<&'static str> {
    let is_listed = |file: &&str| contents.lines().any(|line| line.ends_with(&format!(" .{file}")));
    CONTENTS.into_iter().filter(|file| !is_listed(file)).collect()
}

fn generate(repo: &Repo, program: &Path) -> anyhow::Result<()> {
    let dir = repo.root.join(GENERATED);
    if dir.exists() {
        std::fs::remove_dir_all(&dir).context("remove old manual pages")?;
    }
    std::fs::create_dir_all(&dir).context("create a directory for manual pages")?;
    let run = |args: &[&str], out: &str| {
        let job = Job::built(program.to_owned(), args, &dir, 60);
        let code = job.start_apart(&dir.join(out))?.wait(Duration::from_secs(60))?;
        anyhow::ensure!(code == Some(0), "{}: exit code {code:?}", job.shown());
        anyhow::Ok(())
    };
    run(&["man", "--out", "man"], "man.log")?;
    for (shell, file) in SHELLS {
        run(&["completions", shell], file)?;
    }
    documents(repo, &dir.join("doc"))
}

/// Copies the documents to `dir`.
fn documents(repo: &Repo, dir: &Path) -> anyhow::Result<()> {
    let files = repo.files()?;
    for file in files.iter().filter(|file| is_document(file)) {
        let to = dir.join(file);
        std::fs::create_dir_all(to.parent().unwrap_or(dir)).context("create a directory")?;
        let text = without_dead_links(file, &repo.read(file)?, &files);
        std::fs::write(&to, text).with_context(|| format!("write {}", to.display()))?;
    }
    Ok(())
}

/// Returns whether a file of the repository is a document of the package.
fn is_document(file: &Path) -> bool {
    let is_kind = file.extension().is_some_and(|kind| kind == "md" || kind == "svg");
    let is_page = file.starts_with("docs") && !file.starts_with("docs/findings/source");
    is_kind && (is_page || ["README.md", "CHANGELOG.md"].iter().any(|name| file == Path::new(name)))
}

/// Returns whether a link of a document leads to the same document, to another one, or to the network.
fn is_packaged(target: &str, document: &Path, files: &[PathBuf]) -> bool {
    if target.contains("://") || target.starts_with('#') {
        return true;
    }
    let path = target.split('#').next().unwrap_or_default();
    let path = links::clean(&document.parent().unwrap_or(Path::new("")).join(path));
    files.iter().any(|file| is_document(file) && file.starts_with(&path))
}

/// Replaces links to files that are not in the package by their text.
fn without_dead_links(document: &Path, text: &str, files: &[PathBuf]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let Some((target, next)) = after.split_once(')') else { break };
        out.push_str(before);
        match out.rfind('[') {
            Some(open) if !is_packaged(target, document, files) => {
                out.remove(open);
            }
            _ => out.extend(["](", target, ")"]),
        }
        rest = next;
    }
    out + rest
}

fn cargo(repo: &Repo, line: &str, limit_s: u64) -> anyhow::Result<Ended> {
    let args: Vec<&str> = line.split(' ').collect();
    Job::new("cargo", &args, &repo.root, limit_s).run()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_listing_must_name_every_file() {
        let mut listing = String::new();
        for file in CONTENTS {
            listing += &format!("-rw-r--r-- 0/0  1 2026-01-01 00:00 .{file}\n");
        }
        assert!(missing(&listing).is_empty());
        let without = listing.replace("ioloom-each.1", "ioloom-each.2");
        assert_eq!(missing(&without), ["/usr/share/man/man1/ioloom-each.1.gz"]);
    }

    #[test]
    fn the_package_has_every_document_that_help_names() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let help = root.join("crates/tools/cli/tests/cli/snapshots");
        let mut named = BTreeSet::new();
        for entry in std::fs::read_dir(help).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for (at, _) in text.match_indices("docs/") {
                let is_path = |c: char| c.is_ascii_alphanumeric() || "/-.".contains(c);
                let path = text[at..].split(|c| !is_path(c)).next().unwrap_or_default();
                named.insert(path.trim_end_matches('.').to_owned());
            }
        }
        assert!(named.contains("docs/reference/json.md"), "{named:?}");
        for path in named {
            let is_packaged = is_document(Path::new(&path)) && root.join(&path).is_file();
            assert!(is_packaged, "{path} is not packaged");
        }
    }

    #[test]
    fn the_manifest_lists_every_document() {
        let repo = Repo::find().unwrap();
        let manifest = repo.read(Path::new("crates/tools/cli/Cargo.toml")).unwrap();
        for file in repo.files().unwrap().iter().filter(|file| is_document(file)) {
            let kind = file.extension().unwrap().to_str().unwrap();
            let asset = match file.parent().unwrap().to_str().unwrap() {
                "" => file.display().to_string(),
                dir => format!("{dir}/*.{kind}"),
            };
            let asset = format!("\"../../../{GENERATED}/doc/{asset}\"");
            assert!(manifest.contains(&asset), "{asset} is missing");
        }
    }

    #[test]
    fn packaged_documents_have_no_dead_links() {
        let files = [PathBuf::from("docs/b.md"), PathBuf::from("results/x/README.md")];
        let text =
            "[b](b.md#c), [runs\nof x](../results/x/README.md), [c](#c), [d](https://d.invalid)";
        let kept = "[b](b.md#c), runs\nof x, [c](#c), [d](https://d.invalid)";
        assert_eq!(without_dead_links(Path::new("docs/a.md"), text, &files), kept);
        let repo = Repo::find().unwrap();
        let files = repo.files().unwrap();
        for file in files.iter().filter(|file| is_document(file)) {
            let text = without_dead_links(file, &repo.read(file).unwrap(), &files);
            for (line, target) in links::targets(&text) {
                assert!(is_packaged(&target, file, &files), "{}:{line} {target}", file.display());
            }
        }
    }
}
