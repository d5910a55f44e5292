//! Splits the elapsed time of a thread into states that add up to it.

use ioloom_model::{CallKind, ThreadTime};

/// Level of detail at which a thread is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Counts of all calls, and wall times of a sample of them.
    Totals,
    /// Adds the processor clock after long laps and a limited number of spans.
    Full {
        /// Maximum number of spans stored for this thread.
        spans_max: usize,
    },
    /// Wall times of all files, for a trace recorder.
    Traced,
}

/// Returns the sum of all states.
pub(crate) fn stated_ns(time: &ThreadTime) -> u64 {
    time.on_cpu_ns
        + time.ready_ns.unwrap_or(0)
        + time.io_ns
        + time.sync_ns
        + time.input_ns
        + time.compute_blocked_ns
        + time.unknown_ns
}

/// Scales `part`, measured on `of` items, to `all` items.
pub(crate) fn scaled(part: u64, all: u64, of: u64) -> u64 {
    if of == 0 || of == all {
        return part;
    }
    (u128::from(part) * u128::from(all) / u128::from(of)) as u64
}

/// Off-CPU wall time, by group of calls.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Weights {
    io: u64,
    async_io: u64,
    sync: u64,
    input: u64,
    compute: u64,
}

impl Weights {
    pub(crate) fn add(
        &mut self,
        kind: CallKind,
        wall: u64,
        not_blocked: u64,
        detail: Detail,
        ring: bool,
    ) {
        let off = match detail {
            Detail::Full { .. } => wall.saturating_sub(not_blocked),
            Detail::Totals | Detail::Traced if kind == CallKind::Compute => 0,
            Detail::Totals | Detail::Traced => wall,
        };
        match kind {
            CallKind::Compute => self.compute += off,
            CallKind::HandOver | CallKind::Memory => self.sync += off,
            CallKind::Input => self.input += off,
            CallKind::Completion if ring => self.async_io += off,
            _ => self.io += off,
        }
    }
}

/// Splits the elapsed time into states that add up to it exactly. Also returns the part of the I/O
/// wait that was spent waiting for ring completions.
pub(crate) fn split(
    elapsed: u64,
    cpu: u64,
    ready: Option<u64>,
    off: &Weights,
    in_calls: u64,
) -> (ThreadTime, u64) {
    let on_cpu_ns = cpu.min(elapsed);
    let ready_ns = ready.map(|r| r.min(elapsed - on_cpu_ns));
    let rest = elapsed - on_cpu_ns - ready_ns.unwrap_or(0);
    // Time outside calls is overhead of the program. At most that much of the rest, and at most
    // half of it, is unknown, unless no call waited at all.
    let weight = off.io + off.async_io + off.sync + off.input + off.compute;
    let outside = elapsed.saturating_sub(in_calls);
    let blocked = if weight == 0 { 0 } else { rest.saturating_sub(outside.min(rest / 2)) };
    let part = |w: u64| (u128::from(blocked) * u128::from(w) / u128::from(weight.max(1))) as u64;
    let (sync_ns, compute_blocked_ns) = (part(off.sync), part(off.compute));
    let input_ns = part(off.input);
    let async_io_ns = part(off.async_io);
    let io_ns = part(off.io) + async_io_ns;
    let time = ThreadTime {
        elapsed_ns: elapsed,
        on_cpu_ns,
        ready_ns,
        io_ns,
        sync_ns,
        input_ns,
        compute_blocked_ns,
        unknown_ns: rest - io_ns - sync_ns - input_ns - compute_blocked_ns,
        ..ThreadTime::default()
    };
    (time, async_io_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_add_up_to_the_elapsed_time(
            elapsed in 0u64..1 << 40, cpu in 0u64..1 << 40, ready in proptest::option::of(0u64..1 << 40),
            io in 0u64..1 << 40, sync in 0u64..1 << 40, compute in 0u64..1 << 40, calls in 0u64..1 << 42,
            async_io in 0u64..1 << 40, input in 0u64..1 << 40,
        ) {
            let off = Weights { io, async_io, sync, input, compute };
            let (t, part) = split(elapsed, cpu, ready, &off, calls);
            prop_assert_eq!(stated_ns(&t), elapsed);
            prop_assert!(part <= t.io_ns);
        }
    }

    #[test]
    fn waiting_goes_to_the_calls_that_waited() {
        let off = Weights { io: 60, async_io: 40, sync: 300, ..Weights::default() };
        let (t, async_io_ns) = split(1000, 500, Some(100), &off, 1000);
        assert_eq!(async_io_ns, 40);
        assert_eq!((t.io_ns, t.sync_ns, t.compute_blocked_ns, t.unknown_ns), (100, 300, 0, 0));
        let off = Weights { input: 300, sync: 100, ..Weights::default() };
        let (t, _) = split(1000, 500, Some(100), &off, 1000);
        assert_eq!((t.input_ns, t.io_ns, t.sync_ns), (300, 0, 100));
    }
}
