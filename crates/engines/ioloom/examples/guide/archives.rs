//! Lists the members of compressed archives, which may be larger than memory.

use std::io::{self, Write};
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let archives = ioloom::tree(root)
        .filter_entry(|entry| {
            entry.is_dir() || entry.path().extension().is_some_and(|e| e == "tgz")
        })
        .ordered()
        .memory(64 << 20);
    let run = archives.chunks(1 << 20).try_map_reader(|path, reader| -> io::Result<_> {
        // `GzDecoder` would end after the first of several gzip members.
        let mut archive = tar::Archive::new(flate2::bufread::MultiGzDecoder::new(reader));
        let mut members = Vec::<(PathBuf, u64)>::new();
        for member in archive.entries()? {
            let member = member?;
            members.push((member.path()?.into_owned(), member.size()));
        }
        Ok((path.to_owned(), members))
    })?;
    let mut out = std::io::stdout().lock();
    for (archive, members) in run.value {
        for (member, bytes) in members {
            writeln!(out, "{bytes}  {}: {}", archive.display(), member.display())?;
        }
    }
    Ok(())
}
