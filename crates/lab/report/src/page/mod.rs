//! The report as a single HTML file without external resources, readable from disk, in light and
//! dark mode.
//!
//! The order follows a reader's questions: what was asked, what is the answer, how certain is it,
//! what is it based on, how do I repeat it. A page with several studies has a chapter for each; the
//! answers, the claims, the machine and the instructions for repeating the studies appear once.
//! Numbers have the attributes `data-ref` and `data-field`, which give their location in the
//! embedded JSON; a test in `ui/` compares the two in a browser. A content security policy prevents
//! the page from loading anything.

mod chapters;
mod charts;
mod compare;
mod facts;
pub(crate) mod frame;
pub(crate) mod parts;
mod timelines;
mod weight;

pub use compare::compare_html;
use frame::{Lanes, document_frame};
use parts::Section;
use weight::Part;

use crate::chapter;
use crate::data;
use crate::first_page::FirstPage;
use crate::group::{Group, groups};
use crate::headline::{Headline, headlines};
use crate::input::Input;
use crate::markup::Markup;
use crate::source_tables;

/// Identifier of the first page.
const FIRST: &str = "first";
/// Number of sections after the chapters.
const GENERAL: usize = 3;

/// A study with derived data that is computed once.
struct Study<'a> {
    input: &'a Input,
    groups: &'a [Group<'a>],
    headlines: Vec<Headline<'a, 'a>>,
}

/// Returns the report of one study.
pub fn html(input: &Input) -> String {
    html_all(std::slice::from_ref(input))
}

/// Returns the report of one or more studies of one machine, with a chapter for each. Each study
/// must have a distinct [`Input::prefix`].
pub fn html_all(inputs: &[Input]) -> String {
    let Some(first) = inputs.first() else { return String::new() };
    let groups: Vec<Vec<Group<'_>>> = inputs.iter().map(groups).collect();
    let studies: Vec<Study<'_>> = inputs
        .iter()
        .zip(&groups)
        .map(|(input, groups)| Study { input, groups, headlines: headlines(groups) })
        .collect();
    let part = |s: &Study<'_>| data::study(s.input, s.groups, &s.headlines);
    let document = data::document(studies.iter().map(part).collect());
    let mut sections = Vec::new();
    let first_page = FirstPage::new(inputs, &groups);
    if let Some(page) = &first_page {
        sections.push((FIRST.to_owned(), "Answer", chapters::first_page(page)));
    } else if studies.len() > 1 {
        sections.push((FIRST.to_owned(), "Answer", all_answers(&studies)));
    }
    let mut traces_left = timelines::TRACES_BYTES_MAX;
    let written = |s: &Study<'_>| {
        let shown = timelines::timelines(s.input, &mut traces_left);
        let mut sections = chapter(s, studies.len() > 1, first_page.is_some(), shown);
        sections.retain(|(_, _, body)| !body.as_str().is_empty());
        sections
    };
    let names: Vec<&str> = inputs.iter().map(|input| input.study.name.as_str()).collect();
    let others = sections.len() + GENERAL;
    let (all, shortened) = weight::fitting(studies.iter().map(written).collect(), &names, others);
    sections.extend(all.into_iter().flatten());
    sections.push(("claims".to_owned(), "Claims", chapters::claims(inputs)));
    sections.push(("machine".to_owned(), "Machine", facts::machine(inputs)));
    sections.push(("repeat".to_owned(), "How to repeat", facts::repeat(inputs)));
    sections.retain(|(_, _, body)| !body.as_str().is_empty());
    let title = if studies.len() > 1 { parts::SEVERAL } else { &first.study.title };
    let write = |without: &[Part], words: Vec<String>| {
        let words: Vec<String> = shortened.iter().cloned().chain(words).collect();
        whole(inputs, title, &sections, document.clone(), without, &words)
    };
    weight::within_limit(write)
}

