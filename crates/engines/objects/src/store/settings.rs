//! What the clients of all clouds have in common.

use crate::client::Client;
use crate::retries::ATTEMPTS_MAX;
use ioloom_failure::without_secrets;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time until a connection is established.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time without a byte from the server.
pub(super) const SILENCE: Duration = Duration::from_secs(20);
/// The same while an object is written: the client counts the time in which it sends the body as
/// silence.
pub(super) const SILENCE_OF_WRITES: Duration = Duration::from_secs(300);
/// Retries of listings, as of other requests, and their longest time.
const RETRIES: usize = ATTEMPTS_MAX as usize - 1;
const RETRY_TIME: Duration = Duration::from_secs(60);

/// Names and values, as of the environment.
pub(super) type Variables = BTreeMap<String, String>;

/// Makes one more client for reading.
pub(super) type Make = dyn Fn() -> object_store::Result<Arc<dyn Client>> + Send + Sync;

/// What a cloud makes of the settings. The fields are those of [`Store`](super::Store).
pub(super) struct Clients<T> {
    pub(super) endpoint: String,
    pub(super) make: Arc<Make>,
    pub(super) reading: Arc<T>,
    pub(super) writing: Arc<T>,
    pub(super) patient: Arc<T>,
}

/// Returns the settings of connections. `plain`: without TLS.
pub(super) fn connections(silence: Duration, plain: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(silence)
        .with_pool_max_idle_per_host(4096)
        .with_http1_only()
        .with_allow_http(plain)
}

/// The retries of clients that repeat nothing.
pub(super) fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The retries of clients that repeat what failed for a while.
pub(super) fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(8),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIME }
}

/// Adds the name of the variable whose value a reason quotes, which the client does not know. `prefix`: beginning of
/// the names of settings.
pub(super) fn with_name(variables: &Variables, prefix: &str, reason: String) -> String {
    let is_quoted = |value: &str| reason.contains(&format!("\"{value}\""));
    let mut settings = variables.iter().filter(|(name, _)| name.starts_with(prefix));
    match settings.find(|(_, value)| is_quoted(value)) {
        Some((name, _)) => format!("cannot use {name}: {reason}"),
        None => reason,
    }
}

/// Refuses a value that a request cannot contain. It is not shown, because it can be secret. `is_sent`: in a header.
pub(super) fn check_value(name: &str, value: &str, is_sent: bool) -> Result<(), String> {
    let what = match () {
        () if value.chars().any(char::is_control) => "a line end or another control character",
        () if is_sent && !value.is_ascii() => "a character that is not ASCII",
        () => return Ok(()),
    };
    Err(format!("{name} contains {what}; set it without this character"))
}

/// Refuses credentials in the place of the name of a file, which messages show: JSON, a token or a key, also in base64.
pub(super) fn check_file_name(name: &str, value: &str) -> Result<(), String> {
    let text = value.trim_start_matches(|c: char| c.is_whitespace() || c == '\'' || c == '"');
    let is_base64 = text.len() >= 64 && ["eyA", "ewo", "ew0"].iter().any(|of| text.starts_with(of));
    let is_token = text.starts_with("eyJ") || text.contains("-----BEGIN");
    if !(text.starts_with('{') || is_base64 || is_token) || Path::new(value).exists() {
        return Ok(());
    }
    Err(format!("{name} has credentials instead of the name of a file; write them to a file"))
}

/// Returns the beginning of the URLs at a server, as requests have it.
pub(super) fn base_of(url: &str) -> Arc<str> {
    let parsed = reqwest::Url::parse(url).map(String::from);
    Arc::from(parsed.as_deref().unwrap_or_default().trim_end_matches('/'))
}

/// Returns whether a URL is one without TLS.
pub(super) fn is_plain(url: &str) -> bool {
    has_start(url, "http://")
}

/// Returns whether a URL begins with a scheme, in upper or lower case.
fn has_start(url: &str, start: &str) -> bool {
    url.get(..start.len()).is_some_and(|found| found.eq_ignore_ascii_case(start))
}

/// Refuses an endpoint that is not the URL of a server. `name`: the variable that sets it. `example`: a URL.
pub(super) fn check_endpoint(endpoint: &str, name: &str, example: &str) -> Result<(), String> {
    let has_scheme = |url: &str| is_plain(url) || has_start(url, "https://");
    // The client takes it for the one and then for the other.
    let is_url = |text: &str| {
        text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
            && reqwest::Url::parse(text).is_ok_and(|url| url.has_host())
    };
    let has_more = |text: &str| {
        reqwest::Url::parse(text).is_ok_and(|url| {
            let is_named = !url.username().is_empty() || url.password().is_some();
            is_named || url.query().is_some() || url.fragment().is_some()
        })
    };
    let reason = match endpoint {
        "" => return Ok(()),
        _ if !has_scheme(endpoint) => "does not begin with http:// or https://",
        _ if !is_url(endpoint) => "is not a URL with a host and a valid port",
        _ if has_more(endpoint) => "has a user name, a password, a query or a fragment",
        _ => return Ok(()),
    };
    // The rest can have a signature.
    let shown = without_secrets(endpoint);
    let shown = shown.split(['?', '#']).next().unwrap_or_default();
    let shown = ioloom_failure::quoted(Path::new(shown));
    Err(format!("the endpoint {shown} {reason}; set {name} to a URL such as {example}"))
}
