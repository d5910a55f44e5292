//! Measures the cost of sampling counters, in processor time of the sampling thread.
//!
//! `counters_cost [HZ] [SECONDS]` takes samples and prints a JSON document: processor time, sample
//! durations, late samples. `counters_cost sources [ROUNDS]` prints the cost of waking up and of
//! reading each source, for a thread that sleeps 10 ms before each one, in sequence within each
//! round as a sampler does; also the cost of reading a source again immediately.
//!
//! ```text
//! cargo run --release -p ioloom-observe --example counters_cost -- 100 30
//! cargo run --release -p ioloom-observe --example counters_cost -- sources 200
//! ```

#![allow(clippy::print_stdout, reason = "the example prints its result")]

use ioloom_observe::counters::{Reader, Sampler, SamplerOptions, Scope};
use ioloom_sys::clock::thread_cpu_ns;
use ioloom_sys::proc::ProcFile;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Sleep before each reading.
const NAP: Duration = Duration::from_millis(10);
/// The sources, with the number of bytes to read from each.
const SOURCES: &[(&str, &str, usize)] = &[
    ("vmstat, whole", "/proc/vmstat", 32 << 10),
    ("vmstat, first 1400 bytes", "/proc/vmstat", 1400),
    ("meminfo", "/proc/meminfo", 16 << 10),
    ("pressure of io", "/proc/pressure/io", 512),
    ("all block devices", "/proc/diskstats", 16 << 10),
    ("input and output of this process", "/proc/self/io", 512),
];

fn main() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, usual: u64| {
        words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(usual)
    };
    match words.first().map(String::as_str) {
        Some("sources") => sources(number(1, 100).clamp(1, 10_000)),
        _ => sampled(number(0, 100).clamp(1, 10_000), number(1, 10).clamp(1, 600)),
    }
}

fn sampled(hz: u64, seconds: u64) -> io::Result<()> {
    let process = Some(std::process::id());
    let period = Duration::from_nanos(1_000_000_000 / hz);
    let sampler = Sampler::start(&SamplerOptions { period, process, ..SamplerOptions::default() })?;
    std::thread::sleep(Duration::from_secs(seconds));
    let record = sampler.stop();
    let mut widths: Vec<u32> = record.samples.iter().map(|sample| sample.width_ns).collect();
    widths.sort_unstable();
    let at = |share: f64| widths[((widths.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"hz\": {hz}, \"seconds\": {seconds}, \"samples\": {}, \"late\": {}, \"thinned\": {}, \
         \"cpu_ns\": {}, \"elapsed_ns\": {}, \"cpu_ns_per_sample\": {}, \
         \"share_of_one_processor\": {:.6}, \
         \"width_ns_p50\": {}, \"width_ns_p99\": {}, \"devices\": {}, \"missing\": {}}}",
        record.samples.len(),
        record.late,
        record.thinned,
        record.cpu_ns,
        record.elapsed_ns,
        record.cpu_ns / record.samples.len() as u64,
        record.cost(),
        at(0.5),
        at(0.99),
        record.devices.len(),
        record.missing.len(),
    );
    Ok(())
}

/// Returns the processor time of `work` right after waking up.
fn after_a_nap<T>(work: impl FnOnce() -> T) -> u64 {
    std::thread::sleep(NAP);
    let before = thread_cpu_ns();
    let _ = work();
    thread_cpu_ns() - before
}

fn sources(rounds: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for (name, path, bytes) in SOURCES {
        files
            .extend(ProcFile::open(Path::new(path), *bytes).ok().map(|file| (*name, file, *bytes)));
    }
    let mut reader = Reader::open(Path::new("/"));
    reader.follow(&[std::process::id()]);
    let scopes = [Scope::Paging, Scope::All];
    let mut waking = Vec::new();
    let mut costs = vec![(Vec::new(), Vec::new()); files.len() + scopes.len()];
    for _ in 0..rounds {
        let before = thread_cpu_ns();
        std::thread::sleep(NAP);
        waking.push(thread_cpu_ns() - before);
        for ((_, file, bytes), (cold, warm)) in files.iter_mut().zip(&mut costs) {
            cold.push(after_a_nap(|| file.read_first(*bytes).map(str::len)));
            let before = thread_cpu_ns();
            file.read_first(*bytes)?;
            warm.push(thread_cpu_ns() - before);
        }
        for (scope, (cold, warm)) in scopes.iter().zip(&mut costs[files.len()..]) {
            cold.push(after_a_nap(|| reader.read(*scope)));
            let before = thread_cpu_ns();
            reader.read(*scope);
            warm.push(thread_cpu_ns() - before);
        }
    }
    println!("{{\"rounds\": {rounds}, \"nap_ms\": 10, \"waking_ns_p50\": {},", middle(&mut waking));
    let names = files.iter().map(|(name, ..)| (*name).to_owned());
    let names = names.chain(scopes.iter().map(|scope| format!("our reading, {scope:?}")));
    let mut rows = Vec::new();
    for (name, (cold, warm)) in names.zip(&mut costs) {
        let (cold, warm) = (middle(cold), middle(warm));
        rows.push(format!(
            "  {{\"what\": \"{name}\", \"after_sleep_ns_p50\": {cold}, \"again_ns_p50\": {warm}}}"
        ));
    }
    println!(" \"sources\": [\n{}\n]}}", rows.join(",\n"));
    Ok(())
}

/// Returns the median.
fn middle(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}
