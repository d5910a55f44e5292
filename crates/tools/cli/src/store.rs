//! `ioloom store`: verifies, describes, backs up and exports the order stores of `ioloom serve`.

use crate::exit::{Ended, Exit, Failure};
use crate::{atomic_file, out, stderr};
use clap::{Args, Subcommand};
use ioloom_exchange::{OrderOutcome, Record, Refused, Side};
use ioloom_failure::quoted;
use ioloom_model::units::{format_counted, format_size};
use ioloom_serve::{StoreFacts, backup_store, inspect_store};
use ioloom_sys::proc;
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Version of the `--json` documents and of exported lines.
const SCHEMA: u32 = 1;

/// Verify, back up and export order stores
///
/// For the stores of 'ioloom serve', except postgres. Every subcommand reads and verifies the whole
/// store and changes nothing. Only backup can read a store that a server is using.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom store verify stock.txt.store
  ioloom store backup stock.txt.store /backup/stock.store
  ioloom store export stock.txt.store > orders.jsonl
  ioloom store export --stocks /backup/stock.store > stock.txt")]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check that a store is complete and undamaged
    ///
    /// Verifies every order and stock, and compares the store with its mark, which records how far
    /// orders were acknowledged. The exit code is 1 if the store or its mark is damaged, or if
    /// acknowledged orders are missing, also those that a power failure may lose.
    #[command(after_long_help = "Examples:\n  ioloom store verify stock.txt.store")]
    Verify(FileArgs),
    /// Describe a store and its mark
    ///
    /// Prints the kind, size, numbers of orders and stocks, and the contents of the mark.
    #[command(after_long_help = "Examples:\n  ioloom store inspect --json stock.txt.store")]
    Inspect(FileArgs),
    /// Copy a store, even while a server is using it
    ///
    /// A running server commits no orders during the copy, for at most 30 seconds. The copy is
    /// verified and synced before it gets its name. An existing file is never replaced.
    #[command(after_long_help = "\
Examples:
  ioloom store backup stock.txt.store /backup/stock.store

Restore, with the server stopped:
  mkdir damaged && mv stock.txt stock.txt.store* damaged
  ioloom store backup /backup/stock.store stock.txt.store
  ioloom store export --stocks stock.txt.store > stock.txt")]
    Backup(BackupArgs),
    /// Print the orders of a store
    ///
    /// One JSON object per line: the retained orders in the order of their numbers, then the stocks.
    /// If the store is damaged or incomplete, prints what can be read and exits with code 1.
    #[command(after_long_help = "\
Examples:
  ioloom store export stock.txt.store > orders.jsonl
  ioloom store export --stocks stock.txt.store > stock.txt")]
    Export(ExportArgs),
}

