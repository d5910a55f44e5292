//! `ioloom predict`: what other devices, threads and scales would give.

mod calibrate;
mod eviction;
mod ladders;
mod probes;
mod saved;
mod scratch;
mod server_probes;
mod show;
mod timeline;
mod verify;

use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::{atomic_file, out, values};
use clap::{Args, Subcommand};
use ioloom_predict::PredictError;
use ioloom_predict::answer::profile::Class;
use ioloom_predict::answer::{Answer, IN_FLIGHT_MAX, copy, exchange, files, walk};
use ioloom_predict::machine::{Order, Sizes};
use saved::Calibration;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Cores of the machine of a published device.
const CORES: u32 = 8;

/// `--calibrate` and the flags that need it: clap does not require a flag that conflicts with another one.
const CALIBRATING: [&str; 8] =
    ["calibrate", "dir", "existing", "evict", "drop_caches", "copy_cached", "brief", "exchange"];

/// Predict times on other devices, with other threads and at other scales
///
/// Prints elapsed time and rate over the number of threads, requests in flight or clients, with an
/// interval, the limit, and the distance from the calibrated range. Parameters are those of
/// published measurements and data sheets, or of this machine after --calibrate. Nothing is
/// measured, except by --calibrate.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  ioloom predict walk --device hdd --files 5M
  ioloom predict files --device nvme --files 1G --disks 64 --threads 1024
  ioloom predict copy --device usb --to nvme --files 10k --size 1MiB
  ioloom predict exchange --clients 10000 --durability group
  ioloom predict --verify                compare all laws with published tables
  ioloom predict --calibrate --dir /mnt  probe the device of a directory

docs/predict.md explains the methods and lists their errors.")]
pub(crate) struct PredictArgs {
    #[command(subcommand)]
    what: Option<What>,

    /// Compare all laws with the published tables
    ///
    /// Fits the parameters again, and prints the error of each law separately for fitted and
    /// held-out cells. The exit code is 0 even if a goal is missed.
    #[arg(long, conflicts_with_all = CALIBRATING)]
    verify: bool,

    /// With --verify: also run the simulations
    ///
    /// Scores the rules of source 000 and the controller of the engine on 160 scenarios, and compares
    /// the sample of a million files with all of them. Takes minutes.
    #[arg(long, requires = "verify", conflicts_with_all = CALIBRATING)]
    simulate: bool,

    /// With --verify: also predict the stored runs of a session
    ///
    /// Predicts ladders of threads from their times at 1, 4 and 64 threads, and shows the error of
    /// using the nearest measured time instead. SESSION is a name, an unambiguous prefix, latest or
    /// latest-N.
    #[arg(
        long,
        value_name = "SESSION",
        requires = "verify",
        conflicts_with_all = CALIBRATING
    )]
    runs: Option<String>,

    /// Measure this machine with short probes
    ///
    /// Creates files in the directory of --dir, reads them with 1 to 256 requests in flight, walks and
    /// copies them, removes them and saves the result in the store. --device measured uses it. Needs about
    /// 2 GB of free space.
    #[arg(long)]
    calibrate: bool,

    /// With --calibrate: directory on the device to measure
    ///
    /// Default: the cache directory of ioloom.
    #[arg(long, value_name = "DIR", requires = "calibrate")]
    dir: Option<PathBuf>,

    /// With --calibrate: use the files in --dir, create nothing
    ///
    /// For read-only file systems. Needs 200 files of less than 1 MiB; files of 1 MiB or more show the
    /// bandwidth. Copies are not probed. Evicts the files from memory, after writing dirty pages to the
    /// device, so --evict is required.
    #[arg(long, requires_all = ["calibrate", "dir", "evict"])]
    existing: bool,

    /// With --existing: evict the files from memory
    ///
    /// Other programs must then read these files again.
    #[arg(long, requires = "existing", conflicts_with_all = ["copy_cached", "brief", "exchange"])]
    evict: bool,

    /// With --calibrate: drop all caches before each walk
    ///
    /// Root only; affects all programs. Default: walk with names and attributes cached.
    #[arg(long, requires = "calibrate")]
    drop_caches: bool,

    /// With --calibrate: copy cached files
    ///
    /// Default: copy files that were evicted from the page cache.
    #[arg(long, requires = "calibrate", conflicts_with = "existing")]
    copy_cached: bool,

    /// With --calibrate: probe briefly
    ///
    /// One round with a tenth of the files. Less certain.
    #[arg(long, requires = "calibrate", conflicts_with = "existing")]
    brief: bool,

    /// With --calibrate: also probe a stock server
    ///
    /// Starts a server with one event loop on one processor and loads it from another one, with its order
    /// log in the directory of --dir. Takes 45 seconds.
    #[arg(long, requires = "calibrate", conflicts_with = "existing")]
    exchange: bool,

    #[command(flatten)]
    store: StoreArg,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Predict the time to walk a tree
    ///
    /// hdd, usb and nvme are the media of source 001; sata and network follow data sheets and were not
    /// calibrated.
    #[command(after_long_help = "\
