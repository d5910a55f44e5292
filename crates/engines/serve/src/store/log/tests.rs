//! Truncates small logs at every byte and flips every bit. The result is either a state that the
//! log once had, or an error.

use super::super::scratch::scratch;
use super::*;
use crate::choice::Durability;
use ioloom_exchange::{Exchange, Order, RequestId, Side};
use ioloom_sys::fault;
use ioloom_testbed::alone;
use std::sync::Arc;
use tempfile::TempDir;

const STOCKS: &str = "1 1000 10\n2 1000 20\n3 5 30\n";
/// Number of states to compare.
const STATES: usize = 100;
const KINDS: [StoreKind; 4] =
    [StoreKind::Log, StoreKind::LogDsync, StoreKind::LogDirect, StoreKind::LogUring];

/// Reads a log that must not lack synced bytes.
fn recover(source: &dyn Source) -> Result<Found, Problem> {
    let found = recover::read(source, &mut |_| {})?;
    match found.after.synced_frame {
        Some(_) => Err(Problem::Damaged(INCOMPLETE, found.end)),
        None => Ok(found),
    }
}

/// Opens a log as far as it can be read.
fn open(path: &Path, options: LogOptions) -> Result<(Log, State), StoreError> {
    let (file, found) = Log::read(path, options, &mut |_| {})?;
    Log::begin(path, options, file, found)
}

impl Source for Vec<u8> {
    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let from = usize::try_from(at).unwrap().min(self.len());
        let count = into.len().min(self.len() - from);
        into[..count].copy_from_slice(&self[from..from + count]);
        Ok(count)
    }
}

fn exchange() -> Exchange {
    Exchange::from_text(STOCKS).unwrap()
}

/// A growing log and its expected contents.
struct Bench {
    dir: TempDir,
    options: LogOptions,
    log: Log,
    state: State,
    /// The state after each order, and the end of the log after its commit.
    states: Vec<State>,
    ends: Vec<u64>,
}

fn options(kind: StoreKind, durability: Durability) -> LogOptions {
    LogOptions { kind, durability, bounds: Bounds::default() }
}

fn path(dir: &TempDir) -> PathBuf {
    dir.path().join("store")
}

impl Bench {
    fn new(options: LogOptions) -> Self {
        Self::in_dir(options, scratch(options.kind))
    }

    fn in_dir(options: LogOptions, dir: TempDir) -> Self {
        let stocks = exchange();
        make(options.kind, &path(&dir), &Beginning { stocks: &stocks, file_hash: 7 }).unwrap();
        let (log, state) = open(&path(&dir), options).unwrap();
        assert_eq!((state.seq(), state.exchange()), (0, &stocks));
        let (states, ends) = (vec![state.clone()], vec![log.tail.end]);
        Self { dir, options, log, state, states, ends }
    }

    /// Stores orders in a single commit.
    fn trade(&mut self, count: u64) {
        self.try_trade(count).unwrap();
    }

    fn try_trade(&mut self, count: u64) -> Result<(), StoreError> {
        let mut records = Vec::new();
        while (records.len() as u64) < count {
            let number = self.state.seq() + 1;
            let side = if number.is_multiple_of(3) { Side::Sell } else { Side::Buy };
            let order = Order::new(side, (number % 4 + 1) as u32, (number % 5 + 1) as u32).unwrap();
            let request_id = RequestId { client: Arc::from("anna"), request: number };
            // Sales of existing stocks are always executed and numbered.
            let is_nameless = number.is_multiple_of(21) && number % 4 != 3;
            records.extend(self.state.trade(&order, (!is_nameless).then_some(&request_id)).1);
            if self.states.len() < STATES {
                self.states.push(self.state.clone());
            }
        }
        self.log.commit(&records)?;
        self.ends.resize(self.state.seq() as usize + 1, self.log.tail.end);
        Ok(())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = std::fs::read(path(&self.dir)).unwrap();
        bytes.truncate(usize::try_from(self.log.tail.end).unwrap());
        bytes
    }

    fn again(&self) -> (Log, State) {
        let dir = scratch(self.options.kind);
        std::fs::write(path(&dir), self.bytes()).unwrap();
        open(&path(&dir), self.options).unwrap()
    }

    /// Returns the number of orders in a log; they must be the first ones.
    fn prefix(&self, bytes: &Vec<u8>) -> Result<usize, Problem> {
        let found = recover(bytes)?;
        let seq = usize::try_from(found.state.seq()).unwrap();
        assert_eq!(found.state, self.states[seq], "the state after {seq} orders");
        Ok(seq)
    }

