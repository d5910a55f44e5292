//! The subject `exchange` in a build without the cargo feature `exchange`. Every plan is refused.

use crate::sets::FileSets;
use ioloom_lab::ChildAnswer;
use ioloom_lab::subject::{Sets, Subject, Touches};
use ioloom_model::record::RunOrder;
use ioloom_model::{AnyPlan, Compute, Doubt, FileSetRealised, Measured};
use std::path::Path;

const REFUSAL: &str = "this build lacks the exchange; rebuild with the cargo feature `exchange`";

/// Refuses the plans of the stock exchange.
#[derive(Debug, Clone, Copy, Default)]
pub struct Exchange;

impl Subject for Exchange {
    fn name(&self) -> &str {
        "exchange"
    }

    fn sets(&self) -> &dyn Sets {
        &FileSets
    }

    fn touches(&self) -> Touches {
        Touches::Nothing
    }

    fn unavailable(&self) -> Option<&'static str> {
        Some(REFUSAL)
    }

    fn explain(&self, _: &AnyPlan) -> Result<String, String> {
        Err(REFUSAL.to_owned())
    }

    fn probe(&self, _: &AnyPlan, _: &Compute, _: &Path) -> Result<(), String> {
        Err(REFUSAL.to_owned())
    }

    fn run(&self, _: &RunOrder) -> ChildAnswer {
        Err(REFUSAL.to_owned()).into()
    }

    fn verify(&self, _: &RunOrder, _: &FileSetRealised, _: &Measured) -> Vec<Doubt> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use crate::named;

    #[test]
    fn a_plan_is_refused_because_the_build_lacks_the_exchange() {
        let subject = named("exchange").unwrap();
        let plan = "exchange:cell/model=select".parse().unwrap();
        let refusal = subject.explain(&plan).unwrap_err();
        assert_eq!(subject.unavailable(), Some(refusal.as_str()));
        assert!(refusal.contains("this build lacks"));
    }
}
