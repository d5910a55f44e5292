//! Numbers of a text of lines `name value`, found again where they stood.
//!
//! /proc/vmstat has 180 lines of which few are wanted, a hundred times a second. The line of each
//! name is learned once; later readings look at those lines only and compare the name, so a kernel
//! that answers otherwise is noticed and learned again. Nothing is allocated after the first text.
//! What stands behind the last of them need not be read at all ([`Keyed::reach`]), nor written by
//! the kernel.

/// Wanted names and where they stand.
#[derive(Debug, Clone)]
pub struct Keyed {
    keys: &'static [&'static str],
    /// Line and index of the name, by line.
    places: Vec<(usize, usize)>,
    /// Where the last of these lines ended, bytes.
    reach: usize,
}

impl Keyed {
    /// Wants `keys`.
    pub fn new(keys: &'static [&'static str]) -> Self {
        Self { keys, places: Vec::with_capacity(keys.len()), reach: 0 }
    }

    /// Returns how many names are wanted.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Puts the number of each name into the place of the same index; `None` for a name that the
    /// text does not have.
    ///
    /// # Panics
    ///
    /// If `values` is not as long as the names.
    pub fn read(&mut self, text: &str, values: &mut [Option<u64>]) {
        if !self.read_part(text, values) {
            self.learn(text);
            values.fill(None);
            self.follow(text, values);
        }
    }

    /// As [`Keyed::read`] of the beginning of a text; false if a line that had a name is not there
    /// whole any more, or nothing was learned yet: then the whole text must be read.
    ///
    /// # Panics
    ///
    /// If `values` is not as long as the names.
    pub fn read_part(&mut self, text: &str, values: &mut [Option<u64>]) -> bool {
        assert_eq!(values.len(), self.keys.len(), "one place for each name");
        values.fill(None);
        !self.places.is_empty() && self.follow(text, values)
    }

    /// Returns how much of the text must be read to have every name that it had, bytes; 0 if
    /// nothing was learned yet. A little more is wanted, because numbers grow.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// Reads the known lines; false if the text is another one.
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
                // A line without its end may lack digits.
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

    #[test]
    fn the_beginning_of_a_text_is_enough_or_said_not_to_be() {
        let text = "ab 2\nx 9\na: 1234 kB\nzero 77\nrest 1\n";
        let mut keyed = Keyed::new(KEYS);
        let (mut values, mut wanted) = ([None; 4], [None; 4]);
        assert!(!keyed.read_part(text, &mut values) && keyed.reach() == 0, "nothing was learned");
        keyed.read(text, &mut wanted);
        assert_eq!(keyed.reach(), text.len() - "rest 1\n".len());
        for cut in 0..=text.len() {
            let is_enough = keyed.read_part(&text[..cut], &mut values);
            assert_eq!(is_enough, cut >= keyed.reach(), "{cut} bytes");
            assert!(!is_enough || values == wanted, "{cut} bytes: {values:?}");
        }
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
