//! Mounts, each in a mount namespace that disappears with its shell.

use crate::place::{Du, PROGRAM, ProcessOutput, Workspace, fresh, gnu_is_there};
use std::process::{Command, Stdio};

/// Runs a shell script as root in a mount namespace. Prints a message and returns `None` if this is
/// not permitted.
fn in_own_mounts(place: &Workspace, script: &str) -> Option<ProcessOutput> {
    let run = |script: &str| -> ProcessOutput {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-ec", script, "sh", PROGRAM]).current_dir(place.path());
        command.stdin(Stdio::null()).env("LC_ALL", "C").env("PATH", path());
        command.output().map_or(
            ProcessOutput {
                code: None,
                signal: None,
                out: Vec::new(),
                err: "unshare cannot be started".into(),
            },
            ProcessOutput::from,
        )
    };
    let try_it = run("mkdir -p try && mount -t tmpfs none try");
    if try_it.code != Some(0) {
        println!("skipped: cannot mount here: {}", try_it.err.trim());
        return None;
    }
    Some(run(script))
}

/// Goal: with `-x` an argument that is a mount inside another one, or below such a mount, is processed. Method: two
/// file systems, and a directory of the outer one that is bound into the inner one.
#[test]
fn shards_with_nested_arguments_on_other_devices_leave_nothing_out() {
    let place = fresh();
    let script = r#"
mkdir t && mount -t tmpfs none t && mkdir -p t/a/bound t/vol && mount -t tmpfs none t/vol
mkdir -p t/vol/deep/er t/vol/bound && mount --bind t/a/bound t/vol/bound
echo 1 > t/a/outer; echo 2 > t/a/bound/both; echo 3 > t/vol/deep/er/inner
for args in 't t/vol' 't/vol t' 't t/vol t/vol/bound'; do
  mkdir parts copies copy
  "$1" shard plan --subtrees -x --shards 3 --out p $args > /dev/null
  for i in 1 2 3; do
    "$1" du --shard $i/3 --manifest p --part parts > /dev/null
    "$1" cp -r --shard $i/3 --manifest p --part copies copy > /dev/null
  done
  echo "$args: $("$1" shard merge --json p parts | tr -d ' ' | grep -o '"inodes":[0-9]*')"
  "$1" shard merge p copies > /dev/null
  (cd copy && find . -type f | LC_ALL=C sort)
  rm -r p parts copies copy
done
"#;
    let Some(output) = in_own_mounts(&place, script) else { return };
    assert_eq!(output.err, "");
    // Five inodes of the outer file system, four of the inner one, and two that have a second path.
    let two = "./t/a/bound/both\n./t/a/outer\n./vol/deep/er/inner\n";
    let expected = [
        ("t t/vol", 9, two.to_owned()),
        ("t/vol t", 9, two.to_owned()),
        ("t t/vol t/vol/bound", 11, format!("./bound/both\n{two}")),
    ];
    let line = |(args, inodes, files)| format!("{args}: \"inodes\":{inodes}\n{files}");
    assert_eq!(output.text(), expected.map(line).concat());
}

/// System administration tools are not in the PATH of some sessions.
fn path() -> String {
    std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin"
}

