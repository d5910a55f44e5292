//! The tracefs mount point and the names of this program's instances.

use rustix::process::Uid;

/// The usual mount point of tracefs.
pub(super) const USUAL_PATH: &str = "/sys/kernel/tracing";

/// Prefix of instances that belong to the process that created them.
pub(super) const OWN_PREFIX: &str = "ioloom-run-";

/// Prefix of instances that root created for a user and that outlive every process.
pub(super) const USER_PREFIX: &str = "ioloom-user-";

/// Returns the name of a user's instance.
pub(super) fn instance_of(uid: Uid) -> String {
    format!("{USER_PREFIX}{}", uid.as_raw())
}
