//! Compares `ioloom cp` with the system's `cp`: exit code, messages, output and the resulting tree.
//! Accepted differences are not in these lists: the advice after a message, and the order of names.

use crate::{ioloom, place};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

/// The observable result of a copy.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    code: Option<i32>,
    output: Vec<String>,
    messages: Vec<String>,
    tree: Vec<String>,
}

/// Describes each entry of a tree: type, mode, owner, links, content or link target.
fn tree(at: &Path, below: &Path, into: &mut Vec<String>) {
    let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let found = fs::symlink_metadata(&path).unwrap();
        let kind = found.file_type();
        let content = if kind.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if kind.is_file() {
            let links = found.nlink();
            format!("{links} links, {:?}", fs::read(&path).map(|b| b.len().min(99)).unwrap_or(0))
                + &fs::read_to_string(&path)
                    .unwrap_or_default()
                    .chars()
                    .take(40)
                    .collect::<String>()
        } else {
            format!("fifo {} dir {}", kind.is_fifo(), kind.is_dir())
        };
        let mode = if kind.is_symlink() { 0 } else { found.mode() & 0o7777 };
        let owner = (found.uid(), found.gid());
        let name = below.join(path.file_name().unwrap());
        into.push(format!("{} {mode:o} {owner:?} {content}", name.display()));
        if kind.is_dir() {
            tree(&path, &name, into);
        }
    }
}

fn lines(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> =
        String::from_utf8_lossy(bytes).lines().map(ToOwned::to_owned).collect();
    lines.sort();
    lines
}

/// Runs a script that uses `$CP` in a new directory.
fn seen(script: &str, program: &str, plain: bool) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(if plain { "setpriv" } else { "sh" });
    if plain {
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh"]);
    }
    let script = format!("umask 022\n{}", script.replace("$CP", program));
    command.args(["-c", &script]).current_dir(dir.path()).stdin(Stdio::null());
    command.env("LC_ALL", "C").env_remove("IOLOOM_FAULT").env_remove("POSIXLY_CORRECT");
    let output = command.output().unwrap();
    let mut found = Vec::new();
    tree(dir.path(), Path::new(""), &mut found);
    let messages = lines(&output.stderr).into_iter().map(|line| {
        let line = line.replace("ioloom: ", "cp: ").replace("'ioloom cp --help'", "'cp --help'");
        line.split("; ").next().unwrap_or_default().to_owned()
    });
    Seen {
        code: output.status.code(),
        output: lines(&output.stdout),
        messages: messages.collect(),
        tree: found,
    }
}

/// Compares both programs on each script.
pub(crate) fn compare(scripts: &[&str], plain: bool) {
    let program = format!("{} cp", program(plain));
    let mut failed = Vec::new();
    for script in scripts {
        let (theirs, ours) = (seen(script, "cp", plain), seen(script, &program, plain));
        if theirs != ours {
            failed.push(format!("{script}\ncp:     {theirs:#?}\nioloom: {ours:#?}"));
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), scripts.len(), failed.join("\n"));
}

/// Returns the program, as a copy that every user may execute.
fn program(plain: bool) -> String {
    let built = env!("CARGO_BIN_EXE_ioloom");
    if !plain {
        return built.to_owned();
    }
    static COPY: std::sync::OnceLock<tempfile::TempDir> = std::sync::OnceLock::new();
    let dir = COPY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        // Another process copies the program, so that no descriptor of this one is inherited.
        let copied = Command::new("cp").arg(built).arg(dir.path().join("ioloom")).status();
        assert!(copied.unwrap().success());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir.path(), mode).unwrap();
        dir
    });
    dir.path().join("ioloom").display().to_string()
}

/// Returns false, with a message, if the system's `cp` is not the one whose text is compared.
pub(crate) fn is_gnu() -> bool {
    let output = Command::new("cp").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let is_gnu = text.is_ok_and(|text| text.contains("GNU coreutils"));
    if !is_gnu {
        println!("skipped: cp is not GNU cp");
    }
    is_gnu
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    if !root {
        println!("skipped: only root can run a copy as another user");
    }
    root
}

