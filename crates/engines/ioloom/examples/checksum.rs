//! Prints the XXH3-64 of every file below a directory: `cargo run --example checksum -- DIR`.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let hash = |f: &ioloom::File<'_>| {
        format!("{:016x}  {}", xxhash_rust::xxh3::xxh3_64(f.bytes()), f.path().display())
    };
    for line in ioloom::tree(root).sorted(true).map(hash).collect()? {
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(())
}
