//! Numbers of a text of lines `name value`, found again where they stood.
//!
//! /proc/vmstat has 180 lines of which few are wanted, a hundred times a second. The line of each
//! name is learned once; later readings look at those lines only and compare the name, so a kernel
//! that answers otherwise is noticed and learned again. Nothing is allocated after the first text.

/// Wanted names and where they stand.
#[derive(Debug, Clone)]
pub struct Keyed {
    keys: &'static [&'static str],
    /// Line and index of the name, by line.
    places: Vec<(usize, usize)>,
}

impl Keyed {
    /// Wants `keys`.
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self { keys, places: Vec::with_capacity(keys.len()) }
    }

    /// Puts the number of each name into the place of the same index; `None` for a name that the
    /// text does not have.
    ///
    /// # Panics
    ///
    /// If `values` is not as long as the names.
    pub fn read(&mut self, text: &str, values: &mut [Option<u64>]) {
        assert_eq!(values.len(), self.keys.len(), "one place for each name");
        values.fill(None);
        if self.places.is_empty() || !self.follow(text, values) {
            self.learn(text);
            values.fill(None);
            self.follow(text, values);
        }
    }

    /// Reads the known lines; false if the text is another one.
    fn follow(&self, text: &str, values: &mut [Option<u64>]) -> bool {
        let mut places = self.places.iter();
        let Some(mut next) = places.next() else { return true };
        for (number, line) in text.lines().enumerate() {
            if number < next.0 {
                continue;
            }
            let Some(rest) = after(line, self.keys[next.1]) else { return false };
            let digits = rest.split_ascii_whitespace().next();
            values[next.1] = digits.and_then(|digits| digits.parse().ok());
            match places.next() {
                Some(place) => next = place,
                None => return true,
            }
        }
        false
    }

    fn learn(&mut self, text: &str) {
        self.places.clear();
        for (number, line) in text.lines().enumerate() {
            let known = |key: usize| self.places.iter().any(|(_, old)| *old == key);
            let found = self.keys.iter().position(|key| after(line, key).is_some());
            if let Some(key) = found.filter(|key| !known(*key)) {
                self.places.push((number, key));
            }
        }
    }
}

/// What stands behind a name: `name value` or `name: value`.
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
    fn numbers_are_found_and_found_again() {
        let mut keyed = Keyed::new(KEYS);
        let mut values = [None; 4];
        keyed.read("ab 2\nx 9\na: 1 kB\nzero 0\n", &mut values);
        assert_eq!(values, [Some(1), Some(2), Some(0), None]);
        keyed.read("ab 20\nx 9\na: 10 kB\nzero 0\n", &mut values);
        assert_eq!(values, [Some(10), Some(20), Some(0), None]);
        // Another kernel: the order is another, one is missing, one is no number.
        keyed.read("zero\t3\ngone many\nab 5\n", &mut values);
        assert_eq!(values, [None, Some(5), Some(3), None]);
        keyed.read("", &mut values);
        assert_eq!(values, [None; 4]);
    }

    proptest! {
        /// Whatever came before, a text with each name once gives its numbers.
        #[test]
        fn what_was_learned_never_misleads(
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
                // A line that is new, where all others stay, is met when something else moves.
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
