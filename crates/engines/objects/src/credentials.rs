//! Settings from the files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Keys, token, region and endpoint of a profile are used, unless the environment sets them. Profiles
//! that start a program, assume a role or sign in (SSO) have no keys here, because they would need the
//! tools themselves: `aws configure export-credentials --format env` gives such credentials.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The settings of one section.
type Section = BTreeMap<String, String>;

/// What a profile sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    pub(crate) key_id: Option<String>,
    pub(crate) secret: Option<String>,
    pub(crate) token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
    /// Why there are no keys although the profile has another source of them.
    pub(crate) unsupported: Option<String>,
}

/// Reads the profile that `AWS_PROFILE` names, or the default one.
///
/// # Errors
///
/// Returns why a profile that was named cannot be used, or why a file that exists cannot be read: without
/// its endpoint the data would go to another server.
pub(crate) fn profile(variable: impl Fn(&str) -> Option<String>) -> Result<Profile, String> {
    let named = variable("AWS_PROFILE").filter(|name| !name.is_empty());
    let name = named.clone().unwrap_or_else(|| "default".to_owned());
    let home = variable("HOME").map(PathBuf::from);
    let text = |name: &str, file: &str| {
        let path = variable(name).map(PathBuf::from);
        match path.or_else(|| home.as_ref().map(|home| home.join(".aws").join(file))) {
            Some(path) => contents(&path, name),
            None => Ok(String::new()),
        }
    };
    let mut credentials = sections(&text("AWS_SHARED_CREDENTIALS_FILE", "credentials")?);
    let mut config = sections(&text("AWS_CONFIG_FILE", "config")?);
    // The later ones have priority.
    let parts = [
        config.remove(&name).filter(|_| name == "default"),
        config.remove(&format!("profile {name}")),
        credentials.remove(&name),
    ];
    let Some(mut all) = parts.into_iter().flatten().reduce(|mut all, more| {
        all.extend(more);
        all
    }) else {
        return match named {
            Some(name) => Err(format!("no profile '{name}' in the files of AWS settings")),
            None => Ok(Profile::default()),
        };
    };
    // An endpoint of the service has priority over that of the profile.
    let services = all.get("services").map(|services| format!("services {services}"));
    let service = services.and_then(|services| config.remove(&services));
    if let Some(url) = service.and_then(|mut service| service.remove("s3.endpoint_url"))
        && !url.is_empty()
    {
        all.insert("endpoint_url".to_owned(), url);
    }
    Ok(read(&name, all))
}

/// Returns the text of a file, or nothing if it does not exist or cannot be found. `name`: the variable that names it.
fn contents(path: &Path, name: &str) -> Result<String, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(String::new())
        }
        // Whether it exists is not known if its directory belongs to another user.
        Err(error)
            if error.kind() == ErrorKind::PermissionDenied
                && std::fs::symlink_metadata(path).is_err() =>
        {
            Ok(String::new())
        }
        Err(error) => Err(format!(
            "cannot read {}: {}; set {name} to an empty value to ignore this file",
            ioloom_failure::quoted(path),
            ioloom_failure::reason(&error)
        )),
    }
}

fn read(name: &str, mut all: Section) -> Profile {
    let mut take = |key: &str| all.remove(key).filter(|value| !value.is_empty());
    let mut profile = Profile {
        key_id: take("aws_access_key_id"),
        secret: take("aws_secret_access_key"),
        token: take("aws_session_token"),
        region: take("region"),
        endpoint: take("endpoint_url"),
        unsupported: None,
    };
    let other = ["credential_process", "role_arn", "sso_session", "sso_start_url"];
    let other = other.into_iter().find(|key| take(key).is_some());
    if let Some(key) = other.filter(|_| profile.key_id.is_none()) {
        profile.unsupported = Some(format!(
            "the profile '{name}' uses {key}, which is not supported; run 'eval \"$(aws configure \
             export-credentials --profile {name} --format env)\"' first"
        ));
    }
    profile
}

