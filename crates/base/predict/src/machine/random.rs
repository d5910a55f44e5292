//! Seeded draws that do not depend on earlier ones: draw `i` of a stream is a hash of seed, stream
//! and `i`, so that every controller meets the same files and the same device.

/// Mixes a number (the finalizer of SplitMix64).
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A source of independent draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// Creates the source of a stream.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream)))
    }

    /// Returns 64 random bits.
    pub fn bits(self, i: u64) -> u64 {
        mix(self.0 ^ mix(i))
    }

    /// Returns a number in `0..1`.
    pub fn unit(self, i: u64) -> f64 {
        (self.bits(i) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a number below `n`.
    pub fn below(self, i: u64, n: u64) -> u64 {
        (self.unit(i) * n as f64) as u64
    }

    /// Returns a number from an exponential distribution with mean 1.
    pub fn exponential(self, i: u64) -> f64 {
        -(1.0 - self.unit(i)).ln()
    }

    /// Returns a number from the standard normal distribution.
    pub fn normal(self, i: u64) -> f64 {
        let radius = (2.0 * self.exponential(2 * i)).sqrt();
        radius * (std::f64::consts::TAU * self.unit(2 * i + 1)).cos()
    }

    /// Returns a number between the ends, with a uniformly distributed logarithm.
    pub fn log_uniform(self, i: u64, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.unit(i))
    }
}
