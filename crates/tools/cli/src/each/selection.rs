//! Which files of a directory are processed, and how many entries were skipped.

use clap::{Args, FromArgMatches};
use ioloom::{Files, Links, Tree, Walked};
use ioloom_du::exclude::Exclude;
use ioloom_failure::quoted;
use ioloom_model::units::format_counted;
use serde_json::json;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Flags that select files. They apply to directories that are walked, not to files given by name.
#[derive(Debug, Clone, Args)]
pub(crate) struct Selection {
    /// Follow all symbolic links
    ///
    /// Without it, only links given as arguments are followed. A directory that contains itself is
    /// not entered again, but a file that is reached by two paths is processed twice. Broken links
    /// are skipped.
    #[arg(short = 'L', long)]
    dereference: bool,

    /// Stay on the file system of each argument
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Exclude what matches a pattern; repeatable
    ///
    /// Patterns are those of `du --exclude`: '*.o' and 'cache' match a name at any depth, 'a/b' the
    /// end of a path. An excluded directory is not entered.
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,

    /// Obey .gitignore and .ignore files
    ///
    /// Applies those of each directory and of the directories above the argument, up to one that
    /// contains .git. Rules of .ignore take precedence; those of .gitignore end at a nested
    /// repository. Global rules of git are not read. .git itself is not ignored; add --skip-hidden
    /// for that. By default every file is processed.
    #[arg(long)]
    ignore: bool,

    /// Skip entries whose names begin with a dot
    #[arg(long)]
    skip_hidden: bool,
}

/// Skipped entries by reason. A skipped directory counts once.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SkippedCounts {
    hidden: u64,
    ignored: u64,
    excluded: u64,
    other_file_systems: u64,
    links: u64,
    loops: u64,
    sockets: u64,
    pipes: u64,
    devices: u64,
}

impl Selection {
    /// Returns whether any flag is given.
    pub(super) fn is_given(&self) -> bool {
        self.dereference
            || self.one_file_system
            || self.ignore
            || self.skip_hidden
            || !self.exclude.is_empty()
    }

    /// Returns the flags as words of a command line.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let flags = [
            (self.dereference, "--dereference"),
            (self.one_file_system, "--one-file-system"),
            (self.ignore, "--ignore"),
            (self.skip_hidden, "--skip-hidden"),
        ];
        let given = flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag.into());
        let excluded = self.exclude.iter().map(|pattern| {
            let mut word = OsString::from("--exclude=");
            word.push(pattern);
            word
        });
        given.chain(excluded).collect()
    }

    /// Parses such words.
    pub(crate) fn of_words(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let command = Self::augment_args(clap::Command::new("selection").no_binary_name(true));
        Self::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    /// Returns the selected files below directories, and files given by name.
    pub(super) fn trees<P: AsRef<Path>>(
        &self,
        roots: impl IntoIterator<Item = P>,
    ) -> Files<'static, Tree> {
        let links = if self.dereference { Links::All } else { Links::Skip };
        let trees = ioloom::trees(roots)
            .skip_hidden(self.skip_hidden)
            .ignore_files(self.ignore)
            .same_file_system(self.one_file_system)
            .links(links);
        if self.exclude.is_empty() {
            return trees;
        }
        let mut exclude = Exclude::new();
        self.exclude.iter().for_each(|pattern| exclude.add(pattern.as_bytes()));
        trees.filter_entry(move |entry| !exclude.matches(entry.path().as_os_str().as_bytes()))
    }
}

impl SkippedCounts {
    pub(super) fn of(walked: &Walked) -> Self {
        Self {
            hidden: walked.hidden,
            ignored: walked.ignored,
            excluded: walked.filtered,
            other_file_systems: walked.foreign,
            links: walked.links,
            loops: walked.loops,
            sockets: walked.sockets,
            pipes: walked.pipes,
            devices: walked.devices,
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.hidden += other.hidden;
        self.ignored += other.ignored;
        self.excluded += other.excluded;
        self.other_file_systems += other.other_file_systems;
        self.links += other.links;
        self.loops += other.loops;
        self.sockets += other.sockets;
        self.pipes += other.pipes;
        self.devices += other.devices;
    }

    /// Returns what was skipped, in `root` if there is one, as one line; `None` if nothing was.
    pub(super) fn sentence(&self, root: Option<&Path>) -> Option<String> {
        let parts: Vec<String> = [
            (self.hidden, "hidden entry", "hidden entries"),
            (self.ignored, "ignored entry", "ignored entries"),
            (self.excluded, "excluded entry", "excluded entries"),
            (self.other_file_systems, "other file system", "other file systems"),
            (self.links, "symbolic link", "symbolic links"),
            (self.loops, "loop of links", "loops of links"),
            (self.sockets, "socket", "sockets"),
            (self.pipes, "named pipe", "named pipes"),
            (self.devices, "device", "devices"),
        ]
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format_counted(count, one, many))
        .collect();
        let place = root.map_or(String::new(), |root| format!("{}: ", quoted(root)));
        (!parts.is_empty()).then(|| format!("{place}skipped {}", parts.join(", ")))
    }

    pub(super) fn json(&self) -> serde_json::Value {
        json!({
            "hidden": self.hidden,
            "ignored": self.ignored,
            "excluded": self.excluded,
            "other_file_systems": self.other_file_systems,
            "links": self.links,
            "loops": self.loops,
            "special": self.sockets + self.pipes + self.devices,
        })
    }
}
