//! Computes on the bytes of files, as `model::Compute` specifies.
//!
//! All bytes pass through XXH3-64 regardless of the work. The digest of a run is the sum over files
//! of a mix of that hash and the file number. It is the same for every plan on the same files in
//! any order, and wrong if a byte was not read. The cost, about 0.1 ns per byte, is the same for
//! every run. Spin and sleep take the time drawn for the file from the set's seed minus the hash
//! time, so the total per file is the drawn time. Time between the pieces of a file does not count.

use crate::hasher::Hasher;
use ioloom_model::{Compute, FileSetSpec, Hash};
use ioloom_sys::clock::{monotonic_ns, thread_cpu_ns};
use std::time::Duration;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes per page.
const PAGE: usize = 4096;
/// Page touches of at least this many ns are recorded; touching a mapped page takes far less.
const SLOW_TOUCH_NS: u64 = 400;
/// Maximum number of touches recorded in a file: one for each page of 512 MiB.
const TOUCHES_MAX: usize = (512 << 20) / PAGE;

/// Work on files.
#[derive(Debug, Clone)]
pub struct Kernel {
    compute: Compute,
    set: Option<FileSetSpec>,
    seed: u64,
    hex: bool,
    proof: bool,
}

/// State of a file between its pieces. It is moved for every file, so it is small.
#[derive(Default)]
pub struct FileState {
    proof: Proof,
    work: Streamed,
    /// Slow touches, if there were any.
    curve: Option<Box<Curve>>,
}

/// Slow touches of a file.
#[derive(Default)]
struct Curve {
    touches: Vec<(f64, f64)>,
    lost: bool,
}

/// XXH3-64 of all bytes. A file in one piece is hashed in one call; only a second piece needs a stream.
#[derive(Default)]
enum Proof {
    #[default]
    Nothing,
    Whole(u64),
    Stream(Box<Xxh3>),
}

#[derive(Default)]
enum Streamed {
    #[default]
    Nothing,
    Hash(Hasher),
    Sum(u64),
    /// Time spent on the pieces, for work of a drawn time.
    Spent(u64),
    /// Sum of the touched bytes.
    Touched(u64),
}

/// Result for one file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// XXH3-64 of all bytes; meaningless after [`Kernel::without_proof`].
    pub xxh3: u64,
    /// The requested hash in lower-case hexadecimal digits. `None` for other work, and for XXH3-64
    /// without [`Kernel::with_hex`].
    pub hex: Option<String>,
    /// Slow touches as offset and nanoseconds (only for `touch`, and only of the first file).
    pub touches: Vec<(f64, f64)>,
    /// Whether the file had more of them than are recorded.
    pub touches_lost: bool,
}

impl Kernel {
    /// Returns the work for the files of a set. `seed` draws times if the set has no seed.
    pub fn new(compute: Compute, set: Option<FileSetSpec>, seed: u64) -> Self {
        Self { compute, set, seed, hex: false, proof: true }
    }

    /// Also returns hashes as hexadecimal digits, at the cost of an allocation per file.
    #[must_use]
    pub fn with_hex(mut self) -> Self {
        self.hex = true;
        self
    }

    /// Computes no XXH3-64 in addition to the requested hash: nothing needs the digest of the run.
    #[must_use]
    pub fn without_proof(mut self) -> Self {
        self.proof = self.is_xxh3();
        self
    }

    #[inline]
    fn is_xxh3(&self) -> bool {
        matches!(self.compute, Compute::Hash(Hash::Xxh3))
    }

    /// Returns the XXH3-64 of a file in one piece, if that is the work: such a file needs no state.
    /// Its digits are those of [`Kernel::digits`].
    pub fn hash_whole(&self, bytes: &[u8]) -> Option<u64> {
        self.is_xxh3().then(|| xxh3_64(bytes))
    }

    /// Returns the digits of the XXH3-64 of a file, if that is the work and [`Kernel::with_hex`] was called.
    #[inline]
    pub fn digits(&self, xxh3: u64) -> Option<String> {
        (self.hex && self.is_xxh3()).then(|| format!("{xxh3:016x}"))
    }

    /// Begins a file.
    pub fn begin(&self) -> FileState {
        let work = match self.compute {
            Compute::Hash(hash) => Hasher::new(hash).map_or(Streamed::Nothing, Streamed::Hash),
            Compute::Checksum { .. } => Streamed::Sum(0),
            Compute::Spin(_) | Compute::Sleep(_) => Streamed::Spent(0),
            Compute::Touch => Streamed::Touched(0),
            Compute::None => Streamed::Nothing,
        };
        FileState { work, ..FileState::default() }
    }

