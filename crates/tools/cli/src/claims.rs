//! `ioloom claims`: shows published claims and their verdicts from stored runs.

use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::{self, Ledger};
use crate::out::{self, wrap};
use crate::verify::{self, Request};
use crate::{session_report, sessions, stderr, values};
use clap::Args;
use comfy_table::{ColumnConstraint, Width};
use ioloom_claims::{
    Claim, ClaimVerdict, Evidence, Registered, Rule, Score, SessionEffect, Verdict, VerdictList,
};
use ioloom_failure::quoted;
use ioloom_lab::{Session, spec};
use ioloom_model::units::readable;
use ioloom_model::{Doubt, RunRecord};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `--verify` and the flags that need it: clap does not require a flag that conflicts with another one.
const VERIFYING: [&str; 12] = [
    "verify",
    "open",
    "budget",
    "dry_run",
    "power",
    "full_size",
    "image",
    "media",
    "drop_caches",
    "allow_sysctl",
    "studies",
    "dir",
];

/// Show published claims and whether your runs confirm them
///
/// Verdicts are based on the runs in the store and the exports in ./results. Some are recomputed from
/// published numbers alone. Without runs most claims are undecided; `ioloom study` makes runs.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom claims                 every claim and its verdict
  ioloom claims 000-P01         one claim in full
  ioloom claims --verify 000-P33 000-P34
                                run what these claims need
  ioloom claims --verify --open --budget 45min
                                decide as many open claims as time allows
  ioloom claims --verify --open --power
                                the blocks and minutes that each needs
  ioloom claims --source 0 --json
                                the claims of one source as JSON")]
pub(crate) struct ClaimsArgs {
    /// Claim identifiers, such as 000-P01
    ///
    /// Default: all claims. A single claim is shown in full: evidence, confounds, and published and
    /// measured values.
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    /// Show only claims of this source
    ///
    /// N is the number of a published study, 0 to 4.
    #[arg(long, alias = "seed", value_name = "N")]
    source: Option<u32>,

    /// Check that sessions agree
    ///
    /// Judges each session separately. The exit code is 1 if one session confirms a claim that another
    /// refutes.
    #[arg(long, conflicts_with_all = VERIFYING)]
    check: bool,

    /// Run what the claims need until they are decided
    ///
    /// Runs only the arms of the selected claims, in at least 12 and at most 30 blocks, and stops when
    /// every claim is decided or more blocks would not decide it. Prints an estimate first. Ctrl-C or a
    /// budget leaves the session unfinished; the same command continues it. The exit code is 3 if a named
    /// claim cannot be verified here or the budget ended first; a claim that is already decided needs no
    /// runs.
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    how: VerifyArgs,

    #[command(flatten)]
    store: StoreArg,

    /// Use claims from this directory
    ///
    /// Ledgers (*.toml) and folders with claims.toml replace the built-in claims.
    #[arg(long, value_name = "DIR")]
    claims: Option<PathBuf>,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

/// How `--verify` runs.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// Verify all undecided claims
    ///
    /// Claims are left out if an earlier session with the same test gave up, or if they would stay
    /// undecided with 30 blocks like those stored. Stored sessions of fewer than 12 blocks do not
    /// count, nor do disturbed blocks.
    #[arg(long, requires = "verify", conflicts_with = "ids")]
    open: bool,

    /// Time limit for --verify
    ///
    /// For example 45min. Cheap claims come first; those whose first 12 blocks do not fit are left out.
    /// Default: no limit.
    #[arg(long, value_name = "TIME", value_parser = values::time, requires = "verify")]
    budget: Option<Duration>,

    /// Print the plan and estimate of --verify, run nothing
    #[arg(long, requires = "verify", conflicts_with = "json")]
    dry_run: bool,

    /// Print the blocks and minutes each claim needs
    ///
    /// Based on the noise and effects of stored runs, or on published effects. Runs nothing. Takes up
    /// to a few minutes.
    #[arg(long, requires = "verify", conflicts_with = "dry_run")]
    power: bool,

    /// Keep the published size of large file sets
    ///
    /// By default, sets above 1 GiB or 50,000 files are reduced to their quick size, and the verdicts get
    /// the doubt scaled. Claims with this doubt are verified again if the study has a larger set.
    #[arg(long, requires = "verify")]
    full_size: bool,

