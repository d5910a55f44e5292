//! Least squares over positive parameters, by Levenberg and Marquardt.
//!
//! Every parameter is a time, a rate or a share above zero, so the search runs over logarithms: no
//! bounds are needed, and a step of 0.01 is one per cent of any parameter. Derivatives are forward
//! differences. The method is that of Marquardt, "An algorithm for least-squares estimation of
//! nonlinear parameters", 1963. It is written here because a crate for it would bring a matrix
//! library, and the fits have at most 16 parameters.
//!
//! The same input gives the same parameters. Cost: one evaluation of the residuals per parameter and
//! step, at most 80 steps.

use crate::PredictError;
use crate::error::above_zero;

/// Most steps of a fit.
const STEPS_MAX: usize = 80;
/// Most attempts to find a better point in one step.
const TRIES_MAX: usize = 14;
/// Step of the derivatives, in logarithms.
const DIFFERENCE: f64 = 1e-5;

/// A minimum.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    /// The parameters, in the order of the start.
    pub parameters: Vec<f64>,
    /// Standard error of the logarithm of each parameter, from the residuals and their derivatives;
    /// infinite if the residuals do not depend on it, and 0 if nothing is left over to judge by.
    pub errors: Vec<f64>,
    /// Sum of the squared residuals.
    pub sum: f64,
}

/// Minimises the sum of the squared residuals from a start above zero.
///
/// # Errors
/// Fails if a start is not above zero, there are fewer residuals than parameters, or the residuals
/// at the start are not finite.
pub fn fit(start: &[f64], residuals: impl Fn(&[f64]) -> Vec<f64>) -> Result<Fit, PredictError> {
    for value in start {
        above_zero("start of a fit", *value)?;
    }
    let real = |logs: &[f64]| -> Vec<f64> { logs.iter().map(|x| x.exp()).collect() };
    let at = |logs: &[f64]| residuals(&real(logs));
    let mut logs: Vec<f64> = start.iter().map(|x| x.ln()).collect();
    let mut here = at(&logs);
    let mut sum = squares(&here);
    if here.len() < start.len() || !sum.is_finite() {
        return Err(PredictError::OutOfRange {
            what: "number of finite residuals",
            value: here.iter().filter(|r| r.is_finite()).count() as f64,
            accepted: "at least the number of parameters",
        });
    }
    let mut damping = 1e-3;
    for _ in 0..STEPS_MAX {
        let slopes = slopes(&logs, &here, &at);
        let Some(step) = better(&logs, sum, &slopes, &here, &at, &mut damping) else { break };
        let done = sum - step.sum < 1e-13 * sum;
        (logs, here, sum) = (step.logs, step.residuals, step.sum);
        if done {
            break;
        }
    }
    let slopes = slopes(&logs, &here, &at);
    let spare = here.len().saturating_sub(logs.len());
    let variance = if spare == 0 { 0.0 } else { sum / spare as f64 };
    Ok(Fit { parameters: real(&logs), errors: errors(&slopes, variance), sum })
}

struct Step {
    logs: Vec<f64>,
    residuals: Vec<f64>,
    sum: f64,
}

fn squares(all: &[f64]) -> f64 {
    all.iter().map(|r| r * r).sum()
}

/// Returns the derivative of every residual by each parameter.
fn slopes(logs: &[f64], here: &[f64], at: &impl Fn(&[f64]) -> Vec<f64>) -> Vec<Vec<f64>> {
    (0..logs.len())
        .map(|i| {
            let mut moved = logs.to_vec();
            moved[i] += DIFFERENCE;
            at(&moved).iter().zip(here).map(|(a, b)| (a - b) / DIFFERENCE).collect()
        })
        .collect()
}

