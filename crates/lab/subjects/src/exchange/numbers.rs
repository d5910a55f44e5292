//! The metrics that an exchange run records about the load and the server.
//!
//! All are in `extra`, with the unit last: `request_ns` (the inverse of the rate),
//! `requests_per_s`, `latency_p50_ns` and so on (for a single command, prefixed with its name:
//! `show_latency_p50_ns`), `law_ns` and `law_error_share` (cells), `law_request_ns` (the bound from
//! service times), `server_cpu_per_request_ns`, `server_cores` (CPU time divided by the time over
//! which it was counted), `server_memory_bytes` (proportional set size), `server_peak_bytes`,
//! `server_threads`, `server_switches_per_request`, and for the load generator `load_busy_share`,
//! `load_late_p99_ns` and `load_kept_up`. Server metrics that the kernel does not report are
//! omitted.

use super::host::{ServerUsage, TestServer};
use ioloom_load::{Conservation, Latency, Outcomes};
use ioloom_model::Measured;
use ioloom_observe::Usage;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::proc;

/// Maximum number of differing stocks to report.
const SAMPLES_MAX: usize = 10;

/// Collects the metrics of a run.
pub(super) struct Numbers {
    before: ServerUsage,
    begun_ns: u64,
    usage: Usage,
    requests: u64,
    measured: Measured,
}

impl Numbers {
    /// Starts counting.
    pub(super) fn begin(host: &TestServer) -> Self {
        let before = host.seen();
        Self {
            before,
            begun_ns: monotonic_ns(),
            usage: Usage::now(None),
            requests: 0,
            measured: Measured::default(),
        }
    }

    /// Counts bytes that the server moved as those of the run, not of another program.
    fn own_moved(&mut self, read: u64, written: u64) {
        let m = &mut self.measured;
        for (own, others, bytes) in [
            (&mut m.device_read_bytes, &mut m.others_read_bytes, read),
            (&mut m.device_written_bytes, &mut m.others_written_bytes, written),
        ] {
            *own = own.map(|own| own + bytes);
            *others = others.map(|others| others.saturating_sub(bytes));
        }
        let sum = |a: Option<u64>, b: Option<u64>| Some((a? + b?) as f64);
        let own = sum(m.device_read_bytes, m.device_written_bytes);
        let others = sum(m.others_read_bytes, m.others_written_bytes);
        m.others_device = own
            .zip(others)
            .filter(|(own, others)| own + others > 0.0)
            .map(|(own, others)| others / (own + others));
    }

    /// Stops counting while idle connections are still open.
    pub(super) fn end(&mut self, host: &TestServer, elapsed_ns: u64, requests: u64) {
        assert_eq!(self.requests, 0, "finish was called twice");
        let used = Usage::now(None).since(&self.usage);
        // Usage covers the time from the first to the last list of stocks, not only the measured
        // part of the load.
        let all_ns = monotonic_ns() - self.begun_ns;
        let after = host.seen();
        let cpus = proc::system_stat().map_or(1, |stat| stat.cpus.len().max(1) as u32);
        self.requests = requests;
        self.measured.elapsed_ns = all_ns;
        used.fill(&mut self.measured, cpus);
        self.measured.elapsed_ns = elapsed_ns;
        self.put("requests", requests as f64);
        let cpu_ns = after.cpu_ns.zip(self.before.cpu_ns).map(|(b, a)| b.saturating_sub(a) as f64);
        if let Some(cpu_ns) = cpu_ns {
            self.server_cpu(cpu_ns, all_ns, cpus);
        }
        if let Some((after, before)) = after.moved.zip(self.before.moved) {
            let since = |after: u64, before: u64| after.saturating_sub(before);
            self.own_moved(since(after.0, before.0), since(after.1, before.1));
        }
        for (name, value) in [
            ("server_memory_bytes", after.pss_bytes),
            ("server_peak_bytes", after.peak_bytes),
            ("server_threads", after.threads),
        ] {
            if let Some(value) = value {
                self.put(name, value as f64);
            }
        }
    }

