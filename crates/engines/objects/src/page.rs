//! A page of a listing, without the keys that the client cannot represent.
//!
//! `object_store` rejects a whole page, up to 1000 objects, if one key has an empty segment, a segment
//! `.` or `..` or a control character, and drops slashes at both ends of keys, which then name other
//! objects. So these entries are removed before it parses the page, and the listing reports each one.
//! It costs a search through the text of each page.

use object_store::path::Path;

/// What was removed from a page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Keys that the client cannot represent.
    pub(crate) keys: Vec<String>,
    /// Whether there were markers of directories: empty objects whose keys end with a slash.
    pub(crate) markers: bool,
}

/// The elements of a page.
#[derive(Debug)]
pub(crate) struct Form {
    root: &'static str,
    begin: &'static str,
    end: &'static str,
    key: &'static str,
    size: &'static str,
    next: &'static str,
    /// The parameter with which the next page is requested.
    pub(crate) token: &'static str,
}

/// Those of S3, which Google has, too.
pub(crate) const S3: Form = Form {
    root: "ListBucketResult",
    begin: "<Contents>",
    end: "</Contents>",
    key: "Key",
    size: "Size",
    next: "NextContinuationToken",
    token: "continuation-token",
};

pub(crate) const AZURE: Form = Form {
    root: "EnumerationResults",
    begin: "<Blob>",
    end: "</Blob>",
    key: "Name",
    size: "Content-Length",
    next: "NextMarker",
    token: "marker",
};

impl Form {
    /// Returns the page without the entries whose keys the client cannot represent, and what was removed.
    pub(crate) fn readable(&self, page: &str) -> (String, Removed) {
        let (mut text, mut removed) = (String::with_capacity(page.len()), Removed::default());
        let mut rest = page;
        while let Some(start) = rest.find(self.begin) {
            let Some(len) = rest[start..].find(self.end) else { break };
            let end = start + len + self.end.len();
            let entry = &rest[start..end];
            match text_of(entry, self.key).filter(|key| !is_representable(key)) {
                None => text += &rest[..end],
                Some(key) => {
                    text += &rest[..start];
                    if key.ends_with('/') && text_of(entry, self.size).as_deref() == Some("0") {
                        removed.markers = true;
                    } else {
                        removed.keys.push(key);
                    }
                }
            }
            rest = &rest[end..];
        }
        (text + rest, removed)
    }

    /// Returns whether a document is a page of a listing. The client takes any other one for an empty page.
    pub(crate) fn is_list(&self, page: &[u8]) -> bool {
        let root = self.root.as_bytes();
        page.windows(root.len()).any(|window| window == root)
    }

    /// Returns whether a page says that it is not the last one, and not how to request the next one.
    pub(crate) fn is_cut(&self, page: &[u8]) -> bool {
        let Ok(page) = std::str::from_utf8(page) else { return false };
        let is_truncated = text_of(page, "IsTruncated").is_some_and(|text| text.trim() == "true");
        is_truncated && text_of(page, self.next).is_none_or(|token| token.is_empty())
    }

    /// Returns whether a page names itself as the next one, if it was requested with this token.
    pub(crate) fn is_repeated(&self, page: &[u8], token: &str) -> bool {
        let Ok(page) = std::str::from_utf8(page) else { return false };
        text_of(page, self.next).as_deref() == Some(token)
    }
}

/// Returns the text of an element with its references resolved.
fn text_of(entry: &str, name: &str) -> Option<String> {
    let (_, rest) = entry.split_once(&format!("<{name}>"))?;
    let (mut rest, _) = rest.split_once(&format!("</{name}>"))?;
    let mut text = String::with_capacity(rest.len());
    while let Some((before, after)) = rest.split_once('&') {
        text += before;
        let (reference, after) = after.split_once(';')?;
        text.push(match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = reference.strip_prefix('#')?;
                let code = match number.strip_prefix('x') {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => number.parse(),
                };
                char::from_u32(code.ok()?)?
            }
        });
        rest = after;
    }
    Some(text + rest)
}

