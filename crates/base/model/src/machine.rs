//! Machine properties that affect results.

use serde::{Deserialize, Serialize};

/// Machine properties. A property that could not be read is `None`, never a guess.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineFacts {
    /// Short stable identifier: hash of processor, cores, memory class and kernel release.
    pub fingerprint: String,
    /// Kernel name and release.
    pub kernel: Option<String>,
    /// Processor model name.
    pub cpu_model: Option<String>,
    /// Number of online processors.
    pub cpus_online: u32,
    /// Number of processors available to this process (affinity and cgroup quota), at least 1.
    pub cpus_usable: u32,
    /// Threads per core, if known.
    pub threads_per_core: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Memory available to this process in bytes, limited by its control groups.
    pub memory_available_bytes: Option<u64>,
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Whether the processor reports a hypervisor.
    pub virtual_machine: Option<bool>,
    /// Clock source name.
    pub clock_source: Option<String>,
    /// Block devices.
    pub devices: Vec<DeviceFacts>,
    /// Kernel features, detected by using them.
    pub features: Vec<FeatureFacts>,
    /// Limits, by name and formatted value (open files, locked memory, maps).
    pub limits: Vec<(String, String)>,
    /// Whether this process has the capability `CAP_SYS_ADMIN`, which mounting requires. In a container,
    /// mounting and dropping caches can fail nonetheless.
    pub privileged: bool,
}

/// A block device as reported by the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name, such as `vda`.
    pub name: String,
    /// Size in bytes.
    pub bytes: Option<u64>,
    /// The rotational flag, which is unreliable for virtual disks.
    pub rotational: Option<bool>,
    /// Active I/O scheduler.
    pub scheduler: Option<String>,
    /// Request queue size.
    pub queue_requests: Option<u64>,
    /// Readahead in KiB.
    pub read_ahead_kib: Option<u64>,
    /// Mounts: directory and file-system type.
    pub mounts: Vec<(String, String)>,
}

/// A kernel feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeatureFacts {
    /// Name, such as `io_uring` or `cachestat`.
    pub name: String,
    /// `None` if it works, otherwise the reason why not.
    pub missing: Option<String>,
}
