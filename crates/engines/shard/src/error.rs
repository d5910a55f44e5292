//! Errors of shards.

use crate::durable;
use ioloom_failure::{PathError, quoted};
use std::path::PathBuf;

/// Why a plan, manifest or part cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// A system call failed.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A plan that does not exist.
    #[error("cannot read the plan {}: {}; name the directory that 'ioloom shard plan' wrote",
            quoted(.0.path.as_path()), ioloom_failure::reason(&.0.source))]
    NoPlan(PathError),
    /// A manifest that the plan lists and that does not exist.
    #[error("cannot read {}: {}; restore the directory of {}, or plan again",
            quoted(.error.path.as_path()), ioloom_failure::reason(&.error.source), quoted(.plan))]
    NoManifest {
        /// Why it cannot be read.
        error: PathError,
        /// The plan.
        plan: PathBuf,
    },
    /// The content of a file is not usable.
    #[error("cannot use {}: {reason}", quoted(.path))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: Invalid,
    },
    /// The directory of a new plan is in use.
    #[error("cannot create the plan {}: it exists; remove it, or choose another --out", quoted(.0))]
    Exists(PathBuf),
    /// The directory above a new plan does not exist.
    #[error("cannot create the plan {}: {}; create the directory {}",
            quoted(.0.path.as_path()), ioloom_failure::reason(&.0.source),
            quoted(durable::parent(&.0.path)))]
    NoParent(PathError),
    /// A plan that was interrupted while this directory was written.
    #[error("cannot write the plan {}: interrupted", quoted(.0))]
    Interrupted(PathBuf),
    /// A shard that the plan does not have.
    #[error("invalid shard {shard}/{of}: {}", no_shard(*.shard, *.of, *.shards))]
    NoShard {
        /// The number of the shard.
        shard: u64,
        /// How many shards the caller expects.
        of: u64,
        /// How many the plan has.
        shards: u64,
    },
}

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// It is another kind of file.
    #[error("it is not a shard {0}")]
    Kind(&'static str),
    /// It has a version that this program does not know.
    #[error("it has version {0} of the format; use the version of ioloom that wrote it")]
    Version(u32),
    /// Its content differs from its checksum.
    #[error("it is damaged: its content does not match its checksum")]
    Checksum,
    /// The same, for a plan or a manifest.
    #[error("it is damaged: its content does not match its checksum; make a new plan")]
    Plan,
    /// Its content is not as specified although its checksum is correct.
    #[error("it is inconsistent: {0}")]
    Content(String),
    /// A part of another shard, under the name of this one.
    #[error("it is the part of shard {shard}; remove it if {name} exists, or rename it to {name}")]
    OtherShard {
        /// The shard of the part.
        shard: u64,
        /// The name that the part must have.
        name: String,
    },
    /// A manifest of another plan.
    #[error("it is not the manifest of {}; restore the directory of the plan, or plan again", quoted(.0))]
    OtherManifest(PathBuf),
    /// A part of another plan.
    #[error("it is a part of another plan than {}", quoted(.0))]
    OtherPlan(PathBuf),
    /// A part of the same plan with other work.
    #[error("its work is '{found}', not '{wanted}'")]
    OtherWork {
        /// The work of the part.
        found: String,
        /// The work of this run.
        wanted: String,
    },
}

fn no_shard(shard: u64, of: u64, shards: u64) -> String {
    if of != shards {
        let (word, other) = if shards == 1 { ("shard", 1) } else { ("shards", shards) };
        return format!("the plan has {shards} {word}; write it as N/{other}");
    }
    match (shard, shards) {
        (_, 1) => "the plan has only shard 1/1".to_owned(),
        _ => format!("shards are numbered from 1 to {shards}"),
    }
}
