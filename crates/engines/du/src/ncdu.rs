//! Reads and writes the ncdu export format.
//!
//! An export is one JSON array: version numbers, information about the program, and the root. A
//! directory is an array whose first element describes it and whose other elements are its entries,
//! so subdirectories are nested arrays. Like ncdu, the writer emits names as raw bytes, so a file
//! can contain invalid UTF-8, and trees can nest deeper than JSON libraries allow. This is why the
//! module has its own reader: it parses a stream with an explicit stack, enforces [`Limits`], and
//! stores only nodes.

use crate::Tally;
use crate::links::{FileId, LinkSet};
use crate::node::LINKS_UNKNOWN;
use crate::tree::{Excluded, Found, Kind, Part, ROOT, Tree};
use std::io::{self, BufRead, Write};

/// Limits of an import.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum number of entries.
    pub nodes_max: u32,
    /// Maximum nesting depth of directories.
    pub depth_max: usize,
    /// Maximum string length in bytes.
    pub text_bytes_max: usize,
}

impl Default for Limits {
    /// A hundred million entries (about 20 GiB of memory), 100,000 levels, 64 KiB for a path.
    fn default() -> Self {
        Self { nodes_max: 100_000_000, depth_max: 100_000, text_bytes_max: 64 << 10 }
    }
}

/// The reason why an export cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Reading failed.
    #[error("cannot read the export at byte {at}: {source}")]
    Read {
        /// Byte offset of the failure.
        at: u64,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The input is not in ncdu format.
    #[error("not an ncdu export: {what} at byte {at}; create one with 'ncdu -o FILE DIR'")]
    Wrong {
        /// Byte offset of the problem.
        at: u64,
        /// The problem.
        what: &'static str,
    },
}

/// Returns the first node below the root whose name an export cannot contain: keys of objects can have empty names.
pub fn unnamable(tree: &Tree) -> Option<usize> {
    (1..tree.nodes().len()).find(|at| !is_file_name(tree.name(*at)))
}

fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Writes a tree in which files are nodes. The header contains `program` and `version`; `unix_s` is
/// the time of the scan. If each link was counted (`count_links`), hard links are not marked, so that an
/// import counts each, too.
pub fn export(
    tree: &Tree,
    (program, version): (&str, &str),
    unix_s: u64,
    count_links: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    out.write_all(b"[1,2,{\"progname\":")?;
    text(program.as_bytes(), out)?;
    out.write_all(b",\"progver\":")?;
    text(version.as_bytes(), out)?;
    writeln!(out, ",\"timestamp\":{unix_s}}},")?;
    let nodes = tree.nodes();
    let mut open: Vec<usize> = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        while open.last().is_some_and(|last| nodes[*last].end as usize <= at) {
            open.pop();
            out.write_all(b"]")?;
        }
        if at > 0 {
            out.write_all(b",\n")?;
        }
        let directory = node.kind == Kind::Directory;
        if directory {
            open.push(at);
            out.write_all(b"[")?;
        }
        out.write_all(b"{\"name\":")?;
        text(tree.name(at), out)?;
        let size = node.size;
        for (key, value) in [("asize", size.apparent_bytes), ("dsize", size.disk_bytes)] {
            if value > 0 {
                write!(out, ",\"{key}\":{value}")?;
            }
        }
        let parent = &nodes[node.parent as usize];
        if at == 0 || node.id.device != parent.id.device {
            write!(out, ",\"dev\":{}", device_out(node.id.device))?;
        }
        if !count_links && !directory && node.links > 1 {
            write!(out, ",\"ino\":{},\"hlnkc\":true", node.id.inode)?;
            if node.links != LINKS_UNKNOWN {
                write!(out, ",\"nlink\":{}", node.links)?;
            }
        }
        if let Some(why) = node.excluded {
            write!(out, ",\"excluded\":\"{}\"", why.word())?;
        } else if matches!(node.kind, Kind::Symlink | Kind::Other) {
            out.write_all(b",\"notreg\":true")?;
        }
        if node.unreadable || node.incomplete {
            out.write_all(b",\"read_error\":true")?;
        }
        out.write_all(b"}")?;
    }
    for _ in open {
        out.write_all(b"]")?;
    }
    out.write_all(b"]\n")
}

