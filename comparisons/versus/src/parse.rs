//! Parses the output of an arm: its own time, and proof that it did the work.

use crate::arms::Reply;
use crate::cli::Fields;
use crate::set::FileSet;
use serde_json::Value;

/// The figures reported by an arm.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) elapsed_ns: Option<u64>,
    pub(crate) files: Option<u64>,
    pub(crate) bytes: Option<u64>,
    pub(crate) digest: Option<String>,
    pub(crate) peak_rss_bytes: Option<u64>,
}

/// The contents of the file set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Job {
    pub(crate) fn of(set: &FileSet) -> Self {
        Self { files: set.totals.files, bytes: set.totals.bytes }
    }
}

/// Parses the output of an arm; the second value is the reason if it did not do the work.
pub(crate) fn read(reply: &Reply, stdout: &[u8], job: Job) -> (Said, Option<String>) {
    let text = String::from_utf8_lossy(stdout);
    // fio prints notes before its document.
    let document = match reply {
        Reply::Fio => text.find("{\n").map_or("", |start| &text[start..]),
        _ => &text,
    };
    let value: Value = match serde_json::from_str(document.trim()) {
        Ok(value) => value,
        Err(e) => {
            return (Said::default(), Some(format!("its output is not a JSON document: {e}")));
        }
    };
    match reply {
        Reply::Ours { fields, digest } => {
            let said = by_fields(&value, fields);
            let failure = check(&said, digest.as_deref(), job);
            (said, failure)
        }
        Reply::Peer { digest } => {
            let said = by_fields(&value, &peer_fields());
            let failure = check(&said, digest.as_deref(), job);
            (said, failure)
        }
        Reply::Fio => {
            let said = of_fio(&value);
            let failure = match said.bytes {
                Some(bytes) if bytes == job.bytes => None,
                Some(bytes) => Some(format!(
                    "fio read {bytes} of {} bytes; make the sizes multiples of 1 MiB",
                    job.bytes
                )),
                None => Some("fio's output contains no jobs".to_owned()),
            };
            (said, failure)
        }
    }
}

fn peer_fields() -> Fields {
    Fields {
        elapsed: "elapsed_ns".to_owned(),
        files: "files".to_owned(),
        bytes: "bytes".to_owned(),
        digest: "digest".to_owned(),
        peak: "peak_rss".to_owned(),
    }
}

fn by_fields(value: &Value, fields: &Fields) -> Said {
    Said {
        elapsed_ns: at(value, &fields.elapsed).and_then(whole),
        files: at(value, &fields.files).and_then(whole),
        bytes: at(value, &fields.bytes).and_then(whole),
        digest: at(value, &fields.digest).and_then(Value::as_str).map(str::to_owned),
        peak_rss_bytes: at(value, &fields.peak).and_then(whole),
    }
}

/// Returns a field by its name; dots select nested objects.
fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key))
}

fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|v| *v >= 0.0).map(|v| v as u64))
}

fn check(said: &Said, digest: Option<&str>, job: Job) -> Option<String> {
    let wrong =
        |what: &str, have: String, want: String| Some(format!("{what} {have}, expected {want}"));
    match said.files {
        Some(files) if files == job.files => {}
        have => return wrong("files", shown(have), job.files.to_string()),
    }
    match said.bytes {
        Some(bytes) if bytes == job.bytes => {}
        have => return wrong("bytes", shown(have), job.bytes.to_string()),
    }
    match (digest, &said.digest) {
        (Some(want), have) if have.as_deref() != Some(want) => {
            wrong("digest", shown(have.clone()), want.to_owned())
        }
        _ => None,
    }
}

fn shown(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "not in its JSON (name the field)".to_owned(), |v| v.to_string())
}

/// The time is the longest job's, which fio reports in milliseconds; bytes are summed over jobs.
fn of_fio(value: &Value) -> Said {
    let Some(jobs) = value.get("jobs").and_then(Value::as_array).filter(|j| !j.is_empty()) else {
        return Said::default();
    };
    let each = |name: &str| -> Vec<u64> {
        jobs.iter().filter_map(|job| job.get("read")?.get(name)?.as_u64()).collect()
    };
    let longest_ms = each("runtime").into_iter().max();
    Said {
        elapsed_ns: longest_ms.filter(|ms| *ms > 0).map(|ms| ms * 1_000_000),
        bytes: Some(each("io_bytes").iter().sum()),
        ..Said::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = Job { files: 2, bytes: 10 };

    fn ours(elapsed: &str) -> Reply {
        let fields = Fields {
            elapsed: elapsed.to_owned(),
            files: "measured.files".to_owned(),
            bytes: "measured.bytes".to_owned(),
            digest: "measured.digest".to_owned(),
            peak: "absent".to_owned(),
        };
        Reply::Ours { fields, digest: Some("ab".to_owned()) }
    }

    #[test]
    fn nested_fields_of_ours_are_found_and_checked() {
        let good = br#"{"measured":{"ns":7,"files":2,"bytes":10,"digest":"ab"}}"#;
        let (said, failure) = read(&ours("measured.ns"), good, JOB);
        assert_eq!((said.elapsed_ns, said.peak_rss_bytes, failure), (Some(7), None, None));
        for (bad, word) in [
            (r#"{"measured":{"files":1,"bytes":10,"digest":"ab"}}"#, "files 1"),
            (r#"{"measured":{"files":2,"bytes":9,"digest":"ab"}}"#, "bytes 9"),
            (r#"{"measured":{"files":2,"bytes":10,"digest":"cd"}}"#, "digest cd"),
            (r#"{"measured":{"files":2,"bytes":10}}"#, "digest not"),
            (r#"{"files":2}"#, "files not"),
            ("", "not a JSON"),
        ] {
            let (_, failure) = read(&ours("measured.ns"), bad.as_bytes(), JOB);
            assert!(failure.as_ref().is_some_and(|f| f.contains(word)), "{bad}: {failure:?}");
        }
    }

    #[test]
    fn fio_must_have_read_everything() {
        let text = br#"note: something
{
  "jobs": [{"read": {"runtime": 12, "io_bytes": 6}}, {"read": {"runtime": 15, "io_bytes": 4}}]
}"#;
        let (said, failure) = read(&Reply::Fio, text, JOB);
        assert_eq!((said.elapsed_ns, said.bytes, failure), (Some(15_000_000), Some(10), None));
        let more = Job { files: 2, bytes: 11 };
        assert!(read(&Reply::Fio, text, more).1.is_some_and(|f| f.contains("10 of 11")));
    }
}
