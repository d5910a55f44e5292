//! The connection to a server, and the streams of a queue.

use crate::address::Address;
use crate::error::QueueError;
use crate::pause::pause;
use crate::terms::{Stored, Terms, VERSION};
use async_nats::jetstream::context::RequestErrorKind;
use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event, ServerError};
use std::env;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::runtime::{Builder, Runtime};

/// How long a connection may take.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a request may take.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(5);
/// How long an operation may take that consists of a request and of the wait before it is sent.
const OPERATION_TIME: Duration = Duration::from_secs(10);

/// The names of the streams of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    /// The beginning of all subjects.
    pub(crate) subject: String,
    /// The stream of the terms, of the announced work and of what workers report.
    pub(crate) base: String,
    /// The stream of leases.
    pub(crate) work: String,
    /// The stream of results.
    pub(crate) done: String,
    /// The stream of shards that failed too often.
    pub(crate) parked: String,
    /// The stream of shards with failed files.
    pub(crate) failed: String,
}

impl Names {
    fn of(queue: &str) -> Self {
        let stream = |kind: &str| format!("ioloom-{queue}-{kind}");
        Self {
            subject: format!("ioloom.{queue}"),
            base: format!("ioloom-{queue}"),
            work: stream("work"),
            done: stream("done"),
            parked: stream("parked"),
            failed: stream("failed"),
        }
    }

    /// Returns the names of all streams in the order in which they are removed: that of the terms last, so a removal
    /// that was interrupted can be repeated.
    fn streams(&self) -> [&str; 5] {
        [&self.work, &self.done, &self.parked, &self.failed, &self.base]
    }
}

/// A connection to the server of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    pub(crate) client: Client,
    pub(crate) context: Context,
    pub(crate) names: Names,
    pub(crate) queue: String,
    /// What the server said that the user may not do. Its answer to the request is silence.
    denied: Arc<Mutex<Option<String>>>,
    /// Whether JetStream has answered. From then on it can only be off for a while.
    has_answered: Arc<AtomicBool>,
}

/// A queue on a server. Blocks in each call; dropping it closes the connection.
#[derive(Debug)]
pub struct Queue {
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) link: Link,
}

impl Queue {
    /// Connects to the server of a queue. The variables `NATS_CREDS`, `NATS_NKEY` (files),
    /// `NATS_TOKEN`, `NATS_USER` and `NATS_PASSWORD` authenticate, as in other clients of NATS, unless the URL
    /// has a user, with `%XX` for special characters; `NATS_CA`, `NATS_CERT` and `NATS_KEY` name files for TLS.
    ///
    /// # Errors
    /// A variable is invalid, or the server cannot be reached or refuses the client.
    pub fn connect(address: &Address) -> Result<Self, QueueError> {
        let queue = address.to_string();
        let connect = |reason: String| QueueError::Connect { queue: queue.clone(), reason };
        // Another user of TLS in this process may have installed it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("queue")
            .enable_all()
            .build()
            .map_err(|e| connect(e.to_string()))?;
        let denied = Arc::new(Mutex::new(None));
        let options = watched(options(address)?, denied.clone());
        let client = runtime
            .block_on(options.connect(&address.server))
            .map_err(|e| connect(unreachable(&e, address.login.is_some())))?;
        // The context starts a task.
        let mut context = {
            let _inside = runtime.enter();
            jetstream::new(client.clone())
        };
        context.set_timeout(REQUEST_TIME);
        let names = Names::of(&address.name);
        let has_answered = Arc::default();
        let link = Link { client, context, names, queue, denied, has_answered };
        Ok(Self { runtime: Arc::new(runtime), link })
    }

    /// Returns the terms of the queue.
    ///
    /// # Errors
    /// The queue does not exist, or the server does not answer.
    pub fn terms(&self) -> Result<Terms, QueueError> {
        self.runtime.block_on(self.link.terms())
    }

    /// Removes the queue from the server. Workers end with an error. Streams of other queues remain: a submission that
    /// was refused because of one can have created the others.
    ///
    /// # Errors
    /// The queue does not exist, or the server does not answer.
    pub fn remove(&self) -> Result<(), QueueError> {
        self.runtime.block_on(async {
            self.link.terms().await?;
            for name in self.link.names.streams() {
                match self.link.context.get_stream(name).await {
                    Ok(stream) if self.link.check_stream("remove", &stream).is_ok() => {}
                    Ok(_) => continue,
                    Err(e) if is_missing(&e.to_string()) => continue,
                    Err(e) => return Err(self.link.failed("remove", e)),
                }
                match self.link.context.delete_stream(name).await {
                    Ok(_) => {}
                    Err(e) if is_missing(&e.to_string()) => {}
                    Err(e) => return Err(self.link.failed("remove", e)),
                }
            }
            Ok(())
        })
    }
}

