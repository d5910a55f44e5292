//! The output of `each`.

use super::args::EachArgs;
use super::job::{Job, commands_of};
use super::outcome::{Outcome, Remote};
use crate::exit::{Ended, Exit, Failure};
use crate::{out, slow_reader, stderr};
use ioloom::Plan;
use ioloom_model::layout::layout;
use ioloom_model::table;
use ioloom_model::units::{format_count, format_counted, format_ns, format_size};
use ioloom_model::{Measured, Method, Schedule};
use serde_json::json;

/// Version of the JSON document.
pub(super) const SCHEMA: u32 = 1;
/// Name of the method by which objects are read.
const OBJECTS: &str = "objects";
/// Errors that are printed one by one.
pub(crate) const ERRORS_PRINTED: usize = 20;
/// Shorter runs do not show reliably what limited them.
const LIMIT_SHOWN_NS: u64 = 10_000_000;

/// Prints errors, and the result unless standard output carries lines or output of programs.
pub(super) fn print(args: &EachArgs, job: &Job, outcome: &Outcome) -> Result<(), Failure> {
    for line in outcome.warnings.iter().filter(|_| !args.quiet) {
        stderr::message(&one_line(line));
    }
    print_errors(outcome);
    let m = &outcome.measured;
    if args.quiet {
        return Ok(());
    }
    // A summary of nothing would hide the errors.
    if !args.json && m.files == 0 && m.errors > 0 && !outcome.cancelled {
        return Ok(());
    }
    let to_stdout = args.json || !(args.per_file || job.exec.is_some());
    let text = match (args.json, args.per_file) {
        (true, true) => json(job, outcome).to_string() + "\n",
        (true, false) => format!("{:#}\n", json(job, outcome)),
        (false, _) if to_stdout => human(job, outcome, out::columns()),
        (false, _) => human(job, outcome, out::columns_of_stderr()),
    };
    if to_stdout {
        print_last(&text, outcome)
    } else {
        // Standard output carries data, so the summary goes to standard error.
        stderr::bytes(text.as_bytes());
        Ok(())
    }
}

/// Prints what ends the output.
fn print_last(text: &str, outcome: &Outcome) -> Result<(), Failure> {
    slow_reader::stdout(|out| out.write_all(text.as_bytes())).map_err(|error| {
        if slow_reader::is_given_up(&error) {
            let message = if outcome.cancelled { "" } else { "interrupted" };
            Failure::new(Exit::Interrupted, message)
        } else {
            out::unwritten(&error)
        }
    })
}

/// Prints the errors that were not printed during the run.
pub(super) fn print_errors(outcome: &Outcome) {
    let (errors, count) = &outcome.unprinted;
    for error in errors.iter().take(ERRORS_PRINTED) {
        stderr::message(&one_line(error));
    }
    let more = count.saturating_sub(errors.len().min(ERRORS_PRINTED) as u64);
    if more > 0 {
        stderr::message(&format!("and {} more errors", format_count(more)));
    }
    if outcome.commands_failed > 0 {
        let commands = format_counted(outcome.commands_failed, "command", "commands");
        stderr::message(&format!("{commands} failed"));
    }
    if outcome.cancelled {
        stderr::message(&format!("interrupted after {}", files(outcome.measured.files)));
    }
}

