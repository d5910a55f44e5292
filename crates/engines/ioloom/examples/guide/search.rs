//! Prints the first matches of a word below a directory, in the order of the paths, and stops.

use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let word = args.next().ok_or("usage: search WORD [DIRECTORY] [COUNT]")?;
    let root = args.next().unwrap_or_else(|| ".".into());
    let count: usize = args.next().map_or(Ok(10), |n| n.to_string_lossy().parse())?;
    let word = word.as_encoded_bytes();
    if word.is_empty() {
        return Err("the word is empty".into());
    }

    let matching = |file: &ioloom::File<'_>| -> Vec<String> {
        let lines = file.bytes().split(|byte| *byte == b'\n').enumerate();
        lines
            .filter(|(_, line)| line.windows(word.len()).any(|window| window == word))
            .map(|(at, line)| {
                format!("{}:{}:{}", file.path().display(), at + 1, String::from_utf8_lossy(line))
            })
            .collect()
    };
    let files = ioloom::tree(root).skip_hidden(true).ignore_files(true).sorted(true).ordered();
    let mut failures = 0;
    let mut report = |error: &ioloom::FileError| {
        failures += 1;
        eprintln!("{error}");
    };
    let run = files.map(matching).scope(|results| {
        let searched = results.filter_map(|found| found.inspect_err(&mut report).ok());
        let lines = searched.flatten().take(count);
        let mut out = std::io::stdout().lock();
        lines.map(|line| writeln!(out, "{line}")).collect::<Result<Vec<()>, _>>()
    })?;
    run.value?;
    if run.stopped {
        eprintln!("stopped after {} files", run.measured.files);
    }
    if failures > 0 {
        return Err(format!("failures: {failures}").into());
    }
    Ok(())
}