/// Returns the subject of a stream that does not belong to a queue with this beginning of all subjects.
pub(crate) fn foreign<'a>(subjects: &'a [String], queue: &str) -> Option<&'a str> {
    let is_own =
        |subject: &str| subject.strip_prefix(queue).is_some_and(|rest| rest.starts_with('.'));
    subjects.iter().map(String::as_str).find(|subject| !is_own(subject))
}

/// Keeps what the server says that the user may not do.
fn watched(options: ConnectOptions, denied: Arc<Mutex<Option<String>>>) -> ConnectOptions {
    options.event_callback(move |event| {
        let mut denied = denied.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            // A worker runs without its reports.
            Event::ServerError(ServerError::Other(said))
                if said.to_lowercase().contains("permissions violation")
                    && !said.contains(".worker.") =>
            {
                *denied = Some(said);
            }
            // The permissions can have changed.
            Event::Connected => *denied = None,
            _ => {}
        }
        async {}
    })
}

fn options(address: &Address) -> Result<ConnectOptions, QueueError> {
    let mut options = ConnectOptions::new()
        .name("ioloom")
        // Servers that the first one names have no scheme.
        .require_tls(address.is_encrypted())
        .connection_timeout(CONNECT_TIME)
        .request_timeout(Some(REQUEST_TIME))
        .reconnect_delay_callback(|attempt| match u32::try_from(attempt).unwrap_or(u32::MAX) {
            // It is asked before the first attempt, too.
            0 | 1 => Duration::ZERO,
            attempt => pause(attempt),
        });
    options = match &address.login {
        Some((user, Some(password))) => options.user_and_password(user.clone(), password.clone()),
        Some((token, None)) => options.token(token.clone()),
        None => with_login_of_environment(options)?,
    };
    if let Some(path) = text("NATS_CA") {
        options = options.add_root_certificates(absolute("NATS_CA", path)?);
    }
    let (cert, key) = (text("NATS_CERT"), text("NATS_KEY"));
    if cert.is_some() != key.is_some() {
        let reason = "NATS_CERT and NATS_KEY are used together".to_owned();
        let variable = if cert.is_some() { "NATS_CERT" } else { "NATS_KEY" };
        return Err(QueueError::Credentials { variable, reason });
    }
    if let (Some(cert), Some(key)) = (cert, key) {
        let (cert, key) = (absolute("NATS_CERT", cert)?, absolute("NATS_KEY", key)?);
        options = options.add_client_certificate(cert, key);
    }
    Ok(options)
}

/// Returns the value of a variable that is set.
fn text(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}

/// Adds the credentials of the environment, which an address with a login replaces.
fn with_login_of_environment(mut options: ConnectOptions) -> Result<ConnectOptions, QueueError> {
    let file = |variable: &'static str| match text(variable) {
        None => Ok(None),
        Some(value) if is_secret(&value) => {
            let reason =
                "it has a secret instead of the name of a file; write the secret to a file";
            Err(QueueError::Credentials { variable, reason: reason.to_owned() })
        }
        Some(path) => std::fs::read_to_string(&path)
            .map(Some)
            .map_err(|e| unusable(variable, Path::new(&path), &e)),
    };
    if let Some(creds) = file("NATS_CREDS")? {
        options = options.credentials(&creds).map_err(|e| QueueError::Credentials {
            variable: "NATS_CREDS",
            reason: e.to_string(),
        })?;
    }
    if let Some(seed) = file("NATS_NKEY")? {
        options = options.nkey(seed.trim().to_owned());
    }
    if let Some(token) = text("NATS_TOKEN") {
        options = options.token(token);
    }
    if let Some(user) = text("NATS_USER") {
        options = options.user_and_password(user, text("NATS_PASSWORD").unwrap_or_default());
    }
    Ok(options)
}

/// Returns whether a value is a seed, a token or their file itself, which messages do not show.
fn is_secret(value: &str) -> bool {
    let is_of_seed = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let value = value.trim();
    let is_seed = value.len() >= 32 && value.starts_with('S') && value.bytes().all(is_of_seed);
    is_seed || value.starts_with("eyJ") || value.contains("-----BEGIN")
}

