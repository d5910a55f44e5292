//! `ioloom cp --explain`: prints file system properties and the plan for each class of files.

use super::CpArgs;
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use ioloom_copy::{CopyOptions, CopyPlan, Explanation, Facts, Target, explain};
use ioloom_failure::quoted;
use ioloom_model::units::format_size;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;

/// The `--explain --json` document.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    command: &'static str,
    tried_with: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    tried_with_base64: Option<String>,
    facts: &'a Facts,
    classes: Vec<ClassLine<'a>>,
}

#[derive(Serialize)]
struct ClassLine<'a> {
    class: &'a str,
    bytes: u64,
    plan: Option<CopyPlan>,
    refused: Option<String>,
}

pub(super) fn run(
    args: &CpArgs,
    sources: &[PathBuf],
    target: &Target,
    options: &CopyOptions,
) -> Ended {
    let Some(source) = sources.first() else {
        return Err(Failure::usage("missing source operand"));
    };
    let explained = explain(source, target, options).map_err(Failure::failed)?;
    let printed = if args.flags.json {
        let line = |class: &ioloom_copy::Class| (class.plan.clone().ok(), class.plan.clone().err());
        let classes = explained.classes.iter().map(|class| {
            let (plan, refused) = line(class);
            let refused = refused.map(|refused| refused.to_string());
            ClassLine { class: class.name, bytes: class.bytes, plan, refused }
        });
        out::print_json_to_slow_reader(&Document {
            schema: 1,
            command: "cp-explain",
            tried_with: explained.tried_with.to_string_lossy().into_owned(),
            tried_with_base64: out::base64_unless_utf8(&explained.tried_with),
            facts: &explained.facts,
            classes: classes.collect(),
        })
    } else {
        out::print_to_slow_reader(&text(&explained, out::columns()))
    };
    out::then(printed, Ok(Exit::Ok))
}

fn text(explained: &Explanation, width: usize) -> String {
    let facts = &explained.facts;
    let yes = |yes: bool| if yes { "yes" } else { "no" };
    let direct = |side: Option<u32>| {
        side.map_or("no".to_owned(), |bytes| format!("in multiples of {bytes} bytes"))
    };
    let mut out = format!("Facts, measured with {}:\n", quoted(&explained.tried_with));
    let lines = [
        ("same file system", yes(facts.same_file_system).to_owned()),
        ("can share blocks", facts.reflink.map_or("not tested", yes).to_owned()),
        ("O_DIRECT, source", direct(facts.direct_source_bytes)),
        ("O_DIRECT, target", direct(facts.direct_target_bytes)),
        ("io_uring", yes(facts.ring).to_owned()),
        ("RWF_DONTCACHE", yes(facts.uncached).to_owned()),
        ("target in memory", yes(facts.target_in_memory).to_owned()),
        ("same rotating disk", yes(facts.same_spindle).to_owned()),
        ("processors", facts.cores.to_string()),
        ("available memory", format_size(facts.memory_available_bytes)),
    ];
    for (head, value) in lines {
        let _ = writeln!(out, "  {head:<24} {value}");
    }
    out.push('\n');
    for class in &explained.classes {
        let head = format!("{} ({})", class.name, format_size(class.bytes));
        let method = match &class.plan {
            Ok(plan) => format!("{}: {}{}", plan.mode, plan.why, numbers(plan)),
            Err(refused) => format!("refused: {refused}"),
        };
        out.push_str(&out::labelled(&head, 32, &method, width));
    }
    out
}

fn numbers(plan: &CopyPlan) -> String {
    let mut text = format!(" (blocks of {}", format_size(plan.block_bytes.into()));
    if plan.depth > 1 {
        let _ = write!(text, ", {} in flight", plan.depth);
    }
    if plan.threads > 1 {
        let _ = write!(text, ", {} threads", plan.threads);
    }
    if plan.in_turns {
        text.push_str(", reading and writing alternately");
    }
    text + ")"
}
