//! Splits the elapsed time of a thread into states that add up to it.

use crate::output::KnownWaits;
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

/// Time of a thread by group of calls, from which its blocked time is split.
///
/// With [`Detail::Full`] the groups hold time off the processor, measured at the end of each long
/// call. Otherwise they hold wall time, of which [`Weights::blocked`] estimates the blocked part.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Weights {
    groups: Groups,
    /// Whether the groups hold wall time.
    wall: bool,
    /// Wall time and blocked time of the function calls whose clocks were read.
    pub(crate) function_clocked: (u64, u64),
    /// Waits of the function that are known exactly. They are also part of the time of those of its
    /// calls that were timed.
    pub(crate) known: KnownWaits,
}

/// One time for each group of calls.
#[derive(Debug, Default, Clone, Copy)]
struct Groups {
    io: u64,
    async_io: u64,
    sync: u64,
    input: u64,
    function: u64,
}

impl Groups {
    fn sum(&self) -> u64 {
        self.io + self.async_io + self.sync + self.input + self.function
    }

    fn each(&self, f: impl Fn(u64) -> u64) -> Self {
        Self {
            io: f(self.io),
            async_io: f(self.async_io),
            sync: f(self.sync),
            input: f(self.input),
            function: f(self.function),
        }
    }

    fn with(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            io: f(self.io, other.io),
            async_io: f(self.async_io, other.async_io),
            sync: f(self.sync, other.sync),
            input: f(self.input, other.input),
            function: f(self.function, other.function),
        }
    }

    /// Adds `total` in proportion to `room`, at most all of it.
    fn fill(&self, room: &Self, total: u64) -> Self {
        let all = room.sum();
        self.with(&room.each(|ns| part(total.min(all), ns, all)), |a, b| a + b)
    }
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
            Detail::Totals | Detail::Traced => wall,
        };
        self.wall |= !matches!(detail, Detail::Full { .. });
        let groups = &mut self.groups;
        match kind {
            CallKind::Compute => groups.function += off,
            CallKind::HandOver | CallKind::Memory => groups.sync += off,
            CallKind::Input => groups.input += off,
            CallKind::Completion if ring => groups.async_io += off,
            _ => groups.io += off,
        }
    }

    /// Estimates the blocked part of wall times.
    ///
    /// The part of the function is known from the calls whose clocks were read. The processor time
    /// that the function did not use was used by the calls that fetch data, because waiting for
    /// memory, paths and other threads uses none. Waiting for a processor occurs in all calls alike.
    fn blocked(&self, cpu: u64, ready: u64) -> Groups {
        let wall = &self.groups;
        let (clocked, off) = self.function_clocked;
        let function = part(wall.function, off.min(clocked), clocked);
        let function_cpu = part(wall.function - function, cpu, cpu + ready);
        let all = wall.sum().max(ready);
        let mut blocked = wall.each(|ns| ns - part(ready, ns, all));
        blocked.io = blocked.io.saturating_sub(cpu.saturating_sub(function_cpu));
        Groups { function, ..blocked }
    }

    /// Returns the weights of the other waits: known ones are part of the time of the function.
    fn without_known(&self) -> Self {
        let function = self.groups.function.saturating_sub(self.known.all_ns());
        Self { groups: Groups { function, ..self.groups }, ..*self }
    }

    /// Distributes blocked time over the groups. Wall times are upper bounds: what exceeds the
    /// estimates was first in the calls that wait, then in functions whose clocks were not read.
    fn distribute(&self, blocked: u64, cpu: u64, ready: u64) -> Groups {
        let groups = &self.groups;
        if !self.wall {
            let all = groups.sum();
            return groups.each(|ns| part(blocked, ns, all));
        }
        let given = Groups::default().fill(&self.blocked(cpu, ready), blocked);
        let room = groups.with(&given, u64::saturating_sub);
        let given = given.fill(&Groups { function: 0, ..room }, blocked - given.sum());
        let room = Groups { function: room.function, ..Groups::default() };
        given.fill(&room, blocked - given.sum())
    }
}

