//! The facts of one computer, as far as results depend on them.

use serde::{Deserialize, Serialize};

/// What is known of a computer. A fact that could not be read is `None`, never a guess.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Short stable identifier: a hash of processor, cores, memory class and kernel release.
    pub fingerprint: String,
    /// Kernel name and release.
    pub kernel: Option<String>,
    /// Processor model name.
    pub cpu_model: Option<String>,
    /// Processors on line.
    pub cpus_online: u32,
    /// Processors that this process may use (affinity and control-group quota), at least 1.
    pub cpus_usable: u32,
    /// Threads per core, if known.
    pub threads_per_core: Option<u32>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Bytes available for use when asked.
    pub memory_available_bytes: Option<u64>,
    /// Page size, bytes.
    pub page_bytes: u64,
    /// Whether a hypervisor is announced.
    pub virtual_machine: Option<bool>,
    /// Name of the clock source.
    pub clock_source: Option<String>,
    /// Block devices.
    pub devices: Vec<DeviceFacts>,
    /// Kernel features, probed by use: name, and `None` for available or the reason why not.
    pub features: Vec<FeatureFacts>,
    /// Limits: name and value in words (open files, locked memory, maps).
    pub limits: Vec<(String, String)>,
    /// Whether this process may do what root may (drop caches, mount); judged by capability.
    pub privileged: bool,
}

/// A block device as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name, such as `vda`.
    pub name: String,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// The rotational flag; it lies on virtual disks.
    pub rotational: Option<bool>,
    /// Scheduler in use.
    pub scheduler: Option<String>,
    /// Requests the device queue takes.
    pub queue_requests: Option<u64>,
    /// Read-ahead, KiB.
    pub read_ahead_kib: Option<u64>,
    /// Where it is mounted: directory and file-system type.
    pub mounts: Vec<(String, String)>,
}

/// A kernel feature, tried by use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureFacts {
    /// Name, such as `io_uring` or `cachestat`.
    pub name: String,
    /// `None`: works; else the reason why it does not.
    pub missing: Option<String>,
}
