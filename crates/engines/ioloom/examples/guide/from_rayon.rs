//! Counts lines: what `WalkDir` and `par_bridge` would do, with reads that overlap.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());

    // WalkDir::new(&root).into_iter().par_bridge()
    //     .map(|entry| Ok(count(&std::fs::read(entry?.path())?)))
    //     .sum::<io::Result<_>>()?
    let run = ioloom::tree(&root)
        .on_error(ioloom::OnError::Collect)
        .map(|file| file.bytes().iter().filter(|byte| **byte == b'\n').count())
        .fold(|| 0, |lines, more| *lines += more, |lines, other| *lines += other)?;

    for error in &run.errors {
        eprintln!("{error}");
    }
    writeln!(std::io::stdout(), "{} lines in {} files", run.value, run.measured.files)?;
    eprintln!("{}", run.why());
    if run.failed > 0 {
        return Err(format!("failures: {}", run.failed).into());
    }
    Ok(())
}
