//! The advice as text and as JSON.

use super::candidates::{LARGE, window};
use super::choice::{Expected, Spread, Tried, Upgrades, expected, is_unlike, regret, upgrades};
use super::profile::{Condition, Profiles};
use super::sample::Total;
use super::search::{Budget, COLD, Found, Search};
use super::trial::WARM;
use crate::out;
use ioloom::Plan;
use ioloom_model::units::{format_count, format_counted, format_ns, format_size, readable};
use ioloom_model::{Compute, Hash};
use serde_json::{Value, json};

/// Version of the `--json` document.
const SCHEMA: u32 = 1;
/// Columns of the labels.
const HEAD: usize = 11;

/// The result of a trial.
pub(super) struct Advice<'a> {
    pub(super) compute: &'a Compute,
    pub(super) found: Found,
    pub(super) chosen: usize,
    pub(super) total: Total,
    /// Whether the list of files is complete.
    pub(super) complete: bool,
    pub(super) walk_ns: u64,
    /// Files and directories that could not be read.
    pub(super) unread: u64,
    pub(super) expected: Option<Expected>,
    pub(super) upgrades: Option<Upgrades>,
    pub(super) regret: Option<f64>,
    /// Whether files are large.
    pub(super) large: bool,
    /// What an earlier trial learnt.
    pub(super) learnt: Option<Plan>,
    /// Whether this one learnt anything.
    pub(super) taught: bool,
    pub(super) budget: Budget,
    pub(super) bytes_read: u64,
    /// Seed of the random sample.
    pub(super) seed: u64,
    pub(super) swept: Option<Swept>,
}

/// The result of an exhaustive sweep.
pub(super) struct Swept {
    /// Plans and their shortest times, shortest first.
    times: Vec<(Plan, u64)>,
    refused: Vec<(Plan, String)>,
    /// The mean time of the chosen plan.
    chosen_ns: Option<f64>,
    chosen: Plan,
    /// Most files that one run could not read.
    errors: u64,
}

impl Swept {
    pub(super) fn of(tried: Vec<Tried>, chosen: Plan) -> Self {
        let mean = |one: &Tried| {
            let sum: u64 = one.trials.iter().map(|trial| trial.elapsed_ns).sum();
            (!one.trials.is_empty()).then(|| sum as f64 / one.trials.len() as f64)
        };
        let mut times: Vec<(Plan, u64)> =
            tried.iter().filter_map(|one| Some((one.plan, mean(one)? as u64))).collect();
        times.sort_by_key(|(_, ns)| *ns);
        let refused = tried.iter().filter_map(|one| Some((one.plan, one.refused.clone()?)));
        let chosen_ns = tried.iter().find(|one| one.plan == chosen).and_then(mean);
        let errors = tried.iter().flat_map(|one| &one.trials).map(|trial| trial.errors).max();
        Self { refused: refused.collect(), times, chosen_ns, chosen, errors: errors.unwrap_or(0) }
    }

    /// Returns how much longer the chosen plan takes than the best one, as a share.
    fn off(&self) -> Option<f64> {
        let best = self.times.first()?.1 as f64;
        Some(self.chosen_ns? / best.max(1.0) - 1.0)
    }
}

fn percent(share: f64) -> String {
    let value = 100.0 * share;
    if value < 10.0 { format!("{value:.1} %") } else { format!("{value:.0} %") }
}

impl<'a> Advice<'a> {
    /// Returns the advice that follows from what a trial found.
    pub(super) fn new(
        search: &Search<'a>,
        (budget, total): (Budget, Total),
        found: Found,
        chosen: usize,
        (learnt, taught): (Option<Plan>, bool),
        swept: Option<Swept>,
    ) -> Self {
        let spread = Spread::of(&found.tried);
        let all = found.tried[chosen].all();
        let expected = expected(&found.tried[chosen], total, spread);
        let cores = ioloom::usable_cores();
        Self {
            compute: search.compute,
            regret: regret(&found.tried, chosen, spread),
            upgrades: expected.map(|e| upgrades(&all, found.cold, e.ns, cores)),
            large: found.mean >= LARGE,
            bytes_read: search.bytes,
            complete: search.sample.complete,
            walk_ns: search.sample.walk_ns,
            unread: search.sample.errors.len() as u64
                + search.errors.max(swept.as_ref().map_or(0, |swept| swept.errors)),
            seed: search.seed,
            budget,
            found,
            chosen,
            total,
            expected,
            learnt,
            taught,
            swept,
        }
    }

