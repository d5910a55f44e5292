//! Words that may be abbreviated, with GNU's message for others.

use ioloom_model::units::readable;

/// Returns the choice that `text` is, or of which it is the start. Neighbours with equal values
/// have the same meaning. The message for another text lists the choices.
pub(crate) fn choice_of<T: Copy + PartialEq>(
    what: &str,
    text: &str,
    choices: &[(&str, T)],
) -> Result<T, String> {
    if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let starts: Vec<T> = choices
        .iter()
        .filter(|(word, _)| word.starts_with(text))
        .map(|(_, value)| *value)
        .collect();
    let adjective = match &starts[..] {
        [first, others @ ..] if others.iter().all(|other| other == first) => return Ok(*first),
        [] => "invalid",
        _ => "ambiguous",
    };
    let text = readable(text);
    let mut message = format!("{adjective} argument '{text}' for '{what}'\nValid arguments are:");
    for (at, (word, value)) in choices.iter().enumerate() {
        let same = at.checked_sub(1).is_some_and(|before| choices[before].1 == *value);
        message += if same { ", '" } else { "\n  - '" };
        message += word;
        message.push('\'');
    }
    Err(message)
}
