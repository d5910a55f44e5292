//! `ioloom trace grant` and `revoke`: give one user access to kernel events, or remove it.

use crate::exit::{Ended, Exit, Failure};
use crate::out;
use clap::Args;
use ioloom_failure::quoted;
use ioloom_sys_trace::tracefs::grant;
use serde::Serialize;
use std::io;
use std::path::Path;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;

#[derive(Debug, Args)]
pub(crate) struct UserArgs {
    /// User name or ID
    ///
    /// Other users are not affected.
    #[arg(long, value_name = "USER")]
    user: String,

    /// Print one JSON document
    ///
    /// The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

/// The document of both commands.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    command: &'a str,
    uid: u32,
    done: &'a [String],
}

pub(crate) fn grant(args: &UserArgs) -> Ended {
    let uid = number(&args.user)?;
    if uid == 0 {
        return Err(Failure::usage("root sees kernel events without a grant"));
    }
    let done = grant::grant(uid).map_err(|e| failure("grant", &args.user, &e))?;
    show(args, "trace grant", uid, &done)?;
    if !args.json {
        let text = format!(
            "User {} can now record when each thread ran and which requests each device received, but \
             no data. To revoke the grant: sudo ioloom trace revoke --user {}",
            args.user, args.user
        );
        out::print(&out::wrap(&text, out::columns(), 0))?;
    }
    Ok(Exit::Ok)
}

pub(crate) fn revoke(args: &UserArgs) -> Ended {
    let uid = number(&args.user)?;
    let done = grant::revoke(uid).map_err(|e| failure("revoke", &args.user, &e))?;
    show(args, "trace revoke", uid, &done)?;
    Ok(Exit::Ok)
}

fn show(args: &UserArgs, command: &str, uid: u32, done: &[String]) -> Result<(), Failure> {
    if args.json {
        return out::print_json(&Document { schema: SCHEMA, command, uid, done });
    }
    let lines: Vec<String> = done.iter().map(|line| out::wrap(line, out::columns(), 2)).collect();
    out::print(&if lines.is_empty() { "Nothing to change.\n".to_owned() } else { lines.concat() })
}

fn failure(what: &str, user: &str, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::refused(format!(
            "{error}; run it as root: sudo ioloom trace {what} --user {user}"
        )),
        io::ErrorKind::NotFound if what == "revoke" => {
            Failure::refused(format!("{error}; nothing was granted to {user}"))
        }
        io::ErrorKind::ResourceBusy => {
            Failure::refused(format!("{error}; wait until {user} has finished recording"))
        }
        io::ErrorKind::Unsupported => Failure::refused(error),
        _ => Failure::failed(error),
    }
}

/// Resolves a user name or ID to an ID.
fn number(user: &str) -> Result<u32, Failure> {
    match user.parse() {
        // The kernel takes the largest number for no user at all.
        Ok(u32::MAX) => return Err(Failure::usage(format!("invalid user ID '{user}'"))),
        Ok(uid) => return Ok(uid),
        Err(_) => {}
    }
    let text = std::fs::read_to_string("/etc/passwd")
        .map_err(|e| Failure::failed(format!("cannot read '/etc/passwd': {e}; use the user ID")))?;
    let named = quoted(Path::new(user));
    uid_of(&text, user)
        .ok_or_else(|| Failure::usage(format!("no user {named} in /etc/passwd; use the user ID")))
}

fn uid_of(passwd: &str, user: &str) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == user).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_have_numbers() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\n\nanna:x:1001:100::/home/anna:\nbroken\n";
        assert_eq!(uid_of(passwd, "anna"), Some(1001));
        assert_eq!(uid_of(passwd, "root"), Some(0));
        assert_eq!(uid_of(passwd, "ann"), None);
        assert_eq!(number("65534").unwrap(), 65534);
        assert!(number("").unwrap_err().message.starts_with("no user '' in"));
        let odd = number("a\u{1b}[2J").unwrap_err().message;
        assert!(!odd.contains(char::is_control), "{odd:?}");
        assert!(number("4294967295").unwrap_err().message.contains("invalid user ID"));
    }
}
