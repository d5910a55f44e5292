//! Azure: settings from the variables of the Azure tools.

use super::settings::{
    Clients, SILENCE, SILENCE_OF_WRITES, Variables, base_of, check_endpoint, check_value,
    connections, is_plain, no_retries, retries, with_name,
};
use crate::cloud::Cloud;
use crate::location::Location;
use crate::wire::{Connector, innermost};
use object_store::azure::{
    AzureAccessKey, AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder, split_sas,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The account of the emulator, which everybody knows.
const EMULATOR: &str = "devstoreaccount1";
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_URL: &str = "http://127.0.0.1:10000";

const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
const USE_EMULATOR: &str = "AZURE_STORAGE_USE_EMULATOR";
const ACCOUNTS: [&str; 2] = ["AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"];
const KEYS: [&str; 4] = [
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_KEY",
];
const TOKENS: [&str; 2] = ["AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"];
const ENDPOINTS: [&str; 2] = ["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"];

/// Where the data are, and the secrets that are sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    name: Option<String>,
    key: Option<String>,
    token: Option<String>,
    endpoint: Option<String>,
    is_emulator: bool,
}

/// Makes the clients.
///
/// # Errors
///
/// Returns which setting is invalid.
pub(super) fn open(
    location: &Location,
    mut variables: Variables,
) -> Result<Clients<MicrosoftAzure>, String> {
    variables.retain(|_, value| !value.is_empty());
    let Account { name, key, token, endpoint, is_emulator } = account(&variables)?;
    let mut builder = configured(&variables, is_emulator && key.is_some())?;
    let name = name.ok_or_else(|| {
        format!(
            "the storage account is not known; set {} to its name, or set {CONNECTION}",
            ACCOUNTS[0]
        )
    })?;
    builder = builder.with_account(&name).with_container_name(&location.bucket);
    if let Some(key) = key {
        if AzureAccessKey::try_new(&key).is_err() {
            return Err(format!("{} is not a key of an account, which is base64", KEYS[0]));
        }
        builder = builder.with_access_key(key);
    }
    if let Some(token) = token {
        let pairs = split_sas(&token)
            .map_err(|_| format!("{} does not have the form sv=...&sig=...", TOKENS[0]))?;
        builder = builder.with_sas_authorization(pairs);
    }
    if let Some(url) = &endpoint {
        check_endpoint(url, ENDPOINTS[0], "https://ACCOUNT.blob.core.windows.net")?;
        builder = builder.with_endpoint(url.clone());
    }
    let endpoint = endpoint.unwrap_or_default();
    let plain = is_plain(&endpoint);
    let store = match endpoint.as_str() {
        "" if variables.contains_key("AZURE_USE_FABRIC_ENDPOINT") => String::new(),
        "" => format!("https://{name}.blob.core.windows.net"),
        url => url.to_owned(),
    };
    let connector =
        Connector { cloud: Cloud::Azure, store: base_of(&store), services: Arc::default() };
    let builder = builder.with_http_connector(connector);
    let with = |retry, silence| {
        builder.clone().with_retry(retry).with_client_options(connections(silence, plain))
    };
    let unusable = |error: object_store::Error| with_name(&variables, "AZURE_", innermost(&error));
    let build = |builder: MicrosoftAzureBuilder| builder.build().map(Arc::new).map_err(unusable);
    let patient = build(with(retries(), SILENCE))?;
    // A provider of credentials repeats its requests like the client that made it.
    let once =
        |silence| with(no_retries(), silence).with_credentials(patient.credentials().clone());
    let settings = once(SILENCE);
    let (reading, writing) = (build(settings.clone())?, build(once(SILENCE_OF_WRITES))?);
    let make = Arc::new(move || Ok(Arc::new(settings.clone().build()?) as _));
    Ok(Clients { endpoint: store, make, reading, writing, patient })
}