    /// Returns the number of orders in commits that are complete before an offset.
    fn complete_before(&self, place: usize) -> usize {
        self.ends.iter().filter(|end| **end <= place as u64).count().saturating_sub(1)
    }
}

/// A log with a few dozen orders, most of them in separate commits.
fn some_orders(durability: Durability) -> Bench {
    let mut bench = Bench::new(options(StoreKind::Log, durability));
    for count in [1, 1, 3, 1, 1, 1, 5, 1, 2, 1, 1, 1, 4, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1] {
        bench.trade(count);
    }
    bench
}

#[test]
fn truncation_at_any_byte_leaves_a_prefix() {
    let bench = some_orders(Durability::Group);
    let whole = bench.bytes();
    let begun = usize::try_from(bench.ends[0]).unwrap();
    for cut in 0..=whole.len() {
        let mut bytes = whole[..cut].to_vec();
        let found = bench.prefix(&bytes);
        if cut < begun {
            assert!(found.is_err(), "cut at {cut}: the stocks are incomplete");
            continue;
        }
        assert_eq!(found.unwrap(), bench.complete_before(cut), "cut at {cut}");
        // Preallocated blocks contain zeros.
        bytes.resize(whole.len() + 5000, 0);
        assert_eq!(bench.prefix(&bytes).unwrap(), bench.complete_before(cut), "zeros from {cut}");
    }
}

#[test]
fn any_flipped_bit_leaves_a_prefix_or_an_error() {
    let bench = some_orders(Durability::Group);
    let whole = bench.bytes();
    let last = bench.complete_before(whole.len() - 1);
    let last_at = usize::try_from(bench.ends[last]).unwrap();
    let (mut prefixes, mut refused) = (0, 0);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        match bench.prefix(&bytes) {
            // The last commit may have been torn; earlier ones had been synced.
            Ok(seq) => {
                assert_eq!((seq, bit / 8 >= last_at), (last, true), "bit {bit}");
                prefixes += 1;
            }
            Err(Problem::Damaged(_, at)) => {
                assert!(at <= bit as u64 / 8 && bit / 8 < last_at, "bit {bit}, reported at {at}");
                refused += 1;
            }
            Err(Problem::NotOurs) => refused += 1,
            Err(Problem::Read(e)) => panic!("bit {bit}: {e}"),
        }
    }
    assert_eq!(prefixes, (whole.len() - last_at) * 8);
    assert_eq!(refused, last_at * 8);
}

#[test]
fn unsynced_frames_may_be_missing() {
    let bench = some_orders(Durability::Os);
    let whole = bench.bytes();
    for hole in 1..bench.states.len() {
        let before = bench.complete_before(bench.ends[hole] as usize - 1);
        let mut bytes = whole.clone();
        bytes[bench.ends[before] as usize + 20] ^= 1;
        assert_eq!(bench.prefix(&bytes).unwrap(), before);
    }
    // After a sync, a hole is damage.
    let mut bench = bench;
    bench.log.set_stock_hashes(&[1, 2]).unwrap();
    bench.trade(1);
    let mut bytes = bench.bytes();
    let at = usize::try_from(bench.ends[4]).unwrap() + 30;
    bytes[at] ^= 1;
    assert!(matches!(recover(&bytes), Err(Problem::Damaged(..))));
}

#[test]
fn frames_of_other_logs_and_offsets_are_ignored() {
    let bench = some_orders(Durability::Group);
    let whole = bench.bytes();
    let (begun, end) = (bench.ends[0] as usize, whole.len());
    // The same orders again, from an earlier log or at another offset.
    let older = some_orders(Durability::Group).bytes();
    for more in [&older[begun..], &whole[begun..]] {
        let bytes = [&whole[..end], more].concat();
        let found = recover(&bytes).unwrap();
        assert_eq!((found.state.seq() + 1, found.is_torn), (bench.states.len() as u64, true));
        assert_eq!(found.end, end as u64);
    }
}

#[test]
fn a_torn_tail_is_truncated_and_the_log_continues() {
    let mut bench = some_orders(Durability::Group);
    let torn = [bench.bytes(), b"iolog v1 and so on".repeat(9)].concat();
    let (dir, seq) = (scratch(bench.options.kind), bench.state.seq());
    std::fs::write(path(&dir), &torn).unwrap();
    let (log, state) = open(&path(&dir), bench.options).unwrap();
    assert_eq!(state, bench.state);
    assert_eq!(std::fs::metadata(path(&dir)).unwrap().len(), bench.log.tail.end);
    (bench.log, bench.dir) = (log, dir);
    bench.trade(2);
    assert_eq!(bench.again().1, bench.state);
    assert_eq!(bench.state.seq(), seq + 2);
}

