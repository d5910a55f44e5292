//! Every number in every published table appears in the published text, near its neighbours.
//!
//! The texts are not in the repository; without them the test prints `skipped`.

use ioloom_claims::data::{TABLES, Table, table};
use std::path::{Path, PathBuf};

/// Number of text lines that a table row can span: 1 for a printed table, more if the numbers are
/// in running text, all lines if they are scattered.
const WINDOWS: &[(&str, usize)] = &[
    ("000_call_cost", 1),
    ("000_call_growth", 30),
    ("000_fault_share", 1),
    ("000_large_calls_end", 1),
    ("000_large_threads", 1),
    ("000_million", 1),
    ("000_mmap_large", 1),
    ("000_mmap_small", 1),
    ("000_mmap_task", 1),
    ("000_overlap", 1),
    ("000_overlap_terms", 1),
    ("000_roles", 1),
    ("000_sets", 4),
    ("000_shares", 1),
    ("000_small_task", usize::MAX),
    ("000_small_threads", 1),
    ("000_sync_overlapped", 40),
    ("001_terms", 1),
    ("001_walk", 1),
    ("002_cache_levels", 50),
    ("002_caches", 1),
    ("002_cat", 1),
    ("002_dd", 1),
    ("002_free", 1),
    ("002_ladder", 1),
    ("002_sar_device_read", 1),
    ("002_sar_device_write_buffered", 1),
    ("002_sar_device_write_direct", 1),
    ("002_sar_memory", 1),
    ("002_sar_paging_read", 1),
    ("002_sar_paging_write_buffered", 1),
    ("002_sar_paging_write_direct", 1),
    ("002_sharing", 50),
    ("002_smt", 1),
    ("002_sysctl", 8),
    ("003_large", 1),
    ("003_large_terms", 1),
    ("003_means", 1),
    ("003_runs", 1),
];

/// Columns that identify a row in our words rather than those of the text.
const OURS: &[(&str, &str)] = &[
    ("000_roles", "computers=0"),
    ("000_million", "computers=0"),
    ("000_mmap_small", "computers=0"),
    ("002_cache_levels", "index"),
    ("002_sharing", "cache"),
];

fn shared(part: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared").join(part)
}

fn source_text(number: &str) -> Option<String> {
    let entries = std::fs::read_dir(shared("seeds")).ok()?;
    let path = entries.flatten().map(|e| e.path()).find(|path| {
        path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(number))
    })?;
    std::fs::read_to_string(path).ok()
}

/// Returns all numbers in a line. Digits grouped by commas or points form one number; the Korean
/// word for "single" is 1.
fn numbers(line: &str) -> Vec<f64> {
    let line = line.replace("싱글", "1");
    let chars: Vec<char> = line.chars().collect();
    let digit = |i: usize| chars.get(i).is_some_and(char::is_ascii_digit);
    let (mut out, mut i) = (Vec::new(), 0);
    while i < chars.len() {
        if !digit(i) {
            i += 1;
            continue;
        }
        let mut text = String::new();
        while i < chars.len() {
            let three = |i: usize| (1..=3).all(|k| digit(i + k)) && !digit(i + 4);
            let mark = |i: usize| chars.get(i) == Some(&'.') && three(i);
            // Grouped by commas, or by at least two points as in 2.835.154.
            let points = mark(i) && (mark(i + 4) || i >= 4 && mark(i - 4) && !text.contains('.'));
            let grouped = (chars[i] == ',' && three(i) && !text.contains('.')) || points;
            let point = !grouped && chars[i] == '.' && digit(i + 1) && !text.contains('.');
            if digit(i) || point {
                text.push(chars[i]);
            } else if !grouped {
                break;
            }
            i += 1;
        }
        out.push(text.parse().expect("digits"));
    }
    out
}

/// Reports whether every wanted number occurs as often as required.
fn holds(found: &[f64], wanted: &[f64]) -> bool {
    let mut left = found.to_vec();
    wanted.iter().all(|w| {
        let at = left.iter().position(|f| f == w);
        at.map(|i| left.swap_remove(i)).is_some()
    })
}

/// Returns the numbers in a row, without signs.
fn row_numbers(name: &str, table: &Table, row: &[String]) -> Vec<f64> {
    let ours = |column: &str, cell: &str| {
        OURS.iter().any(|(table, what)| {
            *table == name
                && match what.split_once('=') {
                    Some((c, value)) => c == column && value == cell,
                    None => *what == column,
                }
        })
    };
    let words = |cell: &str| cell.starts_with(|c: char| c.is_alphabetic());
    table
        .header
        .iter()
        .zip(row)
        .filter(|(column, cell)| !ours(column, cell) && !words(cell) && !column.ends_with("unit"))
        .flat_map(|(_, cell)| numbers(cell))
        .collect()
}

fn contains_row(lines: &[Vec<f64>], window: usize, wanted: &[f64]) -> bool {
    let window = window.min(lines.len());
    lines.windows(window).any(|w| holds(&w.concat(), wanted))
}

#[test]
fn every_number_is_in_the_published_text() {
    let checked: Vec<&str> = WINDOWS.iter().map(|(name, _)| *name).collect();
    for (name, _) in TABLES {
        assert!(name.starts_with("004") || checked.contains(name), "{name} is not checked");
    }
    for (name, window) in WINDOWS {
        let Some(text) = source_text(&name[..3]) else {
            println!("skipped: no published text of source {}", &name[..3]);
            continue;
        };
        let lines: Vec<Vec<f64>> = text.lines().map(numbers).collect();
        let table = table(name).unwrap();
        for row in &table.rows {
            let wanted = row_numbers(name, &table, row);
            assert!(!wanted.is_empty(), "{name}: {row:?} has no number");
            assert!(contains_row(&lines, *window, &wanted), "{name}: {row:?}: {wanted:?}");
            for cell in row.iter().filter(|c| c.starts_with('-')) {
                assert!(text.contains(cell.as_str()), "{name}: {cell} with its sign");
            }
            if let Some(delta) = table.header.iter().position(|c| c == "delta_ms") {
                let turned = format!("-{}", row[delta]);
                assert!(row[delta].is_empty() || !text.contains(&turned), "{name}: {turned}");
            }
        }
    }
}

