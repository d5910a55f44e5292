//! The calibration of this machine, saved in the store with its context.

use crate::atomic_file;
use crate::directories::StoreArg;
use crate::exit::Failure;
use crate::version;
use ioloom_failure::{Operation, PathError, quoted};
use ioloom_predict::answer::profile::Measured;
use ioloom_predict::knee::Knee;
use ioloom_sys::file;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Version of the saved file.
const SCHEMA: u32 = 4;
/// Longest accepted file; a calibration has about 2 KiB.
const BYTES_MAX: u64 = 1 << 20;
/// Beginning of the condition of server probes that an earlier calibration made.
const EARLIER_SERVER: &str = "the server as probed at ";

/// What the probes found, and where and when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Calibration {
    pub(super) schema: u32,
    /// Version of the program.
    pub(super) program: String,
    /// Fingerprint of the machine.
    pub(super) machine: String,
    /// Time of the probes, in UTC.
    pub(super) at: String,
    /// Directory of the probes.
    pub(super) dir: String,
    /// Conditions of the probes, in one sentence each.
    pub(super) conditions: Vec<String>,
    /// The probes.
    pub(super) measured: Measured,
}

impl Calibration {
    pub(super) const SCHEMA: u32 = SCHEMA;

    /// Returns where and when the machine was measured.
    pub(super) fn context(&self) -> String {
        format!("{} in {}; {}", self.at, self.dir, self.conditions.join("; "))
    }

    /// Adds the probes of the server of an earlier calibration in the same directory, if there are any.
    pub(super) fn with_server_of(mut self, earlier: Option<Self>) -> Self {
        let Some(earlier) = earlier.filter(|earlier| earlier.dir == self.dir) else { return self };
        if let Some(exchange) = earlier.measured.exchange {
            let is_older = |condition: &String| condition.starts_with(EARLIER_SERVER);
            let older = earlier.conditions.into_iter().find(is_older);
            let condition = older.unwrap_or_else(|| format!("{EARLIER_SERVER}{}", earlier.at));
            self.conditions.push(condition);
            self.measured.exchange = Some(exchange);
        }
        self
    }

    /// Returns the message that this calibration drops the probes of the server of an earlier one, which is of
    /// another directory; `None` if there are none to drop.
    pub(super) fn server_dropped_from(&self, earlier: &Self) -> Option<String> {
        (earlier.measured.exchange.is_some() && earlier.dir != self.dir).then(|| {
            format!(
                "dropped the earlier probes of the server, whose directory was {}; --calibrate --exchange \
                 probes it again",
                quoted(Path::new(&earlier.dir))
            )
        })
    }

    /// Returns why this calibration cannot be used, if it cannot.
    fn invalid(&self) -> Option<String> {
        let m = &self.measured;
        if m.cores == 0 || m.files == 0 || m.cold_files == 0 {
            return Some("it has no cores or no files".to_owned());
        }
        if m.file_bytes == 0 || m.walk_files == 0 {
            return Some("its files have no bytes, or it walked no file".to_owned());
        }
        if m.copy_files == 0 && !m.copy_s.is_empty() {
            return Some("it copied no file".to_owned());
        }
        let (medium, large) =
            (m.medium_files.min(m.medium_bytes), m.large_files.min(m.large_bytes));
        let larger = [
            ("medium", medium, [&m.medium_s, &m.copy_medium_s]),
            ("large", large, [&m.large_s, &m.copy_large_s]),
        ];
        for (name, least, probes) in larger {
            if least == 0 && probes.iter().any(|probes| !probes.is_empty()) {
                return Some(format!("it has no {name} files, or they have no bytes"));
            }
        }
        let finite = |value: f64| value.is_finite() && value > 0.0;
        if !finite(m.file_cpu_s) || !finite(m.walk_cpu_s) {
            return Some("a processor time is not above zero".to_owned());
        }
        let busy = [m.busy.cold, m.busy.warm, m.busy.walk, m.busy.copy];
        if busy.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return Some("a share of the processor time is not between 0 and 1".to_owned());
        }
        let needed = [&m.cold_s, &m.warm_s, &m.walk_s];
        let optional = [&m.medium_s, &m.large_s, &m.copy_s, &m.copy_medium_s, &m.copy_large_s];
        let servers = m.exchange.iter().flat_map(|e| [&e.none_s, &e.group_s, &e.each_s]);
        let needed = needed.into_iter().chain(servers);
        let given = optional.into_iter().filter(|probes| !probes.is_empty());
        let bad = |probes: &Vec<(u32, f64)>| Knee::fit(probes).err();
        needed.chain(given).find_map(bad).map(|error| error.to_string())
    }
}

/// Returns the fingerprint of this machine.
pub(super) fn machine() -> String {
    ioloom_machine::facts(Path::new("/"), &[]).fingerprint
}

/// Returns a version without the commit.
fn release(version: &str) -> &str {
    version.split([' ', '+']).next().unwrap_or(version)
}

fn path(store: &StoreArg) -> Result<PathBuf, Failure> {
    Ok(store.dir()?.join("predict").join("calibration.json"))
}

/// Saves a calibration; the previous one is replaced. Returns the path.
pub(super) fn write(store: &StoreArg, calibration: &Calibration) -> Result<PathBuf, Failure> {
    if let Some(reason) = calibration.invalid() {
        return Err(Failure::failed(format!("cannot use the probes: {reason}")));
    }
    let path = path(store)?;
    let text = serde_json::to_string_pretty(calibration).map_err(Failure::failed)?;
    atomic_file::write_with_parents(&path, text + "\n")?;
    Ok(path)
}

