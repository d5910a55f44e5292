//! Combines the results of all contrasts of a claim into one verdict and one sentence.
//!
//! Every contrast decides: a claim with one undecided contrast is undecided, whatever the others
//! show, unless one that failed refutes it, or one that holds is enough. Contrasts that recompute
//! published numbers are companions of those that measure. If a claim has both, only runs confirm
//! it; but published numbers that contradict the statement keep it from being confirmed. A claim
//! without any measured contrast is only recomputed.

use crate::claim::Combine;
use crate::verdict::Part;
use ioloom_model::Verdict;

/// The result of one contrast of a claim.
pub(crate) struct Judged {
    pub(crate) part: Part,
    /// Whether it is undecided for lack of stored runs.
    pub(crate) without_runs: bool,
    /// Whether it recomputes published numbers.
    pub(crate) recomputed: bool,
}

/// Returns the verdict, the indices of the contrasts that decided it, and the sentence.
pub(crate) fn combine(judged: &[Judged], how: Combine) -> (Verdict, Vec<usize>, String) {
    let (verdict, deciding) = decide(judged, how);
    let sentence = sentence(judged, &deciding);
    (verdict, deciding, sentence)
}

fn decide(judged: &[Judged], how: Combine) -> (Verdict, Vec<usize>) {
    let part = |i: &usize| &judged[*i].part;
    let which = |wanted: &dyn Fn(&Judged) -> bool| -> Vec<usize> {
        (0..judged.len()).filter(|i| wanted(&judged[*i])).collect()
    };
    let measured = |holds: Option<bool>| which(&|j| !j.recomputed && j.part.holds == holds);
    let (held, failed) = (measured(Some(true)), measured(Some(false)));
    let contradicted = which(&|j| j.recomputed && j.part.holds == Some(false));
    let here = |i: &usize| part(i).verdict != Verdict::NotTestableHere;
    let (open, absent): (Vec<usize>, Vec<usize>) = measured(None).into_iter().partition(here);
    let limited = |of: &[usize]| of.iter().any(|i| part(i).verdict == Verdict::Scope);
    let unlimited = |of: &[usize]| of.iter().any(|i| part(i).verdict != Verdict::Scope);
    if judged.iter().all(|j| j.recomputed) {
        return match contradicted.is_empty() {
            true => (Verdict::Consistent, which(&|_| true)),
            false => (Verdict::Inconsistent, contradicted),
        };
    }
    match how {
        Combine::All if !failed.is_empty() => {
            (if unlimited(&failed) { Verdict::Refuted } else { Verdict::Scope }, failed)
        }
        Combine::All if !contradicted.is_empty() => (Verdict::Inconsistent, contradicted),
        Combine::Any if !held.is_empty() => {
            let whole = contradicted.is_empty() && unlimited(&held);
            (if whole { Verdict::Confirmed } else { Verdict::Scope }, held)
        }
        Combine::Places | Combine::Any
            if held.is_empty() && failed.is_empty() && !contradicted.is_empty() =>
        {
            (Verdict::Inconsistent, contradicted)
        }
        _ if !open.is_empty() => (Verdict::Undecided, open),
        Combine::All | Combine::Any if !absent.is_empty() => (Verdict::NotTestableHere, absent),
        Combine::All => (if limited(&held) { Verdict::Scope } else { Verdict::Confirmed }, held),
        Combine::Places if held.is_empty() && failed.is_empty() => {
            (Verdict::NotTestableHere, absent)
        }
        Combine::Places | Combine::Any if held.is_empty() => {
            (if limited(&failed) { Verdict::Scope } else { Verdict::Refuted }, failed)
        }
        Combine::Places | Combine::Any => {
            let whole = failed.is_empty() && contradicted.is_empty() && absent.is_empty();
            let verdict =
                if whole && !limited(&held) { Verdict::Confirmed } else { Verdict::Scope };
            let mut deciding = [held, failed, contradicted].concat();
            deciding.sort_unstable();
            (verdict, deciding)
        }
    }
}

/// Returns the sentences of the deciding contrasts and the number of others. Of several contrasts
/// without runs, only the first is given in full, and only if it comes first.
fn sentence(judged: &[Judged], deciding: &[usize]) -> String {
    let mut sentences = Vec::new();
    let mut without_runs = 0;
    for Judged { part, without_runs: no_runs, .. } in deciding.iter().map(|i| &judged[*i]) {
        let words = words(part);
        if *no_runs && !sentences.is_empty() {
            without_runs += 1;
        } else if !sentences.contains(&words) {
            sentences.push(words);
        }
    }
    if without_runs > 0 {
        sentences.push(format!("{without_runs} more contrasts have no stored runs"));
    }
    let rest = |holds: Option<bool>| {
        let other = |i: &usize| !deciding.contains(i) && judged[*i].part.holds == holds;
        (0..judged.len()).filter(other).count()
    };
    let others = judged.len() - deciding.len();
    for (holds, one, several) in [
        (Some(true), "holds", "hold"),
        (Some(false), "does not hold", "do not hold"),
        (None, "is undecided", "are undecided"),
    ] {
        match (rest(holds), others) {
            (0, _) => {}
            (_, 1) => sentences.push(format!("the other contrast {one}")),
            (count, _) if count == others => {
                sentences.push(format!("the other {others} contrasts {several}"));
            }
            (1, _) => sentences.push(format!("1 of the other {others} contrasts {one}")),
            (count, _) => {
                sentences.push(format!("{count} of the other {others} contrasts {several}"));
            }
        }
    }
    sentences.join("; ")
}

fn words(part: &Part) -> String {
    match part.holds {
        None => part.sentence.clone(),
        Some(true) => format!("holds at {}: {}", part.place, part.sentence),
        Some(false) => format!("does not hold at {}: {}", part.place, part.sentence),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Evidence;

    fn contrast(holds: Option<bool>, recomputed: bool, sentence: &str) -> Judged {
        let verdict = match holds {
            None => Verdict::Undecided,
            Some(true) => Verdict::Confirmed,
            Some(false) => Verdict::Refuted,
        };
        let part = Part {
            kind: "ratio".to_owned(),
            place: "a place".to_owned(),
            verdict,
            holds,
            sentence: sentence.to_owned(),
            note: false,
            p: None,
            p_adjusted: None,
            published_size: None,
            agreement: None,
            apart: Vec::new(),
            evidence: Evidence::default(),
            doubts: Vec::new(),
        };
        Judged { part, without_runs: false, recomputed }
    }

    #[test]
    fn contrasts_that_do_not_decide_are_counted_among_the_others() {
        let yes = |recomputed| contrast(Some(true), recomputed, "yes");
        let sentence = |all: &[Judged]| combine(all, Combine::All).2;
        assert_eq!(
            sentence(&[yes(false), yes(false), yes(true)]),
            "holds at a place: yes; the other contrast holds"
        );
        assert_eq!(
            sentence(&[yes(false), yes(true), yes(true)]),
            "holds at a place: yes; the other 2 contrasts hold"
        );
        let no = contrast(Some(false), false, "no");
        let open = contrast(None, false, "open");
        assert_eq!(
            sentence(&[no, yes(false), yes(true), open]),
            "does not hold at a place: no; 2 of the other 3 contrasts hold; 1 of the other 3 \
             contrasts is undecided"
        );
    }
}