    fn plan(&self) -> Plan {
        self.found.tried[self.chosen].plan
    }

    pub(super) fn text(&self) -> String {
        let width = out::columns();
        let line = |head: &str, text: String| out::labelled(head, HEAD, &text, width);
        let default = if self.chosen == 0 { " (the default plan)" } else { "" };
        let mut text = line("advice", format!("{}{default}", self.plan()));
        if self.chosen == 0 && self.found.tried.len() > 1 {
            text += &line("", "no plan is measurably faster than the default".to_owned());
        }
        text += &line("use", command(self.compute, (self.chosen > 0).then(|| self.plan())));
        text += &line("method", self.method());
        text += &line("expected", self.time());
        let all = self.found.tried[self.chosen].all();
        if let Some((word, sentence)) = &all.limit {
            text += &line("limited by", format!("{word}: {sentence}"));
        }
        if let Some(upgrades) = self.upgrades {
            let (storage, cores) = upgrade_words(upgrades);
            text += &line("faster disk", storage);
            text += &line("more cores", cores);
        }
        text += &line("regret", self.regret_words());
        text += &line("condition", self.condition_words());
        text += &line("spent", self.spent());
        if let Some(words) = self.profile_words() {
            text += &line("profile", words.to_owned());
        }
        text += &self.tried_table();
        text += &self.swept_table();
        text
    }

    fn method(&self) -> String {
        let plan = self.plan();
        let threads = plan.threads();
        format!(
            "{}, schedule {}, at most {} files in flight, {} computing",
            plan.method,
            plan.schedule.name(),
            window(&plan),
            format_counted(u64::from(threads.min(ioloom::usable_cores())), "thread", "threads"),
        )
    }

    fn time(&self) -> String {
        let files = format_counted(self.total.files, "file", "files");
        let about = if self.total.error > 0.0 { "about " } else { "" };
        let size = format_size(self.total.bytes as u64);
        let all = match self.complete {
            true => format!("{files}, {about}{size}"),
            false => format!(
                "the first {files} found, {about}{size}; list them in less time with a larger --budget-time"
            ),
        };
        match self.expected {
            Some(Expected { ns, interval: Some((lo, hi)) }) => format!(
                "{} (95 % interval {} to {}) for {all}, without the walk",
                format_ns(ns),
                format_ns(lo),
                format_ns(hi)
            ),
            Some(Expected { ns, interval: None }) => {
                format!("{} for {all}, without the walk; {}", format_ns(ns), self.no_interval())
            }
            None => format!("unknown for {all}"),
        }
    }

    /// Returns why the expected time has no interval.
    fn no_interval(&self) -> String {
        let runs = self.found.tried[self.chosen].all();
        if !is_unlike(&runs, self.total) {
            return "one run does not show an interval".to_owned();
        }
        format!(
            "the interval is unknown: the files of the runs have {} on average, and all files {}",
            format_size(runs.bytes / runs.files.max(1)),
            format_size(self.total.bytes as u64 / self.total.files.max(1))
        )
    }

    fn regret_words(&self) -> String {
        match self.regret {
            _ if self.found.tried.len() < 2 => {
                "unknown: too few files or too small a budget to compare plans".to_owned()
            }
            Some(bound) if bound.is_finite() && bound < 1.0 => format!(
                "no other plan tried saves more than {} of the time (95 % bound for each plan)",
                percent(bound)
            ),
            _ => "unknown: too few runs".to_owned(),
        }
    }

