//! Commands that clients send to set up a connection: authentication, protocol version, names.
//!
//! Client libraries give up if such a command fails, although few of them need its reply. Settings
//! without a meaning here (the library's name, the database 0) are accepted; anything that would
//! change the behaviour of the connection, such as `CLIENT REPLY OFF` or another database, is an
//! error. So a client never relies on something that the server does not do.

use super::peer::Peer;
use super::reply::Reply;
use crate::answer::{Fault, Local};
use crate::codec::request::{Command, Form, Request, Step};
use crate::codec::syntax::number;
use crate::token::Access;
use std::sync::Arc;

/// Maximum length of a client name in bytes.
const NAME_MAX: usize = 64;

/// Name, number of words including the name (negative: at least), and flag of each command.
const COMMANDS: [(&str, i64, &str); 13] = [
    ("auth", -2, "fast"),
    ("buy", 3, "write"),
    ("client", -2, "fast"),
    ("command", -1, "fast"),
    ("config", -2, "readonly"),
    ("echo", 2, "fast"),
    ("hello", -1, "fast"),
    ("info", -1, "readonly"),
    ("ping", -1, "fast"),
    ("quit", -1, "fast"),
    ("select", 2, "fast"),
    ("sell", 3, "write"),
    ("show", 1, "readonly"),
];

/// Settings that programs read, with their values.
const SETTINGS: [(&str, &str); 4] =
    [("appendonly", "no"), ("databases", "1"), ("maxmemory", "0"), ("save", "")];

/// A request that may be a set-up command.
pub(super) struct Startup<'a> {
    pub(super) words: &'a [&'a [u8]],
    /// Length of the request in bytes.
    pub(super) used: usize,
    pub(super) peer: &'a mut Peer,
    /// The tokens, one of which must be presented first.
    pub(super) access: Option<&'a Access>,
    /// Whether the client has presented one.
    pub(super) is_open: bool,
    /// Number of the connection.
    pub(super) number: u64,
}

fn is(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

impl Startup<'_> {
    /// Answers a request received before the token. A wrong token closes the connection, so each
    /// guess costs a new connection.
    pub(super) fn before_token(self) -> Step {
        match self.words {
            [word, ..] if is(word, "HELLO") => self.hello(),
            [word, rest @ ..] if is(word, "AUTH") => self.auth(rest),
            [word] if is(word, "QUIT") => Step::Last(local(Local::Bye)),
            _ => self.fault(Fault::Token),
        }
    }

    /// Answers a set-up command; returns `None` if it is another command.
    pub(super) fn answer(self) -> Option<Step> {
        let [word, rest @ ..] = self.words else { return None };
        let (is, used) = (|known| is(word, known), self.used);
        // Orders first: they must not pay for the comparisons.
        if is("BUY") || is("SELL") || is("SHOW") {
            return None;
        }
        let reply = Reply::new(self.peer.is_three);
        if is("PING") {
            return Some(match rest {
                [] => Step::Got(used, local(Local::Pong)),
                [text] => self.reply(reply.bulk(text)),
                _ => self.fault(Fault::Number),
            });
        }
        Some(if is("HELLO") {
            self.hello()
        } else if is("AUTH") {
            self.auth(rest)
        } else if is("ECHO") && rest.len() == 1 {
            self.reply(reply.bulk(rest[0]))
        } else if is("CLIENT") {
            self.client(rest)
        } else if is("COMMAND") {
            let reply = command(rest, reply);
            self.reply(reply)
        } else if is("CONFIG") {
            let reply = config(rest, reply);
            self.reply(reply)
        } else if is("SELECT") {
            match rest {
                [database] if number(database) == Some(0) => Step::Got(used, local(Local::Fine)),
                _ => self.reply(reply.error("ERR DB index is out of range")),
            }
        } else if is("INFO") {
            Step::Got(used, Request::plain(Command::Health, Form::Resp))
        } else if is("QUIT") {
            Step::Last(local(Local::Bye))
        } else {
            return None;
        })
    }

    /// `AUTH [NAME] TOKEN`. A server without tokens accepts any.
    fn auth(self, words: &[&[u8]]) -> Step {
        let ([shown] | [_, shown]) = words else { return self.fault(Fault::Number) };
        match self.access.map(|access| access.rights(shown)) {
            None => Step::Got(self.used, local(Local::Fine)),
            Some(Some(rights)) => Step::Opened(self.used, local(Local::Fine), Some(rights)),
            Some(None) => Step::Last(local(Local::Fault(Fault::Token))),
        }
    }

    /// `HELLO [VERSION [AUTH NAME TOKEN] [SETNAME NAME]]`: nothing changes unless all of it is
    /// valid.
    fn hello(self) -> Step {
        let error =
            |text| Step::Got(self.used, encoded(Reply::new(self.peer.is_three).error(text)));
        let mut rest = &self.words[1..];
        let mut is_three = self.peer.is_three;
        if let [version, more @ ..] = rest {
            is_three = match number(version) {
                Some(2) => false,
                Some(3) => true,
                Some(_) => return error("NOPROTO unsupported protocol version"),
                None => {
                    return error("ERR Protocol version is not an integer or out of range");
                }
            };
            rest = more;
        }
        let (mut name, mut rights) = (None, None);
        loop {
            rest = match rest {
                [] => break,
                [word, _, token, more @ ..] if is(word, "AUTH") => {
                    rights = self.access.map(|access| access.rights(token));
                    more
                }
                [word, asked, more @ ..] if is(word, "SETNAME") => {
                    let Some(asked) = client_name(asked) else { return error(BAD_NAME) };
                    name = Some(asked);
                    more
                }
                _ => return error("ERR syntax error in HELLO option"),
            };
        }
        let rights = match (self.access, rights) {
            (None, _) => None,
            (Some(_), Some(Some(rights))) => Some(rights),
            (Some(_), Some(None)) => return Step::Last(local(Local::Fault(Fault::Token))),
            (Some(_), None) if self.is_open => None,
            (Some(_), None) => return self.fault(Fault::Token),
        };
        self.peer.is_three = is_three;
        if let Some(name) = name {
            self.peer.name = name;
        }
        let text = |reply: Reply, key: &str, value: &str| {
            reply.bulk(key.as_bytes()).bulk(value.as_bytes())
        };
        let mut reply = text(Reply::new(is_three).map(7), "server", "ioloom");
        reply = text(reply, "version", env!("CARGO_PKG_VERSION"));
        reply = reply.bulk(b"proto").number(if is_three { 3 } else { 2 });
        reply = reply.bulk(b"id").number(self.number);
        reply = text(text(reply, "mode", "standalone"), "role", "master");
        let request = encoded(reply.bulk(b"modules").array(0));
        match rights {
            Some(rights) => Step::Opened(self.used, request, Some(rights)),
            None => Step::Got(self.used, request),
        }
    }

    fn client(self, words: &[&[u8]]) -> Step {
        let reply = Reply::new(self.peer.is_three);
        let [word, rest @ ..] = words else { return self.fault(Fault::Number) };
        let (is, used) = (|known| is(word, known), self.used);
        let fine = |is_fine| match is_fine {
            true => Step::Got(used, local(Local::Fine)),
            false => Step::Got(used, local(Local::Fault(Fault::Number))),
        };
        if is("ID") {
            self.reply(reply.number(self.number))
        } else if is("GETNAME") {
            let reply = match &self.peer.name {
                Some(name) => reply.bulk(name.as_bytes()),
                None => reply.null(),
            };
            self.reply(reply)
        } else if is("SETNAME") {
            match rest {
                [asked] => match client_name(asked) {
                    Some(name) => {
                        self.peer.name = name;
                        fine(true)
                    }
                    None => self.reply(reply.error(BAD_NAME)),
                },
                _ => fine(false),
            }
        } else if is("SETINFO") {
            let known = |word: &[u8]| {
                word.eq_ignore_ascii_case(b"LIB-NAME") || word.eq_ignore_ascii_case(b"LIB-VER")
            };
            fine(matches!(rest, [attribute, _] if known(attribute)))
        } else if is("INFO") {
            let name = self.peer.name.as_deref().unwrap_or_default();
            let version = if self.peer.is_three { 3 } else { 2 };
            let text = format!("id={} name={name} db=0 resp={version}\n", self.number);
            self.reply(reply.bulk(text.as_bytes()))
        } else if is("NO-EVICT") || is("NO-TOUCH") {
            fine(rest.len() == 1)
        } else {
            self.fault(Fault::Command)
        }
    }

    fn fault(&self, fault: Fault) -> Step {
        Step::Got(self.used, local(Local::Fault(fault)))
    }

    fn reply(&self, reply: Reply) -> Step {
        Step::Got(self.used, encoded(reply))
    }
}