/// Returns `total` × `of` / `all`, and 0 without `all`.
pub(crate) fn part(total: u64, of: u64, all: u64) -> u64 {
    (u128::from(total) * u128::from(of) / u128::from(all.max(1))) as u64
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
    // Time outside of calls is our own overhead. At most that much of the rest, and at most half of
    // it, is unknown, unless no call waited at all.
    let outside = elapsed.saturating_sub(in_calls + off.known.all_ns());
    let none = off.groups.sum() + off.known.all_ns() == 0;
    let blocked = if none { 0 } else { rest.saturating_sub(outside.min(rest / 2)) };
    let output = off.known.output_ns.min(blocked);
    let reserve = off.known.reserve_ns.min(blocked - output);
    let child = off.known.child_ns.min(blocked - output - reserve);
    // The end of a function may compute, and then waits for a processor as the rest does.
    let finish = part(off.known.finish_ns, rest, rest + ready_ns.unwrap_or(0));
    let finish = finish.min(blocked - output - reserve - child);
    let known = output + reserve + child + finish;
    let given = off.without_known().distribute(blocked - known, on_cpu_ns, ready_ns.unwrap_or(0));
    let time = ThreadTime {
        elapsed_ns: elapsed,
        on_cpu_ns,
        ready_ns,
        io_ns: given.io + given.async_io,
        sync_ns: given.sync,
        input_ns: given.input,
        compute_blocked_ns: given.function + known,
        output_ns: output,
        reserve_ns: reserve,
        child_ns: child,
        helper_ns: off.known.helper_ns,
        child_ready_ns: off.known.child_ready_ns,
        unknown_ns: rest - given.sum() - known,
        ..ThreadTime::default()
    };
    (time, given.async_io)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_add_up_to_the_elapsed_time(
            elapsed in 0u64..1 << 40, cpu in 0u64..1 << 40, ready in proptest::option::of(0u64..1 << 40),
            io in 0u64..1 << 40, sync in 0u64..1 << 40, function in 0u64..1 << 40, calls in 0u64..1 << 42,
            async_io in 0u64..1 << 40, input in 0u64..1 << 40, wall: bool,
            clocked in 0u64..1 << 40, off in 0u64..1 << 40,
            output in 0u64..1 << 40, reserve in 0u64..1 << 40, child in 0u64..1 << 40,
            finish in 0u64..1 << 40,
        ) {
            let groups = Groups { io, async_io, sync, input, function };
            let known = KnownWaits {
                output_ns: output, reserve_ns: reserve, child_ns: child, finish_ns: finish,
                ..KnownWaits::default()
            };
            let off = Weights { groups, wall, function_clocked: (clocked, off), known };
            let (t, part) = split(elapsed, cpu, ready, &off, calls);
            prop_assert_eq!(stated_ns(&t), elapsed);
            prop_assert!(part <= t.io_ns);
            if wall {
                prop_assert!(t.io_ns <= io + async_io && t.sync_ns <= sync && t.input_ns <= input);
                prop_assert!(t.compute_blocked_ns <= function + known.all_ns());
                prop_assert!(t.output_ns <= output && t.reserve_ns <= reserve && t.child_ns <= child);
                prop_assert!(t.output_ns + t.reserve_ns + t.child_ns <= t.compute_blocked_ns);
            }
        }
    }

    fn measured(groups: Groups) -> Weights {
        Weights { groups, ..Weights::default() }
    }

    fn walls(groups: Groups, function_clocked: (u64, u64)) -> Weights {
        Weights { groups, wall: true, function_clocked, known: KnownWaits::default() }
    }

    #[test]
    fn known_waits_do_not_depend_on_whether_their_call_was_timed() {
        let groups = Groups { io: 300, function: 500, ..Groups::default() };
        for (groups, in_calls) in [(groups, 1000), (Groups { function: 0, ..groups }, 500)] {
            let known = KnownWaits {
                output_ns: 100,
                reserve_ns: 200,
                child_ns: 100,
                finish_ns: 50,
                helper_ns: 9,
                child_ready_ns: 70,
            };
            let weights = Weights { known, ..walls(groups, (0, 0)) };
            let (t, _) = split(1000, 300, Some(0), &weights, in_calls);
            let found = (t.output_ns, t.reserve_ns, t.child_ns, t.helper_ns, t.child_ready_ns);
            assert_eq!(found, (100, 200, 100, 9, 70), "{t:?}");
            assert!(t.compute_blocked_ns >= 450, "{t:?}");
            assert_eq!(stated_ns(&t), 1000);
        }
    }

    #[test]
    fn waiting_goes_to_the_calls_that_waited() {
        let off = measured(Groups { io: 60, async_io: 40, sync: 300, ..Groups::default() });
        let (t, async_io_ns) = split(1000, 500, Some(100), &off, 1000);
        assert_eq!(async_io_ns, 40);
        assert_eq!((t.io_ns, t.sync_ns, t.compute_blocked_ns, t.unknown_ns), (100, 300, 0, 0));
        let off = measured(Groups { input: 300, sync: 100, ..Groups::default() });
        let (t, _) = split(1000, 500, Some(100), &off, 1000);
        assert_eq!((t.input_ns, t.io_ns, t.sync_ns), (300, 0, 100));
    }

    #[test]
    fn wall_times_are_not_exceeded_and_the_rest_is_of_the_function() {
        // The function was clocked: it slept for all of its time.
        let groups = Groups { io: 100, sync: 100, function: 800, ..Groups::default() };
        let (t, _) = split(1000, 100, Some(0), &walls(groups, (400, 400)), 1000);
        assert_eq!((t.io_ns, t.sync_ns, t.compute_blocked_ns), (0, 100, 800));
        // It used a processor for all of its time.
        let (t, _) = split(1000, 800, Some(0), &walls(groups, (400, 0)), 1000);
        assert_eq!((t.io_ns, t.sync_ns, t.compute_blocked_ns), (100, 100, 0));
        // It was not clocked, but nothing else can have waited for so long.
        let (t, _) = split(1000, 100, Some(0), &walls(groups, (0, 0)), 1000);
        assert_eq!((t.io_ns, t.sync_ns, t.compute_blocked_ns), (100, 100, 700));
        // Files were in memory: their calls used the processor while the list was slow.
        let groups = Groups { io: 100, input: 900, ..Groups::default() };
        let (t, _) = split(1000, 100, Some(0), &walls(groups, (0, 0)), 1000);
        assert_eq!((t.io_ns, t.input_ns, t.unknown_ns), (0, 900, 0));
    }
}