/// Encodes a device number in the same way as the C library.
const fn device_out(device: u64) -> u64 {
    let (major, minor) = (device >> 32, device & 0xffff_ffff);
    (major & 0xfff) << 8 | minor & 0xff | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

const fn device_in(packed: u64) -> u64 {
    let major = packed >> 8 & 0xfff | packed >> 32 & !0xfff;
    let minor = packed & 0xff | packed >> 12 & 0xffff_ff00;
    (major & 0xffff_ffff) << 32 | minor & 0xffff_ffff
}

/// Writes a JSON string. Invalid UTF-8 is written unchanged.
fn text(bytes: &[u8], out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    let mut plain = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && !matches!(byte, b'"' | b'\\' | 0x7F) {
            continue;
        }
        out.write_all(&bytes[plain..at])?;
        match byte {
            b'"' | b'\\' => out.write_all(&[b'\\', *byte])?,
            byte => write!(out, "\\u{byte:04x}")?,
        }
        plain = at + 1;
    }
    out.write_all(&bytes[plain..])?;
    out.write_all(b"\"")
}

/// An imported scan.
#[derive(Debug)]
pub struct Imported {
    /// Its tree.
    pub tree: Tree,
    /// The time in the header, in seconds since 1970; 0 without one.
    pub unix_s: u64,
}

/// Reads an export and recalculates the totals. Hard links are charged as in a scan. Excluded entries do not count,
/// except directories with their contents.
pub fn import(reader: &mut dyn BufRead, limits: Limits) -> Result<Imported, ImportError> {
    let mut json = Json { reader, at: 0, limits };
    json.expect(b'[', "missing opening bracket")?;
    if json.number()? != 1 {
        return Err(json.wrong("major version is not 1"));
    }
    json.expect(b',', "missing minor version")?;
    json.number()?;
    json.expect(b',', "missing program information")?;
    let unix_s = json.timestamp()?;
    json.expect(b',', "missing root")?;
    let tree = Import::default().run(&mut json)?;
    json.expect(b']', "unexpected data after the root")?;
    if json.peek()?.is_some() {
        return Err(json.wrong("unexpected data after the end"));
    }
    Ok(Imported { tree, unix_s })
}

/// The fields of an entry.
#[derive(Default)]
struct Item {
    name: Option<Vec<u8>>,
    apparent_bytes: u64,
    disk_bytes: u64,
    device: Option<u64>,
    inode: u64,
    links: u32,
    linked: bool,
    not_regular: bool,
    unreadable: bool,
    excluded: Option<Excluded>,
}

impl Item {
    /// Returns an excluded entry: the sizes and the type that an export can contain do not matter.
    fn without_sizes(self) -> Self {
        let Self { name, device, inode, excluded, .. } = self;
        Self { name, device, inode, excluded, not_regular: true, ..Self::default() }
    }
}

#[derive(Default)]
struct Import {
    part: Part,
    links: LinkSet,
    next: u32,
}

impl Import {
    fn run(mut self, json: &mut Json<'_>) -> Result<Tree, ImportError> {
        // Open directories: node and device.
        let mut open: Vec<(u32, u64)> = Vec::new();
        json.expect(b'[', "root is not a directory")?;
        let item = json.item()?;
        open.push(self.node(json, item, true, None)?);
        while let Some(parent) = open.last().copied() {
            match json.next_byte()? {
                Some(b']') => {
                    open.pop();
                }
                Some(b',') => {
                    let directory = json.peek()? == Some(b'[');
                    if directory {
                        json.next_byte()?;
                        if open.len() >= json.limits.depth_max {
                            return Err(json.wrong("directories nested too deeply"));
                        }
                    }
                    let item = json.item()?;
                    let node = self.node(json, item, directory, Some(parent))?;
                    if directory {
                        open.push(node);
                    }
                }
                _ => return Err(json.wrong("missing comma or closing bracket")),
            }
        }
        Tree::build(vec![self.part], &self.links).ok_or_else(|| json.wrong("missing root"))
    }

