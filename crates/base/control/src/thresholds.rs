//! The numbers by which `Auto` decides. They were chosen on the simulated scenarios for design
//! (`docs/decisions/031.md`); most results hardly depend on any one of them.

/// Window of a run without prior knowledge; today's default plan.
pub(crate) const START: u32 = 512;
/// Latency for which the start window of a capped device suffices, and the smallest such window.
pub(crate) const CAPPED_S: f64 = 0.02;
pub(crate) const CAPPED_LEAST: u32 = 8;
/// Share of throughput that a smaller window may lose.
pub(crate) const TOLERANCE: f64 = 0.005;
/// The same for a polite run.
pub(crate) const TOLERANCE_POLITE: f64 = 0.05;
/// Idle share of worker time below which more requests cannot help.
pub(crate) const IDLE_LEAST: f64 = 0.05;
/// Idle share at which workers that were busy are starved.
pub(crate) const STARVED: f64 = 0.15;
/// Share of a batch in which something else than the window may be the limit.
pub(crate) const OTHER_LIMIT: f64 = 0.2;
/// Share of the predicted remaining time that one trial may lose in the worst case.
pub(crate) const BUDGET: f64 = 0.01;
/// Chance that a quarter is insufficient although a larger step lost nothing.
pub(crate) const CHANCE: f64 = 0.5;
/// Room above the likely window when it is tried at once, and the smallest window tried so.
pub(crate) const JUMP_ROOM: f64 = 2.0;
pub(crate) const JUMP_LEAST: u32 = 8;
/// Share of the whole time that all trials may lose.
pub(crate) const BUDGET_ALL: f64 = 0.02;
/// Requests and nanoseconds of one sample.
pub(crate) const SAMPLE_REQUESTS: f64 = 16.0;
/// Requests expected in a sample that ends early because less than half of them completed.
pub(crate) const EXPECTED: f64 = 24.0;
pub(crate) const SAMPLE_NS: f64 = 4e6;
pub(crate) const SAMPLE_NS_MAX: f64 = 2.5e7;
/// Samples before a first trial, before a trial succeeds, and at which it ends in any case.
pub(crate) const REFERENCE_SAMPLES: u32 = 4;
pub(crate) const REFERENCE_ERROR: f64 = 0.006;
pub(crate) const REFERENCE_ERROR_FIRST: f64 = 0.04;
pub(crate) const TRIAL_SAMPLES: u32 = 8;
pub(crate) const TRIAL_SAMPLES_MAX: u32 = 40;
/// Loss at which two samples are enough to end a trial.
pub(crate) const CLEAR_LOSS: f64 = 0.25;
/// Error at which a comparison that found no loss is believed at its end.
pub(crate) const END_ERROR: f64 = 0.01;
/// Gain, as a share of that in proportion, below which a larger window took it from a neighbour.
pub(crate) const SHARED: f64 = 0.85;
/// Fall of the rate that no neighbour causes.
pub(crate) const CROWD: f64 = 16.0;
/// Time until a window that was found insufficient is tried again, first and at most.
pub(crate) const AGAIN_NS: u64 = 2_000_000_000;
pub(crate) const AGAIN_NS_MAX: u64 = 128_000_000_000;
/// Standard errors between a loss and the tolerance.
pub(crate) const SURE: f64 = 2.5;
/// Share of the gain in proportion that a larger window must reach after the search has ended, and room
/// above the window at which the device was saturated.
pub(crate) const CLIMB_GAIN: f64 = 0.9;
pub(crate) const FIT_ROOM: f64 = 1.02;
/// Least gain of a larger window.
pub(crate) const GAIN_LEAST: f64 = 0.02;
/// Factor between windows as long as no insufficient one is known.
pub(crate) const STRIDE: u32 = 4;
/// Quotient of the sufficient and the insufficient window at which the search ends.
pub(crate) const CLOSE: f64 = 1.3;
/// Rates that are a change of the device, relative to those before.
pub(crate) const FELL: f64 = 0.6;
pub(crate) const FELL_CLEARLY: f64 = 0.35;
pub(crate) const ROSE: f64 = 1.7;
/// Share of the loss in proportion to the window that shows a window limited by latency.
pub(crate) const PROPORTIONAL: f64 = 0.6;
/// Loss up to which a cut after a fall is kept.
pub(crate) const CUT_LOSS: f64 = 0.1;
/// Gain of a cut that shows that the fall is over, although its reference is a single sample.
pub(crate) const FALL_OVER: f64 = 0.5;
/// Room above the proportional cut after a fall.
pub(crate) const CUT_ROOM: f64 = 1.25;
/// Loss to expect of a window that the latency of the first request suggests to be sufficient.
pub(crate) const LIKELY_LOSS: f64 = 0.1;
/// Growth of the stock of ready files, as a share of the requests, at which the run is filling up.
pub(crate) const FILLING: f64 = 0.1;
/// Share of refused requests that halves the window.
pub(crate) const REFUSED: f64 = 0.1;
/// Share of the window in flight from which the window is the limit.
pub(crate) const LIMITED: f64 = 0.7;
