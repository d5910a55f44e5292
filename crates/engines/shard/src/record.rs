//! The results of the files of one shard, as lines in the order of its manifest.
//!
//! `ok BYTES XXH3 HASH` for a processed file, with `-` for what the work does not compute, and
//! `failed gone MESSAGE` or `failed - MESSAGE` with the message as a JSON string.

use std::io::Write;

/// The result of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// It was processed.
    Done {
        /// Bytes that were passed to the work.
        bytes: u64,
        /// XXH3-64 of the contents, for the digest over all files.
        xxh3: Option<u64>,
        /// The requested hash in hexadecimal digits.
        hash: Option<String>,
    },
    /// It failed.
    Failed {
        /// Whether it does not exist.
        gone: bool,
        /// Why.
        message: String,
    },
}

/// Returns the lines of records.
pub fn encode<'a>(records: impl Iterator<Item = &'a Record>) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        // Writing to memory cannot fail.
        let _ = match record {
            Record::Done { bytes, xxh3, hash } => {
                let xxh3 = xxh3.map_or_else(|| "-".to_owned(), |xxh3| format!("{xxh3:016x}"));
                writeln!(out, "ok {bytes} {xxh3} {}", hash.as_deref().unwrap_or("-"))
            }
            Record::Failed { gone, message } => {
                let message = serde_json::Value::from(message.as_str());
                writeln!(out, "failed {} {message}", if *gone { "gone" } else { "-" })
            }
        };
    }
    out
}

/// Parses lines of records. Returns `None` if a line is not a record.
pub fn decode(body: &[u8]) -> Option<Vec<Record>> {
    let text = std::str::from_utf8(body).ok()?;
    text.lines().map(line).collect()
}

fn line(line: &str) -> Option<Record> {
    if let Some(rest) = line.strip_prefix("failed ") {
        let (gone, message) = rest.split_once(' ')?;
        let gone = match gone {
            "gone" => true,
            "-" => false,
            _ => return None,
        };
        return Some(Record::Failed { gone, message: serde_json::from_str(message).ok()? });
    }
    let mut words = line.strip_prefix("ok ")?.split(' ');
    let bytes = words.next()?.parse().ok()?;
    let xxh3 = match words.next()? {
        "-" => None,
        digits => Some(u64::from_str_radix(digits, 16).ok()?),
    };
    let hash = Some(words.next()?).filter(|hash| *hash != "-").map(str::to_owned);
    words.next().is_none().then_some(Record::Done { bytes, xxh3, hash })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = Record> {
        let done = (any::<u64>(), any::<Option<u64>>(), proptest::option::of("[0-9a-f]{8,40}"));
        let done = done.prop_map(|(bytes, xxh3, hash)| Record::Done { bytes, xxh3, hash });
        let failed = (any::<bool>(), any::<String>());
        prop_oneof![done, failed.prop_map(|(gone, message)| Record::Failed { gone, message })]
    }

    proptest! {
        #[test]
        fn records_are_read_as_written(records in proptest::collection::vec(any_record(), 0..20)) {
            let text = encode(records.iter());
            prop_assert_eq!(decode(&text).unwrap(), records);
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for wrong in [
            "ok",
            "ok 1",
            "ok 1 -",
            "ok x - -",
            "ok 1 - - -",
            "failed",
            "failed x \"\"",
            "failed - \"",
            "",
            "done 1 - -",
        ] {
            assert_eq!(decode(format!("{wrong}\n").as_bytes()), None, "{wrong}");
        }
    }
}
