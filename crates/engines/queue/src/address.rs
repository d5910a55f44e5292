//! Where a queue is: `nats://HOST[:PORT]/NAME`.

use crate::error::QueueError;
use async_nats::ServerAddr;
use std::fmt;
use std::str::FromStr;

/// The most characters of the name of a queue.
const NAME_LEN_MAX: usize = 64;

/// A server and the name of a queue on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The URL of the server, without user and password.
    pub(crate) server: String,
    /// What is before the host: a user and a password, or a token.
    pub(crate) login: Option<(String, Option<String>)>,
    /// The name of the queue.
    pub(crate) name: String,
    /// The address for messages, without user and password.
    shown: String,
}

impl Address {
    /// Returns whether connections must be encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.server.starts_with("tls://")
    }
}

impl FromStr for Address {
    type Err = QueueError;

    fn from_str(text: &str) -> Result<Self, QueueError> {
        let invalid = |reason: &str| QueueError::Address { reason: reason.to_owned() };
        let (scheme, rest) = text
            .split_once("://")
            .filter(|(scheme, _)| ["nats", "tls"].contains(scheme))
            .ok_or_else(|| invalid("must be nats://HOST/NAME or tls://HOST/NAME"))?;
        let (authority, name) = rest
            .split_once('/')
            .ok_or_else(|| invalid("lacks the name of the queue: nats://HOST/NAME"))?;
        let (login, host) = match authority.rsplit_once('@') {
            None => (None, authority),
            Some((login, host)) => (Some(login), host),
        };
        let login = login.map(|login| match login.split_once(':') {
            None => (decoded(login), None),
            Some((user, password)) => (decoded(user), Some(decoded(password))),
        });
        let login = match login {
            None => None,
            Some((Some(token), None)) => Some((token, None)),
            Some((Some(user), Some(Some(password)))) => Some((user, Some(password))),
            Some(_) => return Err(invalid("the user or the password is not UTF-8")),
        };
        if host.is_empty() || host.starts_with(':') {
            return Err(invalid("lacks the host: nats://HOST/NAME"));
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_plain) {
            return Err(invalid(
                "the name of the queue must be 1 to 64 letters, digits, '-' and '_'",
            ));
        }
        let server = format!("{scheme}://{host}");
        if let Err(error) = server.parse::<ServerAddr>() {
            let reason = error.to_string();
            let reason = reason.strip_prefix("NATS server URL is invalid: ").unwrap_or(&reason);
            return Err(invalid(reason));
        }
        Ok(Self {
            server,
            login,
            name: name.to_owned(),
            shown: format!("{scheme}://{host}/{name}"),
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Replaces `%` and two hexadecimal digits by their byte. Returns nothing if the result is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        match (*first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_server_and_a_name() {
        let address: Address = "nats://me:secret@[::1]:4223/a-Queue_1".parse().unwrap();
        assert_eq!(address.server, "nats://[::1]:4223");
        assert_eq!(address.login, Some(("me".to_owned(), Some("secret".to_owned()))));
        assert_eq!(address.name, "a-Queue_1");
        assert_eq!(address.to_string(), "nats://[::1]:4223/a-Queue_1");
    }

    #[test]
    fn user_and_password_are_decoded() {
        let login = |text: &str| text.parse::<Address>().map(|address| address.login);
        let text = |text: &str| text.to_owned();
        let found = login("nats://a%40b:p%2Fw%3A100%@h/q").unwrap();
        assert_eq!(found, Some((text("a@b"), Some(text("p/w:100%")))));
        assert_eq!(login("nats://to%6ben@h/q").unwrap(), Some((text("token"), None)));
        assert!(login("nats://a:%ff@h/q").is_err());
    }

    #[test]
    fn others_are_refused() {
        let long = format!("nats://h/{}", "x".repeat(65));
        let wrong = ["h/q", "http://h/q", "nats://h", "nats:///q", "nats://:4222/q", "nats://h/"];
        let hosts = ["nats://h:65536/q", "nats://h:x/q", "nats://[::1/q", "nats://[::x]:4222/q"];
        let names = ["nats://h/a.b", "nats://h/a/b", "nats://h/*", &long];
        for text in wrong.iter().chain(&hosts).chain(&names) {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }
}
