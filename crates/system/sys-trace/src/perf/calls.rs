//! Tables that map system call numbers to kinds of waiting. Pure.

/// Kinds of system calls that can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// Reading from a descriptor.
    Read,
    /// Writing to a descriptor.
    Write,
    /// Opening by name.
    Open,
    /// Closing.
    Close,
    /// Reading or changing the metadata of a path.
    Stat,
    /// Listing a directory.
    List,
    /// Making writes durable.
    Flush,
    /// Mapping.
    Map,
    /// Unmapping.
    Unmap,
    /// Waiting for another thread.
    Sync,
    /// Waiting for a socket, a poll, a child, a signal.
    Event,
    /// Sleeping.
    Sleep,
    /// Waiting for ring completions.
    Ring,
    /// Any other call.
    Other,
}

#[cfg(target_arch = "x86_64")]
const TABLE: &[(Call, &[i64])] = &[
    (Call::Read, &[0, 17, 19, 295, 327, 40, 275, 326, 187]),
    (Call::Write, &[1, 18, 20, 296, 328, 285, 76, 77]),
    (Call::Open, &[2, 85, 257, 437]),
    (Call::Close, &[3]),
    (
        Call::Stat,
        &[4, 5, 6, 21, 262, 269, 332, 82, 83, 84, 86, 87, 88, 89, 258, 263, 264, 267, 316],
    ),
    (Call::List, &[78, 217]),
    (Call::Flush, &[26, 74, 75, 162, 277, 306]),
    (Call::Map, &[9, 10, 25, 28]),
    (Call::Unmap, &[11]),
    (Call::Sync, &[202, 449, 73]),
    (
        Call::Event,
        &[
            7, 23, 34, 42, 43, 44, 45, 46, 47, 61, 128, 130, 208, 232, 247, 270, 271, 281, 288,
            299, 307,
        ],
    ),
    (Call::Sleep, &[35, 230]),
    (Call::Ring, &[426]),
];

/// System call numbers shared by newer architectures.
#[cfg(not(target_arch = "x86_64"))]
const TABLE: &[(Call, &[i64])] = &[
    (Call::Read, &[63, 65, 67, 69, 71, 76, 213, 285, 286]),
    (Call::Write, &[64, 66, 68, 70, 45, 46, 47, 287]),
    (Call::Open, &[56, 437]),
    (Call::Close, &[57]),
    (Call::Stat, &[34, 35, 36, 37, 38, 48, 78, 79, 80, 276, 291]),
    (Call::List, &[61]),
    (Call::Flush, &[81, 82, 83, 84, 227, 267]),
    (Call::Map, &[222, 226, 216, 233]),
    (Call::Unmap, &[215]),
    (Call::Sync, &[98, 449, 32]),
    (Call::Event, &[22, 72, 73, 95, 133, 137, 202, 203, 206, 207, 211, 212, 242, 243, 260, 269]),
    (Call::Sleep, &[101, 115]),
    (Call::Ring, &[426]),
];

/// Returns the kind of a system call.
pub fn call_of(number: i64) -> Call {
    let found = TABLE.iter().find(|(_, numbers)| numbers.contains(&number));
    found.map_or(Call::Other, |(call, _)| *call)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_match_libc() {
        for (number, call) in [
            (libc::SYS_read, Call::Read),
            (libc::SYS_pread64, Call::Read),
            (libc::SYS_copy_file_range, Call::Read),
            (libc::SYS_pwrite64, Call::Write),
            (libc::SYS_openat, Call::Open),
            (libc::SYS_close, Call::Close),
            (libc::SYS_statx, Call::Stat),
            (libc::SYS_unlinkat, Call::Stat),
            (libc::SYS_getdents64, Call::List),
            (libc::SYS_fsync, Call::Flush),
            (libc::SYS_sync_file_range, Call::Flush),
            (libc::SYS_mmap, Call::Map),
            (libc::SYS_munmap, Call::Unmap),
            (libc::SYS_futex, Call::Sync),
            (libc::SYS_ppoll, Call::Event),
            (libc::SYS_wait4, Call::Event),
            (libc::SYS_epoll_pwait, Call::Event),
            (libc::SYS_recvmsg, Call::Event),
            (libc::SYS_nanosleep, Call::Sleep),
            (libc::SYS_clock_nanosleep, Call::Sleep),
            (libc::SYS_io_uring_enter, Call::Ring),
            (libc::SYS_getpid, Call::Other),
        ] {
            assert_eq!(call_of(number), call, "{number}");
        }
        let all: Vec<i64> = TABLE.iter().flat_map(|(_, numbers)| *numbers).copied().collect();
        let unique: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(unique.len(), all.len(), "each number must have one kind");
    }
}