#[test]
fn errors_read_like_those_of_gnu_cp() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "$CP",
            "$CP a",
            "touch a; $CP a",
            "$CP gone x",
            "touch a; $CP a gone/x",
            "touch a; $CP a gone/",
            "touch a b; $CP a b/",
            "touch a b; $CP -T a b/.",
            "touch b; mkdir d; $CP -r d b/",
            "touch a; ln -s loop loop; $CP a loop/",
            "touch a; ln -s loop loop; $CP a loop/x",
            "touch a b c; $CP a b c",
            "touch a b; $CP a b gone",
            "touch a; $CP -t gone a",
            "touch a b; $CP -t b a",
            "touch a; mkdir d; $CP -T a d",
            "touch a; mkdir d; $CP -t d -T a",
            "touch f; mkdir a b; $CP -t a -t b f; $CP -t a --target-directory=a f; ls a b",
            "touch a b c; $CP -T a b c",
            "mkdir d; $CP d x",
            "mkdir d; touch a x; mkdir t; $CP d a t",
            "mkdir -p d t; touch t/d; $CP -r d t",
            "mkdir -p t/a; touch a; $CP a t",
            "mkdir -p s/x t/s; touch t/s/x; $CP -r s t",
            "mkdir -p s t/s/x; touch s/x; $CP -r s t",
            "touch a; $CP a a",
            "touch a; ln a b; $CP a b",
            "touch a; ln -s a b; $CP a b",
            "touch a; ln -s a b; $CP b a",
            "touch a; ln -s gone b; $CP a b",
            "touch a; ln -s gone b; $CP -f a b",
            "ln -s loop loop; touch a; $CP a loop",
            "ln -s gone b; $CP b x",
            "ln -s gone b; mkdir d; $CP -rL b d; ",
            "touch a; mkdir d; $CP a a d",
            "mkdir a d; $CP -r a a d",
            "mkdir -p a b d; touch a/f b/f; $CP a/f b/f d",
            "mkdir -p a b d; touch a/f b/f; $CP --backup=numbered a/f b/f d",
            "mkdir -p a b c; ln -s ../t a/1; echo p > b/1; $CP -dR a/1 b/1 c",
            "mkdir -p a b c; ln -s ../t a/1; echo p > b/1; echo i > t; $CP -dR a/1 b/1 c",
            "touch a; $CP --gone a b",
            "touch a; $CP -q a b",
            "touch a; $CP --re a b",
            "touch a; $CP -t",
            "touch a; $CP --sparse",
            "touch a; $CP --link=x a b",
            "touch a; $CP -ls a b",
            "touch a; $CP -bn a b",
            "touch a; $CP -n --backup=none a b; VERSION_CONTROL=x $CP -n -S .x a b",
            "touch a; $CP --parents a b",
            "touch a; $CP --preserve=context a b",
            "touch a; $CP --reflink --sparse=always a b",
            "touch a; mkdir d; ln a d/l; $CP -s a d",
            "touch a b; $CP -s a b",
            "touch a b; $CP -l a b",
            "mkdir a d; touch a/f d/f; $CP -s a/f d",
            "mkdir a d; touch a/f; ln -s x d/f; $CP -s a/f d",
            "echo a > a; $CP --reflink=always a b; code=$?; rm -f b; exit $code",
            "mkdir a; $CP -l a b",
            "echo a > a; echo t > a~; $CP --backup=simple a~ a",
            "mkdir a; $CP -r a b; $CP --backup=x a b; true",
            "touch a; $CP -Z a b; $CP --context a c",
        ],
        false,
    );
}

#[test]
fn names_are_quoted_by_the_locale_as_gnu_cp_does() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "$CP ä b; export LC_ALL=C.UTF-8; $CP ä b",
            "touch ä 'ä b'; $CP -v ä ö; $CP -v --backup ä ö; $CP -v 'ä b' ü",
            "touch ä; LC_ALL=C.UTF-8 $CP -v ä ö",
            "touch ä; mkdir dä; $CP -s ä dä; LC_ALL=C.UTF-8 $CP -s ä dä",
            "touch a; $CP -t ä a; $CP a ö/e; $CP a b ä; $CP ä",
            "touch a; LC_ALL= LC_CTYPE= LANG= $CP ä b; LC_ALL= LC_CTYPE= LANG=C.UTF-8 $CP ä b",
        ],
        false,
    );
}

