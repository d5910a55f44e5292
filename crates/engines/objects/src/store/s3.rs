//! S3: settings from the environment and the files of the AWS tools.

use super::settings::{
    Clients, SILENCE, SILENCE_OF_WRITES, Variables, check_endpoint, check_file_name, connections,
    is_plain, no_retries, retries, with_name,
};
use crate::credentials::{self, Profile};
use crate::location::Location;
use crate::wire::{Connector, innermost};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use std::sync::Arc;

/// Variables that replace the keys of a profile.
const CREDENTIALS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SKIP_SIGNATURE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];
const REGIONS: [&str; 2] = ["AWS_REGION", "AWS_DEFAULT_REGION"];
const ENDPOINTS: [&str; 3] = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];

/// Settings whose values are sent in headers.
const SENT: [&str; 6] = [
    "aws_access_key_id",
    "aws_session_token",
    "aws_token",
    "aws_region",
    "aws_default_region",
    "region",
];

/// Makes the clients.
///
/// # Errors
///
/// Returns which setting is invalid.
pub(super) fn open(location: &Location, variables: Variables) -> Result<Clients<AmazonS3>, String> {
    let variables = without_unset(variables);
    let mut builder = AmazonS3Builder::new();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("AWS_")) {
        if name.ends_with("_TOKEN_FILE") {
            check_file_name(name, value)?;
        }
        if let Ok(key) = name.to_ascii_lowercase().parse() {
            check_value(name, value)?;
            builder = builder.with_config(key, value);
        }
    }
    let given = |names: &[&str]| names.iter().any(|name| variables.contains_key(*name));
    let mut endpoint = ENDPOINTS.iter().find_map(|name| variables.get(*name)).cloned();
    let profile = credentials::profile(|name| variables.get(name).cloned())?;
    let has_keys = profile.key_id.is_some() && profile.secret.is_some();
    check_pair(&variables, !given(&CREDENTIALS) && has_keys)?;
    if !given(&CREDENTIALS) {
        builder = with_keys(builder, &profile)?;
    }
    // Also with credentials of the environment: without them the data would go to another server.
    if let Some(region) = profile.region.filter(|_| !given(&REGIONS)) {
        check_value("region of the profile", &region)?;
        builder = builder.with_region(region);
    }
    if endpoint.is_none() {
        endpoint = profile.endpoint;
        builder = endpoint.iter().fold(builder, |builder, url| builder.with_endpoint(url));
    }
    let endpoint = endpoint.unwrap_or_default();
    check_endpoint(&endpoint, "AWS_ENDPOINT_URL", "http://localhost:9000")?;
    // An endpoint with http: is a request for it.
    let plain = is_plain(&endpoint);
    let connector = Connector { services: services(&variables), ..Connector::default() };
    let mut builder = builder.with_bucket_name(&location.bucket).with_http_connector(connector);
    // At Amazon: the address of the zone, and credentials of a session.
    if location.is_directory_bucket() && endpoint.is_empty() {
        builder = builder.with_s3_express(true);
    }
    let with = |retry, silence| {
        builder.clone().with_retry(retry).with_client_options(connections(silence, plain))
    };
    let unusable = |error: object_store::Error| with_name(&variables, "AWS_", innermost(&error));
    let build = |builder: AmazonS3Builder| builder.build().map(Arc::new).map_err(unusable);
    let patient = build(with(retries(), SILENCE))?;
    // A provider of credentials repeats its requests like the client that made it.
    let once =
        |silence| with(no_retries(), silence).with_credentials(patient.credentials().clone());
    let settings = once(SILENCE);
    let (reading, writing) = (build(settings.clone())?, build(once(SILENCE_OF_WRITES))?);
    let make = Arc::new(move || Ok(Arc::new(settings.clone().build()?) as _));
    Ok(Clients { endpoint, make, reading, writing, patient })
}

/// Returns the beginnings of the URLs of services for credentials that the settings name.
fn services(variables: &Variables) -> Arc<[String]> {
    let of_a_container = variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI").cloned();
    let of_a_machine = variables.get("AWS_METADATA_ENDPOINT");
    of_a_container
        .into_iter()
        .chain(of_a_machine.map(|url| format!("{}/latest/", url.trim_end_matches('/'))))
        .collect()
}

