//! Short scripts and what they print, with GNU cp and with ours.

use std::process::Command;

/// Who runs a script.
#[derive(PartialEq)]
enum User {
    Any,
    Root,
}

/// A script: `$CP` copies. The output of the ones marked `false` is not that of GNU's.
const SCRIPTS: &[(&str, User, bool, &str, &str)] = &[
    (
        "a source with several slashes at its end has one in the names below it",
        User::Any,
        true,
        "mkdir -p d/s; echo x > d/f; echo x > d/s/g; $CP -rv d// e | sort",
        "'d//' -> 'e'\n'd/f' -> 'e/f'\n'd/s' -> 'e/s'\n'd/s/g' -> 'e/s/g'\n",
    ),
    (
        "a name that becomes a hard link to a copy is reported as removed",
        User::Any,
        true,
        "mkdir s t; echo n > s/f; ln s/f s/g; echo o > t/f; echo o > t/g; $CP -av s/. t | grep -c removed",
        "1\n",
    ),
    (
        "a growing source goes into a pipe once",
        User::Any,
        true,
        "mkfifo p; seq 5 > log; $CP log p & sleep .3; echo more >> log; cat p > out; wait; wc -l < out",
        "6\n",
    ),
    (
        "a pipe is written through a link that --replace would replace by a file",
        User::Any,
        false,
        "echo longer > f; ln -s f l; echo new | $CP --replace /dev/stdin l; readlink l; cat f",
        "f\nnew\n",
    ),
    (
        "a resumable copy keeps owner and mode of the file that it replaces",
        User::Root,
        false,
        "head -c 40M /dev/urandom > s; echo old > d; chown 1000:1000 d; chmod 4755 d
         $CP --resume s d; stat -c '%u %g %a' d; cmp s d; ls -A",
        "1000 1000 4755\nd\ns\n",
    ),
    (
        "a file that changed after a resumable copy made it is copied again",
        User::Any,
        false,
        "mkdir -p src t/g; echo aaaa > src/f; echo x > src/g; $CP -rT --resume src t 2> err; echo $?
         echo bbbb > t/f; rmdir t/g; $CP -rT --resume src t; echo $?; cat t/f t/g; ls -A",
        "1\n0\naaaa\nx\nerr\nsrc\nt\n",
    ),
    (
        "a source that is not mounted empties no copy, and its new mode counts",
        User::Any,
        false,
        "mkdir -p m/a m/b; head -c 300M /dev/zero | tr '\\0' x > m/b/big; echo a > m/a/f; $CP -rT --resume m t & C=$!
         while kill -0 $C && ! cat .t*.part/a/f > early; do :; done 2> err; kill -9 $C; wait $C 2> err
         mv m elsewhere; mkdir m; $CP -rT --resume m t 2> err; echo $?; cat .t*.part/a/f early
         rm -r m; rm elsewhere/b/big; mv elsewhere m; chmod 700 m; $CP -rT --resume m t 2> err; echo $?
         stat -c %a t; ls t t/a; ls -A",
        "1\na\na\n0\n700\nt:\na\nb\n\nt/a:\nf\nearly\nerr\nm\nt\n",
    ),
    (
        "root resumes in directories that it gave to their owners",
        User::Root,
        false,
        "mkdir -p s/a; echo a > s/a/f; chown -R 1000:1000 s/a; mkdir s/b; head -c 400M /dev/zero | tr '\\0' x > s/b/z
         $CP -aT --resume s t & C=$!
         while kill -0 $C 2> err && [ \"$(stat -c %u .t*.part/a 2> err)\" != 1000 ]; do :; done
         kill -9 $C; wait $C 2> err; echo b > s/a/g; $CP -aT --resume s t; echo $?; ls t/a; stat -c '%u %a' t/a
         diff -r s t && echo same",
        "0\nf\ng\n1000 755\nsame\n",
    ),
    (
        "a file that took the place of an incomplete copy stays",
        User::Any,
        false,
        "mkfifo p; sleep 100 > p & S=$!; $CP p x 2> err & C=$!
         i=0; until [ $(ls -A | wc -l) -gt 2 ] || [ $i -eq 600 ]; do i=$((i+1)); sleep .1; done
         echo precious > n; mv n x; kill -TERM $C; wait $C; cat x; kill $S",
        "precious\n",
    ),
    (
        "the group of the old file stays if that of the source cannot be set",
        User::Root,
        true,
        "chmod 755 .; mkdir w; chown 1000:1000 w; echo new > w/s; echo old > w/f; chown 1000:44 w/f
         setpriv --reuid 1000 --regid 1000 --groups 1000,44 $CP -p w/s w/f; stat -c '%u %g' w/f; cat w/f",
        "1000 44\nnew\n",
    ),
    (
        "links between sources copied apart, of which one was replaced",
        User::Any,
        false,
        "mkdir a b c d; echo 1 > a/x; ln a/x c/z; ln a/x c/w; echo 2 > b/x; $CP -a a/. b/. c/. d; echo $?
         cat d/x d/z; [ d/z -ef d/w ] && echo linked",
        "0\n2\n1\nlinked\n",
    ),
    (
        "a file with another content is not taken for the copy of a link",
        User::Any,
        false,
        "mkdir a b d; echo A > a/x; echo other > b/x; ln a/x b/y; $CP -a --in-place a/. b/. d; echo $?
         cat d/x d/y",
        "0\nother\nA\n",
    ),
    (
        "a newer target is kept though the first copy of its source was replaced",
        User::Any,
        false,
        "mkdir a b c d; echo 1 > a/x; ln a/x c/y; touch -d yesterday a/x; echo 2 > b/x; echo 3 > d/y
         $CP -au a/. b/. c/. d; echo $?; cat d/x d/y",
        "0\n2\n3\n",
    ),
    (
        "targets of one name in two directories",
        User::Any,
        true,
        "mkdir -p a b c d/a d/b d/c; echo 1 > a/f; echo 2 > c/f; echo old > d/a/f; ln d/a/f d/c/f
         $CP --parents a/f b/../c/f d; echo $?; cat d/a/f d/c/f",
        "0\n2\n2\n",
    ),
    (
        "nothing is written through a link that an earlier source left",
        User::Any,
        false,
        "mkdir -p t w/a w/t w/b w/d; echo payload > t/x; echo victim > w/t/x; cd w; ln -s ../../t a/1
         $CP -dR --parents a b/../a/1/x d 2> said; echo $?; cat t/x; grep -c just-created said",
        "1\nvictim\n1\n",
    ),
    (
        "a directory that cannot be read is synced",
        User::Any,
        false,
        "mkdir -m 311 s; echo x > s/f; mkdir d; $CP --durable file --parents s/f d 2> said; echo $?
         chmod 700 s d/s; cat d/s/f",
        "0\nx\n",
    ),
    (
        "a file that others may write keeps its owner",
        User::Root,
        true,
        "echo new > s; echo old > d; chown 1000:1000 d; chmod 666 d; $CP -f s d; stat -c '%u %a' d; cat d",
        "1000 666\nnew\n",
    ),
    (
        "root that may not change owners takes no file away",
        User::Root,
        false,
        "echo new > s; chown 2000 s; echo old > d; chown 1000 d; chmod 666 d
         setpriv --bounding-set -all --inh-caps -all $CP -a s d 2> said; echo $?; stat -c '%u %a' d; cat d",
        "1\n1000 666\nnew\n",
    ),
    (
        "no link is left to a file of another user in a sticky directory",
        User::Root,
        false,
        "chmod 755 .; echo new > s; mkdir -m 1777 d; echo old > d/f; chmod 666 d/f
         setpriv --reuid 1000 --clear-groups $CP -b s d/f 2> said; echo $?; ls -A d; stat -c %h d/f",
        "1\nf\n1\n",
    ),
    (
        "suffixes of backups with slashes",
        User::Any,
        true,
        "echo old > f; echo new > s; $CP --suffix=x/ s f 2> said; echo $?; cat f; grep -c 'Not a directory' said
         $CP --suffix=/x s f; $CP --suffix=x/y s f; $CP --suffix=/ s f; ls; cat f",
        "1\nold\n1\nf\nf~\ns\nsaid\nnew\n",
    ),
    (
        "backups in a directory that cannot be listed",
        User::Root,
        true,
        "chmod 755 .; echo new > s; mkdir d; echo old > d/f; chown -R 1000 d; chmod 333 d
         setpriv --reuid 1000 --clear-groups $CP -b s d/f; setpriv --reuid 1000 --clear-groups $CP --backup=numbered s d/f
         ls -A d",
        "f\nf.~1~\nf~\n",
    ),
    (
        "a tree and a link into a directory to which entries can only be added",
        User::Root,
        true,
        "mkdir s d; echo x > s/f; ln -s f s/l; chattr +a d 2> said || { printf '0\\n0\\nl\\ns\\n0\\n'; exit; }
         $CP -dr s d; echo $?; $CP -d s/l d; echo $?; ls -A d; chattr -a d; diff -r s d/s; echo $?",
        "0\n0\nl\ns\n0\n",
    ),
    (
        "attributes of security modules that a user cannot set",
        User::Root,
        true,
        "chmod 755 .; echo new > s; mkdir d; echo old > d/f; chown -R 1000 d
         setfattr -n security.foo -v x d/f 2> said || { echo 'security.foo=\"x\"'; echo new; exit; }
         setpriv --reuid 1000 --clear-groups $CP s d/f; getfattr -n security.foo d/f | grep foo; cat d/f",
        "security.foo=\"x\"\nnew\n",
    ),
    (
        "a source with one byte and a hole",
        User::Any,
        true,
        "truncate -s 1M s; printf x | dd of=s conv=notrunc status=none; $CP s d; cmp s d && echo same",
        "same\n",
    ),
    (
        "hard links between sources of one name",
        User::Any,
        true,
        "mkdir -p a/x b/x d; echo 1 > a/x/f; ln a/x/f b/x/g; $CP -a a/x b/x d; [ d/x/f -ef d/x/g ] && echo linked",
        "linked\n",
    ),
    (
        "a file that is kept is not written over a directory with a slash at its end",
        User::Any,
        true,
        "echo a > a; mkdir d; ln -s d l; echo n | $CP -iT a d/ 2> said; echo $?; grep -c \"overwrite 'd/'\" said
         $CP -nT a d/; echo $?; touch -d yesterday a; $CP -uT a d/; echo $?; $CP -T a d/ 2> said; echo $?
         echo y | $CP -iT a d/ 2> said; echo $?; $CP -iT a l/ 2> said < said; ls -A d; readlink l
         $CP -nT a l/; echo $?; readlink l; $CP -nT a gone/ 2> said; echo $?",
        "0\n1\n0\n0\n1\n1\nd\n0\nd\n1\n",
    ),
    (
        "a directory is omitted without -r, wherever it would be copied",
        User::Any,
        true,
        "mkdir d e; echo x > f; for to in gone/x f/x e; do $CP d $to 2> said; echo $?; cut -d: -f2- said; done",
        "1\n -r not specified; omitting directory 'd'\n1\n -r not specified; omitting directory 'd'\n\
         1\n -r not specified; omitting directory 'd'\n",
    ),
    (
        "the contents of a directory that is given twice are copied once",
        User::Any,
        true,
        "mkdir s d; echo x > s/f; chmod 555 s; $CP -rp s/. s/. d 2> said; echo $?; cut -d: -f2- said
         chmod 755 s d; ls d; mkdir e; $CP -r s/. e/. d; echo $?
         $CP -rL s/. ./s/. e 2> said; echo $?; cut -d: -f2- said",
        "0\n warning: source directory 's/.' specified more than once\nf\n0\n\
         0\n warning: source directory './s/.' specified more than once\n",
    ),
    (
        "a name in a message is quoted only if a shell would interpret it",
        User::Any,
        true,
        "mkdir d; echo x > f; for to in a~ '#x' '{a}' 'b c' 'd=' e]; do $CP -s f \"d/$to\" 2> said; cut -d: -f2 said
         done; mkdir '~x' '{x'; $CP -s f '~x/f' 2> said; cut -d: -f2 said; $CP -s f '{x/f' 2> said; cut -d: -f2 said",
        " d/a~\n d/#x\n d/{a}\n 'd/b c'\n 'd/d='\n d/e]\n '~x/f'\n {x/f\n",
    ),
];

fn run(script: &str, program: &str) -> String {
    let dir = super::place();
    let output = Command::new("sh")
        .args(["-c", script])
        .env("CP", program)
        .env("LC_ALL", "C")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    String::from_utf8_lossy(&output.stdout).into_owned() + &said
}

#[test]
fn scripts_print_what_they_should() {
    let ours = format!("{} cp", env!("CARGO_BIN_EXE_ioloom"));
    let is_root = ioloom_sys::attr::own_ids().0 == 0;
    let gnu = Command::new("cp").arg("--version").output();
    let gnu = gnu.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("coreutils"));
    for (name, user, same, script, expected) in SCRIPTS {
        if *user == User::Root && !is_root {
            println!("skipped: {name}: needs root");
            continue;
        }
        assert_eq!(run(script, &ours), *expected, "{name}");
        if gnu && *same {
            assert_eq!(run(script, "cp"), *expected, "{name}, GNU cp");
        }
    }
}