#[test]
fn errors_of_words_and_created_links_read_like_those_of_gnu_cp() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "touch a; $CP --context=x a b; $CP -Z --preserve=context a b",
            "mkdir s; $CP -r s gone/.",
            "$CP '' x; touch x; $CP x ''; $CP -t '' x; mkdir d; $CP -r '' d; $CP -t d ''",
            "touch a; $CP -s a gone/b; $CP -l a gone/b; mkdir d; $CP -s a d/b",
            "touch a; $CP --preserve=foo a b; $CP --preserve=mode,x,foo a b; $CP --preserve= a b",
            "touch a; $CP --no-preserve= a b; $CP --sparse=a a b; $CP --reflink=foo a b",
            "touch a; $CP --backup=n a b; $CP --backup=foo a b; VERSION_CONTROL=foo $CP -b a b",
            "touch a; $CP --pa=x a b; $CP --path=x a b; $CP --no a b; $CP -at a b",
            "mkdir a d; $CP a ./a d; $CP -l a a d",
            "mkdir -p a b c; ln -s ../t a/1; echo p > b/1; echo o > t; $CP -d --backup a/1 b/1 c",
            "mkdir -p a b c; ln -s ../t a/1; mkfifo b/1; echo o > t; $CP -dR a/1 b/1 c",
            "mkdir -p a b c; ln -s ../t a/1; echo p > b/1; $CP -dlR a/1 b/1 c",
            "mkdir a t; echo f > a/f; ln a/f g; echo o > t/f; $CP -ab a/f a/f t; $CP -ab a/f ./a/f t",
            "mkdir a b t; echo a > a/f; echo b > b/f; ln b/f b/g; $CP -a a/f b/f b/g t",
            "mkdir a b t; echo a > a/f; echo b > b/f; ln b/f b/g; $CP -ab a/f b/f b/g t",
            "mkdir a b t; ln -s x a/f; echo b > b/f; ln b/f b/g; $CP -a a/f b/f b/g t",
            "mkdir -p a/s b/s c; ln -s ../../t a/s/1; echo p > b/s/1; $CP -a a/s b/s c",
            "mkdir -p a/s b/s c; ln -s ../../t a/s/1; echo p > b/s/1; echo o > t; \
             $CP -a --rem a/s b/s c",
        ],
        false,
    );
}

