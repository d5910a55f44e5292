//! Measures the cost of a level to compute-only tasks: the processor time of the same tasks with
//! and without a recorder, alternately.

use crate::collect::{Session, TraceOptions};
use ioloom_model::Level;
use ioloom_sys::clock::thread_cpu_ns;
use ioloom_trace::SpanKind;
use std::hint::black_box;

/// Duration of a task.
const TASK_NS: u64 = 30_000;

/// Returns the additional processor time of a pass of tasks at the level, in percent.
pub(super) fn cost(level: Level, tasks: u64, level_first: bool) -> Option<f64> {
    let options = TraceOptions { spans_max: 1 << 20, calibrate: false, ..TraceOptions::default() };
    let rounds = rounds_of(TASK_NS);
    let with = || {
        let session = Session::start(Some(level), options).ok()?;
        let mut recorder = session.register("worker", "worker");
        session.begin();
        recorder.begin();
        let before = thread_cpu_ns();
        for task in 0..tasks {
            // Three short calls around the function, as for a file.
            for kind in [SpanKind::Open, SpanKind::Read] {
                recorder.lap(kind, task as u32);
            }
            black_box(spin(rounds));
            recorder.lap(SpanKind::Compute, task as u32);
            recorder.lap(SpanKind::Close, task as u32);
        }
        let ns = thread_cpu_ns() - before;
        recorder.finish();
        session.stop();
        Some(ns as f64)
    };
    let without = || {
        let before = thread_cpu_ns();
        for _ in 0..tasks {
            black_box(spin(rounds));
        }
        Some((thread_cpu_ns() - before) as f64)
    };
    let (with, without) = if level_first {
        let with = with()?;
        (with, without()?)
    } else {
        let without = without()?;
        (with()?, without)
    };
    Some(100.0 * (with / without - 1.0))
}

/// Returns the number of [`spin`] rounds that take `ns`. Uses the fastest of several tries, so a
/// task is never shorter.
fn rounds_of(ns: u64) -> u64 {
    const TRIED: u64 = 20_000;
    let took = (0..20).map(|_| {
        let before = thread_cpu_ns();
        black_box(spin(TRIED));
        (thread_cpu_ns() - before).max(1)
    });
    (TRIED * ns).div_ceil(took.min().unwrap_or(ns))
}

/// Does work that the compiler cannot eliminate.
pub(super) fn spin(rounds: u64) -> u64 {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    for _ in 0..rounds {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}
