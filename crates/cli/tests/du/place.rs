//! A directory with trees of every kind, `ioloom du` and GNU du.

use ioloom_testbed::ODD_NAMES;
pub(crate) use ioloom_testbed::Ran;
use std::ffi::OsStr;
use std::fs;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_ioloom");

/// A directory of a test.
pub(crate) struct Place(ioloom_testbed::Place);

impl Deref for Place {
    type Target = ioloom_testbed::Place;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(ioloom_testbed::Place::new(PROGRAM))
    }

    /// On the memory file system, where there is one.
    pub(crate) fn in_memory() -> Option<Self> {
        ioloom_testbed::Place::in_memory(PROGRAM).map(Self)
    }

    /// Programs of this place run as a user for whom permissions count.
    pub(crate) fn for_nobody(self) -> Self {
        Self(self.0.for_nobody())
    }

    /// Without what would make du count in other units.
    fn in_bytes(mut command: Command) -> Command {
        for name in ["DU_BLOCK_SIZE", "BLOCK_SIZE", "BLOCKSIZE", "POSIXLY_CORRECT"] {
            command.env_remove(name);
        }
        command
    }

    /// `ioloom du` in this directory, before it is started.
    pub(crate) fn our_command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Self::in_bytes(self.ours(&["du"]));
        command.args(args);
        command
    }

    /// `ioloom du` in this directory.
    pub(crate) fn du<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        self.our_command(args).output().unwrap().into()
    }

    /// GNU du in this directory.
    pub(crate) fn gnu<S: AsRef<OsStr>>(&self, args: &[S]) -> Ran {
        Self::in_bytes(self.command("du")).args(args).output().unwrap().into()
    }

    /// The same flags give the same lines, in any order, and the same exit code.
    pub(crate) fn same(&self, args: &[&str]) {
        let (ours, gnus) = (self.du(args), self.gnu(args));
        let end = if args.iter().any(|a| a.contains('0')) { 0 } else { b'\n' };
        let lines = |ran: &Ran| {
            let lines =
                ran.out.split(|b| *b == end).map(|l| String::from_utf8_lossy(l).into_owned());
            let mut lines: Vec<String> = lines.collect();
            lines.sort();
            lines
        };
        let words = || format!("{args:?}\n{}\n{}", ours.err, gnus.err);
        assert_eq!(lines(&ours), lines(&gnus), "{}", words());
        assert_eq!(ours.code, gnus.code, "{}", words());
    }

    /// The odd tree, with directories of odd names, a hole, and links that lead round.
    pub(crate) fn odd_tree(&self, root: &str) {
        self.0.odd_tree(root);
        let root = Path::new(root);
        for (i, name) in ODD_NAMES.iter().enumerate() {
            let dir = root.join("dirs").join(OsStr::from_bytes(name));
            self.write(dir.join("inside"), vec![7; i * 5000]);
        }
        fs::File::create(self.at(root).join("deep/hole")).unwrap().set_len(50 << 20).unwrap();
        for (to, link) in [("deep", "again"), ("self", "self")] {
            symlink(to, self.at(root).join(link)).unwrap();
        }
    }

    /// Links of one file in several directories, and several in one.
    pub(crate) fn hard_links(&self, root: &str) {
        let root = Path::new(root);
        self.write(root.join("z/first"), vec![1; 100_000]);
        self.write(root.join("own/one"), vec![1; 9000]);
        for dir in ["a", "deep/er", "z"] {
            fs::create_dir_all(self.at(root).join(dir)).unwrap();
            let link = self.at(root).join(dir).join("link");
            fs::hard_link(self.at(root).join("z/first"), link).unwrap();
        }
        fs::hard_link(self.at(root).join("own/one"), self.at(root).join("own/two")).unwrap();
    }
}

/// Whether GNU du is there, in a version that counts directories in apparent sizes as we do.
pub(crate) fn gnu_is_there() -> bool {
    let version = Command::new("du").arg("--version").output();
    let gnu = version.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("GNU coreutils"));
    let counts = || {
        let empty = tempfile::tempdir().unwrap();
        let out = Command::new("du").arg("-sb").arg(empty.path()).output().unwrap();
        !out.stdout.starts_with(b"0\t")
            || std::os::unix::fs::MetadataExt::size(&fs::metadata(empty.path()).unwrap()) == 0
    };
    if !gnu {
        println!("skipped: no GNU du here");
        return false;
    }
    let counts = counts();
    if !counts {
        println!("skipped: this du counts no directories in apparent sizes");
    }
    counts
}