#[test]
fn files_are_overwritten_as_gnu_cp_does() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "echo a > a; echo b > b; ln b c; $CP a b",
            "echo a > a; echo b > b; ln b c; $CP -a a b",
            "echo a > a; echo b > b; ln -s b l; $CP a l",
            "echo a > a; mkdir d o; echo b > o/b; ln -s ../o/b d/a; $CP a d",
            "mkdir -p s t/s o; echo n > s/f; echo o > o/f; ln -s ../../o/f t/s/f; $CP -r s t",
            "mkdir -p s t/s o; echo n > s/f; echo o > o/f; ln -s ../../o/f t/s/f; $CP -a s t",
            "echo a > a; echo b > b; chmod 640 b; $CP a b",
            "echo a > a; chmod 600 a; echo b > b; $CP -p a b",
            "echo a > a; chmod 600 a; $CP --no-preserve=mode --preserve=all a b",
            "echo a > a; chmod 600 a; $CP --no-preserve=mode -a a b",
            "echo a > a; chmod 600 a; $CP --no-preserve=mode -p a b",
            "echo a > a; chmod 600 a; $CP -p --no-preserve=mode a b",
            "echo a > a; chmod 4755 a; $CP a b; $CP -p a c; $CP --preserve=mode a d",
            "echo a > a; echo b > b; chmod 6755 b; $CP a b",
            "echo a > a; echo b > b; setcap cap_net_raw+p b; $CP --preserve=ownership --attributes-only a b; \
             getcap b; chown 1:1 a; $CP --preserve=ownership --attributes-only a b; getcap b",
            "mkdir s t; mkdir t/s; chmod 2755 t/s; $CP -r --preserve=ownership s t",
            "echo a > a; echo b > b; $CP --remove-destination -v a b",
            "echo a > a; echo b > b; ln b c; $CP --remove-destination -v a b",
            "echo a > a; ln -s gone b; $CP --remove-destination a b",
            "echo a > a; ln -s loop loop; $CP -f a loop",
            "echo a > a; echo b > b; $CP -b -v a b; $CP -b a b; $CP --backup=t a b; $CP -b a b",
            "echo a > a; echo b > b; $CP -S .o a b; $CP -b -S .p a b",
            "echo a > a; $CP -bf a a; $CP --backup=t -f a a",
            "echo a > a; echo b > b; ln -s b l; $CP -b a l",
            "mkdir x y; $CP -a x y; $CP -ab x y",
            "echo a > a; echo b > b; $CP -n a b; $CP -u a b",
            "echo a > a; touch -d '1 hour ago' a; echo b > b; $CP -u a b",
            "echo a > a; $CP --attributes-only -p a b; echo c > c; $CP --attributes-only a c",
            "ln -s a l; echo f > f; $CP -a --attributes-only l f",
            "ln -s a l; echo f > f; $CP -a --remove-destination --attributes-only l f",
            "ln -s a l; echo f > f; $CP -af --attributes-only l f; mkfifo p; $CP -af --attr p f",
            "echo a > a; $CP -l a b; $CP -lf a b; $CP -s a c; $CP -sf a c",
            "mkdir -p s/t; echo a > s/t/f; $CP -rl s d; $CP -r -s s e",
            "ln -s gone l; $CP -lP l m; $CP -P l n",
            "mkdir d; ln -s d l; echo f > d/f; $CP -r l m; $CP -rL l n; $CP -rH l o; $CP -L -a l p",
            "mkdir -p a/b/c d; echo f > a/b/c/f; chmod 700 a/b; $CP -v --parents a/b/c/f d",
            "mkdir -p a/b/c d; chmod 700 a/b; $CP -a --parents a/b/c d; $CP -R --parents a/ d",
            "mkdir -p a/b d; $CP --parents gone/x d; $CP --no-preserve=mode --parents a/b d",
            "mkfifo p; mkdir d; touch d/f; $CP -r p q; $CP -a p d; chmod 7777 p; $CP -r p r",
            "echo x | $CP /dev/stdin a; $CP /dev/null b; echo c > c; $CP c /dev/stdout | cat",
            "echo c > c; $CP c /dev/null; $CP -v c d",
            "mkfifo p; (echo hello > p &); $CP p a",
            "mkfifo p; chmod 6755 p; (echo hello > p &); $CP p a; (echo hello > p &); $CP -p p b",
            "mkfifo p; chmod 6755 p; (echo hello > p &); $CP --no-preserve=mode p a",
            "mkdir s; mkfifo s/p; chmod 6755 s/p; (echo hello > s/p &); $CP -R --copy-contents s t",
            "mkdir d; echo a > a; cd d; rmdir ../d; $CP ../a x",
            "mkfifo p; mkdir s; mkfifo s/p; (echo hello > s/p &); $CP -R --copy-contents s t",
            "mkfifo p; timeout 60 cat p > got & truncate -s 100k s; $CP s p; wait",
            "mkdir d; echo f > d/f; mkdir e; $CP -r --strip-trailing-slashes d/ e",
            "echo f > f; ln -s f l; $CP -d --strip-trailing-slashes l/ m; $CP f f2/",
            "mkdir d; echo f > d/f; $CP -a d/. e; $CP -rT d e; $CP -r d e",
            "mkdir s t; echo f > s/f; ln s/f s/g; $CP -a s t; ls t/s | wc -l",
            "mkdir s; echo f > s/f; ln s/f s/m; ln s/f s/e; ln s/f s/n; mkdir -p t/s; \
             echo o > t/s/f; ln t/s/f t/s/e; touch -d '1 hour' t/s/f; echo n > t/s/n; \
             touch -d '1 hour' t/s/n; $CP -au s t",
            "umask 027; mkdir s; echo f > s/f; chmod 777 s s/f; $CP -r s t",
            "mkdir s; chmod 1777 s; $CP -r s t; chmod 2755 s; $CP -r s u; $CP -a s v",
            "echo a > \"it's\"; $CP -v \"it's\" b; $CP -v b 'a b'; $CP gone\"'\" x",
            "echo a > a; $CP --b=simple -v a b; $CP --b=simple -v a b; $CP --rem -v a b",
            "echo a > a; POSIXLY_CORRECT=1 $CP a -b; ln -s n l; POSIXLY_CORRECT=1 $CP a l",
            "mkdir d; echo a > a; echo b > d/a; $CP -iR a d < /dev/null; echo y | $CP -i a d",
        ],
        false,
    );
}

