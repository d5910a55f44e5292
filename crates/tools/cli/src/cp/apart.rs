//! Flags of `cp` that have no meaning for shards.

use crate::subtrees::Others;

/// Names flags that the plan decides, or that need the whole copy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Apart;

impl Others for Apart {
    const OTHERS: &'static [&'static str] = &[
        "interactive",
        "backup",
        "b",
        "suffix",
        "link",
        "symbolic_link",
        "attributes_only",
        // A worker that lost its lease must not truncate files of a shard that is complete.
        "in_place",
        "copy_contents",
        "parents",
        "strip_trailing_slashes",
        "dereference",
        "dereference_args",
        "one_file_system",
        "resume",
        "files0_from",
        "explain",
    ];
}