    fn condition_words(&self) -> String {
        let word = self.found.condition.word();
        match self.found.cold {
            Some(share) => measured(&self.found, share),
            None if self.found.tried[self.chosen].all().bytes == 0 => {
                format!("{word}: the files are empty")
            }
            None => format!("{word}: reads of this file system, or of several, are not counted"),
        }
    }

    fn spent(&self) -> String {
        format!(
            "{} of {}, {} of {}; the walk took {}",
            format_ns(self.found.spent.as_nanos() as f64),
            format_ns(self.budget.time.as_nanos() as f64),
            format_size(self.bytes_read),
            format_size(self.budget.bytes),
            format_ns(self.walk_ns as f64),
        )
    }

    fn profile_words(&self) -> Option<&'static str> {
        let learnt = self.learnt?;
        Some(if !self.taught {
            "an earlier trial chose a plan; this one shows too little to confirm or replace it"
        } else if learnt == self.plan() {
            "an earlier trial chose the same plan; this one confirms it"
        } else {
            "an earlier trial chose another plan; this one replaces it"
        })
    }

    fn tried_table(&self) -> String {
        let own = self.found.tried[self.chosen].cost().unwrap_or(f64::NAN);
        let width = out::columns();
        let mut text = "\nplans tried, time relative to the advice\n".to_owned();
        for (i, one) in self.found.tried.iter().enumerate() {
            let mark = if i == self.chosen { '*' } else { ' ' };
            let runs = one.trials.len() as u64;
            let (head, rest) = match (one.cost(), &one.refused) {
                (_, Some(reason)) => (format!("{mark}      – "), format!("refused: {reason}")),
                (Some(cost), _) => {
                    let runs = format_counted(runs, "run", "runs");
                    let files = format_counted(one.all().files, "file", "files");
                    (format!("{mark} {:6.2} ", cost / own), format!("{runs}, {files}"))
                }
                (None, None) => (format!("{mark}      – "), "not run".to_owned()),
            };
            text += &plan_row(&head, one.plan, &rest, width);
        }
        if self.found.left_out > 0 {
            text += &format!(
                "{} left out: {}\n",
                format_counted(self.found.left_out as u64, "plan", "plans"),
                "too few files or too small a budget"
            );
        }
        text
    }

    fn swept_table(&self) -> String {
        let Some(swept) = &self.swept else { return String::new() };
        let mut text = "\nall plans on all files, mean of two runs\n".to_owned();
        for (plan, ns) in &swept.times {
            let mark = if *plan == swept.chosen { '*' } else { ' ' };
            text += &format!("{mark} {:>10} {plan}\n", format_ns(*ns as f64));
        }
        for (plan, reason) in &swept.refused {
            let rest = format!("refused: {reason}");
            text += &plan_row("         – ", *plan, &rest, out::columns());
        }
        if let (Some(off), Some(ns)) = (swept.off(), swept.chosen_ns) {
            let off = format!("The advice is {} slower than the fastest plan", percent(off));
            let end = match self.expected.and_then(|e| e.contains(ns)) {
                Some(is_in) => format!(
                    "; its time, {}, is {} the expected interval.",
                    format_ns(ns),
                    if is_in { "in" } else { "outside" }
                ),
                None => ".".to_owned(),
            };
            text += &out::wrap(&(off + &end), out::columns(), 0);
        }
        text
    }

    pub(super) fn json(&self) -> Value {
        let all = self.found.tried[self.chosen].all();
        let plan = self.plan();
        let tried = |one: &Tried| {
            let sum = one.all();
            json!({
                "plan": one.plan.to_string(),
                "runs": one.trials.len(),
                "files": sum.files,
                "bytes": sum.bytes,
                "elapsed_ns": sum.elapsed_ns,
                "relative": one.cost().zip(self.found.tried[self.chosen].cost()).map(|(a, b)| a / b),
                "refused": one.refused,
            })
        };
        json!({
            "schema": SCHEMA,
            "command": "advise",
            "plan": plan.to_string(),
            "is_default": self.chosen == 0,
            "method": plan.method.to_string(),
            "schedule": plan.schedule.to_string(),
            "window": window(&plan),
            "permits": plan.threads().min(ioloom::usable_cores()),
            "compute": self.compute.to_string(),
            "files": self.total.files,
            "files_complete": self.complete,
            "bytes": self.total.bytes as u64,
            "large_files": self.large,
            "expected_ns": self.expected.map(|e| e.ns as u64),
            "expected_lo_ns": self.expected.and_then(|e| e.interval).map(|(lo, _)| lo as u64),
            "expected_hi_ns": self.expected.and_then(|e| e.interval).map(|(_, hi)| hi as u64),
            "limited_by": all.limit.as_ref().map(|limit| &limit.0),
            "why": all.limit.as_ref().map(|limit| &limit.1),
            "cores_busy": self.upgrades.map(|u| u.busy),
            "faster_storage_ns": self.upgrades.and_then(|u| u.storage_ns).map(|ns| ns as u64),
            "twice_the_cores_ns": self.upgrades.and_then(|u| u.cores_ns).map(|ns| ns as u64),
            "regret_bound": self.regret.filter(|bound| bound.is_finite() && *bound < 1.0),
            "condition": self.found.condition,
            "device_share": self.found.cold,
            "spent_ns": self.found.spent.as_nanos() as u64,
            "budget_ns": self.budget.time.as_nanos() as u64,
            "bytes_read": self.bytes_read,
            "budget_bytes": self.budget.bytes,
            "walk_ns": self.walk_ns,
            "seed": self.seed,
            "errors": self.unread,
            "learnt_plan": self.learnt.map(|plan| plan.to_string()),
            "tried": self.found.tried.iter().map(tried).collect::<Vec<_>>(),
            "plans_left_out": self.found.left_out,
            "exhaustive": self.swept.as_ref().map(|swept| json!({
                "times": swept.times.iter().map(|(plan, ns)| json!({
                    "plan": plan.to_string(),
                    "elapsed_ns": ns,
                })).collect::<Vec<_>>(),
                "refused": swept.refused.iter().map(|(plan, reason)| json!({
                    "plan": plan.to_string(),
                    "reason": reason,
                })).collect::<Vec<_>>(),
                "chosen_ns": swept.chosen_ns.map(|ns| ns as u64),
                "off": swept.off(),
                "in_interval": self.expected.zip(swept.chosen_ns)
                    .and_then(|(e, ns)| e.contains(ns)),
            })),
        })
    }
}

