//! Source 000: 71 cells in seven groups, and the break-even of a dedicated reader.

use super::section::{Figure, Group, Parameter, Row, Section, Use, parameter};
use crate::PredictError;
use crate::least_squares;
use crate::network::{Network, Station};
use crate::overlap::FileWork;
use crate::table::{Cell, Digits, Table};

/// Files of the small set and of the large one.
const FILES: f64 = 10_000.0;
/// Files of the massive sets.
const MILLION: f64 = 1e6;
/// Files of the comparison of synchronous and overlapped reads.
const FEW_FILES: u32 = 50;
/// Published mean compute time of a small file, in milliseconds.
const COMPUTE_MS: f64 = 0.390_625;

/// What a cell is, with what its prediction needs.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Law {
    /// A read call of this size in MiB.
    Call {
        mib: f64,
    },
    /// All bytes of the large set through the device.
    LargeRead,
    LargeMapped,
    /// The end of all read calls, by this number of threads that call.
    CallsEnd {
        callers: f64,
    },
    /// The elapsed time of threads that call and compute, and threads that only compute.
    Roles {
        callers: f64,
        computers: f64,
    },
    MillionMapped {
        threads: f64,
    },
    MillionRead {
        threads: f64,
    },
    Synchronous {
        threads: f64,
    },
    Reader {
        threads: f64,
    },
}

struct Item {
    law: Law,
    cell: Cell,
}

/// Names, starts and units of the parameters. The starts are orders of magnitude.
const PARAMETERS: [(&str, f64, &str); 15] = [
    ("read call", 0.05, "ms"),
    ("read call per MiB", 0.1, "ms"),
    ("device rate", 0.5, "MiB/ms"),
    ("mapped time over read time", 1.0, ""),
    ("call without waiting", 0.25, "ms"),
    ("serial kernel time of a call", 0.05, "ms"),
    ("share of the calls that overlaps computing", 0.1, ""),
    ("end of the last file", 5.0, "ms"),
    ("thread time of a mapped file", 0.3, "ms"),
    ("serial kernel time of a mapped file", 0.03, "ms"),
    ("thread time of a read file", 0.5, "ms"),
    ("serial kernel time of a read file", 0.03, "ms"),
    ("contention, all groups with many files or few", 0.04, ""),
    ("compute time of the few files", 12.0, "ms"),
    ("wait for one of the few files", 3.0, "ms"),
];

/// The parameters of a million files.
const MILLION_PARAMETERS: std::ops::Range<usize> = 8..13;

/// Size of the large set, as published.
fn large_mib() -> Result<f64, PredictError> {
    let table = Table::find("000_sets")?;
    let at = table.words("set")?.iter().position(|set| *set == "D");
    let at = at.ok_or(PredictError::Table { table: "000_sets" })?;
    Ok(table.numbers("total")?[at])
}

/// Returns all cells by group.
fn groups() -> Result<Vec<(&'static str, Vec<Item>)>, PredictError> {
    let mut all = Vec::new();
    let table = Table::find("000_call_cost")?;
    let sizes = table.words("size")?;
    let cells = table.cells("read_file_ms", Digits::Own, |row| sizes[row].to_owned())?;
    let call = |(size, cell): (&&str, Cell)| {
        let mib = mib(size).ok_or(PredictError::Table { table: "000_call_cost" })?;
        Ok(Item { law: Law::Call { mib }, cell })
    };
    let calls: Result<Vec<Item>, PredictError> = sizes.iter().zip(cells).map(call).collect();
    all.push(("read call by size", calls?));
    let (mut read, mut mapped) = (Vec::new(), Vec::new());
    for name in ["000_large_threads", "000_mmap_large"] {
        let table = Table::find(name)?;
        let threads = table.words("threads")?;
        let method = table.words("method").unwrap_or_else(|_| vec!["read"; threads.len()]);
        let label = |row: usize| format!("{}, {} threads", method[row], threads[row]);
        for (cell, method) in
            table.cells("elapsed_ms", Digits::Own, label)?.into_iter().zip(&method)
        {
            let is_read = *method == "read";
            let law = if is_read { Law::LargeRead } else { Law::LargeMapped };
            let group = if is_read { &mut read } else { &mut mapped };
            group.push(Item { law, cell });
        }
    }
    all.push(("large files, read", read));
    all.push(("large files, mapped", mapped));
    roles(&mut all)?;
    million(&mut all)?;
    let table = Table::find("000_sync_overlapped")?;
    let (sets, threads) = (table.words("set")?, table.numbers("threads")?);
    let mut few = Vec::new();
    for column in ["sync_ms", "overlapped_ms"] {
        let label = |row: usize| format!("{column}, {} threads", threads[row]);
        for (row, cell) in table.cells(column, Digits::Own, label)?.into_iter().enumerate() {
            if sets[row] == "Bcc" {
                let threads = threads[row];
                let law = if column == "sync_ms" {
                    Law::Synchronous { threads }
                } else {
                    Law::Reader { threads }
                };
                few.push(Item { law, cell });
            }
        }
    }
    all.push(("50 files, synchronous and with a reader", few));
    Ok(all)
}

