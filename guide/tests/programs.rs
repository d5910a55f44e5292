//! Runs the programs of the guide over small files and checks what they print.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program that takes longer hangs.
const NEVER: Duration = Duration::from_secs(60);

/// Runs a program and returns its standard output.
fn run(program: &str, args: &[&str]) -> String {
    run_with(program, args, &[])
}

/// Runs a program that must fail, and returns its standard output and its errors.
fn run_failing(program: &str, args: &[&str]) -> (String, String) {
    let out = output(program, args, &[]);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1), "{program}: {}: {errors}", out.status);
    (String::from_utf8_lossy(&out.stdout).into_owned(), errors)
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

/// The sum of part of the files is printed, and is a failure.
#[test]
fn failures_are_reported_by_the_exit_status() {
    let dir = dir(&[]);
    let missing = dir.path().join("missing");
    let (out, errors) = run_failing(env!("CARGO_BIN_EXE_from_rayon"), &[text(&missing)]);
    assert_eq!(out, "0 lines in 0 files\n");
    assert!(errors.contains(text(&missing)) && errors.contains("failures: 1"), "{errors}");
    let (out, errors) = run_failing(env!("CARGO_BIN_EXE_inside_tokio"), &[text(&missing)]);
    assert_eq!(out, "0 bytes in 0 files; 1 failed\n");
    assert!(errors.contains("failures: 1"), "{errors}");
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
    let errors = String::from_utf8_lossy(&out.stderr);
    let is_expected = errors.contains("Elapsed") || errors.contains("Cancelled");
    assert!(!out.status.success() && is_expected, "{errors}");
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

/// Programs that compress in parallel write several gzip members. The first one here ends with a
/// file of the archive.
#[test]
fn archives_of_several_gzip_members() {
    let dir = dir(&[]);
    let mut archive = tar::Builder::new(Vec::new());
    for name in ["first", "second"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(512);
        header.set_cksum();
        archive.append_data(&mut header, name, &[7_u8; 512][..]).unwrap();
    }
    let mut bytes = Vec::new();
    for part in archive.into_inner().unwrap().chunks(1024) {
        let mut gzip = flate2::write::GzEncoder::new(&mut bytes, flate2::Compression::fast());
        gzip.write_all(part).unwrap();
        gzip.finish().unwrap();
    }
    let path = dir.path().join("a.tgz");
    fs::write(&path, bytes).unwrap();
    let out = run(env!("CARGO_BIN_EXE_archives"), &[text(dir.path())]);
    let path = path.display();
    assert_eq!(out, format!("512  {path}: first\n512  {path}: second\n"));
}

#[test]
fn json() {
    let dir = dir(&[
        ("a.json", r#"{"price": 1.25}"#),
        ("b.json", r#"{"price": 2}"#),
        ("c.json", "{\n oops"),
    ]);
    let (out, errors) = run_failing(env!("CARGO_BIN_EXE_json"), &[text(dir.path())]);
    let wrong = dir.path().join("c.json");
    let wanted = format!("sum 3.25 of 2 documents\nline 2 is not JSON: {}\n", wrong.display());
    assert_eq!(out, wanted);
    assert!(errors.contains("failures: 1"), "{errors}");
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

/// One bit per pixel with a palette, and 16 bits per sample.
#[test]
fn thumbnails_of_other_depths() {
    let dir = dir(&[]);
    let one_bit = (png::ColorType::Indexed, png::BitDepth::One, 1024 / 8);
    let sixteen_bits = (png::ColorType::Rgba, png::BitDepth::Sixteen, 1024 * 8);
    for (name, (color, depth, line)) in [("1.png", one_bit), ("16.png", sixteen_bits)] {
        let file = fs::File::create(dir.path().join(name)).unwrap();
        let mut encoder = png::Encoder::new(file, 1024, 512);
        encoder.set_color(color);
        encoder.set_depth(depth);
        encoder.set_palette(vec![0, 0, 0, 255, 255, 255]);
        encoder.write_header().unwrap().write_image_data(&vec![9; line * 512]).unwrap();
    }
    let out = run(env!("CARGO_BIN_EXE_thumbnails"), &[text(dir.path())]);
    assert_eq!(out, "2 thumbnails of 4096 pixels, none wider than 64\n");
}

/// A header of 120 GB is refused before memory is allocated; the other image is processed.
#[test]
fn thumbnails_of_an_image_larger_than_memory() {
    let dir = dir(&[]);
    for (name, width, height) in [("large.png", 20_000, 2_000_000), ("small.png", 8, 8)] {
        let file = fs::File::create(dir.path().join(name)).unwrap();
        let mut encoder = png::Encoder::new(file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let mut writer = encoder.write_header().unwrap();
        match name {
            "small.png" => writer.write_image_data(&[1; 8 * 8 * 3]).unwrap(),
            _ => writer.write_chunk(png::chunk::IDAT, &[]).unwrap(),
        }
    }
    let (out, errors) = run_failing(env!("CARGO_BIN_EXE_thumbnails"), &[text(dir.path())]);
    assert_eq!(out, "1 thumbnails of 64 pixels, none wider than 8\n");
    let wanted = format!("cannot process '{}': limits", text(&dir.path().join("large.png")));
    assert!(errors.contains(&wanted) && errors.contains("failures: 1"), "{errors}");
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
    let (out, errors) = run_failing(env!("CARGO_BIN_EXE_search"), &["needle", text(&missing)]);
    assert_eq!(out, "");
    assert!(errors.contains(text(&missing)) && errors.contains("failures: 1"), "{errors}");
}

#[test]
fn search_refuses_an_empty_word() {
    let dir = dir(&[("a", "text\n")]);
    let (_, errors) = run_failing(env!("CARGO_BIN_EXE_search"), &["", text(dir.path())]);
    assert!(errors.contains("the word is empty"), "{errors}");
}

#[test]
fn crawler() {
    let dir = dir(&[("main.c", "#include \"a.h\"\n#include \"gone.h\"\n"), ("b.h", "")]);
    let mut a = fs::File::create(dir.path().join("a.h")).unwrap();
    writeln!(a, "#include \"b.h\"\n#include \"main.c\"").unwrap();
    let out = run(env!("CARGO_BIN_EXE_crawler"), &[text(&dir.path().join("main.c"))]);
    assert!(out.starts_with("4 files, 1 missing\ncannot stat "), "{out}");
}

#[test]
fn crawler_of_files_that_include_one_another_in_other_directories() {
    let dir = dir(&[
        ("a/a.h", "#include \"../b/b.h\"\n#include \"../c/c.h\"\n"),
        ("b/b.h", "#include \"../a/a.h\"\n#include \"../c/c.h\"\n"),
        ("c/c.h", "#include \"../a/a.h\"\n#include \"../b/b.h\"\n"),
    ]);
    let out = run(env!("CARGO_BIN_EXE_crawler"), &[text(&dir.path().join("a/a.h"))]);
    assert_eq!(out, "3 files, 0 missing\n");
}
