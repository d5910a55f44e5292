//! Traced runs, for the timelines of a report.
//!
//! Tracing slows runs down, so traced runs are separate from the blocks and excluded from
//! statistics. Each arm listed under `pictures` in the study runs once before the first block and
//! creates a record and a file in `traces/SESSION`. The time counts against the budget.

use crate::error::LabError;
use crate::run::{Event, RunOptions, Study, Wanted};
use crate::store::Picture;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_model::record::Observe;
use ioloom_model::units::format_counted;
use ioloom_model::{Level, Outcome};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

impl RunOptions<'_> {
    /// Returns how to observe runs that belong to blocks.
    pub(crate) fn observe(&self) -> Observe {
        // Level 0: accounts kept by the threads themselves, which cost less than a tracing session.
        let level = self.evidence.filter(|level| *level > Level::Account);
        Observe { events: level.is_some(), level, trace: None }
    }
}

impl Study<'_> {
    /// Runs the traced runs that are not `done`. Returns whether it was interrupted.
    pub(crate) fn pictures(&mut self, done: &BTreeSet<u32>) -> Result<bool, LabError> {
        let pictures = self.header.pictures.clone();
        let arms: Vec<_> =
            pictures.iter().flat_map(|c| c.arms.iter().map(move |a| (c, a))).collect();
        if arms.len() <= done.len() {
            return Ok(false);
        }
        let dir = match self.traces_dir() {
            Ok(dir) => dir,
            Err(reason) => {
                let text = format!("no timelines: {reason}");
                self.options.progress.event(&Event::Note(&text));
                return Ok(false);
            }
        };
        let runs = format_counted((arms.len() - done.len()) as u64, "run", "runs");
        let text = format!("tracing {runs} first, for the timelines");
        self.options.progress.event(&Event::Note(&text));
        for (position, (comparison, arm)) in arms.into_iter().enumerate() {
            let position = position as u32;
            if done.contains(&position) {
                continue;
            }
            if self.options.stop.load(Ordering::Relaxed) {
                return Ok(true);
            }
            let name = file_name(&comparison.experiment, &arm.name);
            let path = dir.join(&name);
            let observe =
                Observe { events: true, level: self.options.evidence, trace: Some(path.clone()) };
            let wanted = Wanted { comparison, arm, block: 0, position, observe };
            let Some(record) = self.one(wanted, &|_| ())? else { return Ok(true) };
            if let Outcome::Refused { reason } | Outcome::Failed { reason } = &record.outcome {
                let text = format!("no timeline of {}: {reason}", arm.name);
                self.options.progress.event(&Event::Note(&text));
            }
            if let Outcome::TimedOut { seconds } = &record.outcome {
                let text = format!(
                    "no timeline of {}: stopped at its deadline of {seconds:.0} s",
                    arm.name
                );
                self.options.progress.event(&Event::Note(&text));
            }
            let trace_bytes = path.metadata().map_or(0, |m| m.len());
            let trace = (trace_bytes > 0).then_some(name);
            self.writer.append_picture(&Picture { record, trace, trace_bytes })?;
        }
        Ok(false)
    }

    /// Creates and returns the directory of the traces.
    fn traces_dir(&self) -> Result<PathBuf, String> {
        let fail = |e| PathError::new(Operation::CreateDir, &self.traces, e).to_string();
        let dir = std::path::absolute(&self.traces).map_err(fail)?;
        if dir.to_str().is_none() {
            // The path is sent to the child as JSON.
            return Err(format!("the path {} is not UTF-8; use --store DIR", quoted(&dir)));
        }
        std::fs::create_dir_all(&dir).map_err(fail)?;
        Ok(dir)
    }
}

/// Returns the file name of the trace of an arm.
fn file_name(experiment: &str, arm: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '-' };
    let word = |text: &str| text.chars().map(plain).collect::<String>();
    let name = format!("{}.{}.ioloom", word(experiment), word(arm));
    debug_assert!(Path::new(&name).file_name().is_some());
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_plain() {
        assert_eq!(file_name("sync-or-reader", "sync-4"), "sync-or-reader.sync-4.ioloom");
        assert_eq!(file_name("..", "a/b c"), "--.a-b-c.ioloom");
    }
}