#[test]
fn names_backups_and_modes_are_those_of_gnu_cp() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "mkdir p s; chmod 2755 p; mkdir s/x; chmod 355 s/x; $CP -r s p; chmod 755 s/x p/s/x",
            "echo a > a; ln a b; $CP -li a b < /dev/null; echo y | $CP -li a b",
            "echo a > a; echo b > b; echo y | $CP -li a b; echo c > c; echo n | $CP -li a c; cat b c",
            "echo n > n; echo o > f; $CP --backup=numbered --backup n f; $CP --backup=t -b n f; ls",
            "echo a > a; $CP -v a b > /dev/full; cat b",
            "echo a > a; echo b > b; echo c > c; echo d > d; $CP -lfv a b; $CP -sfv a c; \
             $CP -lv --remove-destination a d; echo e > e; echo y | $CP -liv a e",
            "mkdir -p s/a d2; chmod 2775 d2; chgrp 100 d2; echo x > s/a/f; chmod 770 s s/a; \
             $CP -a --parents s/a/f d2; $CP --parents s/a/f d2; $CP -r --preserve=ownership s d2/t",
            "umask 022; mkdir -p s/a t; echo x > s/a/f; chmod 770 s s/a; setfacl -d -m u:1000:rwx t; \
             $CP -a --parents s/a/f t; getfacl -pR t; $CP --parents s/a t/a; getfacl -pR t",
            "cp /bin/sleep s1; ln s1 s2; chown 1000:1000 s1; chmod 4755 s1; ./s1 100 & S=$!; \
             i=0; until [ /proc/$S/exe -ef s1 ] || [ $i -eq 600 ]; do i=$((i+1)); sleep .1; done; \
             cp /bin/true src; chown 1000:1000 src; chmod 4755 src; $CP -pf src s1; ls -ln s1; \
             kill $S; wait $S 2> /dev/null || true",
            "echo o > d; chmod 4755 d; echo n > s; $CP --preserve=ownership s d; ls -l d | cut -c1-10",
            "echo o > d; chown 1:1 d; chmod 4755 d; echo n > s; $CP --preserve=ownership s d; \
             $CP -a --no-preserve=mode s d; ls -ln d | cut -c1-16",
            "mkdir s t; echo x > s/f; $CP -rv s/. t; $CP -rv s/./ t/; cd s; $CP -rv . ../t",
            "mkdir s o; echo x > s/f; ln -s o t; $CP -a s/. t; $CP -rv s/. t/; $CP -aT s/. t",
            "mkdir d; echo x > f; $CP -v f d//; $CP -v f d/.; $CP -vt d/// f",
            "mkdir s d; echo x > s/f; $CP s/f d; $CP -bv s/f d/./; $CP -bv s/f d//f; $CP -rbv s/. d/./; \
             $CP --backup=t -v s/f d/./f; $CP -lbv s/f d/./f; $CP -fbv s/./f s/./f",
            "mkdir d e; echo a > d/a; ln d/a d/b; ln -s a d/l; mkfifo d/p; $CP -a d e; \
             $CP -ab d e; $CP -a --backup=t d e; $CP -a --backup=t d e",
            "echo a > a; $CP --preserve=mod a b; $CP --preserve=time,own a c; $CP --sparse=al a d",
            "echo a > a; $CP --reflink=n a f; $CP --no-preserve=x a g; $CP --backup=num a g",
            "mkfifo p; chmod 7777 p; $CP -a --no-preserve=mode p q; umask 077; $CP -r p r; \
             $CP -r --no-preserve=mode p s",
            "mkdir s; chmod 7777 s; $CP -a --no-preserve=mode s t; $CP -r --no-preserve=mode s u; \
             chmod 6711 s; $CP -a --no-preserve=ownership s v; $CP -r --preserve=mode s w",
        ],
        false,
    );
}

