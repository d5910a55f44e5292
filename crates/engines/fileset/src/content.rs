//! The content of a file, derived from the seed and the index of the file.

use ioloom_model::FileSetSpec;
use ioloom_model::distribution::stream;
use rand::Rng;

/// Piece size in bytes: a multiple of the generator's 8, so pieces concatenate to the content.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// Separates the random stream for contents from the one for sizes.
const CONTENT: u64 = 0xC047_E479_0F11_E5ED;

/// Generates the first bytes of file `index` in the set with `seed`.
///
/// Fills all of `bytes`. For the entire content, pass a slice as long as the file; to check files
/// that do not fit in memory, use [`crate::verify`].
pub fn fill(seed: u64, index: u64, bytes: &mut [u8]) {
    stream(seed ^ CONTENT, index).fill_bytes(bytes);
}

/// Generates file content in pieces: random bytes, or zeros if the set is sparse.
pub(crate) fn content<E>(
    spec: &FileSetSpec,
    index: u64,
    size: u64,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    if !spec.making.sparse {
        return pieces(spec.seed, index, size, buffer, each);
    }
    buffer.fill(0);
    for offset in (0..size).step_by(buffer.len().max(1)) {
        let bytes = (size - offset).min(buffer.len() as u64) as usize;
        each(offset, &buffer[..bytes])?;
    }
    Ok(())
}

/// Generates random content and passes each piece, with its offset, to `each`.
fn pieces<E>(
    seed: u64,
    index: u64,
    size: u64,
    buffer: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut rng = stream(seed ^ CONTENT, index);
    let mut offset = 0;
    while offset < size {
        let bytes = (size - offset).min(buffer.len() as u64) as usize;
        rng.fill_bytes(&mut buffer[..bytes]);
        each(offset, &buffer[..bytes])?;
        offset += bytes as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn contents_do_not_compress() {
        let mut bytes = vec![0; 1 << 20];
        fill(1, 2, &mut bytes);
        let mut counts = [0f64; 256];
        for b in &bytes {
            counts[usize::from(*b)] += 1.0;
        }
        let n = bytes.len() as f64;
        let entropy: f64 = counts.iter().map(|c| -(c / n) * (c / n).log2()).sum();
        assert!(entropy > 7.999, "{entropy}");
        // All blocks are different.
        let mut blocks: Vec<&[u8]> = bytes.chunks(512).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert_eq!(blocks.len(), (1 << 20) / 512);
    }

    #[test]
    fn files_and_seeds_differ() {
        let make = |seed, index| {
            let mut bytes = [0; 32];
            fill(seed, index, &mut bytes);
            bytes
        };
        assert_ne!(make(1, 1), make(1, 2));
        assert_ne!(make(1, 1), make(2, 1));
        assert_eq!(make(7, 9), make(7, 9));
    }

    proptest! {
        #[test]
        fn pieces_join_to_the_whole(seed: u64, index: u64, size in 0u64..3000, words in 1usize..40) {
            let mut whole = vec![0; size as usize];
            fill(seed, index, &mut whole);
            let mut joined = Vec::new();
            let mut buffer = vec![0; words * 8];
            pieces(seed, index, size, &mut buffer, |offset, piece| {
                assert_eq!(offset, joined.len() as u64);
                joined.extend_from_slice(piece);
                Ok::<(), ()>(())
            }).unwrap();
            prop_assert_eq!(joined, whole);
        }
    }
}
