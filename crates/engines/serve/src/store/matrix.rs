//! The damage matrix: every store and durability, with one flipped bit, one cut or one zeroed page
//! per case, in any file of the store or in its mark.
//!
//! Each case is opened as a server opens it. All orders of the undamaged store were acknowledged,
//! so a case is intact (everything is there), refused, a reported loss, a silent loss, or a silent
//! change (a state that the server never had). The last two must not occur, and neither must a
//! refusal of a store that `inspect_store` reads in full. `cargo xtask damage N SEED` runs it with N
//! cases per kind of damage and keeps the table.

use super::bytes;
use super::copying::remove;
use super::mark::{self, Found};
use super::path::with_suffix;
use super::scratch::scratch;
use super::{Locked, Opened, StoreError, inspect_store, prove};
use crate::choice::{Durability, StoreKind, store_refusal};
use crate::options::StoreChoice;
use ioloom_exchange::{Exchange, Order, RequestId, Side, State};
use ioloom_sys::file::{self, OpenHow, WriteMode, read_full_at, write_full_at};
use ioloom_sys::transfer::{next_data, set_len};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

const STOCKS: &str = "1 1000 10\n2 1000 20\n3 5 30\n";
/// Number of orders; each commit has one to three.
const ORDERS: u64 = 150;
/// Cases per store, durability and kind of damage in a usual test run.
const CASES: u64 = 4;
/// Maximum number of orders in a store that is copied.
const BACKUP_ORDERS: u64 = 600;
const PAGE: u64 = 4096;

/// Seeded pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (self.0 >> 33) % most.max(1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Flip,
    Cut,
    Zero,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Intact,
    Refused,
    ReportedLoss,
    SilentLoss,
    SilentChange,
    /// Refused, although every order can be read.
    RefusedReadable,
}

/// A store of which copies are damaged.
struct Original {
    kind: StoreKind,
    durability: Durability,
    /// The state after each order.
    states: Vec<State>,
    /// As left by a killed server, by a stopped one, and by a killed one before another boot.
    ends: Vec<(&'static str, TempDir)>,
}

fn open(
    dir: &Path,
    kind: StoreKind,
    durability: Durability,
    accept_loss: bool,
) -> Result<Opened, StoreError> {
    let path = dir.join("store");
    let stocks = Exchange::from_text(STOCKS).unwrap();
    Locked::take(&StoreChoice { kind, path, accept_loss }, &mut Vec::new())?
        .open(durability, &stocks, 7)
}

/// Copies a directory, without holes and without syncing.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&path, &target);
            continue;
        }
        fs::write(&target, "").unwrap();
        let from = file::open(&path, OpenHow::default()).unwrap();
        let to = file::open_to_write(&target, WriteMode::Buffered).unwrap();
        set_len(&to, file::size(&from).unwrap()).unwrap();
        let mut at = 0;
        while let Some(data) = next_data(&from, at).unwrap() {
            let mut bytes = vec![0; usize::try_from(data.end - data.start).unwrap()];
            let count = read_full_at(&from, &mut bytes, data.start).unwrap();
            write_full_at(&to, &bytes[..count], data.start).unwrap();
            at = data.end;
        }
    }
}

impl Original {
    fn new(kind: StoreKind, durability: Durability) -> Self {
        let dir = scratch(kind);
        let Opened { mut store, mut state, .. } =
            open(dir.path(), kind, durability, false).unwrap();
        let mut states = vec![state.clone()];
        while state.seq() < ORDERS {
            let mut records = Vec::new();
            for _ in 0..=state.seq() % 3 {
                let number = state.seq() + 1;
                let side = if number.is_multiple_of(3) { Side::Sell } else { Side::Buy };
                let (stock, count) = ((number % 3 + 1) as u32, (number % 5 + 1) as u32);
                let order = Order::new(side, stock, count).unwrap();
                let request_id = RequestId { client: Arc::from("anna"), request: number };
                records.extend(state.trade(&order, Some(&request_id)).1);
                states.push(state.clone());
            }
            store.commit(&records).unwrap();
        }
        let killed = scratch(kind);
        copy(dir.path(), killed.path());
        store.set_stock_hashes(&[11, 12]).unwrap();
        drop(store);
        let mut ends = vec![("killed", killed), ("stopped", dir)];
        if durability == Durability::Os {
            let rebooted = scratch(kind);
            copy(ends[0].1.path(), rebooted.path());
            let (found, bytes) = mark::of_another_boot(&rebooted.path().join("store"));
            assert!(matches!(found, Found::Mark(..)));
            fs::write(rebooted.path().join("store.mark"), bytes).unwrap();
            ends.push(("rebooted", rebooted));
        }
        Self { kind, durability, states, ends }
    }

    fn damaged(&self, end: usize, damage: Damage, random: &mut Random) -> (Class, String) {
        let dir = scratch(self.kind);
        let (how, whole) = &self.ends[end];
        copy(whole.path(), dir.path());
        let what = spoil(dir.path(), damage, random);
        let case = format!("{} {}, {how}, {what}", self.kind, self.durability);
        (self.class(dir.path(), &case), case)
    }

