//! `ioloom machine`: the facts of this computer that results depend on.

use crate::exit::{Ended, Exit, Failure};
use crate::{facts, out};
use clap::Args;
use ioloom_model::MachineFacts;
use ioloom_model::units::format_size;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Version of the document that `--json` prints.
const SCHEMA: u32 = 1;

/// Shows the facts of this computer that results depend on.
#[derive(Debug, Args)]
#[command(after_help = "\
Features are tried by use: a ring is made, a file in the current directory is asked for.

Examples:
  ioloom machine
  ioloom machine --json
  ioloom machine --doctor             what can be observed, and what would make the rest work
  ioloom machine --root /captured     of a copy of /proc and /sys of another machine")]
pub(crate) struct MachineArgs {
    /// Read /proc and /sys below this directory
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// Show which sources of evidence work here, and how to get the rest
    #[arg(long, conflicts_with = "root")]
    doctor: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The document of `machine --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    #[serde(flatten)]
    facts: &'a MachineFacts,
}

pub(crate) fn run(args: &MachineArgs) -> Ended {
    if args.doctor {
        return crate::doctor::run(args.json);
    }
    std::fs::read_dir(args.root.join("proc")).map_err(|e| {
        let dir = args.root.join("proc");
        Failure::failed(format!("read directory {}: {e}; give a root with /proc", dir.display()))
    })?;
    let facts = facts::facts(&args.root, Path::new("."));
    if args.json {
        out::print_json(&Document { schema: SCHEMA, facts: &facts })?;
    } else {
        out::print(&text(&facts, out::columns()))?;
    }
    Ok(Exit::Ok)
}

fn text(facts: &MachineFacts, width: usize) -> String {
    let mut all = String::new();
    let mut say = |head: &str, text: &str| {
        all.push_str(&out::labelled(head, 12, text, width));
    };
    let unknown = || "not known".to_owned();
    let word = |text: &Option<String>| text.clone().unwrap_or_else(unknown);
    let size = |bytes: Option<u64>| bytes.map_or_else(unknown, format_size);
    say("fingerprint", &facts.fingerprint);
    say("kernel", &word(&facts.kernel));
    let threads = facts.threads_per_core.map_or(String::new(), |n| format!(", {n} per core"));
    say("processor", &word(&facts.cpu_model));
    let (usable, online) = (facts.cpus_usable, facts.cpus_online);
    say("processors", &format!("{usable} usable of {online}{threads}"));
    let free = size(facts.memory_available_bytes);
    say("memory", &format!("{}, {free} available", size(facts.memory_bytes)));
    say("page", &size(Some(facts.page_bytes).filter(|bytes| *bytes > 0)));
    say("clock", &word(&facts.clock_source));
    let virtual_word = match facts.virtual_machine {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    };
    say("virtual", virtual_word);
    say("may drop", if facts.privileged { "caches, and mount" } else { "no caches: not root" });
    for device in &facts.devices {
        let kind = match device.rotational {
            Some(true) => ", says it rotates",
            Some(false) => ", says it does not rotate",
            None => "",
        };
        let scheduler = word(&device.scheduler);
        let ahead =
            device.read_ahead_kib.map_or(String::new(), |k| format!(", reads {k} KiB ahead"));
        let mounts: Vec<String> =
            device.mounts.iter().map(|(dir, kind)| format!("{dir} ({kind})")).collect();
        let mounts = if mounts.is_empty() { "not mounted".to_owned() } else { mounts.join(", ") };
        let text = format!(
            "{}, {}{kind}, scheduler {scheduler}{ahead}; {mounts}",
            device.name,
            size(device.bytes)
        );
        say("device", &text);
    }
    for feature in &facts.features {
        let state = feature.missing.as_ref().map_or("works".to_owned(), |why| format!("no: {why}"));
        say("feature", &format!("{}: {state}", feature.name));
    }
    for (name, value) in &facts.limits {
        say("limit", &format!("{name}: {value}"));
    }
    all
}