/// Returns the settings other than the account. `has_key`: a token of the environment does not precede the key of the
/// emulator.
fn configured(variables: &Variables, has_key: bool) -> Result<MicrosoftAzureBuilder, String> {
    let mut builder = MicrosoftAzureBuilder::new();
    for (name, value) in variables.iter().filter(|(name, _)| name.starts_with("AZURE_")) {
        check_value(name, value, false)?;
        match name.to_ascii_lowercase().parse() {
            // Those of the account are not combined with a connection string, and the client of the emulator reads the
            // environment itself.
            Ok(
                AzureConfigKey::UseEmulator
                | AzureConfigKey::Endpoint
                | AzureConfigKey::SasKey
                | AzureConfigKey::AccessKey,
            ) => {}
            Ok(AzureConfigKey::Token) if has_key => {}
            Ok(key) => builder = builder.with_config(key, value),
            Err(_) => {}
        }
    }
    // As the environment of App Service and functions names it.
    if let Some(url) = variables.get("IDENTITY_ENDPOINT") {
        builder = builder.with_msi_endpoint(url);
    }
    Ok(builder)
}

/// Returns the account that the variables name.
fn account(variables: &Variables) -> Result<Account, String> {
    let one = |names: &[&str]| names.iter().find_map(|name| variables.get(*name)).cloned();
    let given = Account {
        name: one(&ACCOUNTS),
        key: one(&KEYS),
        token: one(&TOKENS),
        endpoint: one(&ENDPOINTS),
        is_emulator: false,
    };
    let is_set = |text: &String| !["0", "false", "n", "no", "off"].contains(&&*text.to_lowercase());
    if variables.get(USE_EMULATOR).is_some_and(is_set) {
        let url = variables.get("AZURITE_BLOB_STORAGE_URL").map_or(EMULATOR_URL, String::as_str);
        return Ok(of_emulator(given, url));
    }
    let Some(text) = variables.get(CONNECTION) else { return Ok(given) };
    let found = connection(text)?;
    if found.get("UseDevelopmentStorage").is_some_and(|value| *value == "true") {
        return Ok(of_emulator(given, EMULATOR_URL));
    }
    let of = |name: &str| found.get(name).map(|value| (*value).to_owned());
    let name = of("AccountName");
    let endpoint = of("BlobEndpoint").or_else(|| {
        let scheme = of("DefaultEndpointsProtocol").unwrap_or_else(|| "https".to_owned());
        let suffix = of("EndpointSuffix").unwrap_or_else(|| "core.windows.net".to_owned());
        name.as_ref().map(|name| format!("{scheme}://{name}.blob.{suffix}"))
    });
    // A string with a token need not name the account.
    let name = name.or_else(|| {
        let (_, rest) = endpoint.as_deref()?.split_once("://")?;
        Some(rest.split('.').next().unwrap_or(rest).to_owned())
    });
    let (key, token) = (of("AccountKey"), of("SharedAccessSignature"));
    Ok(Account { name, key, token, endpoint, is_emulator: false })
}

/// Returns the account of an emulator at this address, unless others are given.
fn of_emulator(given: Account, url: &str) -> Account {
    let name = given.name.unwrap_or_else(|| EMULATOR.to_owned());
    let is_known = name == EMULATOR && given.token.is_none();
    let key = given.key.or_else(|| is_known.then(|| EMULATOR_KEY.to_owned()));
    let endpoint =
        given.endpoint.unwrap_or_else(|| format!("{}/{name}", url.trim_end_matches('/')));
    let (name, endpoint) = (Some(name), Some(endpoint));
    Account { name, key, token: given.token, endpoint, is_emulator: true }
}

