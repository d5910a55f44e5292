//! Built-in claims, and claims parsed from texts supplied by the caller.

use crate::claim::{Claim, LedgerFile};
use crate::contrast::Contrast;
use crate::{ClaimsError, formula};
use std::collections::BTreeSet;
use std::sync::LazyLock;

static LEDGER: LazyLock<Vec<Claim>> = LazyLock::new(|| {
    let files = ioloom_studies::ALL.iter().map(|study| (study.name, study.claims));
    load(files).expect("a test loads the built-in ledger")
});

/// Returns the built-in claims in study order.
pub fn ledger() -> &'static [Claim] {
    &LEDGER
}

/// Parses claims files, each passed as a name for error messages and its text. The caller reads the
/// files; this crate does no input or output.
///
/// # Errors
/// Fails if a text is not a claims file, an identifier is duplicated, a path does not resolve to a
/// published number, or a formula is malformed.
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
                return Err(wrong(format!("two claims have the identifier {}", claim.id)));
            }
            claims.push(claim);
        }
        share_tests(&mut claims).map_err(wrong)?;
    }
    Ok(claims)
}

/// Copies the tests of the original claim to each equivalent claim.
fn share_tests(claims: &mut [Claim]) -> Result<(), String> {
    for at in 0..claims.len() {
        let Some(same) = claims[at].same_as.clone() else { continue };
        let first = claims.iter().find(|claim| claim.id == same && claim.same_as.is_none());
        let Some(first) = first.cloned() else {
            return Err(format!("claim {}: same_as refers to unknown claim {same}", claims[at].id));
        };
        let claim = &mut claims[at];
        (claim.contrasts, claim.notes) = (first.contrasts, first.notes);
        claim.combine = first.combine;
    }
    Ok(())
}

fn check(claim: &Claim) -> Result<(), String> {
    if !claim.id.starts_with(&format!("{:03}-", claim.source)) {
        return Err(format!("its id must start with {:03}-", claim.source));
    }
    if claim.same_as.is_some() && !(claim.contrasts.is_empty() && claim.notes.is_empty()) {
        return Err("a claim with same_as cannot have tests".to_owned());
    }
    if claim.contrasts.is_empty() && claim.same_as.is_none() {
        return Err(
            "it has no contrast; use kind = \"untested\" and state what a test needs".to_owned()
        );
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
    contrast.as_kind().check()
}
