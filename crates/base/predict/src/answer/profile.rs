//! Devices by class, as stations of a closed network and as devices of the simulated machine.

use crate::PredictError;
use crate::error::above_zero;
use crate::knee::Knee;
use crate::machine::{Device, Model, Order, grid};
use crate::network::Station;
use serde::{Deserialize, Serialize};

/// Bytes that are read together.
const PAGE: u64 = 4096;

/// A class of devices with published parameters, or a measured device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A disk with one head.
    Hdd,
    /// A SATA flash drive.
    Sata,
    /// An NVMe flash drive.
    Nvme,
    /// A USB flash drive.
    Usb,
    /// A file server.
    Network,
    /// This machine, as calibrated.
    Measured,
}

impl Class {
    /// Returns the word of `--device`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hdd => "hdd",
            Self::Sata => "sata",
            Self::Nvme => "nvme",
            Self::Usb => "usb",
            Self::Network => "network",
            Self::Measured => "measured",
        }
    }

    /// Returns the device with its published parameters; `None` for the measured one.
    pub const fn device(self) -> Option<Device> {
        match self {
            Self::Hdd => Some(grid::DISK),
            Self::Sata => Some(grid::SATA),
            Self::Nvme => Some(grid::NVME),
            Self::Usb => Some(grid::STICK),
            Self::Network => Some(grid::SERVER),
            Self::Measured => None,
        }
    }

    /// Returns where the parameters of [`Class::device`] come from.
    pub const fn source(self) -> &'static str {
        match self {
            Self::Hdd => "a disk of 7,200 rotations per minute: seeks of 1 to 11 ms, 180 MB/s",
            Self::Sata => "data sheets of SATA drives: 10,000 to 100,000 requests/s, 530 MB/s",
            Self::Nvme => "a Samsung 970 Pro as in NVMeVirt: 16 units of 36 µs, 3,360 MB/s",
            Self::Usb => "a stick with regions of 4 MiB: 0.3 or 3 ms per request, 100 MB/s",
            Self::Network => "a server with 8 threads of 0.2 ms behind 1 ms and 1 GB/s",
            Self::Measured => "this machine",
        }
    }
}

/// What short probes of a machine found. All times are seconds per file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Usable cores.
    pub cores: u32,
    /// Small files of the set or directory.
    pub files: u64,
    /// Most small files that a probe read.
    pub cold_files: u64,
    /// Most small files that a probe copied; 0 without copies.
    pub copy_files: u64,
    /// Medium files per probe; 0 without any.
    pub medium_files: u64,
    /// Large files per probe; 0 without any.
    pub large_files: u64,
    /// Mean size of the small files in bytes.
    pub file_bytes: u64,
    /// Processor seconds of reading a small file, of all threads of the process.
    pub file_cpu_s: f64,
    /// Reading small files evicted from the page cache, by the number in flight.
    pub cold_s: Vec<(u32, f64)>,
    /// Reading small files from the page cache, by the number in flight.
    pub warm_s: Vec<(u32, f64)>,
    /// Mean size of the medium files; 0 without any.
    pub medium_bytes: u64,
    /// Reading them evicted, by the number in flight; empty without any.
    pub medium_s: Vec<(u32, f64)>,
    /// Mean size of the large files; 0 without any.
    pub large_bytes: u64,
    /// Reading them evicted, by the number in flight; empty without any.
    pub large_s: Vec<(u32, f64)>,
    /// Files of the walked tree.
    pub walk_files: u64,
    /// Walking them, by threads.
    pub walk_s: Vec<(u32, f64)>,
    /// Processor seconds of walking one of them.
    pub walk_cpu_s: f64,
    /// Copying the small files, by threads; empty if the directory is read-only.
    pub copy_s: Vec<(u32, f64)>,
    /// Copying the medium files, by threads; empty without any, or if the directory is read-only.
    pub copy_medium_s: Vec<(u32, f64)>,
    /// Copying the large files, by threads; empty without any, or if the directory is read-only.
    pub copy_large_s: Vec<(u32, f64)>,
    /// Shares of the time of all processors that were used with most in flight.
    #[serde(default)]
    pub busy: Busy,
    /// A stock server, if it was probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<MeasuredExchange>,
}

