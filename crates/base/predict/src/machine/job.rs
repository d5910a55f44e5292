//! Jobs: what is read, in which order, and what is computed.

use super::random::Draws;

/// Largest request; larger files are read in pieces of this size.
pub const CHUNK: u64 = 1 << 20;
/// Gap between two files that follow each other on a device.
const GAP: u64 = 16 << 10;

/// Directories of a tree are spread over this many bytes at least.
pub(super) const TREE_SPAN: u64 = 1 << 34;

/// The law of file sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sizes {
    /// All files have this size.
    Fixed(u64),
    /// Exponentially distributed with this mean.
    Exponential(u64),
    /// Log-normally distributed: median, and standard deviation of the logarithm.
    LogNormal(u64, f64),
    /// Two sizes, and how many of 100 files have the first one.
    Two(u64, u64, u64),
}

/// The order of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As the files are on the device.
    Device,
    /// At random.
    Shuffled,
    /// A tree of directories: a directory is known once its parent was read.
    Walk,
}

/// A job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Number of files, or of directories of a walk.
    pub files: u32,
    /// Their sizes.
    pub sizes: Sizes,
    /// Order of the list.
    pub order: Order,
    /// Mean compute time of a file, exponentially distributed, in nanoseconds.
    pub compute_ns: u64,
    /// Compute time of a byte in nanoseconds.
    pub byte_ns: f64,
    /// Share of requests that are in the page cache, in the first and in the second half.
    pub cached: [f64; 2],
    /// Whether the second half is on the second device.
    pub crosses: bool,
}

/// One request of a job.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unit {
    pub(super) at: u64,
    pub(super) bytes: u64,
    pub(super) compute_ns: u64,
    pub(super) device: u8,
    pub(super) cached: bool,
    /// Whether the file ends here.
    pub(super) last: bool,
    /// Entries of a walk that become known: first and count.
    pub(super) children: (u32, u32),
}

/// The requests of a job in list order.
#[derive(Debug, Clone)]
pub(super) struct Units {
    pub(super) units: Vec<Unit>,
    /// Units known at the start; all but for walks.
    pub(super) known: u32,
    /// End of the files on the device, one after another.
    pub(super) end: u64,
}

impl Sizes {
    fn draw(self, draws: Draws, i: u64) -> u64 {
        let size = match self {
            Self::Fixed(bytes) => bytes,
            Self::Exponential(mean) => (mean as f64 * draws.exponential(i)) as u64,
            Self::LogNormal(median, sigma) => {
                (median as f64 * (sigma * draws.normal(i)).exp()) as u64
            }
            Self::Two(one, other, share) => {
                if draws.below(i, 100) < share {
                    one
                } else {
                    other
                }
            }
        };
        size.clamp(1, 1 << 30)
    }
}

impl Job {
    pub(super) fn units(&self, seed: u64) -> Units {
        let draws = |stream| Draws::new(seed, stream);
        let (sizes, compute, cached) = (draws(1), draws(2), draws(3));
        let mut units = Vec::new();
        let mut at = 0;
        for file in 0..u64::from(self.files) {
            let half = usize::from(2 * file >= u64::from(self.files));
            let size = self.sizes.draw(sizes, file);
            let compute_ns = self.compute_ns as f64 * compute.exponential(file);
            let mut offset = 0;
            while offset < size {
                let bytes = CHUNK.min(size - offset);
                units.push(Unit {
                    at: at + offset,
                    bytes,
                    compute_ns: (compute_ns * bytes as f64 / size as f64
                        + bytes as f64 * self.byte_ns) as u64,
                    device: u8::from(self.crosses && half == 1),
                    cached: cached.unit(units.len() as u64) < self.cached[half],
                    last: offset + bytes == size,
                    children: (0, 0),
                });
                offset += bytes;
            }
            at += size + GAP;
        }
        let known = units.len() as u32;
        let end = at;
        match self.order {
            Order::Device => Units { units, known, end },
            Order::Shuffled => {
                shuffle(&mut units, draws(4));
                Units { units, known, end }
            }
            Order::Walk => tree(units, draws(5)),
        }
    }
}

impl Units {
    /// Assigns the files to the disks one after another and places them there: one after another for a list in
    /// device order, and at `stretch` times the distance for other orders.
    pub(super) fn spread(&mut self, disks: u32, stretch: f64, order: Order) {
        let mut next = vec![0; disks as usize];
        let mut disk = 0;
        for unit in &mut self.units {
            unit.device = disk as u8;
            unit.at = match order {
                Order::Device => next[disk],
                Order::Shuffled | Order::Walk => {
                    (unit.at as f64 * stretch / f64::from(disks)) as u64
                }
            };
            next[disk] += unit.bytes + if unit.last { GAP } else { 0 };
            if unit.last {
                disk = (disk + 1) % disks as usize;
            }
        }
    }
}

/// Shuffles the files and keeps the pieces of each together.
fn shuffle(units: &mut Vec<Unit>, draws: Draws) {
    let mut files: Vec<Vec<Unit>> = vec![Vec::new()];
    for unit in units.drain(..) {
        files.last_mut().expect("one at least").push(unit);
        if unit.last {
            files.push(Vec::new());
        }
    }
    for i in (1..files.len() as u64).rev() {
        files.swap(i as usize, draws.below(i, i + 1) as usize);
    }
    units.extend(files.into_iter().flatten());
}

/// Makes directories of the units: each has zero to eight children, which follow in order, at
/// random places of the device.
fn tree(mut units: Vec<Unit>, draws: Draws) -> Units {
    let count = units.len() as u32;
    let end = units.last().map_or(1, |unit| unit.at + unit.bytes);
    let span = end.max(TREE_SPAN);
    let mut next = 1;
    for i in 0..count {
        units[i as usize].at = draws.below(2 * u64::from(i), span);
        // The last directory that is known must have a child as long as others remain.
        let wanted = draws.below(2 * u64::from(i) + 1, 9) as u32;
        let least = u32::from(next == i + 1);
        let children = wanted.max(least).min(count - next);
        units[i as usize].children = (next, children);
        next += children;
    }
    Units { units, known: count.min(1), end }
}