    fn class(&self, dir: &Path, case: &str) -> Class {
        let last = self.states.len() as u64 - 1;
        let before = inspect_store(&dir.join("store"), &mut |_| {});
        match open(dir, self.kind, self.durability, false) {
            Ok(opened) => {
                let seq = opened.state.seq();
                let expected = self.states.get(usize::try_from(seq).unwrap());
                if expected.is_none_or(|state| *state != opened.state) {
                    return Class::SilentChange;
                }
                // What was reported must not come back, and the store must continue.
                let notices = opened.notices.clone();
                drop(opened);
                let again = open(dir, self.kind, self.durability, false);
                let again = again.unwrap_or_else(|e| panic!("{case}: opened once, then: {e}"));
                assert_eq!((again.state.seq(), again.notices), (seq, vec![]), "{case}");
                let count = format!("{} order", last - seq);
                match seq == last {
                    true => Class::Intact,
                    false if notices.iter().any(|text| text.starts_with(&count)) => {
                        Class::ReportedLoss
                    }
                    false => Class::SilentLoss,
                }
            }
            Err(error) => {
                let text = error.to_string();
                assert_eq!(text.lines().count(), 1, "{case}: {text}");
                let is_whole =
                    before.is_ok_and(|facts| facts.latest == last && facts.damage.is_none());
                if is_whole {
                    println!("{case}: {text}");
                    return Class::RefusedReadable;
                }
                self.accepted(dir, case, &text);
                Class::Refused
            }
        }
    }

