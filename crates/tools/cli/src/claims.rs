//! `ioloom claims`: shows published claims and their verdicts from stored runs.

use crate::directories::StoreArg;
use crate::exit::{Ended, Exit, Failure};
use crate::ledger::{self, Ledger};
use crate::out::{self, wrap};
use crate::{session_report, sessions, stderr, study};
use clap::Args;
use comfy_table::{ColumnConstraint, Width};
use ioloom_claims::{
    Claim, ClaimVerdict, Evidence, Registered, Rule, Score, SessionEffect, Verdict, VerdictList,
};
use ioloom_lab::Session;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Show published claims and whether your runs confirm them
///
/// Verdicts are based on the runs in the store and the exports in ./results. Some are recomputed from
/// published numbers alone. Without runs most claims are undecided; `ioloom study` makes runs.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  ioloom claims                 every claim and its verdict
  ioloom claims 000-P01         one claim in full
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
    /// Judges each session separately. Without stored runs for the selected claims, the quick study
    /// pipeline runs first (90 seconds). The exit code is 1 if one session confirms a claim that
    /// another refutes.
    #[arg(long)]
    verify: bool,

    #[command(flatten)]
    store: StoreArg,

    /// Use claims from this directory
    ///
    /// Ledgers (*.toml) and folders with claims.toml replace the built-in claims.
    #[arg(long, value_name = "DIR")]
    claims: Option<PathBuf>,

    /// Work directory for --verify
    ///
    /// Default: $XDG_CACHE_HOME/ioloom or ~/.cache/ioloom.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Print one JSON document
    ///
    /// The format is described in docs/json.md.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &ClaimsArgs) -> Ended {
    let ledger = Ledger::read(args.claims.as_deref())?;
    let claims = chosen(&ledger, args)?;
    let mut all = sessions::all(&args.store)?;
    if args.verify && !measured(&claims, &all) {
        stderr::message("no stored runs for these claims: running the quick study first");
        let exit = study::measure(&args.store, args.dir.clone(), args.claims.clone())?;
        if exit != Exit::Ok {
            return Ok(exit);
        }
        all = sessions::all(&args.store)?;
    }
    let differing = if args.verify { differing(&ledger, &claims, &all) } else { Vec::new() };
    let headers = all.iter().map(|session| &session.header);
    session_report::report_missing_ledger(headers, args.claims.as_deref());
    let evidence = ledger.evidence(all);
    report_edited(&evidence);
    // All claims are judged together, so a verdict does not depend on which are shown.
    let mut verdicts = ledger.judge(&ledger.all().iter().collect::<Vec<_>>(), &evidence);
    verdicts.retain(|v| claims.iter().any(|c| c.id == v.id));
    verdicts.sort_by_key(|v| claims.iter().position(|c| c.id == v.id));
    if args.json {
        out::print_json(&VerdictList::new(verdicts))?;
    } else if let ([claim], [verdict], true) =
        (claims.as_slice(), verdicts.as_slice(), !args.ids.is_empty())
    {
        out::print(&in_full(claim, verdict, out::columns()))?;
    } else {
        out::print(&table(&verdicts, out::columns()))?;
        if evidence.records.is_empty() {
            stderr::message("no stored runs; create some with `ioloom study`");
        }
    }
    for line in &differing {
        stderr::message(line);
    }
    Ok(if differing.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn chosen<'a>(ledger: &'a Ledger, args: &ClaimsArgs) -> Result<Vec<&'a Claim>, Failure> {
    let mut chosen = Vec::new();
    for id in &args.ids {
        let found = ledger.all().iter().find(|c| c.id.eq_ignore_ascii_case(id));
        let unknown = || Failure::usage(format!("no claim '{id}'; `ioloom claims` lists them"));
        chosen.push(found.ok_or_else(unknown)?);
    }
    if args.ids.is_empty() {
        chosen.extend(ledger.all());
    }
    if let Some(seed) = args.source {
        chosen.retain(|c| c.source == seed);
        if chosen.is_empty() {
            let known: BTreeSet<String> =
                ledger.all().iter().map(|c| c.source.to_string()).collect();
            let known = known.into_iter().collect::<Vec<_>>().join(", ");
            return Err(Failure::usage(format!("no claims of source {seed}; sources: {known}")));
        }
    }
    Ok(chosen)
}