#[derive(Debug, Args)]
struct FileArgs {
    /// Store: a file, or a directory of fjall
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BackupArgs {
    /// Store to copy
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Name of the copy
    #[arg(value_name = "COPY")]
    copy: PathBuf,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExportArgs {
    /// Store: a file, or a directory of fjall
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Print only the stocks, in the format of a stock file
    #[arg(long)]
    stocks: bool,
}

/// The document of `verify`, `inspect` and `backup`.
#[derive(Debug, Serialize)]
struct Described {
    schema: u32,
    command: &'static str,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    store: &'static str,
    bytes: u64,
    stocks: usize,
    log_number: u64,
    orders: u64,
    intact: bool,
    damage: Option<String>,
    missing_orders: u64,
    unreadable: Option<UnreadableBytes>,
    mark: Option<MarkDescribed>,
}

#[derive(Debug, Serialize)]
struct UnreadableBytes {
    path: String,
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct MarkDescribed {
    damaged: bool,
    durability: Option<&'static str>,
    acknowledged: Option<u64>,
    synced: Option<u64>,
    this_boot: Option<bool>,
}

pub(crate) fn run(args: &StoreArgs) -> Ended {
    // Copies are private, also the files that storage engines create.
    proc::restrict_umask();
    match &args.what {
        What::Verify(args) => verify(args),
        What::Inspect(args) => inspect(args),
        What::Backup(args) => backup(args),
        What::Export(args) => export(args),
    }
}

fn read(file: &Path) -> Result<StoreFacts, Failure> {
    inspect_store(file, &mut |_| {}).map_err(Failure::failed)
}

fn verify(args: &FileArgs) -> Ended {
    let facts = read(&args.file)?;
    let printed = if args.json {
        out::print_json(&described("store verify", &facts))
    } else if facts.problem().is_none() {
        out::print(&format!("{}: {}\n", quoted(&args.file), summary(&facts)))
    } else {
        Ok(())
    };
    out::then(printed, ended(&facts))
}

fn inspect(args: &FileArgs) -> Ended {
    let facts = read(&args.file)?;
    if args.json {
        out::print_json(&described("store inspect", &facts))?;
    } else {
        out::print(&page(&facts))?;
    }
    Ok(Exit::Ok)
}

fn backup(args: &BackupArgs) -> Ended {
    atomic_file::refuse_dash("store backup", Some(&args.copy))?;
    let facts = backup_store(&args.file, &args.copy).map_err(Failure::failed)?;
    if args.json {
        out::print_json(&described("store backup", &facts))?;
    } else {
        let what = format!("copied {} to {}", quoted(&args.file), quoted(&args.copy));
        stderr::message(&format!("{what}: {}", summary(&facts)));
    }
    Ok(Exit::Ok)
}

fn export(args: &ExportArgs) -> Ended {
    if args.stocks {
        let facts = read(&args.file)?;
        return out::then(out::print(&facts.stock_file), ended(&facts));
    }
    let mut lines = BufWriter::new(std::io::stdout().lock());
    let mut failed = None;
    let mut each = |record: &Record| {
        if failed.is_none() {
            failed = write_line(&mut lines, &line(record)).err();
        }
    };
    let facts = inspect_store(&args.file, &mut each);
    let stocks = facts.as_ref().ok().map(stocks);
    let written = failed.map_or(Ok(()), Err).and_then(|()| {
        stocks.map_or(Ok(()), |stocks| write_line(&mut lines, &stocks))?;
        lines.flush()
    });
    let printed = written.map_err(|error| out::unwritten(&error));
    out::then(printed, facts.map_err(Failure::failed).and_then(|facts| ended(&facts)))
}

fn write_line(out: &mut impl Write, value: &serde_json::Value) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// Reports damage, missing orders or a damaged mark as a failure.
fn ended(facts: &StoreFacts) -> Ended {
    let Some(problem) = facts.problem() else { return Ok(Exit::Ok) };
    let advice = match facts.damage {
        Some(_) => "start the server with --accept-loss",
        // The server reports both, and continues.
        None => "start the server, which continues with the orders in the store",
    };
    Err(Failure::failed(format!(
        "store {} may be incomplete: {problem}; restore a backup, or {advice}",
        quoted(&facts.path)
    )))
}

fn line(record: &Record) -> serde_json::Value {
    let (seq, left, refused) = match record.outcome {
        OrderOutcome::Done { left, seq } => (seq, Some(left), None),
        OrderOutcome::Refused { why, seq } => (seq, None, Some(refusal(why))),
    };
    serde_json::json!({ "order": {
        "log_number": seq,
        "side": match record.order.side() { Side::Buy => "buy", Side::Sell => "sell" },
        "stock": record.order.stock(),
        "count": record.order.count(),
        "left": left,
        "refused": refused,
        "client": record.request_id.as_ref().map(|id| &*id.client),
        "request": record.request_id.as_ref().map(|id| id.request),
    }})
}

fn refusal(why: Refused) -> &'static str {
    match why {
        Refused::NotEnough => "not-enough",
        Refused::UnknownStock => "unknown-stock",
        Refused::TooMany => "too-many",
    }
}

fn stocks(facts: &StoreFacts) -> serde_json::Value {
    let stock = |line: &str| {
        let mut numbers = line.split(' ').map(|word| word.parse::<u32>().ok());
        let mut next = || numbers.next().flatten();
        serde_json::json!({ "stock": next(), "left": next(), "price": next() })
    };
    let stocks: Vec<_> = facts.stock_file.lines().map(stock).collect();
    serde_json::json!({
        "schema": SCHEMA,
        "log_number": facts.latest,
        "complete": facts.problem().is_none(),
        "stocks": stocks,
    })
}

fn summary(facts: &StoreFacts) -> String {
    format!(
        "{} store, latest order {}, {} and {} intact, {}",
        facts.kind,
        facts.latest,
        format_counted(facts.orders, "order", "orders"),
        format_counted(facts.stocks as u64, "stock", "stocks"),
        format_size(facts.bytes)
    )
}

fn page(facts: &StoreFacts) -> String {
    let mut lines = vec![
        ("store", quoted(&facts.path).to_string()),
        ("kind", facts.kind.to_string()),
        ("size", format_size(facts.bytes).to_string()),
        ("stocks", facts.stocks.to_string()),
        ("latest order", facts.latest.to_string()),
        ("retained orders", facts.orders.to_string()),
    ];
    match &facts.mark {
        Some(mark) => {
            let level = mark.durability.map_or("unknown", |level| level.name());
            lines.push(("durability", level.to_owned()));
            lines.push(("acknowledged up to", mark.acknowledged.to_string()));
            lines.push(("synced up to", mark.synced.to_string()));
            let boot = if mark.is_this_boot { "this boot" } else { "another boot or file system" };
            lines.push(("mark written in", boot.to_owned()));
        }
        None if facts.is_mark_damaged => lines.push(("mark", "damaged".to_owned())),
        None => lines.push(("mark", "none".to_owned())),
    }
    if let Some((path, offset, bytes)) = &facts.unreadable {
        let text = format!("{bytes} bytes after offset {offset} of {}", quoted(path));
        lines.push(("unreadable", text));
    }
    if facts.missing_orders > 0 {
        lines.push(("missing orders", facts.missing_orders.to_string()));
    }
    lines.push(("damage", facts.damage.clone().unwrap_or_else(|| "none".to_owned())));
    if facts.damage.is_none()
        && let Some(problem) = facts.problem()
    {
        lines.push(("problem", problem));
    }
    lines.iter().map(|(name, value)| format!("{name:<20}{value}\n")).collect()
}

fn described(command: &'static str, facts: &StoreFacts) -> Described {
    let mark = facts.mark.map(|mark| MarkDescribed {
        damaged: false,
        durability: mark.durability.map(|level| level.name()),
        acknowledged: Some(mark.acknowledged),
        synced: Some(mark.synced),
        this_boot: Some(mark.is_this_boot),
    });
    let damaged = facts.is_mark_damaged.then_some(MarkDescribed {
        damaged: true,
        durability: None,
        acknowledged: None,
        synced: None,
        this_boot: None,
    });
    Described {
        schema: SCHEMA,
        command,
        path: facts.path.display().to_string(),
        path_base64: out::base64_unless_utf8(&facts.path),
        store: facts.kind.name(),
        bytes: facts.bytes,
        stocks: facts.stocks,
        log_number: facts.latest,
        orders: facts.orders,
        intact: facts.problem().is_none(),
        damage: facts.damage.clone(),
        missing_orders: facts.missing_orders,
        unreadable: facts.unreadable.as_ref().map(|(path, offset, bytes)| UnreadableBytes {
            path: path.display().to_string(),
            offset: *offset,
            bytes: *bytes,
        }),
        mark: mark.or(damaged),
    }
}
