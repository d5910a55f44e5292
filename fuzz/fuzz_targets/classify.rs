//! Raw events built from arbitrary bytes: nothing panics, and the states of every thread add up to
//! its time.
#![no_main]

use ioloom_model::Level;
use ioloom_trace::Wake;
use ioloom_trace::raw::{Account, Fault, LockWait, Raw, RawThread, Switch};
use ioloom_trace::{CoreRun, Request, Span, SpanKind, classify, shares};
use libfuzzer_sys::fuzz_target;

/// Returns numbers from bytes; 0 at the end of input.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Mostly small, so that events coincide; sometimes close to the maximum.
    fn time(&mut self) -> u64 {
        match self.byte() {
            255 => u64::MAX - u64::from(self.byte()),
            254 => u64::from(self.byte()) << 45,
            high => u64::from(high) << 8 | u64::from(self.byte()),
        }
    }

    fn maybe_time(&mut self) -> Option<u64> {
        (self.byte() % 4 > 0).then(|| self.time())
    }
}

fn thread(from: &mut Bytes<'_>) -> RawThread {
    let role = ["worker", "kernel-worker", "tool"][usize::from(from.byte() % 3)].to_owned();
    let mut thread = RawThread {
        tid: u32::from(from.byte()),
        role,
        start_ns: from.time(),
        end_ns: from.time(),
        cpu_ns: from.maybe_time(),
        run_delay_ns: from.maybe_time(),
        ..RawThread::default()
    };
    for _ in 0..from.byte() {
        match from.byte() % 8 {
            0 | 1 => {
                let kind = SpanKind::ALL[usize::from(from.byte()) % SpanKind::ALL.len()];
                let (start_ns, ns) = (from.time(), from.time());
                thread.spans.push(Span { start_ns, ns, kind, file: u32::from(from.byte()) });
            }
            2 => thread.accounts.push(Account {
                at_ns: from.time(),
                cpu_ns: from.time(),
                run_delay_ns: from.maybe_time(),
            }),
            3 => thread.wakes.push(Wake { at_ns: from.time(), by_tid: 1 }),
            4 => thread.faults.push(Fault { at_ns: from.time(), address: 0 }),
            5 => thread.locks.push(LockWait { start_ns: from.time(), end_ns: from.time() }),
            _ => {
                let bits = from.byte();
                thread.switches.push(Switch {
                    at_ns: from.time(),
                    out: bits & 1 > 0,
                    preempted: bits & 2 > 0,
                    uninterruptible: bits & 4 > 0,
                    cpu: u16::from(bits >> 6),
                    next_tid: u32::from(bits & 8),
                });
            }
        }
    }
    thread
}

fuzz_target!(|bytes: &[u8]| {
    let mut from = Bytes(bytes);
    let levels = [None, Some(Level::Account), Some(Level::Switch), Some(Level::Kernel)];
    let mut raw = Raw {
        level: levels[usize::from(from.byte() % 4)],
        elapsed_ns: from.time(),
        ..Raw::default()
    };
    for _ in 0..from.byte() % 4 {
        raw.threads.push(thread(&mut from));
    }
    for _ in 0..from.byte() % 16 {
        raw.requests.push(Request {
            device: u16::from(from.byte() % 4),
            write: false,
            issue_ns: from.time(),
            complete_ns: from.maybe_time(),
            sector: 0,
            bytes: 0,
            tid: 0,
        });
    }
    let run = |from: &mut Bytes<'_>| CoreRun {
        start_ns: from.time(),
        end_ns: from.time(),
        tid: 1,
        ours: from.byte() % 2 > 0,
    };
    raw.cores = vec![(0..from.byte() % 16).map(|_| run(&mut from)).collect()];
    let trace = classify(raw);
    for lane in shares::Lanes::new(&trace).lanes() {
        let thread = lane.thread();
        let length = thread.end_ns - thread.start_ns;
        assert_eq!(lane.within(0, u64::MAX).total(), length);
        assert_eq!(thread.states.values().filter_map(|t| t.ns).sum::<u64>(), length);
        assert!(thread.segments.windows(2).all(|pair| pair[0].start_ns < pair[1].start_ns));
    }
    let _ = ioloom_trace::findings(&trace);
});