#[test]
fn directories_that_exist_and_sources_given_twice_are_those_of_gnu_cp() {
    if !is_gnu() {
        return;
    }
    compare(
        &[
            "mkdir -p a t/a; echo x > a/f; chmod 700 a; $CP -p --parents a/f t",
            "mkdir -p s t/s; ln -s x s/l; echo o > t/s/l; mkfifo s/p; echo o > t/s/p; $CP -rH s t; \
             ln -s y s/m; echo o > t/s/m; ln t/s/m t/s/n; $CP -rH s/. t/s; ln -s s/l k; $CP -H k t/s/m",
            "mkdir -p s t/s; echo x > s/f; ln -s f s/l; ln s/f t/s/l; $CP -rH s t; $CP -rH s/l t/s",
            "mkdir -p a/b t/a; echo x > a/b/f; chmod 700 a; $CP -a --parents a/b t",
            "mkdir -p a/b/c t/a; echo x > a/b/c/f; chmod 700 a a/b; $CP -p --parents a/b/c/f t",
            "mkdir -p a/b t; echo x > a/b/f; chmod 1777 a/b; $CP --parents --no-preserve=mode a/b/f t",
            "mkdir -p a/b t; echo x > a/b/f; chmod 1777 a/b; $CP --parents a/b/f t",
            "mkdir s t; echo f > s/f; $CP -r --backup=t s s t; $CP -r --backup=t s ./s t",
            "mkdir a b t; echo f > a/f; ln a/f b/f; $CP a/f b/f t",
            "mkdir t; echo f > f; $CP f f t; $CP f ./f t; $CP --backup=t f f t",
            "mkdir -p s/x t; touch s/x/f; for l in gone s; do ln -sfn $l t/s; $CP --parents s/x/f t; done; \
             rm t/s; touch t/s; $CP --parents s/x/f t",
            "mkdir -p a/b/c b/c; echo n > a/b/c/f; echo o > b/c/g; $CP -r a/b b/c .",
            "mkdir -p a/b/c b/c; echo n > a/b/c/f; echo o > b/c/g; $CP -r b/c a/b .",
            "mkdir -p a/b b; echo new > a/b/f; echo o > b/f; $CP -r a/b b/f .",
            "mkdir -p a/b b; echo new > a/b/f; echo o > b/f; $CP -r b/f a/b .",
            "mkdir t; echo new > f; echo o > t/f; ln -s t/f l; $CP f l t",
            "mkdir -p a/b t/b; echo n > a/b/f; echo o > t/b/g; ln -s t/b l; $CP -r a/b l/ t",
            "mkdir a; $CP -r a/. a; $CP -rT a a; mkdir a/b; cd a; $CP -r b/ .",
            "mkdir d; echo x > d/f; ln -s . dot; for o in -rl -rbl -rlu -rlf -alb -rli -rn -rs -ru -rb; do \
             $CP $o d dot; echo $?; done",
            "mkdir d; echo x > d/f; $CP -rl d .; $CP -rl d/. d; $CP -rlT d d; $CP -rl --parents d .",
            "mkdir d; echo x > d/f; ln -s d l; $CP -rlT d l/; $CP -rlT l d; $CP -rlT d l",
            "echo n > f; echo o > d; touch d.~99~ d.~18446744073709551615~; $CP --backup=t f d",
            "d=s; for i in 1 2 3 4 5 6 7 8; do d=$d/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a/a; done; \
             mkdir -p $d; ulimit -n 256; $CP -r s t; find t | wc -l",
            "echo n > f; echo o > d; touch d.~999~ d.~99999999999999999999999~; $CP -b f d",
        ],
        false,
    );
}