    /// Create file sets in an image, for cold names
    ///
    /// Needs root; see `ioloom study --help`.
    #[arg(long, requires = "verify")]
    image: bool,

    /// Also run thread ladders in memory and on a slowed disk
    ///
    /// For claims that compare media. The slowed disk needs root.
    #[arg(long, requires = "verify")]
    media: bool,

    /// Permit arms that drop the system's page cache
    ///
    /// Needs root. Also drops the caches before each cold run.
    #[arg(long, requires = "verify")]
    drop_caches: bool,

    /// Permit arms that change sysctl values
    ///
    /// Needs root. The old values are restored after each run.
    #[arg(long, requires = "verify")]
    allow_sysctl: bool,

    /// Use studies from this directory
    ///
    /// Study files (*.toml) and folders with study.toml replace the built-in studies.
    #[arg(long, value_name = "DIR", requires = "verify")]
    studies: Option<PathBuf>,

    /// Work directory for --verify
    ///
    /// Default: $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom.
    #[arg(long, value_name = "DIR", requires = "verify")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &ClaimsArgs) -> Ended {
    let ledger = Ledger::read(args.claims.as_deref())?;
    let claims = chosen(&ledger, args)?;
    let (mut all, mut exit) = match args.verify {
        true => sessions::all_so_far(&args.store)?,
        false => sessions::all(&args.store)?,
    };
    if args.verify {
        let verified = verify(args, &ledger, &claims, all)?;
        exit = if verified == Exit::Ok { exit } else { verified };
        if args.how.dry_run || args.how.power {
            return Ok(exit);
        }
        (all, _) = sessions::all(&args.store)?;
    }
    let differing = if args.check { differing(&ledger, &claims, &all) } else { Vec::new() };
    let headers = all.iter().map(|session| &session.header);
    session_report::report_missing_ledger(headers, args.claims.as_deref());
    let stored = all.iter().any(|session| !session.runs.is_empty());
    let evidence = ledger.evidence(all);
    report_left_out(&evidence);
    // All claims are judged together, so a verdict does not depend on which are shown.
    let mut verdicts = ledger.judge(&ledger.all().iter().collect::<Vec<_>>(), &evidence);
    verdicts.retain(|v| claims.iter().any(|c| c.id == v.id));
    verdicts.sort_by_key(|v| claims.iter().position(|c| c.id == v.id));
    let is_untestable = |v: &ClaimVerdict| v.verdict == Verdict::NotTestableHere;
    if args.verify && !args.how.open && exit == Exit::Ok && verdicts.iter().any(is_untestable) {
        exit = Exit::Refused;
    }
    let printed = if args.json {
        out::print_json(&VerdictList::new(verdicts))
    } else if let ([claim], [verdict], true) =
        (claims.as_slice(), verdicts.as_slice(), !args.ids.is_empty())
    {
        let own = |run: &&RunRecord| verdict.evidence.sessions.contains(&run.key.session);
        let machine = evidence.records.iter().find(own).map(|run| run.machine.as_str());
        out::print(&in_full(claim, verdict, machine, out::columns()))
    } else {
        let printed = out::print(&table(&verdicts, out::columns()));
        if evidence.records.is_empty() {
            stderr::message(match stored {
                true => "no stored runs can decide claims; those on files of yours never do",
                false => "no stored runs; create some with `ioloom study`",
            });
        }
        printed
    };
    for line in &differing {
        stderr::message(line);
    }
    out::then(printed, Ok(if differing.is_empty() { exit } else { Exit::Failed }))
}

/// Reports whether runs may decide a claim: it is undecided, its arms were refused, which other limits or
/// permissions can change, or smaller sets decided it and those of the published size are wanted.
fn is_open(verdict: &ClaimVerdict, full_size: bool) -> bool {
    matches!(verdict.verdict, Verdict::Undecided | Verdict::NotTestableHere)
        || (full_size && verdict.doubts.contains(&Doubt::Scaled))
}