/// Returns the parts of a connection string. Nothing of it is shown, because it has secrets.
fn connection(text: &str) -> Result<BTreeMap<&str, &str>, String> {
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').map(|(name, value)| (name.trim(), value.trim())))
        .collect::<Option<_>>()
        .ok_or_else(|| {
            format!("{CONNECTION} does not have the form AccountName=...;AccountKey=...")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn failure(pairs: &[(&str, &str)]) -> String {
        let location = Location::parse("az://container/k").unwrap();
        open(&location, variables(pairs)).err().expect("it is refused")
    }

    #[test]
    fn every_form_of_an_account_is_read() {
        let text = |text: &str| Some(text.to_owned());
        let found = |pairs: &[(&str, &str)]| account(&variables(pairs)).unwrap();
        let string = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=a2V5==;EndpointSuffix=core.windows.net";
        let of_string = found(&[(CONNECTION, string), (ACCOUNTS[0], "other")]);
        assert_eq!(of_string.name, text("me"));
        assert_eq!(of_string.key, text("a2V5=="));
        assert_eq!(of_string.endpoint, text("https://me.blob.core.windows.net"));
        let string =
            "BlobEndpoint=https://you.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=x%3D";
        let of_token = found(&[(CONNECTION, string)]);
        assert_eq!((of_token.name, of_token.token), (text("you"), text("sv=1&sig=x%3D")));
        let url = ("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:1/");
        let emulator = found(&[(USE_EMULATOR, "true"), url]);
        assert_eq!(emulator.endpoint, text("http://127.0.0.1:1/devstoreaccount1"));
        assert_eq!(emulator.key, text(EMULATOR_KEY));
        assert_eq!(found(&[(CONNECTION, "UseDevelopmentStorage=true")]).name, text(EMULATOR));
        assert_eq!(found(&[(USE_EMULATOR, "false")]), Account::default());
        let named = found(&[("AZURE_STORAGE_ACCOUNT", "me"), ("AZURE_STORAGE_KEY", "k")]);
        assert_eq!((named.name, named.key), (text("me"), text("k")));
    }

    #[test]
    fn secrets_of_the_environment_do_not_replace_those_of_the_account() {
        let value = |pairs: &[(&str, &str)], has_key, wanted: AzureConfigKey| {
            configured(&variables(pairs), has_key).unwrap().get_config_value(&wanted)
        };
        let key = (KEYS[0], "a2V5");
        assert_eq!(value(&[key], false, AzureConfigKey::AccessKey), None);
        let token = ("AZURE_STORAGE_TOKEN", "t");
        assert_eq!(value(&[token], false, AzureConfigKey::Token).as_deref(), Some("t"));
        assert_eq!(value(&[token], true, AzureConfigKey::Token), None);
        let string = "BlobEndpoint=https://you.blob.core.windows.net;SharedAccessSignature=sv=1";
        let found = account(&variables(&[key, (CONNECTION, string)])).unwrap();
        assert_eq!((found.key, found.token.as_deref()), (None, Some("sv=1")));
        assert!(account(&variables(&[(USE_EMULATOR, "true")])).unwrap().is_emulator);
    }

    #[test]
    fn invalid_settings_are_named_and_secrets_are_not_shown() {
        let name = ("AZURE_STORAGE_ACCOUNT_NAME", "me");
        let key = ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5");
        for (pairs, words) in [
            (&[][..], "set AZURE_STORAGE_ACCOUNT_NAME"),
            (&[name, ("AZURE_STORAGE_ACCOUNT_KEY", "secret!")], "AZURE_STORAGE_ACCOUNT_KEY is not"),
            (&[name, ("AZURE_STORAGE_SAS_TOKEN", "secret")], "AZURE_STORAGE_SAS_TOKEN does not"),
            (&[(CONNECTION, "secret")], "AZURE_STORAGE_CONNECTION_STRING does not have the form"),
            (&[name, key, ("AZURE_STORAGE_ENDPOINT", "host:1")], "does not begin with http://"),
            (
                &[name, key, ("AZURE_STORAGE_ENDPOINT", "http://h/?sig=secret")],
                "or a fragment; set",
            ),
            (&[name, key, ("AZURE_STORAGE_ENDPOINT", "http://")], "set AZURE_STORAGE_ENDPOINT to"),
            (&[name, ("AZURE_STORAGE_ACCOUNT_KEY", "a\n")], "a line end"),
            (&[name, key, ("AZURE_SKIP_SIGNATURE", "maybe")], "cannot use AZURE_SKIP_SIGNATURE"),
        ] {
            let error = failure(pairs);
            assert!(error.contains(words) && !error.contains("secret"), "{error}");
        }
    }
}
