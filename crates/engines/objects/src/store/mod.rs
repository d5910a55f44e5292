//! The clients of a store, made from the settings of its users.

mod azure;
mod google;
mod s3;
mod web;

use crate::client::Client;
use crate::error::{Action, Kind, ObjectError};
use crate::location::{Cloud, Location};
use crate::retries::ATTEMPTS_MAX;
use crate::wire::innermost;
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Time until a connection is established.
const CONNECT: Duration = Duration::from_secs(5);
/// Longest time without a byte from the server.
const SILENCE: Duration = Duration::from_secs(20);
/// The same while an object is written: the client counts the time in which it sends the body as
/// silence.
const SILENCE_OF_WRITES: Duration = Duration::from_secs(300);
/// Retries of listings, as of other requests, and their longest time.
const RETRIES: usize = ATTEMPTS_MAX as usize - 1;
const RETRY_TIME: Duration = Duration::from_secs(60);

/// Names and values, as of the environment.
type Variables = BTreeMap<String, String>;

/// Makes one more client for reading.
type Make = dyn Fn() -> object_store::Result<Arc<dyn Client>> + Send + Sync;

/// The clients of a bucket. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) location: Location,
    /// URL of the server, or nothing for the usual one.
    pub(crate) endpoint: String,
    /// Makes a client like `reading`, with its credentials.
    make: Arc<Make>,
    /// Repeats nothing, so that each refusal is seen.
    pub(crate) reading: Arc<dyn Client>,
    /// The same for requests that write.
    pub(crate) writing: Arc<dyn Client>,
    /// Repeats what failed for a while.
    pub(crate) patient: Arc<dyn Client>,
}

/// What a cloud makes of the settings. The fields are those of [`Store`].
struct Clients<T> {
    endpoint: String,
    make: Arc<Make>,
    reading: Arc<T>,
    writing: Arc<T>,
    patient: Arc<T>,
}

impl<T: Client + 'static> Clients<T> {
    fn at(self, location: Location) -> Store {
        let Self { endpoint, make, reading, writing, patient } = self;
        Store { location, endpoint, make, reading, writing, patient }
    }
}

/// Without the settings, which have the keys.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, endpoint, .. } = self;
        write!(f, "Store {{ {}, endpoint {endpoint:?} }}", location.url())
    }
}

impl Store {
    /// Makes the clients for a location from the environment. Nothing is sent.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Kind::Configuration`] if a setting is invalid.
    pub fn open(location: Location) -> Result<Self, ObjectError> {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let all = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        Self::with_variables(location, all)
    }

    /// Makes the clients for a location from variables with the names and the meaning of those of the
    /// environment.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`Kind::Configuration`] if a setting is invalid.
    pub fn with_variables(
        location: Location,
        variables: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>,
    ) -> Result<Self, ObjectError> {
        let variables: Variables =
            variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        // Needed once by a process; it fails if it was done before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let at = location.clone();
        let opened = match location.cloud {
            Cloud::S3 => s3::open(&location, variables).map(|clients| clients.at(at)),
            Cloud::Azure => azure::open(&location, variables).map(|clients| clients.at(at)),
            Cloud::Google => google::open(&location, variables).map(|clients| clients.at(at)),
            Cloud::Web => web::open(&location).map(|clients| clients.at(at)),
        };
        opened.map_err(|reason| {
            ObjectError::new(Action::Open, location.url(), Kind::Configuration, reason)
        })
    }

    /// Returns the same with connections of its own for reading. Credentials are shared.
    pub(crate) fn with_own_connections(&self) -> Result<Self, ObjectError> {
        let reading = (self.make)().map_err(|error| {
            let reason = innermost(&error);
            ObjectError::new(Action::Open, self.location.url(), Kind::Configuration, reason)
        })?;
        Ok(Self { reading, ..self.clone() })
    }

    /// Returns the error of a client whose threads cannot start.
    pub(crate) fn no_client(&self, error: &std::io::Error) -> ObjectError {
        let reason = format!("cannot start the client: {}", ioloom_failure::reason(error));
        ObjectError::new(Action::Open, self.location.url(), Kind::Configuration, reason)
    }

    /// Returns the location that was opened.
    pub fn location(&self) -> &Location {
        &self.location
    }
}

/// Returns the settings of connections. `plain`: without TLS.
fn connections(silence: Duration, plain: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_read_timeout(silence)
        .with_pool_max_idle_per_host(4096)
        .with_http1_only()
        .with_allow_http(plain)
}

/// The retries of clients that repeat nothing.
fn no_retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// The retries of clients that repeat what failed for a while.
fn retries() -> RetryConfig {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(8),
        base: 2.0,
    };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRY_TIME }
}

/// Adds the name of the variable whose value a reason quotes, which the client does not know. `prefix`: beginning of
/// the names of settings.
fn with_name(variables: &Variables, prefix: &str, reason: String) -> String {
    let is_quoted = |value: &str| reason.contains(&format!("\"{value}\""));
    let mut settings = variables.iter().filter(|(name, _)| name.starts_with(prefix));
    match settings.find(|(_, value)| is_quoted(value)) {
        Some((name, _)) => format!("cannot use {name}: {reason}"),
        None => reason,
    }
}

/// Refuses a value that a request cannot contain. It is not shown, because it can be secret. `is_sent`: in a header.
fn check_value(name: &str, value: &str, is_sent: bool) -> Result<(), String> {
    let what = match () {
        () if value.chars().any(char::is_control) => "a line end or another control character",
        () if is_sent && !value.is_ascii() => "a character that is not ASCII",
        () => return Ok(()),
    };
    Err(format!("{name} contains {what}; set it without this character"))
}

/// Returns the beginning of the URLs at a server, as requests have it.
fn base_of(url: &str) -> Arc<str> {
    let parsed = reqwest::Url::parse(url).map(String::from);
    Arc::from(parsed.as_deref().unwrap_or_default().trim_end_matches('/'))
}

/// Refuses an endpoint that is not the URL of a server. `name`: the variable that sets it. `example`: a URL.
fn check_endpoint(endpoint: &str, name: &str, example: &str) -> Result<(), String> {
    let has_scheme = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    // The client takes it for the one and then for the other.
    let is_url = |text: &str| {
        text.parse::<http::Uri>().is_ok_and(|uri| uri.host().is_some_and(|host| !host.is_empty()))
            && reqwest::Url::parse(text).is_ok_and(|url| url.has_host())
    };
    let reason = match endpoint {
        "" => return Ok(()),
        _ if !has_scheme(endpoint) => "does not begin with http:// or https://",
        _ if !is_url(endpoint) => "is not a URL with a host and a valid port",
        _ => return Ok(()),
    };
    let shown = ioloom_failure::quoted(Path::new(endpoint));
    Err(format!("the endpoint {shown} {reason}; set {name} to a URL such as {example}"))
}
