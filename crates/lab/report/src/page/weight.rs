//! Limits the size of a page.
//!
//! The page of a full study can have hundreds of charts. If it would exceed [`PAGE_MAX`], the parts
//! that fewest readers need are left out one after another, in the order of [`Part::ALL`]. If the
//! last one makes enough space, earlier ones are added again. The page names what it leaves out. The
//! store has all runs, and `ioloom report --format json` writes all numbers. A page that is too large
//! without them says so. If the folded sections would take more than twelve screens, studies lose all
//! sections but the first and their doubts, the last study first, and the page names them too.

use super::parts::Section;
use std::collections::BTreeSet;

/// Maximum length of a page in bytes.
pub(super) const PAGE_MAX: usize = 1_500_000;
/// The command that writes the page of one trace.
pub(super) const EXPORT: &str = "ioloom trace export FILE --format html -o OUT";
/// Maximum number of folded sections. Each takes about 60 pixels of twelve screens of 768.
pub(super) const SECTIONS_MAX: usize = 120;

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
    /// The charts of the experiments.
    Experiments,
    /// The drawings of each study next to the published results.
    Published,
    /// The tables of comparisons and conditions, and the embedded numbers. Doubts stay.
    Numbers,
    /// The table of claims.
    Claims,
}

impl Part {
    /// All parts, the first one to be left out first.
    pub(super) const ALL: [Self; 10] = [
        Self::Runs,
        Self::Costs,
        Self::Time,
        Self::Narrow,
        Self::Tables,
        Self::Timelines,
        Self::Experiments,
        Self::Published,
        Self::Numbers,
        Self::Claims,
    ];

    /// Returns the name in a sentence.
    const fn words(self) -> &'static str {
        match self {
            Self::Runs => "the values of each run",
            Self::Costs => "the charts of the cost of calls",
            Self::Time => "the charts of the time of threads",
            Self::Narrow => "the copies of charts for narrow screens",
            Self::Tables => "the tables in the layout of the sources and the list of plans",
            Self::Timelines => "the timelines of single runs",
            Self::Experiments => "the charts of the experiments",
            Self::Published => "the published results next to those of this machine",
            Self::Numbers => "the tables of comparisons and conditions and the embedded numbers",
            Self::Claims => "the table of claims",
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
            Self::Experiments => &["experiments"],
            Self::Published => &["published"],
            Self::Numbers => &["comparisons", "conditions"],
            Self::Claims => &["claims"],
        };
        ends.iter().any(|end| id.ends_with(end))
    }
}

/// Returns a sentence that names the parts, or `None` if there are none.
fn left_out(parts: &[Part]) -> Option<String> {
    let names: Vec<&str> = parts.iter().map(|part| part.words()).collect();
    let traces = match parts.contains(&Part::Timelines) {
        true => format!(" {EXPORT} writes the timeline of one run."),
        false => String::new(),
    };
    (!names.is_empty()).then(|| {
        format!(
            "To keep the page below {} MB, it does not contain {}. ioloom report --format json writes \
             the data of all comparisons, and ioloom report --picture EXPERIMENT draws one \
             chart.{traces}",
            PAGE_MAX as f64 / 1e6,
            names.join(", ")
        )
    })
}

/// Returns the page with as many parts as [`PAGE_MAX`] allows. `write` returns the page without the given
/// parts and with the given sentences.
pub(super) fn within_limit(write: impl Fn(&[Part], Vec<String>) -> String) -> String {
    let page = |without: &[Part]| write(without, left_out(without).into_iter().collect());
    let mut bytes = 0;
    for count in 0..=Part::ALL.len() {
        let mut without = Part::ALL[..count].to_vec();
        let mut best = page(&without);
        bytes = best.len();
        if bytes > PAGE_MAX {
            continue;
        }
        // The page is too large with the last of these parts, but may have space for earlier ones.
        for part in Part::ALL[..count].iter().rev().skip(1) {
            let fewer: Vec<Part> = without.iter().copied().filter(|other| other != part).collect();
            let larger = page(&fewer);
            if larger.len() <= PAGE_MAX {
                (without, best) = (fewer, larger);
            }
        }
        return best;
    }
    write(&Part::ALL, left_out(&Part::ALL).into_iter().chain([too_large(bytes)]).collect())
}

/// Returns a sentence about a page that is too large without all parts.
fn too_large(bytes: usize) -> String {
    format!(
        "The page has {:.1} MB, more than the limit of {} MB, although it contains only answers.",
        bytes as f64 / 1e6,
        PAGE_MAX as f64 / 1e6
    )
}

/// Keeps the chapters within [`SECTIONS_MAX`] sections, `others` of which are taken. Returns the chapters,
/// and a sentence if sections were left out.
pub(super) fn fitting(
    mut chapters: Vec<Vec<Section>>,
    names: &[&str],
    others: usize,
) -> (Vec<Vec<Section>>, Option<String>) {
    let count = |chapters: &[Vec<Section>]| others + chapters.iter().map(Vec::len).sum::<usize>();
    let (mut short, mut absent) = (Vec::new(), 0);
    for whole in [false, true] {
        for (at, name) in names.iter().enumerate().rev() {
            if count(&chapters) <= SECTIONS_MAX {
                break;
            }
            let Some(chapter) = chapters.get_mut(at).filter(|chapter| !chapter.is_empty()) else {
                continue;
            };
            if whole {
                chapter.clear();
                absent += 1;
            } else if chapter.len() > 1 {
                let mut index = 0..;
                chapter.retain(|(id, ..)| index.next() == Some(0) || id.ends_with("doubts"));
                short.push(*name);
            }
        }
    }
    let words = (!short.is_empty() || absent > 0).then(|| {
        short.reverse();
        let few: Vec<&str> = short.iter().copied().take(NAMES_MAX).collect();
        let more = match short.len() - few.len() {
            0 => String::new(),
            n => format!(" and {n} more studies"),
        };
        let gone = match absent {
            0 => String::new(),
            n => format!("; {n} of them have no chapter"),
        };
        format!(
            "To keep the folded page within twelve screens, the chapters of {}{more} contain only the \
             best plans, limits and doubts{gone}. ioloom report STUDY writes the page of one study.",
            few.join(", ")
        )
    });
    (chapters, words)
}