#[test]
fn all_methods_store_the_same_orders() {
    for kind in KINDS {
        for durability in [Durability::Os, Durability::Group, Durability::Each] {
            if crate::choice::store_refusal(kind, durability).is_some() {
                continue;
            }
            let dir = TempDir::new().unwrap();
            if let Err(reason) = probe(kind, dir.path()) {
                println!("skipped: {reason}");
                continue;
            }
            // On a real disk, which checks the alignment of direct I/O.
            let mut bench = Bench::in_dir(options(kind, durability), dir);
            for count in [1, 40, 1, 2000, 1, 1, 30_000, 3] {
                bench.trade(count);
            }
            bench.log.set_stock_hashes(&[5, 6]).unwrap();
            let (log, state) = bench.again();
            assert_eq!(state, bench.state, "{kind} {durability}");
            assert_eq!(log.hashes, [5, 6]);
            let align = u64::from(align_of(kind));
            assert!(bench.ends.iter().all(|end| end.is_multiple_of(align)), "{kind}");
        }
    }
}

#[test]
fn a_log_is_rewritten_at_its_limit() {
    for kind in KINDS {
        let dir = scratch(kind);
        if let Err(reason) = probe(kind, dir.path()) {
            println!("skipped: {reason}");
            continue;
        }
        let bounds = Bounds { kept: 100, growth: GROWTH_MAX };
        let mut bench = Bench::new(LogOptions { bounds, ..options(kind, Durability::Group) });
        bench.log.set_stock_hashes(&[8, 9]).unwrap();
        let mut largest = 0;
        for _ in 0..130 {
            bench.trade(7);
            largest = largest.max(bench.log.tail.end);
            assert!(bench.log.latest - bench.log.base < 2 * bounds.kept);
        }
        let frame = 64 + 7 * 64;
        let align = u64::from(align_of(kind));
        assert!(largest < (2 * bounds.kept / 7 + 9) * align.max(frame), "{kind}: {largest} bytes");
        let (log, state) = bench.again();
        assert_eq!(state.exchange(), bench.state.exchange(), "{kind}");
        assert_eq!((state.seq(), log.base), (bench.state.seq(), bench.log.base), "{kind}");
        assert_eq!(log.hashes, [8, 9]);
        let names = std::fs::read_dir(bench.dir.path()).unwrap().count();
        assert_eq!(names, 1, "{kind}: a temporary file was left behind");
        // Bits up to the synced length: a rewritten log also verifies itself. The methods write the
        // same bytes, apart from the alignment.
        if !matches!(kind, StoreKind::Log | StoreKind::LogDirect) {
            continue;
        }
        let whole = bench.bytes();
        let step = if kind == StoreKind::Log { 13 } else { 59 };
        for byte in (0..whole.len() - 4 * usize::try_from(frame.max(align)).unwrap()).step_by(step)
        {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1 << (byte % 8);
            assert!(recover(&bytes).is_err(), "{kind}: byte {byte}");
        }
    }
}

#[test]
fn the_size_limit_rewrites_a_log_too() {
    let bounds = Bounds { kept: ORDERS_KEPT, growth: 64 << 10 };
    let mut bench = Bench::new(LogOptions { bounds, ..options(StoreKind::Log, Durability::Os) });
    let before = bench.log.tail.log;
    for _ in 0..800 {
        bench.trade(1);
    }
    assert_ne!(bench.log.tail.log, before);
    assert_eq!(bench.again().1, bench.state);
}

/// Stores orders, during which the log grows or is rewritten, until the n-th call of an operation
/// fails; returns true if there were that many calls.
fn fails(kind: StoreKind, operation: &str, n: u64) -> bool {
    let case = format!("{kind}: {operation} {n}");
    fault::set("");
    let bounds = Bounds { kept: 20, growth: GROWTH_MAX };
    let mut bench = Bench::new(LogOptions { bounds, ..options(kind, Durability::Group) });
    fault::set(&format!("{operation}:{n}:5"));
    let mut acknowledged = 0;
    while bench.state.seq() < 45 && bench.try_trade(3).is_ok() {
        acknowledged = bench.state.seq();
    }
    let is_hit = fault::calls_of(operation) >= n;
    fault::set("");
    let Bench { dir, options, log, state, states, .. } = bench;
    // There is no other file, except for an unfinished log whose removal failed.
    drop(log);
    let (log, found) = open(&path(&dir), options).unwrap_or_else(|e| panic!("{case}: {e}"));
    assert!((acknowledged..=state.seq()).contains(&found.seq()), "{case}: {}", found.seq());
    assert_eq!(found.exchange(), states[found.seq() as usize].exchange(), "{case}");
    assert!(is_hit || acknowledged == 45, "{case}: {acknowledged}");
    assert!(log.latest - log.base < 2 * bounds.kept + 3, "{case}");
    is_hit
}

