//! What limited the run.

use super::finding::Finding;
use crate::lane::Trace;

/// The word of a run whose limit is unknown.
const UNKNOWN: &str = "unknown";

/// Returns the limit that the measurements of the run report.
pub(super) fn limit(trace: &Trace) -> Option<Finding> {
    let limit = trace.limit.as_ref()?;
    let known = limit.word != UNKNOWN;
    let title = match (known, &limit.close) {
        (true, Some(close)) => format!("Limited by {}, closely followed by {close}", limit.word),
        (true, None) => format!("Limited by {}", limit.word),
        (false, _) => "The limit of the run is unknown".to_owned(),
    };
    // The advice follows the last colon.
    let advice = limit.sentence.rsplit_once(": ").filter(|_| known);
    let (sentence, advice) = advice.unwrap_or((&limit.sentence, "Trace a longer run."));
    let mut shares: Vec<_> = limit.shares.iter().collect();
    shares.sort_by_key(|(_, percent)| std::cmp::Reverse(**percent));
    Some(Finding {
        id: "limit".to_owned(),
        title,
        sentence: as_sentence(sentence),
        evidence: shares.into_iter().map(|(word, p)| (word.clone(), format!("{p} %"))).collect(),
        try_this: as_sentence(advice),
    })
}

/// Returns a clause with a capital letter and a full stop.
fn as_sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let end = if clause.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", letters.as_str())
}
