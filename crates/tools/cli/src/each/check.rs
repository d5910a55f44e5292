//! `each --check`: verifies files against a checksum file, with the results and exit codes of
//! `sha256sum --check`.

use super::args::EachArgs;
use super::job::{CHUNK_BYTES, Job, fit, stream};
use super::line::{Line, LineReader, escapes_cr, unsupported};
use super::progress::Bar;
use super::sink::{Manner, SHORT_LIST, Sink, WithoutReader};
use super::work::{Comparison, Counts, EachWork, Expected, Lines, Local, failure};
use crate::exit::{Ended, Exit, Failure};
use crate::{standard_input, stderr};
use ioloom::{Cancel, Files};
use ioloom_failure::{Explained, Operation, quoted};
use ioloom_model::{Compute, Hash, Method};
use ioloom_subjects::Kernel;
use ioloom_walk::PathList;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What a checksum file lists.
#[derive(Default)]
struct Listed {
    paths: PathList,
    /// What is expected of each path.
    expected: Vec<Expected>,
    /// What is expected of standard input, whose name in a list is `-`.
    input: Vec<Expected>,
    /// Numbers of the lines that are not understood, from 1.
    unknown: Vec<usize>,
    /// Numbers of the lines of hashes that are not supported, and the hashes.
    unsupported: Vec<(usize, String)>,
}

impl Listed {
    /// Returns whether no line is properly formatted.
    fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.input.is_empty()
    }

    /// Adds what a line expects. A list on standard input cannot name standard input.
    fn add(&mut self, number: usize, line: Line<'_>, hash: Hash, list: &Path) {
        let at = self.expected.len() + self.input.len();
        let expected = Expected { at, hash, hex: line.hex, guessed: line.hash.is_none() };
        if *line.path != *b"-" {
            self.paths.push(&line.path);
            self.expected.push(expected);
        } else if list.as_os_str() == "-" {
            self.unknown.push(number);
        } else {
            self.input.push(expected);
        }
    }
}

