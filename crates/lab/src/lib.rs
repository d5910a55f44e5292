//! Factors to plans, conditions with proof, one process per run, the results store, verdicts.
