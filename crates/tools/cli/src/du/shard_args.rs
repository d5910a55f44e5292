//! Flags of `du` that have no meaning for shards.

use crate::subtrees::Others;

/// Names flags that change what is counted or printed. The plan and `shard merge` decide both for shards.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart;

impl Others for Apart {
    const OTHERS: &'static [&'static str] = &[
        "paths",
        "all",
        "summarize",
        "separate_dirs",
        "max_depth",
        "human_readable",
        "si",
        "bytes",
        "apparent_size",
        "inodes",
        "block_size",
        "kib",
        "mib",
        "zero",
        "time_style",
        "total",
        "count_links",
        "one_file_system",
        "one_mount",
        "all_file_systems",
        "dereference",
        "dereference_args",
        "exclude",
        "exclude_from",
        "threshold",
        "time",
        "top",
        "files0_from",
        "tree",
        "lines",
        "interactive",
        "import",
        "export_ncdu",
        "save",
        "svg",
        "diff",
    ];
}
