//! The commands of the guide and of the README work in the order given, in an empty home directory, that of the guide
//! with some files.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Returns the command lines in the blocks of a page that are marked `sh`.
fn commands(page: &str) -> Vec<&str> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.flat_map(str::lines).filter(|line| !line.trim().is_empty()).collect()
}

fn sample(dir: &Path) {
    let photos = dir.join("photos/sub");
    std::fs::create_dir_all(&photos).unwrap();
    for (i, name) in ["a.jpg", "b.jpg", "notes.txt", "sub/c.jpg"].into_iter().enumerate() {
        std::fs::write(dir.join("photos").join(name), vec![i as u8; 5000 + i]).unwrap();
    }
}

/// Returns a directory with the program, and a search path that begins with it.
fn installed() -> (tempfile::TempDir, String) {
    let bin = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_ioloom"), bin.path().join("ioloom")).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", bin.path().display());
    (bin, path)
}

/// Studies take minutes, and the server uses a fixed port; other tests run both.
#[test]
fn the_tools_of_the_readme_work() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let (_, tools) = text.split_once("\n## The tools\n").unwrap();
    let (tools, _) = tools.split_once("\n## ").unwrap();
    let (_bin, path) = installed();
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let others = ["ioloom study ", "ioloom compare ", "ioloom serve ", "ioloom load ", "kill $!"];
    let mut ran = 0;
    for line in commands(tools) {
        if others.iter().any(|start| line.starts_with(start)) {
            continue;
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(home.path()).env("PATH", &path);
        shell.env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join(".data"));
        let done = shell.output().unwrap();
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{line}: {words}");
        ran += 1;
    }
    assert!(ran > 12, "only {ran} commands");
}

#[test]
fn every_command_of_the_guide_works() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/guide");
    let (_bin, path) = installed();
    let mut ran = 0;
    for page in std::fs::read_dir(guide).unwrap() {
        let page = page.unwrap().path();
        let text = std::fs::read_to_string(&page).unwrap();
        let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        sample(home.path());
        for line in commands(&text) {
            let mut shell = Command::new("sh");
            shell.args(["-c", line]).current_dir(home.path()).env("PATH", &path);
            shell.env("HOME", home.path()).env("XDG_DATA_HOME", home.path().join(".data"));
            let done = shell.output().unwrap();
            let words = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(done.status.success(), "{}: {line}: {words}", page.display());
            ran += 1;
        }
    }
    assert!(ran > 25, "only {ran} commands");
}
