//! `ioloom advise`: which plan is fastest for a job, found by a trial on some of its files.
//!
//! A model would have to know the device; a trial measures it. The trial keeps to a budget of time and
//! bytes, reads each cold file once and evicts nothing unless asked to.

mod candidates;
mod choice;
mod profile;
mod sample;
mod search;
mod show;
mod trial;
mod watch;

use crate::directories::StoreArg;
use crate::each::input::once_each;
use crate::exit::{Ended, Exit, Failure};
use crate::{interrupt, out, stderr, values};
use clap::{Args, ValueEnum};
use ioloom::Plan;
use ioloom_failure::quoted;
use ioloom_model::Compute;
use profile::{Condition, Entry, Key, Profiles};
use search::{Budget, Found, Search};
use show::{Advice, Swept};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Find the fastest plan for a job by a short trial
///
/// Runs the work on parts of the files with several plans and reports the fastest one, the expected
/// time of the whole job, what limits it, and by how much another plan could still be faster. Parts are
/// chosen at random. Each part is read by one plan only, unless the files are in memory, so the trial
/// needs no eviction; what it reads stays in memory. Results are kept in a profile and verified by the
/// next trial of the same kind of job.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom advise ~/src
  ioloom advise /data --compute sha256 --budget-time 30s
  ioloom advise /data --evict --exhaustive      compare with all plans
  ioloom advise --profile show")]
pub(crate) struct AdviseArgs {
    /// Files and directories of the job
    #[arg(value_name = "PATH", required_unless_present = "profile")]
    paths: Vec<PathBuf>,

    /// Work on each file, as for each
    ///
    /// xxh3, sha256, blake3, md5 and other hashes, none, checksum:TIMES, or spin:TIME and sleep:TIME,
    /// which simulate work of that duration per file.
    #[arg(long, value_name = "WORK", default_value = "xxh3",
          value_parser = values::spelled::<Compute>)]
    compute: Compute,

    /// Limit the time of the trial
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = budget_time)]
    budget_time: Duration,

    /// Limit the bytes that the trial reads
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = budget_bytes)]
    budget_bytes: u64,

    /// Evict files from memory before they are read
    ///
    /// Measures a cold page cache even if the files are cached, and allows each plan to read the same
    /// files. Other programs must then read these files again. Names and inodes stay in memory.
    #[arg(long)]
    evict: bool,

    /// Then run all plans on all files, to check the advice
    ///
    /// Ignores the budgets and lists all files. Files that are not in memory require --evict,
    /// because the first run would load them.
    #[arg(long)]
    exhaustive: bool,

    /// Show or remove the profiles of earlier trials
    ///
    /// With paths, only the profiles of their file systems and those mounted below.
    #[arg(long, value_name = "ACTION",
          conflicts_with_all = ["compute", "budget_time", "budget_bytes", "evict", "exhaustive"])]
    profile: Option<ProfileAction>,

    #[command(flatten)]
    store: StoreArg,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProfileAction {
    Show,
    Forget,
}

fn budget_time(text: &str) -> Result<Duration, String> {
    match values::time(text)? {
        time if time < Duration::from_millis(100) => Err("must be at least 100ms".to_owned()),
        time if time > Duration::from_secs(86_400) => Err("must be at most one day".to_owned()),
        time => Ok(time),
    }
}

fn budget_bytes(text: &str) -> Result<u64, String> {
    match values::size(text)? {
        bytes if bytes < 1 << 20 => Err("must be at least 1MiB".to_owned()),
        bytes => Ok(bytes),
    }
}

pub(crate) fn run(args: &AdviseArgs) -> Ended {
    let profiles = args.store.dir().and_then(|dir| Profiles::read(&dir));
    let Some(action) = args.profile else { return advise(args, profiles) };
    let mut profiles = profiles?;
    let mut systems = Vec::new();
    for path in &args.paths {
        systems.extend(profile::file_systems(path)?);
    }
    let wanted = |key: &Key| args.paths.is_empty() || systems.contains(&key.file_system);
    match action {
        ProfileAction::Show => {
            profiles.entries.retain(|entry| wanted(&entry.key));
            match args.json {
                true => out::print_json(&show::profiles_json(&profiles))?,
                false => out::print(&show::profiles_text(&profiles))?,
            }
        }
        ProfileAction::Forget => {
            out::print(&show::forgotten(profiles.forget(wanted)?, args.json))?;
        }
    }
    Ok(Exit::Ok)
}