fn unusable(variable: &'static str, path: &Path, error: &std::io::Error) -> QueueError {
    let reason = format!("cannot read '{}': {error}; the variable names a file", path.display());
    QueueError::Credentials { variable, reason }
}

/// Returns a path that remains true when the directory changes: the files are read for each connection.
fn absolute(variable: &'static str, path: String) -> Result<PathBuf, QueueError> {
    std::path::absolute(path)
        .map_err(|e| QueueError::Credentials { variable, reason: e.to_string() })
}

/// Returns why a server cannot be reached, and what to do. `in_url` is whether the login is one of the URL.
fn unreachable(error: &async_nats::ConnectError, in_url: bool) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let cause = cause.unwrap_or_else(|| error.kind().to_string());
    match tls_error(error) {
        None => {}
        Some(rustls::Error::InvalidMessage(_)) => {
            return "the server does not use TLS; use nats://, or enable TLS".to_owned();
        }
        Some(rustls::Error::InvalidCertificate(_)) => return untrusted(&cause),
        Some(_) => return format!("TLS: {cause}"),
    }
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication if in_url => {
            format!(
                "{cause}; correct the user and password in the URL, which replace those of the environment"
            )
        }
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            format!("{cause}; set NATS_CREDS, NATS_TOKEN, or NATS_USER and NATS_PASSWORD")
        }
        ConnectErrorKind::Tls => untrusted(&cause),
        ConnectErrorKind::Dns => format!("the host cannot be resolved: {cause}"),
        ConnectErrorKind::TimedOut => {
            format!("no answer within {} s; is it a NATS server?", CONNECT_TIME.as_secs())
        }
        _ => format!("{cause}; start it with 'nats-server -js', or correct the address"),
    }
}

/// Returns the error of TLS that ended a connection, if it was one.
fn tls_error(error: &async_nats::ConnectError) -> Option<&rustls::Error> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<std::io::Error>()?.get_ref()?.downcast_ref()
}

fn untrusted(cause: &str) -> String {
    format!("TLS: {cause}; NATS_CA names the file of its authority")
}

pub(crate) fn is_missing(reason: &str) -> bool {
    reason.contains("stream not found") || reason.contains("no stream found")
}

/// Returns whether an error says that no JetStream takes requests.
fn lacks_jetstream(reason: &str) -> bool {
    // Errors of several types have this one as their cause.
    let no_responders = RequestErrorKind::NoResponders.to_string().to_lowercase();
    let reason = reason.to_lowercase();
    let others = ["no responders", "jetstream not enabled", "jetstream unavailable"];
    reason.contains(&no_responders) || others.iter().any(|words| reason.contains(words))
}

