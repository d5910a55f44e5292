//! A result directory: `README.md` with the origin, `raw.jsonl` with the setup and one line per
//! run, and `summary.md`, which is generated from the raw data alone.
//!
//! A line is on disk before the next run starts, so a killed experiment retains all measurements;
//! this costs one sync between runs and none during them. Only the summary is ever overwritten.

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// Name of the file with the setup and the runs.
pub const RAW: &str = "raw.jsonl";

/// Creates a result directory.
///
/// # Errors
/// The directory cannot be created or is not empty.
pub fn claim(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let mut entries =
        std::fs::read_dir(out).with_context(|| format!("cannot list {}", out.display()))?;
    ensure!(
        entries.next().is_none(),
        "{} is not empty; results are never overwritten, choose another directory",
        out.display()
    );
    Ok(())
}

/// The file to which runs are appended.
pub struct Raw(File);

impl Raw {
    /// Creates the files of a result: the README, and the raw data with the setup.
    ///
    /// # Errors
    /// A file already exists or cannot be written.
    pub fn create(out: &Path, readme: &str, setup: &impl Serialize) -> Result<Self> {
        let path = out.join("README.md");
        std::fs::write(&path, readme)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let path = out.join(RAW);
        let file =
            File::create_new(&path).with_context(|| format!("cannot create {}", path.display()))?;
        let mut raw = Self(file);
        raw.add(setup)?;
        Ok(raw)
    }

    /// Appends a run.
    ///
    /// # Errors
    /// The line cannot be written or synced.
    pub fn add(&mut self, line: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_string(line).context("cannot serialize a run")?;
        text.push('\n');
        self.0.write_all(text.as_bytes()).context("cannot append to the raw data")?;
        self.0.sync_data().context("cannot sync the raw data")
    }
}

/// Reads the raw data of a result. Drops a torn last line, left by a kill, with a message.
///
/// # Errors
/// The file cannot be read, has no setup, or contains an invalid line.
pub fn read<Setup: DeserializeOwned, Run: DeserializeOwned>(
    out: &Path,
) -> Result<(Setup, Vec<Run>)> {
    let path = out.join(RAW);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        say("the last line of the raw data is torn and was dropped");
    }
    let at = |number: usize| format!("{}:{number}: not a line of raw data", path.display());
    let mut lines = text[..whole].lines();
    let Some(first) = lines.next() else { bail!("{} has no setup line", path.display()) };
    let setup = serde_json::from_str(first).with_context(|| at(1))?;
    let runs = lines.zip(2..).map(|(line, n)| serde_json::from_str(line).with_context(|| at(n)));
    Ok((setup, runs.collect::<Result<_>>()?))
}

/// Writes a summary next to its raw data and prints it.
///
/// # Errors
/// The file or standard output cannot be written.
pub fn publish(out: &Path, summary: &str) -> Result<()> {
    let path = out.join("summary.md");
    std::fs::write(&path, summary).with_context(|| format!("cannot write {}", path.display()))?;
    write!(std::io::stdout(), "{summary}").context("cannot print the summary")
}

/// Returns the command line of this process, quoted for a shell.
pub fn command() -> String {
    let words: Vec<_> = std::env::args_os().map(|w| w.to_string_lossy().into_owned()).collect();
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// Prints one line of progress.
pub fn say(line: &str) {
    // Progress is not a result, so a closed stderr must not stop an experiment.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Returns the exit code of `program`: 0 only if every run of every arm exists and counts.
pub fn exit(program: &str, complete: Result<bool>) -> ExitCode {
    match complete {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{program}: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_is_read_back_and_never_overwritten() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let out = dir.path().join("result");
        claim(&out).expect("a new directory");
        let mut raw = Raw::create(&out, "# How\n", &"setup").expect("new files");
        raw.add(&1).expect("a line");
        raw.add(&2).expect("a line");
        assert_eq!(read(&out).expect("reads"), ("setup".to_owned(), vec![1, 2]));
        assert!(claim(&out).is_err());
        assert!(Raw::create(&out, "", &"another").is_err());
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_a_bad_middle_is_an_error() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let put = |text: &str| std::fs::write(dir.path().join(RAW), text).expect("writes");
        put("\"setup\"\n1\n2");
        assert_eq!(read(dir.path()).expect("reads"), ("setup".to_owned(), vec![1]));
        put("\"setup\"\nnonsense\n2\n");
        let error = read::<String, u32>(dir.path()).expect_err("a bad line is an error");
        assert!(format!("{error:#}").contains(":2:"), "{error:#}");
        put("");
        assert!(read::<String, u32>(dir.path()).is_err());
    }
}
