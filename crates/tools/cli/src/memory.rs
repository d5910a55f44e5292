//! `ioloom memory`: the memory hierarchy as it behaves.

mod kept;
mod text;

pub(crate) use kept::kept;

use crate::atomic_file;
use crate::directories::{StoreArg, work_dir};
use crate::exit::{Ended, Exit, Failure};
use crate::{facts, out, stderr};
use clap::Args;
use ioloom_memory::{Advertised, MemoryError, MemoryOptions, Part, SmtPlan, measure};
use ioloom_model::memory::MemoryResult;
use ioloom_model::units::parse_size;
use ioloom_model::{MachineFacts, Topology};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Largest working set, bytes; and in quick mode.
const BYTES_MAX: usize = 128 << 20;
const BYTES_QUICK_MAX: usize = 64 << 20;
/// Working sets below this show no level; above, memory of most machines is too small.
const BYTES_ALLOWED: (usize, usize) = (1 << 20, 4 << 30);

/// Measures the memory hierarchy: levels, latency, bandwidth, pages, read buffers, siblings.
#[derive(Debug, Args)]
#[command(after_help = "\
Each number is the least of many short blocks on a thread held to one processor; what the kernel
and the processor tell of their caches is compared afterwards, never used. --quick takes the
ladder alone, in less than 5 seconds. The last result is kept: `ioloom machine` draws it.

Parts for --only: ladder (always), rulers, tlb, bandwidth, pairs, bufsize, smt.

Examples:
  ioloom memory --quick              the levels of this machine
  ioloom memory                      everything, below half a minute
  ioloom memory --only bufsize       which buffer to read files with
  ioloom memory --html memory.html   a page with pictures
  ioloom memory --last --json        the kept result, measured before")]
pub(crate) struct MemoryArgs {
    /// The ladder alone, short
    #[arg(long)]
    quick: bool,

    /// Only this part and the ladder; repeat it for several
    #[arg(long, value_name = "PART", value_parser = ["ladder", "rulers", "tlb", "bandwidth",
        "pairs", "bufsize", "smt"])]
    only: Vec<String>,

    /// Largest working set [default: 128MiB, quick 64MiB]
    #[arg(long, value_name = "SIZE")]
    max: Option<String>,

    /// Hold the measuring thread to this processor [default: the last that is allowed]
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,

    /// Seed of all random orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    random: u64,

    /// Where a file of 64 MiB for the read buffers is made [default: the work directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    #[command(flatten)]
    store: StoreArg,

    /// Show the kept result of this machine, measure nothing
    #[arg(long, conflicts_with_all = ["quick", "only", "max", "cpu"])]
    last: bool,

    /// Write a page with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Write the picture of the ladder
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of `memory --json`.
#[derive(Serialize)]
struct Document<'a> {
    command: &'static str,
    #[serde(flatten)]
    result: &'a MemoryResult,
}

pub(crate) fn run(args: &MemoryArgs) -> Ended {
    let machine = facts::facts(Path::new("/"), Path::new("."));
    let result = if args.last {
        kept(&args.store, &machine.fingerprint)?.ok_or_else(|| {
            Failure::failed("no result of this machine is kept: run `ioloom memory` first")
        })?
    } else {
        let result = measured(args, &machine)?;
        kept::keep(&args.store, &result)?;
        result
    };
    if let Some(path) = &args.svg {
        let picture = ioloom_report::svg::ladder::draw(&result, ioloom_report::svg::WIDE);
        atomic_file::write(path, picture.map_or(String::new(), |svg| svg.standalone()))?;
    }
    if let Some(path) = &args.html {
        atomic_file::write(path, ioloom_report::memory::html(&result, &named(&machine)))?;
    }
    if args.json {
        out::print_json(&Document { command: "memory", result: &result })?;
    } else {
        out::print(&text::text(&result, out::columns()))?;
    }
    Ok(Exit::Ok)
}

fn named(machine: &MachineFacts) -> String {
    let cpu = machine.cpu_model.clone().unwrap_or_else(|| "unknown processor".to_owned());
    format!("{cpu}, {} processors", machine.cpus_online)
}

fn measured(args: &MemoryArgs, machine: &MachineFacts) -> Result<MemoryResult, Failure> {
    let usual = if args.quick { BYTES_QUICK_MAX } else { BYTES_MAX };
    let bytes_max = match &args.max {
        Some(text) => parse_size(text).map_err(Failure::usage)?.try_into().unwrap_or(usize::MAX),
        None => usual,
    };
    if !(BYTES_ALLOWED.0..=BYTES_ALLOWED.1).contains(&bytes_max) {
        return Err(Failure::usage("--max must be from 1MiB to 4GiB"));
    }
    let topology = ioloom_machine::topology(Path::new("/"));
    let allowed = ioloom_sys::affinity::allowed().unwrap_or_default();
    if let Some(cpu) = args.cpu
        && !allowed.contains(&cpu)
    {
        let list: Vec<String> = allowed.iter().map(u32::to_string).collect();
        let list = list.join(", ");
        return Err(Failure::usage(format!("--cpu {cpu}: this process may use {list} only")));
    }
    let cpu = args.cpu.or_else(|| allowed.last().copied()).unwrap_or(0);
    let parts = if args.quick && args.only.is_empty() {
        vec![Part::Ladder]
    } else {
        let asked =
            |part: &Part| args.only.is_empty() || args.only.iter().any(|w| w == part.word());
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
        smt: SmtPlan::choose(&topology.cores(), &allowed, topology.smt.control.as_deref()),
        machine: machine.fingerprint.clone(),
        version: crate::version::VERSION.to_owned(),
    };
    let stop = crate::interrupt::stop_flag();
    let tell = |what: &str| stderr::line(&format!("measuring {what} …"));
    measure(&options, &stop, &tell).map_err(|error| match error {
        MemoryError::Interrupted => Failure::new(Exit::Interrupted, error.to_string()),
        _ => Failure::failed(error),
    })
}

/// What is told of the data caches and translation buffers of one processor.
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
