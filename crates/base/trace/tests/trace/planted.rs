//! Synthetic threads with known states.

use ioloom_model::{Level, State};
use ioloom_trace::Wake;
use ioloom_trace::raw::{Account, Fault, LockWait, Raw, RawThread, Switch};
use ioloom_trace::{NO_FILE, Span, SpanKind, Thread};

/// Builds one thread with its events and true states.
pub(crate) struct Script {
    pub(crate) raw: RawThread,
    pub(crate) truth: [u64; State::ALL.len()],
    now_ns: u64,
    cpu_ns: u64,
    delay_ns: u64,
    cpu: u16,
}

impl Script {
    pub(crate) fn new(tid: u32, start_ns: u64) -> Self {
        let role = "worker".to_owned();
        Self {
            raw: RawThread { tid, role, start_ns, end_ns: start_ns, ..RawThread::default() },
            truth: [0; State::ALL.len()],
            now_ns: start_ns,
            cpu_ns: 0,
            delay_ns: 0,
            cpu: 0,
        }
    }

    fn pass(&mut self, state: State, ns: u64) {
        self.truth[state as usize] += ns;
        self.now_ns += ns;
    }

    fn switch(&mut self, out: bool, preempted: bool, uninterruptible: bool, next_tid: u32) {
        self.raw.switches.push(Switch {
            at_ns: self.now_ns,
            out,
            preempted,
            uninterruptible,
            cpu: self.cpu,
            next_tid,
        });
    }

    pub(crate) fn run(&mut self, ns: u64) -> &mut Self {
        self.pass(State::OnCpu, ns);
        self.cpu_ns += ns;
        self
    }

    pub(crate) fn preempted(&mut self, ns: u64, by_tid: u32) -> &mut Self {
        self.switch(true, true, false, by_tid);
        self.pass(State::Preempted, ns);
        self.delay_ns += ns;
        self.cpu ^= 1;
        self.switch(false, false, false, 0);
        self
    }

    /// Blocks in `state`, then becomes ready.
    pub(crate) fn block(&mut self, state: State, blocked_ns: u64, ready_ns: u64) -> &mut Self {
        let uninterruptible = matches!(state, State::Io | State::Paging | State::Lock);
        self.wait(state, blocked_ns, ready_ns, uninterruptible)
    }

    pub(crate) fn wait(
        &mut self,
        state: State,
        blocked_ns: u64,
        ready_ns: u64,
        deep: bool,
    ) -> &mut Self {
        self.switch(true, false, deep, 0);
        self.pass(state, blocked_ns);
        self.raw.wakes.push(Wake { at_ns: self.now_ns, by_tid: 0 });
        self.pass(State::Ready, ready_ns);
        self.delay_ns += ready_ns;
        self.cpu ^= 1;
        self.switch(false, false, false, 0);
        self
    }

    /// Blocks on a major fault, which is recorded at its end.
    pub(crate) fn fault(&mut self, blocked_ns: u64, ready_ns: u64) -> &mut Self {
        self.block(State::Paging, blocked_ns, ready_ns).run(2_000);
        self.raw.faults.push(Fault { at_ns: self.now_ns, address: 0x7000 });
        self.run(10)
    }

    /// Waits for a kernel lock.
    pub(crate) fn lock(&mut self, blocked_ns: u64) -> &mut Self {
        let start_ns = self.now_ns;
        self.run(500).block(State::Lock, blocked_ns, 100).run(50);
        self.raw.locks.push(LockWait { start_ns, end_ns: self.now_ns });
        self.run(1)
    }

    pub(crate) fn span(&mut self, kind: SpanKind, inside: impl FnOnce(&mut Self)) -> &mut Self {
        let start_ns = self.now_ns;
        inside(self);
        self.raw.spans.push(Span { start_ns, ns: self.now_ns - start_ns, kind, file: NO_FILE });
        self
    }

    pub(crate) fn account(&mut self) -> &mut Self {
        self.raw.accounts.push(Account {
            at_ns: self.now_ns,
            cpu_ns: self.cpu_ns,
            run_delay_ns: Some(self.delay_ns),
        });
        self
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub(crate) fn thread(&self) -> RawThread {
        RawThread {
            end_ns: self.now_ns,
            cpu_ns: Some(self.cpu_ns),
            run_delay_ns: Some(self.delay_ns),
            ..self.raw.clone()
        }
    }

    pub(crate) fn truth(&self, state: State) -> u64 {
        self.truth[state as usize]
    }
}

/// Returns the thread events recorded at a level.
pub(crate) fn at_level(level: Level, threads: Vec<RawThread>) -> Raw {
    let threads: Vec<RawThread> = threads
        .into_iter()
        .map(|mut thread| {
            if level < Level::Kernel {
                thread.wakes.clear();
                thread.locks.clear();
                for switch in &mut thread.switches {
                    switch.uninterruptible = false;
                    switch.next_tid = 0;
                }
            }
            if level < Level::Switch {
                thread.switches.clear();
                thread.faults.clear();
            }
            thread
        })
        .collect();
    let elapsed_ns = threads.iter().map(|t| t.end_ns).max().unwrap_or(0);
    Raw { level: Some(level), elapsed_ns, threads, ..Raw::default() }
}

/// Returns the nanoseconds of a state from the table; `None` if it is null.
pub(crate) fn ns(thread: &Thread, state: State) -> Option<u64> {
    thread.states.get(&state).and_then(|t| t.ns)
}

/// Asserts that the segments tile the thread and that the table is their sum.
pub(crate) fn assert_tiles(thread: &Thread) {
    let length = thread.end_ns - thread.start_ns;
    let mut sums = [0; State::ALL.len()];
    let mut at_ns = thread.start_ns;
    for (i, segment) in thread.segments.iter().enumerate() {
        assert_eq!(segment.start_ns, at_ns, "segment {i} of {thread:?}");
        at_ns = thread.segments.get(i + 1).map_or(thread.end_ns, |s| s.start_ns);
        assert!(at_ns > segment.start_ns, "segment {i} is empty: {thread:?}");
        sums[segment.state as usize] += at_ns - segment.start_ns;
    }
    assert_eq!(at_ns, thread.end_ns);
    assert_eq!(sums.iter().sum::<u64>(), length);
    for state in State::ALL {
        let time = &thread.states[&state];
        assert_eq!(time.ns.unwrap_or(0), sums[state as usize], "{state:?} of {thread:?}");
        if time.ns.is_none() {
            assert!(time.why.is_some(), "{state:?} is null without a reason");
            let holder =
                thread.states.values().any(|t| t.ns.is_some() && t.includes.contains(&state));
            assert!(holder, "{state:?} is null and no state includes it: {:?}", thread.states);
        } else {
            assert!(time.quality.is_some() && !time.source.is_empty());
        }
    }
}
