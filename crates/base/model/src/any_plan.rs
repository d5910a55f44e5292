//! The plan of an arm, whatever the subject.
//!
//! Plans over files have a type of their own ([`Plan`]), because the engine runs them and the table
//! of methods and schedules refuses what cannot be. Every other subject has words and settings of
//! its own, which only its adapter understands: [`SubjectPlan`], spelled
//! `SUBJECT:METHOD[/KEY=VALUE,…]`, such as `walk:statx/threads=16`. So a new subject needs no
//! change here. What begins with a method over files is read as a plan over files.

use crate::units::{format_size, parse_size};
use crate::{Method, ParseError, Plan, Schedule, spelled};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// Words of a subject: what to do, and with which settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectPlan {
    /// The subject, such as `walk`.
    pub subject: String,
    /// What it does.
    pub method: String,
    /// Settings by name; all are shown, in the order of their names.
    pub settings: BTreeMap<String, String>,
}

impl SubjectPlan {
    /// A setting as a whole number; `None` if it is not set.
    ///
    /// # Errors
    /// It is set to something else, as a sentence.
    pub fn number(&self, key: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.settings.get(key) else { return Ok(None) };
        let wrong = |_| format!("{self}: {key} must be a whole number");
        text.parse().map(Some).map_err(wrong)
    }

    /// A setting that counts things: 1 to `most`.
    ///
    /// # Errors
    /// If it is not such a number.
    pub fn count(&self, key: &str, most: u64) -> Result<Option<u64>, String> {
        match self.number(key)? {
            Some(n) if n == 0 || n > most => Err(format!("{self}: {key} is 1 to {most}")),
            n => Ok(n),
        }
    }

    /// A setting that is a size in bytes: a multiple of 4 KiB, at most `most`.
    ///
    /// # Errors
    /// If it is not such a size.
    pub fn size(&self, key: &str, most: u64) -> Result<Option<u64>, String> {
        let Some(text) = self.settings.get(key) else { return Ok(None) };
        let found = parse_size(text).map_err(|e| format!("{self}: {key}: {e}"))?;
        if !(4096..=most).contains(&found) || !found.is_multiple_of(4096) {
            let most = format_size(most);
            return Err(format!("{self}: {key} is a multiple of 4 KiB, at most {most}"));
        }
        Ok(Some(found))
    }

    /// A setting that is one of some words; `usual` where it is not given.
    ///
    /// # Errors
    /// If it is another word, with those there are.
    pub fn choice<T: Copy>(&self, key: &str, usual: T, known: &[(&str, T)]) -> Result<T, String> {
        let Some(text) = self.settings.get(key) else { return Ok(usual) };
        known.iter().find(|(word, _)| word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
            format!("{self}: {key} is one of {}", words.join(", "))
        })
    }

    /// Refuses settings that the subject does not know.
    ///
    /// # Errors
    /// The first unknown setting, with those there are.
    pub fn allow_only(&self, known: &[&str]) -> Result<(), String> {
        match self.settings.keys().find(|key| !known.contains(&key.as_str())) {
            None => Ok(()),
            Some(key) => {
                Err(format!("{self}: no setting '{key}'; there are: {}", known.join(", ")))
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
                return Err(refuse("subject, method and settings are words of a-z, 0-9 and '-'"));
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
                .ok_or_else(|| refuse("a setting is KEY=VALUE, as in threads=4"))?;
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:+%".contains(c);
            if value.is_empty() || !value.chars().all(plain) {
                return Err(refuse("a value is made of letters, digits and -_.:+%"));
            }
            if settings.insert(word(key)?, value.to_owned()).is_some() {
                return Err(refuse("a setting is given twice"));
            }
        }
        Ok(Self { subject: word(subject)?, method: word(method)?, settings })
    }
}

/// The plan of an arm.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum AnyPlan {
    /// Over files, run by the engine.
    Files(Plan),
    /// Of another subject.
    Subject(SubjectPlan),
}

impl AnyPlan {
    /// The plan over files, if it is one.
    pub const fn files(&self) -> Option<&Plan> {
        match self {
            Self::Files(plan) => Some(plan),
            Self::Subject(_) => None,
        }
    }

    /// The words of a subject, if it is one of that subject.
    pub fn for_subject(&self, subject: &str) -> Option<&SubjectPlan> {
        match self {
            Self::Subject(plan) if plan.subject == subject => Some(plan),
            _ => None,
        }
    }

    /// The subject: `files` for plans over files.
    pub fn subject(&self) -> &str {
        match self {
            Self::Files(_) => "files",
            Self::Subject(plan) => &plan.subject,
        }
    }

    /// Fills in what the text left open, for so many usable cores.
    #[must_use]
    pub fn complete(self, usable_cores: u32) -> Self {
        match self {
            Self::Files(plan) => Self::Files(plan.complete(usable_cores)),
            other => other,
        }
    }

    /// Number of threads of a ladder: of plain threads over files, or the setting `threads`.
    pub fn plain_threads(&self) -> Option<u32> {
        match self {
            Self::Files(Plan { schedule: Schedule::Threads { n }, .. }) => Some(*n),
            Self::Files(_) => None,
            Self::Subject(plan) => plan.settings.get("threads")?.parse().ok(),
        }
    }

    /// How many threads run user code or block on its behalf, as far as the plan says.
    pub fn threads(&self) -> u32 {
        match self {
            Self::Files(plan) => plan.threads(),
            Self::Subject(_) => self.plain_threads().unwrap_or(1),
        }
    }

    /// Whether it is the null method, which does the same without the work.
    pub fn is_null(&self) -> bool {
        match self {
            Self::Files(plan) => plan.method == Method::Null,
            Self::Subject(plan) => plan.method == "null",
        }
    }

    /// The method as spelled.
    pub fn method(&self) -> String {
        match self {
            Self::Files(plan) => plan.method.to_string(),
            Self::Subject(plan) => format!("{}:{}", plan.subject, plan.method),
        }
    }

    /// How simple it is among plans of its kind, smallest first: plain reads by one thread come
    /// before all else; of other subjects the fewest threads and the fewest settings.
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

spelled!(SubjectPlan);
spelled!(AnyPlan);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plans_of_every_subject_read_back_as_spelled() {
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
    fn wrong_plans_say_what_is_right() {
        for (text, part) in [
            ("mmap:fast/threads:n=1", "one of"),
            ("reed/threads:n=1", "one of read"),
            ("walk:statx/threads", "KEY=VALUE"),
            ("walk:statx/a=1,a=2", "twice"),
            ("walk:/a=1", "words of"),
            ("walk:statx/a=b c", "letters, digits"),
        ] {
            let error = text.parse::<AnyPlan>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[a-z:/=,0-9]{0,40}") {
            if let Ok(plan) = text.parse::<AnyPlan>() {
                prop_assert_eq!(plan.to_string().parse::<AnyPlan>().unwrap(), plan);
            }
        }
    }
}