Examples:
  ioloom predict walk --device hdd --files 5M --threads 64
  ioloom predict walk --device measured --files 1G")]
    Walk(WalkArgs),
    /// Predict the time to read files and compute on each
    ///
    /// Simulates the job request by request. Of a large job, a sample is simulated and continued at its
    /// steady rate.
    #[command(after_long_help = "\
Examples:
  ioloom predict files --device usb --files 100k --size 64KiB
  ioloom predict files --device sata --files 1M --compute 400us --cores 8
  ioloom predict files --device nvme --files 10k --timeline run.ioloom")]
    Files(FilesArgs),
    /// Predict the time to copy files
    #[command(after_long_help = "\
Examples:
  ioloom predict copy --device hdd --to nvme --files 100k --size 64KiB")]
    Copy(CopyArgs),
    /// Predict the throughput of a stock server
    #[command(after_long_help = "\
Examples:
  ioloom predict exchange --clients 10000
  ioloom predict exchange --clients 10000 --pool 100 --think 100ms
  ioloom predict exchange --clients 1M --cores 16 --durability group --sync 2ms")]
    Exchange(ExchangeArgs),
}

/// The law of file sizes, without the size.
#[derive(Debug, Clone, Copy, PartialEq)]
enum SizeLaw {
    Fixed,
    Exponential,
}

#[derive(Debug, Args)]
struct Common {
    /// Class of the device
    ///
    /// hdd, sata, nvme, usb or network, with published parameters, or measured: this machine, after
    /// ioloom predict --calibrate.
    #[arg(long, value_name = "DEVICE", default_value = "nvme", hide_possible_values = true,
          value_parser = class())]
    device: Class,

    /// Number of files, such as 20k, 5M or 1G
    #[arg(long, value_name = "N", default_value = "1M", value_parser = count)]
    files: NonZeroU64,

    #[command(flatten)]
    store: StoreArg,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct WalkArgs {
    #[command(flatten)]
    common: Common,

    /// Maximum number of threads, 1 to 8192
    ///
    /// The published walks end at 256.
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = threads())]
    threads: u32,

    /// Number of cores, 1 to 4096
    ///
    /// Default: those of the calibration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,
}

#[derive(Debug, Args)]
struct FilesArgs {
    #[command(flatten)]
    common: Common,

    /// Maximum requests in flight, 1 to 8192
    #[arg(long, value_name = "N", default_value_t = 256,
          value_parser = threads())]
    threads: u32,

    /// Number of cores, 1 to 4096
    ///
    /// Default: 8, or with --device measured those of the calibration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,

    /// Mean file size, up to 1024 TiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = mean_size)]
    size: u64,

    /// Distribution of file sizes
    ///
    /// fixed or exponential.
    #[arg(long, value_name = "LAW", default_value = "exponential", hide_possible_values = true,
          value_parser = values::choice([
              ("fixed", SizeLaw::Fixed),
              ("exponential", SizeLaw::Exponential),
          ]))]
    sizes: SizeLaw,

    /// Compute time of a file, such as 400us
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = values::time)]
    compute: Duration,

    /// Order of the list
    ///
    /// device, shuffled or tree: as the files are on the device, at random, or each directory after its
    /// parent.
    #[arg(long, value_name = "ORDER", default_value = "device", hide_possible_values = true,
          value_parser = order())]
    order: Order,

    /// Percentage of files in the page cache
    ///
    /// From 0 to 100.
    #[arg(long, value_name = "PERCENT", default_value_t = 0,
          value_parser = clap::value_parser!(u8).range(0..=100))]
    cached: u8,

    /// Number of devices that share the files
    ///
    /// From 1 to 256.
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    disks: u32,

    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    random: u64,

    /// Write a timeline of the first files
    ///
    /// The trace has the format of ioloom trace, with all requests in flight that --threads allows.
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct CopyArgs {
    #[command(flatten)]
    common: Common,

    /// Target device, as for --device
    ///
    /// Default: the source device.
    #[arg(long, value_name = "DEVICE", hide_possible_values = true, value_parser = class())]
    to: Option<Class>,

    /// Mean file size, up to 1024 TiB
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = mean_size)]
    size: u64,

    /// Maximum files copied at once, 1 to 8192
    #[arg(long, value_name = "N", default_value_t = 32,
          value_parser = threads())]
    threads: u32,

    /// Number of cores, 1 to 4096
    ///
    /// Default: 8, or with --device measured those of the calibration.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,

    /// Order of the list
    ///
    /// device, shuffled or tree: as the files are on the device, at random, or each directory after its
    /// parent.
    #[arg(long, value_name = "ORDER", default_value = "device", hide_possible_values = true,
          value_parser = order())]
    order: Order,
}