#[test]
fn a_plain_user_gets_what_gnu_cp_does() {
    if !is_gnu() || !is_root() {
        return;
    }
    compare(
        &[
            "touch f; chmod 0 f; $CP f gone/; $CP f gone/x; mkdir d; $CP f d/",
            "echo a > a; echo b > b; chmod 444 b; $CP a b",
            "echo a > a; echo b > b; chmod 444 b; echo y | $CP -i a b; echo n | $CP -i a b",
            "echo a > a; echo b > b; chmod 1464 b; ln -s b l; echo ' y' | $CP -i a b; \
             echo n | $CP -if a l; chmod 4070 b; echo n | $CP -i --remove-destination a l; \
             echo n | $CP -i --remove-destination a b; echo y | $CP -if a b; cat b",
            "mkdir -p s/d; echo f > s/f; echo g > s/d/g; umask 277; $CP -r s t; umask 777; \
             $CP -r s u; $CP -r --parents s/d v",
            "mkdir -p s/d v; echo g > s/d/g; umask 377; $CP -r --parents s/d v; chmod 700 v/s v/s/d",
            "echo a > a; echo b > b; chmod 444 b; $CP -fv a b",
            "echo a > a; echo b > b; chmod 644 b; mkdir d; echo b > d/a; chmod 555 d; $CP a d",
            "echo a > a; mkdir d; chmod 555 d; $CP a d",
            "echo a > a; chmod 0 a; $CP a b",
            "mkdir s; echo a > s/a; mkdir s/x; chmod 0 s/x; $CP -r s t; chmod 700 s/x t/x",
            "mkdir -p s/d; touch s/a; chmod 0 s/a; chmod 500 s; $CP -pR s t; chmod 700 s t",
            "mkdir -p d/d; touch f; ln -s d/d l; chmod 0 d; $CP f l; $CP -T f l; $CP -t l f; chmod 700 d",
            "mkdir s; echo a > s/r; chmod 444 s/r; setfattr -n user.c -v hello s/r; $CP -a s t; \
             getfattr -d t/r",
            "mkdir s; chmod 500 s; $CP -r s t; mkdir s2; echo a > s2/a; chmod 555 s2; $CP -r s2 t2; \
             chmod 700 s2 t2",
            "echo a > a; $CP -p /etc/hostname h; $CP --preserve=ownership /etc/hostname i",
            "$CP /root x; $CP -r /root x",
            "mkdir -p D/e; touch D/f; chmod 600 D; $CP -r D x; $CP -r D/e y; chmod 700 D x; rm -r D",
            "echo a > a; chmod 4755 a; $CP -p a b; echo c > c; $CP c a",
            "echo a > a; touch -d 2001-01-01 a; chmod 0 a; echo b > b; $CP -u a b; $CP -n a b; \
             touch -d 2000-01-01 b; $CP -u a b; cat b",
        ],
        true,
    );
}

/// Goal: a link whose target cannot be examined is a target itself. Method: one in a closed directory, and a text
/// that is too long.
#[test]
fn links_that_cannot_be_followed_are_replaced_as_by_gnu_cp() {
    if !is_gnu() || !is_root() {
        return;
    }
    let link = |make: &str, operands: &str| {
        format!(
            "mkdir d p; echo 1 > f; ln -s q l; {make}; \
             for o in -P -a -uP -bP '-P -n' -iP -l -lf --rem -b -f -n -p; do rm -f d/*; ln -s $T d/m; \
             $CP $o {operands} d/m; echo \"$o $? $(ls d)\" $(readlink d/m) >> log; done; sort log"
        )
    };
    let closed = "T=../p/x/y; chmod 0 p";
    let long = "T=$(printf %04000d 0)";
    for (make, plain) in [(closed, true), (long, false)] {
        let scripts = ["l", "f"].map(|source| link(make, source));
        let others = format!(
            "mkdir d s p; touch f; {make}; ln -s $T d/m; $CP -r s d/m; cd d; $CP -sf ../f m"
        );
        compare(&[scripts[0].as_str(), scripts[1].as_str(), others.as_str()], plain);
    }
}

