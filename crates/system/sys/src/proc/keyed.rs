//! Looks up numbers in a text of `name value` lines by their positions in the previous reading.
//!
//! /proc/vmstat has 180 lines, a few of which are needed a hundred times per second. The line of
//! each name is learned once. Later readings parse only those lines and compare the names, so a
//! text with a different layout is detected and learned again. Nothing is allocated after the first
//! text. The text after the last needed line does not have to be read ([`Keyed::reach`]) or even
//! formatted by the kernel.

/// The wanted names and their positions.
#[derive(Debug, Clone)]
pub struct Keyed {
    keys: &'static [&'static str],
    /// Line number and index of each name, by line.
    places: Vec<(usize, usize)>,
    /// Offset in bytes of the end of the last needed line.
    reach: usize,
}

impl Keyed {
    /// Creates a reader for `keys`.
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self { keys, places: Vec::with_capacity(keys.len()), reach: 0 }
    }

    /// Returns the number of names.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Stores the number of each name at the same index in `values`; `None` for a name that is not
    /// in the text.
    ///
    /// # Panics
    ///
    /// If `values` does not have as many elements as there are names.
    pub fn read(&mut self, text: &str, values: &mut [Option<u64>]) {
        if !self.read_part(text, values) {
            self.learn(text);
            values.fill(None);
            self.follow(text, values);
        }
    }

    /// Like [`Keyed::read`], for the beginning of a text. Returns false if the layout is unknown or
    /// has changed, or a needed line is incomplete; the whole text must then be read.
    ///
    /// # Panics
    ///
    /// If `values` does not have as many elements as there are names.
    pub fn read_part(&mut self, text: &str, values: &mut [Option<u64>]) -> bool {
        assert_eq!(values.len(), self.keys.len(), "there must be one value per name");
        values.fill(None);
        !self.places.is_empty() && self.follow(text, values)
    }

    /// Returns how many bytes of the last text contained all its names; 0 if the layout is unknown.
    /// Read slightly more because numbers grow.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// Parses the known lines; returns false if the text has a different layout.
    fn follow(&mut self, text: &str, values: &mut [Option<u64>]) -> bool {
        let mut places = self.places.iter();
        let Some(mut next) = places.next() else { return true };
        let mut end = 0;
        for (number, line) in text.split_inclusive('\n').enumerate() {
            end += line.len();
            if number < next.0 {
                continue;
            }
            let Some(rest) = after(line, self.keys[next.1]) else { return false };
            let digits = rest.split_ascii_whitespace().next();
            values[next.1] = digits.and_then(|digits| digits.parse().ok());
            match places.next() {
                Some(place) => next = place,
                // A line without its newline may be missing digits.
                None if line.ends_with('\n') => {
                    self.reach = end;
                    return true;
                }
                None => return false,
            }
        }
        false
    }

    fn learn(&mut self, text: &str) {
        self.places.clear();
        self.reach = 0;
        for (number, line) in text.lines().enumerate() {
            let known = |key: usize| self.places.iter().any(|(_, old)| *old == key);
            let found = self.keys.iter().position(|key| after(line, key).is_some());
            if let Some(key) = found.filter(|key| !known(*key)) {
                self.places.push((number, key));
            }
        }
    }
}

/// Returns the text after the name in `name value` or `name: value`.
fn after<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(key)?;
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    rest.starts_with([' ', '\t']).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEYS: &[&str] = &["a", "ab", "zero", "gone"];

    #[test]
    fn numbers_are_found_again() {
        let mut keyed = Keyed::new(KEYS);
        let mut values = [None; 4];
        keyed.read("ab 2\nx 9\na: 1 kB\nzero 0\n", &mut values);
        assert_eq!(values, [Some(1), Some(2), Some(0), None]);
        keyed.read("ab 20\nx 9\na: 10 kB\nzero 0\n", &mut values);
        assert_eq!(values, [Some(10), Some(20), Some(0), None]);
        // Another kernel: different order, one name missing, one value not a number.
        keyed.read("zero\t3\ngone many\nab 5\n", &mut values);
        assert_eq!(values, [None, Some(5), Some(3), None]);
        keyed.read("", &mut values);
        assert_eq!(values, [None; 4]);
    }

    #[test]
    fn an_incomplete_text_is_detected() {
        let text = "ab 2\nx 9\na: 1234 kB\nzero 77\nrest 1\n";
        let mut keyed = Keyed::new(KEYS);
        let (mut values, mut wanted) = ([None; 4], [None; 4]);
        assert!(!keyed.read_part(text, &mut values) && keyed.reach() == 0, "unknown layout");
        keyed.read(text, &mut wanted);
        assert_eq!(keyed.reach(), text.len() - "rest 1\n".len());
        for cut in 0..=text.len() {
            let is_enough = keyed.read_part(&text[..cut], &mut values);
            assert_eq!(is_enough, cut >= keyed.reach(), "{cut} bytes");
            assert!(!is_enough || values == wanted, "{cut} bytes: {values:?}");
        }
    }

    proptest! {
        /// Regardless of earlier texts, a text that contains each name once gives its numbers.
        #[test]
        fn an_old_layout_never_misleads(
            texts in prop::collection::vec(
                prop::collection::vec((0usize..4, 0u64..1000, 0usize..3), 0..4), 1..5)
        ) {
            let mut keyed = Keyed::new(KEYS);
            for lines in &texts {
                let mut wanted = [None; 4];
                let mut text = String::new();
                for (key, number, other_lines) in lines {
                    if wanted[*key].is_some() {
                        continue;
                    }
                    wanted[*key] = Some(*number);
                    text.push_str(&"other 7\n".repeat(*other_lines));
                    text.push_str(&format!("{} {number}\n", KEYS[*key]));
                }
                let mut values = [None; 4];
                keyed.read(&text, &mut values);
                // A new line that leaves all others in place is detected when something else moves.
                for (value, wanted) in values.iter().zip(wanted) {
                    prop_assert!(*value == wanted || value.is_none(), "{text:?}: {values:?}");
                }
                let mut fresh = [None; 4];
                Keyed::new(KEYS).read(&text, &mut fresh);
                prop_assert_eq!(fresh, wanted);
            }
        }
    }
}
