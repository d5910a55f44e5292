//! Reads one file twice, from the device and from the page cache; then another process reads it.

use super::plan::ReadTwice;
use crate::stage::{Acts, Stage, cannot, make_cold, only_file, put, resident_bytes};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use ioloom_sys::file::read_at;
use ioloom_sys::proc::{self, UsageOf};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// Wall-clock and CPU time of a pass in ns, and the bytes read.
struct Pass {
    wall_ns: u64,
    cpu_ns: u64,
    bytes: u64,
}

fn pass(file: &OwnedFd, buffer: &mut [u8]) -> Result<Pass, String> {
    let (wall, cpu) = (monotonic_ns(), thread_cpu_ns());
    let mut bytes = 0;
    loop {
        match read_at(file, buffer, bytes).map_err(|e| cannot("read the file", &e))? {
            0 => break,
            n => bytes += n as u64,
        }
    }
    Ok(Pass { wall_ns: monotonic_ns() - wall, cpu_ns: thread_cpu_ns() - cpu, bytes })
}

pub(super) fn run(order: &RunOrder, scenario: ReadTwice) -> Result<Measured, String> {
    let (path, file, bytes) = only_file(&order.dir)?;
    let mut buffer = vec![1; scenario.block];
    make_cold(&file, bytes)?;
    let mut stage = Stage::open(&order.dir)?;
    stage.sampler.mark("cold");
    let cold = pass(&file, &mut buffer)?;
    stage.sampler.mark("warm");
    let resident = resident_bytes(&file, bytes);
    stage.sampler.mark("again");
    let warm = pass(&file, &mut buffer)?;
    stage.sampler.mark("end");
    let other = another_process(&path);
    stage.put("file_bytes", bytes as f64);
    for (name, pass) in [("cold", &cold), ("warm", &warm)] {
        stage.put(&format!("{name}_ns"), pass.wall_ns as f64);
        stage.put(&format!("{name}_cpu_ns"), pass.cpu_ns as f64);
    }
    let off_cpu = cold.wall_ns.saturating_sub(cold.cpu_ns) as f64;
    stage.put("cold_off_cpu_ns", off_cpu);
    let (mut measured, acts) = stage.close(cold.wall_ns, cold.bytes + warm.bytes);
    put(&mut measured, "resident_after_bytes", resident);
    put(&mut measured, "other_process_ns", other.map(|(ns, _)| ns));
    put(&mut measured, "other_process_device_bytes", other.map(|(_, bytes)| bytes));
    counted(&mut measured, &acts);
    Ok(measured)
}

fn counted(measured: &mut Measured, acts: &Acts) {
    for (name, from, to) in [("cold", "cold", "warm"), ("warm", "again", "end")] {
        let paged = acts.grown(Field::PageIn, from, to, 1024.0);
        put(measured, &format!("pagein_{name}_bytes"), paged);
        let own = acts.grown(Field::TaskRead, from, to, 1.0);
        put(measured, &format!("device_{name}_bytes"), own);
        let busy = acts.device(from, to).zip(acts.seconds(from, to));
        let busy_ns = busy.map(|(rates, seconds)| rates.util_percent / 100.0 * seconds * 1e9);
        put(measured, &format!("device_busy_{name}_ns"), busy_ns);
    }
    put(measured, "cache_growth_bytes", acts.changed_bytes(Field::FilePages, "cold", "warm"));
}

/// Returns the time and device bytes of another process that reads the file; `None` if `cat` is
/// missing.
fn another_process(path: &Path) -> Option<(f64, f64)> {
    let before = proc::usage(UsageOf::Children).ok()?;
    let start = monotonic_ns();
    let mut cat = Command::new("cat");
    let status = cat.arg(path).stdin(Stdio::null()).stdout(Stdio::null()).status().ok()?;
    let ns = monotonic_ns() - start;
    let after = proc::usage(UsageOf::Children).ok()?;
    status.success().then(|| (ns as f64, (after.read_bytes - before.read_bytes) as f64))
}
