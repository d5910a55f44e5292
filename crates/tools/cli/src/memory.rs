//! `ioloom memory`: measures the memory hierarchy.

mod saved;
mod text;

pub(crate) use saved::saved;

use crate::atomic_file;
use crate::directories::{StoreArg, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::values::{self, Choice};
use crate::{out, stderr};
use clap::Args;
use ioloom_memory::{Advertised, MemoryError, MemoryOptions, Part, SmtPlan, measure};
use ioloom_model::memory::MemoryResult;
use ioloom_model::units::format_size;
use ioloom_model::{MachineFacts, Topology};
use ioloom_sys::affinity::PinnedThread;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Largest working set in bytes: default, and in quick mode.
const BYTES_MAX: usize = 128 << 20;
const BYTES_QUICK_MAX: usize = 64 << 20;
/// Limits for --max: smaller sets show no cache levels, larger ones do not fit on most machines.
const BYTES_ALLOWED: (usize, usize) = (1 << 20, 4 << 30);

/// Measure the memory hierarchy
///
/// Measures cache levels, latency, bandwidth, address translation, read buffer sizes and threads that
/// share a core. Each number is the minimum over many short blocks on a pinned thread. Sizes reported
/// by the kernel and the processor are not used; they are only compared with the results.
///
/// Other programs disturb the results, so run it on an idle machine. The latest result is saved in
/// the store, and `ioloom machine` draws it. A result with fewer parts than the saved one is not
/// saved.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom memory --quick              measure cache levels in under 5 seconds
  ioloom memory                      measure everything in under 30 seconds
  ioloom memory --only bufsize       find the best buffer size for reading files
  ioloom memory --html memory.html   write a page with charts
  ioloom memory --last --json        print the saved result")]
pub(crate) struct MemoryArgs {
    /// Measure only the ladder, in short blocks
    ///
    /// Takes less than 5 seconds, with working sets up to 64 MiB.
    #[arg(long)]
    quick: bool,

    /// Measure only this part and the ladder
    ///
    /// Can be repeated. Default: all parts.
    ///
    /// ladder times dependent loads in growing working sets, which reveals the cache levels; it always
    /// runs. rulers accesses the same memory in other patterns. tlb measures address translation and
    /// page faults. bandwidth measures parallel loads and threads. pairs measures the latency between
    /// processors. bufsize reads a cached file with different buffer sizes. smt measures threads that
    /// share a core.
    #[arg(long, value_name = "PART", value_parser = part_words(), hide_possible_values = true)]
    only: Vec<Part>,

    /// Largest working set
    ///
    /// From 1MiB to 4GiB. Default: 128MiB, or 64MiB with --quick. Larger sets take longer and are
    /// needed on processors with large last-level caches.
    #[arg(long, value_name = "SIZE", value_parser = working_set)]
    max: Option<usize>,

    /// Processor for the measuring thread
    ///
    /// Default: the last processor available to this process.
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,

    /// Random seed for access orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    random: u64,

    /// Directory for the 64 MiB file of bufsize
    ///
    /// Default: the work directory, $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArg,

    /// Show the saved result without measuring
    #[arg(long, conflicts_with_all = ["quick", "only", "max", "cpu"])]
    last: bool,

    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the ladder chart as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn part_words() -> Choice<Part> {
    values::choice(Part::ALL.map(|part| (part.word(), part)))
}

fn working_set(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(values::size(text)?).unwrap_or(usize::MAX);
    let (low, high) = BYTES_ALLOWED;
    if (low..=high).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("must be {} to {}", format_size(low as u64), format_size(high as u64)))
    }
}

/// The document of `memory --json`.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    #[serde(flatten)]
    result: &'a MemoryResult,
}

