//! Google Cloud Storage: settings from the variables of its libraries.

use super::settings::{
    Clients, SILENCE, SILENCE_OF_WRITES, Variables, base_of, check_endpoint, check_file_name,
    check_value, connections, is_plain, no_retries, retries, with_name,
};
use crate::cloud::Cloud;
use crate::location::Location;
use crate::wire::{Connector, innermost};
use object_store::StaticCredentialProvider;
use object_store::gcp::{
    GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey,
};
use std::path::Path;
use std::sync::Arc;

const SERVER: &str = "https://storage.googleapis.com";
const BASE: &str = "GOOGLE_BASE_URL";
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// Variables that name a file with credentials.
const FILES: [&str; 3] =
    ["GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH", "GOOGLE_APPLICATION_CREDENTIALS"];
/// The variable with a key itself.
const KEY: &str = "GOOGLE_SERVICE_ACCOUNT_KEY";
/// The setting of a key file that names another server.
const BASE_OF_FILE: &str = "gcs_base_url";

/// Makes the clients.
///
/// # Errors
///
/// Returns which setting is invalid.
pub(super) fn open(
    location: &Location,
    mut variables: Variables,
) -> Result<Clients<GoogleCloudStorage>, String> {
    variables.retain(|_, value| !value.is_empty());
    let mut builder = GoogleCloudStorageBuilder::new();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("GOOGLE_")) {
        // A key is JSON, which can have several lines.
        match name.as_str() {
            KEY => check_key(value)?,
            name => check_value(name, value, false)?,
        }
        match name.to_ascii_lowercase().parse() {
            Ok(GoogleConfigKey::BaseUrl | GoogleConfigKey::Bucket) | Err(_) => {}
            Ok(key) => builder = builder.with_config(key, value),
        }
    }
    let mut has_base = variables.get(KEY).is_some_and(|text| text.contains(BASE_OF_FILE));
    for name in FILES {
        if let Some(path) = variables.get(name) {
            has_base |= key_file(name, path)?.contains(BASE_OF_FILE);
        }
    }
    let emulator = variables.get(EMULATOR).map(|host| match host.contains("://") {
        true => host.clone(),
        false => format!("http://{host}"),
    });
    let base = emulator.as_ref().or_else(|| variables.get(BASE));
    if let Some(url) = base {
        let name = if emulator.is_some() { EMULATOR } else { BASE };
        check_endpoint(url, name, "http://localhost:4443")?;
        builder = builder.with_base_url(&base_of(url));
    }
    // Without a request for credentials, and without those of the machine.
    if emulator.is_some() {
        builder = builder.with_skip_signature(true);
    }
    let is_public = variables.get("GOOGLE_SKIP_SIGNATURE").is_some_and(|text| is_true(text));
    if emulator.is_some() || is_public {
        let none = GcpCredential { bearer: String::new() };
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(none)));
    }
    let is_elsewhere = base.is_none() && has_base;
    let plain = is_elsewhere || base.is_some_and(|url| is_plain(url));
    let store = base.cloned().unwrap_or_else(|| SERVER.to_owned());
    let known = if is_elsewhere { Arc::default() } else { base_of(&store) };
    let connector = Connector { cloud: Cloud::Google, store: known, services: Arc::default() };
    let builder = builder.with_bucket_name(&location.bucket).with_http_connector(connector);
    let with = |retry, silence| {
        builder.clone().with_retry(retry).with_client_options(connections(silence, plain))
    };
    let unusable = |error: object_store::Error| with_name(&variables, "GOOGLE_", innermost(&error));
    let build =
        |builder: GoogleCloudStorageBuilder| builder.build().map(Arc::new).map_err(unusable);
    let patient = build(with(retries(), SILENCE))?;
    // A provider of credentials repeats its requests like the client that made it.
    let once =
        |silence| with(no_retries(), silence).with_credentials(patient.credentials().clone());
    let settings = once(SILENCE);
    let (reading, writing) = (build(settings.clone())?, build(once(SILENCE_OF_WRITES))?);
    let make = Arc::new(move || Ok(Arc::new(settings.clone().build()?) as _));
    Ok(Clients { endpoint: store, make, reading, writing, patient })
}