/// Reports whether runs of a claim can be repeated on a larger file set.
fn has_larger_set(claim: &Claim, studies: Option<&Path>) -> bool {
    claim.contrasts.iter().flat_map(|test| test.locations()).any(|at| {
        let study = spec::load(&at.study, studies);
        study.is_ok_and(|study| {
            study.sets.iter().any(|(name, set)| at.has_set(name) && set.quick.is_some())
        })
    })
}

/// Runs what claims need that are open.
fn verify(
    args: &ClaimsArgs,
    ledger: &Ledger,
    claims: &[&Claim],
    sessions: Vec<Session>,
) -> Result<Exit, Failure> {
    let how = &args.how;
    if args.ids.is_empty() && !how.open {
        return Err(Failure::usage(
            "--verify needs claim identifiers, or --open for all open claims",
        ));
    }
    let evidence = ledger.evidence(sessions);
    // What runs of another machine decided is open here.
    let here = verify::fingerprint(how.dir.as_deref())?;
    let verdicts = ledger.judge_on(&here, &ledger.all().iter().collect::<Vec<_>>(), &evidence);
    let mut open: Vec<&Claim> = Vec::new();
    for claim in claims {
        // A claim that repeats another one is decided by its tests.
        let first = claim.same_as.as_ref().unwrap_or(&claim.id);
        let Some(verdict) = verdicts.iter().find(|v| v.id == *first) else { continue };
        let is_larger = |c: &Claim| c.id == *first && has_larger_set(c, how.studies.as_deref());
        let full_size = how.full_size
            && verdict.doubts.contains(&Doubt::Scaled)
            && ledger.all().iter().any(is_larger);
        if is_open(verdict, full_size) {
            open.extend(ledger.all().iter().filter(|c| c.id == *first));
        } else if !how.open {
            stderr::line(&format!("{first} is already decided: {}.", verdict.verdict));
        }
    }
    open.sort_by(|a, b| a.id.cmp(&b.id));
    open.dedup_by(|a, b| a.id == b.id);
    let untestable = verdicts.iter().filter(|v| v.verdict == Verdict::NotTestableHere);
    let request = Request {
        ledger,
        evidence: &evidence,
        claims: open,
        untestable: untestable.map(|verdict| verdict.id.clone()).collect(),
        named: !how.open,
        store: &args.store,
        dir: how.dir.as_deref(),
        studies: how.studies.as_deref(),
        budget: how.budget,
        dry_run: how.dry_run,
        full_size: how.full_size,
        image: how.image,
        media: how.media,
        drop_caches: how.drop_caches,
        allow_sysctl: how.allow_sysctl,
    };
    if how.power {
        return verify::needs(&request, &verdicts, args.json);
    }
    verify::run(&request)
}

fn chosen<'a>(ledger: &'a Ledger, args: &ClaimsArgs) -> Result<Vec<&'a Claim>, Failure> {
    let mut chosen = Vec::new();
    for id in &args.ids {
        let found = ledger.all().iter().find(|c| c.id.eq_ignore_ascii_case(id));
        let named = quoted(Path::new(id));
        let unknown = || Failure::usage(format!("no claim {named}; `ioloom claims` lists them"));
        chosen.push(found.ok_or_else(unknown)?);
    }
    if args.ids.is_empty() {
        chosen.extend(ledger.all());
    }
    if let Some(seed) = args.source {
        let named = chosen.first().copied().filter(|_| !args.ids.is_empty());
        chosen.retain(|c| c.source == seed);
        if let (true, Some(Claim { id, source, .. })) = (chosen.is_empty(), named) {
            return Err(Failure::usage(format!("claim {id} is of source {source}, not {seed}")));
        }
        if chosen.is_empty() {
            let known: BTreeSet<String> =
                ledger.all().iter().map(|c| c.source.to_string()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("no claims of source {seed}; sources: {known}")));
        }
    }
    Ok(chosen)
}

/// Prints a message if runs of edited studies or of unfinished sessions were left out.
fn report_left_out(evidence: &ledger::Evidence) {
    for (session, count) in &evidence.edited {
        stderr::message(&format!(
            "{count} runs of session {session} are not used: their arms or file sets are not those of \
             the built-in study"
        ));
    }
    for session in &evidence.unfinished {
        stderr::message(&format!(
            "the runs of session {session} are not used, because it has not ended; repeat its command with \
             --resume"
        ));
    }
}

