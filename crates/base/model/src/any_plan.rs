//! The plan of an arm for any subject.
//!
//! File plans have a separate type, [`Plan`], because the library runs them and checks the
//! combination of method and schedule. Plans of other subjects consist of a method and settings
//! that only the subject's adapter interprets: [`SubjectPlan`], written as
//! `SUBJECT:METHOD[/KEY=VALUE,…]`, such as `walk:statx/threads=16`. A new subject therefore
//! requires no change here. Text that begins with a file method is parsed as a file plan.

use crate::units::{format_size, parse_size};
use crate::{Method, ParseError, Plan, Schedule, serialize_as_text};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// A plan for a subject other than files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectPlan {
    /// Subject, such as `walk`.
    pub subject: String,
    /// Method of the subject.
    pub method: String,
    /// Settings, displayed in the order of their names.
    pub settings: BTreeMap<String, String>,
}

impl SubjectPlan {
    /// Returns a setting as a whole number; `None` if it is not set.
    ///
    /// # Errors
    /// Fails if the value is not a whole number.
    pub fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.settings.get(key) else { return Ok(None) };
        let wrong = |_| format!("{self}: {key} must be a whole number");
        text.parse().map(Some).map_err(wrong)
    }

    /// Returns a setting as a count from 1 to `most`; `None` if it is not set.
    ///
    /// # Errors
    /// Fails if the value is not a number in this range.
    pub fn count(&self, key: &str, most: u64) -> Result<Option<u64>, String> {
        match self.number(key)? {
            Some(n) if n == 0 || n > most => Err(format!("{self}: {key} must be 1 to {most}")),
            n => Ok(n),
        }
    }

    /// Returns a setting as a multiple of 4 KiB of at most `most` bytes; `None` if it is not set.
    ///
    /// # Errors
    /// Fails if the value is not a valid size.
    pub fn size(&self, key: &str, most: u64) -> Result<Option<u64>, String> {
        let Some(text) = self.settings.get(key) else { return Ok(None) };
        let found = parse_size(text).map_err(|e| format!("{self}: {key}: {e}"))?;
        if !(4096..=most).contains(&found) || !found.is_multiple_of(4096) {
            let most = format_size(most);
            return Err(format!("{self}: {key} must be a multiple of 4 KiB, at most {most}"));
        }
        Ok(Some(found))
    }

    /// Returns a setting that must be one of several words; `default` if it is not set.
    ///
    /// # Errors
    /// Fails for any other word. The message lists the accepted ones.
    pub fn choice<T: Copy>(&self, key: &str, default: T, known: &[(&str, T)]) -> Result<T, String> {
        let Some(text) = self.settings.get(key) else { return Ok(default) };
        known.iter().find(|(word, _)| word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
            format!("{self}: {key} must be one of {}", words.join(", "))
        })
    }

    /// Checks that all settings of the plan are in `known`.
    ///
    /// # Errors
    /// Fails for the first unknown setting. The message lists the known ones.
    pub fn allow_only(&self, known: &[&str]) -> Result<(), String> {
        match self.settings.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) if known.is_empty() => {
                Err(format!("{self}: unknown setting '{key}'; this method has no settings"))
            }
            Some(key) => {
                let known = known.join(", ");
                Err(format!("{self}: unknown setting '{key}'; known settings: {known}"))
            }
        }
    }
}

