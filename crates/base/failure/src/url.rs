//! URLs in messages, without the secrets that they contain.

/// Returns a URL for a message: without a user name and a password, and without a signature. That of a file on a web
/// server keeps its signature, which is a part of its name.
///
/// ```
/// use ioloom_failure::without_secrets;
///
/// assert_eq!(without_secrets("https://me:secret@host/file"), "https://host/file");
/// assert_eq!(without_secrets("az://container/blob?sv=1&sig=secret"), "az://container/blob");
/// ```
pub fn without_secrets(url: &str) -> String {
    // A password can contain `://`, too.
    let is_of_scheme = |c: char| c.is_ascii_alphanumeric() || "+-.".contains(c);
    let parts = url.split_once("://").filter(|(scheme, _)| scheme.chars().all(is_of_scheme));
    let Some((scheme, rest)) = parts else {
        return without_login(url, Host::Other).to_owned();
    };
    let is_one_of = |known: &[&str]| known.iter().any(|known| scheme.eq_ignore_ascii_case(known));
    let host = if is_one_of(&["http", "https"]) {
        Host::Web
    } else if is_one_of(&["s3", "s3a", "gs", "az"]) {
        Host::Bucket
    } else {
        Host::Other
    };
    let rest = if host == Host::Web { rest } else { without_signature(rest) };
    format!("{scheme}://{}", without_login(rest, host))
}

/// What a URL has before its path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Host {
    /// A web server, whose port can be empty.
    Web,
    /// A bucket, which has no port.
    Bucket,
    /// A server of another kind.
    Other,
}

/// Returns what is before a query with a signature of Azure.
pub fn without_signature(rest: &str) -> &str {
    match rest.split_once('?') {
        Some((path, query)) if query.split('&').any(|pair| pair.starts_with("sig=")) => path,
        _ => rest,
    }
}

/// Returns what follows the user name and the password of a URL without its scheme.
fn without_login(rest: &str, host: Host) -> &str {
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    if let Some((user, _)) = authority.rsplit_once('@') {
        // Without a password it is the container of an account at Azure.
        let is_login = host == Host::Web || user.contains(':');
        return if is_login { &rest[user.len() + 1..] } else { rest };
    }
    // A password with one of these characters, which a URL has as %XX.
    let is_port = |text: &str| match host {
        Host::Bucket => false,
        Host::Other if text.is_empty() => false,
        Host::Web | Host::Other => text.bytes().all(|byte| byte.is_ascii_digit()),
    };
    let has_password = !authority.starts_with('[')
        && authority.split_once(':').is_some_and(|(_, port)| !is_port(port));
    match rest.rsplit_once('@') {
        Some((_, shown)) if has_password => shown,
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_hidden_in_every_form() {
        for (url, shown) in [
            ("https://u:SECRET@h/a@b", "https://h/a@b"),
            ("https://SECRET@h", "https://h"),
            ("https://u:SEC/RET@h/a", "https://h/a"),
            ("https://u:SEC?RET@h/a", "https://h/a"),
            ("HTTPS://u:SEC#RET@h/a", "HTTPS://h/a"),
            ("s3://KEY:SEC/RET@b/a", "s3://b/a"),
            ("s3://KEY:/SECRET@b/a", "s3://b/a"),
            ("s3://KEY:1/SECRET@b/a", "s3://b/a"),
            ("u:SECRET@h/", "h/"),
            ("u:SEC://RET@h/", "h/"),
            ("u:SECRET@https://h/", "https://h/"),
            ("u:SEC/RET@h:1", "h:1"),
            ("ftp://u:SECRET@h/a", "ftp://h/a"),
        ] {
            assert_eq!(without_secrets(url), shown);
        }
    }

    #[test]
    fn what_is_not_secret_remains() {
        for url in [
            "https://h:80/a@b",
            "https://h:/a@b",
            "https://[::1]/a@b",
            "https://h/a?sig=x",
            "abfss://c@me.dfs.core.windows.net/a",
            "s3://b/a@b:c",
            "hdfs://h:8020/a@b",
            "./s3://b/a:b@c",
            "az://c/a?b=1&design=2",
            "host:1",
            "",
        ] {
            assert_eq!(without_secrets(url), url);
        }
        assert_eq!(without_secrets("az://c?sig=SECRET"), "az://c");
    }
}