/// Returns whether the claims have stored runs or need none.
fn measured(claims: &[&Claim], sessions: &[Session]) -> bool {
    let contrasts = || claims.iter().flat_map(|c| &c.contrasts).flat_map(|c| c.locations());
    let runs = || sessions.iter().flat_map(|s| &s.runs);
    contrasts().next().is_none()
        || contrasts().any(|place| {
            runs().any(|r| r.key.study == place.study && r.key.experiment == place.experiment)
        })
}

/// Prints a message if runs of edited studies were left out.
fn report_edited(evidence: &ledger::Evidence) {
    for (session, count) in &evidence.edited {
        stderr::message(&format!(
            "{count} runs of session {session} are not used: their arms or file sets are not those of \
             the built-in study"
        ));
    }
}

/// Returns one sentence for each claim confirmed by one session and refuted by another.
fn differing(ledger: &Ledger, claims: &[&Claim], sessions: &[Session]) -> Vec<String> {
    let by_session: Vec<(&str, Vec<ClaimVerdict>)> = sessions
        .iter()
        .map(|s| {
            (s.header.session.as_str(), ledger.judge(claims, &ledger.evidence(vec![s.clone()])))
        })
        .collect();
    let mut lines = Vec::new();
    for (at, claim) in claims.iter().enumerate() {
        let of = |verdict: Verdict| {
            by_session.iter().find(|(_, v)| v[at].verdict == verdict).map(|(name, _)| *name)
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
        if v.evidence.blocks > 0 {
            text.push_str(&format!("\n{}, {} blocks", effect(&v.evidence), v.evidence.blocks));
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

/// Formats the effect and its interval compactly.
fn effect(evidence: &Evidence) -> String {
    let Some(value) = evidence.effect else { return String::new() };
    let interval = evidence.lo.zip(evidence.hi);
    let interval = interval.map(|(lo, hi)| format!(" [{}, {}]", number(lo), number(hi)));
    format!("{} {}{}", evidence.effect_is, number(value), interval.unwrap_or_default())
}

/// Formats the effect in a session that did not decide.
fn session_effect(apart: &SessionEffect) -> String {
    let SessionEffect { session, effect, lo, hi, blocks, .. } = apart;
    let effect = effect.map_or("no effect".to_owned(), number);
    let interval = lo.zip(*hi).map(|(lo, hi)| format!(" [{}, {}]", number(lo), number(hi)));
    format!("session {session}: {effect}{}, {blocks} blocks", interval.unwrap_or_default())
}

/// Formats everything known about one claim.
fn in_full(claim: &Claim, verdict: &ClaimVerdict, width: usize) -> String {
    let mut all = wrap(&format!("{}: {}", claim.id, claim.statement), width, 0);
    all.push('\n');
    let mut say = |head: &str, text: &str| {
        if !text.is_empty() {
            all.push_str(&out::labelled(head, 10, text, width));
        }
    };
    let word = format!("{} {}: {}", verdict.verdict.icon(), verdict.verdict, verdict.sentence);
    say("Verdict", &word);
    let ours = if verdict.evidence.blocks > 0 {
        format!("{}, {} blocks", effect(&verdict.evidence), verdict.evidence.blocks)
    } else {
        "no measured number".to_owned()
    };
    let published = session_report::published(verdict);
    say("Published", if published.is_empty() { "no number" } else { &published });
    say("Here", &ours);
    for (name, value) in &verdict.evidence.numbers {
        say("", &format!("{name} {}", number(*value)));
    }
    say("Arms", &verdict.evidence.arms.join(", "));
    say("Sessions", &verdict.evidence.sessions.join(", "));
    let registered = match verdict.registered {
        None => "",
        Some(Registered::Before) => "the test was stored before the first run",
        Some(Registered::Changed) => "the test was changed or added after the runs",
        Some(Registered::Unknown) => "the session is older than the registration of tests",
    };
    say("Test", registered);
    for apart in verdict.parts.first().map_or(&[][..], |part| &part.apart) {
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
        all.push_str(&wrap(&head, width, 2));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_all_claims_fits_eighty_columns() {
        let ledger = Ledger::read(None).unwrap();
        let all: Vec<&Claim> = ledger.all().iter().collect();
        let verdicts = ledger.judge(&all, &ledger.evidence(Vec::new()));
        for line in table(&verdicts, 80).lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        for (claim, verdict) in ledger.all().iter().zip(&verdicts) {
            let text = in_full(claim, verdict, 80);
            assert!(text.contains(&claim.id) && text.contains("Refutes"));
        }
    }
}
