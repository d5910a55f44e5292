//! The program with objects of a server in this process.

mod clouds;
mod cp;
mod du;
mod each;
mod independent;
mod web;
mod wrong;

use ioloom_bucket::Server;
use serde_json::Value;
use std::process::{Command, Output};

/// Program output and exit code.
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn well(self) -> Self {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {}", self.out))
    }

    /// Asserts that there is one message and no output.
    fn one_error(&self, code: i32, words: &str) {
        assert_eq!((self.code, &*self.out), (Some(code), ""), "{}", self.err);
        assert_eq!(self.err.lines().count(), 1, "{}", self.err);
        assert!(self.err.contains(words), "'{words}' is missing: {}", self.err);
    }
}

/// Returns the program with an environment that knows only the server.
fn program(server: &Server) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    command.env_clear().envs(server.environment()).env("HOME", "/nonexistent");
    command
}

fn run(server: &Server, args: &[&str]) -> Ran {
    Ran::of(program(server).args(args).output().unwrap())
}
