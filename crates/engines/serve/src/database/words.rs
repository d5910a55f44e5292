//! Parameters of a connection string that the client library does not know: those that say how the
//! certificate of a database server is verified. They are removed before the library parses the
//! rest.
//!
//! Both forms of libpq are read: URLs, and keywords with values that can be quoted and escaped.

use std::path::PathBuf;

/// How the connection to a database is protected, named like the values of `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protection {
    /// Not encrypted: `disable`, `allow`, `prefer`, or nothing.
    None,
    /// Encrypted, without verification: `require` without CA certificates.
    Encrypted,
    /// Encrypted; the certificate must be issued by a CA: `verify-ca`, or `require` with
    /// certificates.
    Issued,
    /// Encrypted; the certificate must also be valid for the name of the host: `verify-full`.
    Named,
}

/// A connection string without these parameters, and the parameters.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Words {
    /// The string for the library.
    pub(super) rest: String,
    pub(super) protection: Protection,
    /// CA certificates; `None` for those of this system.
    pub(super) authorities: Option<PathBuf>,
}

impl Words {
    /// Reads a connection string. Returns the name of a parameter with an invalid value.
    pub(super) fn read(text: &str) -> Result<Self, &'static str> {
        let is_url = ["postgresql://", "postgres://"].iter().any(|scheme| text.starts_with(scheme));
        let (mut mode, mut authorities) = (None, None);
        let mut is_ours = |name: &str, value: String| match name {
            "sslmode" => set(&mut mode, value),
            "sslrootcert" => set(&mut authorities, value),
            _ => false,
        };
        let rest = if is_url {
            without_in_url(text, &mut is_ours)
        } else {
            // The library reports the error in a string that cannot be read.
            without_in_keywords(text, &mut is_ours).unwrap_or_else(|| text.to_owned())
        };
        let authorities = authorities.filter(|path| !path.is_empty() && path != "system");
        let protection = match mode.as_deref() {
            None | Some("disable" | "allow" | "prefer") => Protection::None,
            Some("require") if authorities.is_none() => Protection::Encrypted,
            Some("require" | "verify-ca") => Protection::Issued,
            Some("verify-full") => Protection::Named,
            Some(_) => return Err("sslmode"),
        };
        Ok(Self { rest, protection, authorities: authorities.map(PathBuf::from) })
    }
}

/// Sets a parameter, of which the last value counts.
fn set(parameter: &mut Option<String>, value: String) -> bool {
    *parameter = Some(value);
    true
}

/// Removes parameters from the query of a URL.
fn without_in_url(text: &str, is_ours: &mut dyn FnMut(&str, String) -> bool) -> String {
    let (place, query) = text.split_once('?').unwrap_or((text, ""));
    let is_other = |pair: &&str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        !pair.is_empty() && !is_ours(name, decoded(value))
    };
    let others: Vec<&str> = query.split('&').filter(is_other).collect();
    match others.as_slice() {
        [] => place.to_owned(),
        others => format!("{place}?{}", others.join("&")),
    }
}

/// Decodes `%XX`. Invalid sequences are left as they are.
fn decoded(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.as_bytes());
    while let [first, rest @ ..] = bytes {
        let code = (*first == b'%').then(|| rest.get(..2)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                bytes = &rest[2..];
            }
            None => {
                out.push(*first);
                bytes = rest;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Removes parameters from keywords with values. Returns `None` if they cannot be read.
fn without_in_keywords(
    text: &str,
    is_ours: &mut dyn FnMut(&str, String) -> bool,
) -> Option<String> {
    let (mut out, mut at) = (String::new(), text.trim_start());
    while !at.is_empty() {
        let (name, value) = at.split_once('=')?;
        let (value, after) = value_of(value.trim_start())?;
        if !is_ours(name.trim(), value) {
            out.push_str(&at[..at.len() - after.len()]);
            out.push(' ');
        }
        at = after.trim_start();
    }
    Some(out)
}

/// Reads a value, which can be quoted and contain escapes. Also returns the text after it.
fn value_of(text: &str) -> Option<(String, &str)> {
    let (is_quoted, text) = match text.strip_prefix('\'') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (mut value, mut chars) = (String::new(), text.char_indices());
    while let Some((at, one)) = chars.next() {
        match one {
            '\\' => value.push(chars.next()?.1),
            '\'' if is_quoted => return Some((value, &text[at + 1..])),
            _ if one.is_whitespace() && !is_quoted => return Some((value, &text[at..])),
            _ => value.push(one),
        }
    }
    (!is_quoted).then_some((value, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_tls_are_taken_from_both_forms() {
        let read = |text| Words::read(text).unwrap();
        let with = |rest: &str, protection, authorities: Option<&str>| Words {
            rest: rest.to_owned(),
            protection,
            authorities: authorities.map(PathBuf::from),
        };
        for (text, expected) in [
            ("host=a dbname=b", with("host=a dbname=b ", Protection::None, None)),
            ("", with("", Protection::None, None)),
            ("host=a sslmode=prefer", with("host=a ", Protection::None, None)),
            ("sslmode = require host=a", with("host=a ", Protection::Encrypted, None)),
            (
                "sslmode='verify-full' password='it\\'s = x' sslrootcert='/a b/c\\\\d'",
                with("password='it\\'s = x' ", Protection::Named, Some("/a b/c\\d")),
            ),
            ("sslrootcert=/a\\ b sslmode=require", with("", Protection::Issued, Some("/a b"))),
            ("postgresql://u:p@h/d", with("postgresql://u:p@h/d", Protection::None, None)),
            (
                "postgres://u@h/d?sslmode=verify-ca&connect_timeout=3&sslrootcert=%2Fa%20b%zz",
                with("postgres://u@h/d?connect_timeout=3", Protection::Issued, Some("/a b%zz")),
            ),
            (
                "postgresql://h/?sslmode=verify-full&sslrootcert=system",
                with("postgresql://h/", Protection::Named, None),
            ),
            // Errors that the library reports.
            (
                "password='x sslmode=require",
                with("password='x sslmode=require", Protection::None, None),
            ),
            ("nonsense", with("nonsense", Protection::None, None)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        assert_eq!(Words::read("sslmode=Verify"), Err("sslmode"));
        assert_eq!(Words::read("postgresql://h/?sslmode="), Err("sslmode"));
    }
}
