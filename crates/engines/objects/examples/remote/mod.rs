//! A server in a process of its own, so that its memory and processor time are not those of the run.

use ioloom_objects::{Location, Store};
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The server. It is killed on drop.
pub(crate) struct Remote {
    child: Child,
    input: ChildStdin,
    /// What it prints after its address.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Remote {
    /// Starts this program with the words `server ARGS`. Its first line is the address, for which a store
    /// is returned.
    pub(crate) fn start(args: &[String]) -> (Self, Store) {
        let this = std::env::current_exe().expect("the path of this program");
        let mut command = Command::new(this);
        command.arg("server").args(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a child");
        let input = child.stdin.take().expect("a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let endpoint = lines.next().expect("a line").expect("a line");
        let settings = [
            ("AWS_ENDPOINT_URL", &*endpoint),
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let location = Location::parse("s3://bucket/o/").expect("a URL");
        let store = Store::with_variables(location, settings).expect("settings");
        (Self { child, input, lines }, store)
    }

    /// Sends an empty line, and returns the line that answers it.
    pub(crate) fn ask(&mut self) -> String {
        self.input.write_all(b"\n").expect("the server reads");
        self.lines.next().expect("a line").expect("a line")
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