/// Shell functions that run both programs with the same flags and report different output.
const BOTH: &str = "
both() {
  ours=$(\"$1\" du $METHOD \"$2\" $3 $4 $5) || echo \"ours exited with $?\"
  gnus=$(du \"$2\" $3 $4 $5) || echo \"du exited with $?\"
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
fn bind_mounts_and_other_file_systems_count_as_in_gnu_du() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    place.odd_dirs("t");
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
mkdir -p one two; echo x > one/file; touch two/file; mount --bind one/file two/file
for order in 'one two' 'two one'; do
  [ \"$(\"$1\" du -d0 $order)\" = \"$(du -d0 $order)\" ] || echo \"$order differ\"
done
";
    let Some(ran) = in_own_mounts(&place, &format!("{BOTH}{script}")) else { return };
    assert_eq!(ran.ended(0).text(), "");
}

#[test]
fn one_mount_skips_mounts_of_the_same_device() {
    let place = fresh();
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
fn pseudo_file_systems_are_entered_only_by_name() {
    let place = fresh();
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
    assert!(ran.err.contains("skipped 't/sub/kernel' (proc)"), "{}", ran.err);
}

#[test]
fn file_systems_of_other_programs_are_entered() {
    let place = fresh();
    place.write("t/f", "x");
    // An image without device: FUSE serves it if the program for that is there.
    let script = "
truncate -s 16M image; mkfs.ext4 -q image >&2 || { echo cannot; exit 0; }
mkdir -p t/other; fuse2fs image t/other -o fakeroot >&2 || { echo cannot; exit 0; }
mkdir t/other/sub; echo x > t/other/sub/f
du -s --inodes t
\"$1\" du -s --inodes t
\"$1\" du --top 1 --inodes t
umount t/other
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    if ran.text() == "cannot\n" {
        return println!("skipped: no FUSE here: {}", ran.err.trim());
    }
    assert_eq!(ran.ended(0).text(), "6\tt\n6\tt\n6\tt\n");
}

#[test]
fn a_directory_below_itself_is_an_error() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    // Served by a program, because the kernel refuses such a directory of its own file systems. The second
    // one begins deeper than directories are compared with all those above them.
    let script = "
truncate -s 16M image; mkfs.ext4 -q image >&2 || { echo cannot; exit 0; }
{
  for dir in a a/d b; do echo \"mkdir $dir\"; done
  echo 'ln a a/d/up'; echo 'ln a a/d/up2'
  deep=b; for dir in $(seq 70); do deep=$deep/$dir; echo \"mkdir $deep\"; done
  echo \"ln $deep $deep/in\"; echo \"ln $deep $deep/in2\"
} > commands
debugfs -w -f commands image > /dev/null 2>&1 || { echo cannot; exit 0; }
mkdir t; fuse2fs image t -o fakeroot,use_ino >&2 || { echo cannot; exit 0; }
code=0; du --inodes t/a/d > gnus 2> theirs || code=$?
own=0; \"$1\" du --inodes --threads 1 t/a/d > ours 2> said || own=$?
echo $code $own; sort gnus > sorted; sort ours | diff sorted - || true
grep -c 'WARNING: Circular directory structure' theirs said
for place in t/b t .; do
  code=0; timeout 180 \"$1\" du -s $place > /dev/null 2> said || code=$?; echo $code
  grep -q 'WARNING: Circular directory structure' said && echo reported
done
umount t
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    if ran.text().ends_with("cannot\n") {
        return println!("skipped: no FUSE or debugfs here: {}", ran.err.trim());
    }
    assert_eq!(
        ran.ended(0).text(),
        "1 1\ntheirs:2\nsaid:2\n1\nreported\n1\nreported\n1\nreported\n"
    );
}

#[test]
fn an_interrupt_ends_a_scan_of_a_file_system_that_does_not_answer() {
    let place = fresh();
    let script = "
truncate -s 16M image; mkfs.ext4 -q image >&2 || { echo cannot; exit 0; }
mkdir -p t/other; fuse2fs -f image t/other -o fakeroot > /dev/null 2>&1 &
served=$!
for i in $(seq 100); do mountpoint -q t/other && break; sleep .05; done
mountpoint -q t/other || { echo cannot; exit 0; }
kill -STOP $served
for args in t t/other 't/other t'; do
  code=0; timeout --foreground -s INT -k 60 --preserve-status 2 \"$1\" du -s $args || code=$?
  echo $code
done
kill -CONT $served; umount t/other
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    if ran.text() == "cannot\n" {
        return println!("skipped: no FUSE here: {}", ran.err.trim());
    }
    let ran = ran.ended(0);
    assert_eq!(ran.text(), "130\n130\n130\n");
    assert!(ran.err.contains("a file system does not answer"), "{}", ran.err);
}

#[test]
fn mounts_hidden_by_others_are_not_skipped() {
    let place = fresh();
    let script = "
mkdir -p t/m; mount -t proc p t/m; mount -t tmpfs q t/m; head -c 1M /dev/zero > t/m/f
du -s --apparent-size t/m
\"$1\" du -s --apparent-size t/m
\"$1\" du -s --inodes t
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    let ran = ran.ended(0);
    let text = ran.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2]), (lines[1], "3\tt"), "{lines:?}");
    assert_eq!(ran.err, "");
}

#[test]
fn mounts_below_a_covered_directory_are_not_skipped() {
    let place = fresh();
    let script = "
mkdir -p t/proc; mount -t proc p t/proc; mount -t tmpfs q t
mkdir t/proc; head -c 1M /dev/zero > t/proc/f
du -s t
\"$1\" du -s t
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    let ran = ran.ended(0);
    let text = ran.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, lines[1]), "{lines:?}");
    assert_eq!(ran.err, "");
}