/// Returns the page without the named parts.
fn whole(
    inputs: &[Input],
    title: &str,
    sections: &[Section],
    mut document: serde_json::Value,
    without: &[Part],
    words: &[String],
) -> String {
    let kept = |id: &str| !without.iter().any(|part| part.has_section(id));
    let sections: Vec<&Section> = sections.iter().filter(|(id, ..)| kept(id)).collect();
    let mut m = Markup::new();
    let timelines = !without.contains(&Part::Timelines);
    let lanes = Lanes::of(timelines && inputs.iter().any(|input| !input.pictures.is_empty()));
    let runs = !without.contains(&Part::Runs);
    if !runs {
        data::without_runs(&mut document);
    }
    let numbers = !without.contains(&Part::Numbers);
    if !numbers {
        data::without_numbers(&mut document);
    }
    document_frame(&mut m, title, lanes, |m| {
        parts::masthead(m, inputs);
        m.tag("div").a("class", "columns").body(|m| {
            contents(m, inputs, &sections);
            m.tag("main")
                .body(|m| sections.iter().for_each(|one| section(m, inputs, &sections, one)));
        });
        parts::footer(m, inputs, runs, words);
        m.tag("script").a("type", "application/json").a("id", "report-data").body(|m| {
            m.json(&document.to_string());
        });
        for input in inputs.iter().filter(|_| runs) {
            let id = data::runs_element(input);
            m.tag("script").a("type", "application/octet-stream").a("id", id).body(|m| {
                m.json(&data::runs(input));
            });
        }
    });
    let page = match without.contains(&Part::Narrow) {
        true => weight::without_narrow(m.as_str()),
        false => m.into_string(),
    };
    let page = if numbers { page } else { weight::without_references(&page) };
    weight::without_dead_links(&page)
}

/// Writes a section. The first one answers and is open; the others are opened by those who ask why.
fn section(m: &mut Markup, inputs: &[Input], all: &[&Section], (id, name, body): &Section) {
    let of = inputs.iter().find(|i| starts_chapter(i, id));
    let class = of.map(|_| "chapter");
    let title = of.map_or(*name, |i| i.study.title.as_str());
    let open = all.first().is_some_and(|(first, ..)| first == id);
    m.tag("section").a("id", id).maybe("class", class).body(|m| {
        if open {
            m.tag("h2").text(title);
            m.append(body);
            return;
        }
        m.tag("details").a("class", "fold").body(|m| {
            m.tag("summary").body(|m| m.tag("h2").text(title));
            m.append(body);
        });
    });
}

/// Returns whether a section starts a study's chapter on a page with several studies.
fn starts_chapter(input: &Input, id: &str) -> bool {
    id.strip_suffix("answer").is_some_and(|p| !p.is_empty() && p == input.prefix)
}

/// Writes the table of contents, with each study's sections below its name.
fn contents(m: &mut Markup, inputs: &[Input], sections: &[&Section]) {
    m.tag("nav").a("aria-label", "Contents").body(|m| {
        for (id, name, _) in sections {
            let of = inputs.iter().filter(|i| !i.prefix.is_empty() && id.starts_with(&i.prefix));
            // The name of a study can start with that of another.
            let own = of.max_by_key(|i| i.prefix.len());
            let starts = own.is_some_and(|i| starts_chapter(i, id));
            let class = match own {
                Some(_) if starts => Some("part"),
                Some(_) => Some("sub"),
                None => None,
            };
            let shown = own.filter(|_| starts).map_or(*name, |i| &i.study.name);
            m.tag("a").a("href", format!("#{id}")).maybe("class", class).text(shown);
        }
    });
}

/// Writes the answer of each study at the start of a page with several studies.
fn all_answers(studies: &[Study<'_>]) -> Markup {
    let mut m = Markup::new();
    for s in studies {
        m.tag("p").a("class", "asked").body(|m| {
            m.tag("a").a("href", format!("#{}answer", s.input.prefix)).text(&s.input.study.title);
        });
        chapters::sentences_of(&mut m, &s.headlines, s.groups);
    }
    m
}

/// Returns the sections of one study. The page may have answered its question before.
fn chapter(study: &Study<'_>, of_several: bool, answered: bool, timelines: Markup) -> Vec<Section> {
    let Study { input, groups, headlines } = study;
    let mut first = Markup::new();
    if of_several {
        first.tag("p").a("class", "question").text(&input.study.question);
    }
    first.append(&chapters::answer(input, groups, headlines, !of_several));
    let named = |id: &str| format!("{}{id}", input.prefix);
    let name = if answered { "Best plans and limits" } else { "Answer" };
    vec![
        (named("answer"), name, first),
        (named("published"), "Published and here", chapter::of(input, groups)),
        (named("comparisons"), "Comparisons", chapters::comparisons(input, headlines)),
        (named("experiments"), "Experiments", charts::experiments(input, groups)),
        (named("costs"), "Cost of calls", charts::costs(input, groups)),
        (named("time"), "Time", charts::time(headlines)),
        (named("timelines"), "Timelines", timelines),
        (named("doubts"), "Doubts", chapters::doubts(input)),
        (named("conditions"), "Conditions", facts::conditions(input)),
        (
            named("tables"),
            "Published layout",
            facts::tables(
                &source_tables::medium_by_threads(groups),
                &source_tables::roles(groups, input),
            ),
        ),
        (named("plans"), "Plans", facts::plans(input, groups)),
    ]
}
