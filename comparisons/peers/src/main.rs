//! `peer`: one program for all peers; reads and hashes every file and prints one JSON line.
//!
//! `elapsed_ns` runs from just before the first open to the last hash. It excludes preparing the
//! list, the pool or the runtime, but includes starting plain threads. The CPU times cover the same
//! span. `walk_ns` is the time to create the list.

use clap::{Args, Parser, Subcommand};
use ioloom_peers::tokio_fs::Form;
use ioloom_peers::usage::{CpuTime, peak_rss_bytes};
use ioloom_peers::{
    FileList, PeerError, Totals, Walker, leanest, mapped, rayon_pool, read_loop, std_threads,
    tokio_fs,
};
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Reads every regular file below a directory, computes XXH3-64 and prints one JSON line.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    peer: Peer,
}

#[derive(Args)]
struct Input {
    /// The directory.
    dir: PathBuf,
    /// Files to read, relative to DIR, terminated by newlines or NULs (default: walk DIR).
    #[arg(long, value_name = "FILE", conflicts_with = "walk")]
    list: Option<PathBuf>,
    /// The walker for DIR.
    #[arg(long, value_enum, default_value = "walkdir")]
    walk: Walker,
}

#[derive(Args)]
struct Threads {
    #[command(flatten)]
    input: Input,
    /// Number of threads.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: u16,
}

#[derive(Args)]
struct Buffer {
    /// Buffer size per thread in KiB.
    #[arg(long, default_value = "256", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    buffer_kib: u32,
}

#[derive(Subcommand)]
enum Peer {
    /// rayon par_iter and std::fs::read.
    Rayon(Threads),
    /// Plain threads over a shared index and std::fs::read.
    StdThreads(Threads),
    /// tokio::fs::read.
    Tokio {
        #[command(flatten)]
        input: Input,
        /// Files in flight.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
        concurrency: u32,
        /// Tasks with a semaphore, or a stream with buffer_unordered.
        #[arg(long, value_enum, default_value = "tasks")]
        form: Form,
    },
    /// One thread with one buffer: open, read, close.
    ReadLoop {
        #[command(flatten)]
        input: Input,
        #[command(flatten)]
        buffer: Buffer,
    },
    /// The minimum of system calls: the floor, not a peer.
    Leanest {
        #[command(flatten)]
        threads: Threads,
        #[command(flatten)]
        buffer: Buffer,
        /// Also hash the bytes.
        #[arg(long)]
        hash: bool,
    },
    /// memmap2.
    Mmap(Threads),
}

struct Run {
    peer: &'static str,
    params: Value,
    totals: Totals,
    has_digest: bool,
    elapsed_ns: u64,
    walk_ns: u64,
    cpu: CpuTime,
}

fn main() -> ExitCode {
    let outcome = run(Cli::parse().peer).and_then(|run| Ok((line(&run)?, run)));
    match outcome {
        Ok((line, _)) => match writeln!(std::io::stdout(), "{line}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(e) => {
            // If stderr is closed too, there is no one to report to.
            let _ = writeln!(std::io::stderr(), "peer: {e}");
            ExitCode::FAILURE
        }
    }
}

fn line(run: &Run) -> Result<Value, PeerError> {
    Ok(json!({
        "peer": run.peer,
        "params": run.params,
        "files": run.totals.files,
        "bytes": run.totals.bytes,
        "digest": run.has_digest.then(|| run.totals.hex()),
        "elapsed_ns": run.elapsed_ns,
        "walk_ns": run.walk_ns,
        "cpu_user_ns": run.cpu.user_ns,
        "cpu_kernel_ns": run.cpu.kernel_ns,
        "peak_rss": peak_rss_bytes()?,
    }))
}

fn run(peer: Peer) -> Result<Run, PeerError> {
    match peer {
        Peer::Rayon(Threads { input, threads }) => {
            let (list, walk_ns) = files(&input)?;
            let pool = rayon_pool::pool(usize::from(threads))?;
            timed("rayon", json!({ "threads": threads }), walk_ns, || rayon_pool::run(&list, &pool))
        }
        Peer::StdThreads(Threads { input, threads }) => {
            let (list, walk_ns) = files(&input)?;
            timed("std-threads", json!({ "threads": threads }), walk_ns, || {
                std_threads::run(&list, usize::from(threads))
            })
        }
        Peer::Tokio { input, concurrency, form } => {
            let (list, walk_ns) = files(&input)?;
            let (list, runtime) = (Arc::new(list), tokio_fs::runtime()?);
            let name = if form == Form::Tasks { "tokio" } else { "tokio-stream" };
            timed(name, json!({ "concurrency": concurrency }), walk_ns, || {
                tokio_fs::run(&list, &runtime, concurrency, form)
            })
        }
        Peer::ReadLoop { input, buffer } => {
            let (list, walk_ns) = files(&input)?;
            timed("read-loop", json!({ "buffer_kib": buffer.buffer_kib }), walk_ns, || {
                read_loop::run(&list, buffer.buffer_kib as usize * 1024)
            })
        }
        Peer::Leanest { threads: Threads { input, threads }, buffer, hash } => {
            let (list, walk_ns) = files(&input)?;
            let names = leanest::Names::of(&list)?;
            let kib = buffer.buffer_kib;
            let params = json!({ "threads": threads, "buffer_kib": kib, "hash": hash });
            let mut run = timed("leanest", params, walk_ns, || {
                leanest::run(&list, &names, usize::from(threads), kib as usize * 1024, hash)
            })?;
            run.has_digest = hash;
            Ok(run)
        }
        Peer::Mmap(Threads { input, threads }) => {
            let (list, walk_ns) = files(&input)?;
            timed("mmap", json!({ "threads": threads }), walk_ns, || {
                mapped::run(&list, usize::from(threads))
            })
        }
    }
}

fn files(input: &Input) -> Result<(FileList, u64), PeerError> {
    let start = Instant::now();
    let list = match &input.list {
        Some(list) => FileList::read(&input.dir, list)?,
        None => FileList::walk(&input.dir, input.walk)?,
    };
    Ok((list, nanos_since(start)))
}

fn timed(
    peer: &'static str,
    params: Value,
    walk_ns: u64,
    work: impl FnOnce() -> Result<Totals, PeerError>,
) -> Result<Run, PeerError> {
    let cpu_start = CpuTime::now()?;
    let start = Instant::now();
    let totals = work()?;
    let elapsed_ns = nanos_since(start);
    let cpu = CpuTime::now()?.since(cpu_start);
    Ok(Run { peer, params, totals, has_digest: true, elapsed_ns, walk_ns, cpu })
}

fn nanos_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
