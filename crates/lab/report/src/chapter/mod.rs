//! Chapters for individual studies: the published numbers compared with this machine, an
//! explanatory chart, and the mechanism in plain words.
//!
//! `ioloom_studies` registers each chapter with its study. A study without a chapter has only the
//! common sections.

mod arms;
pub(crate) mod causes;
mod copy;
mod exchange;
mod memory;
mod pagecache;
mod walk;
mod what_if;

use crate::group::Group;
use crate::input::Input;
use crate::markup::Markup;

/// A function that draws the chapter of a study.
type Chapter = fn(&Input, &[Group<'_>]) -> Markup;

macro_rules! chapters {
    ($($study:ident $(, subject $subject:ident)? $(, chapter $chapter:ident)?;)*) => {
        /// The studies that have a chapter, by name.
        const CHAPTERS: &[(&str, Chapter)] =
            &[$($((stringify!($study), $chapter::chapter),)?)*];
    };
}

ioloom_studies::for_each_study!(chapters);

/// Draws the chapter of a study; empty if it has none.
pub(crate) fn of(input: &Input, groups: &[Group<'_>]) -> Markup {
    let found = CHAPTERS.iter().find(|(name, _)| *name == input.study.name);
    found.map_or_else(Markup::new, |(_, chapter)| chapter(input, groups))
}
