//! The time that threads on this machine waited for a processor.

use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc;
use std::path::Path;

/// Fraction of time spent waiting above which two-processor measurements are meaningless.
pub(crate) const BUSY_MAX: f64 = 0.10;

/// Pressure stall information: the time during which at least one thread waited for a processor.
#[derive(Debug)]
pub(crate) struct CpuWait {
    started_ns: u64,
    waited_us: Option<u64>,
}

impl CpuWait {
    pub(crate) fn start() -> Self {
        Self { started_ns: monotonic_ns(), waited_us: waited_us() }
    }

    /// Returns the fraction of time since the start; `None` if the kernel does not report it.
    pub(crate) fn share(&self) -> Option<f64> {
        let waited = waited_us()?.checked_sub(self.waited_us?)?;
        Some(waited as f64 * 1e3 / (monotonic_ns() - self.started_ns).max(1) as f64)
    }
}

fn waited_us() -> Option<u64> {
    total_us(&proc::read_text(Path::new("/proc/pressure/cpu")).ok()?)
}

fn total_us(pressure: &str) -> Option<u64> {
    let some = pressure.lines().find(|line| line.starts_with("some"))?;
    some.split_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_from_the_some_line() {
        let text = "some avg10=1.00 avg60=0.5 avg300=0.1 total=12345\nfull avg10=0 total=9\n";
        assert_eq!(total_us(text), Some(12345));
        assert_eq!(total_us("full total=3"), None);
    }
}