#[test]
fn a_target_directory_that_cannot_be_listed_is_used_as_gnu_cp_does() {
    if !is_gnu() || !is_root() {
        return;
    }
    let all = "c=$?; chmod -R u+rwX t; exit $c";
    let make = "mkdir -p s/d t/s/d; echo f > s/f; echo g > s/d/g; ln -s f s/l; mkfifo s/p; \
                touch -d 2001-01-01 s s/d; echo old > t/s/f";
    let (mut scripts, fill) = (Vec::new(), "echo o > t/s/d/g; echo o > t/s/l; echo o > t/s/p");
    for mode in ["100", "300", "000", "400", "500"] {
        // GNU cp 9.1 moves the backups from a directory that it cannot list into the source.
        let backup = if mode == "300" { "-rn" } else { "-rb" };
        for options in ["-r", "-a", "-rp", backup, "-rf", "-r --rem", "-rT s/. t/s/d", "-ru"] {
            let operands = if options.contains('T') { "" } else { "s t" };
            for fill in ["true", fill] {
                scripts.push(format!(
                    "{make}; {fill}; chmod {mode} t/s; $CP {options} {operands}; {all}"
                ));
            }
            scripts
                .push(format!("{make}; chmod {mode} t/s/d t/s; $CP {options} {operands}; {all}"));
            scripts.push(format!("{make}; chmod {mode} t/s t; $CP {options} {operands}; {all}"));
        }
        scripts.push(format!("{make}; chmod {mode} t/s; $CP --parents -r s/d s/f t; {all}"));
        scripts.push(format!("{make}; chmod {mode} t/s; $CP --parents -a s/d s/f t; {all}"));
        scripts.push(format!("{make}; chmod {mode} t/s; $CP -a s/f s/l t/s; {all}"));
        scripts.push(format!("{make}; chmod {mode} t/s; $CP -rl s t; {all}"));
        scripts.push(format!("{make}; chmod {mode} t/s; $CP -rsf ../../s t; {all}"));
    }
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    compare(&scripts, true);
}

/// Goal: a directory is recognised under another path. Method: bind mounts, each in a mount namespace that disappears
/// with its shell.
#[test]
fn bind_mounts_of_a_directory_are_copied_as_gnu_cp_does() {
    if !is_gnu() || !is_root() {
        return;
    }
    let bound = |make: &str, mount: &str, copy: &str| {
        let inner = format!("mount --bind {mount} && exec $CP {copy}");
        format!("{make}; PATH=$PATH:/usr/sbin:/sbin; unshare -m sh -c '{inner}'")
    };
    let tried = Command::new("sh").args(["-c", "unshare -m mount --bind /tmp /tmp"]).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return println!("skipped: cannot mount here");
    }
    let one = "mkdir -p a/b c; echo x > a/b/f";
    let two = "mkdir -p a/b c/b; echo x > a/b/f; echo y > a/g";
    let mut scripts = Vec::new();
    for copy in ["-aT a c", "-rT c a", "-rxT a c", "-rlT a c", "-rnT a c", "-r a/b c"] {
        scripts.push(bound(one, "a c", copy));
    }
    for copy in ["-rT a c", "-rxT a c", "-rlT a c", "-rnT a c"] {
        scripts.push(bound(two, "a/b c/b", copy));
    }
    scripts.push(bound("mkdir -p p/s/in r", "p/s/in r", "-r p/s r"));
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    compare(&scripts, false);
    let program = format!("{} cp", program(false));
    let [plain, resumed] = ["-rT a c", "-rT --resume a c"]
        .map(|copy| seen(&bound("mkdir -p a c; echo x > a/f", "a c", copy), &program, false));
    assert_eq!(plain, resumed, "a journal is left");
}

/// A file of another user in a directory where both may create files.
#[test]
fn the_owner_of_a_shared_file_stays() -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    let dir = place();
    let open = std::os::unix::fs::PermissionsExt::from_mode;
    let shared = tempfile::tempdir()?;
    fs::set_permissions(shared.path(), open(0o777))?;
    let file = shared.path().join("file");
    fs::write(&file, "old")?;
    fs::set_permissions(&file, open(0o666))?;
    fs::write(shared.path().join("new"), "new")?;
    let status = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            &program(true),
            "cp",
            "new",
            "file",
        ])
        .current_dir(shared.path())
        .status()?;
    assert!(status.success());
    assert_eq!((fs::read(&file)?, fs::metadata(&file)?.uid()), (b"new".to_vec(), 0));
    // The same for root: the file is replaced, and keeps its owner.
    std::os::unix::fs::chown(&file, Some(1234), Some(4321))?;
    let before = fs::metadata(&file)?.ino();
    let copied = ioloom().current_dir(shared.path()).args(["cp", "new", "file"]).status()?;
    assert!(copied.success());
    let after = fs::metadata(&file)?;
    assert_eq!((after.uid(), after.gid()), (1234, 4321));
    assert_ne!(after.ino(), before, "the file is replaced");
    drop(dir);
    Ok(())
}