fn json(job: &Job, outcome: &Outcome) -> serde_json::Value {
    let m = &outcome.measured;
    let why = m.bottleneck.as_ref();
    let (plan, method, schedule) = plan_of(job, outcome);
    let mut document = json!({
        "schema": SCHEMA,
        "command": "each",
        "plan": plan,
        "method": method,
        "schedule": schedule,
        "compute": job.work_name(),
        "files": m.files,
        "bytes": m.bytes,
        "errors": m.errors,
        "error_samples": outcome.errors.iter().take(ERRORS_PRINTED).collect::<Vec<_>>(),
        "skipped": outcome.skipped.map(|skipped| skipped.json()),
        "cancelled": outcome.cancelled,
        "digest": outcome.digest,
        "digest_partial": outcome.digest.is_some() && outcome.is_partial(),
        "elapsed_ns": m.elapsed_ns,
        "files_per_s": m.files_per_s(),
        "bytes_per_s": m.bytes_per_s(),
        "limited_by": why.map(|b| b.word.clone()),
        "why": why.map(|b| b.sentence.clone()),
        "tuned": m.tuned,
        "memory_peak_bytes": peak_memory(m),
        "budget_peak_bytes": m.budget_peak_bytes,
        "cpu_user_ns": m.cpu_user_ns,
        "cpu_kernel_ns": m.cpu_kernel_ns,
        "calls": m.calls,
        "threads": m.threads,
    });
    if let Some(remote) = &outcome.remote {
        document["requests"] = json!({
            "sent": remote.sent,
            "refused": remote.refused,
            "repeated": remote.repeated,
        });
    }
    if let Some(shard) = &outcome.shard {
        document["shard"] = shard.clone();
    }
    document
}

/// Returns the plan that ran, its method and its schedule.
fn plan_of(job: &Job, outcome: &Outcome) -> (String, String, String) {
    match &outcome.remote {
        Some(Remote { schedule, .. }) => {
            (format!("{OBJECTS}/{schedule}"), OBJECTS.to_owned(), schedule.clone())
        }
        None => {
            let plan = job.plan;
            (plan.to_string(), plan.method.to_string(), plan.schedule.to_string())
        }
    }
}

/// Returns the peak memory of this process. Short runs do not read it.
fn peak_memory(measured: &Measured) -> Option<u64> {
    match measured.memory_peak_bytes {
        0 => ioloom_sys::proc::status().ok().and_then(|status| status.peak_rss_bytes),
        bytes => Some(bytes),
    }
}

/// Returns the summary in lines of `width` columns.
fn human(job: &Job, outcome: &Outcome, width: usize) -> String {
    let m = &outcome.measured;
    let time = format_ns(m.elapsed_ns as f64);
    let amount = format!("{}, {} in {time}", files(m.files), format_size(m.bytes));
    let rates = format!(
        "({} files/s, {}/s)",
        format_count(m.files_per_s().round() as u64),
        format_size(m.bytes_per_s() as u64),
    );
    let is_short = amount.chars().count() + 2 + rates.chars().count() <= width;
    let mut text = format!("{amount}{}{rates}\n", if is_short { "  " } else { "\n" });
    if let Some(digest) = &outcome.digest {
        text += &format!("digest      {digest}{}\n", partial(outcome));
    }
    let plan = plan_lines(&plan_of(job, outcome).0, width - 12).join("\n            ");
    text += &format!("plan        {plan}\n");
    if let Some(remote) = &outcome.remote {
        let refused = match remote.refused {
            0 => String::new(),
            refused => format!(", {} refused", format_count(refused)),
        };
        let repeated = match remote.repeated {
            0 => String::new(),
            repeated => format!(", {} repeated", format_count(repeated)),
        };
        text += &format!("requests    {}{refused}{repeated}\n", format_count(remote.sent));
    }
    if let Some(b) = m.bottleneck.as_ref().filter(|_| m.elapsed_ns >= LIMIT_SHOWN_NS) {
        let sentence = format!("{}: {}", b.word, b.sentence);
        text += &format!("limited by  {}\n", wrap(&sentence, width - 14).join("\n            "));
    }
    if let Some(tuned) = &m.tuned {
        let lines = wrap(&tuned.to_string(), width - 14);
        text += &format!("in flight   {}\n", lines.join("\n            "));
        text += &super::course::picture(tuned, width);
    }
    text
}

/// Returns what the digest lacks.
fn partial(outcome: &Outcome) -> String {
    match (outcome.cancelled, outcome.measured.errors) {
        (true, _) => "  (partial: interrupted)".to_owned(),
        (false, 0) => String::new(),
        (false, errors) => {
            format!("  (partial: {})", format_counted(errors, "error", "errors"))
        }
    }
}

