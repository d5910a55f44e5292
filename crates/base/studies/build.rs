//! Lists the published tables, `studies/*/data/*.csv`, so that adding one requires no code.
//!
//! `studies` is a link to the directory in the root of the repository; `cargo package` follows it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    // At run time: cargo may reuse this script for the same package in another directory.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it for build scripts");
    let root = Path::new(&package).join("studies").canonicalize()?;
    println!("cargo::rerun-if-changed={}", root.display());
    let mut tables = Vec::new();
    for study in entries(&root)? {
        let data = study.join("data");
        if data.is_dir() {
            tables.extend(
                entries(&data)?.into_iter().filter(|p| p.extension() == Some("csv".as_ref())),
            );
        }
    }
    tables.sort_by(|a, b| a.file_stem().cmp(&b.file_stem()));
    let mut code = String::from("&[\n");
    for path in tables {
        let path = path.canonicalize()?;
        let name = path.file_stem().unwrap_or_default();
        writeln!(code, "    ({name:?}, include_str!({path:?})),")
            .expect("writing to a String cannot fail");
    }
    code.push_str("]\n");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    std::fs::write(Path::new(&out).join("tables.rs"), code)
}

fn entries(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    std::fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
}