/// Parses a file of sections. Indented lines after a key without a value are nested settings, with names
/// such as `s3.endpoint_url`; other indented lines are skipped.
fn sections(text: &str) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let (mut current, mut parent): (Option<String>, Option<String>) = (None, None);
    for line in text.lines() {
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if nested {
            let setting = line.split_once('=');
            if let (Some(name), Some(parent), Some((key, value))) = (&current, &parent, setting) {
                let section = all.entry(name.clone()).or_default();
                let key = format!("{parent}.{}", key.trim().to_ascii_lowercase());
                section.insert(key, value.trim().to_owned());
            }
        } else if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            all.entry(name.clone()).or_default();
            (current, parent) = (Some(name), None);
        } else if let (Some(name), Some((key, value))) = (&current, line.split_once('=')) {
            let section = all.entry(name.clone()).or_default();
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().to_owned());
            parent = value.is_empty().then(|| key.clone());
            section.insert(key, value);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(
        config: impl AsRef<[u8]>,
        credentials: &str,
        name: Option<&str>,
    ) -> Result<Profile, String> {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("config"), dir.path().join("credentials"));
        std::fs::write(&one, config).unwrap();
        std::fs::write(&two, credentials).unwrap();
        profile(|variable| match variable {
            "AWS_PROFILE" => name.map(str::to_owned),
            "AWS_CONFIG_FILE" => Some(one.display().to_string()),
            "AWS_SHARED_CREDENTIALS_FILE" => Some(two.display().to_string()),
            _ => None,
        })
    }

    #[test]
    fn a_profile_joins_both_files() {
        let config = "[default]\nregion = a\n# x\n[profile p]\nregion=eu\ns3 =\n  max = 3\nendpoint_url = http://x\n";
        let credentials = "[default]\naws_access_key_id=D\n[p]\naws_access_key_id = K=\naws_secret_access_key = S\n";
        let found = with_files(config, credentials, Some("p")).unwrap();
        let text = |text: &str| Some(text.to_owned());
        let expected = Profile {
            key_id: text("K="),
            secret: text("S"),
            token: None,
            region: text("eu"),
            endpoint: text("http://x"),
            unsupported: None,
        };
        assert_eq!(found, expected);
        let default = with_files(config, credentials, None).unwrap();
        assert_eq!((default.key_id, default.region), (text("D"), text("a")));
    }

    #[test]
    fn every_form_of_an_endpoint_is_read() {
        let endpoint = |config: &[u8], name| with_files(config, "", name).unwrap().endpoint;
        let expected = Some("http://x".to_owned());
        let latin = b"# caf\xe9\n[default]\nendpoint_url = http://x\n";
        assert_eq!(endpoint(latin, None), expected);
        let both =
            b"[profile default]\nendpoint_url = http://x\n[default]\nendpoint_url = http://y\n";
        assert_eq!(endpoint(both, None), expected);
        let merged = b"[default]\nendpoint_url = http://x\n[profile default]\nregion = a\n";
        assert_eq!(endpoint(merged, None), expected);
        let services = b"[profile p]\nservices = mine\nendpoint_url = http://y\n[services mine]\n\
            sqs =\n  endpoint_url = http://z\ns3 =\n  endpoint_url = http://x\n";
        assert_eq!(endpoint(services, Some("p")), expected);
        // Sections of profiles other than the default one begin with "profile".
        let plain = b"[p]\nendpoint_url = http://y\n[profile p]\nendpoint_url = http://x\n";
        assert_eq!(endpoint(plain, Some("p")), expected);
    }

    #[test]
    fn files_that_exist_and_cannot_be_read_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().display().to_string();
        for variable in ["AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"] {
            let error = profile(|name| (name == variable).then(|| path.clone())).unwrap_err();
            let words = format!("cannot read '{path}': ");
            assert!(error.starts_with(&words) && error.contains(variable), "{error}");
        }
        let below = |name: &str| (name == "HOME").then(|| "/dev/null".to_owned());
        assert_eq!(profile(below), Ok(Profile::default()));
    }

    #[test]
    fn profiles_that_cannot_be_used_are_errors() {
        let missing = with_files("", "", Some("p")).unwrap_err();
        assert!(missing.contains("no profile 'p'"), "{missing}");
        let sso = with_files("[profile p]\nsso_session = x\nregion = eu\n", "", Some("p")).unwrap();
        assert_eq!(sso.region.as_deref(), Some("eu"));
        let sso = sso.unsupported.unwrap();
        assert!(sso.contains("sso_session, which is not supported"), "{sso}");
        assert_eq!(with_files("", "", None), Ok(Profile::default()));
    }
}