/// Maximum number of studies named in a sentence.
const NAMES_MAX: usize = 10;

/// Removes the targets of links to sections that were left out; their text stays.
pub(super) fn without_dead_links(page: &str) -> String {
    const LINK: &str = " href=\"#";
    let ids = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let ids: BTreeSet<&str> = ids.collect();
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(LINK) {
        out.push_str(before);
        let (id, tail) = after.split_once('"').unwrap_or((after, ""));
        if ids.contains(id) {
            out.extend([LINK, id, "\""]);
        }
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// Removes the references to embedded numbers.
pub(super) fn without_references(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(" data-ref=\"") {
        out.push_str(before);
        rest = after.split_once('"').map_or("", |(_, tail)| tail);
        if let Some(after) = rest.strip_prefix(" data-field=\"") {
            rest = after.split_once('"').map_or("", |(_, tail)| tail);
        }
    }
    out.push_str(rest);
    out
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

    fn section(id: String) -> Section {
        (id, "x", crate::markup::Markup::new())
    }

    #[test]
    fn chapters_beyond_twelve_screens_are_shortened_and_named() {
        let chapters = |n: usize, sections: usize| -> Vec<Vec<Section>> {
            (0..n).map(|i| (0..sections).map(|k| section(format!("s{i}-{k}"))).collect()).collect()
        };
        let all: Vec<String> = (0..200).map(|i| format!("s{i}")).collect();
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        let count = |of: &[Vec<Section>]| of.iter().map(Vec::len).sum::<usize>();
        let (kept, words) = fitting(chapters(6, 11), &names[..6], 4);
        assert_eq!((count(&kept), words), (66, None));
        let (kept, words) = fitting(chapters(12, 11), &names[..12], 4);
        let words = words.unwrap();
        assert!(count(&kept) + 4 <= SECTIONS_MAX && kept[0].len() == 11 && kept[11].len() == 1);
        assert!(words.contains("the chapters of s10, s11 contain only"), "{words}");
        let (kept, words) = fitting(chapters(200, 11), &names, 4);
        let words = words.unwrap();
        assert_eq!(count(&kept) + 4, SECTIONS_MAX);
        assert!(words.contains("and 190 more studies") && words.contains("84 of them"), "{words}");
    }

    #[test]
    fn doubts_are_never_left_out() {
        assert!(Part::ALL.iter().all(|part| !part.has_section("doubts")));
        let chapter = |i: usize| -> Vec<Section> {
            let ids = ["answer", "experiments", "time", "doubts", "conditions", "plans"];
            ids.map(|id| section(format!("s{i}-{id}"))).into()
        };
        let all: Vec<String> = (0..30).map(|i| format!("s{i}")).collect();
        let names: Vec<&str> = all.iter().map(String::as_str).collect();
        let (kept, words) = fitting((0..30).map(chapter).collect(), &names, 4);
        let ids: Vec<&str> = kept[29].iter().map(|(id, ..)| id.as_str()).collect();
        assert_eq!(ids, ["s29-answer", "s29-doubts"]);
        assert!(
            words.is_some_and(|words| words.contains("only the best plans, limits and doubts."))
        );
    }

    /// A large part left out late makes space for small ones left out before it.
    #[test]
    fn parts_that_fit_are_added_again() {
        let size = |part: &Part| -> usize {
            match part {
                Part::Runs | Part::Costs | Part::Time | Part::Narrow | Part::Tables => 100_000,
                Part::Timelines => 1_000_001,
                _ => 0,
            }
        };
        let write = |without: &[Part], words: Vec<String>| {
            let parts = Part::ALL.iter().filter(|part| !without.contains(part));
            let bytes = 500_000 + parts.map(size).sum::<usize>();
            format!("{without:?} {}{}", words.join(" "), " ".repeat(bytes))
        };
        let page = within_limit(write);
        assert!(page.starts_with("[Timelines] "), "{}", page.trim_end());
        assert!(page.contains("ioloom trace export FILE --format html -o OUT writes the timeline"));
        assert!(page.len() <= PAGE_MAX);
        let page = within_limit(|_, words| words.join(" ") + &"x".repeat(PAGE_MAX + 1));
        assert!(page.contains("the table of claims") && page.contains("The page has 1.5 MB"));
    }

    #[test]
    fn links_without_a_target_are_removed() {
        let page = "<p id=\"a\"><a href=\"#a\">1</a><a href=\"#b\" class=\"c\">2</a></p>";
        let kept = "<p id=\"a\"><a href=\"#a\">1</a><a class=\"c\">2</a></p>";
        assert_eq!(without_dead_links(page), kept);
    }

    #[test]
    fn references_are_removed() {
        let page = "<b data-ref=\"g0.a1\" data-field=\"low\">1</b><i data-ref=\"c\">2</i>";
        assert_eq!(without_references(page), "<b>1</b><i>2</i>");
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