/// A size of the probed files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Medium,
    Large,
}

/// Shares of the time of all processors, 0 to 1, by kind of probe; 0 if they were not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Busy {
    /// Reading evicted files.
    pub cold: f64,
    /// Reading cached files.
    pub warm: f64,
    /// Walking.
    pub walk: f64,
    /// Copying small files.
    pub copy: f64,
}

/// A stock server with one event loop on one processor, loaded from another one. All times are seconds
/// per request, by the number of clients that do not think.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredExchange {
    /// Nothing is kept.
    pub none_s: Vec<(u32, f64)>,
    /// Orders wait for a shared sync.
    pub group_s: Vec<(u32, f64)>,
    /// Each order waits for its own sync.
    pub each_s: Vec<(u32, f64)>,
}

impl Measured {
    /// Refuses another number of cores: how its probes depend on them is not known.
    ///
    /// # Errors
    /// Fails unless the number is that of the probes.
    pub fn check_cores(&self, cores: u32) -> Result<(), PredictError> {
        let accepted = "that of the calibration on the measured device";
        match cores == self.cores {
            true => Ok(()),
            false => {
                let (what, value) = ("number of cores", f64::from(cores));
                Err(PredictError::OutOfRange { what, value, accepted })
            }
        }
    }

    /// Refuses files larger than the small ones unless `larger` ones were probed: without these, the time of
    /// more bytes is not known. Files of as many pages count as equal.
    ///
    /// # Errors
    /// Fails if the files have more pages than the small ones, and all probes of larger ones are empty.
    pub(crate) fn check_size(
        &self,
        bytes: u64,
        larger: [&[(u32, f64)]; 2],
    ) -> Result<(), PredictError> {
        let is_larger = bytes.div_ceil(PAGE) > self.file_bytes.div_ceil(PAGE);
        match is_larger && larger.iter().all(|probes| probes.is_empty()) {
            true => Err(PredictError::UnknownSize { bytes: self.file_bytes }),
            false => Ok(()),
        }
    }

    /// Returns by which factor a size is above the largest or below the smallest one of some probes; 1
    /// between them.
    pub(crate) fn size_beyond(
        &self,
        bytes: f64,
        medium: &[(u32, f64)],
        large: &[(u32, f64)],
    ) -> f64 {
        let probed = [(self.medium_bytes, medium), (self.large_bytes, large)];
        let known = probed.iter().filter(|(_, probes)| !probes.is_empty());
        let all = known.map(|(size, _)| *size as f64).chain([self.file_bytes as f64]);
        let (low, high) =
            all.fold((f64::INFINITY, 0.0f64), |(low, high), one| (low.min(one), high.max(one)));
        (low / bytes).max(bytes / high).max(1.0)
    }

    /// Returns the probed size that is nearest to `bytes`.
    fn nearest(&self, bytes: f64, medium: &[(u32, f64)], large: &[(u32, f64)]) -> Size {
        let distance = |size: u64| (size as f64 / bytes).ln().abs();
        let mut best = (Size::Small, distance(self.file_bytes));
        for (size, each, probes) in
            [(Size::Medium, self.medium_bytes, medium), (Size::Large, self.large_bytes, large)]
        {
            if !probes.is_empty() && distance(each) < best.1 {
                best = (size, distance(each));
            }
        }
        best.0
    }

    /// Returns the probed size of copies that is nearest to `bytes`.
    pub(crate) fn nearest_copied(&self, bytes: f64) -> Size {
        self.nearest(bytes, &self.copy_medium_s, &self.copy_large_s)
    }

    /// Returns by which factor `files` are more than a probe of the nearest size read; 1 if they are not.
    pub(crate) fn reads_beyond(&self, files: f64, bytes: f64) -> f64 {
        let size = self.nearest(bytes, &self.medium_s, &self.large_s);
        self.files_beyond(files, size, self.cold_files)
    }

    /// Returns by which factor `files` are more than a probe of the nearest size copied; 1 if they are not.
    pub(crate) fn copies_beyond(&self, files: f64, bytes: f64) -> f64 {
        self.files_beyond(files, self.nearest_copied(bytes), self.copy_files)
    }

