//! What the terminal, the page and Markdown say first: the machine, one line per question, the score
//! of the claims.

use crate::advice::{Advice, Doubted, Extent, advice};
use crate::fit::{NAME_MAX, capital, clipped};
use crate::group::Group;
use crate::headline::Piece;
use crate::input::{ClaimRow, Input, Verdict};
use ioloom_model::units::format_size;
use std::collections::BTreeMap;

/// The command that decides more claims.
pub(crate) const VERIFY: &str = "ioloom claims --verify --open";

/// The runs behind the verdicts of a report. Verdicts of all sessions share their error rate among the
/// sessions, so they can differ.
pub(crate) const OF_SESSION: &str =
    "Each verdict is from one session alone; ioloom claims counts all sessions.";

/// Maximum number of doubts in an answer.
const DOUBTS_MAX: usize = 3;

/// The first page of several studies.
#[derive(Debug)]
pub struct FirstPage<'g, 'a> {
    /// The machine in a line.
    pub machine: String,
    /// One line per question.
    pub lines: Vec<Advice<'g, 'a>>,
    /// The score of the claims; empty if there are none.
    pub score: String,
    /// What changed since earlier sessions of the same studies.
    pub since: Vec<&'a str>,
}

impl<'g, 'a> FirstPage<'g, 'a> {
    /// Returns the first page; `None` if no experiment answers a question of users.
    pub fn new(inputs: &'a [Input], groups: &'g [Vec<Group<'a>>]) -> Option<Self> {
        let both = inputs.iter().zip(groups);
        let lines: Vec<_> = both.flat_map(|(input, groups)| advice(input, groups)).collect();
        let first = inputs.first().filter(|_| !lines.is_empty())?;
        let since = inputs.iter().filter_map(|input| input.since.as_deref()).collect();
        Some(Self { machine: machine(first), lines, score: score(inputs), since })
    }
}

/// Describes the machine in a line.
fn machine(input: &Input) -> String {
    let m = &input.machine;
    let model = m.cpu_model.as_deref().unwrap_or("unknown processor");
    let mut words = vec![clipped(model, NAME_MAX)];
    words.push(match m.cpus_usable {
        1 => "1 CPU".to_owned(),
        n => format!("{n} CPUs"),
    });
    words.extend(m.memory_bytes.map(|bytes| format!("{} of memory", format_size(bytes))));
    let medium = input.records.iter().find_map(|r| r.set.medium.as_ref());
    if let Some(medium) = medium.filter(|medium| !medium.file_system.is_empty()) {
        words.push(medium.file_system.clone());
    }
    if m.virtual_machine == Some(true) {
        words.push("virtual machine".to_owned());
    }
    words.join(", ")
}

/// A claim with its study and its index there.
pub(crate) type Judged<'a> = (&'a Input, usize, &'a ClaimRow);

/// Returns each claim once, with its different verdicts. Of the verdicts of several studies, those that
/// runs decided count, otherwise the first one.
pub(crate) fn distinct(inputs: &[Input]) -> Vec<Vec<Judged<'_>>> {
    let mut out: Vec<Vec<Judged<'_>>> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for input in inputs {
        for (index, claim) in input.verdicts.iter().enumerate() {
            let row = (input, index, claim);
            let Some(rows) = known.get(claim.id.as_str()).and_then(|at| out.get_mut(*at)) else {
                known.insert(&claim.id, out.len());
                out.push(vec![row]);
                continue;
            };
            if !claim.verdict.is_reproduced() {
                continue;
            }
            rows.retain(|(.., first)| first.verdict.is_reproduced());
            if rows.iter().all(|(.., first)| first.verdict != claim.verdict) {
                rows.push(row);
            }
        }
    }
    out
}

/// Counts the verdicts. A claim that several studies test is counted once, and one that repeats another
/// is not counted.
fn score(inputs: &[Input]) -> String {
    let mut claims = distinct(inputs);
    claims.retain(|rows| rows.iter().all(|(.., claim)| claim.same_as.is_none()));
    if claims.is_empty() {
        return String::new();
    }
    let all = claims.len();
    claims.retain(|rows| rows.len() == 1);
    let split = all - claims.len();
    let verdicts: Vec<Verdict> =
        claims.into_iter().flatten().map(|(.., claim)| claim.verdict).collect();
    let count = |of: &[Verdict]| verdicts.iter().filter(|v| of.contains(v)).count();
    let reproduced = count(&[Verdict::Confirmed, Verdict::Refuted, Verdict::Scope]) + split;
    let differ = match split {
        0 => String::new(),
        n => format!(", {n} with different verdicts"),
    };
    let open = count(&[Verdict::Undecided]);
    let mut text = format!(
        "{reproduced} of {} published claims reproduced here ({} confirmed, {} refuted, {} limited in \
         scope{differ}), {} only recomputed, {open} undecided, {} not testable here. {OF_SESSION}",
        all,
        count(&[Verdict::Confirmed]),
        count(&[Verdict::Refuted]),
        count(&[Verdict::Scope]),
        count(&[Verdict::Consistent, Verdict::Inconsistent]),
        count(&[Verdict::NotTestableHere]),
    );
    if open > 0 {
        text.push_str(&format!(" To decide more: {VERIFY}"));
    }
    text
}

impl Advice<'_, '_> {
    /// Returns the line with a capital letter, and its doubts.
    pub fn sentence(&self) -> Vec<Piece> {
        let mut pieces = self.pieces();
        if let Some(Piece::Words(first)) = pieces.first_mut() {
            *first = capital(first);
        }
        pieces
    }

    /// Returns the names of its first doubts, separated by commas, with what they concern if that is not
    /// most of the runs, and the number of other doubts.
    pub fn doubt_words(&self) -> String {
        let one = |known: &Doubted| match known.extent {
            Extent::Most => known.doubt.name().to_owned(),
            Extent::Experiment => format!("{} (in its experiment)", known.doubt.name()),
            Extent::Few(runs, all) => format!("{} ({} of {all} runs)", known.doubt.name(), runs.0),
        };
        let mut words: Vec<String> = self.doubts.iter().take(DOUBTS_MAX).map(one).collect();
        let more = self.doubts.len() - words.len();
        words.extend((more > 0).then(|| format!("+{more} more")));
        words.join(", ")
    }
}
