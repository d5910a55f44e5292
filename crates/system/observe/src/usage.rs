//! Resources used by the process and the machine between two points in time.

use ioloom_model::Measured;
use ioloom_sys::proc::{self, UsageOf};

/// Counters at one point in time; unreadable ones are `None`.
#[derive(Debug, Clone, Default)]
pub struct Usage {
    process: proc::Usage,
    device_bytes: Option<u64>,
    busy_ticks: Option<u64>,
    block_device: Option<(String, u64)>,
}

/// Difference between two points in time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UsageDelta {
    /// Processor time in user mode.
    pub user_ns: u64,
    /// Processor time in the kernel.
    pub kernel_ns: u64,
    /// Page faults without and with I/O.
    pub faults: (u64, u64),
    /// Voluntary and involuntary context switches.
    pub switches: (u64, u64),
    /// Bytes that this process read from devices.
    pub device_bytes: Option<u64>,
    /// Processor time of all other processes.
    pub others_ns: Option<u64>,
    /// Time during which the block device had at least one request.
    pub device_busy_ns: Option<u64>,
}

impl Usage {
    /// Reads the counters; `block_device` names the device whose busy time is read.
    pub fn now(block_device: Option<&str>) -> Self {
        let disk = block_device
            .and_then(|name| proc::disk_stat(name).ok().map(|d| (name.to_owned(), d.busy_ms)));
        Self {
            process: proc::usage(UsageOf::Process).unwrap_or_default(),
            device_bytes: proc::process_io().ok().map(|io| io.read_bytes),
            busy_ticks: proc::system_stat().ok().map(|stat| stat.total.busy()),
            block_device: disk,
        }
    }

    /// Returns the resources used since `before`.
    pub fn since(&self, before: &Self) -> UsageDelta {
        let (a, b) = (&before.process, &self.process);
        let own_ns = b.user_ns + b.system_ns - a.user_ns - a.system_ns;
        let tick_ns = 1_000_000_000 / proc::ticks_per_second().max(1);
        let others_ns = before
            .busy_ticks
            .zip(self.busy_ticks)
            .map(|(a, b)| (b.saturating_sub(a) * tick_ns).saturating_sub(own_ns));
        let device_busy_ns = match (&before.block_device, &self.block_device) {
            (Some((_, a)), Some((_, b))) => Some(b.saturating_sub(*a) * 1_000_000),
            _ => None,
        };
        UsageDelta {
            user_ns: b.user_ns - a.user_ns,
            kernel_ns: b.system_ns - a.system_ns,
            faults: (b.minor_faults - a.minor_faults, b.major_faults - a.major_faults),
            switches: (
                b.voluntary_switches - a.voluntary_switches,
                b.involuntary_switches - a.involuntary_switches,
            ),
            device_bytes: before.device_bytes.zip(self.device_bytes).map(|(a, b)| b - a),
            others_ns,
            device_busy_ns,
        }
    }
}

impl UsageDelta {
    /// Writes the values into a record whose `elapsed_ns` is set; `cpus` is the number of online
    /// processors.
    pub fn fill(&self, measured: &mut Measured, cpus: u32) {
        let elapsed = measured.elapsed_ns.max(1) as f64;
        measured.cpu_user_ns = self.user_ns;
        measured.cpu_kernel_ns = self.kernel_ns;
        (measured.faults_minor, measured.faults_major) = self.faults;
        (measured.switches_voluntary, measured.switches_involuntary) = self.switches;
        measured.others_cpu =
            self.others_ns.map(|ns| ns as f64 / (elapsed * f64::from(cpus.max(1))));
        measured.device_busy = self.device_busy_ns.map(|ns| (ns as f64 / elapsed).min(1.0));
        let status = proc::status().unwrap_or_default();
        measured.memory_peak_bytes = status.peak_rss_bytes.unwrap_or(0);
        measured.memory_anon_bytes = status.rss_anon_bytes;
        measured.memory_file_bytes = status.rss_file_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_work_is_counted_and_not_that_of_others() {
        let before = Usage::now(None);
        let until = ioloom_sys::clock::thread_cpu_ns() + 30_000_000;
        while ioloom_sys::clock::thread_cpu_ns() < until {}
        let delta = Usage::now(None).since(&before);
        assert!(delta.user_ns + delta.kernel_ns >= 25_000_000, "{delta:?}");
        let mut measured = Measured { elapsed_ns: 30_000_000, ..Measured::default() };
        delta.fill(&mut measured, 1);
        assert!(measured.memory_peak_bytes > 1 << 20);
        assert_eq!(measured.device_busy, None);
    }
}
