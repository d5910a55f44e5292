//! Short names of media for charts and tables with several media.
//!
//! A medium name can be a directory path, which is too long for a label. Paths of related
//! directories often start with the same components, so a label keeps only as many trailing
//! components as distinguish it from the others. The table of file sets and media has the full
//! names.

use std::collections::BTreeMap;

/// Maximum number of characters in a name.
const SHORT: usize = 24;

/// Returns the media of a study, each with a short, unique name.
pub(crate) fn short_names<'a>(
    media: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<&'a str, String> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    names.extend(media.into_iter().map(|word| (word, word.to_owned())));
    let words: Vec<&str> = names.keys().copied().collect();
    for word in words.iter().copied().filter(|word| word.chars().count() > SHORT) {
        let cuts = word.trim_end_matches('/').rmatch_indices('/').map(|(at, _)| &word[at..]);
        let of_one = |end: &&str| words.iter().filter(|other| other.ends_with(*end)).count() == 1;
        // The last candidate is the full name, which is unique.
        let end = cuts.chain([word]).find(of_one).unwrap_or(word);
        let name = if end == word { word.to_owned() } else { format!("…{end}") };
        names.insert(word, middle_cut(name));
    }
    let mut uses: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.values() {
        *uses.entry(name.clone()).or_default() += 1;
    }
    for (word, name) in &mut names {
        // Long names may differ only in the middle.
        if uses[name.as_str()] > 1 {
            (*word).clone_into(name);
        }
    }
    names
}

/// Replaces the middle of a name that is too long.
fn middle_cut(name: String) -> String {
    let count = name.chars().count();
    if count <= 2 * SHORT {
        return name;
    }
    let begin: String = name.chars().take(SHORT - 1).collect();
    let end: String = name.chars().skip(count - SHORT).collect();
    format!("{begin}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_keep_what_tells_them_apart() {
        let long = "/srv/laboratory/of/many/directories";
        let (a, b, c) = (format!("{long}/a/x"), format!("{long}/b/x"), format!("{long}/c/"));
        let names = short_names([a.as_str(), b.as_str(), c.as_str(), "tmpfs", "/mnt/short"]);
        let of = |word: &str| names[word].as_str();
        assert_eq!((of(&a), of(&b), of(&c)), ("…/a/x", "…/b/x", "…/c/"));
        assert_eq!((of("tmpfs"), of("/mnt/short")), ("tmpfs", "/mnt/short"));
        let alone = short_names([a.as_str()]);
        assert_eq!(alone[a.as_str()], "…/x");
    }

    #[test]
    fn a_single_long_part_loses_its_middle_and_stays_itself() {
        let one = format!("/{}", "n".repeat(200));
        let name = &short_names([one.as_str()])[one.as_str()];
        assert!(name.chars().count() <= 2 * SHORT && name.contains('…'), "{name}");
        let twins = ["a", "b"].map(|middle| {
            let sides = "n".repeat(100);
            format!("/{sides}{middle}{sides}")
        });
        let names = short_names(twins.iter().map(String::as_str));
        assert_ne!(names[twins[0].as_str()], names[twins[1].as_str()]);
    }
}
