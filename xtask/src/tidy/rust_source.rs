//! A small lexer for Rust: enough to separate code from comments, strings and tests.
//!
//! It preserves line lengths, so the line numbers of findings are correct.

/// Returns only the code: comments, strings and characters become spaces.
pub(super) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match &bytes[at..] {
            [b'/', b'/', ..] => line_end(bytes, at),
            [b'/', b'*', ..] => block_comment_end(bytes, at),
            [b'"', ..] => string_end(bytes, at),
            [b'r' | b'b' | b'c', ..] if !follows_word(bytes, at) => raw_string_end(bytes, at),
            [b'\'', ..] => char_end(bytes, at),
            _ => at,
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end.max(at + 1);
    }
    String::from_utf8(out).unwrap_or_default()
}

fn follows_word(bytes: &[u8], at: usize) -> bool {
    at > 0 && is_word(bytes[at - 1])
}

/// Returns whether a byte can be part of an identifier.
pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_end(bytes: &[u8], at: usize) -> usize {
    bytes[at..].iter().position(|&b| b == b'\n').map_or(bytes.len(), |n| at + n)
}

fn block_comment_end(bytes: &[u8], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at < bytes.len() {
        match &bytes[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                at += 2;
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Returns the end of `r"…"`, `r#"…"#`, `br"…"` and the like, or `start` if there is none.
fn raw_string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start;
    while matches!(bytes.get(at), Some(b'b' | b'c')) {
        at += 1;
    }
    if bytes.get(at) != Some(&b'r') {
        return start;
    }
    at += 1;
    let hashes = bytes[at..].iter().take_while(|&&b| b == b'#').count();
    at += hashes;
    if bytes.get(at) != Some(&b'"') {
        return start;
    }
    let close = [&b"\""[..], &b"#".repeat(hashes)].concat();
    let rest = &bytes[at + 1..];
    rest.windows(close.len())
        .position(|window| window == close)
        .map_or(bytes.len(), |n| at + 1 + n + close.len())
}

/// Returns the end of a character literal, or `start` if the quote begins a lifetime.
fn char_end(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start + 1) {
        Some(b'\\') => bytes[start + 2..]
            .iter()
            .skip(1)
            .position(|&b| b == b'\'')
            .map_or(bytes.len(), |n| start + 4 + n),
        Some(_) => {
            // One character of up to four bytes, then the closing quote; otherwise a lifetime.
            let close = (2..=5).find(|&n| bytes.get(start + n) == Some(&b'\''));
            let lifetime = close.is_some_and(|n| n > 2 && bytes[start + 1].is_ascii());
            match close {
                Some(n) if !lifetime => start + n + 1,
                _ => start,
            }
        }
        None => start,
    }
}

/// Removes the modules and functions under `#[cfg(test)]` from the output of [`code_only`].
pub(super) fn without_tests(code: &str) -> String {
    let mark = "#[cfg(test)]";
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(mark) {
        out.push_str(&rest[..at]);
        let end = item_end(&rest[at..]);
        out.extend(rest[at..at + end].chars().filter(|&c| c == '\n'));
        rest = &rest[at + end..];
    }
    out + rest
}

/// Returns the end of the item that starts here: its `;` or its closing brace.
fn item_end(item: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in item.char_indices() {
        match c {
            ';' if depth == 0 => return at + 1,
            '{' => depth += 1,
            '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    item.len()
}

/// Returns the lines, from 1, on which `word` occurs as a whole word.
pub(super) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let bytes = line.as_bytes();
        let whole = line.match_indices(word).any(|(at, _)| {
            let before = at.checked_sub(1).is_none_or(|b| !is_word(bytes[b]));
            let after = bytes.get(at + word.len()).is_none_or(|&b| !is_word(b));
            before && after
        });
        if whole {
            found.push(number + 1);
        }
    }
    found
}

/// Returns every path that starts with `std::`, with its line from 1; groups are expanded.
pub(super) fn std_paths(code: &str) -> Vec<(usize, String)> {
    paths_from(code, "std")
}

/// Returns every path that starts with a crate, with its line from 1; groups are expanded. A glob ends
/// with `*`.
pub(super) fn paths_from(code: &str, name: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices(&format!("{name}::")) {
        let before = code[..at].trim_end_matches("::").as_bytes();
        // In `x::name::` the name is not a crate, in `::name::` it is.
        if before.last().is_some_and(|&byte| is_word(byte)) {
            continue;
        }
        let line = code[..at].matches('\n').count() + 1;
        let mut rest = &code[at..];
        let mut paths = Vec::new();
        expand("", &mut rest, &mut paths);
        found.extend(paths.into_iter().map(|path| (line, path)));
    }
    found
}

/// Reads one path or tree of paths from the start of `rest`.
fn expand(prefix: &str, rest: &mut &str, paths: &mut Vec<String>) {
    let mut path = prefix.to_owned();
    loop {
        *rest = rest.trim_start();
        if let Some(inner) = rest.strip_prefix('{') {
            *rest = inner;
            loop {
                *rest = rest.trim_start();
                if let Some(after) = rest.strip_prefix('}') {
                    *rest = after;
                    return;
                }
                if rest.is_empty() {
                    return;
                }
                let before = rest.len();
                expand(&path, rest, paths);
                // Skip `as name` and anything else that follows a path, up to the comma.
                let end = rest.find([',', '}']).unwrap_or(rest.len());
                *rest = &rest[end..];
                *rest = rest.strip_prefix(',').unwrap_or(rest);
                if rest.len() == before {
                    return;
                }
            }
        }
        let end = rest.bytes().position(|b| !is_word(b)).unwrap_or(rest.len());
        if rest.starts_with('*') {
            path.push('*');
            *rest = &rest[1..];
            paths.push(path);
            return;
        }
        if end == 0 {
            paths.push(path.trim_end_matches(':').to_owned());
            return;
        }
        path += &rest[..end];
        *rest = &rest[end..];
        match rest.strip_prefix("::") {
            Some(after) => {
                *rest = after;
                path += "::";
            }
            None => {
                paths.push(path);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_characters_are_no_code() {
        let text = "let a = \"unsafe // no\"; // unsafe\nlet b = 'u'; /* unsafe /* x */ y */ f();";
        let code = code_only(text);
        assert_eq!(code.len(), text.len());
        assert!(lines_with_word(&code, "unsafe").is_empty(), "{code}");
        assert!(code.contains("let b =") && code.contains("f();"), "{code}");
        assert_eq!(code.lines().count(), 2);
    }

    #[test]
    fn raw_strings_escapes_and_lifetimes_are_told_apart() {
        let text =
            r####"fn f<'a>(x: &'a str) { g(r#"un"safe"#, '\'', '"', "\"", b"x", 'é') } unsafe"####;
        let code = code_only(text);
        assert!(code.contains("fn f<'a>(x: &'a str) {"), "{code}");
        assert_eq!(lines_with_word(&code, "unsafe"), [1], "{code}");
        assert!(!code.contains("safe\""), "{code}");
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(lines_with_word("unsafe_code\nan unsafe {\nmyunsafe", "unsafe"), [2]);
    }

    #[test]
    fn test_modules_are_cut_and_lines_kept() {
        let code = "a\n#[cfg(test)]\nmod tests {\n  fn f() { x }\n}\nb\n#[cfg(test)]\nmod t;\nc";
        let cut = without_tests(code);
        assert!(!cut.contains("fn f") && !cut.contains("mod"), "{cut}");
        assert_eq!(cut.lines().position(|l| l == "c"), Some(8), "{cut}");
        assert!(cut.contains('b'));
    }

    #[test]
    fn groups_of_paths_are_spelled_out() {
        let code = "use std::{fs, time::{Duration, Instant as I}, io};\nlet x = std::env::args();";
        let paths = std_paths(code);
        let names: Vec<&str> = paths.iter().map(|(_, p)| p.as_str()).collect();
        assert_eq!(
            names,
            ["std::fs", "std::time::Duration", "std::time::Instant", "std::io", "std::env::args"]
        );
        assert_eq!(paths[4].0, 2);
        assert!(std_paths("ioloom_std::fs").is_empty());
        assert_eq!(std_paths("use ::std::{io::*, fs};")[0].1, "std::io::*");
        assert!(std_paths("use x::std::fs;").is_empty());
    }
}