/// Leaves out variables that set nothing: empty ones, a signature that is not to be left out, and a token without
/// the key that it belongs to, which the keys of a profile would be combined with.
fn without_unset(mut variables: Variables) -> Variables {
    variables.retain(|name, value| match name.as_str() {
        "AWS_SKIP_SIGNATURE" => {
            !["", "0", "false", "n", "no", "off"].contains(&&*value.to_lowercase())
        }
        // An empty name leaves out the file.
        "AWS_CONFIG_FILE" | "AWS_SHARED_CREDENTIALS_FILE" => true,
        _ => !(value.is_empty() && name.starts_with("AWS_")),
    });
    if !variables.contains_key("AWS_ACCESS_KEY_ID") {
        variables.retain(|name, _| !["AWS_SESSION_TOKEN", "AWS_TOKEN"].contains(&name.as_str()));
    }
    variables
}

/// Refuses half a pair of keys. Those of a profile, if they are used, replace a secret without its key.
fn check_pair(variables: &Variables, from_profile: bool) -> Result<(), String> {
    let [key, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
    let (set, unset) = match [key, secret].map(|name| variables.contains_key(name)) {
        [true, false] => (key, secret),
        [false, true] if !from_profile => (secret, key),
        _ => return Ok(()),
    };
    Err(format!("{set} is set and {unset} is not; set both, or neither to use those of a profile"))
}

/// Adds the keys of a profile to the settings.
fn with_keys(builder: AmazonS3Builder, profile: &Profile) -> Result<AmazonS3Builder, String> {
    if let Some(reason) = &profile.unsupported {
        return Err(reason.clone());
    }
    let (Some(key_id), Some(secret)) = (&profile.key_id, &profile.secret) else {
        return Ok(builder);
    };
    check_value("aws_access_key_id of the profile", key_id)?;
    check_value("aws_secret_access_key of the profile", secret)?;
    let builder = builder.with_access_key_id(key_id).with_secret_access_key(secret);
    let Some(token) = &profile.token else { return Ok(builder) };
    check_value("aws_session_token of the profile", token)?;
    Ok(builder.with_token(token))
}

/// Refuses a value that a request cannot contain.
fn check_value(name: &str, value: &str) -> Result<(), String> {
    let word = name.split(' ').next().unwrap_or(name).to_ascii_lowercase();
    super::settings::check_value(name, value, SENT.contains(&&*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::store::Store;
    use std::io::{BufRead, BufReader, Write};

    const KEYS: &str = r#"{"AccessKeyId":"id","SecretAccessKey":"secret","Token":"token","Expiration":"2999-01-01T00:00:00Z"}"#;

    /// Starts a server that refuses two requests and then answers with these documents. Returns its URL and its thread.
    fn busy_at_first(
        documents: &'static [&'static str],
    ) -> (String, std::thread::JoinHandle<Vec<String>>) {
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", server.local_addr().unwrap());
        let answer = |status: &str, body: &str| {
            let length = body.len();
            format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
        };
        let busy = answer("503 Service Unavailable", "");
        let served = documents.iter().map(|document| answer("200 OK", document));
        let answers: Vec<String> = [busy.clone(), busy].into_iter().chain(served).collect();
        let serving = std::thread::spawn(move || {
            let serve = |answer: String| {
                let (stream, _) = server.accept().unwrap();
                let lines = BufReader::new(&stream).lines().map_while(Result::ok);
                let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
                (&stream).write_all(answer.as_bytes()).unwrap();
                lines[0].clone()
            };
            answers.into_iter().map(serve).collect()
        });
        (url, serving)
    }

    fn with(variables: &[(&str, &str)]) -> Clients<AmazonS3> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        open(&Location::parse("s3://b/k").unwrap(), variables.iter().map(owned).collect()).unwrap()
    }

    #[tokio::test]
    async fn credentials_are_requested_again() {
        let (url, serving) = busy_at_first(&[KEYS]);
        let url = format!("{url}/keys");
        let token = tempfile::NamedTempFile::new().unwrap();
        let variables = [
            ("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.as_str()),
            ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", token.path().to_str().unwrap()),
            ("AWS_CONFIG_FILE", ""),
            ("AWS_SHARED_CREDENTIALS_FILE", ""),
        ];
        let store = with(&variables);
        for client in [&store.reading, &store.writing] {
            let found = client.credentials().get_credential().await.unwrap();
            assert_eq!(found.key_id, "id");
        }
        serving.join().unwrap();
    }

    #[tokio::test]
    async fn a_metadata_service_that_fails_at_first_is_requested_again() {
        let (url, serving) = busy_at_first(&["token", "role", KEYS]);
        let variables = [
            ("AWS_METADATA_ENDPOINT", url.as_str()),
            ("AWS_CONFIG_FILE", ""),
            ("AWS_SHARED_CREDENTIALS_FILE", ""),
        ];
        let store = with(&variables);
        let found = store.reading.credentials().get_credential().await.unwrap();
        assert_eq!(found.key_id, "id");
        let requests = serving.join().unwrap();
        let again = requests.iter().filter(|line| line.starts_with("PUT /latest/api/token "));
        assert_eq!(again.count(), 3, "{requests:?}");
    }

    #[test]
    fn services_for_credentials_that_the_settings_name_are_known() {
        let of = |name: &str, url: &str| services(&[(name.to_owned(), url.to_owned())].into());
        assert_eq!(*of("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://h/k"), ["http://h/k"]);
        assert_eq!(*of("AWS_METADATA_ENDPOINT", "http://h:1/"), ["http://h:1/latest/"]);
        assert!(of("AWS_ENDPOINT_URL", "http://h:1").is_empty());
    }

    #[test]
    fn keys_of_the_environment_leave_the_other_settings_of_the_profile() {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("config");
        let text = "[default]\nendpoint_url = http://profile:1\nregion = eu\nsso_session = x\n";
        std::fs::write(&config, text).unwrap();
        let config = config.to_str().unwrap();
        let open = |more: &[(&str, &str)]| {
            let all = [("AWS_CONFIG_FILE", config)].into_iter().chain(more.iter().copied());
            Store::with_variables(Location::parse("s3://b/k").unwrap(), all)
        };
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        let store = open(&keys).unwrap();
        assert_eq!(store.endpoint, "http://profile:1");
        assert!(format!("{:?}", store.reading).contains("region: \"eu\""), "{store:?}");
        let public = open(&[("AWS_SKIP_SIGNATURE", "true")]).unwrap();
        assert_eq!(public.endpoint, "http://profile:1");
        let other = [keys[0], keys[1], ("AWS_ENDPOINT_URL", "http://other:2")];
        assert_eq!(open(&other).unwrap().endpoint, "http://other:2");
        let error = open(&[]).unwrap_err().to_string();
        assert!(error.contains("sso_session, which is not supported"), "{error}");
    }

    #[test]
    fn half_a_pair_of_keys_is_refused() {
        let [key, secret] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];
        for (set, unset) in [(key, secret), (secret, key)] {
            let files = [("AWS_CONFIG_FILE", ""), ("AWS_SHARED_CREDENTIALS_FILE", "")];
            let variables = files.into_iter().chain([(set, "x"), (unset, "")]);
            let store = Store::with_variables(Location::parse("s3://b/k").unwrap(), variables);
            let error = store.unwrap_err().to_string();
            let words = format!("{set} is set and {unset} is not; set both, or neither");
            assert!(error.contains(&words), "{error}");
        }
    }

    #[test]
    fn settings_that_requests_cannot_carry_are_refused() {
        let open = |name: &str, value: &str| {
            let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
            let files = [("AWS_CONFIG_FILE", ""), ("AWS_SHARED_CREDENTIALS_FILE", "")];
            let all = keys.into_iter().chain(files).chain([(name, value)]);
            Store::with_variables(Location::parse("s3://b/k").unwrap(), all)
        };
        for (name, value, words) in [
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:99999", "'http://127.0.0.1:99999' is not a URL"),
            ("AWS_ENDPOINT_URL_S3", "http://", "'http://' is not a URL"),
            ("AWS_ENDPOINT_URL", "http://[::1", "'http://[::1' is not a URL"),
            ("AWS_ENDPOINT_URL", "http://server:1\n", "contains a line end"),
            ("AWS_ENDPOINT_URL", "http://two words", "is not a URL with a host"),
            ("AWS_ENDPOINT_URL", "server:1", "does not begin with http://"),
            ("AWS_ENDPOINT_URL", "https://u:secret@server/", "'https://server/' has a user name"),
            ("AWS_ENDPOINT_URL", "https://server/?secret", "'https://server/' has a user name"),
            ("AWS_ENDPOINT_URL", "https://u:sec?ret@server/", "'https://server/' is not a URL"),
            ("AWS_ENDPOINT_URL", "u:secret@server/", "'server/' does not begin with http://"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "eyJh.e30.x", "has credentials instead of the name"),
            ("AWS_SESSION_TOKEN", "token\r", "AWS_SESSION_TOKEN contains a line end"),
            ("AWS_SESSION_TOKEN", "to\nken", "AWS_SESSION_TOKEN contains a line end"),
            ("AWS_SESSION_TOKEN", "tokén", "a character that is not ASCII"),
            ("AWS_ACCESS_KEY_ID", "id\n", "AWS_ACCESS_KEY_ID contains a line end"),
            ("AWS_SECRET_ACCESS_KEY", "secret\n", "AWS_SECRET_ACCESS_KEY contains a line end"),
            ("AWS_REGION", "eu\n", "AWS_REGION contains a line end"),
            ("AWS_DEFAULT_REGION", "eu\u{1}", "AWS_DEFAULT_REGION contains a line end"),
        ] {
            let error = open(name, value).unwrap_err();
            assert_eq!(error.kind, Kind::Configuration, "{name} {value:?}");
            assert!(error.to_string().contains(words), "{error}");
        }
        for url in ["http://[::1]:9000", "https://server/below/", "http://localhost"] {
            assert!(open("AWS_ENDPOINT_URL", url).is_ok(), "{url}");
        }
        assert!(open("AWS_SECRET_ACCESS_KEY", "sécret").is_ok());
    }

    #[test]
    fn settings_of_a_profile_that_requests_cannot_carry_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("credentials");
        let keys = "aws_access_key_id = id\naws_secret_access_key = secret\n";
        for (more, words) in [
            ("aws_access_key_id = i\u{1}d", "aws_access_key_id of the profile contains"),
            ("aws_secret_access_key = x\u{1}", "aws_secret_access_key of the profile contains"),
            ("aws_session_token = x\u{7f}y", "aws_session_token of the profile contains"),
            ("region = e\u{1}u", "region of the profile contains"),
            ("endpoint_url = http://", "'http://' is not a URL"),
        ] {
            std::fs::write(&file, format!("[default]\n{keys}{more}\n")).unwrap();
            let variables =
                [("AWS_SHARED_CREDENTIALS_FILE", file.to_str().unwrap()), ("AWS_CONFIG_FILE", "")];
            let location = Location::parse("s3://b/k").unwrap();
            let error = Store::with_variables(location, variables).unwrap_err();
            assert_eq!(error.kind, Kind::Configuration, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn secrets_are_not_shown() {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "id"),
            ("AWS_SECRET_ACCESS_KEY", "hidden secret"),
            ("AWS_SESSION_TOKEN", "hidden token"),
            ("AWS_ENDPOINT_URL", "http://server:1"),
        ];
        let store = Store::with_variables(Location::parse("s3://b/k").unwrap(), variables).unwrap();
        assert_eq!(format!("{store:?}"), "Store { s3://b/k, endpoint \"http://server:1\" }");
    }

    #[test]
    fn directory_buckets_have_the_address_of_their_zone_unless_an_endpoint_is_set() {
        let dir = tempfile::tempdir().unwrap();
        let none = dir.path().join("none");
        let none = none.to_str().unwrap();
        let files = [("AWS_CONFIG_FILE", none), ("AWS_SHARED_CREDENTIALS_FILE", none)];
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret")];
        for (more, zonal) in [(None, true), (Some(("AWS_ENDPOINT_URL", "http://server:1")), false)]
        {
            let location = Location::parse("s3://data--use1-az4--x-s3/p/").unwrap();
            let variables = files.into_iter().chain(keys).chain(more);
            let store = Store::with_variables(location, variables).unwrap();
            let shown = format!("{:?}", store.reading);
            let address = "https://data--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com";
            assert_eq!(shown.contains(address), zonal, "{zonal}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_used_is_named() {
        let pairs = [("A", "maybe"), ("AWS_SKIP_SIGNATURE", "maybe"), ("AWS_TOKEN", "x")];
        let variables: Variables =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let named = |reason: &str| with_name(&variables, "AWS_", reason.to_owned());
        let reason = "failed to parse \"maybe\" as boolean";
        assert_eq!(named(reason), format!("cannot use AWS_SKIP_SIGNATURE: {reason}"));
        assert_eq!(named("maybe"), "maybe");
    }

    #[test]
    fn variables_that_set_nothing_leave_the_keys_of_the_profile() {
        let unset = [
            ("AWS_ACCESS_KEY_ID", ""),
            ("AWS_SESSION_TOKEN", "stale"),
            ("AWS_SKIP_SIGNATURE", "False"),
            ("AWS_CONFIG_FILE", ""),
            ("HOME", ""),
        ];
        let set = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            without_unset(all.collect()).into_keys().collect::<Vec<_>>()
        };
        assert_eq!(set(&unset), ["AWS_CONFIG_FILE", "HOME"]);
        let keys = [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SESSION_TOKEN", "token")];
        assert_eq!(set(&keys), ["AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN"]);
    }
}
