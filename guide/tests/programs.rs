//! Runs the programs of the guide over small files and checks what they print.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program that takes longer hangs.
const NEVER: Duration = Duration::from_secs(10);

/// Runs a program and returns its standard output.
fn run(program: &str, args: &[&str]) -> String {
    run_with(program, args, &[])
}

/// Runs a program with these variables as well.
fn run_with(program: &str, args: &[&str], variables: &[(&str, &str)]) -> String {
    let out = output(program, args, variables);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{program}: {errors}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn output(program: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let since = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if since.elapsed() > NEVER {
            child.kill().unwrap();
            panic!("{program} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().unwrap()
}

fn dir(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn from_rayon() {
    let dir = dir(&[("a", "1\n2\n"), ("b/c", "3\n"), ("b/d", "")]);
    let out = run(env!("CARGO_BIN_EXE_from_rayon"), &[text(dir.path())]);
    assert_eq!(out, "3 lines in 3 files\n");
}

#[test]
fn inside_tokio() {
    let dir = dir(&[("a", "1234"), ("b/c", "56")]);
    let out = run(env!("CARGO_BIN_EXE_inside_tokio"), &[text(dir.path())]);
    assert_eq!(out, "6 bytes in 2 files; 0 failed\n");
}

/// More files than results that may wait.
#[test]
fn inside_tokio_ends_at_its_timeout() {
    let dir = dir(&[]);
    for number in 0..4000 {
        fs::write(dir.path().join(number.to_string()), "x").unwrap();
    }
    let out = output(env!("CARGO_BIN_EXE_inside_tokio"), &[text(dir.path()), "0"], &[]);
    assert!(!out.status.success(), "{out:?}");
}

#[test]
fn inside_rayon() {
    let (one, two) = (dir(&[("a", "\x01\x02")]), dir(&[("b", "\x03"), ("c", "\x04")]));
    let out = run(env!("CARGO_BIN_EXE_inside_rayon"), &[text(one.path()), text(two.path())]);
    let sums: Vec<&str> = out.lines().map(|line| line.split("  ").next().unwrap()).collect();
    assert_eq!(sums, ["3", "7"]);
}

/// Each file has several parts for rayon, and there are more runs than threads of rayon.
#[test]
fn inside_rayon_no_run_occupies_the_threads_that_its_function_needs() {
    let large = "\x01".repeat(3 << 20);
    let (one, two) = (dir(&[("a", large.as_str())]), dir(&[("b", large.as_str())]));
    let args = [text(one.path()), text(two.path())];
    let one_thread = ("RAYON_NUM_THREADS", "1");
    let out = run_with(env!("CARGO_BIN_EXE_inside_rayon"), &args, &[one_thread]);
    assert_eq!(out.lines().filter(|line| line.starts_with("3145728  ")).count(), 2, "{out}");
}

#[test]
fn archives() {
    let dir = dir(&[("ignored.txt", "x")]);
    let file = fs::File::create(dir.path().join("a.tgz")).unwrap();
    let mut archive =
        tar::Builder::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()));
    for (name, bytes) in [("first", 5_000_000), ("second", 3)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_cksum();
        let data = std::io::Read::take(std::io::repeat(7), bytes);
        archive.append_data(&mut header, name, data).unwrap();
    }
    archive.into_inner().unwrap().finish().unwrap();
    let out = run(env!("CARGO_BIN_EXE_archives"), &[text(dir.path())]);
    let path = dir.path().join("a.tgz");
    let path = path.display();
    assert_eq!(out, format!("5000000  {path}: first\n3  {path}: second\n"));
}

#[test]
fn json() {
    let dir = dir(&[
        ("a.json", r#"{"price": 1.25}"#),
        ("b.json", r#"{"price": 2}"#),
        ("c.json", "{\n oops"),
    ]);
    let out = run(env!("CARGO_BIN_EXE_json"), &[text(dir.path())]);
    let wrong = dir.path().join("c.json");
    let wanted = format!("sum 3.25 of 2 documents\nline 2 is not JSON: {}\n", wrong.display());
    assert_eq!(out, wanted);
}

#[test]
fn thumbnails() {
    let dir = dir(&[]);
    for number in 0..12 {
        let file = fs::File::create(dir.path().join(format!("{number}.png"))).unwrap();
        let mut encoder = png::Encoder::new(file, 1024, 512);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        writer.write_image_data(&vec![number; 1024 * 512 * 3]).unwrap();
    }
    let out = run(env!("CARGO_BIN_EXE_thumbnails"), &[text(dir.path())]);
    assert_eq!(out, "12 thumbnails of 24576 pixels, none wider than 64\n");
}

#[test]
fn search() {
    let dir =
        dir(&[("a", "no\nneedle one\n"), ("b", "needle two\nneedle three\n"), (".h", "needle")]);
    let out = run(env!("CARGO_BIN_EXE_search"), &["needle", text(dir.path()), "2"]);
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    assert_eq!(out, format!("{}:2:needle one\n{}:1:needle two\n", a.display(), b.display()));
}

#[test]
fn search_names_what_it_cannot_read() {
    let dir = dir(&[]);
    let missing = dir.path().join("missing");
    let out = output(env!("CARGO_BIN_EXE_search"), &["needle", text(&missing)], &[]);
    let errors = String::from_utf8_lossy(&out.stderr);
    assert!(errors.contains(text(&missing)), "{errors}");
}

#[test]
fn crawler() {
    let dir = dir(&[("main.c", "#include \"a.h\"\n#include \"gone.h\"\n"), ("b.h", "")]);
    let mut a = fs::File::create(dir.path().join("a.h")).unwrap();
    writeln!(a, "#include \"b.h\"\n#include \"main.c\"").unwrap();
    let out = run(env!("CARGO_BIN_EXE_crawler"), &[text(&dir.path().join("main.c"))]);
    assert!(out.starts_with("4 files, 1 missing\ncannot stat "), "{out}");
}
