//! The ledger: the built-in claims, or those of texts that the caller has read.

use crate::claim::{Claim, Contrast, LedgerFile};
use crate::{ClaimsError, data, formula};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static LEDGER: LazyLock<Vec<Claim>> = LazyLock::new(|| {
    let files = ioloom_studies::ALL.iter().map(|study| (study.name, study.claims));
    load(files).expect("a test loads the built-in ledger")
});

/// The built-in claims in the order of the studies.
pub fn ledger() -> &'static [Claim] {
    &LEDGER
}

/// Reads ledger files, each a name for errors and its text. The caller reads the files; this crate
/// does no input or output.
///
/// # Errors
/// A text that is no ledger, an identifier that occurs twice, a path to a published number that
/// leads nowhere, or a malformed formula.
pub fn load<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Result<Vec<Claim>, ClaimsError> {
    let mut claims = Vec::new();
    let mut ids = BTreeSet::new();
    for (name, text) in files {
        let wrong = |reason: String| ClaimsError::Ledger { file: name.to_owned(), reason };
        let file: LedgerFile = toml::from_str(text).map_err(|e| wrong(e.to_string()))?;
        for claim in file.claims {
            check(&claim).map_err(|reason| wrong(format!("claim {}: {reason}", claim.id)))?;
            if !ids.insert(claim.id.clone()) {
                return Err(wrong(format!("two claims are named {}", claim.id)));
            }
            claims.push(claim);
        }
        share_tests(&mut claims).map_err(wrong)?;
    }
    Ok(claims)
}

/// Gives claims that say the same as another one its tests.
fn share_tests(claims: &mut [Claim]) -> Result<(), String> {
    for at in 0..claims.len() {
        let Some(same) = claims[at].same_as.clone() else { continue };
        let first = claims.iter().find(|claim| claim.id == same && claim.same_as.is_none());
        let Some(first) = first.cloned() else {
            return Err(format!(
                "claim {}: there is no claim {same} to be the same as",
                claims[at].id
            ));
        };
        let claim = &mut claims[at];
        (claim.contrasts, claim.notes) = (first.contrasts, first.notes);
        claim.combine = first.combine;
    }
    Ok(())
}

fn check(claim: &Claim) -> Result<(), String> {
    if !claim.id.starts_with(&format!("{:03}-", claim.seed)) {
        return Err(format!("its name must begin with {:03}-", claim.seed));
    }
    if claim.same_as.is_some() && !(claim.contrasts.is_empty() && claim.notes.is_empty()) {
        return Err("it says the same as another one and has tests of its own".to_owned());
    }
    if claim.contrasts.is_empty() && claim.same_as.is_none() {
        return Err("it has no contrast; use kind = \"untested\" and say what it needs".to_owned());
    }
    for published in &claim.published {
        published.value().map_err(|e| e.to_string())?;
    }
    for contrast in claim.contrasts.iter().chain(&claim.notes) {
        check_contrast(contrast)?;
    }
    Ok(())
}

fn check_contrast(contrast: &Contrast) -> Result<(), String> {
    for metric in contrast.metrics() {
        formula::evaluate(metric, |_| Some(1.0)).map_err(|e| e.to_string())?;
    }
    match contrast {
        Contrast::Published { values, formula, within, .. } => {
            for path in values.values() {
                data::number(path).map_err(|e| e.to_string())?;
            }
            formula::evaluate(formula, |name| values.get(name).map(|_| 1.0))
                .map_err(|e| e.to_string())?;
            ordered(within)
        }
        Contrast::Ladder { shape, within, levels, .. } => {
            use crate::claim::Shape::{Knee, Lowest};
            if matches!(shape, Knee | Lowest) != within.is_some() {
                return Err("within goes with the shapes knee and lowest, and they need it".into());
            }
            within.iter().chain(levels).try_for_each(ordered)
        }
        Contrast::Gain { levels, .. } => ordered(levels),
        Contrast::Curve { within, .. } => ordered(within),
        Contrast::Ratio { times: Some(times), claim, .. } => {
            if *times > 1.0 && *claim != ioloom_stats::Claimed::Equal {
                Ok(())
            } else {
                Err("times is above 1 and goes with less or greater".to_owned())
            }
        }
        _ => Ok(()),
    }
}

fn ordered(range: &[f64; 2]) -> Result<(), String> {
    if range[0] <= range[1] { Ok(()) } else { Err(format!("{range:?} is upside down")) }
}