#[test]
fn one_argument_of_a_list_counts_as_in_a_list() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    let script = "
mkdir -p m/a m/b; head -c 1M /dev/zero > m/a/f; mount --bind m/a m/b
printf 'm\\0' > list
for args in --files0-from=list '-l --files0-from=list' m; do
  [ \"$(\"$1\" du -s $args)\" = \"$(du -s $args)\" ] || echo \"$args\"
done
[ \"$(\"$1\" du -s '' m 2>/dev/null)\" = \"$(du -s '' m 2>/dev/null)\" ] || echo empty
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    assert_eq!(ran.ended(0).text(), "");
}

#[test]
fn totals_match_gnu_du_on_other_file_systems() {
    if !gnu_is_there() {
        return;
    }
    for (kind, mib) in [("ext4", 64), ("xfs", 320), ("btrfs", 128)] {
        let there = Command::new(format!("mkfs.{kind}")).arg("-V").env("PATH", path()).output();
        if there.is_err() {
            println!("skipped: no mkfs.{kind} here");
            continue;
        }
        let place = fresh();
        place.odd_dirs("copy");
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
            println!("skipped: cannot mount {kind}: {}", ran.err.trim());
            continue;
        }
        assert_eq!(ran.ended(0).text(), "", "{kind}");
    }
}

/// Totals from inode tables and their messages. The last files are still dirty; before a sync, the
/// tables lack their blocks.
const TABLES: &str = "
METHOD='--method inode-tables'
every \"$1\" 2> said
grep -v -e '^[a-z]*: warning' -e 'entries from the inode tables of .*/dev/loop' said && echo 'said more' || true
grep -q '[1-9][0-9]* entries from the inode tables' said || echo 'nothing was read'
for threads in 1 2 7 64 auto; do
  \"$1\" du -a $METHOD --threads $threads t 2> more | sort > tables
  \"$1\" du -a --threads 1 t | sort | cmp - tables || echo \"$threads threads\"
done
";

#[test]
fn inode_tables_match_gnu_du() {
    if !gnu_is_there() {
        return;
    }
    for options in [
        "-b 1024 -I 128",
        "-b 4096 -I 256",
        "-b 1024 -I 256 -O ^metadata_csum,^64bit",
        "-b 4096 -O inline_data",
        "-b 1024 -O meta_bg,^resize_inode,sparse_super2 -g 2048",
        "-b 4096 -O bigalloc -C 65536",
    ] {
        let place = fresh();
        place.odd_dirs("copy");
        place.hard_links("copy");
        let script = format!(
            "
truncate -s 96M image; mkfs.ext4 -q -N 20000 {options} image >&2 || {{ echo cannot; exit 0; }}; mkdir mnt
mount -o loop image mnt || {{ echo cannot; exit 0; }}
cd mnt; mkdir t t/bound t/memory; cp -a ../copy/. t/; rm t/self
seq 3000 | (cd t/bound; xargs touch)
mount --bind t/deep t/bound; mount -t tmpfs none t/memory; echo x > t/memory/f
mkdir elsewhere; seq 9999 > elsewhere/file; touch t/onto; mount --bind elsewhere/file t/onto
mkdir t/many; (cd t/many; seq 5000 | xargs touch; seq 400 | xargs rm)
head -c 3000000 /dev/zero > t/many/waits; echo small > t/many/small
"
        );
        let script = format!("{BOTH}{script}{TABLES}");
        let Some(ran) = in_own_mounts(&place, &script) else { return };
        if ran.text() == "cannot\n" {
            println!("skipped: no ext4 with {options} here: {}", ran.err.trim());
            continue;
        }
        assert_eq!(ran.ended(0).text(), "", "{options}");
    }
}

#[test]
fn inode_tables_are_refused_where_unsupported() {
    let place = fresh();
    place.write("t/f", "x");
    let script = "
refused() {
  shift; \"$DU\" du -s --method inode-tables \"$@\" 2> why && echo \"not refused: $@\" || echo $?; cat why
}
DU=\"$1\"
mkdir memory upper work over ours; mount -t tmpfs none memory
refused x memory
refused x t memory
mount -t tmpfs none ours; mkdir ours/upper ours/work
if mount -t overlay -o lowerdir=t,upperdir=ours/upper,workdir=ours/work none over 2>/dev/null; then
  refused x over
fi
truncate -s 16M image; mkfs.ext4 -q image; mkdir mnt; mount -o loop image mnt; echo x > mnt/f
\"$DU\" du --json --method inode-tables mnt
mount -t tmpfs none /dev
refused x mnt
";
    let Some(ran) = in_own_mounts(&place, script) else { return };
    let text = ran.ended(0).text();
    let (before, rest) = text.split_once('{').unwrap();
    assert!(
        before.starts_with("1\n")
            && before.contains("is on tmpfs, but inode tables can only be read on ext4"),
        "{text}"
    );
    assert!(!before.contains("not refused"), "{text}");
    let (json, after) = rest.rsplit_once('}').unwrap();
    let json: serde_json::Value = serde_json::from_str(&format!("{{{json}}}")).unwrap();
    let used = json["inode_tables"][0].as_object().unwrap();
    let documented = include_str!("../../../../../docs/reference/json.md");
    let documented = documented.split("### Inode tables: `inode_tables`").nth(1).unwrap();
    for key in used.keys() {
        assert!(documented.contains(&format!("| `{key}` |")), "{key}");
    }
    assert_eq!((&used["entries_read"], &used["entries_changed"]), (&1.into(), &0.into()));
    assert_eq!(json["method"], "inode-tables");
    assert!(after.contains("1\n") && after.contains("no file in /dev is block device"), "{text}");
}

