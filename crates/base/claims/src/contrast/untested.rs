//! A claim that this version cannot test.

use super::kind::{Context, Kind};
use crate::evaluation::finding::Finding;
use crate::evaluation::gap::Gap;
use serde::Deserialize;

/// A claim that this version, or any available machine, cannot test.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Untested {
    /// What a test would require.
    pub needs: String,
}

impl Kind for Untested {
    fn place(&self) -> String {
        "nowhere".to_owned()
    }

    fn evaluate<'a>(&self, _: &Context<'a>) -> Result<Finding<'a>, Gap> {
        Err(Gap::Untested { needs: self.needs.clone() })
    }
}
