//! All sampled counters, each with its source, unit and caveat.

/// Source of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// First lines of /proc/vmstat, read in every sample.
    Vmstat,
    /// Later lines of /proc/vmstat, with [`Scope::All`](super::Scope::All).
    VmstatBelow,
    /// /proc/meminfo, with [`Scope::All`](super::Scope::All).
    Meminfo,
    /// /proc/pressure, with [`Scope::All`](super::Scope::All).
    Pressure,
    /// /proc/PID/io of the observed processes, with [`Scope::All`](super::Scope::All).
    Task,
}

/// Meaning of a counter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Cumulative; only differences are meaningful.
    Sum(&'static str),
    /// The current amount.
    Level(&'static str),
}

macro_rules! fields {
    ($($name:ident = $origin:ident $key:literal $kind:ident $unit:literal $caveat:literal;)*) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Field {
            $(#[doc = concat!("`", $key, "`, ", $unit, ". ", $caveat)] $name,)*
        }

        impl Field {
            /// All counters.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the kernel's name for the counter.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Returns the source of the counter.
            pub const fn origin(self) -> Origin {
                match self { $(Self::$name => Origin::$origin,)* }
            }

            /// Returns the meaning of the value, including its unit.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind($unit),)* }
            }

            /// Returns a caveat about the counter; empty if there is none.
            pub const fn caveat(self) -> &'static str {
                match self { $(Self::$name => $caveat,)* }
            }
        }
    };
}

fields! {
    PageIn = Vmstat "pgpgin" Sum "KiB" "Counted when submitted, for requests to any device.";
    PageOut = Vmstat "pgpgout" Sum "KiB" "Counted when submitted; includes direct writes and the journal.";
    Faults = VmstatBelow "pgfault" Sum "faults" "";
    MajorFaults = VmstatBelow "pgmajfault" Sum "faults" "Faults that waited for a device.";
    Freed = VmstatBelow "pgfree" Sum "pages" "Includes pages of removed files.";
    ScannedBackground = VmstatBelow "pgscan_kswapd" Sum "pages" "";
    ScannedDirect = VmstatBelow "pgscan_direct" Sum "pages" "By tasks that were allocating memory.";
    StolenAnon = VmstatBelow "pgsteal_anon" Sum "pages" "";
    StolenFile = VmstatBelow "pgsteal_file" Sum "pages" "";
    RefaultedFile = Vmstat "workingset_refault_file" Sum "pages" "Read again soon after their eviction.";
    StallsNormal = VmstatBelow "allocstall_normal" Sum "stalls" "";
    StallsMovable = VmstatBelow "allocstall_movable" Sum "stalls" "";
    Dirtied = Vmstat "nr_dirtied" Sum "pages" "";
    Written = Vmstat "nr_written" Sum "pages" "";
    ThrottledWritten = Vmstat "nr_throttled_written" Sum "pages" "Written while reclaim was throttled.";
    CacheDrops = VmstatBelow "drop_pagecache" Sum "drops" "";
    Free = Vmstat "nr_free_pages" Level "pages" "";
    FilePages = Vmstat "nr_file_pages" Level "pages" "Includes shared memory, which cannot be dropped.";
    Shared = Vmstat "nr_shmem" Level "pages" "";
    Dirty = Vmstat "nr_dirty" Level "pages" "Can lag by a second and by several hundred pages.";
    Writeback = Vmstat "nr_writeback" Level "pages" "";
    DirtyLimit = Vmstat "nr_dirty_threshold" Level "pages" "A share of available memory, not of total memory.";
    BackgroundLimit = Vmstat "nr_dirty_background_threshold" Level "pages" "A share of available memory.";
    MemTotal = Meminfo "MemTotal" Level "KiB" "";
    MemFree = Meminfo "MemFree" Level "KiB" "";
    MemAvailable = Meminfo "MemAvailable" Level "KiB" "The kernel's estimate.";
    Buffers = Meminfo "Buffers" Level "KiB" "";
    Cached = Meminfo "Cached" Level "KiB" "Includes shared memory.";
    Slab = Meminfo "Slab" Level "KiB" "";
    SwapTotal = Meminfo "SwapTotal" Level "KiB" "";
    Committed = Meminfo "Committed_AS" Level "KiB" "";
    Active = Meminfo "Active" Level "KiB" "";
    Inactive = Meminfo "Inactive" Level "KiB" "";
    DirtyKib = Meminfo "Dirty" Level "KiB" "Same as nr_dirty.";
    CpuSome = Pressure "cpu" Sum "µs" "At least one task waited for a processor.";
    IoSome = Pressure "io" Sum "µs" "At least one task waited for I/O.";
    IoFull = Pressure "io" Sum "µs" "All tasks that could have run waited.";
    MemorySome = Pressure "memory" Sum "µs" "At least one task waited for memory.";
    MemoryFull = Pressure "memory" Sum "µs" "All tasks that could have run waited.";
    TaskRead = Task "read_bytes" Sum "bytes" "Requested from devices for the program.";
    TaskWritten = Task "write_bytes" Sum "bytes" "Counted when pages become dirty.";
    TaskCancelled = Task "cancelled_write_bytes" Sum "bytes" "Became dirty but were removed before being written.";
}

impl Field {
    /// Number of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns the index of the counter in a sample.
    pub(crate) const fn at(self) -> usize {
        self as usize
    }
}
