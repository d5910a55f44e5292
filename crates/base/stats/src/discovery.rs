//! Many tests at once: the false discovery rate.
//!
//! Three hundred contrasts at the 5 % level give fifteen false verdicts if none of the effects
//! exists. The procedure of Benjamini and Hochberg (1995) keeps the expected share of false results
//! among the decided ones below a given rate: of `m` ascending p-values, the largest `k` with
//! `p(k) <= k/m rate` and all smaller ones are decided.
//!
//! It holds for independent tests and for those with positive dependence (Benjamini and Yekutieli,
//! 2001). Contrasts of one session share arms and blocks. Two contrasts with the same baseline are
//! positively dependent; an arm that is the baseline of one contrast and the numerator of another
//! makes them negatively dependent, which the theorem does not cover. A seeded simulation with
//! shared arms of both kinds stays below the rate.

/// Returns the smallest rate at which each test is decided: the adjusted p-value, in input order.
/// A value that is not a probability counts as 1.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let proper = |p: f64| if (0.0..=1.0).contains(&p) { p } else { 1.0 };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|i, j| proper(p[*i]).total_cmp(&proper(p[*j])));
    let mut adjusted = vec![1.0; p.len()];
    let mut least = 1.0_f64;
    for (rank, at) in order.iter().enumerate().rev() {
        least = least.min(proper(p[*at]) * p.len() as f64 / (rank + 1) as f64);
        adjusted[*at] = least;
    }
    adjusted
}

/// Returns the maximum expected number of false results among `decided` at this rate.
pub fn expected_false(decided: usize, rate: f64) -> f64 {
    decided as f64 * rate
}
