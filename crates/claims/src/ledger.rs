//! The ledger: the built-in claims, or those of texts that the caller has read.

use crate::claim::{Claim, Contrast, LedgerFile};
use crate::{ClaimsError, data, formula};
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Name and text of the built-in ledger files.
pub const FILES: &[(&str, &str)] = &[("000.toml", include_str!("../../../claims/000.toml"))];

static LEDGER: LazyLock<Vec<Claim>> =
    LazyLock::new(|| load(FILES.iter().copied()).expect("a test loads the built-in ledger"));

/// The built-in claims in the order of their files.
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
    }
    Ok(claims)
}

fn check(claim: &Claim) -> Result<(), String> {
    if !claim.id.starts_with(&format!("{:03}-", claim.seed)) {
        return Err(format!("its name must begin with {:03}-", claim.seed));
    }
    if claim.contrasts.is_empty() {
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
