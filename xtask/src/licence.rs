//! Licences of the dependencies: which are allowed, and what an expression means.
//!
//! An expression is SPDX: identifiers with `OR`, `AND`, `WITH` and parentheses. It is allowed if
//! some choice of its alternatives leaves only allowed licences. The old spelling `MIT/Apache-2.0`
//! means `OR`.

use crate::repo::Repo;
use anyhow::{Context, bail};
use serde_json::Value;
use std::collections::BTreeMap;

/// Licences that a dependency may be used under.
const ALLOWED: [&str; 11] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "Unicode-3.0",
    "Zlib",
    "ISC",
    "0BSD",
];

/// The only place that dependencies come from.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Crates by the expression of their licence.
type ByLicence = BTreeMap<String, Vec<String>>;

/// Whether an expression can be met with allowed licences only.
pub(crate) fn is_allowed(expression: &str) -> anyhow::Result<bool> {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens };
    let allowed = parser.either()?;
    match parser.tokens {
        [] => Ok(allowed),
        rest => bail!("'{expression}': '{}' is left over", rest.join(" ")),
    }
}

/// Recursive descent; `AND` binds tighter than `OR`, as SPDX says.
struct Parser<'a> {
    tokens: &'a [&'a str],
}

impl Parser<'_> {
    fn eat(&mut self, word: &str) -> bool {
        let found = self.tokens.first().is_some_and(|t| t.eq_ignore_ascii_case(word));
        if found {
            self.tokens = &self.tokens[1..];
        }
        found
    }

    fn either(&mut self) -> anyhow::Result<bool> {
        let mut allowed = self.both()?;
        while self.eat("OR") {
            allowed |= self.both()?;
        }
        Ok(allowed)
    }

    fn both(&mut self) -> anyhow::Result<bool> {
        let mut allowed = self.one()?;
        while self.eat("AND") {
            allowed &= self.one()?;
        }
        Ok(allowed)
    }

    fn one(&mut self) -> anyhow::Result<bool> {
        if self.eat("(") {
            let allowed = self.either()?;
            if !self.eat(")") {
                bail!("a ')' is missing");
            }
            return Ok(allowed);
        }
        let name = self.name()?;
        if self.eat("WITH") {
            let exception = self.name()?;
            return Ok(ALLOWED.contains(&format!("{name} WITH {exception}").as_str()));
        }
        Ok(ALLOWED.contains(&name.as_str()))
    }

    fn name(&mut self) -> anyhow::Result<String> {
        let (&name, rest) = self.tokens.split_first().context("a licence is missing")?;
        if ["AND", "OR", "WITH", "(", ")"].contains(&name) {
            bail!("a licence is missing before '{name}'");
        }
        self.tokens = rest;
        Ok(name.to_owned())
    }
}

/// What is wrong with the dependencies, one line each, and the licences with their crates.
pub(crate) fn check(metadata: &Value) -> anyhow::Result<(Vec<String>, ByLicence)> {
    let packages = metadata["packages"].as_array().context("metadata without packages")?;
    let mut wrong = Vec::new();
    let mut by_licence = ByLicence::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        let licence = text("license");
        if package["source"].is_string() && text("source") != SOURCE {
            wrong.push(format!("{name}: comes from {}, not from crates.io", text("source")));
        }
        match is_allowed(licence) {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("{name}: licence '{licence}' is not allowed")),
            Err(error) => wrong.push(format!("{name}: licence '{licence}': {error}")),
        }
        by_licence.entry(licence.to_owned()).or_default().push(name);
    }
    Ok((wrong, by_licence))
}

/// Prints every licence with the crates under it.
pub(crate) fn list(repo: &Repo) -> anyhow::Result<bool> {
    let (wrong, by_licence) = check(&repo.metadata_of_all()?)?;
    for (licence, names) in &by_licence {
        println!("{licence} ({}): {}", names.len(), names.join(", "));
    }
    for line in &wrong {
        println!("REFUSED {line}");
    }
    Ok(wrong.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_mean_what_spdx_says() {
        for text in [
            "MIT",
            "MIT OR Apache-2.0",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-2.0) AND BSD-3-Clause",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            // AND binds tighter: MIT alone is a choice.
            "MIT OR GPL-3.0 AND Zlib",
        ] {
            assert!(is_allowed(text).unwrap(), "{text}");
        }
        for text in [
            "GPL-3.0",
            "MIT AND GPL-3.0",
            "GPL-2.0 WITH LLVM-exception",
            "MIT WITH Classpath-exception-2.0",
            "(GPL-2.0 OR LGPL-2.1) AND MIT",
            "MPL-2.0",
            "Unicode-DFS-2016",
        ] {
            assert!(!is_allowed(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn what_is_no_expression_is_refused() {
        for text in ["", "MIT OR", "(MIT", "MIT)", "AND MIT", "MIT Apache-2.0", "MIT WITH"] {
            assert!(is_allowed(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bad_crates_are_named() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "own", "version": "0.1.0", "license": "MIT OR Apache-2.0", "source": null },
            { "name": "good", "version": "1.0.0", "license": "MIT", "source": SOURCE },
            { "name": "viral", "version": "2.0.0", "license": "GPL-3.0", "source": SOURCE },
            { "name": "bare", "version": "3.0.0", "license": null, "source": SOURCE },
            { "name": "git", "version": "4.0.0", "license": "MIT", "source": "git+https://x" },
        ]});
        let (wrong, by_licence) = check(&metadata).unwrap();
        let names: Vec<_> = wrong.iter().filter_map(|w| w.split(' ').next()).collect();
        assert_eq!(names, ["viral", "bare", "git"], "{wrong:?}");
        assert_eq!(by_licence["MIT"], ["good 1.0.0", "git 4.0.0"]);
    }
}
