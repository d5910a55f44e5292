//! fio on the same files: the reference for large files.
//!
//! Every job gets separate files, balanced by size, and reads them one after another in 1 MiB
//! blocks. fio does not hash and ignores the contents, so our hashing arms do more work. fio reads
//! only whole blocks: a file set with other sizes is only partly read, and such a run is recorded
//! as failed because it did different work.

use crate::cli::Condition;
use crate::set::FileSet;
use anyhow::{Result, bail};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const DEFAULT: &str = "psync:1x1,psync:4x1,psync:16x1,psync-direct:4x1,psync-direct:16x1,\
    uring:1x8,uring:1x32,uring:2x32,uring-direct:1x8,uring-direct:1x32,uring-direct:2x32";

/// The kernel accepts at most 128 KiB in one argument.
const ARGUMENT_BYTES_MAX: usize = 128 * 1024 - 16;

/// A command with its display form, or the reason why it cannot run on this file set.
type Outcome = Result<(Vec<OsString>, Vec<String>), String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    engine: &'static str,
    direct: bool,
    jobs: usize,
    depth: u32,
}

/// Returns the arms of a grid by name.
pub(crate) fn arms(
    grid: &str,
    set: &FileSet,
    condition: Condition,
) -> Result<Vec<(String, Outcome)>> {
    let grid = if grid == "default" { DEFAULT } else { grid };
    grid.split(',')
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(|text| Ok((format!("fio-{text}"), command(parse(text)?, set, condition))))
        .collect()
}

fn parse(text: &str) -> Result<Spec> {
    let parts = text.split_once(':').and_then(|(engine, shape)| {
        let (jobs, depth) = shape.split_once('x')?;
        let (engine, direct) = match engine {
            "psync" => ("psync", false),
            "psync-direct" => ("psync", true),
            "uring" => ("io_uring", false),
            "uring-direct" => ("io_uring", true),
            _ => return None,
        };
        Some(Spec { engine, direct, jobs: jobs.parse().ok()?, depth: depth.parse().ok()? })
    });
    match parts {
        Some(spec) if spec.jobs > 0 && spec.depth > 0 => Ok(spec),
        _ => bail!(
            "--fio {text}: expected ENGINE:JOBSxDEPTH with psync, psync-direct, uring or \
            uring-direct"
        ),
    }
}

fn command(spec: Spec, set: &FileSet, condition: Condition) -> Outcome {
    if spec.direct && condition == Condition::Warm {
        return Err("direct reads bypass the cache; they cannot be warm".to_owned());
    }
    if set.paths().len() < spec.jobs {
        return Err(format!("{} jobs for {} files", spec.jobs, set.paths().len()));
    }
    let mut argv: Vec<OsString> = [
        "fio",
        "--output-format=json",
        "--readonly",
        "--allow_file_create=0",
        "--thread",
        "--rw=read",
        "--bs=1M",
        // The runner creates and proves the condition.
        "--invalidate=0",
        "--file_service_type=sequential",
    ]
    .map(OsString::from)
    .to_vec();
    argv.push(format!("--ioengine={}", spec.engine).into());
    argv.push(format!("--iodepth={}", spec.depth).into());
    argv.push(format!("--direct={}", u8::from(spec.direct)).into());
    let mut shown: Vec<String> = argv.iter().map(|w| w.to_string_lossy().into_owned()).collect();
    for (job, files) in shares(set.sizes(), spec.jobs).iter().enumerate() {
        let names: Vec<Vec<u8>> =
            files.iter().map(|i| escape(set.paths()[*i].as_os_str().as_bytes())).collect();
        let argument = [b"--filename=".as_slice(), &names.join(&b':')].concat();
        if argument.len() > ARGUMENT_BYTES_MAX {
            return Err("the names exceed the command line; fio is for few, large files".into());
        }
        argv.push(format!("--name=job{job}").into());
        argv.push(OsString::from_vec(argument));
        shown.push(format!("--name=job{job}"));
        shown.push(format!("--filename={{{} files}}", files.len()));
    }
    Ok((argv, shown))
}

/// Distributes files over jobs: the largest first, each to the job with the fewest bytes.
fn shares(sizes: &[u64], jobs: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|i| std::cmp::Reverse(sizes[*i]));
    let mut shares = vec![(0, Vec::new()); jobs];
    for file in order {
        // A file counts as at least one byte, so empty files are also distributed.
        if let Some(least) = shares.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            least.0 += sizes[file].max(1);
            least.1.push(file);
        }
    }
    shares.into_iter().map(|(_, files)| files).collect()
}

/// Escapes a name: fio separates names by colons and treats a backslash as an escape.
fn escape(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for byte in name {
        if matches!(byte, b':' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*byte);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_understood() {
        for text in DEFAULT.split(',').map(str::trim) {
            parse(text).expect(text);
        }
        let want = Spec { engine: "io_uring", direct: true, jobs: 2, depth: 32 };
        assert_eq!(parse("uring-direct:2x32").expect("known"), want);
        for bad in ["psync", "psync:1", "libaio:1x1", "psync:0x1", "uring:1x0"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_file_goes_to_one_job_and_jobs_are_even() {
        let sizes = [5, 1, 4, 0, 3, 3];
        let shares = shares(&sizes, 3);
        let mut all = shares.concat();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4, 5]);
        let sums: Vec<u64> = shares.iter().map(|s| s.iter().map(|i| sizes[*i]).sum()).collect();
        assert!(sums.iter().all(|sum| (4..=7).contains(sum)), "{sums:?}");
    }

    #[test]
    fn colons_in_names_are_kept() {
        assert_eq!(escape(b"/a:b\\c"), b"/a\\:b\\\\c");
    }
}