/// Returns one sentence for each claim confirmed by one session and refuted by another.
fn differing(ledger: &Ledger, claims: &[&Claim], sessions: &[Session]) -> Vec<String> {
    let by_session: Vec<(&str, Vec<ClaimVerdict>)> = sessions
        .iter()
        .map(|s| {
            // All claims are judged together, so a verdict does not depend on which are selected.
            let all = ledger.all().iter().collect::<Vec<_>>();
            (s.header.session.as_str(), ledger.judge(&all, &ledger.evidence(vec![s.clone()])))
        })
        .collect();
    let mut lines = Vec::new();
    for claim in claims {
        let of = |verdict: Verdict| {
            let has = |v: &ClaimVerdict| v.id == claim.id && v.verdict == verdict;
            by_session.iter().find(|(_, all)| all.iter().any(has)).map(|(name, _)| *name)
        };
        if let (Some(yes), Some(no)) = (of(Verdict::Confirmed), of(Verdict::Refuted)) {
            let id = &claim.id;
            lines.push(format!("{id} is not reproducible: {yes} confirms it, {no} refutes it"));
        }
    }
    lines
}

fn table(verdicts: &[ClaimVerdict], width: usize) -> String {
    let mut table = out::table(width);
    table.set_header(["claim", "verdict", "statement, and effect with 95 % interval"]);
    for v in verdicts {
        let word = format!("{} {}", v.verdict.icon(), v.verdict);
        let mut text = v.statement.clone();
        if v.evidence.blocks > 0 && v.evidence.effect.is_some() {
            text.push_str(&format!("\n{}, {} blocks", effect(&v.evidence), v.evidence.blocks));
        }
        if let Some((first, more)) = v.needs.split_first() {
            text.push_str(&format!("\nneeds {first}"));
            if !more.is_empty() {
                text.push_str(&format!("; {} more in `ioloom claims {}`", more.len(), v.id));
            }
        }
        table.add_row([v.id.clone(), word, text]);
    }
    // Includes the two columns between cells.
    let fixed = |columns| ColumnConstraint::Absolute(Width::Fixed(columns));
    table.set_constraints([fixed(10), fixed(14)]);
    let score = Score::of(verdicts, Rule::STANDARD.false_rate).to_string();
    format!("{}\n{}", out::table_text(&table), wrap(&score, width, 0))
}