/// Runs a trial. Without `profiles`, it is as the first one of its kind, and its result is only printed.
fn advise(args: &AdviseArgs, profiles: Result<Profiles, Failure>) -> Ended {
    if args.paths.iter().any(|path| path.as_os_str() == "-") {
        return Err(Failure::usage(
            "a trial cannot read a list from standard input; name files and directories, for example \
             with 'xargs -a LIST ioloom advise', or './-' for a file of this name",
        ));
    }
    let _ = ioloom_sys::proc::raise_open_files_limit();
    let stop = interrupt::stop_flag();
    let budget = Budget { time: args.budget_time, bytes: args.budget_bytes };
    let how = (args.evict, args.exhaustive);
    let (paths, warnings) = once_each(&args.paths);
    warnings.iter().for_each(|warning| stderr::message(warning));
    let search = Search::new(&paths, &args.compute, budget, how, stop.clone());
    if stop.load(Ordering::Relaxed) {
        return Ok(interrupted());
    }
    let Some(path) = search.sample.first().map(std::path::Path::to_owned) else {
        return Err(Failure::failed(
            search.first_error().unwrap_or_else(|| none_found(&paths, &search)),
        ));
    };
    let key = |mean, condition| Key::new(&path, &args.compute, condition, mean);
    let mut learnt: Option<Plan> = None;
    let (mut search, mut found) = search.compare(|mean, condition| {
        let entry = profiles.as_ref().ok()?.find(&key(mean, condition));
        learnt = entry.and_then(|entry| entry.plan.parse::<Plan>().ok()).map(candidates::budgeted);
        learnt
    })?;
    if stop.load(Ordering::Relaxed) {
        return Ok(interrupted());
    }
    let Some(chosen) = found.chosen else {
        let small =
            || "the trial finished no file; raise --budget-time or --budget-bytes".to_owned();
        return Err(Failure::failed(search.first_error().unwrap_or_else(small)));
    };
    // The sweep would leave no time for it.
    let total = search.total();
    if stop.load(Ordering::Relaxed) {
        return Ok(interrupted());
    }
    found.spent = search.spent();
    let plan = found.tried[chosen].plan;
    let (swept, failed) = match args.exhaustive {
        true => sweep(args, &mut search, (&found, plan), &stop),
        false => (None, None),
    };
    let unread = search.first_error();
    let taught = found.teaches(learnt, args.evict);
    let costs = found.tried[0].cost().zip(found.tried[chosen].cost());
    let entry = Entry {
        key: key(found.mean, found.before),
        plan: plan.to_string(),
        gain: costs.map_or(1.0, |(default, own)| default / own),
        learnt_unix_ms: ioloom_sys::clock::unix_ms(),
    };
    let advice = Advice::new(&search, (budget, total), found, chosen, (learnt, taught), swept);
    let printed = match args.json {
        true => out::print_json(&advice.json()),
        false => out::print(&advice.text()),
    };
    if taught {
        keep(profiles, entry);
    }
    out::then(printed, exit(stop.load(Ordering::Relaxed), failed, unread))
}

/// Reports an interrupt, and returns its exit code.
fn interrupted() -> Exit {
    stderr::message("interrupted; no plan is advised");
    Exit::Interrupted
}

/// Runs all plans on all files. Returns their times, or why it failed or is refused; neither after an
/// interrupt.
fn sweep(
    args: &AdviseArgs,
    search: &mut Search<'_>,
    (found, plan): (&Found, Plan),
    stop: &AtomicBool,
) -> (Option<Swept>, Option<Failure>) {
    if !args.evict && found.condition != Condition::Warm {
        let why = "the files may not be in memory, and the first run would load them; add --evict to \
                   --exhaustive";
        return (None, Some(Failure::refused(why)));
    }
    match search.exhaustive(found.mean, plan) {
        // Not all plans have run.
        _ if stop.load(Ordering::Relaxed) => (None, None),
        Ok(tried) => (Some(Swept::of(tried, plan)), None),
        Err(failure) => (None, Some(failure)),
    }
}

/// Returns the exit code after the advice, and reports what could not be read.
fn exit(interrupted: bool, failed: Option<Failure>, unread: Option<String>) -> Ended {
    // Other plans may have met files that the chosen one was not given.
    if let Some(first) = unread.as_ref().filter(|_| !interrupted) {
        stderr::message(&format!("the advice ignores what the trial could not read: {first}"));
    }
    match (failed, unread) {
        _ if interrupted => Ok(Exit::Interrupted),
        (Some(failure), _) => Err(failure),
        (None, Some(_)) => Ok(Exit::Failed),
        (None, None) => Ok(Exit::Ok),
    }
}

/// Keeps what a trial learnt, or reports why that is impossible. The advice is valid without it.
fn keep(profiles: Result<Profiles, Failure>, entry: Entry) {
    if let Err(failure) = profiles.and_then(|mut profiles| profiles.keep(entry)) {
        stderr::message(&format!("the advice is not kept as a profile: {}", failure.message));
    }
}

/// Returns why the list has no file.
fn none_found(paths: &[PathBuf], search: &Search<'_>) -> String {
    let shown = match paths {
        [path] => quoted(path).to_string(),
        _ => format!("the {} arguments", paths.len()),
    };
    match search.sample.complete {
        true => format!("found no file to read in {shown}"),
        false => {
            format!("found no file in {shown} within the time for the list; raise --budget-time")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_time_is_not_called_empty() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("one"), "text").unwrap();
        let listed = |time| {
            let (paths, budget) = ([dir.path().to_owned()], Budget { time, bytes: 1 << 20 });
            let compute = Compute::None;
            let all = (false, false);
            let search = Search::new(&paths, &compute, budget, all, Default::default());
            (search.sample.len(), none_found(&paths, &search))
        };
        let (files, why) = listed(Duration::ZERO);
        assert!(files == 0 && why.contains("--budget-time"), "{files} {why}");
        let shown = quoted(dir.path());
        assert_eq!(listed(Duration::from_secs(600)).1, format!("found no file to read in {shown}"));
    }
}