    fn files_beyond(&self, files: f64, size: Size, small: u64) -> f64 {
        let probed = match size {
            Size::Small => small,
            Size::Medium => self.medium_files,
            Size::Large => self.large_files,
        };
        (files / probed.max(1) as f64).max(1.0)
    }

    /// Returns the most bytes that a probe copied.
    pub(crate) fn bytes_copied(&self) -> f64 {
        let all = [
            (self.copy_files, self.file_bytes),
            (self.medium_files, self.medium_bytes),
            (self.large_files, self.large_bytes),
        ];
        all.iter().map(|(files, each)| *files as f64 * *each as f64).fold(0.0, f64::max)
    }

    /// Returns the most in flight in the probes of small files.
    pub fn in_flight_max(&self) -> u32 {
        most(&self.cold_s)
    }

    /// Returns the seconds to read an evicted file of `bytes` with `in_flight` requests.
    ///
    /// # Errors
    /// Fails if a probe is not above zero, or no small file was read.
    pub fn cold_s_at(&self, bytes: f64, in_flight: u32) -> Result<f64, PredictError> {
        let all = [(&self.cold_s, self.busy.cold), (&self.medium_s, 0.0), (&self.large_s, 0.0)];
        self.at_size(all, bytes, in_flight)
    }

    /// Returns the seconds to copy a file of `bytes` with `threads`.
    ///
    /// # Errors
    /// Fails if a probe is not above zero, or no small file was copied.
    pub fn copy_s_at(&self, bytes: f64, threads: u32) -> Result<f64, PredictError> {
        let all =
            [(&self.copy_s, self.busy.copy), (&self.copy_medium_s, 0.0), (&self.copy_large_s, 0.0)];
        self.at_size(all, bytes, threads)
    }

    /// Interpolates between the small, the medium and the large files. A smaller file takes as long as
    /// the small ones, a larger one as long per byte as the largest ones.
    fn at_size(
        &self,
        [small, medium, large]: [(&Vec<(u32, f64)>, f64); 3],
        bytes: f64,
        n: u32,
    ) -> Result<f64, PredictError> {
        let first = Knee::fit_busy(small.0, small.1)?.seconds(n);
        let mut before = (self.file_bytes as f64, first);
        for (size, (probes, busy)) in [(self.medium_bytes, medium), (self.large_bytes, large)] {
            let size = size as f64;
            if probes.is_empty() || size <= before.0 {
                continue;
            }
            // With more in flight than in their probes, larger files gain nothing.
            let seconds = Knee::fit_busy(probes, busy)?.seconds(n.min(most(probes)));
            let here = (size, seconds.max(before.1));
            if bytes < size {
                let share = ((bytes - before.0) / (size - before.0)).max(0.0);
                return Ok(before.1 + share * (here.1 - before.1));
            }
            before = here;
        }
        let is_largest = before.0 > self.file_bytes as f64;
        Ok(if is_largest { before.1 * (bytes / before.0).max(1.0) } else { before.1 })
    }

    /// Returns the processor seconds of reading an evicted file with `in_flight` requests on average.
    /// With more of them, one interrupt and one wait end several.
    pub(crate) fn cold_cpu_s(&self, in_flight: f64) -> Result<f64, PredictError> {
        self.cpu_s(self.file_cpu_s, (&self.cold_s, self.busy.cold), in_flight)
    }

    /// Returns the processor seconds of walking a file with `threads`.
    pub(crate) fn threaded_walk_cpu_s(&self, threads: f64) -> Result<f64, PredictError> {
        self.cpu_s(self.walk_cpu_s, (&self.walk_s, self.busy.walk), threads)
    }

    /// Interpolates the processor seconds of a file between those with one in flight and those of a probe
    /// with most, over the logarithm of the number.
    fn cpu_s(
        &self,
        one_s: f64,
        (probes, busy): (&[(u32, f64)], f64),
        in_flight: f64,
    ) -> Result<f64, PredictError> {
        let one_s = above_zero("processor time of a file", one_s)?;
        let most = most(probes);
        let many_s = busy * f64::from(self.cores) * Knee::fit_busy(probes, busy)?.seconds(most);
        if most <= 1 || many_s <= 0.0 {
            return Ok(one_s);
        }
        let share = (in_flight.max(1.0).ln() / f64::from(most).ln()).min(1.0);
        Ok(one_s * (many_s / one_s).powf(share))
    }

