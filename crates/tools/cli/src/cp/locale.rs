//! The locale, which decides what GNU programs quote and what a character is.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

/// Returns true if the locale of this process has the character set UTF-8.
pub(crate) fn is_utf8() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| has_utf8(&std::env::vars_os().collect::<Vec<_>>(), is_there))
}

/// Does so for these variables. A locale that is not installed counts as `C`.
fn has_utf8(variables: &[(OsString, OsString)], is_there: impl Fn(&str) -> bool) -> bool {
    let value = |name: &str| {
        let found = variables.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.to_string_lossy().into_owned())
    };
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(|name| value(name));
    let Some(locale) = locale else { return false };
    let (name, charset) = locale.split_once('.').unwrap_or((&locale, ""));
    let charset = charset.split('@').next().unwrap_or_default().to_lowercase();
    let utf8 = charset == "utf-8" || charset == "utf8";
    utf8 && (name == "C" || is_there(&format!("{name}.utf8")))
}

/// Reports whether the C library has a locale: as a directory, or in its archive.
fn is_there(name: &str) -> bool {
    let dir = Path::new("/usr/lib/locale");
    if dir.join(name).is_dir() {
        return true;
    }
    let archive = std::fs::read(dir.join("locale-archive")).unwrap_or_default();
    let ended = format!("{name}\0");
    archive.windows(ended.len()).any(|part| part == ended.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_whether_characters_are_utf8() {
        let of = |variables: &[(&str, &str)]| {
            let variables: Vec<_> =
                variables.iter().map(|(k, v)| (OsString::from(k), OsString::from(v))).collect();
            has_utf8(&variables, |name| name == "de_DE.utf8")
        };
        for (variables, expected) in [
            (&[][..], false),
            (&[("LC_ALL", "C")], false),
            (&[("LC_ALL", "C.UTF-8")], true),
            (&[("LC_ALL", "C.utf8")], true),
            (&[("LC_ALL", "de_DE.UTF-8")], true),
            (&[("LC_ALL", "de_DE")], false),
            (&[("LC_ALL", "fr_FR.UTF-8")], false),
            (&[("LC_ALL", "de_DE.utf8@euro")], true),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "C")], false),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "")], true),
            (&[("LANG", "C"), ("LC_CTYPE", "C.UTF-8")], true),
        ] {
            assert_eq!(of(variables), expected, "{variables:?}");
        }
    }
}