pub(crate) fn run(args: &MemoryArgs) -> Ended {
    atomic_file::refuse_dash("--svg", args.svg.as_deref())?;
    atomic_file::refuse_dash("--html", args.html.as_deref())?;
    let machine = ioloom_machine::facts(Path::new("/"), &[]);
    let allowed = allowed(args)?;
    let last = if args.last {
        let last = saved(&args.store, &machine.fingerprint)?;
        Some(last.ok_or_else(|| {
            Failure::failed("no saved result for this machine; run `ioloom memory` first")
        })?)
    } else {
        None
    };
    // Files that cannot be written are errors before the measurement.
    let svg = args.svg.as_deref().map(atomic_file::begin).transpose()?;
    let html = args.html.as_deref().map(atomic_file::begin).transpose()?;
    let (result, stored) = match last {
        Some(result) => (result, Ok(())),
        None => {
            let result = measured(args, &machine, &allowed)?;
            let stored = saved::save(&args.store, &result);
            (result, stored)
        }
    };
    let drawn = svg.map_or(Ok(()), |file| {
        let picture = ioloom_report::svg::ladder::draw(&result, ioloom_report::svg::WIDE);
        let text = picture.map_or(String::new(), |svg| svg.standalone());
        file.finish(|out| out.write_all(text.as_bytes()))
    });
    let charted = html.map_or(Ok(()), |file| {
        let text = ioloom_report::memory::html(&result, &named(&machine));
        file.finish(|out| out.write_all(text.as_bytes()))
    });
    let printed = if args.json {
        out::print_json(&Document { command: "memory", result: &result })
    } else {
        out::print(&text::text(&result, out::columns()))
    };
    // After the result, which must not be lost with a file.
    let mut exit = Exit::Ok;
    let failures = [stored, drawn, charted, printed].into_iter().filter_map(Result::err);
    for failure in failures.filter(|failure| !failure.is_quiet()) {
        stderr::message(&failure.message);
        exit = failure.exit;
    }
    Ok(exit)
}

fn named(machine: &MachineFacts) -> String {
    let cpu = machine.cpu_model.clone().unwrap_or_else(|| "unknown processor".to_owned());
    format!("{cpu}, {} processors", machine.cpus_online)
}

/// Returns the processors available to this process.
///
/// # Errors
/// The chosen processor is not one.
fn allowed(args: &MemoryArgs) -> Result<Vec<u32>, Failure> {
    let allowed = ioloom_sys::affinity::allowed().unwrap_or_default();
    if let Some(cpu) = args.cpu
        && !allowed.contains(&cpu)
    {
        let list: Vec<String> = allowed.iter().map(u32::to_string).collect();
        let list = list.join(", ");
        return Err(Failure::usage(format!(
            "invalid value '{cpu}' for --cpu: processors available to this process: {list}"
        )));
    }
    Ok(allowed)
}

fn measured(
    args: &MemoryArgs,
    machine: &MachineFacts,
    allowed: &[u32],
) -> Result<MemoryResult, Failure> {
    let usual = if args.quick { BYTES_QUICK_MAX } else { BYTES_MAX };
    let bytes_max = args.max.unwrap_or(usual);
    let cpu = args.cpu.or_else(|| allowed.last().copied()).unwrap_or(0);
    let topology = {
        // CPUID describes the processor that executes it; others may have other caches.
        let _pinned = PinnedThread::pin(cpu);
        ioloom_machine::topology(Path::new("/"))
    };
    let parts = if args.quick && args.only.is_empty() {
        vec![Part::Ladder]
    } else {
        let asked = |part: &Part| args.only.is_empty() || args.only.contains(part);
        Part::ALL.into_iter().filter(asked).collect()
    };
    let options = MemoryOptions {
        parts,
        quick: args.quick,
        bytes_max,
        seed: args.random,
        cpu: args.cpu,
        dir: work_dir(args.dir.as_deref())?,
        advertised: advertised(&topology, cpu),
        smt: SmtPlan::choose(&topology.cores(), allowed, topology.smt.control.as_deref()),
        machine: machine.fingerprint.clone(),
        version: crate::version::VERSION.to_owned(),
    };
    let stop = crate::interrupt::stop_flag();
    let on_part = |what: &str| stderr::line(&format!("measuring {what} …"));
    measure(&options, &stop, &on_part).map_err(|error| match error {
        MemoryError::Interrupted => Failure::new(Exit::Interrupted, error.to_string()),
        _ => Failure::failed(error),
    })
}

/// Returns the cache and TLB sizes that the kernel and CPUID report for one processor.
fn advertised(topology: &Topology, cpu: u32) -> Advertised {
    let kernel = topology.data_caches_of(cpu);
    let line = kernel.iter().find_map(|c| c.line_bytes);
    let cpuid = topology.cpuid.clone().unwrap_or_default();
    Advertised {
        kernel_bytes: kernel.iter().map(|c| c.bytes).collect(),
        cpuid_bytes: cpuid.caches.iter().map(|(_, bytes)| *bytes).collect(),
        cpuid_socket_bytes: cpuid.socket_l3_bytes,
        tlb_entries: (cpuid.tlb_l1_4k, cpuid.tlb_l2_4k),
        line_bytes: line.map_or(64, |line| line as usize),
    }
}