    /// Returns the measured device as a latency, as many servers as keep up with the measured rate, and
    /// a bandwidth.
    ///
    /// # Errors
    /// Fails if a time is not above zero.
    pub fn device(&self) -> Result<Device, PredictError> {
        let cold = Knee::fit_busy(&self.cold_s, self.busy.cold)?;
        above_zero("processor time of a file", self.file_cpu_s)?;
        // Where the cache of a hypervisor answers, a cold read takes little longer than a warm one.
        let latency_s = (cold.latency_s() - self.file_cpu_s).max(1e-6);
        let servers = (latency_s / cold.gap_s()).round().clamp(1.0, 1024.0);
        Ok(network(latency_s, servers as u32, self.bytes_per_s(4)?))
    }

    /// Returns a device that serves any number of requests, each after `service_s`, and the measured
    /// bandwidth with `in_flight` requests, or `least_per_s` if more bytes per second were seen.
    pub(crate) fn delay(
        &self,
        service_s: f64,
        in_flight: u32,
        least_per_s: f64,
    ) -> Result<Device, PredictError> {
        let bytes_per_s = self.bytes_per_s(in_flight)?.max(least_per_s);
        Ok(network(service_s, in_flight.clamp(1, 1 << 16), bytes_per_s))
    }

    /// Returns the bandwidth with `in_flight` large requests; without large files it is not known, and
    /// does not limit.
    pub fn bytes_per_s(&self, in_flight: u32) -> Result<f64, PredictError> {
        if self.large_s.is_empty() {
            return Ok(1e12);
        }
        let bytes = above_zero("size of the large files", self.large_bytes as f64)?;
        Ok(bytes / Knee::fit(&self.large_s)?.seconds(in_flight.min(most(&self.large_s))))
    }
}

fn network(service_s: f64, servers: u32, bytes_per_s: f64) -> Device {
    let service_ns = ((service_s * 1e9) as u64).max(1);
    let model = Model::Network { latency_ns: 1, servers, service_ns, bytes_per_s };
    Device { model, cap: None, jitter: 0.1 }
}

/// Returns the largest number of some probes.
fn most(probes: &[(u32, f64)]) -> u32 {
    probes.iter().map(|(n, _)| *n).max().unwrap_or(1)
}

/// Returns the stations of `disks` devices for files of `bytes`, each on one of them.
pub fn stations(device: &Device, bytes: f64, order: Order, disks: u32) -> Vec<Station> {
    let share = |demand_s: f64| Station::Servers { demand_s, servers: disks.max(1) };
    let mut all = match device.model {
        Model::Disk { .. } | Model::Stick { .. } => vec![share(device.request_s(bytes, order))],
        Model::Flash { units, piece_ns, command_ns, firmware_ns, bytes_per_s } => {
            let (pieces, units) = ((bytes / 32_768.0).ceil().max(1.0), f64::from(units.max(1)));
            // A file reads from as many units as it has pieces, in rounds of all of them. So a server
            // consists of several units, and all servers together read as fast as all units.
            let rounds = (pieces / units).ceil();
            let servers = (rounds * units / pieces).ceil();
            vec![
                Station::Servers {
                    demand_s: servers * pieces / units * piece_ns as f64 / 1e9,
                    servers: (servers as u32).saturating_mul(disks).max(1),
                },
                share(command_ns as f64 / 1e9 + bytes / bytes_per_s),
                Station::Delay { demand_s: firmware_ns as f64 / 1e9 },
            ]
        }
        Model::Network { latency_ns, servers, service_ns, bytes_per_s } => vec![
            Station::Delay { demand_s: latency_ns as f64 / 1e9 },
            Station::Servers {
                demand_s: service_ns as f64 / 1e9,
                servers: servers.saturating_mul(disks).max(1),
            },
            share(bytes / bytes_per_s),
        ],
    };
    if let Some(cap) = device.cap {
        all.push(share((1.0 / cap.requests_per_s).max(bytes / cap.bytes_per_s)));
    }
    all
}
