//! An HTML and SVG writer that always escapes.
//!
//! All text and attribute values pass through one escaping function. Tag and attribute names are
//! `&'static str`, so they come from this source and never from a record. The only exceptions are
//! [`Markup::asset`], which takes compiled-in text, and [`Markup::json`], which escapes for a
//! script element. A template engine would suit the page, but not SVG, which makes up most of the
//! markup; this writer serves both. It writes into one `String` and builds no tree.

use std::fmt::Write as _;

/// Markup under construction.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markup {
    out: String,
}

/// An attribute value.
pub trait AttrValue {
    /// Writes the value, escaped.
    fn write(&self, out: &mut String);
}

impl AttrValue for &str {
    fn write(&self, out: &mut String) {
        escape_into(out, self);
    }
}

impl AttrValue for String {
    fn write(&self, out: &mut String) {
        escape_into(out, self);
    }
}

impl AttrValue for &String {
    fn write(&self, out: &mut String) {
        escape_into(out, self);
    }
}

impl AttrValue for f64 {
    fn write(&self, out: &mut String) {
        out.push_str(&coordinate(*self));
    }
}

impl AttrValue for usize {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }
}

/// Formats a number with at most two decimals and no trailing zeros. Numbers that are not finite become
/// 0, because a browser would drop the whole attribute.
pub fn coordinate(value: f64) -> String {
    if !value.is_finite() {
        return "0".to_owned();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Returns whether a character could move the cursor, break lines or reorder the text around it: a
/// control character, a separator of lines or paragraphs, or a direction mark.
pub(crate) fn controls(c: char) -> bool {
    let mark = matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}');
    c.is_control() || mark || matches!(c, '\u{2028}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn escape_into(out: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' => out.push(c),
            // SVG does not allow control characters.
            c if controls(c) => out.push('\u{FFFD}'),
            c => out.push(c),
        }
    }
}

impl Markup {
    /// Returns empty markup.
    pub const fn new() -> Self {
        Self { out: String::new() }
    }

    /// Opens an element; close it with [`Tag::void`], [`Tag::text`] or [`Tag::body`].
    pub fn tag(&mut self, name: &'static str) -> Tag<'_> {
        self.out.push('<');
        self.out.push_str(name);
        Tag { markup: self, name }
    }

    /// Writes text, escaped.
    pub fn text(&mut self, text: &str) -> &mut Self {
        escape_into(&mut self.out, text);
        self
    }

    /// Appends other markup.
    pub fn append(&mut self, other: &Self) -> &mut Self {
        self.out.push_str(&other.out);
        self
    }

    /// Appends other markup without the titles of its marks.
    pub fn append_without_titles(&mut self, other: &Self) -> &mut Self {
        const END: &str = "</title>";
        let mut rest = other.out.as_str();
        // Text is escaped, so every tag was written by this type.
        while let Some((before, after)) = rest.split_once("<title>") {
            self.out.push_str(before);
            rest = after.split_once(END).map_or("", |(_, tail)| tail);
        }
        self.out.push_str(rest);
        self
    }

    /// Writes text that is compiled into the program: a style sheet or a script.
    pub fn asset(&mut self, text: &'static str) -> &mut Self {
        self.out.push_str(text);
        self
    }

    /// Writes JSON inside a script element. Characters that could end the element are escaped as JSON
    /// allows.
    pub fn json(&mut self, json: &str) -> &mut Self {
        for c in json.chars() {
            match c {
                '<' => self.out.push_str("\\u003c"),
                '>' => self.out.push_str("\\u003e"),
                '&' => self.out.push_str("\\u0026"),
                '\u{2028}' => self.out.push_str("\\u2028"),
                '\u{2029}' => self.out.push_str("\\u2029"),
                c => self.out.push(c),
            }
        }
        self
    }

    /// Returns the text so far.
    pub fn as_str(&self) -> &str {
        &self.out
    }

    /// Returns the finished text.
    pub fn into_string(self) -> String {
        self.out
    }
}

/// An element whose attributes are being written.
#[must_use = "close it with void, text or body"]
pub struct Tag<'a> {
    markup: &'a mut Markup,
    name: &'static str,
}

impl Tag<'_> {
    /// Writes an attribute.
    pub fn a(self, name: &'static str, value: impl AttrValue) -> Self {
        self.markup.out.push(' ');
        self.markup.out.push_str(name);
        self.markup.out.push_str("=\"");
        value.write(&mut self.markup.out);
        self.markup.out.push('"');
        self
    }

    /// Writes an attribute if there is a value.
    pub fn maybe(self, name: &'static str, value: Option<impl AttrValue>) -> Self {
        match value {
            Some(value) => self.a(name, value),
            None => self,
        }
    }

    /// Closes an element without content.
    pub fn void(self) {
        self.markup.out.push_str("/>");
    }

    /// Writes text and closes the element.
    pub fn text(self, text: &str) {
        self.body(|m| {
            m.text(text);
        });
    }

    /// Calls `fill` to write the content and closes the element.
    pub fn body(self, fill: impl FnOnce(&mut Markup)) {
        self.markup.out.push('>');
        fill(self.markup);
        self.markup.out.push_str("</");
        self.markup.out.push_str(self.name);
        self.markup.out.push('>');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_text_stays_text() {
        let mut m = Markup::new();
        let evil = "</p><script>alert(\"1\")</script>&'\u{0}\u{202E}";
        m.tag("p").a("title", evil).text(evil);
        let out = m.into_string();
        assert_eq!(out.matches('<').count(), 2, "{out}");
        assert_eq!(out.matches('"').count(), 2, "{out}");
        assert!(!out.contains('\u{0}') && !out.contains('\u{202E}'));
    }

    #[test]
    fn marks_that_reorder_or_break_text_are_replaced() {
        for mark in
            ['\u{61C}', '\u{200E}', '\u{200F}', '\u{2028}', '\u{2029}', '\u{202E}', '\u{2069}']
        {
            let mut m = Markup::new();
            m.text(&format!("a{mark}b"));
            assert_eq!(m.as_str(), "a\u{FFFD}b", "{mark:?}");
        }
        // Joiners are part of words and of emoji.
        assert!(!['\u{200C}', '\u{200D}', 'é', ' '].into_iter().any(controls));
    }

    #[test]
    fn json_cannot_end_its_script() {
        let mut m = Markup::new();
        m.json("{\"a\":\"</script><!--\u{2028}\"}");
        assert_eq!(m.as_str(), "{\"a\":\"\\u003c/script\\u003e\\u003c!--\\u2028\"}");
    }

    #[test]
    fn coordinates_are_short_and_finite() {
        for (value, text) in [(1.0, "1"), (1.239, "1.24"), (-0.001, "0"), (f64::NAN, "0")] {
            assert_eq!(coordinate(value), text);
        }
    }
}
