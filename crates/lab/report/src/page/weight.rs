//! Limits the size of a page.
//!
//! The page of a full study can have hundreds of charts. If it would exceed [`PAGE_MAX`], the parts
//! that fewest readers need are left out one after another, in the order of [`Part::ALL`], and the page
//! names them. Nothing is lost: the store has all runs, and the numbers of every comparison remain in
//! the embedded data.

/// Maximum length of a page in bytes.
pub(super) const PAGE_MAX: usize = 1_500_000;

/// A part of a page that can be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The embedded runs.
    Runs,
    /// The charts of the cost of calls.
    Costs,
    /// The charts of the time of threads.
    Time,
    /// The copies of charts for narrow screens.
    Narrow,
    /// Tables that repeat the charts in the layout of the sources, and explanations of plans.
    Tables,
    /// The timelines of single runs.
    Timelines,
}

impl Part {
    /// All parts, the first one to be left out first.
    pub(super) const ALL: [Self; 6] =
        [Self::Runs, Self::Costs, Self::Time, Self::Narrow, Self::Tables, Self::Timelines];

    /// Returns the name in a sentence.
    const fn words(self) -> &'static str {
        match self {
            Self::Runs => "the values of each run",
            Self::Costs => "the charts of the cost of calls",
            Self::Time => "the charts of the time of threads",
            Self::Narrow => "the copies of charts for narrow screens",
            Self::Tables => "the tables in the layout of the sources and the list of plans",
            Self::Timelines => "the timelines of single runs",
        }
    }

    /// Reports whether a section with this identifier belongs to the part.
    pub(super) fn has_section(self, id: &str) -> bool {
        let ends: &[&str] = match self {
            Self::Runs | Self::Narrow => &[],
            Self::Costs => &["costs"],
            Self::Time => &["time"],
            Self::Tables => &["tables", "plans"],
            Self::Timelines => &["timelines"],
        };
        ends.iter().any(|end| id.ends_with(end))
    }
}

/// Returns a sentence that names the parts, or `None` if there are none.
pub(super) fn left_out(parts: &[Part]) -> Option<String> {
    let names: Vec<&str> = parts.iter().map(|part| part.words()).collect();
    (!names.is_empty()).then(|| {
        format!(
            "To keep the page below {} MB, it does not contain {}. ioloom report --format json writes \
             the data of all comparisons, and ioloom report --picture EXPERIMENT draws one chart.",
            PAGE_MAX as f64 / 1e6,
            names.join(", ")
        )
    })
}

/// Removes the copies of charts for narrow screens, where the wide ones can then be scrolled.
pub(super) fn without_narrow(page: &str) -> String {
    const START: &str = "<svg class=\"chart narrow\"";
    const END: &str = "</svg>";
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(START) {
        out.push_str(before);
        rest = after.split_once(END).map_or("", |(_, tail)| tail);
    }
    out.push_str(rest);
    out.replace("<figure>", "<figure class=\"only\" tabindex=\"0\">")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_copies_are_removed_and_the_others_can_be_scrolled() {
        let page = "<figure><svg class=\"chart wide\">a</svg><svg class=\"chart narrow\" x>b</svg>\
                    </figure><p>c</p><svg class=\"chart narrow\">d</svg>e";
        assert_eq!(
            without_narrow(page),
            "<figure class=\"only\" tabindex=\"0\"><svg class=\"chart wide\">a</svg></figure><p>c</p>e"
        );
        assert_eq!(without_narrow("x"), "x");
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(left_out(&[]), None);
        let words = left_out(&Part::ALL[..2]).unwrap();
        assert!(
            words.contains("the values of each run, the charts of the cost of calls"),
            "{words}"
        );
    }
}