/// `--explain`: prints the sentence of one plan, or the whole table.
pub(super) fn explain(args: &EachArgs) -> Ended {
    let (mut text, width) = (String::new(), out::columns());
    if args.shapes_plan() || !args.paths.is_empty() {
        let job = Job::read(args)?;
        if let Some(reason) = ioloom::refusal(&job.plan) {
            return Err(Failure::refused(reason));
        }
        text += &format!("{}\n", plan_lines(&job.plan.to_string(), width).join("\n"));
        for sentence in sentences(&job)? {
            text += &format!("  {}\n", wrap(&sentence, width - 4).join("\n  "));
        }
    } else {
        for name in ["threads:n=4", "window:l=32,p=2", "roles:r=1,h=0,c=3,w=64"] {
            let schedule: Schedule = name.parse().map_err(Failure::usage)?;
            let title = format!("{}, for example {schedule}", schedule.name());
            text += &out::wrap(&title, width, 2);
            for method in Method::ALL {
                let (mark, sentence) = match table::refusal(method, &schedule) {
                    None => {
                        let layout = layout(&Plan::new(method, schedule));
                        (' ', layout.map_err(Failure::refused)?.sentence())
                    }
                    Some(reason) => ('x', reason.to_owned()),
                };
                let lines = wrap(&sentence, width - 24);
                text += &format!(
                    "  {mark} {:17}{}\n",
                    method.name(),
                    lines.join(&format!("\n{:21}", ""))
                );
            }
        }
        text += "x: refused, with the reason\n";
    }
    out::print(&text)?;
    Ok(Exit::Ok)
}

/// Returns what the threads and the commands of a job do.
fn sentences(job: &Job) -> Result<Vec<String>, Failure> {
    let plan = &job.plan;
    let commands = match commands_of(&plan.schedule) {
        1 => "One command runs at a time".to_owned(),
        commands => format!("Up to {commands} commands run at once"),
    };
    let mut sentences = match &job.exec {
        Some(exec) if exec.takes_path => {
            return Ok(vec![format!("{commands}; each opens its file itself.")]);
        }
        Some(_) => vec![format!("{commands}; each gets the contents on standard input.")],
        None => Vec::new(),
    };
    let layout = layout(plan).map_err(Failure::refused)?;
    sentences.insert(0, format!("{}.", layout.sentence()));
    if plan.method != Method::Null && !plan.method.is_mmap() {
        let bound = format_size(plan.memory_bytes);
        sentences.push(format!("At most {bound} of file data are buffered."));
    }
    Ok(sentences)
}

fn files(count: u64) -> String {
    format_counted(count, "file", "files")
}

/// Escapes control characters, so that a message stays on one line and cannot control the terminal.
pub(crate) fn one_line(message: &str) -> String {
    ioloom_model::units::readable(message)
}

/// Breaks a plan after '/' or ',' into lines of at most `width` characters.
fn plan_lines(plan: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for part in plan.split_inclusive(['/', ',']) {
        let last = lines.last_mut().expect("lines is never empty");
        if !last.is_empty() && last.len() + part.len() > width {
            lines.push(part.to_owned());
        } else {
            last.push_str(part);
        }
    }
    lines
}

/// Breaks text at spaces into lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("lines is never empty");
        if !last.is_empty() && last.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_plans_are_broken_after_options() {
        let plan = "nowait/window:l=512,p=128/blocking=256,auto=polite,memory=64MiB";
        assert_eq!(plan_lines(plan, 68), [plan]);
        let lines = plan_lines(plan, 30);
        assert!(lines.iter().all(|line| line.len() <= 30), "{lines:?}");
        assert_eq!(lines.concat(), plan);
        assert_eq!(lines[0], "nowait/window:l=512,p=128/");
    }
}
