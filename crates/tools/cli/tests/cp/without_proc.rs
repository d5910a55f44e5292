//! Copies where `/proc` is not mounted, as in a chroot.

use crate::{ioloom, place, said};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs a copy with an empty `/proc`. Returns `None`, with a message, if this user may not mount.
fn cp(dir: &Path, args: &[&str]) -> Option<Output> {
    let hide = "mount -t tmpfs none /proc || exit 99; exec \"$0\" cp \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", hide]).arg(ioloom().get_program()).args(args);
    let output = command.current_dir(dir).output().ok()?;
    let may_not = output.status.code() == Some(99) || said(&output).starts_with("unshare:");
    if may_not {
        println!("skipped: {}", said(&output).trim());
    }
    (!may_not).then_some(output)
}

fn text(dir: &Path, program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).current_dir(dir).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_replaced_file_keeps_its_acl() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("new"), "new").unwrap();
    fs::write(at("old"), "old").unwrap();
    fs::set_permissions(at("old"), fs::Permissions::from_mode(0o600)).unwrap();
    if text(dir.path(), "setfacl", &["-m", "u:1000:rw", "old"]).is_none() {
        return println!("skipped: setfacl is missing or not supported here");
    }
    let acl = || text(dir.path(), "getfacl", &["-c", "old"]).unwrap();
    let before = acl();
    let Some(output) = cp(dir.path(), &["new", "old"]) else { return };
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!((fs::read(at("old")).unwrap(), acl()), (b"new".to_vec(), before));
}

#[test]
fn links_and_pipes_are_copied_with_their_attributes() {
    let dir = place();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir_all(at("tree/sub")).unwrap();
    fs::write(at("tree/sub/file"), "text").unwrap();
    std::os::unix::fs::symlink("file", at("tree/sub/link")).unwrap();
    assert!(text(dir.path(), "mkfifo", &["-m", "620", "tree/pipe"]).is_some());
    let labels =
        || text(dir.path(), "setfattr", &["-hn", "trusted.test", "-v", "x", "tree/sub/link"]);
    let is_labelled = labels().is_some();
    let Some(output) = cp(dir.path(), &["-a", "tree", "copy"]) else { return };
    assert!(output.status.success() && output.stderr.is_empty(), "{}", said(&output));
    let shown = |name: &str| text(dir.path(), "stat", &["-c", "%A %u %Y", name]);
    for name in ["", "/pipe", "/sub", "/sub/link", "/sub/file"] {
        assert_eq!(shown(&format!("copy{name}")), shown(&format!("tree{name}")), "{name}");
    }
    if is_labelled {
        let args = ["-hn", "trusted.test", "--only-values", "copy/sub/link"];
        assert_eq!(text(dir.path(), "getfattr", &args).as_deref(), Some("x"));
    }
}
