//! How many blocks and minutes each open claim needs, from the noise of stored runs.
//!
//! A claim needs the blocks of its most demanding undecided contrast, and the runs of all its arms in
//! each of them. Claims are listed from cheap to expensive. The sum counts an arm that several claims
//! share once.

use super::bench::Bench;
use super::plan::{Candidates, Price};
use crate::exit::{Ended, Exit, Failure};
use crate::out::{self, wrap};
use comfy_table::{ColumnConstraint, Width};
use ioloom_claims::power::{self, Need, Source, Stored};
use ioloom_claims::{Claim, ClaimVerdict, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// Version of the document.
const SCHEMA: u32 = 1;

/// What a claim needs.
#[derive(Debug, Serialize)]
struct ClaimNeed {
    id: String,
    /// The undecided contrasts.
    contrasts: Vec<Need>,
    /// Blocks of the most demanding contrast; `None` if one needs more or it is not known.
    blocks: Option<u32>,
    /// Why no run here can decide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// Seconds of one block of its arms alone.
    block_s: Option<f64>,
    /// Seconds to make its file sets.
    sets_s: Option<f64>,
    /// Minutes of its blocks and file sets.
    minutes: Option<f64>,
    /// Minutes of this claim and all cheaper ones, with shared arms.
    minutes_so_far: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Document {
    schema: u32,
    power: f64,
    /// Typical noise of each study.
    noise: BTreeMap<String, f64>,
    claims: Vec<ClaimNeed>,
}

/// Prints what the claims need.
pub(super) fn report(bench: &Bench<'_>, verdicts: &[ClaimVerdict], json: bool) -> Ended {
    let evidence = bench.request.evidence;
    let stored = Stored {
        records: &evidence.records,
        sequential: &evidence.sequential,
        machine: &bench.machine.fingerprint,
    };
    let noise = power::noise_of_studies(stored.records);
    let candidates = Candidates::of(bench, &bench.request.claims, &BTreeMap::new())?.priced()?;
    let mut claims: Vec<ClaimNeed> = bench
        .request
        .claims
        .iter()
        .map(|claim| need(claim, stored, verdicts, &noise, &candidates))
        .collect();
    let minutes = |claim: &ClaimNeed| claim.minutes.unwrap_or(f64::INFINITY);
    claims.sort_by(|a, b| minutes(a).total_cmp(&minutes(b)).then_with(|| a.id.cmp(&b.id)));
    add_sums(&mut claims, &candidates)?;
    let printed = if json {
        out::print_json(&Document { schema: SCHEMA, power: power::POWER, noise, claims })
    } else {
        out::print(&table(&claims, &noise, out::columns()))
    };
    out::then(printed, Ok(Exit::Ok))
}

fn need(
    claim: &Claim,
    stored: Stored<'_>,
    verdicts: &[ClaimVerdict],
    noise: &BTreeMap<String, f64>,
    candidates: &Candidates<'_>,
) -> ClaimNeed {
    let parts = verdicts.iter().find(|v| v.id == claim.id).map_or(&[][..], |v| &v.parts);
    let open = |at: usize| parts.get(at).is_none_or(|part| part.verdict == Verdict::Undecided);
    let tests = claim.contrasts.iter().enumerate().filter(|(at, _)| open(*at));
    let contrasts: Vec<Need> =
        tests.filter_map(|(_, test)| power::need(test, stored, noise)).collect();
    let all: Option<Vec<u32>> = contrasts.iter().map(|need| need.blocks).collect();
    let blocks = all.and_then(|all| all.into_iter().max());
    let mut need = ClaimNeed {
        id: claim.id.clone(),
        contrasts,
        blocks,
        left_out: candidates.left_out(&claim.id),
        block_s: None,
        sets_s: None,
        minutes: None,
        minutes_so_far: None,
    };
    if let Some(Price { block_s, sets_s }) = candidates.price(&claim.id) {
        need.block_s = Some(block_s);
        need.sets_s = Some(sets_s);
        need.minutes = blocks.map(|blocks| (sets_s + block_s * f64::from(blocks)) / 60.0);
    }
    need
}

/// Adds up the minutes of the claims with a known number of blocks. A session runs the arms of a claim
/// only as long as the claim is open.
fn add_sums(claims: &mut [ClaimNeed], candidates: &Candidates<'_>) -> Result<(), Failure> {
    let mut joined: Vec<(String, u32)> = Vec::new();
    for claim in claims {
        let Some(blocks) = claim.blocks.filter(|_| claim.minutes.is_some()) else { continue };
        joined.push((claim.id.clone(), blocks));
        claim.minutes_so_far = Some(candidates.seconds(&joined)? / 60.0);
    }
    Ok(())
}

fn table(claims: &[ClaimNeed], noise: &BTreeMap<String, f64>, width: usize) -> String {
    let mut table = out::table(width);
    table.set_header(["claim", "blocks", "minutes", "sum", "noise and effect"]);
    for claim in claims {
        let minutes = |value: Option<f64>| value.map_or("–".to_owned(), |m| format!("{m:.1}"));
        let blocks = claim.blocks.map_or("–".to_owned(), |blocks| blocks.to_string());
        let cost = match (claim.minutes, claim.block_s) {
            (None, Some(block_s)) => format!("{:.1}/block", block_s / 60.0),
            (known, _) => minutes(known),
        };
        let text = match &claim.left_out {
            Some(reason) => format!("left out, {reason}"),
            None => claim.contrasts.iter().map(words).collect::<Vec<_>>().join("\n"),
        };
        table.add_row([claim.id.clone(), blocks, cost, minutes(claim.minutes_so_far), text]);
    }
    let fixed = |columns| ColumnConstraint::Absolute(Width::Fixed(columns));
    table.set_constraints([fixed(10), fixed(8), fixed(11), fixed(8)]);
    let mut text = out::table_text(&table);
    text.push('\n');
    for line in footer(claims, noise) {
        text.push_str(&wrap(&line, width, 0));
    }
    text
}

/// Describes noise and effect of a contrast.
fn words(need: &Need) -> String {
    let noise = match (need.noise, need.noise_from) {
        (Some(noise), Source::Runs) => format!("noise {noise:.3} in {} blocks", need.seen),
        (Some(noise), _) => format!("too few blocks; noise of the study {noise:.3}"),
        (None, _) => "too few blocks, noise unknown".to_owned(),
    };
    let effect = match (need.effect, need.effect_from) {
        (Some(effect), Source::Runs) => format!("{} {effect:.3} seen", need.effect_is),
        (Some(effect), _) => format!("{effect:.3} published"),
        (None, _) => "effect unknown".to_owned(),
    };
    let needs = match (need.blocks, need.power.last_key_value()) {
        (Some(blocks), Some((_, power))) => format!("{blocks} blocks ({:.0} %)", power * 100.0),
        (Some(blocks), None) => format!("{blocks} blocks"),
        (None, Some((blocks, power))) => {
            format!("more than {blocks} blocks (power there {:.0} %)", power * 100.0)
        }
        (None, None) => "blocks unknown".to_owned(),
    };
    format!("{noise}, {effect}: {needs}")
}

fn footer(claims: &[ClaimNeed], noise: &BTreeMap<String, f64>) -> Vec<String> {
    let count = |of: &dyn Fn(&ClaimNeed) -> bool| claims.iter().filter(|c| of(c)).count();
    let known = count(&|c| c.minutes.is_some());
    let sum = claims.iter().filter_map(|c| c.minutes_so_far).next_back().unwrap_or(0.0);
    let left_out = count(&|c| c.left_out.is_some());
    let futile = count(&|c| {
        let more = |n: &Need| n.blocks.is_none() && !n.power.is_empty();
        c.left_out.is_none() && c.contrasts.iter().any(more)
    });
    let unknown = claims.len() - known - left_out - futile;
    let noise: Vec<String> =
        noise.iter().map(|(study, noise)| format!("{study} {noise:.3}")).collect();
    vec![
        format!(
            "{} open claims: {known} need a known number of blocks ({sum:.0} minutes in all), \
             {futile} more than {} blocks, {unknown} an unknown number, {left_out} are left out.",
            claims.len(),
            power::BLOCKS[power::BLOCKS.len() - 1],
        ),
        format!(
            "Blocks for a power of {:.0} %, after all corrections. Noise: standard deviation between \
             blocks; of a ratio, of its logarithm. Typical noise of two runs of one plan: {}.",
            power::POWER * 100.0,
            if noise.is_empty() { "unknown".to_owned() } else { noise.join(", ") },
        ),
    ]
}