/// Returns whether the client would send exactly this key.
fn is_representable(key: &str) -> bool {
    Path::parse(key).is_ok_and(|path| path.as_ref() == key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, size: u32) -> String {
        format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>")
    }

    #[test]
    fn a_page_that_is_not_the_last_names_the_next() {
        let page = |truncated, token| {
            S3.is_cut(format!("<R><IsTruncated>{truncated}</IsTruncated>{token}</R>").as_bytes())
        };
        assert!(page("true", ""));
        assert!(page("true", "<NextContinuationToken></NextContinuationToken>"));
        assert!(page("true", "<NextMarker>b</NextMarker>"));
        assert!(!page("true", "<NextContinuationToken>b</NextContinuationToken>"));
        assert!(!page("false", ""));
        assert!(!S3.is_cut(b"<R></R>"));
    }

    #[test]
    fn a_page_that_names_itself_as_the_next_is_repeated() {
        let page = b"<R><NextContinuationToken>a&amp;b</NextContinuationToken></R>";
        assert!(S3.is_repeated(page, "a&b"));
        assert!(!S3.is_repeated(page, "a"));
        assert!(!S3.is_repeated(b"<R></R>", ""));
    }

    #[test]
    fn only_keys_that_cannot_be_represented_are_removed() {
        let good =
            ["a", "a/b", "a%2Fb", "%", "a b+c", "...", ".x/y.", "a&amp;b", " a", "é", "&lt;"];
        for key in good {
            let page = format!("<R>{}<T/></R>", entry(key, 1));
            assert_eq!(S3.readable(&page), (page.clone(), Removed::default()), "{key}");
        }
        for (written, key) in [
            ("/a", "/a"),
            ("a/", "a/"),
            ("a//b", "a//b"),
            ("/", "/"),
            ("..", ".."),
            ("a/./b", "a/./b"),
            ("a/../&amp;b", "a/../&b"),
            ("a&#x1;b", "a\u{1}b"),
            ("a&#10;", "a\n"),
        ] {
            let page = format!("<R>{}{}{}</R>", entry("a", 1), entry(written, 2), entry("b", 3));
            let (text, removed) = S3.readable(&page);
            assert_eq!(text, format!("<R>{}{}</R>", entry("a", 1), entry("b", 3)), "{key}");
            assert_eq!(removed, Removed { keys: vec![key.to_owned()], markers: false });
        }
    }

    #[test]
    fn markers_of_directories_are_not_reported() {
        let (text, removed) = S3.readable(&entry("a/", 0));
        assert_eq!((&*text, removed), ("", Removed { keys: Vec::new(), markers: true }));
    }

    #[test]
    fn pages_of_azure_have_other_elements() {
        let blob = |name: &str, size: u32| {
            format!(
                "<Blob><Name>{name}</Name><Properties><Content-Length>{size}</Content-Length>\
                 </Properties></Blob>"
            )
        };
        let page = |blobs: &str| {
            format!(
                "<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>m</NextMarker></EnumerationResults>"
            )
        };
        let all = page(&[blob("a", 1), blob("b//c", 2), blob("d/", 0)].concat());
        let (text, removed) = AZURE.readable(&all);
        assert_eq!(text, page(&blob("a", 1)));
        assert_eq!(removed, Removed { keys: vec!["b//c".to_owned()], markers: true });
        assert!(AZURE.is_list(all.as_bytes()) && !S3.is_list(all.as_bytes()));
        assert!(AZURE.is_repeated(all.as_bytes(), "m") && !AZURE.is_cut(all.as_bytes()));
    }

    #[test]
    fn other_documents_are_left_as_they_are() {
        for page in
            ["", "no list", "<Contents>", "<Contents></Contents>", "<Contents><Key>a//b</Key>"]
        {
            assert_eq!(S3.readable(page), (page.to_owned(), Removed::default()));
        }
    }
}
