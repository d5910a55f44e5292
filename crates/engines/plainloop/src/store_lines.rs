//! The loop: one store per line, in order, repeated.

/// The optimisation level of this copy.
pub const OPT_LEVEL: &str = env!("IOLOOM_OPT_LEVEL");

/// Writes zero to the first byte of each line of `line_bytes` in `buffer`, `rounds` times. Returns
/// the number of stores.
#[inline(never)]
pub fn store_lines(buffer: &mut [u8], line_bytes: usize, rounds: u64) -> u64 {
    let mut round = 0;
    let mut stores = 0;
    while round < rounds {
        // Without this, a compiler could skip rounds that store the same values again.
        let buffer = std::hint::black_box(&mut *buffer);
        let len = buffer.len();
        let mut i = 0;
        while i < len {
            buffer[i] = 0;
            i += line_bytes;
        }
        stores += len.div_ceil(line_bytes) as u64;
        round += 1;
    }
    stores
}
