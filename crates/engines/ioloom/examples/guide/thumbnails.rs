//! Halves PNG images until they are small, with a bound on the memory of decoded images.

use png::DecodingError;
use std::io::{Cursor, Write};
use std::path::Path;

const MEMORY: u64 = 64 << 20;
const LARGEST: u32 = 64;

/// Decodes an image, reserving what it takes. Returns width, height and grey or colour samples of
/// one byte each.
fn decode(file: &ioloom::File<'_>) -> Result<(u32, u32, usize, Vec<u8>), DecodingError> {
    let mut decoder = png::Decoder::new(Cursor::new(file.bytes()));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    // A header of a few bytes may claim any size.
    let bytes = reader.output_buffer_size().filter(|bytes| *bytes as u64 <= MEMORY);
    let bytes = bytes.ok_or(DecodingError::LimitsExceeded)?;
    // Waits until other images have given back their memory.
    let _reserved = file.reserve(bytes as u64);
    let mut pixels = vec![0; bytes];
    let info = reader.next_frame(&mut pixels)?;
    let samples = info.color_type.samples();
    let (mut width, mut height) = (info.width, info.height);
    while width.max(height) > LARGEST && width.min(height) > 1 {
        (width, height) = halve(&mut pixels, width, height, samples);
    }
    // The small image leaves the function, the large buffer does not.
    pixels.truncate((width * height) as usize * samples);
    pixels.shrink_to_fit();
    Ok((width, height, samples, pixels))
}

/// Keeps every second sample of every second line, in place.
fn halve(pixels: &mut [u8], width: u32, height: u32, samples: usize) -> (u32, u32) {
    let (half_width, half_height) = (width / 2, height / 2);
    for y in 0..half_height as usize {
        for x in 0..half_width as usize {
            let from = (2 * y * width as usize + 2 * x) * samples;
            let to = (y * half_width as usize + x) * samples;
            pixels.copy_within(from..from + samples, to);
        }
    }
    (half_width, half_height)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let run = ioloom::tree(root)
        .filter_entry(|entry| {
            entry.is_dir() || Path::new(entry.file_name()).extension().is_some_and(|e| e == "png")
        })
        .memory(MEMORY)
        .on_error(ioloom::OnError::Collect)
        .try_map(decode)
        .run()?;
    let mut out = std::io::stdout().lock();
    let pixels: usize = run.value.iter().map(|(.., samples, bytes)| bytes.len() / samples).sum();
    let largest = run.value.iter().map(|(width, height, ..)| width.max(height)).max().unwrap_or(&0);
    writeln!(out, "{} thumbnails of {pixels} pixels, none wider than {largest}", run.value.len())?;
    eprintln!("at most {} bytes of memory", run.measured.budget_peak_bytes);
    for error in &run.errors {
        eprintln!("{error}");
    }
    if run.failed > 0 {
        return Err(format!("failures: {}", run.failed).into());
    }
    Ok(())
}