    fn node(
        &mut self,
        json: &Json<'_>,
        item: Item,
        directory: bool,
        parent: Option<(u32, u64)>,
    ) -> Result<(u32, u64), ImportError> {
        let counts = directory || item.excluded.is_none();
        let item = if counts { item } else { item.without_sizes() };
        let name = item.name.ok_or_else(|| json.wrong("entry without a name"))?;
        if name.is_empty() || name.contains(&0) {
            return Err(json.wrong("empty name or NUL byte in a name"));
        }
        if parent.is_some() && !is_file_name(&name) {
            return Err(json.wrong("invalid file name"));
        }
        if self.next >= json.limits.nodes_max {
            return Err(json.wrong("too many entries"));
        }
        let node = self.next;
        self.next += 1;
        let device = item.device.or(parent.map(|p| p.1)).unwrap_or(0);
        let id = FileId { device, inode: item.inode };
        let size = if counts {
            Tally::entry(item.apparent_bytes, item.disk_bytes)
        } else {
            Tally::default()
        };
        // As in ncdu, a count above one suffices.
        let linked = !directory && (item.linked || item.links > 1);
        let kind = match (directory, item.not_regular) {
            (true, _) => Kind::Directory,
            (false, false) => Kind::Regular,
            (false, true) => Kind::Other,
        };
        let links = if linked && item.links < 2 { LINKS_UNKNOWN } else { item.links };
        let found = Found { kind, size, id, links, counts: !linked };
        self.part.make(node, parent.map_or(ROOT, |p| p.0), &name, found);
        if linked {
            self.links.note(id, size, item.links, node);
        }
        if item.unreadable {
            self.part.unreadable(node);
        }
        if let Some(why) = item.excluded {
            self.part.exclude(node, why);
        }
        Ok((node, device))
    }
}

/// A JSON reader that stores only the requested values.
struct Json<'a> {
    reader: &'a mut dyn BufRead,
    at: u64,
    limits: Limits,
}