    /// Records the CPU time of the server within `all_ns`.
    fn server_cpu(&mut self, cpu_ns: f64, all_ns: u64, cpus: u32) {
        let cores = cpu_ns / all_ns.max(1) as f64;
        // The server must not count as another program.
        let share = cores / f64::from(cpus.max(1));
        let others = self.measured.others_cpu.map(|others| (others - share).max(0.0));
        self.measured.others_cpu = others;
        self.put("server_cpu_ns", cpu_ns);
        self.put("server_cores", cores);
        self.put("server_cpu_per_request_ns", cpu_ns / self.requests.max(1) as f64);
    }

    /// Records a number.
    pub(super) fn put(&mut self, name: &str, value: f64) {
        if value.is_finite() {
            self.measured.extra.insert(name.to_owned(), value);
        }
    }

    /// Records the bytes of all answers if every run of a plan does the same work.
    pub(super) fn bytes(&mut self, bytes: u64) {
        self.measured.bytes = bytes;
    }

    /// Records how many final stocks contradict the answers; each counts as an error. The null
    /// server's stocks never change.
    pub(super) fn conserved(&mut self, conservation: &Conservation) -> Result<(), String> {
        if conservation.checked {
            let differing = conservation.differences.len();
            self.put("stocks_that_differ", differing as f64);
            self.measured.errors = differing as u64;
            let samples = conservation.differences.iter().take(SAMPLES_MAX);
            self.measured.error_samples = samples.cloned().collect();
            return Ok(());
        }
        let reason = conservation.reason.as_deref().unwrap_or("not checked");
        Err(format!("cannot verify the final stocks: {reason}"))
    }

    /// Records the requests per second and the time per request.
    pub(super) fn rate(&mut self, per_s: f64) {
        self.put("requests_per_s", per_s);
        self.put("request_ns", 1e9 / per_s);
    }

    /// Records latencies. `command` is a prefix that ends with `_`, or empty for all commands.
    pub(super) fn latency(&mut self, command: &str, latency: &Latency) {
        for (name, ns) in [
            ("p50", latency.p50_ns),
            ("p99", latency.p99_ns),
            ("p999", latency.p999_ns),
            ("max", latency.max_ns),
        ] {
            self.put(&format!("{command}latency_{name}_ns"), ns as f64);
        }
    }

    /// Stops another server than the one that answered the requests, and returns the measurement.
    pub(super) fn close_other(self, host: TestServer) -> Result<Measured, String> {
        host.stop()?;
        Ok(self.measured)
    }

    /// Stops the server and returns the measurement.
    pub(super) fn close(mut self, host: TestServer) -> Result<Measured, String> {
        if let Some(switches) = host.stop()? {
            let each = switches as f64 / self.requests.max(1) as f64;
            self.put("server_switches_per_request", each);
        }
        Ok(self.measured)
    }
}

/// Rejects a result with wrong, lost or missing answers.
pub(super) fn answered(outcomes: &Outcomes, samples: &[String]) -> Result<(), String> {
    let first = samples.first().map_or(String::new(), |sample| format!(": {sample}"));
    if outcomes.answered == 0 {
        return Err(format!("no request was answered{first}"));
    }
    if outcomes.wrong + outcomes.lost + outcomes.timed_out + outcomes.turned_away > 0 {
        return Err(format!(
            "{} wrong answers, {} connections lost, {} timed out, {} rejected{first}",
            outcomes.wrong, outcomes.lost, outcomes.timed_out, outcomes.turned_away,
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_processor_time_within_the_time_in_which_it_was_used() {
        let mut numbers = Numbers {
            before: ServerUsage::default(),
            begun_ns: 0,
            usage: Usage::now(None),
            requests: 100,
            measured: Measured { elapsed_ns: 500, ..Measured::default() },
        };
        // Two processors for 1000 ns, in which the load was measured for 500 ns.
        numbers.server_cpu(2000.0, 1000, 2);
        assert_eq!(numbers.measured.extra["server_cores"], 2.0);
        assert_eq!(numbers.measured.extra["server_cpu_per_request_ns"], 20.0);
    }
}