impl Link {
    /// Returns the error for a failed request.
    pub(crate) fn failed(&self, action: &'static str, error: impl std::fmt::Display) -> QueueError {
        let mut reason = error.to_string();
        let queue = self.queue.clone();
        // The next request is refused again if it may not be done.
        let denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reason) = denied {
            return QueueError::Denied { queue, reason };
        }
        if is_missing(&reason) {
            return QueueError::Removed { queue };
        }
        if !self.is_connected() {
            reason = "the server does not answer".to_owned();
        } else if lacks_jetstream(&reason) {
            if !self.has_answered.load(Ordering::Relaxed) {
                return QueueError::NoJetStream { action, queue };
            }
            reason = "the server has no JetStream; start it with 'nats-server -js'".to_owned();
        }
        QueueError::Server { action, queue, reason }
    }

    /// Refuses streams of other queues: the stream for failed shards of the queue `a` has the name of the stream of the
    /// terms of the queue `a-failed`.
    pub(crate) async fn check_streams(&self, action: &'static str) -> Result<(), QueueError> {
        for name in self.names.streams() {
            match self.context.get_stream(name).await {
                Ok(stream) => self.check_stream(action, &stream)?,
                Err(e) if is_missing(&e.to_string()) => {}
                Err(e) => return Err(self.failed(action, e)),
            }
        }
        Ok(())
    }

    /// Refuses a stream of another queue.
    pub(crate) fn check_stream(
        &self,
        action: &'static str,
        stream: &Stream,
    ) -> Result<(), QueueError> {
        let config = &stream.cached_info().config;
        match foreign(&config.subjects, &self.names.subject) {
            None => Ok(()),
            Some(found) => Err(QueueError::OtherQueue {
                action,
                queue: self.queue.clone(),
                stream: config.name.clone(),
                found: found.to_owned(),
            }),
        }
    }

    pub(crate) async fn stream(&self, name: &str) -> Result<Stream, QueueError> {
        let stream = self.context.get_stream(name).await.map_err(|e| self.failed("read", e))?;
        self.has_answered.store(true, Ordering::Relaxed);
        Ok(stream)
    }

    /// Returns the last message on a subject.
    pub(crate) async fn last_of<I>(
        &self,
        stream: &Stream<I>,
        subject: &str,
    ) -> Result<Option<Vec<u8>>, QueueError> {
        match stream.get_last_raw_message_by_subject(subject).await {
            Ok(message) => Ok(Some(message.payload.to_vec())),
            Err(e) if e.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
            Err(e) => Err(self.failed("read", e)),
        }
    }

    /// Stores a message and waits until the server has stored it.
    pub(crate) async fn store(&self, subject: &str, payload: Vec<u8>) -> Result<(), QueueError> {
        let storing = async {
            let sent = self.context.publish(subject.to_owned(), payload.into()).await;
            match sent {
                Ok(sent) => sent.await.map(drop).map_err(|e| self.failed("write to", e)),
                Err(e) => Err(self.failed("write to", e)),
            }
        };
        self.in_time("write to", storing).await
    }

    /// Ends an operation that takes too long: the client keeps a limited number of messages for a server that it
    /// has lost, and then waits.
    pub(crate) async fn in_time<T>(
        &self,
        action: &'static str,
        operation: impl Future<Output = Result<T, QueueError>>,
    ) -> Result<T, QueueError> {
        match tokio::time::timeout(OPERATION_TIME, operation).await {
            Ok(done) => done,
            Err(_) => Err(self.failed(action, "no answer")),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Reads the terms of the queue.
    pub(crate) async fn terms(&self) -> Result<Terms, QueueError> {
        Ok(self.stored().await?.terms)
    }

    /// Reads what is stored about the queue.
    pub(crate) async fn stored(&self) -> Result<Stored, QueueError> {
        let missing = || QueueError::Missing { queue: self.queue.clone() };
        let base = self.stream(&self.names.base).await.map_err(|e| match e {
            QueueError::Removed { .. } => missing(),
            e => e,
        })?;
        let stored = self.last_of(&base, &format!("{}.terms", self.names.subject)).await?;
        let stored: Stored = serde_json::from_slice(&stored.ok_or_else(missing)?)
            .map_err(|e| self.failed("read", format!("its terms are not those of a queue: {e}")))?;
        match stored.version {
            1..=VERSION => Ok(stored),
            other => Err(self.failed(
                "use",
                format!("it has version {other}; use the version of ioloom that made it"),
            )),
        }
    }
}

/// Returns the time in nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_address_is_one_for_all_servers_of_a_cluster() {
        for (address, word) in [("tls://h/q", "true"), ("nats://h/q", "false")] {
            let options = options(&address.parse().unwrap()).unwrap();
            let shown = format!("{options:?}");
            assert!(shown.contains(&format!("\"tls_required\": {word}")), "{shown}");
        }
    }

    #[test]
    fn a_secret_in_the_place_of_a_file_is_recognised() {
        let seed = format!("SU{}", "A2".repeat(28));
        for secret in [&*seed, "eyJ0eXAi.x.y", "-----BEGIN NATS USER JWT-----\nx"] {
            assert!(is_secret(secret), "{secret}");
        }
        for path in ["gone", "SU", "./SUSER.NK", "/run/secrets/user.creds", "SEEDS"] {
            assert!(!is_secret(path), "{path}");
        }
    }

    #[test]
    fn the_subjects_of_a_queue_are_not_those_of_one_with_a_longer_name() {
        let of = |subjects: &[&str], queue| {
            let subjects: Vec<String> = subjects.iter().map(|&text| text.to_owned()).collect();
            foreign(&subjects, queue).map(str::to_owned)
        };
        assert_eq!(of(&["ioloom.a.terms", "ioloom.a.*.work-of"], "ioloom.a"), None);
        assert_eq!(
            of(&["ioloom.a-failed.terms"], "ioloom.a").as_deref(),
            Some("ioloom.a-failed.terms")
        );
        assert_eq!(
            of(&["ioloom.a.1.failed.*"], "ioloom.a-failed").as_deref(),
            Some("ioloom.a.1.failed.*")
        );
    }
}
