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
    /// device order, and at `stretch` times the distance for other orders. The pieces of a file follow each
    /// other.
    pub(super) fn spread(&mut self, disks: u32, stretch: f64, order: Order) {
        let mut next = vec![0; disks as usize];
        let mut disk = 0;
        // Where the file begins, before and after.
        let mut file: Option<(u64, u64)> = None;
        for unit in &mut self.units {
            let at = unit.at;
            unit.device = disk as u8;
            unit.at = match order {
                Order::Device => next[disk],
                Order::Shuffled | Order::Walk => {
                    let stretched = (at as f64 * stretch / f64::from(disks)) as u64;
                    let (first, place) = *file.get_or_insert((at, stretched));
                    place + (at - first)
                }
            };
            next[disk] += unit.bytes + if unit.last { GAP } else { 0 };
            if unit.last {
                disk = (disk + 1) % disks as usize;
                file = None;
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

/// Makes directories of the files: each has zero to eight children, which follow in order and are known once
/// its last piece was read, at random places of the device.
fn tree(mut units: Vec<Unit>, draws: Draws) -> Units {
    let end = units.last().map_or(1, |unit| unit.at + unit.bytes);
    let span = end.max(TREE_SPAN);
    // Where each directory begins, and the end of all.
    let after = (1u32..).zip(&units).filter(|(_, unit)| unit.last).map(|(i, _)| i);
    let starts: Vec<u32> = std::iter::once(0).chain(after).collect();
    let count = starts.len() as u32 - 1;
    let mut next = 1;
    for i in 0..count {
        let own = &mut units[starts[i as usize] as usize..starts[i as usize + 1] as usize];
        let (first, place) = (own[0].at, draws.below(2 * u64::from(i), span));
        for unit in own.iter_mut() {
            unit.at = place + (unit.at - first);
        }
        // The last directory that is known must have a child as long as others remain.
        let wanted = draws.below(2 * u64::from(i) + 1, 9) as u32;
        let least = u32::from(next == i + 1);
        let children = wanted.max(least).min(count - next);
        let known = starts[next as usize];
        own[own.len() - 1].children = (known, starts[(next + children) as usize] - known);
        next += children;
    }
    let known = starts.get(1).copied().unwrap_or(0);
    Units { units, known, end }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_file_follow_each_other() {
        for order in [Order::Device, Order::Shuffled, Order::Walk] {
            let sizes = Sizes::Exponential(4 << 20);
            let job = Job {
                files: 200,
                sizes,
                order,
                compute_ns: 0,
                byte_ns: 0.0,
                cached: [0.0; 2],
                crosses: false,
            };
            for (disks, stretch) in [(1, 1.0), (1, 50.0), (3, 1.0), (8, 20.0)] {
                let mut all = job.units(1);
                all.spread(disks, stretch, order);
                let pairs = || all.units.windows(2).filter(|pair| !pair[0].last);
                assert!(pairs().count() > 200, "{order:?}");
                let follows = |pair: &[Unit]| {
                    pair[1].at == pair[0].at + pair[0].bytes && pair[1].device == pair[0].device
                };
                assert!(pairs().all(follows), "{order:?} on {disks} disks");
            }
        }
    }

    #[test]
    fn the_pieces_of_a_directory_are_known_together() {
        let job = Job {
            files: 300,
            sizes: Sizes::Exponential(3 << 20),
            order: Order::Walk,
            compute_ns: 0,
            byte_ns: 0.0,
            cached: [0.0; 2],
            crosses: false,
        };
        let all = job.units(1);
        let mut known = all.known;
        assert!(all.units[known as usize - 1].last);
        for (i, unit) in (0u32..).zip(&all.units) {
            assert!(i < known, "{i} is never known");
            let (first, count) = unit.children;
            assert!(count == 0 || unit.last && first == known, "{i}");
            known += count;
            assert!(all.units[known as usize - 1].last, "{i}");
        }
        assert_eq!(known as usize, all.units.len());
    }
}