impl fmt::Display for SubjectPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.subject, self.method)?;
        for (i, (key, value)) in self.settings.iter().enumerate() {
            write!(f, "{}{key}={value}", if i == 0 { "/" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for SubjectPlan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let refuse = |reason: &str| ParseError::new("plan", text, reason.to_owned());
        let word = |part: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if part.is_empty() || !part.chars().all(plain) {
                return Err(refuse(
                    "subject, method and setting names must consist of a-z, 0-9 and '-'",
                ));
            }
            Ok(part.to_owned())
        };
        let (head, rest) = text.split_once('/').unwrap_or((text, ""));
        let (subject, method) = head
            .split_once(':')
            .ok_or_else(|| refuse("use SUBJECT:METHOD/KEY=VALUE, as in walk:statx/threads=4"))?;
        let mut settings = BTreeMap::new();
        for item in rest.split(',').filter(|item| !item.is_empty()) {
            let (key, value) = item
                .split_once('=')
                .ok_or_else(|| refuse("settings must be KEY=VALUE, as in threads=4"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+%".contains(c);
            if value.is_empty() || !value.chars().all(plain) {
                return Err(refuse("values must consist of letters, digits and -_.:+%"));
            }
            if settings.insert(word(key)?, value.to_owned()).is_some() {
                return Err(refuse("a setting occurs twice"));
            }
        }
        Ok(Self { subject: word(subject)?, method: word(method)?, settings })
    }
}

/// The plan of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AnyPlan {
    /// A file plan, run by the library.
    Files(Plan),
    /// A plan for another subject.
    Subject(SubjectPlan),
}

impl AnyPlan {
    /// Returns the plan if it is a file plan.
    pub const fn files(&self) -> Option<&Plan> {
        match self {
            Self::Files(plan) => Some(plan),
            Self::Subject(_) => None,
        }
    }

    /// Returns the plan if it belongs to `subject`.
    pub fn for_subject(&self, subject: &str) -> Option<&SubjectPlan> {
        match self {
            Self::Subject(plan) if plan.subject == subject => Some(plan),
            _ => None,
        }
    }

    /// Returns the subject, which is `files` for file plans.
    pub fn subject(&self) -> &str {
        match self {
            Self::Files(_) => "files",
            Self::Subject(plan) => &plan.subject,
        }
    }

    /// Fills in defaults that depend on the number of usable cores.
    #[must_use]
    pub fn complete(self, usable_cores: u32) -> Self {
        match self {
            Self::Files(plan) => Self::Files(plan.complete(usable_cores)),
            other => other,
        }
    }

    /// Returns the number of threads for a ladder: from the `threads` schedule or the `threads`
    /// setting.
    pub fn plain_threads(&self) -> Option<u32> {
        match self {
            Self::Files(Plan { schedule: Schedule::Threads { n }, .. }) => Some(*n),
            Self::Files(_) => None,
            Self::Subject(plan) => plan.settings.get("threads")?.parse().ok(),
        }
    }

    /// Returns how many threads run or wait for user code, as far as the plan specifies it.
    pub fn threads(&self) -> u32 {
        match self {
            Self::Files(plan) => plan.threads(),
            Self::Subject(_) => self.plain_threads().unwrap_or(1),
        }
    }

    /// Reports whether the method is `null`, which skips only the work itself.
    pub fn is_null(&self) -> bool {
        match self {
            Self::Files(plan) => plan.method == Method::Null,
            Self::Subject(plan) => plan.method == "null",
        }
    }

    /// Returns the text form of the method.
    pub fn method(&self) -> String {
        match self {
            Self::Files(plan) => plan.method.to_string(),
            Self::Subject(plan) => format!("{}:{}", plan.subject, plan.method),
        }
    }

    /// Returns a sort key that orders the plans of a subject by simplicity. For files, blocking
    /// reads by one thread come first; for other subjects, plans with the fewest settings and
    /// threads.
    pub fn simplicity(&self) -> (usize, u32, usize) {
        match self {
            Self::Files(plan) => {
                let method = Method::ALL.iter().position(|m| *m == plan.method).unwrap_or(99);
                let (schedule, number) = match plan.schedule {
                    Schedule::Threads { n } => (0, n),
                    Schedule::Window { window, .. } => (1, window),
                    Schedule::Roles { readers, hybrids, computers, .. } => {
                        (2, readers + hybrids + computers)
                    }
                };
                (schedule * 100 + method, number, usize::from(plan.chunk_bytes.is_some()))
            }
            Self::Subject(plan) => (plan.settings.len(), self.threads(), plan.method.len()),
        }
    }
}

impl From<Plan> for AnyPlan {
    fn from(plan: Plan) -> Self {
        Self::Files(plan)
    }
}

impl fmt::Display for AnyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(plan) => plan.fmt(f),
            Self::Subject(plan) => plan.fmt(f),
        }
    }
}

impl FromStr for AnyPlan {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let head = text.split(['/', ':']).next().unwrap_or_default();
        let over_files = |m: &Method| m.to_string().split(':').next() == Some(head);
        let colon = text.split('/').next().is_some_and(|first| first.contains(':'));
        if Method::ALL.iter().any(over_files) || !colon {
            return text.parse().map(Self::Files);
        }
        text.parse().map(Self::Subject)
    }
}

serialize_as_text!(SubjectPlan);
serialize_as_text!(AnyPlan);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plans_of_every_subject_survive_a_round_trip() {
        for (text, subject, threads) in [
            ("read/threads:n=4", "files", Some(4)),
            ("direct:uring/window:l=8,p=2", "files", None),
            ("walk:statx/threads=16", "walk", Some(16)),
            ("memory:chase/bytes=64MiB,step=64", "memory", None),
            ("cache:drop", "cache", None),
        ] {
            let plan: AnyPlan = text.parse().unwrap();
            assert_eq!(plan.to_string(), text);
            assert_eq!((plan.subject(), plan.plain_threads()), (subject, threads));
            let json = serde_json::to_string(&plan).unwrap();
            assert_eq!(serde_json::from_str::<AnyPlan>(&json).unwrap(), plan);
        }
        let mixed: SubjectPlan = "walk:statx/threads=2,cold=drop".parse().unwrap();
        assert_eq!(mixed.to_string(), "walk:statx/cold=drop,threads=2");
        assert_eq!(mixed.number("threads"), Ok(Some(2)));
        assert!(mixed.number("cold").unwrap_err().contains("whole number"));
        assert!(mixed.allow_only(&["threads"]).unwrap_err().contains("'cold'"));
    }

    #[test]
    fn errors_say_what_is_accepted() {
        for (text, part) in [
            ("mmap:fast/threads:n=1", "one of"),
            ("reed/threads:n=1", "one of read"),
            ("walk:statx/threads", "KEY=VALUE"),
            ("walk:statx/a=1,a=2", "twice"),
            ("walk:/a=1", "must consist of a-z"),
            ("walk:statx/a=b c", "letters, digits"),
        ] {
            let error = text.parse::<AnyPlan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "[a-z:/=,0-9]{0,40}") {
            if let Ok(plan) = text.parse::<AnyPlan>() {
                prop_assert_eq!(plan.to_string().parse::<AnyPlan>().unwrap(), plan);
            }
        }
    }
}