/// Formats a number of any magnitude with few digits.
fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 || (v > 0.0 && v < 1e-3) => format!("{value:.2e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Stands for an effect that no runs show.
const NO_NUMBER: &str = "no measured number";

/// Formats the effect and its interval compactly.
fn effect(evidence: &Evidence) -> String {
    let Some(value) = evidence.effect else { return NO_NUMBER.to_owned() };
    let interval = evidence.lo.zip(evidence.hi);
    let interval = interval.map(|(lo, hi)| format!(" [{}, {}]", number(lo), number(hi)));
    format!("{} {}{}", evidence.effect_is, number(value), interval.unwrap_or_default())
}

/// Formats the effect in a session that did not decide.
fn session_effect(apart: &SessionEffect) -> String {
    let SessionEffect { session, machine, effect, lo, hi, blocks, .. } = apart;
    let effect = effect.map_or("no effect".to_owned(), number);
    let interval = lo.zip(*hi).map(|(lo, hi)| format!(" [{}, {}]", number(lo), number(hi)));
    format!(
        "session {session} (machine {machine}): {effect}{}, {blocks} blocks",
        interval.unwrap_or_default()
    )
}

/// Returns text that is wrapped later. Names in a session file must not control the terminal.
fn on_one_line(text: &str) -> String {
    readable(&text.replace('\n', " "))
}

/// Formats everything known about one claim. `machine` is that of the sessions that decide it.
fn in_full(claim: &Claim, verdict: &ClaimVerdict, machine: Option<&str>, width: usize) -> String {
    let mut all = wrap(&format!("{}: {}", claim.id, claim.statement), width, 0);
    all.push('\n');
    let mut say = |head: &str, text: &str| {
        if !text.is_empty() {
            all.push_str(&out::labelled(head, 10, &on_one_line(text), width));
        }
    };
    let word = format!("{} {}: {}", verdict.verdict.icon(), verdict.verdict, verdict.sentence);
    say("Verdict", &word);
    for need in &verdict.needs {
        say("Needs", need);
    }
    say("Caveat", verdict.caveat.as_deref().unwrap_or_default());
    let ours = if verdict.evidence.blocks > 0 {
        format!("{}, {} blocks", effect(&verdict.evidence), verdict.evidence.blocks)
    } else {
        NO_NUMBER.to_owned()
    };
    let published = session_report::published(verdict);
    say("Published", if published.is_empty() { "no number" } else { &published });
    say("Here", &ours);
    for (name, value) in &verdict.evidence.numbers {
        say("", &format!("{name} {}", number(*value)));
    }
    say("Arms", &verdict.evidence.arms.join(", "));
    let mut sessions = verdict.evidence.sessions.join(", ");
    if let Some(machine) = machine {
        sessions.push_str(&format!(" (machine {machine})"));
    }
    say("Sessions", &sessions);
    let registered = match verdict.registered {
        None => "",
        Some(Registered::Before) => "the test was stored before the first run",
        Some(Registered::EarlierRule) => {
            "the test was stored before the first run; the rule of verdicts was changed later"
        }
        Some(Registered::Changed) => "the test was changed or added after the runs",
        Some(Registered::Unknown) => "the session is older than the registration of tests",
    };
    say("Test", registered);
    for apart in verdict.chief().map_or(&[][..], |part| &part.apart) {
        say("Apart", &session_effect(apart));
    }
    say("Scope", &claim.scope);
    say("Confirms", &claim.confirms);
    say("Refutes", &claim.refutes);
    for confound in &claim.confounds {
        say("Confound", confound);
    }
    for doubt in &verdict.doubts {
        say("Doubt", &format!("{doubt}: {}", doubt.advice()));
    }
    all.push('\n');
    for part in &verdict.parts {
        let note = if part.note { " (informative, not decisive)" } else { "" };
        let head = format!(
            "{} {}, {}{note}: {}",
            part.verdict.icon(),
            part.kind,
            part.place,
            part.sentence
        );
        all.push_str(&wrap(&on_one_line(&head), width, 2));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_session_cannot_draw() {
        assert_eq!(on_one_line("a\x1b[2J\nb"), "a\\u{1b}[2J b");
    }

    #[test]
    fn claims_that_runs_may_decide_are_open() {
        let ledger = Ledger::read(None).unwrap();
        let all: Vec<&Claim> = ledger.all().iter().collect();
        let mut one = ledger.judge(&all, &ledger.evidence(Vec::new())).remove(0);
        for (verdict, doubts, full_size, expected) in [
            (Verdict::Undecided, vec![], false, true),
            (Verdict::NotTestableHere, vec![], false, true),
            (Verdict::Confirmed, vec![], true, false),
            (Verdict::Confirmed, vec![Doubt::Scaled], false, false),
            (Verdict::Confirmed, vec![Doubt::Scaled], true, true),
            (Verdict::Scope, vec![Doubt::Scaled, Doubt::NoiseFloor], true, true),
        ] {
            (one.verdict, one.doubts) = (verdict, doubts);
            assert_eq!(is_open(&one, full_size), expected, "{verdict} {full_size}");
        }
    }

    #[test]
    fn only_claims_on_sets_with_a_larger_size_are_repeated_at_it() {
        let ledger = Ledger::read(None).unwrap();
        let of = |id: &str| {
            let claim = ledger.all().iter().find(|claim| claim.id == id).unwrap();
            has_larger_set(claim, None)
        };
        assert!(of("000-P47") && !of("000-P17") && !of("000-P18") && !of("000-P20"));
    }

    #[test]
    fn the_table_of_all_claims_fits_eighty_columns() {
        let ledger = Ledger::read(None).unwrap();
        let all: Vec<&Claim> = ledger.all().iter().collect();
        let verdicts = ledger.judge(&all, &ledger.evidence(Vec::new()));
        for line in table(&verdicts, 80).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (claim, verdict) in ledger.all().iter().zip(&verdicts) {
            let text = in_full(claim, verdict, None, 80);
            assert!(text.contains(&claim.id) && text.contains("Refutes"));
        }
    }
}