#[derive(Debug, Args)]
struct ExchangeArgs {
    /// Maximum number of clients, 1 to 10M
    #[arg(long, value_name = "N", default_value = "10k", value_parser = count)]
    clients: NonZeroU64,

    /// Orders of each client
    #[arg(long, value_name = "N", default_value = "10", value_parser = count)]
    orders: NonZeroU64,

    /// Time from a reply to the next order
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::time)]
    think: Duration,

    /// Threads of a pool, one per connection
    ///
    /// From 1 to 1,000,000. Default: an event loop.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pool: Option<u32>,

    /// Number of cores of the server
    ///
    /// From 1 to 4096. Default: 2, or 1 with --measured.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cores: Option<u32>,

    /// Use the probes of this machine
    ///
    /// As calibrated by ioloom predict --calibrate --exchange, for one event loop on one core.
    #[arg(long, conflicts_with_all = ["request", "sync"])]
    measured: bool,

    /// Processor time of a request
    ///
    /// Default: 5.89 µs, as measured on two cores.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    request: Option<Duration>,

    /// When an order is acknowledged
    ///
    /// none: at once; group: after a sync shared by all waiting orders; each: after its own sync.
    #[arg(long, value_name = "LEVEL", default_value = "none", hide_possible_values = true,
          value_parser = values::choice([
              ("none", exchange::Durability::None),
              ("group", exchange::Durability::Group),
              ("each", exchange::Durability::Each),
          ]))]
    durability: exchange::Durability,

    /// Time of a sync
    ///
    /// Default: 138 µs, as measured on a virtual disk. Refused with --durability none, which does not sync.
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    sync: Option<Duration>,

    #[command(flatten)]
    store: StoreArg,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn class() -> values::Choice<Class> {
    let all = [Class::Hdd, Class::Sata, Class::Nvme, Class::Usb, Class::Network, Class::Measured];
    values::choice(all.map(|class| (class.name(), class)))
}

/// Accepts the same numbers for all questions about files.
fn threads() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(IN_FLIGHT_MAX))
}

fn order() -> values::Choice<Order> {
    values::choice([
        ("device", Order::Device),
        ("shuffled", Order::Shuffled),
        ("tree", Order::Walk),
    ])
}

