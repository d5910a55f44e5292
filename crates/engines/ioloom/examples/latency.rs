//! Measures what a caller waits for in short and streamed runs.
//!
//! `cargo run --release --example latency -- DIR [ROUNDS]` writes 64 files into the new directory
//! `DIR` and prints one JSON line per round, all in nanoseconds:
//!
//! - `reads_of_two` and `run_of_two`: two files by [`std::fs::read`] and by a run, in an order that
//!   alternates, after the process has slept;
//! - `run_of_two_again`: the same run directly after that, when no processor has to wake up first;
//! - `empty_thread`: a scoped thread that does nothing, from its start to its end, after the process
//!   has slept: what the system takes for a thread;
//! - `first_result`: from the first path of a producer that sends one every 10 ms to its result;
//! - `next_result`: from a later path of the same producer to its result, the worst of 20;
//! - `cancelled`: from [`Cancel::cancel`](ioloom::Cancel::cancel) to the return of a run whose
//!   producer waits for ever.
//!
//! All files are in the page cache. The last line is a summary: median, 95th percentile, and maximum.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use serde_json::{Value, json};
use std::error::Error;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const FIELDS: [&str; 7] = [
    "reads_of_two",
    "run_of_two",
    "run_of_two_again",
    "empty_thread",
    "first_result",
    "next_result",
    "cancelled",
];

fn main() -> Result<()> {
    let mut args = std::env::args_os().skip(1);
    let dir = PathBuf::from(args.next().ok_or("usage: latency DIR [ROUNDS]")?);
    let rounds: usize = args.next().map_or(Ok(200), |n| n.to_string_lossy().parse())?;
    std::fs::create_dir(&dir)?;
    let paths: Vec<PathBuf> = (0..64).map(|n| dir.join(format!("{n:02}"))).collect();
    for path in &paths {
        std::fs::write(path, vec![b'x'; 4096])?;
    }
    let mut lines = Vec::new();
    for round in 0..rounds {
        let line = measure(&paths, round)?;
        println!("{line}");
        lines.push(line);
    }
    println!("{}", summary(&lines));
    Ok(())
}

fn measure(paths: &[PathBuf], round: usize) -> Result<Value> {
    let two = &paths[..2];
    let (mut reads, mut run, mut again) = (0, 0, 0);
    let run_of_two = || Ok(ioloom::list(two).map(|f| f.len()).sum::<u64>()?);
    for step in 0..2 {
        if (round + step).is_multiple_of(2) {
            reads = ns(|| {
                two.iter()
                    .map(|p| Ok::<u64, std::io::Error>(std::fs::read(p)?.len() as u64))
                    .sum::<std::io::Result<u64>>()
                    .map_err(Into::into)
            })?;
        } else {
            run = ns(run_of_two)?;
            again = ns(run_of_two)?;
        }
    }
    let (first, next) = results(paths)?;
    Ok(json!({
        "round": round,
        "reads_of_two": reads,
        "run_of_two": run,
        "run_of_two_again": again,
        "empty_thread": empty_thread(),
        "first_result": first,
        "next_result": next,
        "cancelled": cancelled(paths)?,
    }))
}

/// Returns how long a scoped thread without work takes.
fn empty_thread() -> u64 {
    thread::sleep(Duration::from_millis(10));
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| std::hint::black_box(()));
    });
    start.elapsed().as_nanos() as u64
}

/// Returns how long `work` took. It must have counted the bytes of two files.
fn ns(work: impl FnOnce() -> Result<u64>) -> Result<u64> {
    let start = Instant::now();
    let bytes = work()?;
    let elapsed = start.elapsed();
    if bytes != 2 * 4096 {
        return Err(format!("{bytes} bytes of two files").into());
    }
    Ok(elapsed.as_nanos() as u64)
}

/// Returns the times from path to result: of the first path, and the worst of the 20 after it.
fn results(paths: &[PathBuf]) -> Result<(u64, u64)> {
    let (send, receive) = channel::<PathBuf>();
    let run = ioloom::files(receive).map(|f| f.len()).scope(|results| -> Result<Vec<u64>> {
        paths[..21]
            .iter()
            .map(|path| {
                thread::sleep(Duration::from_millis(10));
                let start = Instant::now();
                send.send(path.clone())?;
                results.next().ok_or("the run ended early")??;
                Ok(start.elapsed().as_nanos() as u64)
            })
            .collect()
    })?;
    let times = run.value?;
    Ok((times[0], times[1..].iter().copied().max().unwrap_or_default()))
}

/// Returns the time from the cancellation to the return of a run.
fn cancelled(paths: &[PathBuf]) -> Result<u64> {
    let (send, receive) = channel::<PathBuf>();
    for path in paths {
        send.send(path.clone())?;
    }
    let cancel = ioloom::Cancel::new();
    let canceller = thread::spawn({
        let cancel = cancel.clone();
        move || {
            thread::sleep(Duration::from_millis(30));
            let start = Instant::now();
            cancel.cancel();
            start
        }
    });
    let outcome = ioloom::files(receive).cancel(&cancel).for_each(|_| ());
    let end = Instant::now();
    let start = canceller.join().map_err(|_| "the cancelling thread panicked")?;
    drop(send);
    match outcome {
        Err(ioloom::Error::Cancelled { .. }) => Ok((end - start).as_nanos() as u64),
        other => Err(format!("the run was not cancelled: {other:?}").into()),
    }
}

fn summary(lines: &[Value]) -> Value {
    let mut out = json!({ "rounds": lines.len() });
    for field in FIELDS {
        let mut values: Vec<u64> = lines.iter().filter_map(|line| line[field].as_u64()).collect();
        values.sort_unstable();
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        out[field] = json!({ "median_ns": at(0.5), "p95_ns": at(0.95), "max_ns": at(1.0) });
    }
    out
}