/// Formats a row of a table of plans; a remark that does not fit follows on further lines.
fn plan_row(head: &str, plan: Plan, remark: &str, width: usize) -> String {
    let row = format!("{head}{plan}  {remark}");
    if out::columns_of(&row) <= width {
        return row + "\n";
    }
    let indent = out::columns_of(head) + 2;
    let below = out::wrap(&format!("{}{remark}", " ".repeat(indent)), width, indent);
    format!("{head}{plan}\n{below}")
}

/// Returns the command that uses a plan, or the default one, as a shell reads it.
fn command(compute: &Compute, plan: Option<Plan>) -> String {
    let mut text = "ioloom each PATH…".to_owned();
    if *compute != Compute::Hash(Hash::Xxh3) {
        text += &format!(" --compute {}", shell_word(&compute.to_string()));
    }
    if let Some(plan) = plan {
        text += &format!(" --plan {}", shell_word(&plan.to_string()));
    }
    text
}

/// Quotes a value that a shell would not read as one word. No value contains a quotation mark.
fn shell_word(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":./=,-_".contains(c);
    if value.chars().all(is_plain) { value.to_owned() } else { format!("'{value}'") }
}

/// Describes the condition, and what was expected if the runs met another one.
fn measured(found: &Found, share: f64) -> String {
    let word = found.condition.word();
    let came = format!("{} of the bytes came from a device", percent(share));
    let is_other = found.condition == Condition::Mixed && (share <= WARM || share >= COLD);
    match is_other {
        true => format!("{word}: expected {}, but {came}", found.before.word()),
        false => format!("{word}: {came}"),
    }
}