fn roles(all: &mut Vec<(&'static str, Vec<Item>)>) -> Result<(), PredictError> {
    let table = Table::find("000_roles")?;
    let (callers, computers) = (table.numbers("hybrids")?, table.numbers("computers")?);
    let label = |row: usize| format!("{} call, {} compute", callers[row], computers[row]);
    let items = |column: &str, law: &dyn Fn(usize) -> Law| -> Result<Vec<Item>, PredictError> {
        let cells = table.cells(column, Digits::Own, label)?.into_iter().enumerate();
        Ok(cells.map(|(row, cell)| Item { law: law(row), cell }).collect())
    };
    all.push((
        "small files, end of the calls",
        items("calls_end_ms", &|row| Law::CallsEnd { callers: callers[row] })?,
    ));
    let roles = |row: usize| Law::Roles { callers: callers[row], computers: computers[row] };
    let mut elapsed = items("elapsed_ms", &roles)?;
    // The times of 16 and 32 threads are those of the other table, with more digits.
    let table = Table::find("000_small_threads")?;
    let threads = table.numbers("threads")?;
    let label = |row: usize| format!("{} call and compute", threads[row]);
    for (row, cell) in table.cells("elapsed_ms", Digits::Own, label)?.into_iter().enumerate() {
        if threads[row] == 4.0 {
            elapsed.push(Item { law: Law::Roles { callers: 4.0, computers: 0.0 }, cell });
        }
    }
    all.push(("small files, elapsed", elapsed));
    Ok(())
}

fn million(all: &mut Vec<(&'static str, Vec<Item>)>) -> Result<(), PredictError> {
    let table = Table::find("000_million")?;
    let (sets, methods) = (table.words("set")?, table.words("method")?);
    let (hybrids, computers) = (table.numbers("hybrids")?, table.numbers("computers")?);
    let label = |row: usize| {
        format!("set {}, {}, {}/{}", sets[row], methods[row], hybrids[row], computers[row])
    };
    let mut items = Vec::new();
    for (row, cell) in table.cells("elapsed_ms", Digits::Own, label)?.into_iter().enumerate() {
        let threads = hybrids[row] + computers[row];
        if EXCLUDED.iter().any(|(label, _)| cell.label == *label) {
            continue;
        }
        let law = if methods[row] == "mmap" {
            Law::MillionMapped { threads }
        } else {
            Law::MillionRead { threads }
        };
        items.push(Item { law, cell });
    }
    all.push(("a million files", items));
    Ok(())
}

/// Cells that no law here predicts, with the reason.
const EXCLUDED: [(&str, &str); 2] = [
    ("set C, read, 16/0", "1602 s: up to a million reads in flight"),
    ("set C, read, 8/8", "77 s: up to a million reads in flight"),
];

/// Parses a size of the table of calls.
fn mib(size: &str) -> Option<f64> {
    for (unit, factor) in [("MiB", 1.0), ("KiB", 1.0 / 1024.0), ("B", 1.0 / 1_048_576.0)] {
        if let Some(number) = size.strip_suffix(unit) {
            return number.parse::<f64>().ok().map(|n| n * factor);
        }
    }
    None
}

/// Predicts a cell in milliseconds.
fn predict(law: Law, p: &[f64], large_mib: f64) -> f64 {
    let calls_end = |callers: f64| {
        let network = Network::new(vec![
            Station::Delay { demand_s: p[4] },
            Station::Queue { demand_s: p[5] },
        ]);
        network.map_or(f64::NAN, |network| FILES / network.rate_per_s(callers as u32))
    };
    let million = |thread_ms: f64, serial_ms: f64, threads: f64| {
        let network = Network::new(vec![
            Station::Shared { demand_s: thread_ms, contention: p[12] },
            Station::Queue { demand_s: serial_ms },
        ]);
        network.map_or(f64::NAN, |network| MILLION / network.rate_per_s(threads as u32))
    };
    let few =
        FileWork { files: FEW_FILES, compute_s: p[13], read_wait_s: p[14], contention: p[12] };
    match law {
        Law::Call { mib } => p[0] + p[1] * mib,
        Law::LargeRead => large_mib / p[2],
        Law::LargeMapped => large_mib / p[2] * p[3],
        Law::CallsEnd { callers } => calls_end(callers),
        // Threads that only compute keep up with the calls if there are enough; those that call
        // start to compute before the last call ends.
        Law::Roles { callers, computers } => {
            let (end, work) = (calls_end(callers), FILES * COMPUTE_MS);
            if computers == 0.0 {
                end * (1.0 - p[6]) + work / callers + p[7]
            } else {
                let left = (work - computers * end).max(0.0);
                end + left / (callers + computers) + p[7]
            }
        }
        Law::MillionMapped { threads } => million(p[8], p[9], threads),
        Law::MillionRead { threads } => million(p[10], p[11], threads),
        Law::Synchronous { threads } => few.synchronous_s(threads as u32),
        Law::Reader { threads } => few.reader_s(threads as u32),
    }
}

fn fit(items: &[&Item], large_mib: f64) -> Result<Vec<f64>, PredictError> {
    let start: Vec<f64> = PARAMETERS.iter().map(|(_, start, _)| *start).collect();
    let residual = |item: &&Item, p: &[f64]| {
        // The error is finite for any prediction above zero.
        (predict(item.law, p, large_mib) / item.cell.value).ln()
    };
    let fit = least_squares::fit(&start, |p| items.iter().map(|i| residual(i, p)).collect())?;
    Ok(fit.parameters)
}

fn parameters(values: &[f64]) -> Vec<Parameter> {
    PARAMETERS.iter().zip(values).map(|((name, _, unit), v)| parameter(*name, *v, unit)).collect()
}

fn rows<'a>(items: impl Iterator<Item = &'a Item>, p: &[f64], large_mib: f64) -> Vec<Row> {
    items.map(|item| Row::new(&item.cell, predict(item.law, p, large_mib))).collect()
}

pub(super) fn section() -> Result<Section, PredictError> {
    let (large_mib, all) = (large_mib()?, groups()?);
    let items: Vec<&Item> = all.iter().flat_map(|(_, items)| items).collect();
    let fitted = fit(&items, large_mib)?;
    let every = rows(items.iter().copied(), &fitted, large_mib);
    let mut found =
        vec![Group::new(format!("{} cells", every.len()), Use::Fitted, every, Some(0.04))];
    for half in 0..2 {
        let part = |wanted: usize| {
            all.iter()
                .flat_map(move |(_, items)| items.iter().skip(wanted).step_by(2))
                .collect::<Vec<&Item>>()
        };
        let p = fit(&part(half), large_mib)?;
        let held_out = rows(part(1 - half).into_iter(), &p, large_mib);
        let name = ["cells 2, 4, ... of each group from cells 1, 3, ...", "the other way round"];
        found.push(Group::new(name[half], Use::HeldOut, held_out, Some(0.06)));
    }
    for (name, items) in &all {
        let rows = rows(items.iter(), &fitted, large_mib);
        found.push(Group::new(*name, Use::Fitted, rows, None));
    }
    let excluded = EXCLUDED.map(|(label, why)| format!("excluded: {label}, {why}"));
    let mut notes: Vec<String> = excluded.to_vec();
    notes.push(
        "not modelled: shares of waiting, growth of single calls, page fault shares, and the small \
         mapped set after the change of work"
            .to_owned(),
    );
    Ok(Section {
        title: "Source 000: files, threads and roles".to_owned(),
        law: "a line for the calls, bytes over bandwidth, closed networks of threads and a serial \
              kernel, and synchronous threads compared with a reader"
            .to_owned(),
        parameters: parameters(&fitted),
        groups: found,
        figures: Vec::new(),
        notes,
    })
}

/// Returns all parameters of law D1: two of the few files, and the five that the million files were fitted
/// with. Of the latter, only the contention is used.
fn reader_parameters(work: &FileWork, million: &[f64]) -> Vec<Parameter> {
    let mut all = vec![
        parameter("compute time of a file", work.compute_s, "ms"),
        parameter("wait for a file", work.read_wait_s, "ms"),
    ];
    all.extend(PARAMETERS[MILLION_PARAMETERS].iter().zip(million).map(
        |((name, _, unit), value)| {
            let shared = name.starts_with("contention");
            parameter(
                if shared { "contention, from the million files" } else { name },
                *value,
                unit,
            )
        },
    ));
    all
}

/// Law D1 with 4 threads fitted and 8 threads held out. The contention is that of the million files,
/// which have no cell in common with the 50 files.
pub(super) fn reader() -> Result<Section, PredictError> {
    let (large_mib, all) = (large_mib()?, groups()?);
    let of = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, items)| items);
    let missing = PredictError::Table { table: "000_sync_overlapped" };
    let million: Vec<&Item> = of("a million files").ok_or(missing)?.iter().collect();
    let start: Vec<f64> = PARAMETERS[MILLION_PARAMETERS].iter().map(|(_, s, _)| *s).collect();
    let whole = |p: &[f64]| {
        let mut all: Vec<f64> = PARAMETERS.iter().map(|(_, start, _)| *start).collect();
        all[MILLION_PARAMETERS].copy_from_slice(p);
        all
    };
    let found = least_squares::fit(&start, |p| {
        let p = whole(p);
        let of = |item: &&Item| (predict(item.law, &p, large_mib) / item.cell.value).ln();
        million.iter().map(of).collect()
    })?;
    let contention = found.parameters[4];
    let few = of("50 files, synchronous and with a reader").ok_or(missing)?;
    let cell = |wanted: Law| few.iter().find(|item| item.law == wanted).map(|item| &item.cell);
    let sync = cell(Law::Synchronous { threads: 4.0 }).ok_or(missing)?;
    let reader = cell(Law::Reader { threads: 4.0 }).ok_or(missing)?;
    let work = FileWork::from_pair(FEW_FILES, contention, 4, sync.value, reader.value)?;
    let plain = FileWork::from_pair(FEW_FILES, 0.0, 4, sync.value, reader.value)?;
    let predicted = |law: Law, work: &FileWork| match law {
        Law::Synchronous { threads } => Some((threads, work.synchronous_s(threads as u32))),
        Law::Reader { threads } => Some((threads, work.reader_s(threads as u32))),
        _ => None,
    };
    let rows = |work: &FileWork, wanted: &[f64]| -> Vec<Row> {
        let row = |item: &Item| {
            let (threads, time) = predicted(item.law, work)?;
            wanted.contains(&threads).then(|| Row::new(&item.cell, time))
        };
        few.iter().filter_map(row).collect()
    };
    let at_8 = rows(&work, &[8.0]);
    let worst = at_8.iter().map(|row| row.error.abs()).fold(0.0, f64::max);
    Ok(Section {
        title: "Source 000: the break-even of a reader thread (D1)".to_owned(),
        law: "both forms at 4 threads give compute and waiting; contention slows compute threads, \
              and the threads wait for the last file"
            .to_owned(),
        parameters: reader_parameters(&work, &found.parameters),
        groups: vec![
            Group::new("8 threads from 4", Use::HeldOut, at_8, Some(0.08)),
            Group::new("5 to 7 threads from 4", Use::HeldOut, rows(&work, &[5.0, 6.0, 7.0]), None),
            Group::new("8 threads, contention left out", Use::HeldOut, rows(&plain, &[8.0]), None),
        ],
        figures: vec![Figure {
            name: "larger error of the two forms at 8 threads".to_owned(),
            value: worst,
            goal: Some(0.08),
        }],
        notes: vec![
            "the last five parameters were fitted to the million files; of them, only the contention is used"
                .to_owned(),
        ],
    })
}
