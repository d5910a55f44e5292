//! The chapter that a study has of its own: the published table beside this machine's, the picture
//! that explains it, and the mechanism in plain words.
//!
//! `ioloom_studies` registers each chapter with its study. A study without one gets only the drawings
//! that every study gets.

mod copy;
mod exchange;
mod memory;
mod pagecache;
mod walk;

use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;

/// What draws the chapter of a study.
type Chapter = fn(&Input, &[Group<'_>]) -> Markup;

macro_rules! chapters {
    ($($study:ident $(, subject $subject:ident)? $(, chapter $chapter:ident)?;)*) => {
        /// The studies that have a chapter, by name.
        const CHAPTERS: &[(&str, Chapter)] =
            &[$($((stringify!($study), $chapter::chapter),)?)*];
    };
}

ioloom_studies::for_each_study!(chapters);

/// The runs of an arm of an experiment, on its first set.
fn arm<'g, 'a>(groups: &'g [Group<'a>], experiment: &str, name: &str) -> Option<&'g ArmRuns<'a>> {
    let group = groups.iter().find(|g| g.experiment.name == experiment)?;
    group.arms.iter().find(|arm| arm.name == name && !arm.is_again())
}

/// A row of a table: words, then numbers.
fn row<const N: usize>(m: &mut Markup, cells: [&str; N]) {
    m.tag("tr").body(|m| {
        for (number, text) in cells.into_iter().enumerate() {
            if number > 0 {
                m.tag("td").a("class", "r").text(text);
            } else {
                parts::words_cell(m, text);
            }
        }
    });
}

/// The chapter of a study; empty if it has none.
pub(crate) fn of(input: &Input, groups: &[Group<'_>]) -> Markup {
    let found = CHAPTERS.iter().find(|(name, _)| *name == input.study.name);
    found.map_or_else(Markup::new, |(_, chapter)| chapter(input, groups))
}