/// Share of the usable processor time that other programs took from which more cores may help although those
/// present are not busy with the job.
const OTHERS: f64 = 0.1;

fn upgrade_words(upgrades: Upgrades) -> (String, String) {
    let busy = percent(upgrades.busy);
    let storage = match upgrades.storage_ns {
        Some(ns) => format!("at best {}: the work takes that long", format_ns(ns)),
        None if upgrades.in_memory => "no gain: the files were in memory".to_owned(),
        None if upgrades.waits > upgrades.busy => {
            format!("no gain: the work waits {} of the time", percent(upgrades.waits))
        }
        None => format!("no gain: the processors are busy {busy} of the time"),
    };
    let cores = match upgrades.cores_ns {
        Some(ns) => format!("twice as many: at best {}", format_ns(ns)),
        // They could run on the others.
        None if upgrades.others >= OTHERS => format!(
            "unknown: other programs took {} of the usable processor time",
            percent(upgrades.others)
        ),
        None => format!("no gain: the processors are busy only {busy} of the time"),
    };
    (storage, cores)
}

/// Returns the stored profiles as text.
pub(super) fn profiles_text(profiles: &Profiles) -> String {
    if profiles.entries.is_empty() {
        return "no profile; `ioloom advise PATH` learns one\n".to_owned();
    }
    let width = out::columns();
    let mut text = String::new();
    for entry in &profiles.entries {
        let key = &entry.key;
        // Mount points may contain spaces and control characters.
        let file_system = format!("{},", readable(&key.file_system));
        let files = readable(&format!(
            "{}, {}, files up to {}, Linux {}",
            key.compute,
            key.condition.word(),
            key.size_class,
            key.kernel,
        ));
        let plan = format!("  {} ({:.2} × the speed of the default)", entry.plan, entry.gain);
        let words = std::iter::once(file_system.as_str()).chain(files.split_whitespace());
        text += &out::wrap_words(String::new(), words, width, 4);
        text += &out::wrap(&readable(&plan), width, 4);
    }
    text
}

/// Returns the stored profiles as a document.
pub(super) fn profiles_json(profiles: &Profiles) -> Value {
    json!({"schema": SCHEMA, "command": "advise", "profiles": profiles.entries})
}

