//! The memory budget.

use crate::setup::{filled, only_error, read, small, store};
use ioloom_bucket::{Contents, Law, Server, pattern};
use ioloom_objects::{Kind, ObjectError, Options, Piece, Work, WorkError, run};
use std::time::Duration;

#[test]
fn empty_objects_count_towards_the_budget() {
    let (server, all) = filled(Law::default(), 200, |_| 0);
    let options = Options { memory: 1 << 16, ..small() };
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    assert_eq!(mapped.values.len(), all.len());
    let peak = mapped.run.measured.budget_peak_bytes;
    assert!((1 << 10..=1 << 16).contains(&peak), "{peak}");
}

#[test]
fn a_budget_below_the_least_one_counts_as_that() {
    let (server, all) = filled(Law::default(), 20, |_| 1000);
    let options = Options { memory: 1, ..small() };
    let mapped = read(&store(&server, "s3://bucket/dir/"), &options);
    assert_eq!((mapped.values.len(), mapped.errors.len()), (all.len(), 0));
}

#[test]
fn too_large_objects_fail_alone() {
    let (server, _) = filled(Law::default(), 4, |number| if number == 1 { 400_000 } else { 1000 });
    let mapped = read(&store(&server, "s3://bucket/dir/"), &small());
    assert_eq!(mapped.values.len(), 3);
    let error = only_error(&mapped);
    assert_eq!(error.kind, Kind::Memory, "{error}");
}

/// Compares objects with the pattern of the server.
struct Compare;

impl Work for Compare {
    type State = u64;
    type Local = (u64, Vec<String>);

    fn local(&self) -> Self::Local {
        Self::Local::default()
    }

    fn begin(&self, _: usize, _: &str) -> u64 {
        0
    }

    fn piece(&self, len: &mut u64, piece: Piece<'_>) -> Result<(), WorkError> {
        assert_eq!(*len, piece.offset);
        let mut expected = vec![0; piece.bytes.len()];
        pattern(piece.offset, &mut expected);
        *len += piece.bytes.len() as u64;
        if piece.bytes == expected { Ok(()) } else { Err("wrong bytes".into()) }
    }

    fn finish(
        &self,
        local: &mut Self::Local,
        len: u64,
        _: usize,
        _: &str,
    ) -> Result<(), WorkError> {
        local.0 += len;
        Ok(())
    }

    fn function_failed(&self, local: &mut Self::Local, _: usize, url: &str, error: WorkError) {
        local.1.push(format!("{url}: {error}"));
    }

    fn failed(&self, local: &mut Self::Local, _: Option<usize>, error: &ObjectError) {
        local.1.push(error.to_string());
    }
}

/// The example `large` does this with ten objects of 1 GiB and measures the memory of the process.
#[test]
fn objects_far_larger_than_the_budget_are_read_in_parallel_ranges() {
    let law = Law { latency: (Duration::from_millis(2), 0.5), ..Law::default() };
    let server = Server::start(law);
    for number in 0..3 {
        server.put(&format!("o/{number}"), Contents::pattern((20 << 20) + number));
    }
    let options = Options { memory: 4 << 20, threads: 2, ..Options::default() };
    let run = run(&store(&server, "s3://bucket/o/"), &options, &Compare).unwrap();
    let errors: Vec<_> = run.locals.iter().flat_map(|local| &local.1).collect();
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(run.locals.iter().map(|local| local.0).sum::<u64>(), 3 * (20 << 20) + 3);
    assert!(run.measured.budget_peak_bytes <= 4 << 20, "{}", run.measured.budget_peak_bytes);
    // More than the objects, so there were several ranges of one at the same time.
    assert!(server.counts().in_flight_max > 3, "{:?}", server.counts());
}
