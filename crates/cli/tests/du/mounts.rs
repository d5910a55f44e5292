//! Mounts, each in a mount namespace of its own that ends with its shell: nothing is left behind.

use crate::place::{PROGRAM, Place, Ran, gnu_is_there};
use std::process::{Command, Stdio};

/// Runs a shell script as root of a mount namespace of its own. `None`, with a word, where that
/// may not be.
fn in_own_mounts(place: &Place, script: &str) -> Option<Ran> {
    let run = |script: &str| -> Ran {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", script, "sh", PROGRAM]).current_dir(place.path());
        command.stdin(Stdio::null()).env("LC_ALL", "C").env("PATH", path());
        command.output().map_or(
            Ran { code: None, out: Vec::new(), err: "unshare does not start".into() },
            Ran::from,
        )
    };
    let try_it = run("mkdir -p try && mount -t tmpfs none try");
    if try_it.code != Some(0) {
        println!("skipped: mounting is not for us: {}", try_it.err.trim());
        return None;
    }
    Some(run(script))
}

/// Root's tools lie outside the path of some sessions.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

/// In a script: the same flags for both programs, and a word where they differ.
const BOTH: &str = "
both() {
  ours=$(\"$1\" du \"$2\" $3 $4 $5) || echo \"ours ended with $?\"
  gnus=$(du \"$2\" $3 $4 $5) || echo \"du ended with $?\"
  [ \"$ours\" = \"$gnus\" ] || { echo \"differ: $2 $3 $4: $ours / $gnus\"; }
}
every() {
  for sum in -s -sb --inodes; do
    for how in -k -x -L -l; do
      both \"$1\" $sum -d0 $how t
    done
  done
}
";

#[test]
fn bind_mounts_and_other_file_systems_are_counted_as_gnu_du_counts_them() {
    if !gnu_is_there() {
        return;
    }
    let place = Place::new();
    place.odd_tree("t");
    place.hard_links("t");
    let script = "
mkdir t/bound t/loop t/memory elsewhere
echo outside > elsewhere/file
mount --bind t/deep t/bound
mount --bind t t/loop
mount -t tmpfs none t/memory
mkdir t/memory/sub; echo x > t/memory/sub/f
touch t/onto; mount --bind elsewhere/file t/onto
rm t/self
every \"$1\"
";
    let Some(ran) = in_own_mounts(&place, &format!("{BOTH}{script}")) else { return };
    assert_eq!(ran.ended(0).text(), "");
}

#[test]
fn one_mount_stays_where_one_device_does_not() {
    let place = Place::new();
    place.write("t/own/f", [1; 5000]);
    place.write("other/g", [1; 90_000]);
    let script = "
before=$(\"$1\" du -sb t/own)
mkdir t/own/bound; mount --bind other t/own/bound
\"$1\" du -s --inodes t/own
\"$1\" du -sx --inodes t/own
\"$1\" du -s --one-mount --inodes t/own
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    assert_eq!(ran.ended(0).text(), "4\tt/own\n4\tt/own\n2\tt/own\n");
}

#[test]
fn file_systems_of_the_kernel_are_entered_only_by_name() {
    let place = Place::new();
    place.write("t/f", "x");
    let script = "
mkdir -p t/sub/kernel; mount -t proc none t/sub/kernel
\"$1\" du -s --inodes t
\"$1\" du -s --inodes --all-file-systems -d0 t > all || true
\"$1\" du -s --inodes t/sub/kernel/sys > named || true
wc -l < named
[ \"$(cut -f1 all)\" -gt 1000 ] && echo all
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    let ran = ran.ended(0);
    assert_eq!(ran.text(), "3\tt\n1\nall\n");
    assert!(ran.err.contains("t/sub/kernel (proc) is not entered"), "{}", ran.err);
}

#[test]
fn sums_are_those_of_gnu_du_on_other_file_systems() {
    if !gnu_is_there() {
        return;
    }
    for (kind, mib) in [("ext4", 64), ("xfs", 320), ("btrfs", 128)] {
        let there = Command::new(format!("mkfs.{kind}")).arg("-V").env("PATH", path()).output();
        if there.is_err() {
            println!("skipped: no mkfs.{kind} here");
            continue;
        }
        let place = Place::new();
        place.odd_tree("copy");
        place.hard_links("copy");
        let script = format!(
            "
truncate -s {mib}M image; mkfs.{kind} -q image >&2; mkdir mnt
mount -o loop image mnt || {{ echo cannot; exit 0; }}
mkdir mnt/t; cp -a copy/. mnt/t/; cd mnt
[ {kind} = btrfs ] && btrfs subvolume create t/volume >/dev/null 2>&1 && echo x > t/volume/f
rm t/self
every \"$1\"
"
        );
        let Some(ran) = in_own_mounts(&place, &format!("{BOTH}{script}")) else { return };
        if ran.text() == "cannot\n" {
            println!("skipped: no {kind} can be mounted: {}", ran.err.trim());
            continue;
        }
        assert_eq!(ran.ended(0).text(), "", "{kind}");
    }
}