    /// A refused store either opens with the flag as an earlier state, or is refused as before.
    fn accepted(&self, dir: &Path, case: &str, refusal: &str) {
        match open(dir, self.kind, self.durability, true) {
            Ok(opened) => {
                assert!(refusal.contains("--accept-loss"), "{case}: {refusal}");
                let seq = usize::try_from(opened.state.seq()).unwrap();
                assert!(self.states[seq] == opened.state, "{case}: another state");
                assert!(!opened.notices.is_empty(), "{case}: nothing is reported");
            }
            Err(error) => assert!(!refusal.contains("--accept-loss"), "{case}: {error}"),
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    let mut all: Vec<_> = entries.flat_map(of).collect();
    all.sort();
    all
}

/// Damages one place of one file; returns a description.
fn spoil(dir: &Path, damage: Damage, random: &mut Random) -> String {
    let used = |path: &Path| bytes::used(&fs::read(path).unwrap()) as u64;
    let mut all: Vec<_> = files(dir).into_iter().map(|path| (used(&path), path)).collect();
    all.retain(|(used, _)| *used > 0);
    // Half of the cases hit the largest file, which has most of the orders.
    all.sort();
    let at =
        if random.below(2) == 0 { all.len() - 1 } else { random.below(all.len() as u64) as usize };
    let (used, path) = &all[at];
    let place = match random.below(4) {
        0 => random.below((*used).min(512)),
        1 => used - 1 - random.below(used.div_ceil(10)),
        _ => random.below(*used),
    };
    let file = file::open_to_write(path, WriteMode::Buffered).unwrap();
    let name = path.strip_prefix(dir).unwrap().display();
    match damage {
        Damage::Flip => {
            let (mut byte, bit) = ([0], random.below(8));
            read_full_at(&file, &mut byte, place).unwrap();
            write_full_at(&file, &[byte[0] ^ (1 << bit)], place).unwrap();
            format!("{name}: bit {bit} of byte {place}")
        }
        Damage::Cut => {
            set_len(&file, place).unwrap();
            format!("{name}: cut at {place}")
        }
        Damage::Zero => {
            let from = place / PAGE * PAGE;
            let end = (from + PAGE).min(file::size(&file).unwrap());
            write_full_at(&file, &vec![0; (end - from) as usize], from).unwrap();
            format!("{name}: zeros at {from}")
        }
    }
}

type Counts = BTreeMap<(usize, Level, Damage, Class), u64>;
/// Position of a durability in its list, which orders the table.
type Level = usize;

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

fn run(kind: StoreKind, cases: u64, seed: u64, counts: &Mutex<Counts>) {
    for (level, durability) in Durability::ALL.iter().copied().enumerate() {
        if durability == Durability::None || store_refusal(kind, durability).is_some() {
            continue;
        }
        let original = Original::new(kind, durability);
        // Undamaged stores open, at every end.
        for (how, end) in &original.ends {
            let dir = scratch(kind);
            copy(end.path(), dir.path());
            let class = original.class(dir.path(), how);
            assert_eq!(class, Class::Intact, "{kind} {durability}: undamaged, {how}");
        }
        for damage in [Damage::Flip, Damage::Cut, Damage::Zero] {
            for case in 0..cases {
                let mut random = Random(seed ^ (case << 8) ^ (level as u64) << 4 ^ damage as u64);
                random.below(1);
                let end = (case % original.ends.len() as u64) as usize;
                let (class, what) = original.damaged(end, damage, &mut random);
                if class > Class::ReportedLoss {
                    println!("{class:?}: {what}");
                }
                let mut counts = counts.lock().unwrap();
                *counts.entry((kind as usize, level, damage, class)).or_default() += 1;
            }
        }
    }
}

fn table(counts: &Counts, cases: u64, seed: u64) -> String {
    let classes = [
        Class::Intact,
        Class::Refused,
        Class::ReportedLoss,
        Class::SilentLoss,
        Class::SilentChange,
        Class::RefusedReadable,
    ];
    let mut text = format!(
        "# Damage matrix\n\n{cases} cases per store, durability and kind of damage; seed {seed}; \
         {ORDERS} orders.\n\n| store | durability | damage | intact | refused | reported loss | \
         silent loss | silent change | refused but readable |\n|---|---|---|---|---|---|---|---|---|\n"
    );
    let mut rows: Vec<_> =
        counts.keys().map(|(kind, level, damage, _)| (*kind, *level, *damage)).collect();
    rows.dedup();
    for (kind, level, damage) in rows {
        let of = |class| counts.get(&(kind, level, damage, class)).copied().unwrap_or(0);
        let cells: Vec<_> = classes.iter().map(|class| of(*class).to_string()).collect();
        let name = format!("{damage:?}").to_lowercase();
        let (kind, level) = (StoreKind::ALL[kind], Durability::ALL[level]);
        text.push_str(&format!("| {kind} | {level} | {name} | {} |\n", cells.join(" | ")));
    }
    text
}

#[test]
fn damage_is_never_silent() {
    let (cases, seed) = (number("IOLOOM_DAMAGE", CASES), number("IOLOOM_SEED", 1));
    let counts = Mutex::new(Counts::new());
    std::thread::scope(|scope| {
        for kind in StoreKind::ALL {
            if let Err(reason) = super::probe_store(*kind, scratch(*kind).path()) {
                println!("skipped: {reason}");
                continue;
            }
            scope.spawn(|| run(*kind, cases, seed, &counts));
        }
    });
    let counts = counts.into_inner().unwrap();
    let table = table(&counts, cases, seed);
    println!("{table}");
    if let Ok(path) = std::env::var("IOLOOM_DAMAGE_TABLE") {
        fs::write(path, &table).unwrap();
    }
    for ((kind, level, damage, class), count) in &counts {
        let (kind, level) = (StoreKind::ALL[*kind], Durability::ALL[*level]);
        assert!(
            *class <= Class::ReportedLoss,
            "{kind} {level}: {count} cases of {damage:?}: {class:?}"
        );
    }
}

/// A copy of a store in use is complete up to some order, and nothing is replaced.
#[test]
fn a_backup_of_a_running_server_is_a_state_it_had() {
    for kind in StoreKind::ALL.iter().copied() {
        let dir = scratch(kind);
        if super::probe_store(kind, dir.path()).is_err() {
            continue;
        }
        let opened = open(dir.path(), kind, Durability::Group, false).unwrap();
        let Opened { mut store, mut state, .. } = opened;
        let mut states = vec![state.clone()];
        let order = Order::new(Side::Sell, 1, 1).unwrap();
        let path = dir.path().join("store");
        let copies: Vec<_> = (0..3).map(|n| dir.path().join(format!("copy{n}"))).collect();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let backups = scope.spawn(|| {
                let made: Vec<_> =
                    copies.iter().map(|copy| super::backup_store(&path, copy)).collect();
                is_done.store(true, std::sync::atomic::Ordering::SeqCst);
                made
            });
            while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                if state.seq() >= BACKUP_ORDERS {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    continue;
                }
                let request_id = RequestId { client: Arc::from("a"), request: state.seq() + 1 };
                let record = state.trade(&order, Some(&request_id)).1.unwrap();
                store.commit(&[record]).unwrap();
                states.push(state.clone());
            }
            for made in backups.join().unwrap() {
                let facts = made.unwrap_or_else(|e| panic!("{kind}: {e}"));
                assert!(facts.damage.is_none(), "{kind}: {facts:?}");
            }
        });
        let mut latest = 0;
        for copy in &copies {
            let mut orders = 0;
            let facts = inspect_store(copy, &mut |_| orders += 1).unwrap();
            assert!(facts.latest >= latest && orders == facts.latest, "{kind}: {facts:?}");
            latest = facts.latest;
            let proven = prove(facts.kind, copy, Durability::Group, &mut |_| {}).unwrap();
            assert!(proven.state == states[usize::try_from(latest).unwrap()], "{kind}");
            drop(proven);
            let error = super::backup_store(&path, copy).unwrap_err().to_string();
            assert!(error.contains("File exists") || error.contains("exists"), "{kind}: {error}");
        }
        assert!(latest > 0, "{kind}: no order was copied");
        let error = inspect_store(&path, &mut |_| {}).unwrap_err().to_string();
        assert!(error.contains("ioloom store backup") && !error.contains("remove"), "{error}");
        drop(store);
        let facts = inspect_store(&path, &mut |_| {}).unwrap();
        assert_eq!((facts.latest, facts.missing_orders), (state.seq(), 0), "{kind}");
        remove(&with_suffix(&path, "")).unwrap();
    }
}
