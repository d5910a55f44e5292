//! What sampling the counters costs: `counters_cost [HZ] [SECONDS]` prints one JSON document with
//! the processor time of the sampling thread, how long a sample took, and what came late.
//!
//! ```text
//! cargo run --release -p ioloom-observe --example counters_cost -- 100 30
//! ```

#![allow(clippy::print_stdout, reason = "it prints its result")]

use ioloom_observe::counters::{Options, Sampler};
use std::time::Duration;

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let hz = numbers.next().unwrap_or(100).clamp(1, 10_000);
    let seconds = numbers.next().unwrap_or(10).clamp(1, 600);
    let process = Some(std::process::id());
    let period = Duration::from_nanos(1_000_000_000 / hz);
    let sampler = Sampler::start(&Options { period, process, ..Options::default() })?;
    std::thread::sleep(Duration::from_secs(seconds));
    let record = sampler.stop();
    let mut widths: Vec<u32> = record.samples.iter().map(|sample| sample.width_ns).collect();
    widths.sort_unstable();
    let at = |share: f64| widths[((widths.len() - 1) as f64 * share) as usize];
    println!(
        "{{\"hz\": {hz}, \"seconds\": {seconds}, \"samples\": {}, \"late\": {}, \"thinned\": {}, \
         \"cpu_ns\": {}, \"elapsed_ns\": {}, \"share_of_one_processor\": {:.6}, \
         \"width_ns_p50\": {}, \"width_ns_p99\": {}, \"devices\": {}, \"missing\": {}}}",
        record.samples.len(),
        record.late,
        record.thinned,
        record.cpu_ns,
        record.elapsed_ns,
        record.cost(),
        at(0.5),
        at(0.99),
        record.devices.len(),
        record.missing.len(),
    );
    Ok(())
}