const BAD_NAME: &str =
    "ERR Client names cannot contain spaces, newlines or special characters, or exceed 64 bytes";

fn local(local: Local) -> Request {
    Request::local(local, Form::Resp)
}

fn encoded(reply: Reply) -> Request {
    local(Local::Reply(reply.end()))
}

/// Parses a client name; an empty one removes the name.
fn client_name(word: &[u8]) -> Option<Option<Arc<str>>> {
    let fits = word.len() <= NAME_MAX && word.iter().all(u8::is_ascii_graphic);
    let name = std::str::from_utf8(word).ok().filter(|_| fits)?;
    Some((!name.is_empty()).then(|| Arc::from(name)))
}

/// `COMMAND [COUNT | LIST | DOCS | INFO [NAME …]]`.
fn command(words: &[&[u8]], reply: Reply) -> Reply {
    let entry = |reply: Reply, (name, arity, flag): (&str, i64, &str)| {
        let reply = reply.array(10).bulk(name.as_bytes()).signed(arity).array(1).simple(flag);
        // No word is a key, and there are no categories, tips, key specifications or subcommands.
        reply.number(0).number(0).number(0).array(0).array(0).array(0).array(0)
    };
    match words {
        [] => COMMANDS.into_iter().fold(reply.array(COMMANDS.len()), entry),
        [word] if is(word, "COUNT") => reply.number(COMMANDS.len() as u64),
        [word] if is(word, "LIST") => COMMANDS
            .into_iter()
            .fold(reply.array(COMMANDS.len()), |reply, (name, ..)| reply.bulk(name.as_bytes())),
        [word, ..] if is(word, "DOCS") => reply.map(0),
        [word, names @ ..] if is(word, "INFO") => {
            names.iter().fold(reply.array(names.len()), |reply, name| {
                let known = COMMANDS.into_iter().find(|(known, ..)| is(name, known));
                match known {
                    Some(known) => entry(reply, known),
                    None => reply.null(),
                }
            })
        }
        _ => reply.error("ERR unknown-command"),
    }
}

/// `CONFIG GET NAME …`: settings that do not exist are omitted.
fn config(words: &[&[u8]], reply: Reply) -> Reply {
    match words {
        [word, names @ ..] if is(word, "GET") && !names.is_empty() => {
            let asked = |setting: &&(&str, &str)| {
                names.iter().any(|name| is(name, setting.0) || *name == b"*")
            };
            let found: Vec<_> = SETTINGS.iter().filter(asked).collect();
            found.iter().fold(reply.map(found.len()), |reply, (name, value)| {
                reply.bulk(name.as_bytes()).bulk(value.as_bytes())
            })
        }
        _ => reply.error("ERR unknown-command"),
    }
}