    /// Processes a piece of a file.
    pub fn piece(
        &self,
        state: &mut FileState,
        index: usize,
        offset: u64,
        last: bool,
        bytes: &[u8],
    ) {
        let is_drawn = matches!(state.work, Streamed::Spent(_));
        let start_ns = if is_drawn { monotonic_ns() } else { 0 };
        if let Streamed::Touched(sum) = &mut state.work {
            // Only the first file has a curve, so its size is bounded.
            *sum += match index {
                0 => touch_timed(&mut state.curve, offset, bytes),
                _ => touch(bytes),
            };
        }
        match (&mut state.proof, offset == 0 && last) {
            _ if !self.proof => {}
            (proof @ Proof::Nothing, true) => *proof = Proof::Whole(xxh3_64(bytes)),
            (Proof::Stream(stream), _) => stream.update(bytes),
            (proof, _) => {
                let mut stream = Box::new(Xxh3::new());
                stream.update(bytes);
                *proof = Proof::Stream(stream);
            }
        }
        match (&mut state.work, &self.compute) {
            (Streamed::Hash(hasher), _) => hasher.update(bytes),
            (Streamed::Sum(sum), Compute::Checksum { times }) => {
                for _ in 0..*times {
                    *sum = std::hint::black_box(checksum(*sum, bytes));
                }
            }
            (Streamed::Spent(ns), _) => *ns += monotonic_ns() - start_ns,
            _ => {}
        }
    }

    /// Finishes a file: spends the drawn time, if any, and returns the result.
    pub fn finish(&self, state: FileState, index: usize) -> Outcome {
        let xxh3 = match state.proof {
            Proof::Nothing => xxh3_64(&[]),
            Proof::Whole(hash) => hash,
            Proof::Stream(stream) => stream.digest(),
        };
        if let Some(ns) = self.demand_ns(index) {
            let spent_ns = if let Streamed::Spent(ns) = state.work { ns } else { 0 };
            let rest = ns.saturating_sub(spent_ns);
            match self.compute {
                Compute::Sleep(_) => std::thread::sleep(Duration::from_nanos(rest)),
                _ => spin(rest),
            }
        }
        let hex = match state.work {
            Streamed::Hash(hasher) => Some(hasher.finish()),
            _ => self.digits(xxh3),
        };
        let curve = state.curve.map(|curve| *curve).unwrap_or_default();
        Outcome { xxh3, hex, touches: curve.touches, touches_lost: curve.lost }
    }

    fn demand_ns(&self, index: usize) -> Option<u64> {
        let demand = self.set.as_ref().and_then(|set| set.compute.as_ref());
        let seed = self.set.as_ref().map_or(self.seed, |set| set.seed);
        self.compute.demand_ns(demand, seed, index as u64)
    }
}

/// Returns the contribution of a file to the digest of a run.
pub fn digest_part(index: usize, xxh3: u64) -> u64 {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&(index as u64).to_le_bytes());
    bytes[8..].copy_from_slice(&xxh3.to_le_bytes());
    xxh3_64(&bytes)
}

/// Returns the bytewise sum. The start value keeps the compiler from hoisting it out of
/// repetitions.
fn checksum(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |sum, b| sum.wrapping_add(u64::from(*b)))
}

/// Spins for `ns` of this thread's CPU time, so preemption does not shorten the work. Reading the
/// thread clock takes a system call, so the monotonic clock determines when to read it.
fn spin(ns: u64) {
    if ns == 0 {
        return;
    }
    let until_cpu = thread_cpu_ns() + ns;
    loop {
        let left = until_cpu.saturating_sub(thread_cpu_ns());
        if left == 0 {
            return;
        }
        let until = monotonic_ns() + left;
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
    }
}

/// Reads one byte of each page in order. Returns their sum.
fn touch(bytes: &[u8]) -> u64 {
    bytes.chunks(PAGE).map(|page| u64::from(std::hint::black_box(page[0]))).sum()
}