/// Returns whether a setting is true. The client refuses what is neither.
fn is_true(text: &str) -> bool {
    ["1", "true", "on", "yes", "y"].contains(&&*text.to_ascii_lowercase())
}

/// Refuses a key that is not an object of JSON: the client would show it.
fn check_key(value: &str) -> Result<(), String> {
    match value.trim_start().starts_with('{') {
        true => Ok(()),
        false => Err(format!("{KEY} is not the key of a service account (JSON)")),
    }
}

/// Returns the contents of a file with credentials. It is read here because the client does not name it.
fn key_file(name: &str, path: &str) -> Result<String, String> {
    check_file_name(name, path)?;
    let shown = ioloom_failure::quoted(Path::new(path));
    let text = std::fs::read_to_string(path).map_err(|error| {
        let why = ioloom_failure::reason(&error);
        format!("cannot read {shown}: {why}; set {name} to a file with credentials")
    })?;
    if !text.trim_start().starts_with('{') {
        return Err(format!("{shown} is not a file with credentials (JSON); check {name}"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(pairs: &[(&str, &str)]) -> Result<String, String> {
        let location = Location::parse("gs://bucket/k").unwrap();
        let variables =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let _ = rustls::crypto::ring::default_provider().install_default();
        open(&location, variables).map(|clients| clients.endpoint)
    }

    #[test]
    fn every_form_of_an_emulator_is_a_server() {
        for (host, url) in
            [("localhost:4443", "http://localhost:4443"), ("http://h:1/", "http://h:1/")]
        {
            assert_eq!(opened(&[(EMULATOR, host)]).as_deref(), Ok(url), "{host}");
        }
        assert_eq!(opened(&[("GOOGLE_SKIP_SIGNATURE", "true")]).as_deref(), Ok(SERVER));
    }

    #[test]
    fn invalid_settings_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (text, json) = (dir.path().join("text"), dir.path().join("json"));
        std::fs::write(&text, "key").unwrap();
        std::fs::write(&json, "{}").unwrap();
        let [text, json] = [text, json].map(|path| path.display().to_string());
        for (name, value, words) in [
            (
                FILES[2],
                "/absent",
                "cannot read '/absent': No such file or directory; set GOOGLE_APP",
            ),
            (FILES[0], &text, "is not a file with credentials (JSON); check GOOGLE_SERVICE_ACC"),
            (FILES[0], &json, "missing field"),
            (EMULATOR, "a b", "is not a URL with a host and a valid port; set STORAGE_EMULATOR_H"),
            (BASE, "host:1", "does not begin with http:// or https://; set GOOGLE_BASE_URL to"),
            ("GOOGLE_SKIP_SIGNATURE", "maybe", "cannot use GOOGLE_SKIP_SIGNATURE"),
            ("GOOGLE_BEARER_TOKEN", "x\n", "contains a line end"),
            (KEY, "{\n}\n", "missing field"),
            (KEY, "\"SECRET\"", "GOOGLE_SERVICE_ACCOUNT_KEY is not the key of a service account"),
            (FILES[0], "{\"private_key\": \"SECRET\"}", "instead of the name of a file"),
            (FILES[2], "-----BEGIN PRIVATE KEY-----SECRET", "instead of the name of a file"),
            (FILES[1], "'{\"client_secret\": \"SECRET\"}'", "instead of the name of a file"),
            (FILES[2], "eyJTRUNSRVQiOiAxfQ==", "instead of the name of a file"),
        ] {
            let error = opened(&[(name, value)]).expect_err(name);
            assert!(error.contains(words) && !error.contains("SECRET"), "{error}");
        }
    }
}
