//! Settings from the files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`.
//!
//! Keys, token, region and endpoint of a profile are used, unless the environment sets them. Profiles
//! that start a program, assume a role or sign in (SSO) have no keys here, because they would need the
//! tools themselves: `aws configure export-credentials --format env` gives such credentials.

use std::collections::BTreeMap;
use std::path::PathBuf;

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
/// Returns why a profile that was named cannot be used.
pub(crate) fn profile(variable: impl Fn(&str) -> Option<String>) -> Result<Profile, String> {
    let named = variable("AWS_PROFILE").filter(|name| !name.is_empty());
    let name = named.clone().unwrap_or_else(|| "default".to_owned());
    let home = variable("HOME").map(PathBuf::from);
    let text = |name: &str, file: &str| {
        let path = variable(name).map(PathBuf::from);
        let path = path.or_else(|| home.as_ref().map(|home| home.join(".aws").join(file)))?;
        std::fs::read_to_string(path).ok()
    };
    let credentials = text("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
    let config = text("AWS_CONFIG_FILE", "config").unwrap_or_default();
    let section = match name.as_str() {
        "default" => name.clone(),
        _ => format!("profile {name}"),
    };
    let mut all = sections(&config).remove(&section);
    if let Some(more) = sections(&credentials).remove(&name) {
        all.get_or_insert_default().extend(more);
    }
    match all {
        Some(all) => Ok(read(&name, all)),
        None if named.is_some() => Err(format!("no profile '{name}' in the files of AWS settings")),
        None => Ok(Profile::default()),
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

/// Parses a file of sections. Indented lines belong to nested settings and are skipped.
fn sections(text: &str) -> BTreeMap<String, Section> {
    let mut all: BTreeMap<String, Section> = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if nested || line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
            all.entry(name.clone()).or_default();
            current = Some(name);
        } else if let (Some(name), Some((key, value))) = (&current, line.split_once('=')) {
            let section = all.entry(name.clone()).or_default();
            section.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(config: &str, credentials: &str, name: Option<&str>) -> Result<Profile, String> {
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
