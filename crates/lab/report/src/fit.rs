//! What fits on one screen.

/// Maximum number of questions on the first page of a report; more would not fit on a screen.
pub(crate) const QUESTIONS_MAX: usize = 8;
/// Maximum number of sentences on what changed there.
pub(crate) const SINCE_MAX: usize = 2;
/// Maximum number of characters of a name in an answer.
pub(crate) const NAME_MAX: usize = 80;
/// Maximum number of characters of any other text.
pub(crate) const TEXT_MAX: usize = 300;

/// Shortens a text to a number of characters.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Returns a text with a capital first letter.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |c| c.to_uppercase().chain(chars).collect())
}

/// Says how many answers and changes a screen has no room for.
pub(crate) fn left_out(answers: usize, changes: usize) -> Option<String> {
    let counted = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 more {one}")),
        n => Some(format!("{n} more {many}")),
    };
    let parts: Vec<String> =
        [counted(answers, "answer", "answers"), counted(changes, "change", "changes")]
            .into_iter()
            .flatten()
            .collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_shortened_by_characters() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöüx", 3), "äö…");
    }

    #[test]
    fn what_has_no_room_is_counted() {
        assert_eq!(left_out(0, 0), None);
        assert_eq!(left_out(1, 0).as_deref(), Some("1 more answer"));
        assert_eq!(left_out(2, 1).as_deref(), Some("2 more answers and 1 more change"));
    }
}
