//! Connections to servers, with the settings of the client. Unlike those of `object_store`, they send no `Referer`, which
//! would contain the signature in a query, and follow no redirect of Azure or Google.

use crate::cloud::Cloud;
use object_store::client::HttpClient;
use object_store::{ClientConfigKey, ClientOptions, Error};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use std::hash::{BuildHasher, RandomState};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// The name of the client in requests.
const AGENT: &str = concat!("ioloom/", env!("CARGO_PKG_VERSION"));

/// Who reports an error of a client that cannot be made.
const REPORTER: &str = "HTTP client";

/// Makes a client. Of the options, those are used that this crate and the library set: times, `http:` URLs, idle
/// connections and headers.
pub(crate) fn client(cloud: Cloud, options: &ClientOptions) -> object_store::Result<HttpClient> {
    let value = |key: ClientConfigKey| options.get_config_value(&key);
    let time = |key: ClientConfigKey| value(key).map(|text| known_time(&text)).transpose();
    let mut builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .referer(false)
        .http1_only()
        .no_gzip()
        .no_brotli()
        .no_zstd()
        .no_deflate()
        .https_only(value(ClientConfigKey::AllowHttp).as_deref() != Some("true"))
        .dns_resolver(Arc::new(Shuffled));
    if matches!(cloud, Cloud::Azure | Cloud::Google) {
        builder = builder.redirect(Policy::none());
    }
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(limit) = time(ClientConfigKey::Timeout)? {
        builder = builder.timeout(limit);
    }
    if let Some(limit) = time(ClientConfigKey::ConnectTimeout)? {
        builder = builder.connect_timeout(limit);
    }
    if let Some(limit) = time(ClientConfigKey::ReadTimeout)? {
        builder = builder.read_timeout(limit);
    }
    let idle = value(ClientConfigKey::PoolMaxIdlePerHost);
    if let Some(most) = idle.and_then(|text| text.parse::<usize>().ok()) {
        builder = builder.pool_max_idle_per_host(most);
    }
    let made = builder.build();
    let made = made.map_err(|error| Error::Generic { store: REPORTER, source: Box::new(error) })?;
    Ok(HttpClient::new(made))
}

/// Returns the time that a setting shows.
fn known_time(text: &str) -> object_store::Result<Duration> {
    time_of(text).ok_or_else(|| {
        let source = format!("cannot use the time '{text}'").into();
        Error::Generic { store: REPORTER, source }
    })
}

/// Reads a time such as `5m 20s`, as the options of the library show it.
fn time_of(text: &str) -> Option<Duration> {
    let time = |part: &str| {
        let (number, unit) = part.split_at(part.find(|c: char| !c.is_ascii_digit())?);
        let number = number.parse::<u64>().ok()?;
        match unit {
            "ms" => Some(Duration::from_millis(number)),
            "s" => Some(Duration::from_secs(number)),
            "m" => Some(Duration::from_secs(number.checked_mul(60)?)),
            _ => None,
        }
    };
    text.split_whitespace().map(time).sum()
}

/// Resolves names as the library does: in random order, so that all servers of a name get connections.
#[derive(Debug)]
struct Shuffled;

impl Resolve for Shuffled {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(resolved(name))
    }
}

async fn resolved(name: Name) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
    // A lookup that has not begun ends with the request.
    let mut lookups = JoinSet::new();
    lookups.spawn_blocking(move || shuffled(name.as_str()));
    match lookups.join_next().await {
        Some(found) => Ok(Box::new(found??.into_iter())),
        None => Err("the name was not resolved".into()),
    }
}

/// Returns the addresses of a host. The port is replaced by that of the URL.
fn shuffled(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    let mut addresses: Vec<SocketAddr> = (host, 0).to_socket_addrs()?.collect();
    let order = RandomState::new();
    addresses.sort_by_cached_key(|address| order.hash_one(address));
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::client::{HttpRequest, HttpRequestBody};
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    #[test]
    fn times_are_read_as_the_options_show_them() {
        for seconds in [1, 5, 20, 60, 90, 300] {
            let time = Duration::from_secs(seconds);
            let options = ClientOptions::new().with_read_timeout(time);
            let text = options.get_config_value(&ClientConfigKey::ReadTimeout).unwrap();
            assert_eq!(time_of(&text), Some(time), "{text}");
        }
        assert_eq!(time_of("1500ms"), Some(Duration::from_millis(1500)));
        assert_eq!(time_of("1year"), None);
    }

    /// Answers the first request with a redirect and the second one without. No request has a `Referer`.
    fn redirect(listener: &TcpListener, requests: usize) {
        let moved = format!("302 Found\r\nlocation: http://{}/b", listener.local_addr().unwrap());
        for status in [moved.as_str(), "200 OK"].into_iter().take(requests) {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            for line in lines.take_while(|line| !line.is_empty()) {
                assert!(!line.to_ascii_lowercase().starts_with("referer"), "{line}");
            }
            let rest = "connection: close\r\ncontent-length: 0";
            write!(stream, "HTTP/1.1 {status}\r\n{rest}\r\n\r\n").unwrap();
        }
    }

    #[tokio::test]
    async fn redirects_get_no_secrets() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        for (cloud, status, requests) in
            [(Cloud::Azure, 302, 1), (Cloud::Google, 302, 1), (Cloud::Web, 200, 2)]
        {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let server = std::thread::spawn(move || redirect(&listener, requests));
            let made = client(cloud, &ClientOptions::new().with_allow_http(true)).unwrap();
            let mut request = HttpRequest::new(HttpRequestBody::empty());
            *request.uri_mut() = format!("http://{address}/a?sig=secret").parse().unwrap();
            let response = made.execute(request).await.unwrap();
            assert_eq!(response.status().as_u16(), status, "{cloud:?}");
            server.join().unwrap();
        }
    }
}