impl Json<'_> {
    fn wrong(&self, what: &'static str) -> ImportError {
        ImportError::Wrong { at: self.at, what }
    }

    /// Returns the next byte without consuming it.
    fn look(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            match self.reader.fill_buf() {
                Ok(block) => return Ok(block.first().copied()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ImportError::Read { at: self.at, source }),
            }
        }
    }

    fn take(&mut self) {
        self.reader.consume(1);
        self.at += 1;
    }

    /// Returns the next byte that is not white space without consuming it.
    fn peek(&mut self) -> Result<Option<u8>, ImportError> {
        loop {
            match self.look()? {
                Some(b' ' | b'\t' | b'\n' | b'\r') => self.take(),
                other => return Ok(other),
            }
        }
    }

    fn next_byte(&mut self) -> Result<Option<u8>, ImportError> {
        let byte = self.peek()?;
        if byte.is_some() {
            self.take();
        }
        Ok(byte)
    }

    fn expect(&mut self, byte: u8, what: &'static str) -> Result<(), ImportError> {
        if self.next_byte()? == Some(byte) { Ok(()) } else { Err(self.wrong(what)) }
    }

    /// Reads a non-negative number and discards any fraction.
    fn number(&mut self) -> Result<u64, ImportError> {
        let mut value: Option<u64> = None;
        self.peek()?;
        while let Some(digit @ b'0'..=b'9') = self.look()? {
            self.take();
            let next = value.unwrap_or(0).checked_mul(10);
            let next = next.and_then(|v| v.checked_add(u64::from(digit - b'0')));
            value = Some(next.ok_or_else(|| self.wrong("number too large"))?);
        }
        let value = value.ok_or_else(|| self.wrong("missing number"))?;
        if self.look()? == Some(b'.') {
            self.take();
            while let Some(b'0'..=b'9') = self.look()? {
                self.take();
            }
        }
        match self.look()? {
            Some(b'e' | b'E') => Err(self.wrong("number with an exponent")),
            _ => Ok(value),
        }
    }

    /// Skips any number.
    fn skip_number(&mut self) -> Result<(), ImportError> {
        while let Some(b'.' | b'e' | b'E' | b'+' | b'-' | b'0'..=b'9') = self.look()? {
            self.take();
        }
        Ok(())
    }

    /// Reads the information about the program; returns the time in it, or 0.
    fn timestamp(&mut self) -> Result<u64, ImportError> {
        let mut unix_s = 0;
        if self.peek()? != Some(b'{') {
            self.skip_value()?;
            return Ok(unix_s);
        }
        self.take();
        if self.peek()? == Some(b'}') {
            self.take();
            return Ok(unix_s);
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "missing colon")?;
            match self.peek()? {
                Some(b'0'..=b'9') if key == b"timestamp" => unix_s = self.number()?,
                _ => self.skip_value()?,
            }
            match self.next_byte()? {
                Some(b',') => {}
                Some(b'}') => return Ok(unix_s),
                _ => return Err(self.wrong("missing comma or closing brace")),
            }
        }
    }

    fn truth(&mut self) -> Result<bool, ImportError> {
        match self.word()?.as_slice() {
            b"true" => Ok(true),
            b"false" | b"null" => Ok(false),
            _ => Err(self.wrong("missing 'true' or 'false'")),
        }
    }

    fn word(&mut self) -> Result<Vec<u8>, ImportError> {
        let mut word = Vec::new();
        self.peek()?;
        while let Some(letter @ b'a'..=b'z') = self.look()? {
            self.take();
            word.push(letter);
            if word.len() > 5 {
                return Err(self.wrong("unknown literal"));
            }
        }
        Ok(word)
    }

    fn string(&mut self) -> Result<Vec<u8>, ImportError> {
        self.expect(b'"', "a string is missing")?;
        let mut out = Vec::new();
        loop {
            if out.len() > self.limits.text_bytes_max {
                return Err(self.wrong("string too long"));
            }
            let byte = self.look()?.ok_or_else(|| self.wrong("unterminated string"))?;
            self.take();
            match byte {
                b'"' => return Ok(out),
                b'\\' => self.escape(&mut out)?,
                byte => out.push(byte),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), ImportError> {
        let byte = self.look()?.ok_or_else(|| self.wrong("unterminated string"))?;
        self.take();
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.hex()?;
                if (0xD800..0xDC00).contains(&code) {
                    for expected in [b'\\', b'u'] {
                        if self.look()? != Some(expected) {
                            return Err(self.wrong("unpaired surrogate"));
                        }
                        self.take();
                    }
                    let low = self.hex()?;
                    if !(0xDC00..0xE000).contains(&low) {
                        return Err(self.wrong("unpaired surrogate"));
                    }
                    code = 0x1_0000 + ((code - 0xD800) << 10) + (low - 0xDC00);
                }
                let c = char::from_u32(code).ok_or_else(|| self.wrong("invalid character"))?;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.wrong("invalid escape sequence")),
        });
        Ok(())
    }

    fn hex(&mut self) -> Result<u32, ImportError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.look()?.and_then(|b| char::from(b).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.wrong("expected four hex digits"))?;
            self.take();
        }
        Ok(code)
    }

    /// Skips any value, however deeply nested.
    fn skip_value(&mut self) -> Result<(), ImportError> {
        let mut depth = 0_u64;
        loop {
            match self.peek()?.ok_or_else(|| self.wrong("missing value"))? {
                b'"' => {
                    self.string()?;
                }
                b'[' | b'{' => {
                    depth += 1;
                    self.take();
                    continue;
                }
                b']' | b'}' if depth > 0 => {
                    depth -= 1;
                    self.take();
                }
                b',' | b':' if depth > 0 => {
                    self.take();
                    continue;
                }
                b'-' | b'0'..=b'9' => self.skip_number()?,
                b'a'..=b'z' => {
                    self.word()?;
                }
                _ => return Err(self.wrong("missing value")),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// Reads why an entry is excluded. As in ncdu, an unknown word is a pattern.
    fn excluded(&mut self) -> Result<Option<Excluded>, ImportError> {
        match self.peek()? {
            Some(b'"') => {
                let word = self.string()?;
                let known = Excluded::ALL.into_iter().find(|why| why.word().as_bytes() == word);
                Ok(Some(match word.as_slice() {
                    b"othfs" => Excluded::OtherFileSystem,
                    _ => known.unwrap_or(Excluded::Pattern),
                }))
            }
            Some(b't' | b'f' | b'n') => Ok(self.truth()?.then_some(Excluded::Pattern)),
            _ => {
                self.skip_value()?;
                Ok(Some(Excluded::Pattern))
            }
        }
    }

    fn item(&mut self) -> Result<Item, ImportError> {
        let mut item = Item::default();
        self.expect(b'{', "entry is not an object")?;
        if self.peek()? == Some(b'}') {
            self.take();
            return Ok(item);
        }
        loop {
            let key = self.string()?;
            self.expect(b':', "missing colon")?;
            match key.as_slice() {
                b"name" => item.name = Some(self.string()?),
                b"asize" => item.apparent_bytes = self.number()?,
                b"dsize" => item.disk_bytes = self.number()?,
                b"dev" => item.device = Some(device_in(self.number()?)),
                b"ino" => item.inode = self.number()?,
                b"nlink" => item.links = u32::try_from(self.number()?).unwrap_or(u32::MAX),
                b"hlnkc" => item.linked = self.truth()?,
                b"notreg" => item.not_regular = self.truth()?,
                b"read_error" => item.unreadable = self.truth()?,
                b"excluded" => item.excluded = self.excluded()?,
                _ => self.skip_value()?,
            }
            match self.next_byte()? {
                Some(b',') => {}
                Some(b'}') => return Ok(item),
                _ => return Err(self.wrong("missing comma or closing brace")),
            }
        }
    }
}

#[cfg(test)]
mod tests;