/// Like [`touch`], and records slow touches.
fn touch_timed(curve: &mut Option<Box<Curve>>, offset: u64, bytes: &[u8]) -> u64 {
    let (mut sum, mut last) = (0, monotonic_ns());
    for (page, piece) in bytes.chunks(PAGE).enumerate() {
        sum += u64::from(std::hint::black_box(piece[0]));
        let now = monotonic_ns();
        let ns = now - last;
        if ns >= SLOW_TOUCH_NS {
            let curve = curve.get_or_insert_default();
            if curve.touches.len() < TOUCHES_MAX {
                curve.touches.push((offset as f64 + (page * PAGE) as f64, ns as f64));
            } else {
                curve.lost = true;
            }
        }
        last = now;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(compute: &str, pieces: &[&[u8]]) -> Outcome {
        let kernel = Kernel::new(compute.parse().unwrap(), None, 1).with_hex();
        let mut state = kernel.begin();
        let mut offset = 0;
        for (i, piece) in pieces.iter().enumerate() {
            kernel.piece(&mut state, 0, offset, i + 1 == pieces.len(), piece);
            offset += piece.len() as u64;
        }
        kernel.finish(state, 0)
    }

    #[test]
    fn pieces_and_wholes_hash_alike_and_as_others_do() {
        let data: Vec<u8> = (0..100_000u32).map(|i| ((i * 7) >> 3) as u8).collect();
        let hashes = Hash::ALL.map(Hash::name);
        for compute in hashes.into_iter().chain(["none", "checksum:3", "touch"]) {
            let whole = run(compute, &[&data]);
            let pieces = run(compute, &[&data[..1], &data[1..70_000], &data[70_000..]]);
            assert_eq!((whole.xxh3, &whole.hex), (pieces.xxh3, &pieces.hex), "{compute}");
        }
        // Published test vectors: RFC 1321, RFC 3174, FIPS 180, RFC 7693, RFC 3720 (thirty-two zero
        // bytes), and the hashes of empty input.
        for (compute, input, begins) in [
            ("md5", &b"abc"[..], "900150983cd24fb0d6963f7d28e17f72"),
            ("sha1", b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            ("sha512", b"abc", "ddaf35a193617abacc417349ae204131"),
            ("blake2b", b"abc", "ba80a53f981c4d0d6a2797b69f12f6e9"),
            ("blake3", b"", "af1349b9f5f9a1a6"),
            ("crc32c", &[0; 32], "8a9136aa"),
            ("xxh64", b"", "ef46db3751d8e999"),
            ("xxh3", b"", "2d06800538d394c2"),
        ] {
            let hex = run(compute, &[input]).hex.unwrap();
            let hash: Compute = compute.parse().unwrap();
            assert!(hex.starts_with(begins), "{compute}: {hex}");
            assert_eq!(hex.len(), hash.hash().unwrap().digits(), "{compute}");
        }
    }

    #[test]
    fn without_proof_a_hash_is_the_same() {
        for hash in Hash::ALL {
            let kernel = Kernel::new(Compute::Hash(hash), None, 1).with_hex().without_proof();
            let mut state = kernel.begin();
            kernel.piece(&mut state, 0, 0, true, b"bytes");
            let expected = run(hash.name(), &[b"bytes"]).hex;
            assert_eq!(kernel.finish(state, 0).hex, expected, "{hash}");
        }
    }

    #[test]
    fn spinning_takes_processor_time_and_sleeping_does_not() {
        let before = thread_cpu_ns();
        run("spin:20ms", &[b"x"]);
        assert!(thread_cpu_ns() - before >= 19_000_000);
        let (before, wall) = (thread_cpu_ns(), monotonic_ns());
        run("sleep:20ms", &[b"x"]);
        assert!(thread_cpu_ns() - before < 10_000_000 && monotonic_ns() - wall >= 19_000_000);
    }

    #[test]
    fn time_between_pieces_is_not_work() {
        let kernel = Kernel::new("sleep:40ms".parse().unwrap(), None, 1);
        let rest_ns = || {
            let mut state = kernel.begin();
            kernel.piece(&mut state, 0, 0, false, b"first");
            std::thread::sleep(Duration::from_millis(50));
            kernel.piece(&mut state, 0, 5, true, b"second");
            let start = monotonic_ns();
            kernel.finish(state, 0);
            monotonic_ns() - start
        };
        // Hashing both pieces takes less than a millisecond, unless the thread is preempted.
        let kept = (0..9).filter(|_| rest_ns() >= 20_000_000).count();
        assert!(kept >= 3, "the pause counted as work in {} of 9 runs", 9 - kept);
    }

    #[test]
    fn every_page_of_every_file_is_touched() {
        let kernel = Kernel::new(Compute::Touch, None, 1);
        let mut bytes = vec![0; 3 * PAGE - 1];
        (bytes[0], bytes[PAGE], bytes[2 * PAGE]) = (1, 2, 4);
        for index in [0, 1, 1000] {
            let mut state = kernel.begin();
            kernel.piece(&mut state, index, 0, true, &bytes);
            assert!(matches!(state.work, Streamed::Touched(7)), "file {index}");
            let outcome = kernel.finish(state, index);
            assert!(index == 0 || outcome.touches.is_empty(), "only the first file has a curve");
        }
    }

    #[test]
    fn a_file_in_one_piece_needs_no_state_for_xxh3() {
        for compute in ["xxh3", "xxh64", "none", "touch"] {
            let kernel = Kernel::new(compute.parse().unwrap(), None, 1).with_hex();
            let whole = kernel.hash_whole(b"bytes").map(|xxh3| (xxh3, kernel.digits(xxh3)));
            let outcome = run(compute, &[b"bytes"]);
            let expected = (compute == "xxh3").then_some((outcome.xxh3, outcome.hex));
            assert_eq!(whole, expected, "{compute}");
        }
    }

    #[test]
    fn the_state_of_a_file_is_small() {
        assert!(size_of::<FileState>() <= 48);
    }

    #[test]
    fn the_digest_depends_on_bytes_and_numbers() {
        assert_ne!(digest_part(0, 1), digest_part(1, 1));
        assert_ne!(digest_part(0, 1), digest_part(0, 2));
    }
}
