//! Devices by class, as stations of a closed network and as devices of the simulated machine.

use crate::PredictError;
use crate::error::above_zero;
use crate::machine::{Device, Model, Order, grid};
use crate::network::Station;
use serde::{Deserialize, Serialize};

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

/// What short probes of a machine found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Usable cores.
    pub cores: u32,
    /// Processor seconds of a small file: open, read, close.
    pub file_cpu_s: f64,
    /// Seconds that a cold small file takes with one request in flight, computing excluded.
    pub latency_s: f64,
    /// Seconds between completions with many in flight.
    pub gap_s: f64,
    /// Bytes per second of large files.
    pub bytes_per_s: f64,
    /// Most requests in flight in the probes.
    pub in_flight_max: u32,
    /// Files per probe.
    pub files: u64,
}

impl Measured {
    /// Returns the measured device: a latency, as many servers as keep up with the measured rate, and
    /// a bandwidth.
    ///
    /// # Errors
    /// Fails if a time or rate is not above zero.
    pub fn device(&self) -> Result<Device, PredictError> {
        above_zero("latency", self.latency_s)?;
        above_zero("time between completions", self.gap_s)?;
        above_zero("bandwidth", self.bytes_per_s)?;
        above_zero("processor time of a file", self.file_cpu_s)?;
        let servers = (self.latency_s / self.gap_s).round().clamp(1.0, 1024.0);
        let model = Model::Network {
            latency_ns: 1,
            servers: servers as u32,
            service_ns: ((self.latency_s * 1e9) as u64).max(1),
            bytes_per_s: self.bytes_per_s,
        };
        Ok(Device { model, cap: None, jitter: 0.1 })
    }
}

/// Returns the stations of `disks` devices for requests of `bytes`.
pub fn stations(device: &Device, bytes: f64, order: Order, disks: u32) -> Vec<Station> {
    let share = |demand_s: f64| Station::Servers { demand_s, servers: disks.max(1) };
    let mut all = match device.model {
        Model::Disk { .. } | Model::Stick { .. } => vec![share(device.request_s(bytes, order))],
        Model::Flash { units, piece_ns, command_ns, firmware_ns, bytes_per_s } => {
            let pieces = (bytes / 32_768.0).ceil().max(1.0);
            vec![
                Station::Servers {
                    demand_s: pieces * piece_ns as f64 / 1e9,
                    servers: units.saturating_mul(disks).max(1),
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
