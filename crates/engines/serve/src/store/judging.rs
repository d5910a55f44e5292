//! Decides whether a store may be used, from what it contains and what its mark says.
//!
//! | the store lacks | explanation | decision |
//! |---|---|---|
//! | synced orders | none | refuse, or continue with `--accept-loss` |
//! | acknowledged orders, in the same boot on the same file system | none: a kill loses no written bytes | as above |
//! | acknowledged unsynced orders, after another boot | power failure | continue, and report how many |
//! | nothing that was acknowledged, but bytes are left over | interrupted write | continue, move them aside |
//!
//! Without a valid mark, or with one of another boot that is older than the store, only the store itself is
//! evidence. A raw log proves lost synced bytes by a later frame; the other stores cannot.

use super::interface::{Position, StoreError, Unreadable};
use super::mark::{Found, Here, Loss, Mark};
use super::path::with_suffix;
use ioloom_failure::quoted;
use std::path::Path;

/// What is missing from a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Number of orders.
    pub(crate) orders: u64,
    /// The bytes, if they can be located.
    pub(crate) bytes: Option<Unreadable>,
    /// Whether something is damaged; otherwise a power failure explains it.
    pub(crate) is_damage: bool,
}

/// Facts about a store.
pub(super) struct Facts<'a> {
    pub(super) found: &'a Found,
    pub(super) here: &'a Here,
    /// Number of the latest order in the store.
    pub(super) latest: u64,
    pub(super) position: Position,
    pub(super) unreadable: Option<&'a Unreadable>,
    /// Path of the store.
    pub(super) path: &'a Path,
}

impl Facts<'_> {
    fn mark(&self) -> Option<&Mark> {
        match self.found {
            Found::Mark(mark, _) => Some(mark),
            Found::Nothing | Found::Damaged => None,
        }
    }

    /// Returns what is missing, or `None` if the store has everything that was acknowledged.
    pub(super) fn missing(&self) -> Option<Missing> {
        let loss = self.mark().and_then(|mark| Loss::of(mark, self.here, self.latest));
        let proof = self.unreadable.and_then(|unreadable| unreadable.damage);
        // Orders in readable frames after the damage. An explained loss includes them.
        let behind = self.unreadable.map_or(0, |bytes| bytes.latest.saturating_sub(self.latest));
        let is_marked = self.mark().is_some();
        // What a power failure lost of the mark may have said that they were acknowledged.
        let is_stale = self
            .mark()
            .is_some_and(|mark| mark.acknowledged < self.latest && mark.is_restart(self.here));
        let orders = match loss {
            Some(loss) => loss.orders.max(if proof.is_some() { behind } else { 0 }),
            None if proof.is_some() || !is_marked || is_stale => behind,
            None => 0,
        };
        let is_damage = loss.is_some_and(|loss| loss.is_damage()) || proof.is_some();
        (orders > 0).then(|| Missing { orders, bytes: self.bytes(), is_damage })
    }

    /// Returns the unreadable bytes, including those of a raw log that were cut off.
    fn bytes(&self) -> Option<Unreadable> {
        let end = self.mark().filter(|mark| mark.log != 0 && mark.log == self.position.log);
        let end = end.map_or(0, |mark| mark.acknowledged_bytes);
        let cut_off = end.saturating_sub(self.position.written);
        match self.unreadable {
            Some(found) => Some(Unreadable { bytes: found.bytes.max(cut_off), ..found.clone() }),
            None if cut_off > 0 => Some(Unreadable {
                file: self.path.to_owned(),
                from: self.position.written,
                bytes: cut_off,
                latest: 0,
                damage: None,
            }),
            None => None,
        }
    }
}

impl Missing {
    /// Describes what is missing from the store at `path`.
    pub(crate) fn text(&self, path: &Path) -> String {
        let orders = counted(self.orders, "order");
        match &self.bytes {
            Some(bytes) => {
                format!("{orders}, {} are unreadable", bytes_text(bytes, path))
            }
            None if self.orders == 1 => format!("{orders} is missing"),
            None => format!("{orders} are missing"),
        }
    }

    /// Returns the refusal of the store at `path`.
    pub(super) fn refusal(&self, path: &Path) -> StoreError {
        let synced = if self.is_damage { "acknowledged data is missing: " } else { "" };
        StoreError::lost(path, format!("{synced}{}", self.text(path)))
    }
}