pub(super) fn run(args: &EachArgs, list: &Path) -> Ended {
    if !args.paths.is_empty() {
        return Err(Failure::usage("--check reads paths from the list; do not give others"));
    }
    if args.null {
        return Err(Failure::usage("-0 is for lists of paths; use -z for lines that end with NUL"));
    }
    let wanted = wanted_hash(args)?;
    let stop = crate::interrupt::stop_flag();
    let named_list = list.to_path_buf();
    let Some(text) = crate::interrupt::unless_raised(&stop, move || read_all(&named_list)) else {
        return Err(interrupted());
    };
    let text = text?;
    let mut listed = parse(&text, args.zero, wanted, list)?;
    if args.warn {
        name_lines(&listed, wanted, list);
    }
    let unchecked = unchecked(&listed, wanted, list);
    // As in other programs, a list of another hash than the wanted one has no proper line.
    let fails = wanted.is_none() && unchecked.is_some();
    if let Some(message) = unchecked.filter(|_| fails || !args.status) {
        stderr::message(&message);
    }
    if fails && listed.is_empty() {
        return Ok(Exit::Failed);
    }
    if listed.is_empty() {
        return Err(Failure::failed(format!(
            "{}: no properly formatted checksum lines found",
            named(list)
        )));
    }
    let counts = verify(args, &mut listed, &stop)?;
    let unverified = args.ignore_missing && counts.right == 0;
    if !args.status {
        summarise(args, list, listed.unknown.len() as u64, counts);
    }
    let strictly_wrong = args.strict && !listed.unknown.is_empty();
    let failed = counts.wrong + counts.failed > 0 || strictly_wrong || unverified || fails;
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// Prints the number of each line that is not checked, and why.
fn name_lines(listed: &Listed, wanted: Option<Hash>, list: &Path) {
    let tag = wanted.map_or(String::new(), |hash| format!("{} ", hash.tag()));
    let improper = format!("improperly formatted {tag}line");
    let mut lines: Vec<(usize, String)> =
        listed.unknown.iter().map(|number| (*number, improper.clone())).collect();
    if wanted.is_none() {
        let reasons = listed.unsupported.iter();
        lines.extend(reasons.map(|(number, name)| (*number, format!("{name} is not supported"))));
    }
    lines.sort();
    for (number, reason) in lines {
        stderr::message(&format!("{}: line {number}: {reason}", named(list)));
    }
}

/// Describes the lines of hashes that are not supported, if there are any.
fn unchecked(listed: &Listed, wanted: Option<Hash>, list: &Path) -> Option<String> {
    let names: BTreeSet<&str> = listed.unsupported.iter().map(|(_, name)| name.as_str()).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let hashes = names.into_iter().collect::<Vec<_>>().join(", ");
    let lines = match (wanted, listed.unsupported.len()) {
        (_, 0) => return None,
        (Some(_), _) => String::new(),
        (None, 1) => "1 listed file was not checked: ".to_owned(),
        (None, count) => format!("{count} listed files were not checked: "),
    };
    Some(format!("{}: {lines}{hashes} {verb} not supported", named(list)))
}

/// Returns the hash that the flags select.
fn wanted_hash(args: &EachArgs) -> Result<Option<Hash>, Failure> {
    let Some(compute) = &args.compute else { return Ok(None) };
    let name = compute.name();
    let no_hash = || Failure::usage(format!("--check compares hashes, and {name} has none"));
    compute.hash().map(Some).ok_or_else(no_hash)
}

/// Parses the lines of a checksum file. Empty lines and lines that begin with # are comments.
fn parse(text: &[u8], zero: bool, wanted: Option<Hash>, list: &Path) -> Result<Listed, Failure> {
    let mut reader = LineReader::new(wanted);
    let mut listed = Listed::default();
    let crlf = !zero && (wanted.is_some_and(escapes_cr) || all_end_with_cr(text));
    for (at, line) in text.split(|b| *b == if zero { 0 } else { b'\n' }).enumerate() {
        let line = if crlf { line.strip_suffix(b"\r").unwrap_or(line) } else { line };
        // Where only some lines end with CR, an empty line may consist of one.
        if line.is_empty() || line == b"\r" || line.starts_with(b"#") {
            continue;
        }
        match reader.read(line) {
            Some(line) => {
                let hash = hash_of(&line).map_err(|possible| ambiguous(list, at + 1, &possible))?;
                listed.add(at + 1, line, hash, list);
            }
            None => {
                let name = unsupported(line);
                // With a wanted hash, all other lines count as improperly formatted.
                if wanted.is_some() || name.is_none() {
                    listed.unknown.push(at + 1);
                }
                listed.unsupported.extend(name.map(|name| (at + 1, name.to_owned())));
            }
        }
    }
    Ok(listed)
}

/// Returns whether all lines end with CR and LF. A CR at the end of only some is part of their names,
/// which b3sum and xxhsum do not escape.
fn all_end_with_cr(text: &[u8]) -> bool {
    let lines = text.split_inclusive(|b| *b == b'\n').filter_map(|line| line.strip_suffix(b"\n"));
    lines.filter(|line| !line.is_empty()).all(|line| line.ends_with(b"\r"))
}

/// Returns the hash of a line, or those that have as many digits. Lines of 40 digits without a tag are
/// read as sha1, whose lists are common. Other lengths are also those of several hashes, or of hashes
/// that are not supported, such as XXH32, XXH128 and SHA3.
fn hash_of(line: &Line<'_>) -> Result<Hash, Vec<Hash>> {
    let same = |hash: &Hash| hash.digits() == line.hex.len();
    let possible = || Hash::ALL.into_iter().filter(same).collect::<Vec<_>>();
    match (line.hash, possible()) {
        (Some(hash), _) => Ok(hash),
        (None, possible) if possible == [Hash::Sha1] => Ok(Hash::Sha1),
        (None, possible) => Err(possible),
    }
}

fn ambiguous(list: &Path, number: usize, possible: &[Hash]) -> Failure {
    let digits = possible.first().map_or(0, |hash| hash.digits());
    let tags: Vec<&str> = possible.iter().map(|hash| hash.tag()).collect();
    let flags: Vec<String> =
        possible.iter().map(|hash| format!("--compute {}", hash.name())).collect();
    Failure::usage(format!(
        "{}: line {number} does not name its hash, and {digits} digits may be {} or another hash; \
         add {} if they are {}",
        named(list),
        tags.join(", "),
        flags.join(" or "),
        tags.join(" or ")
    ))
}

/// Hashes the files and prints their results in the order of the list.
fn verify(args: &EachArgs, listed: &mut Listed, stop: &Arc<AtomicBool>) -> Result<Counts, Failure> {
    args.check_chunk()?;
    let mut plan = args.plan_with_all_descriptors();
    if plan.method.is_mmap() || plan.method == Method::Null {
        return Err(Failure::refused("--check needs a method that reads; choose another --method"));
    }
    stream(&mut plan);
    fit(&mut plan, args);
    let job = Job { plan, compute: Compute::default(), exec: None };
    let give_up = || stop.store(true, Ordering::Relaxed);
    let without_reader = WithoutReader::GoesOn;
    let manner = Manner { without_reader, ..Manner::of(true, false) };
    let sink = Sink::new(manner, &Bar::None, &give_up);
    let comparison = Comparison {
        expected: &listed.expected,
        ignore_missing: args.ignore_missing,
        quiet: args.quiet,
        status: args.status,
    };
    let early = Local::counting(standard_input(&listed.input, comparison, &sink, stop)?);
    let work = EachWork::new(&job, Lines::Compare(&sink, comparison), false);
    let files = Files::from(std::mem::take(&mut listed.paths));
    // The lines of standard input are there before any file is taken: so many could fill the room for good.
    let files = match listed.input.len() > SHORT_LIST {
        true => files,
        false => sink.holding_back(files, &plan),
    };
    let files = files
        .pin(plan)
        .start_on_demand(args.may_be_fitted())
        .accept_fewer_threads(!args.has_schedule())
        .cancel(&Cancel::from_flag(stop.clone()))
        .partial(true)
        .progress(|_| sink.tick());
    let run = work.run(files, early);
    let is_whole = sink.finish()?;
    let run = run.map_err(failure)?;
    if run.cancelled || !is_whole {
        return Err(interrupted());
    }
    Ok(run.value.counts)
}

/// Compares standard input with each line that names it. The first reads it to its end.
fn standard_input(
    lines: &[Expected],
    comparison: Comparison<'_>,
    sink: &Sink<'_>,
    stop: &AtomicBool,
) -> Result<Counts, Failure> {
    let mut counts = Counts::default();
    for expected in lines {
        let hash = expected.hash;
        let read = crate::interrupt::unless_raised(stop, move || hash_input(hash));
        match read.ok_or_else(interrupted)? {
            Ok(hex) if comparison.compare(sink, expected, (b"-", &hex)) => counts.right += 1,
            Ok(_) => {
                counts.wrong += 1;
                counts.guessed += u64::from(expected.guessed);
            }
            Err(reason) => {
                sink.report(|| stderr::message(&format!("cannot read standard input: {reason}")));
                sink.line(expected.at, &comparison.unreadable(b"-"));
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// Hashes standard input up to its end. Returns the digits, or why it cannot be read.
fn hash_input(hash: Hash) -> Result<String, String> {
    let input = standard_input::open().map_err(|_| "it is closed".to_owned())?;
    let kernel = Kernel::new(Compute::Hash(hash), None, 1).without_proof().with_hex();
    let (mut state, mut offset) = (kernel.begin(), 0);
    let mut buffer = vec![0; CHUNK_BYTES as usize];
    let mut input = input.lock();
    loop {
        match input.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                kernel.piece(&mut state, 0, offset, false, &buffer[..read]);
                offset += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Explained::new(Operation::Read, &error).to_string()),
        }
    }
    Ok(kernel.finish(state, 0).hex.unwrap_or_default())
}

fn interrupted() -> Failure {
    Failure::new(Exit::Interrupted, "interrupted")
}

/// Prints what was wrong.
fn summarise(args: &EachArgs, list: &Path, unknown: u64, counts: Counts) {
    let say = |count: u64, one: &str, many: &str| {
        if count > 0 {
            let words = if count == 1 { one } else { many };
            stderr::message(&format!("{count} {words}"));
        }
    };
    let lines = |verb| format!("of {} {verb} improperly formatted", named(list));
    say(unknown, &format!("line {}", lines("is")), &format!("lines {}", lines("are")));
    say(counts.failed, "listed file could not be read", "listed files could not be read");
    say(counts.wrong, "computed checksum did not match", "computed checksums did not match");
    if counts.guessed > 0 {
        stderr::message(
            "lines of 40 digits without a tag were read as SHA1; add tags if they are of another \
             hash",
        );
    }
    if args.ignore_missing && counts.right == 0 {
        stderr::message(&format!("{}: no file was verified", named(list)));
    }
}

/// Returns the name of the list for messages.
fn named(list: &Path) -> String {
    match list.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => quoted(list).to_string(),
    }
}

fn read_all(list: &Path) -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let read = if list.as_os_str() == "-" {
        standard_input::required()?.read_to_end(&mut text).map(|_| ())
    } else {
        std::fs::read(list).map(|all| text = all)
    };
    read.map_err(|e| {
        let explained = Explained::new(Operation::Read, &e);
        Failure::failed(format!("cannot read {}: {explained}", named(list)))
    })?;
    Ok(text)
}
