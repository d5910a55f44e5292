//! Short names of media for charts and tables of several.
//!
//! The word of a medium may be the whole path of a directory, of which a label has room for a part
//! only. Directories that stand beside each other often begin alike, so the end of a path is kept:
//! as many of its last parts as tell it from the others. The table of sets and media has the words in
//! full.

use std::collections::BTreeMap;

/// A word of up to so many characters is short enough.
const SHORT: usize = 24;

/// The media of a study, each with a name that is short and no other's.
pub(crate) fn short_names<'a>(
    media: impl IntoIterator<Item = &'a str>,
) -> BTreeMap<&'a str, String> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    names.extend(media.into_iter().map(|word| (word, word.to_owned())));
    let words: Vec<&str> = names.keys().copied().collect();
    for word in words.iter().copied().filter(|word| word.chars().count() > SHORT) {
        let cuts = word.trim_end_matches('/').rmatch_indices('/').map(|(at, _)| &word[at..]);
        let of_one = |end: &&str| words.iter().filter(|other| other.ends_with(*end)).count() == 1;
        // The last of them is the whole word, and that is of one.
        let end = cuts.chain([word]).find(of_one).unwrap_or(word);
        let name = if end == word { word.to_owned() } else { format!("…{end}") };
        names.insert(word, middle_cut(name));
    }
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for name in names.values() {
        *told.entry(name.clone()).or_default() += 1;
    }
    for (word, name) in &mut names {
        // Long names that differ in their middle alone.
        if told[name.as_str()] > 1 {
            (*word).clone_into(name);
        }
    }
    names
}

/// A name without its middle, where it is too long.
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
