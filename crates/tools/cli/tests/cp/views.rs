//! Copies between two views of one directory (an overlay and its upper directory, bind mounts), and of mounts in a source.

use crate::{ioloom, place, said};
use std::process::Command;

/// Runs a script in its own mounts and returns its output. Returns `None`, with a message, if this user may not mount.
fn run(script: &str) -> Option<String> {
    let dir = place();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(ioloom().get_program());
    let output = command.env("LC_ALL", "C").current_dir(dir.path()).output().ok()?;
    let may_not = output.status.code() == Some(99) || said(&output).starts_with("unshare:");
    if may_not {
        println!("skipped: {}", said(&output).trim());
    }
    (!may_not).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Goal: a directory that is copied into itself through an overlay ends. Its identities differ from those of the upper
/// directory.
#[test]
fn a_copy_of_an_upper_directory_into_its_overlay_ends() {
    let script = r#"
mkdir t; mount -t tmpfs -o size=50m none t && cd t && mkdir L up wk o && echo x > L/f &&
  mount -t overlay none -o lowerdir=L,upperdir=up,workdir=wk o || exit 99
echo a > o/a
timeout 20 "$0" cp -a up o/i 2> said; echo $?; cat said; ls -A o
rm -r o/i
timeout 20 "$0" cp -a --resume up o/i 2> said; echo $?; find o -type d | sort
rm -r o/i o/.i.*; mkdir o/e
timeout 20 "$0" cp -a up/. o/e 2> said; echo $?; find o -type d | sort
rm -r o/e; mkdir o/e
timeout 20 "$0" cp -a --resume up/. o/e 2> said; echo $?; find o -type d | sort
"#;
    let Some(output) = run(script) else { return };
    let expected = "1\nioloom: cannot copy a directory, 'up', into itself, 'o/i'\na\nf\ni\n\
                    1\no\no/i\n1\no\no/e\n1\no\no/e\n";
    assert_eq!(output, expected);
}

/// Goal: the same where new directories get their final names at once (`--copy-contents`, append-only directories),
/// and for a target that has another name in the source. Method: copies in both directions.
#[test]
fn a_copy_into_itself_through_an_overlay_ends_without_hidden_names() {
    let script = r#"
mkdir t; mount -t tmpfs -o size=50m none t && cd t && mkdir -p L up/e wk o up2/m wk2 o2 && echo x > L/f &&
  mount -t overlay none -o lowerdir=L,upperdir=up,workdir=wk o &&
  mount -t overlay none -o lowerdir=L,upperdir=up2/m,workdir=wk2 o2 || exit 99
timeout 20 "$0" cp -a --copy-contents up o/i 2> said; echo $?; cat said; find o -type d | sort
timeout 20 "$0" cp -a --copy-contents o/. up/e 2> said; echo $?; cat said; find up -type d | sort
timeout 20 "$0" cp -aT --copy-contents up2 o2 2> said; echo $?; cat said; find o2 -type d
chattr +a up/e 2> said
timeout 20 "$0" cp -a o/. up/e 2> said; [ $? = 124 ] || echo ended
"#;
    let Some(output) = run(script) else { return };
    let expected = "1\nioloom: cannot copy a directory, 'up', into itself, 'o/i'\no\no/e\no/i\no/i/e\n\
                    1\nioloom: cannot copy a directory, 'o/.', into itself, 'up/e/.'\n\
                    up\nup/e\nup/e/i\nup/e/i/e\nup/i\nup/i/e\n\
                    1\nioloom: cannot copy a directory, 'up2', into itself, 'o2'\no2\nended\n";
    assert_eq!(output, expected);
}

/// Goal: a file is not emptied by a copy onto itself through an overlay; one that looks like it is overwritten. Method:
/// a file with two links, a symbolic link to it, and `--in-place`.
#[test]
fn a_file_is_not_written_in_place_through_an_overlay_of_itself() {
    let script = r#"
mkdir t; mount -t tmpfs -o size=50m none t && cd t && mkdir L up wk o && echo data > up/f && ln up/f up/h &&
  cp -p up/f up/g && ln -s o/f l && mount -t overlay none -o lowerdir=L,upperdir=up,workdir=wk o || exit 99
"$0" cp up/f o/f 2>&1; echo $?; cat up/f
"$0" cp --in-place up/h l 2>&1; echo $?; cat up/f
"$0" cp --in-place up/g o/g 2>&1; echo $?; cat up/g
"$0" cp --in-place up/f o/g 2>&1; echo $?; cat up/g
"#;
    let Some(output) = run(script) else { return };
    let expected = "ioloom: 'up/f' and 'o/f' are the same file\n1\ndata\n\
                    ioloom: 'up/h' and 'l' are the same file\n1\ndata\n\
                    ioloom: 'up/g' and 'o/g' are the same file\n1\ndata\n0\ndata\n";
    assert_eq!(output, expected);
}

/// Goal: a directory is not copied into itself through a bind mount, on any file system. What is mounted over a
/// directory of the source is not part of a bind mount of the source, and a mount in the source can hide the target.
#[test]
fn a_copy_into_the_source_by_a_bind_mount_is_refused_before_it_starts() {
    let script = r#"
mkdir -p b/q/s b/m bb other; echo x > b/q/s/f
mount --bind b bb || exit 99
"$0" cp -a b/q/s bb/q/s/in 2>&1; echo $?; ls -A b/q/s
mount --bind other b/m || exit 99
"$0" cp -a bb b/m/copy 2>&1; echo $?; ls -A other/copy
mount -t tmpfs none bb/q || exit 99
"$0" cp -a bb b/q/copy 2>&1; echo $?; ls -A b/q/copy
"#;
    let Some(output) = run(script) else { return };
    let expected = "ioloom: cannot copy a directory, 'b/q/s', into itself, 'bb/q/s/in'\n\
                    1\nf\n0\nm\nq\n0\nm\nq\n";
    assert_eq!(output, expected);
}

/// Goal: a copy that stays on one file system does not report files of others when space is exhausted. Method: no inode
/// for anything but the new directory.
#[test]
fn without_space_files_of_other_file_systems_are_not_reported() {
    let script = r#"
mkdir -p s/m t && echo x > s/f && mount -t tmpfs -o nr_inodes=2 none t && mount -t tmpfs none s/m &&
  echo x > s/m/in || exit 99
"$0" cp -ax -T s t/c 2> said; echo $?; grep -c "No space left" said; grep "m/in" said; ls -A t
"#;
    let Some(output) = run(script) else { return };
    assert_eq!(output, "1\n2\n");
}
