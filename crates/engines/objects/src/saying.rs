//! What responses say apart from contents: sums in headers, and reasons in error documents.

use crate::cloud::Cloud;
use crate::record::digits;
use reqwest::header::{HeaderMap, HeaderValue};

/// Returns the MD5 of the whole object that a response names.
pub(crate) fn md5_of(cloud: Cloud, status: u16, headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let base64 = match cloud {
        Cloud::S3 => None,
        Cloud::Google => {
            let all = headers.get_all("x-goog-hash").into_iter();
            let all = all.filter_map(|value| value.to_str().ok()).flat_map(|all| all.split(','));
            all.map(str::trim).find_map(|sum| sum.strip_prefix("md5="))
        }
        // In the response to a range, the other header is the sum of the range.
        Cloud::Azure | Cloud::Web => {
            text("x-ms-blob-content-md5").or_else(|| text("content-md5").filter(|_| status != 206))
        }
    };
    Some(digits(&bytes_of_md5(base64?.trim())?))
}

/// Decodes the 24 characters of the 16 bytes of a sum (base64).
fn bytes_of_md5(text: &str) -> Option<Vec<u8>> {
    let text = text.strip_suffix("==").filter(|text| text.len() == 22)?;
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = ((bits << 6 | u32::from(value)) & 0xffff, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    Some(bytes)
}

/// Returns the text of an element of an error document.
pub(crate) fn element(document: &str, name: &str) -> Option<String> {
    let (_, rest) = document.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    // Azure adds lines with the ID and the time of the request.
    let text = text.trim().lines().next().unwrap_or_default().trim_end_matches('.');
    let text = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    (!text.is_empty()).then(|| without_signatures(&text))
}

/// Returns the text of a server without signatures of Azure, which are in the URLs of requests: some servers and proxies
/// repeat the URL.
fn without_signatures(text: &str) -> String {
    let is_of_value = |c: char| c.is_ascii_alphanumeric() || "%+/=-_.".contains(c);
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find("sig=") {
        let is_name = !rest[..start].ends_with(|c: char| c.is_ascii_alphanumeric());
        let (before, after) = rest.split_at(start + "sig=".len());
        shown += before;
        rest = after;
        // What is before it is `?` or `&`, which can be written as `&amp;`.
        if is_name {
            shown += "...";
            rest = after.trim_start_matches(is_of_value);
        }
    }
    shown + rest
}

/// Returns the message of an error document in JSON, as services for credentials send it.
pub(crate) fn json_message(document: &str) -> Option<String> {
    let text = |name: &str| {
        let (_, rest) = document.split_once(&format!("\"{name}\""))?;
        let rest = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        let (text, _) = rest.split_once('"')?;
        let text = text.split("\\n").next()?.split("\\r").next()?.trim_end_matches('.');
        (!text.is_empty() && !text.contains('\\')).then(|| without_signatures(text))
    };
    document.starts_with('{').then_some(())?;
    text("error_description").or_else(|| text("message"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderName;

    #[test]
    fn sums_of_each_cloud_are_read() {
        let empty = "1B2M2Y8AsgTpgAmY7PhCfg==";
        let digits = Some("d41d8cd98f00b204e9800998ecf8427e".to_owned());
        let google = format!("crc32c=AAAAAA==,md5={empty}");
        for (cloud, status, name, value, expected) in [
            (Cloud::Azure, 200, "content-md5", empty, digits.clone()),
            (Cloud::Azure, 206, "content-md5", empty, None),
            (Cloud::Azure, 206, "x-ms-blob-content-md5", empty, digits.clone()),
            (Cloud::Google, 206, "x-goog-hash", &google, digits.clone()),
            (Cloud::Google, 200, "x-goog-hash", "crc32c=AAAAAA==", None),
            (Cloud::Web, 200, "content-md5", "1B2M2Y8AsgTpgAmY7PhCf===", None),
            (Cloud::Web, 200, "content-md5", "1B2M2Y8AsgTpgAmY7PhCf!==", None),
            (Cloud::S3, 200, "content-md5", empty, None),
        ] {
            let name: HeaderName = name.parse().unwrap();
            let headers = HeaderMap::from_iter([(name, value.parse().unwrap())]);
            assert_eq!(md5_of(cloud, status, &headers), expected, "{cloud:?} {status} {value}");
        }
    }

    #[test]
    fn errors_in_json_are_read() {
        let text =
            r#"{"error":"invalid_client","error_description":"AADSTS7: wrong.\r\nTrace ID: 1"}"#;
        assert_eq!(json_message(text).as_deref(), Some("AADSTS7: wrong"));
        let text = r#"{"error": {"code": 404, "message": "Not Found."}}"#;
        assert_eq!(json_message(text).as_deref(), Some("Not Found"));
        assert_eq!(json_message("<html>\"message\":\"x\""), None);
        assert_eq!(json_message("{}"), None);
    }

    #[test]
    fn signatures_that_a_server_repeats_are_not_shown() {
        let text =
            "<Message>no /c?sv=1&amp;sig=SEC%2BRET%3D&amp;x=1, /d?sig=SECRET, design=2</Message>";
        let shown = "no /c?sv=1&sig=...&x=1, /d?sig=..., design=2";
        assert_eq!(element(text, "Message").as_deref(), Some(shown));
        let text = r#"{"message": "/c?sv=1&sig=SECRET is refused"}"#;
        assert_eq!(json_message(text).as_deref(), Some("/c?sv=1&sig=... is refused"));
        let text = r#"{"message": "/c?sv=1&amp;sig=SECRET is refused"}"#;
        assert_eq!(json_message(text).as_deref(), Some("/c?sv=1&amp;sig=... is refused"));
    }

    #[test]
    fn error_documents_are_read() {
        let text = "<?xml?><Error><Code>NoSuchBucket</Code><Message>No &lt;b&gt; &amp;c.</Message></Error>";
        assert_eq!(element(text, "Code").as_deref(), Some("NoSuchBucket"));
        assert_eq!(element(text, "Message").as_deref(), Some("No <b> &c"));
        assert_eq!(element(text, "Resource"), None);
        assert_eq!(element("<Code></Code>", "Code"), None);
        assert_eq!(element("<Code>x", "Code"), None);
    }
}
