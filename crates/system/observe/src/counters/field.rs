//! Every counter that is sampled, with its source, its unit and what to beware of.

/// Where a counter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// /proc/vmstat, in each sample.
    Vmstat,
    /// /proc/vmstat further down, with [`Scope::All`](super::Scope::All).
    VmstatBelow,
    /// /proc/meminfo, with [`Scope::All`](super::Scope::All).
    Meminfo,
    /// /proc/pressure, with [`Scope::All`](super::Scope::All).
    Pressure,
    /// /proc/PID/io of the watched processes, with [`Scope::All`](super::Scope::All).
    Task,
}

/// What a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Grows; differences say something.
    Sum(&'static str),
    /// Is what it is now.
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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns the name that the kernel gives it.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }

            /// Returns where it stands.
            pub const fn origin(self) -> Origin {
                match self { $(Self::$name => Origin::$origin,)* }
            }

            /// What it counts, with its unit.
            pub const fn kind(self) -> Kind {
                match self { $(Self::$name => Kind::$kind($unit),)* }
            }

            /// What to beware of; empty if nothing.
            pub const fn caveat(self) -> &'static str {
                match self { $(Self::$name => $caveat,)* }
            }
        }
    };
}

fields! {
    PageIn = Vmstat "pgpgin" Sum "KiB" "Counted when submitted, for any request to a device.";
    PageOut = Vmstat "pgpgout" Sum "KiB" "Counted when submitted: direct writes and the journal too.";
    Faults = VmstatBelow "pgfault" Sum "faults" "";
    MajorFaults = VmstatBelow "pgmajfault" Sum "faults" "Those that had to wait for a device.";
    Freed = VmstatBelow "pgfree" Sum "pages" "Removing a cached file shows here.";
    ScannedBackground = VmstatBelow "pgscan_kswapd" Sum "pages" "";
    ScannedDirect = VmstatBelow "pgscan_direct" Sum "pages" "By tasks that needed memory themselves.";
    StolenAnon = VmstatBelow "pgsteal_anon" Sum "pages" "";
    StolenFile = VmstatBelow "pgsteal_file" Sum "pages" "";
    RefaultedFile = Vmstat "workingset_refault_file" Sum "pages" "Wanted again soon after they were reclaimed.";
    StallsNormal = VmstatBelow "allocstall_normal" Sum "stalls" "";
    StallsMovable = VmstatBelow "allocstall_movable" Sum "stalls" "";
    Dirtied = Vmstat "nr_dirtied" Sum "pages" "";
    Written = Vmstat "nr_written" Sum "pages" "";
    ThrottledWritten = Vmstat "nr_throttled_written" Sum "pages" "Written while reclaim was held back.";
    CacheDrops = VmstatBelow "drop_pagecache" Sum "drops" "";
    Free = Vmstat "nr_free_pages" Level "pages" "";
    FilePages = Vmstat "nr_file_pages" Level "pages" "Shared memory included, which cannot be dropped.";
    Shared = Vmstat "nr_shmem" Level "pages" "";
    Dirty = Vmstat "nr_dirty" Level "pages" "May lag a second behind for fewer than some hundred pages.";
    Writeback = Vmstat "nr_writeback" Level "pages" "";
    DirtyLimit = Vmstat "nr_dirty_threshold" Level "pages" "A share of available, not of all memory.";
    BackgroundLimit = Vmstat "nr_dirty_background_threshold" Level "pages" "The same.";
    MemTotal = Meminfo "MemTotal" Level "KiB" "";
    MemFree = Meminfo "MemFree" Level "KiB" "";
    MemAvailable = Meminfo "MemAvailable" Level "KiB" "An estimate of the kernel.";
    Buffers = Meminfo "Buffers" Level "KiB" "";
    Cached = Meminfo "Cached" Level "KiB" "Shared memory included.";
    Slab = Meminfo "Slab" Level "KiB" "";
    SwapTotal = Meminfo "SwapTotal" Level "KiB" "";
    Committed = Meminfo "Committed_AS" Level "KiB" "";
    Active = Meminfo "Active" Level "KiB" "";
    Inactive = Meminfo "Inactive" Level "KiB" "";
    DirtyKib = Meminfo "Dirty" Level "KiB" "As nr_dirty.";
    CpuSome = Pressure "cpu" Sum "µs" "Some task waited for a processor.";
    IoSome = Pressure "io" Sum "µs" "Some task waited for input or output.";
    IoFull = Pressure "io" Sum "µs" "Every task that could have run did.";
    MemorySome = Pressure "memory" Sum "µs" "Some task waited for memory.";
    MemoryFull = Pressure "memory" Sum "µs" "Every task that could have run did.";
    TaskRead = Task "read_bytes" Sum "bytes" "What devices were asked for on behalf of the program.";
    TaskWritten = Task "write_bytes" Sum "bytes" "Counted when pages are made dirty.";
    TaskCancelled = Task "cancelled_write_bytes" Sum "bytes" "Made dirty and removed before it was written.";
}

impl Field {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// Its place in a sample.
    pub(crate) const fn at(self) -> usize {
        self as usize
    }
}