/// Parses the mean size of files.
fn mean_size(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes if bytes > files::BYTES_MAX => Err("must be at most 1024 TiB".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a count such as `20k`, `5M` or `1G`.
fn count(text: &str) -> Result<NonZeroU64, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1_000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    number
        .and_then(NonZeroU64::new)
        .ok_or_else(|| "must be a whole number above 0, optionally with k, M or G".to_owned())
}

pub(crate) fn run(args: &PredictArgs) -> Ended {
    match &args.what {
        _ if args.verify => {
            verify::run(args.simulate, args.runs.as_deref(), &args.store, args.json)
        }
        #[cfg(not(feature = "exchange"))]
        _ if args.calibrate && args.exchange => Err(Failure::no_exchange()),
        _ if args.calibrate => {
            let how = probes::How {
                existing: args.existing,
                drop_caches: args.drop_caches,
                copy_cached: args.copy_cached,
                brief: args.brief,
                exchange: args.exchange,
            };
            calibrate::run(args.dir.as_deref(), how, &args.store, args.json)
        }
        Some(What::Walk(args)) => walk(args),
        Some(What::Files(args)) => files(args),
        Some(What::Copy(args)) => copy(args),
        Some(What::Exchange(args)) => exchange(args),
        None => Err(Failure::usage(
            "nothing to predict; use walk, files, copy or exchange, or --verify or --calibrate",
        )),
    }
}

/// Converts an error to a message with advice.
fn failure(error: PredictError) -> Failure {
    match error {
        PredictError::NotCalibrated => Failure::refused(format!(
            "{error}; run 'ioloom predict --calibrate --dir DIR' with a directory on the device"
        )),
        PredictError::UnknownSize { .. } => Failure::refused(format!(
            "{error}; calibrate without --existing, or with a directory that has files of 1 MiB or more"
        )),
        _ => Failure::usage(error),
    }
}

/// Returns the calibration if a device is the measured one.
fn calibration(store: &StoreArg, devices: &[Class]) -> Result<Option<Calibration>, Failure> {
    if !devices.contains(&Class::Measured) {
        return Ok(None);
    }
    saved::read(store)?.map(Some).ok_or_else(|| failure(PredictError::NotCalibrated))
}

fn walk(args: &WalkArgs) -> Ended {
    let common = &args.common;
    let saved = calibration(&common.store, &[common.device])?;
    let question = walk::Question {
        class: common.device,
        measured: saved.as_ref().map(|saved| saved.measured.clone()),
        files: common.files.get(),
        threads_max: args.threads,
        cores: args.cores,
    };
    put("walk", &walk::answer(&question).map_err(failure)?, saved.as_ref(), common.json)
}

/// Returns the number of cores of a question that names none.
fn default_cores(saved: Option<&Calibration>) -> u32 {
    saved.map_or(CORES, |saved| saved.measured.cores)
}

fn files(args: &FilesArgs) -> Ended {
    atomic_file::refuse_dash("--timeline", args.timeline.as_deref())?;
    let common = &args.common;
    let saved = calibration(&common.store, &[common.device])?;
    if args.size == 0 {
        return Err(Failure::usage("--size must be above 0"));
    }
    let sizes = match args.sizes {
        SizeLaw::Fixed => Sizes::Fixed(args.size),
        SizeLaw::Exponential => Sizes::Exponential(args.size),
    };
    let question = files::Question {
        class: common.device,
        measured: saved.as_ref().map(|saved| saved.measured.clone()),
        files: common.files.get(),
        sizes,
        compute_s: args.compute.as_secs_f64(),
        order: args.order,
        cached: f64::from(args.cached) / 100.0,
        cores: args.cores.unwrap_or_else(|| default_cores(saved.as_ref())),
        disks: args.disks,
        threads_max: args.threads,
        seed: args.random,
    };
    let answer = files::answer(&question).map_err(failure)?;
    if let Some(path) = &args.timeline {
        let outcome = files::timeline(&question).map_err(failure)?;
        let trace = timeline::trace(&answer.question, &outcome, question.cores);
        atomic_file::write(path, ioloom_trace::file::write(&trace))?;
    }
    put("files", &answer, saved.as_ref(), common.json)
}

fn copy(args: &CopyArgs) -> Ended {
    let common = &args.common;
    let to = args.to.unwrap_or(common.device);
    let saved = calibration(&common.store, &[common.device, to])?;
    let question = copy::Question {
        from: common.device,
        to,
        one_device: args.to.is_none(),
        measured: saved.as_ref().map(|saved| saved.measured.clone()),
        files: common.files.get(),
        bytes: args.size,
        order: args.order,
        cores: args.cores.unwrap_or_else(|| default_cores(saved.as_ref())),
        threads_max: args.threads,
    };
    put("copy", &copy::answer(&question).map_err(failure)?, saved.as_ref(), common.json)
}

fn exchange(args: &ExchangeArgs) -> Ended {
    let clients = u32::try_from(args.clients.get()).ok().filter(|n| *n <= 10_000_000);
    let seconds = |time: Option<Duration>, default: f64| time.map_or(default, |t| t.as_secs_f64());
    if args.sync.is_some() && args.durability == exchange::Durability::None {
        return Err(Failure::usage("--sync needs --durability group or each"));
    }
    let saved = if args.measured { saved::read(&args.store)? } else { None };
    let measured = saved.as_ref().and_then(|saved| saved.measured.exchange.clone());
    if args.measured && measured.is_none() {
        return Err(Failure::refused(
            "no stock server was measured; run 'ioloom predict --calibrate --exchange --dir DIR' with \
             a directory on the device of its order log",
        ));
    }
    let question = exchange::Question {
        clients_max: clients
            .ok_or_else(|| Failure::usage("--clients must be at most 10,000,000"))?,
        orders: args.orders.get(),
        think_s: args.think.as_secs_f64(),
        pool: args.pool,
        cores: args.cores.unwrap_or(if args.measured { 1 } else { 2 }),
        request_s: seconds(args.request, exchange::REQUEST_S),
        durability: args.durability,
        sync_s: seconds(args.sync, exchange::SYNC_S),
        measured,
    };
    put("exchange", &exchange::answer(&question).map_err(failure)?, saved.as_ref(), args.json)
}

fn put(subject: &str, answer: &Answer, saved: Option<&Calibration>, json: bool) -> Ended {
    if json {
        out::print_json(&show::document(subject, answer, saved))?;
    } else {
        out::print(&show::text(answer, saved, out::columns()))?;
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counts_have_suffixes_and_are_above_zero() {
        let value = |text| count(text).map(|n| n.get());
        assert_eq!(value("20k"), Ok(20_000));
        assert_eq!(value("1G"), Ok(1_000_000_000));
        assert_eq!(value("7"), Ok(7));
        for bad in ["", "0", "-3", "k", "1.5k", "99999999999G", "3 M"] {
            assert!(value(bad).is_err(), "{bad}");
        }
    }
}