/// Returns the message that a new calibration drops the probes of the server of a saved one that cannot be used;
/// `None` if that has none, or cannot be read.
pub(super) fn unusable_server_dropped(store: &StoreArg) -> Option<String> {
    let path = path(store).ok()?;
    let text = file::read_text(&path, BYTES_MAX).ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok()?;
    (!value["measured"]["exchange"].is_null()).then(|| {
        "dropped the earlier probes of the server, whose calibration cannot be used; --calibrate --exchange \
         probes it again"
            .to_owned()
    })
}

/// Returns the saved calibration, if any. One of another machine or version of the program is refused: the
/// processor times of a job are those of the program that probed.
pub(super) fn read(store: &StoreArg) -> Result<Option<Calibration>, Failure> {
    let path = path(store)?;
    let invalid = |reason: String| {
        let path = quoted(&path);
        Failure::failed(format!(
            "cannot use {path}: {reason}; run 'ioloom predict --calibrate' again"
        ))
    };
    let text = match file::read_text(&path, BYTES_MAX) {
        Ok(text) => text,
        // Not a regular file, or too large.
        Err(e) if e.kind() == ErrorKind::Other => return Err(invalid(e.to_string())),
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == ErrorKind::InvalidData => {
            return Err(invalid("it is not valid UTF-8".to_owned()));
        }
        Err(e) => return Err(Failure::failed(PathError::new(Operation::Read, path, e))),
    };
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| invalid(e.to_string()))?;
    if value["schema"] != SCHEMA {
        return Err(invalid(format!("its schema is not {SCHEMA}")));
    }
    let found: Calibration = serde_json::from_value(value).map_err(|e| invalid(e.to_string()))?;
    if let Some(reason) = found.invalid() {
        return Err(invalid(reason));
    }
    if found.machine != machine() {
        return Err(Failure::refused(format!(
            "the calibration {} is of another machine or kernel; run 'ioloom predict --calibrate' \
             again",
            quoted(&path)
        )));
    }
    if release(&found.program) != release(version::VERSION) {
        return Err(Failure::refused(format!(
            "the calibration {} is of version {}, but this program is {}; run 'ioloom predict \
             --calibrate' again",
            quoted(&path),
            found.program.escape_debug(),
            version::VERSION
        )));
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_predict::answer::profile::{Busy, MeasuredExchange};

    fn calibration() -> Calibration {
        let times = || vec![(1, 80e-6), (4, 30e-6)];
        let measured = Measured {
            cores: 2,
            files: 800,
            cold_files: 800,
            copy_files: 800,
            medium_files: 32,
            large_files: 4,
            file_bytes: 4096,
            file_cpu_s: 10e-6,
            cold_s: times(),
            warm_s: times(),
            medium_bytes: 128 << 10,
            medium_s: times(),
            large_bytes: 16 << 20,
            large_s: times(),
            walk_files: 8000,
            walk_s: times(),
            walk_cpu_s: 2e-6,
            copy_s: times(),
            copy_medium_s: Vec::new(),
            copy_large_s: times(),
            busy: Busy::default(),
            exchange: None,
        };
        let text = String::new;
        let (program, machine, at, dir) = (text(), text(), text(), text());
        let conditions = Vec::new();
        Calibration { schema: SCHEMA, program, machine, at, dir, conditions, measured }
    }

    #[test]
    fn earlier_server_probes_of_the_directory_are_kept() {
        let new = calibration();
        let mut earlier = Calibration { at: "2026-01-01 00:00:00".to_owned(), ..calibration() };
        assert_eq!(new.clone().with_server_of(None), new);
        assert_eq!(new.clone().with_server_of(Some(earlier.clone())), new);
        let times = || vec![(1, 80e-6), (4, 30e-6)];
        let exchange = MeasuredExchange { none_s: times(), group_s: times(), each_s: times() };
        earlier.measured.exchange = Some(exchange);
        assert_eq!(new.server_dropped_from(&earlier), None);
        let elsewhere = Calibration { dir: "/e".to_owned(), ..earlier.clone() };
        assert!(new.server_dropped_from(&elsewhere).unwrap().contains("was '/e';"));
        let never = Calibration { dir: "/e".to_owned(), ..new.clone() };
        assert_eq!(new.server_dropped_from(&never), None);
        assert_eq!(new.clone().with_server_of(Some(elsewhere)), new);
        let kept = new.with_server_of(Some(earlier.clone()));
        assert_eq!(kept.measured.exchange, earlier.measured.exchange);
        let condition = "the server as probed at 2026-01-01 00:00:00";
        assert_eq!(kept.conditions, [condition]);
        // The time remains that of the probes.
        let kept = Calibration { at: "2026-03-03 00:00:00".to_owned(), ..kept };
        assert_eq!(calibration().with_server_of(Some(kept)).conditions, [condition]);
    }

    #[test]
    fn sizes_and_numbers_of_zero_are_invalid() {
        assert_eq!(calibration().invalid(), None);
        let changes: [fn(&mut Measured); 9] = [
            |m| m.files = 0,
            |m| m.file_bytes = 0,
            |m| m.walk_files = 0,
            |m| m.cold_files = 0,
            |m| m.copy_files = 0,
            |m| m.large_files = 0,
            |m| m.medium_bytes = 0,
            |m| m.large_bytes = 0,
            |m| (m.large_bytes, m.large_s) = (0, Vec::new()),
        ];
        for (i, change) in changes.into_iter().enumerate() {
            let mut changed = calibration();
            change(&mut changed.measured);
            assert!(changed.invalid().is_some(), "{i}");
        }
        let mut none = calibration();
        (none.measured.medium_bytes, none.measured.medium_s) = (0, Vec::new());
        assert_eq!(none.invalid(), None, "no medium files were probed");
    }
}