/// Returns how many profiles were forgotten.
pub(super) fn forgotten(count: usize, json: bool) -> String {
    if json {
        return json!({"schema": SCHEMA, "command": "advise", "forgotten": count}).to_string()
            + "\n";
    }
    match count {
        1 => "forgot 1 profile\n".to_owned(),
        n => format!("forgot {} profiles\n", format_count(n as u64)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::profile::{Entry, Key};
    use crate::advise::trial::Trial;

    fn tried(plan: &str, times: &[u64]) -> Tried {
        let trial = |ns: &u64| Trial { files: 1, elapsed_ns: *ns, ..Trial::default() };
        Tried { trials: times.iter().map(trial).collect(), ..Tried::new(plan.parse().unwrap()) }
    }

    #[test]
    fn names_of_file_systems_are_printed_whole_and_escaped() {
        let dir = tempfile::tempdir().unwrap();
        let mut profiles = Profiles::read(dir.path()).unwrap();
        let point = format!("/mnt/a  b\u{1b}[31m\n{}", "long name ".repeat(30));
        profiles.entries.push(Entry {
            key: Key {
                file_system: format!("ext4 on /dev/sda1 (8:1 at {point})"),
                compute: "xxh3".to_owned(),
                condition: Condition::Cold,
                size_class: "4MiB".to_owned(),
                kernel: "6.12".to_owned(),
            },
            plan: "read/threads:n=2".to_owned(),
            gain: 1.5,
            learnt_unix_ms: 1,
        });
        let text = profiles_text(&profiles);
        assert!(
            text.starts_with("ext4 on /dev/sda1 (8:1 at /mnt/a  b\\u{1b}[31m\\nlong"),
            "{text}"
        );
        assert!(text.lines().next().unwrap().ends_with("long name ),"), "{text}");
        assert!(
            text.contains("xxh3, cold, files up to 4MiB, Linux 6.12\n  read/threads:n=2 (1.50 ×")
        );
    }

    #[test]
    fn rows_of_plans_fit_the_width() {
        let long: Plan = "nowait/window:l=128,p=8/chunk=512KiB,memory=17MiB".parse().unwrap();
        let short: Plan = "read/threads:n=2".parse().unwrap();
        let remark = "12 runs, 18 446 744 files";
        let row = |plan, remark| plan_row("*   1.00 ", plan, remark, 80);
        assert_eq!(row(short, remark), format!("*   1.00 {short}  {remark}\n"));
        assert_eq!(row(long, remark), format!("*   1.00 {long}\n           {remark}\n"));
        let refused = format!("refused: {}", "the reason of the system ".repeat(8));
        for text in [row(short, &refused), row(long, &refused)] {
            assert!(text.lines().all(|line| out::columns_of(line) <= 80), "{text}");
        }
    }

    #[test]
    fn the_sweep_says_how_far_the_advice_was_off() {
        let chosen = "read/threads:n=2".parse().unwrap();
        let all =
            vec![tried("read/threads:n=2", &[110, 110]), tried("read/threads:n=8", &[90, 110])];
        let swept = Swept::of(all, chosen);
        assert_eq!(swept.times[0].0, "read/threads:n=8".parse().unwrap());
        assert!((swept.off().unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn cores_that_other_programs_use_do_not_show_that_more_of_them_gain_nothing() {
        let words = |others_ns| {
            let all = Trial { cpu_ns: 600, elapsed_ns: 1_000, others_ns, ..Trial::default() };
            upgrade_words(upgrades(&all, None, 1e9, 2)).1
        };
        assert_eq!(words(0), "no gain: the processors are busy only 30 % of the time");
        let unknown = "unknown: other programs took 65 % of the usable processor time";
        assert_eq!(words(650), unknown);
    }

    #[test]
    fn a_shell_accepts_the_command() {
        let plan: Plan = "read/threads:n=2".parse().unwrap();
        for compute in ["xxh3", "sha256", "spin:exp(mean=1us)", "sleep:2ms"] {
            for plan in [None, Some(plan)] {
                let text = command(&compute.parse().unwrap(), plan);
                let shell = std::process::Command::new("sh").args(["-n", "-c", &text]).output();
                let said = shell.unwrap();
                assert!(said.status.success(), "{text}: {said:?}");
            }
        }
        let plain = command(&"sha256".parse().unwrap(), Some(plan));
        assert_eq!(plain, "ioloom each PATH… --compute sha256 --plan read/threads:n=2");
    }

    #[test]
    fn a_condition_that_was_not_expected_is_explained() {
        let found = |before, condition| Found {
            tried: Vec::new(),
            chosen: None,
            mean: 1.0,
            before,
            condition,
            cold: None,
            spent: Default::default(),
            left_out: 0,
        };
        assert_eq!(
            measured(&found(Condition::Warm, Condition::Mixed), 1.0),
            "mixed: expected warm, but 100 % of the bytes came from a device"
        );
        assert_eq!(
            measured(&found(Condition::Mixed, Condition::Mixed), 0.5),
            "mixed: 50 % of the bytes came from a device"
        );
    }

    #[test]
    fn shares_have_two_digits() {
        assert_eq!((percent(0.0123), percent(0.5)), ("1.2 %".to_owned(), "50 %".to_owned()));
    }
}
