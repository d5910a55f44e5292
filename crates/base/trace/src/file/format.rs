//! Constants of the trace file format.

/// First bytes of a trace file.
pub const MAGIC: [u8; 8] = *b"IOLMTRCE";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Maximum time in a file, in nanoseconds: exact in a double, and sums are far from overflow.
pub(super) const LATEST_NS: u64 = 1 << 53;