#[test]
fn a_wrong_number_would_be_found() {
    let lines: Vec<Vec<f64>> =
        ["(a) 12 Thread - 430ms (10%) 471ms", "126MB (132,506,485 bytes)"].map(numbers).to_vec();
    assert!(contains_row(&lines, 1, &[12.0, 430.0, 10.0, 471.0]));
    assert!(!contains_row(&lines, 1, &[12.0, 430.0, 10.0, 472.0]));
    assert!(!contains_row(&lines, 1, &[12.0, 12.0]));
    assert!(!contains_row(&lines, 1, &[471.0, 132_506_485.0]));
    assert!(contains_row(&lines, 2, &[471.0, 132_506_485.0]));
    assert_eq!(numbers("2.835.154 plików, 10.5GB; 1.234"), [2_835_154.0, 10.5, 1.234]);
    assert_eq!(numbers("$19.00~s$ 1.3GB/s 0,4"), [19.0, 1.3, 0.0, 4.0]);
}

/// Source 004 prints its tables transposed, with clients, times and rates on three lines. Each row
/// must match one column of such a triple; the position of the elapsed time gives the heading of
/// its model.
#[test]
fn rows_of_the_exchange_are_printed_columns() {
    let Some(text) = source_text("004") else {
        println!("skipped: no published text of source 004");
        return;
    };
    let lines: Vec<Vec<f64>> = text.lines().map(numbers).filter(|l| l.len() >= 6).collect();
    let table = table("004_exchange").unwrap();
    assert_eq!(table.rows.len(), 42);
    for row in &table.rows {
        let cell = |name: &str| -> f64 {
            let at = table.header.iter().position(|h| h == name).expect("a column");
            row[at].parse().expect("a number")
        };
        let printed = lines.windows(3).any(|w| {
            let column = w[1].iter().position(|v| *v == cell("elapsed_us"));
            column.is_some_and(|c| {
                w[0].get(c) == Some(&cell("clients"))
                    && w[2].get(c) == Some(&cell("rate_times_1e7"))
            })
        });
        assert!(printed, "{row:?}");
        // The published rate is requests per microsecond times ten million, truncated or rounded.
        let rate = cell("clients") * cell("orders_per_client") / cell("elapsed_us") * 1e7;
        assert!((rate / cell("rate_times_1e7") - 1.0).abs() < 2e-5, "{row:?}: {rate}");
    }
}

/// The unbuffered copies of source 003 alternate between fast and slow, which their means hide. The
/// series tests must detect the alternation there, but not in the buffered copies.
#[test]
fn the_alternation_that_source_003_hides_is_found() {
    let table = table("003_runs").unwrap();
    let column = |name: &str| -> Vec<f64> {
        let at = table.header.iter().position(|h| h == name).expect("a column");
        table.rows.iter().map(|row| row[at].parse().expect("a number")).collect()
    };
    for (name, found) in [
        ("unbuffered_64_s", true),
        ("unbuffered_32_s", true),
        ("buffered_64_s", false),
        ("buffered_32_s", false),
    ] {
        let values = column(name);
        let test = ioloom_stats::Alternation::test(&values).unwrap();
        assert_eq!(test.found, found, "{name}: {test:?}");
        assert!(!found || test.lag1 < -0.5, "{name}: {test:?}");
        let drift = ioloom_stats::Drift::test(&values).unwrap();
        assert!(!found || !drift.found, "{name}: not a drift: {drift:?}");
    }
    let first = ioloom_stats::FirstRun::test(&column("buffered_32_s")).unwrap();
    assert!(first.change > 2.0, "{first:?}");
}

/// The 42 runs measured only the sleep of one second after each order, in as many rounds as the
/// server's threads need to serve all clients.
#[test]
fn the_closed_loop_predicts_every_run_of_the_exchange_within_3_per_cent() {
    let table = table("004_exchange").unwrap();
    let mut errors = Vec::new();
    for row in &table.rows {
        let cell = |name: &str| {
            let at = table.header.iter().position(|h| h == name).expect("a column");
            row[at].as_str()
        };
        let number = |name: &str| -> u64 { cell(name).parse().expect("a number") };
        let threads = (cell("model") == "pool").then(|| number("threads"));
        let (clients, orders) = (number("clients"), number("orders_per_client"));
        let law_s = ioloom_predict::closed_loop::sleepers_elapsed_s(clients, threads, orders, 1.0);
        let error = number("elapsed_us") as f64 / 1e6 / law_s - 1.0;
        // A sleep cannot be shorter; any excess is other work.
        assert!((0.0..0.03).contains(&error), "{row:?}: {error}");
        errors.push(error);
    }
    assert_eq!(errors.len(), 42);
    errors.sort_by(f64::total_cmp);
    assert!(errors[21] < 0.004, "the median error is {}", errors[21]);
}

#[test]
fn peers_match_the_collected_figures() {
    let Ok(collected) = std::fs::read_to_string(shared("data/peers_published.csv")) else {
        println!("skipped: no collected figures of peers");
        return;
    };
    let here = TABLES.iter().find(|(name, _)| *name == "004_peers").expect("the table").1;
    assert_eq!(here.lines().collect::<Vec<_>>(), collected.lines().collect::<Vec<_>>());
}