fn product(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Tries damped steps until one lowers the sum.
fn better(
    logs: &[f64],
    sum: f64,
    slopes: &[Vec<f64>],
    here: &[f64],
    at: &impl Fn(&[f64]) -> Vec<f64>,
    damping: &mut f64,
) -> Option<Step> {
    for _ in 0..TRIES_MAX {
        let matrix = (0..logs.len())
            .map(|i| {
                let mut row: Vec<f64> =
                    slopes.iter().map(|other| product(&slopes[i], other)).collect();
                row[i] += *damping * (row[i] + 1e-9);
                row.push(-product(&slopes[i], here));
                row
            })
            .collect();
        if let Some(step) = solve(matrix) {
            // A factor of e at most, so that a flat direction does not leave the range of floats.
            let moved: Vec<f64> =
                logs.iter().zip(step).map(|(x, d)| x + d.clamp(-1.0, 1.0)).collect();
            let residuals = at(&moved);
            let found = squares(&residuals);
            if found < sum {
                *damping = (*damping / 5.0).max(1e-9);
                return Some(Step { logs: moved, residuals, sum: found });
            }
        }
        *damping *= 4.0;
    }
    None
}

/// Returns the standard errors: roots of the diagonal of the inverse, times the variance.
fn errors(slopes: &[Vec<f64>], variance: f64) -> Vec<f64> {
    (0..slopes.len())
        .map(|i| {
            let matrix = (0..slopes.len())
                .map(|row| {
                    let mut line: Vec<f64> =
                        slopes.iter().map(|other| product(&slopes[row], other)).collect();
                    line.push(if row == i { 1.0 } else { 0.0 });
                    line
                })
                .collect();
            solve(matrix).map_or(f64::INFINITY, |column| (column[i].max(0.0) * variance).sqrt())
        })
        .collect()
}

/// Solves by Gaussian elimination with partial pivoting; the last column is the right-hand side.
/// Returns `None` if the matrix is singular.
pub(crate) fn solve(mut m: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let size = m.len();
    for at in 0..size {
        let pivot = (at..size).max_by(|a, b| m[*a][at].abs().total_cmp(&m[*b][at].abs()))?;
        m.swap(at, pivot);
        if m[at][at].abs() < 1e-300 {
            return None;
        }
        let upper = m[at].clone();
        for row in m.iter_mut().skip(at + 1) {
            let factor = row[at] / upper[at];
            for (value, above) in row.iter_mut().zip(&upper).skip(at) {
                *value -= factor * above;
            }
        }
    }
    let mut out = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|j| m[at][j] * out[j]).sum();
        out[at] = (m[at][size] - known) / m[at][at];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_of_exact_data_are_found() {
        let truth = |x: f64| 3.0 * (-0.5 * x).exp() + 0.2;
        let found = fit(&[1.0, 1.0, 1.0], |p| {
            (0..9).map(f64::from).map(|x| p[0] * (-p[1] * x).exp() + p[2] - truth(x)).collect()
        })
        .unwrap();
        for (found, truth) in found.parameters.iter().zip([3.0, 0.5, 0.2]) {
            assert!((found / truth - 1.0).abs() < 1e-5, "{found} for {truth}");
        }
        assert!(found.sum < 1e-12, "{}", found.sum);
    }

    #[test]
    fn the_standard_error_is_that_of_a_mean() {
        // ln p fits the mean of four logarithms; its error is sd / sqrt(4).
        let logs = [0.1f64, -0.1, 0.3, -0.3];
        let found = fit(&[2.0], |p| logs.iter().map(|x| p[0].ln() - x).collect()).unwrap();
        assert!((found.parameters[0] - 1.0).abs() < 1e-6, "{found:?}");
        let variance: f64 = logs.iter().map(|x| x * x).sum::<f64>() / 3.0;
        assert!((found.errors[0] - (variance / 4.0).sqrt()).abs() < 1e-6, "{found:?}");
    }

    #[test]
    fn a_parameter_without_effect_has_an_unbounded_error() {
        let found = fit(&[2.0, 1.0], |p| vec![p[0].ln() - 1.0, p[0].ln(), 0.5]).unwrap();
        assert_eq!(found.errors[1], f64::INFINITY);
        assert!(fit(&[-1.0], |_| vec![0.0]).is_err());
        assert!(fit(&[1.0], |_| vec![]).is_err());
    }
}
