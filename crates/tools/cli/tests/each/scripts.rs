//! Short scripts and what they print.

use std::process::Command;

const SCRIPTS: &[(&str, &str, &str)] = &[
    (
        "files that the kernel makes up are read to their end",
        "for f in /proc/kallsyms /proc/self/maps; do [ -r $f ] || continue; done
         $EACH /proc/kallsyms --per-file --compute sha256 -q > ours; sha256sum /proc/kallsyms > theirs
         $EACH /proc/kallsyms --exec 'wc -c' -q > bytes; wc -c < /proc/kallsyms > count
         cmp ours theirs && cmp bytes count && echo same",
        "same\n",
    ),
    (
        "files of a tree that the kernel makes up, too",
        "$EACH /proc/sys/kernel /proc/driver --per-file --compute sha256 -q 2> said | sort > ours
         cut -c67- ours | while read f; do sha256sum \"$f\"; done | sort > theirs
         diff ours theirs | grep -v -e random -e ns_last_pid -e pid_max | grep -c '^<'",
        "0\n",
    ),
    (
        "all commands run though the reader of their output leaves",
        "mkdir t; for i in $(seq 50); do echo $i > t/$i; done
         $EACH t -j 2 -q --exec 'sh -c \"echo x; echo y >> log\" sh {}' | head -1; wc -l < log",
        "x\n50\n",
    ),
    (
        "each argument has its line, and its command",
        "echo x > lib.so.1; ln -s lib.so.1 lib.so
         $EACH lib.so lib.so.1 --ordered --per-file --compute sha256 -q | cut -c67-
         $EACH lib.so lib.so.1 -q --exec 'basename {}' | sort",
        "lib.so\nlib.so.1\nlib.so\nlib.so.1\n",
    ),
    (
        "programs in the background do not hold up the run",
        "echo x > f; timeout 100 $EACH f -q --exec 'sh -c \"sleep 100 2> err & echo printed\"'; echo $?",
        "printed\n0\nioloom: 1 command ended while a background process kept the output open; later output is lost; use 'wait' in the command\n",
    ),
    (
        "every failed command is named",
        "mkdir t; for i in $(seq 30); do touch t/$i; done
         $EACH t -q --exec 'false {}' 2>&1 | grep -c 'exited with code 1'",
        "30\n",
    ),
    (
        "lost output is a failure, and the commands ran",
        "mkdir t; touch t/1 t/2 t/3
         $EACH t -q --exec 'sh -c \"echo x; echo y >> log\" sh {}' > /dev/full 2> said; echo $?
         wc -l < log; grep -c 'its output cannot be written: No space left' said",
        "1\n3\n3\n",
    ),
    (
        "a mapped plan after which a double dash follows starts one child",
        "mkdir t; echo x > t/f; timeout 100 $EACH --method mmap:plain -- t > out; echo $?; grep -c digest out",
        "0\n1\n",
    ),
    (
        "a small budget has small chunks, and direct reads whole blocks",
        "echo x > f; $EACH f --per-file --compute sha256 -q > list
         $EACH --check list --compute sha256 --memory 128KiB
         $EACH f --per-file --compute sha256 -q --method direct:read --memory 5MB > direct 2> said
         cmp list direct || grep -c 'does not report direct' said",
        "f: OK\n",
    ),
    (
        "a file system that may support direct reads but reports no alignment",
        "d=$(mktemp -d -p /dev/shm) || { echo 1; exit; }; echo x > $d/f
         $EACH $d/f --method direct:read > out 2> said && echo 1 || grep -c 'alignment (no DIOALIGN)' said; rm -r $d",
        "1\n",
    ),
    (
        "long output is printed whole",
        "head -c 5M /dev/urandom > f; $EACH f f f -q --exec 'cat {}' > all; cat f f f | cmp - all && echo same",
        "same\n",
    ),
];

#[test]
fn scripts_print_what_they_should() {
    for (name, script, expected) in SCRIPTS {
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let output = Command::new("sh")
            .args(["-c", script])
            .env("EACH", format!("{} each", env!("CARGO_BIN_EXE_ioloom")))
            .env("LC_ALL", "C")
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout) + said, *expected, "{name}");
    }
}