/// Describes the location of unreadable bytes of the store at `path`.
pub(super) fn bytes_text(bytes: &Unreadable, path: &Path) -> String {
    let count = counted(bytes.bytes, "byte");
    let of =
        if bytes.file == path { String::new() } else { format!(" of {}", quoted(&bytes.file)) };
    format!("{count} after offset {}{of}", bytes.from)
}

fn counted(count: u64, word: &str) -> String {
    if count == 1 { format!("1 {word}") } else { format!("{count} {word}s") }
}

/// Returns the notice about a mark that cannot be read.
pub(super) fn damaged_mark(store: &Path) -> String {
    format!(
        "mark {} is damaged and was replaced; orders missing from the end of the store could not \
         be detected",
        quoted(&with_suffix(store, super::mark::SUFFIX))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Here = Here { boot: 7, device: (8, 1) };

    fn unreadable(latest: u64, damage: Option<&'static str>) -> Unreadable {
        Unreadable { file: "s".into(), from: 100, bytes: 20, latest, damage }
    }

    fn missing(
        found: Found,
        here: Here,
        latest: u64,
        unreadable: Option<&Unreadable>,
    ) -> Option<(u64, Option<u64>, bool)> {
        let position = Position { log: 3, written: 100, synced: 90 };
        let path = Path::new("s");
        let facts = Facts { found: &found, here: &here, latest, position, unreadable, path };
        let missing = facts.missing();
        missing.map(|m| (m.orders, m.bytes.map(|bytes| bytes.bytes), m.is_damage))
    }

    #[test]
    fn each_combination_of_mark_and_contents_is_judged() {
        let mark = |acknowledged, synced| {
            let (boot, device) = (HERE.boot, HERE.device);
            let mark = Mark { acknowledged, synced, boot, device, log: 3, ..Mark::default() };
            Found::Mark(Mark { acknowledged_bytes: 150, ..mark }, 1)
        };
        let again = Here { boot: 8, ..HERE };
        let torn = &unreadable(0, None);
        let gap = &unreadable(12, None);
        let proof = &unreadable(12, Some("x"));
        for (found, here, latest, unreadable, expected) in [
            (mark(10, 10), HERE, 10, None, None),
            (mark(10, 10), HERE, 11, None, None),
            (mark(10, 10), HERE, 10, Some(torn), None),
            (mark(10, 10), HERE, 8, None, Some((2, Some(50), true))),
            (mark(10, 5), HERE, 8, Some(torn), Some((2, Some(50), true))),
            (mark(10, 5), again, 8, Some(torn), Some((2, Some(50), false))),
            (mark(10, 5), again, 4, Some(torn), Some((6, Some(50), true))),
            // The mark is older than the store: only a raw log can prove a loss.
            (mark(5, 5), HERE, 8, Some(proof), Some((4, Some(50), true))),
            // After another boot, the mark may be older than the store because it was not synced.
            (mark(5, 5), again, 8, Some(gap), Some((4, Some(50), false))),
            (mark(5, 5), again, 8, Some(torn), None),
            (mark(5, 5), HERE, 8, Some(gap), None),
            (mark(8, 5), again, 8, Some(gap), None),
            (mark(12, 5), again, 8, Some(gap), Some((4, Some(50), false))),
            (Found::Nothing, HERE, 8, Some(torn), None),
            (Found::Nothing, HERE, 8, Some(gap), Some((4, Some(20), false))),
            (Found::Damaged, HERE, 8, Some(proof), Some((4, Some(20), true))),
            (Found::Damaged, HERE, 8, None, None),
        ] {
            let case = format!("{found:?} {here:?} {latest} {unreadable:?}");
            assert_eq!(missing(found, here, latest, unreadable), expected, "{case}");
        }
    }

    #[test]
    fn texts_give_orders_bytes_and_offset() {
        let of = |orders, bytes| Missing { orders, bytes, is_damage: true }.text(Path::new("s"));
        let at = |file: &str| Some(Unreadable { file: file.into(), ..unreadable(0, None) });
        assert_eq!(of(284, at("s")), "284 orders, 20 bytes after offset 100 are unreadable");
        assert_eq!(of(1, at("t")), "1 order, 20 bytes after offset 100 of 't' are unreadable");
        assert_eq!(
            (of(1, None), of(2, None)),
            ("1 order is missing".into(), "2 orders are missing".into())
        );
    }
}