#[test]
fn failing_calls_lose_no_order_even_during_a_rewrite() {
    let name = "store::log::tests::\
                failing_calls_lose_no_order_even_during_a_rewrite";
    if !alone(name) {
        return;
    }
    for kind in KINDS.into_iter().filter(|kind| probe(*kind, scratch(*kind).path()).is_ok()) {
        let mut failed = 0;
        for operation in [
            "create",
            "fcntl",
            "fdatasync",
            "flock",
            "fstat",
            "fsync",
            "open",
            "pread",
            "pwrite",
            "rename",
            "sync-directory",
            "unlink",
            "uring_fsync",
            "uring_write",
        ] {
            failed += (1..).take_while(|n| fails(kind, operation, *n)).count();
        }
        println!("{kind}: {failed} calls failed");
        assert!(failed > 20, "{kind}: {failed}");
    }
}

#[test]
fn a_log_that_cannot_be_rewritten_grows_until_it_can() {
    if !alone("store::log::tests::a_log_that_cannot_be_rewritten_grows_until_it_can") {
        return;
    }
    for kind in KINDS.into_iter().filter(|kind| probe(*kind, scratch(*kind).path()).is_ok()) {
        fault::set("");
        let bounds = Bounds { kept: 20, growth: GROWTH_MAX };
        let mut bench = Bench::new(LogOptions { bounds, ..options(kind, Durability::Group) });
        let before = bench.log.tail.log;
        // No space for the new log, at orders 40, 42 and 44.
        fault::set("create:1:28,create:2:28,create:3:28");
        while bench.state.seq() < 45 {
            bench.trade(1);
        }
        assert_eq!((bench.log.tail.log, fault::calls_of("create")), (before, 3), "{kind}");
        assert_eq!(bench.again().1, bench.state, "{kind}");
        bench.trade(1);
        assert_ne!(bench.log.tail.log, before, "{kind}");
        fault::set("");
        let (log, state) = bench.again();
        assert_eq!((state.seq(), log.base), (46, 26), "{kind}");
        assert_eq!(state.exchange(), bench.state.exchange(), "{kind}");
        assert_eq!(std::fs::read_dir(bench.dir.path()).unwrap().count(), 1, "{kind}");
    }
}

#[test]
fn errors_name_the_offset_and_the_remedy() {
    let bench = some_orders(Durability::Group);
    let dir = scratch(bench.options.kind);
    let mut bytes = bench.bytes();
    let at = usize::try_from(bench.ends[4]).unwrap();
    bytes[at + 30] ^= 1;
    std::fs::write(path(&dir), bytes).unwrap();
    let text =
        |options| open(&path(&dir), options).err().expect("opening must be refused").to_string();
    let mut proven =
        prove(StoreKind::Log, &path(&dir), Durability::Group, &mut |_| {}).unwrap().unreadable;
    let unreadable = proven.take().expect("a damaged frame");
    assert_eq!((unreadable.from, unreadable.latest), (at as u64, bench.state.seq()));
    assert_eq!(unreadable.from + unreadable.bytes, bench.log.tail.end);
    assert_eq!(unreadable.damage, Some(INCOMPLETE));
    let mut bytes = bench.bytes();
    bytes[30] ^= 1;
    std::fs::write(path(&dir), bytes).unwrap();
    let error = text(bench.options);
    assert!(error.contains("at byte 0:") && error.contains("remove the store"), "{error}");
    std::fs::write(path(&dir), bench.bytes()).unwrap();
    let error = text(options(StoreKind::LogDirect, Durability::Group));
    assert!(error.contains("whole blocks") && error.contains("--store-path"), "{error}");
    let opened = open(&path(&dir), bench.options).unwrap();
    let error = text(bench.options);
    assert!(error.contains("locked by another server"), "{error}");
    drop(opened);
    // Nothing is written after a failed write.
    let (mut log, _) = open(&path(&dir), bench.options).unwrap();
    log.has_failed = true;
    assert!(log.set_stock_hashes(&[1]).is_err());
}