/// Changes a byte of an inode directly on the device. The file system continues to report the old
/// value.
#[test]
fn wrong_inode_tables_are_detected() {
    let has_tool = |tool: &str| Command::new(tool).arg("-V").env("PATH", path()).output().is_ok();
    if !has_tool("debugfs") || !has_tool("losetup") {
        println!("skipped: debugfs or losetup is missing");
        return;
    }
    for (feature, lie) in [("^metadata_csum", true), ("metadata_csum", false)] {
        let place = fresh();
        let script = format!(
            "
truncate -s 16M image; mkfs.ext4 -q -b 1024 -O {feature} image; mkdir mnt
mount -o loop image mnt || {{ echo cannot; exit 0; }}
echo x > mnt/f; echo y > mnt/g; umount mnt
debugfs -w -R 'set_inode_field /f ctime 20200101' image 2> said
debugfs -R 'imap /f' image 2>> said > where
block=$(sed -n 's/.*at block \\([0-9]*\\),.*/\\1/p' where)
offset=$(sed -n 's/.*offset \\(0x[0-9a-f]*\\).*/\\1/p' where)
mount -o loop image mnt; stat -c %s mnt/f
device=$(losetup -j image | cut -d: -f1)
printf '\\101' | dd of=$device bs=1 seek=$((block * 1024 + offset + 4)) conv=notrunc 2>> said
\"$1\" du -ab --method inode-tables mnt 2> why | grep mnt/f || true
cat why
"
        );
        let Some(ran) = in_own_mounts(&place, &script) else { return };
        let text = ran.ended(0).text();
        if text == "cannot\n" {
            println!("skipped: cannot mount ext4 here");
            return;
        }
        let found = if lie { "2\n65\tmnt/f\n" } else { "2\n2\tmnt/f\n" };
        assert!(text.starts_with(found), "{feature}: {text}");
        let said = "cannot verify the inode of 'mnt/f'";
        assert_eq!(text.contains(said), lie, "{feature}: {text}");
        let asked = if lie { "0 from statx" } else { "1 from statx" };
        assert!(text.contains(asked), "{feature}: {text}");
    }
}

#[test]
fn inode_tables_need_root() {
    let place = fresh().for_nobody();
    place.write("t/f", "x");
    let ran = place.du(&["-s", "--method", "inode-tables", "t"]);
    if ran.code == Some(0) {
        println!("skipped: this user can read the device");
        return;
    }
    let ran = ran.ended(1);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.err.contains("use statx"), "{}", ran.err);
}

/// Goal: a directory that contains another file system is not removed, not even in part. Method: a mount that the
/// scan enters, and a subvolume that `-x` hides from it. The browser draws words, not spaces.
#[test]
fn the_browser_removes_nothing_of_a_directory_with_another_file_system() {
    if Command::new("script").arg("--version").output().is_err() {
        println!("skipped: script (util-linux) is missing");
        return;
    }
    let btrfs = "
truncate -s 128M image; mkfs.btrfs -q image >&2 && mount -o loop image t || { echo cannot; exit 0; }
mkdir t/d; btrfs subvolume create t/d/m >&2 || { echo cannot; exit 0; }";
    let tmpfs = "mkdir -p t/d/m; mount -t tmpfs none t/d/m";
    for (make, flags, word) in [(tmpfs, "", "unmount"), (btrfs, "-x", "subvolume")] {
        let place = fresh();
        let script = format!(
            "
mkdir t; {make}
echo x > t/d/file; echo x > t/d/m/f
mkfifo keys; export program=\"$1\" SHELL=/bin/sh TERM=xterm
shows() {{ for i in $(seq 1200); do grep -aq \"$1\" screen 2> /dev/null && break; sleep .05; done; }}
run='timeout --foreground -s KILL 180 \"$program\" du -i {flags} t'
script -qfc \"stty rows 24 cols 120; $run\" screen < keys > /dev/null 2>&1 &
exec 3> keys
shows quit; printf 'dremove\\r' >&3
shows cannot; printf q >&3
wait $!
grep -ao -e unmount -e subvolume -e INCOMPLETE screen; cat t/d/file t/d/m/f
"
        );
        let Some(ran) = in_own_mounts(&place, &script) else { return };
        if ran.text() == "cannot\n" {
            println!("skipped: no btrfs here: {}", ran.err.trim());
            continue;
        }
        assert_eq!(ran.text(), format!("{word}\nx\nx\n"), "{}", ran.err);
    }
}
