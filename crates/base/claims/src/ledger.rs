//! Built-in claims, and claims parsed from texts supplied by the caller.

use crate::claim::{Claim, LedgerFile, Test};
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
        let definitions = definitions(text);
        for (mut claim, (definition, earlier)) in file.claims.into_iter().zip(definitions) {
            (claim.definition, claim.earlier_definitions) = (definition, earlier);
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
        claim.caveat = first.caveat;
        (claim.definition, claim.earlier_definitions) =
            (first.definition, first.earlier_definitions);
    }
    Ok(())
}

/// Keys of a contrast that are only words.
const WORDS: [&str; 3] = ["says", "reason", "no_size"];

/// Version of the rule by which contrasts are judged. A verdict by another rule than the one that was in force
/// before the first run is not one of a test that was fixed.
const RULE_VERSION: u32 = 3;

/// Earlier versions of the rule, whose fingerprints sessions contain.
const EARLIER_RULES: [u32; 1] = [2];

/// Returns the fingerprint of each claim of a valid claims file, and those under the earlier versions of the rule:
/// contrasts, how they combine, the hardware, and the rule. Comments, notes, the order of keys and all texts are
/// ignored.
fn definitions(text: &str) -> Vec<(String, Vec<String>)> {
    let file: toml::Table = toml::from_str(text).unwrap_or_default();
    let claims = file.get("claim").and_then(toml::Value::as_array).cloned().unwrap_or_default();
    let definition = |mut claim: toml::Value| {
        let mut tests = claim.get_mut("contrast").cloned().unwrap_or(toml::Value::Array(vec![]));
        for test in tests.as_array_mut().into_iter().flatten() {
            if let Some(test) = test.as_table_mut() {
                WORDS.iter().for_each(|key| drop(test.remove(*key)));
            }
        }
        let combine = claim.get("combine").map_or("places", |c| c.as_str().unwrap_or_default());
        let hardware = claim.get("hardware").map(ToString::to_string).unwrap_or_default();
        let by =
            |rule: u32| format!("{:016x}", fnv1a(&format!("{rule} {combine} {hardware} {tests}")));
        (by(RULE_VERSION), EARLIER_RULES.map(by).to_vec())
    };
    claims.into_iter().map(definition).collect()
}

/// Returns the 64-bit FNV-1a hash of a text.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
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
    claim.contrasts.iter().chain(&claim.notes).try_for_each(check_contrast)
}

fn check_contrast(contrast: &Test) -> Result<(), String> {
    if contrast.size.is_some() && contrast.no_size.is_some() {
        return Err("a contrast has either size or no_size".to_owned());
    }
    contrast.published_size().map_err(|e| e.to_string())?;
    for metric in contrast.metrics() {
        formula::evaluate(metric, |_| Some(1.0)).map_err(|e| e.to_string())?;
    }
    contrast.as_kind().check()
}
