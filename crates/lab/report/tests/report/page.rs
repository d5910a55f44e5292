//! The whole report with synthetic records: snapshots of every chart and text, and properties that hold
//! for any input.

use crate::full;
use crate::records::{HOSTILE, sample};
use ioloom_model::study::Mode;
use ioloom_model::{Outcome, RunRecord};
use ioloom_report::advice::advice;
use ioloom_report::data;
use ioloom_report::group::groups;
use ioloom_report::headline::{answer, headlines, plain_text};
use ioloom_report::svg::{NARROW, WIDE};
use ioloom_report::{
    Input, LINES_MAX, compare, compare_html, figures, html, html_all, picture, tables, terminal,
    terminal_all,
};
use std::collections::BTreeSet;

/// Returns the values of the attribute `name` in a page.
pub(crate) fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn without_data(page: &str) -> String {
    let (before, rest) = page.split_once("<script type=\"application/json\"").expect("data");
    let (_, after) = rest.split_once("</script>").expect("the end of data");
    format!("{before}{after}")
}

#[test]
fn charts_match_their_snapshots() {
    let input = sample(1);
    for name in ["elapsed-small-files", "sync-or-reader", "roles-grid", "call-cost-size"] {
        insta::assert_snapshot!(name, picture(&input, Some(name)).expect(name));
    }
    insta::assert_snapshot!("gains", picture(&input, None).expect("the answer's picture"));
    let groups = groups(&input);
    let headlines = headlines(&groups);
    for (name, figure) in [
        ("shares", figures::shares(&headlines[1]).expect("shares")),
        ("in-flight", figures::in_flight(headlines[0].best).expect("in flight")),
    ] {
        insta::assert_snapshot!(format!("{name}-wide"), figure.draw(WIDE).standalone());
        insta::assert_snapshot!(format!("{name}-narrow"), figure.draw(NARROW).standalone());
    }
}

#[test]
fn texts_match_their_snapshots() {
    let input = sample(1);
    insta::assert_snapshot!("terminal", terminal(&input, 80, false));
    insta::assert_snapshot!("compare", compare(&input, &sample(2)));
    let tables = tables(&input);
    let texts: Vec<_> = tables.iter().map(|t| t.markdown()).collect();
    insta::assert_snapshot!("tables", texts.join("\n"));
    let media = tables.iter().find(|t| t.title.starts_with("threads-media")).expect("media");
    insta::assert_snapshot!("media-csv", media.csv());
}

/// Experiments can have arms of one name in one place.
#[test]
fn compared_arms_are_below_their_experiment() {
    let twice = |seed| {
        let mut input = sample(seed);
        let mut other = input.study.experiments[0].clone();
        other.name = "again".to_owned();
        let is_first = |r: &&RunRecord| r.key.experiment == input.study.experiments[0].name;
        let mut more: Vec<_> = input.records.iter().filter(is_first).cloned().collect();
        more.iter_mut().for_each(|r| r.key.experiment = "again".to_owned());
        input.study.experiments.push(other);
        input.records.extend(more);
        input
    };
    let text = compare(&twice(1), &twice(2));
    for heading in ["elapsed-small-files", "again"] {
        assert_eq!(text.lines().filter(|line| *line == heading).count(), 1, "{text}");
    }
    let (_, below) = text.split_once("\nagain\n").expect("a heading");
    assert!(below.lines().next().is_some_and(|line| line.contains("E, cold")), "{below}");
}

#[test]
fn a_verdict_has_its_curve_and_the_published_numbers() {
    let input = sample(1);
    let page = html(&input);
    let drawn = page.matches("Measured and published").count();
    assert_eq!(drawn, input.verdicts.iter().filter(|c| !c.curves.is_empty()).count());
    assert_eq!(drawn, 1);
    for text in ["measured, elapsed time", "published, ms", "1\u{202F}844.82 ms"] {
        let plain = text.replace('\u{202F}', "");
        assert!(page.contains(text) || page.contains(&plain), "{text}");
    }
}

#[test]
fn different_things_are_not_compared() {
    use ioloom_model::condition::Metadata;
    use ioloom_report::compare::{Change, matched};
    let twice_as_fast = || {
        let mut b = sample(2);
        for record in &mut b.records {
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.elapsed_ns /= 2;
            }
        }
        b
    };
    let a = sample(1);
    let same = twice_as_fast();
    assert!(matched(&a, &same).rows.iter().any(|r| r.change == Change::Better));
    assert!(matched(&a, &same).refusals().is_empty());
    let mut machine = twice_as_fast();
    machine.machine.fingerprint = "another".to_owned();
    let mut files = twice_as_fast();
    let mut condition = twice_as_fast();
    for record in &mut files.records {
        record.set.hash = "ffff".to_owned();
    }
    for record in &mut condition.records {
        if let Some(proof) = &mut record.proof {
            proof.metadata = match proof.metadata {
                Metadata::Cold => Metadata::Warm,
                _ => Metadata::Cold,
            };
        }
    }
    for (b, word) in [(machine, "machine: "), (files, "file set: "), (condition, "condition: ")] {
        let found = matched(&a, &b);
        assert!(found.rows.iter().all(|r| r.change == Change::NotComparable), "{word}");
        assert!(found.rows.iter().all(|r| r.differs.iter().any(|d| d.starts_with(word))), "{word}");
        let text = compare(&a, &b);
        assert!(text.contains(word) && !text.contains("better\n"), "{text}");
        assert!(compare_html(&a, &b).contains("not comparable"), "{word}");
    }
}

#[test]
fn definitions_and_compute_times_of_two_sessions_are_compared() {
    use ioloom_model::Compute;
    use ioloom_report::compare::matched;
    let with = |compute: &Compute, ns: f64| {
        let mut input = sample(1);
        for record in &mut input.records {
            record.key.compute = compute.clone();
            record.set.compute_ns_mean = Some(ns);
        }
        input
    };
    for (compute, uses_set) in
        [(Compute::Spin(None), true), (Compute::Sleep(None), true), (Compute::Touch, false)]
    {
        let (a, b) = (with(&compute, 1000.0), with(&compute, 2000.0));
        let found = matched(&a, &b);
        assert!(!found.rows.is_empty());
        for row in found.rows {
            let differs = row.differs.iter().any(|d| d.starts_with("compute time: 1000 ns"));
            assert_eq!(differs, uses_set, "{compute}: {:?}", row.differs);
        }
    }
    let mut other = sample(2);
    other.spec_hash = "ffff".to_owned();
    let remarks = matched(&sample(1), &other).remarks;
    assert!(remarks.iter().any(|remark| remark.starts_with("definition: ")), "{remarks:?}");
}

/// Maximum length of a page.
const PAGE_MAX: usize = 1_500_000;

#[test]
fn the_page_of_a_full_study_stays_small() {
    for (media, runs_min) in [(&["work"][..], 9_000), (&["work", "tmpfs", "slow"], 12_000)] {
        let input = full::full(media);
        let runs = input.records.len();
        assert!(runs > runs_min, "{runs} runs");
        let page = html(&input);
        assert!(page.len() <= PAGE_MAX, "{} bytes for {runs} runs", page.len());
        assert!(page.contains("To keep the page below 1.5 MB, it does not contain"));
    }
}

/// More studies, questions and changes than any page has room for.
#[test]
fn an_overfull_input_drops_detail_and_says_so() {
    let study = |at: usize| {
        let mut input = sample(at as u64);
        input.records.retain(|r| r.key.block < 7);
        input.study.name = format!("study{at}");
        input.study.title = "a long title ".repeat(40);
        input.prefix = format!("study{at}-");
        input.since = Some(format!("Study {at} {}", "changed ".repeat(90)));
        for (i, experiment) in input.study.experiments.iter_mut().enumerate() {
            experiment.topic = Some(format!("question {at} {i} {}", "and so on ".repeat(30)));
        }
        input.report_path = Some("report.html".to_owned());
        input
    };
    let inputs: Vec<Input> = (0..14).map(study).collect();
    let page = html_all(&inputs);
    assert!(page.len() <= PAGE_MAX, "{} bytes", page.len());
    let version = env!("CARGO_PKG_VERSION");
    let written = format!("Written by ioloom {version} from sessions sample-0, sample-1, ");
    for words in [
        written.as_str(),
        "sample-13 (measured with ioloom 0.1.0 (0000000)). ",
        "To keep the page below 1.5 MB, it does not contain ",
        "To keep the folded page within twelve screens, the chapters of ",
        "which one screen has no room for",
    ] {
        assert!(page.contains(words), "{words}");
    }
    every_link_has_a_target(&page);
    let (first, _) = page.split_once("id=\"study0-answer\"").expect("a chapter");
    let (shown, folded) = first.split_once("<details>").expect("folded answers");
    assert_eq!(shown.matches("<dt>question").count() + shown.matches("<dt>Question").count(), 8);
    assert!(folded.contains("Question"));
    assert!(page.matches("class=\"fold\"").count() <= 120);
    for width in [40, 80, 160] {
        let text = terminal_all(&inputs, width, false);
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{lines} lines at {width} columns");
        assert!(text.contains("more answers and 14 more changes: see the report."), "{text}");
        assert!(text.ends_with("Report report.html\n"), "{text}");
    }
}

/// A page that has no room for answers alone says how large it is.
#[test]
fn a_page_that_cannot_be_small_says_so() {
    let mut input = sample(1);
    input.command = "x".repeat(2 * PAGE_MAX);
    let page = html(&input);
    assert!(page.contains("more than the limit of 1.5 MB, although it contains only answers"));
    assert!(page.contains("the table of claims"), "it says what is left out");
}

#[test]
fn the_same_input_gives_the_same_page() {
    assert_eq!(html(&sample(3)), html(&sample(3)));
    let mut shuffled = sample(3);
    shuffled.records.reverse();
    assert_eq!(without_data(&html(&sample(3))), without_data(&html(&shuffled)));
}

#[test]
fn the_page_has_no_external_address_and_escapes_names() {
    let (a, b) = (sample(1), sample(2));
    for page in [html(&a), compare_html(&a, &b)] {
        for part in ["http://", "https://", "//cdn", "@import", "url(\"", "<img", "<iframe"] {
            assert!(!page.contains(part), "{part}");
        }
        assert!(!page.contains("<script>alert"), "a name was not escaped");
        for value in attributes(&page, "href").into_iter().chain(attributes(&page, "src")) {
            assert!(value.starts_with('#') || value == "data:,", "{value}");
        }
    }
    assert!(
        html(&a).contains("&lt;script&gt;alert(&quot;x&quot;)"),
        "the name should be displayed"
    );
}

#[test]
fn elements_nest_and_identifiers_are_unique() {
    let page = without_data(&html(&sample(1)));
    let body = &page[page.find("<body").expect("a body")..];
    let body = &body[..body.rfind("<script>").expect("the viewer")];
    let mut open: Vec<&str> = Vec::new();
    for part in body.split('<').skip(1) {
        let Some((tag, _)) = part.split_once('>') else { panic!("an open tag: {part}") };
        let name = tag.split([' ', '/']).find(|n| !n.is_empty()).unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !tag.ends_with('/') && name != "wbr" {
            open.push(name);
        }
    }
    assert_eq!(open, ["body"], "the body should end after its scripts");
    let ids = attributes(&page, "id");
    let unique: BTreeSet<_> = ids.iter().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
    every_link_has_a_target(&page);
}

fn every_link_has_a_target(page: &str) {
    let ids: BTreeSet<&str> = attributes(page, "id").into_iter().collect();
    for link in attributes(page, "href") {
        assert!(link.strip_prefix('#').is_none_or(|id| ids.contains(id)), "{link} has no target");
    }
}

/// Transparent text has too little contrast: a control that is off has another colour instead.
#[test]
fn controls_that_are_off_keep_their_contrast() {
    let page = ioloom_report::timeline::timeline_page(&[]);
    let off = "[aria-pressed=false]{";
    let rules: Vec<&str> = page.split('}').filter(|rule| rule.contains(off)).collect();
    assert!(rules.len() >= 3, "{rules:?}");
    assert!(rules.iter().all(|rule| !rule.contains("opacity")), "{rules:?}");
}

/// Decodes the runs of a page, independently of the encoder.
fn runs_read_back(page: &str, input: &Input) {
    let (_, rest) = page.split_once("id=\"report-runs\">").expect("the runs");
    let text = rest.split("</script>").next().expect("the end of the runs");
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| format!("{:06b}", digits.find(c).expect("a digit")))
        .collect();
    let bytes: Vec<u8> = (0..bits.len() / 8)
        .map(|i| u8::from_str_radix(&bits[8 * i..8 * i + 8], 2).expect("bits"))
        .collect();
    let mut json = String::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes.as_slice());
    std::io::Read::read_to_string(&mut decoder, &mut json).expect("gzip");
    let runs: serde_json::Value = serde_json::from_str(&json).expect("the runs are JSON");
    for (i, record) in input.records.iter().enumerate() {
        assert_eq!(runs["position"][i], record.key.position);
        assert_eq!(runs["arm"][i], record.key.arm);
        let Some(m) = record.measured() else {
            assert!(runs["measured"]["elapsed_ns"][i].is_null());
            continue;
        };
        assert_eq!(runs["measured"]["elapsed_ns"][i], m.elapsed_ns);
        for (kind, stats) in &m.calls {
            let of = |field: &str| &runs["measured"][format!("calls.{}.{field}", kind.name())][i];
            for (field, value) in [("total_ns", stats.total_ns), ("p99_ns", stats.p99_ns)] {
                let embedded = of(field).as_f64().expect("a number");
                assert!((embedded / value as f64 - 1.0).abs() < 6e-3, "{embedded} for {value}");
            }
        }
    }
}

#[test]
fn every_number_refers_to_the_data() {
    let input = sample(1);
    let page = html(&input);
    let (_, rest) = page.split_once("id=\"report-data\">").expect("data");
    let text = rest.split("</script>").next().expect("the end of data");
    let value: serde_json::Value = serde_json::from_str(text).expect("the data is JSON");
    assert_eq!(value["schema"], data::DATA_SCHEMA);
    let value = value["studies"][0].clone();
    assert_eq!(value["runs"]["count"].as_u64(), Some(input.records.len() as u64));
    runs_read_back(&page, &input);
    let mut known: BTreeSet<String> = BTreeSet::new();
    for group in value["groups"].as_array().expect("groups") {
        for arm in group["arms"].as_array().expect("arms") {
            known.insert(arm["id"].as_str().expect("an id").to_owned());
            let values = arm["values"].as_array().map_or(0, Vec::len);
            assert_eq!(arm["n"].as_u64(), Some(values as u64));
        }
    }
    let rows = |key: &str, id: &str| -> Vec<String> {
        let rows = value[key].as_array().cloned().unwrap_or_default();
        rows.iter().filter_map(|r| Some(r[id].as_str()?.to_owned())).collect()
    };
    known.extend(rows("ratios", "id"));
    known.extend(rows("claims", "ref"));
    let named = attributes(&page, "data-ref");
    assert!(named.len() > 100, "{}", named.len());
    for name in named {
        assert!(known.contains(name), "{name} is not in the data");
    }
}

#[test]
fn unfinished_runs_are_listed() {
    let page = html(&sample(1));
    for words in [
        "refused (8 runs)",
        "open with O_DIRECT gave EINVAL",
        "28 threads are more than the limit of this sample",
        "not run in quick mode",
        "1 experiment without runs",
        "cachestat is missing here",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn terminal_lines_fit_and_colour_only_repeats() {
    let input = sample(1);
    for width in [40, 60, 80, 120] {
        for line in terminal(&input, width, false).lines() {
            // Plans are not broken, whatever the width.
            let long_word = line.split_whitespace().any(|w| w.chars().count() + 4 > width);
            assert!(line.chars().count() <= width || long_word, "{width}: {line}");
        }
    }
    let plain = terminal(&input, 80, false);
    assert!(!plain.contains('\u{1b}'));
    let colored = terminal(&input, 80, true);
    let mut stripped = String::new();
    for (i, part) in colored.split('\u{1b}').enumerate() {
        stripped.push_str(if i == 0 { part } else { part.split_once('m').map_or("", |(_, t)| t) });
    }
    assert_eq!(stripped, plain);
}

/// If the simplest plan wins, the answer says so and compares it with the next best.
#[test]
fn the_simplest_plan_can_win() {
    let mut input = sample(1);
    for r in &mut input.records {
        if let Outcome::Done { measured } = &mut r.outcome
            && r.key.arm == "threads-1"
            && r.key.experiment == "elapsed-small-files"
        {
            measured.elapsed_ns /= 10;
        }
    }
    let groups = groups(&input);
    let headlines = headlines(&groups);
    assert!(headlines[0].is_simplest);
    let [first, _] = answer(&headlines, &groups);
    let text = plain_text(&first);
    assert!(text.contains("the simplest plan, read/threads:n=1, is faster: it has "), "{text}");
    assert!(text.contains("the speed of uring/window:l=64,p=2;"), "{text}");
}

/// The answer is about the work directory; it names another medium only if nothing else was measured.
#[test]
fn the_answer_is_of_the_work_directory() {
    let mut input = sample(1);
    let mut elsewhere = input.records.clone();
    elsewhere.retain(|r| r.key.experiment == "elapsed-small-files");
    let moved = elsewhere.iter_mut().map(|r| {
        r.key.medium = "slow".to_owned();
        if let Outcome::Done { measured } = &mut r.outcome
            && r.key.arm == "mmap-8"
        {
            measured.elapsed_ns /= 10;
        }
        r.clone()
    });
    let moved: Vec<_> = moved.collect();
    let text = |input: &Input| {
        let groups = groups(input);
        let [first, _] = answer(&headlines(&groups), &groups);
        plain_text(&first)
    };
    let before = text(&input);
    input.records.splice(0..0, moved.clone());
    assert_eq!(text(&input), before);
    input.records = moved;
    let slow = text(&input);
    assert!(slow.contains("cold, on slow) mmap:plain/threads:n=8 is faster"), "{slow}");
}

/// Decided claims come before undecided ones; otherwise the order is kept.
/// A claim that repeats another is listed, but counts once.
#[test]
fn repeated_claims_are_counted_once() {
    let mut input: Input = sample(1);
    input.study.experiments.iter_mut().for_each(|e| e.topic = Some("files".to_owned()));
    let mut plain = input.clone();
    plain.study.experiments.iter_mut().for_each(|e| e.topic = None);
    let counted = |input: &Input| {
        let text = terminal(input, 160, false);
        text.lines().find(|line| line.contains("confirmed")).expect("a score").to_owned()
    };
    let before = [counted(&input), counted(&plain)];
    for input in [&mut input, &mut plain] {
        let mut again = input.verdicts[0].clone();
        again.same_as = Some(std::mem::replace(&mut again.id, "000-X".to_owned()));
        input.verdicts.push(again);
    }
    assert_eq!([counted(&input), counted(&plain)], before);
    assert!(html(&input).contains("Repeats 000-P27 and is counted with it."));
}

#[test]
fn decided_claims_come_first() {
    let mut input = sample(1);
    input.verdicts.reverse();
    let page = html(&input);
    let at = |id: &str| page.find(&format!("\"cid\">{id}")).expect(id);
    let order = ["000-P33", "000-P22", "000-P27", "000-P09", "000-P47"].map(at);
    assert!(order.is_sorted(), "{order:?}");
}

/// The second series of the same plan shows the noise and is not a candidate.
#[test]
fn a_plan_against_itself_is_noise() {
    let mut input = sample(1);
    for r in &mut input.records {
        if let Outcome::Done { measured } = &mut r.outcome
            && r.key.arm == "default (again)"
        {
            measured.elapsed_ns = 1;
        }
    }
    let groups = groups(&input);
    assert_eq!(groups[0].best().map(|a| a.name), Some("uring-window"));
    assert_eq!(groups[0].noise().map(|(arm, _)| arm.name), Some("default"));
    assert!(html(&input).contains("Noise: default compared with itself: "));
}

/// A session in which nothing finished still has a page, which says so.
#[test]
fn empty_and_failed_sessions_give_pages() {
    let mut empty = sample(1);
    empty.records.clear();
    empty.verdicts.clear();
    empty.doubts.clear();
    let mut failed = sample(1);
    for r in &mut failed.records {
        r.outcome = Outcome::Failed { reason: HOSTILE.to_owned() };
    }
    for input in [&empty, &failed] {
        let page = html(input);
        assert!(page.contains("this report has no answer yet"));
        assert!(!page.contains("NaN") && !page.contains("inf "), "non-finite number");
        assert!(terminal(input, 80, false).contains("no answer yet"));
        assert!(picture(input, None).is_none());
    }
    assert!(compare(&empty, &sample(1)).contains("0 arms"));
}

/// With one run per arm, medians have no intervals and no ratio is clear.
#[test]
fn single_runs_have_no_intervals() {
    let mut one: Input = sample(1);
    one.records.retain(|r| r.key.block == 0);
    let page = html(&one);
    assert!(page.contains("no interval"));
    assert!(!page.contains("ratio clear"));
    one.study.experiments.iter_mut().for_each(|e| e.topic = Some("files".to_owned()));
    let text = terminal(&one, 200, false);
    assert!(text.contains("Only one block ran, which decides nothing; "), "{text}");
    assert!(text.contains("◇ few samples"), "{text}");
    // The arm that the others are compared with can be the best one.
    let fastest = |text: &str| {
        let (_, rest) = text.split_once("fastest in it: ").expect("a line of advice");
        rest.split_once('.').expect("the end of the line").0.to_owned()
    };
    let before = fastest(&text);
    let usual = groups(&one)[0].comparable()[0].name.to_owned();
    for r in one.records.iter_mut().filter(|r| r.key.arm == usual) {
        if let Outcome::Done { measured } = &mut r.outcome {
            measured.elapsed_ns = 1;
        }
    }
    let text = terminal(&one, 200, false);
    assert_ne!(fastest(&text), before, "{text}");
}

/// Returns the line of the first page for a default and another plan with these times, in
/// milliseconds, in blocks of the same number. `None`: the arm did not run.
fn advised(usual: &[Option<f64>], other: &[Option<f64>], is_default: bool) -> String {
    let mut input: Input = sample(1);
    let experiment = &mut input.study.experiments[0];
    let (name, arms) = (experiment.name.clone(), ["default", "threads-2"]);
    experiment.topic = Some("files".to_owned());
    experiment.usual = is_default.then(|| arms[0].to_owned());
    let models = arms.map(|arm| {
        let is_it = |r: &&RunRecord| r.key.experiment == name && r.key.arm == arm;
        input.records.iter().find(is_it).expect(arm).clone()
    });
    input.records.clear();
    for (model, times) in models.iter().zip([usual, other]) {
        for (block, time) in (0..).zip(times) {
            let Some(time_ms) = time else { continue };
            let mut record = model.clone();
            record.key.block = block;
            record.doubts.clear();
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.elapsed_ns = (time_ms * 1e6) as u64;
            }
            input.records.push(record);
        }
    }
    let groups = groups(&input);
    let lines = advice(&input, &groups);
    assert_eq!(lines.len(), 1);
    plain_text(&lines[0].pieces())
}

/// Each decision has a sentence of its own, and the opposite times have the opposite one.
#[test]
fn a_line_of_advice_says_what_the_times_say() {
    let times = |ms: f64, step: u32, per: f64| -> Vec<Option<f64>> {
        (0..12u32).map(|i| Some(ms * (1.0 + f64::from(i * step % 12) / per))).collect()
    };
    let [slow, fast, almost] = [130.0, 100.0, 101.0].map(|ms| times(ms, 4, 2_000.0));
    let noise = [times(100.0, 5, 6.0), times(100.0, 7, 6.0)];
    let some = |ms: f64, n: usize| vec![Some(ms); n];
    let apart = (vec![Some(9.0), None, Some(9.0), None], vec![None, Some(8.0), None, Some(8.0)]);
    let cases = [
        ("the other is faster", advised(&slow, &fast, true)),
        ("the default is faster", advised(&fast, &slow, true)),
        ("nearly equal", advised(&almost, &fast, true)),
        ("noise", advised(&noise[0], &noise[1], true)),
        ("no default, the other is faster", advised(&slow, &fast, false)),
        ("no default, the first is faster", advised(&fast, &slow, false)),
        ("no default, noise", advised(&noise[0], &noise[1], false)),
        ("three blocks", advised(&some(130.0, 3), &some(100.0, 3), true)),
        ("three blocks, no default", advised(&some(130.0, 3), &some(100.0, 3), false)),
        ("one block, the other is faster", advised(&some(130.0, 1), &some(100.0, 1), true)),
        ("one block, the default is faster", advised(&some(100.0, 1), &some(130.0, 1), true)),
        ("no block in common", advised(&apart.0, &apart.1, true)),
    ];
    let text = cases.map(|(what, line)| format!("{what}: {line}")).join("\n");
    insta::assert_snapshot!("advice", text);
}

/// Fewer than six blocks have no interval, and no plan is called faster; six or more have intervals. The
/// best of several plans needs eight: two blocks to choose, six to compare.
#[test]
fn few_blocks_have_minimum_and_maximum() {
    let with_blocks = |seed, blocks: u32| {
        let mut input: Input = sample(seed);
        input.records.retain(|r| r.key.block < blocks);
        input
    };
    let few = with_blocks(1, 3);
    let page = html(&few);
    assert!(!page.contains("ratio clear") && page.contains("minimum to maximum"));
    assert!(!page.contains("95 % interval ["), "a mark labels its ends as an interval");
    let groups = groups(&few);
    let sentence = plain_text(&answer(&headlines(&groups), &groups)[0]);
    assert!(sentence.contains("too few blocks ran to determine the fastest plan"), "{sentence}");
    assert!(
        sentence.contains(" to ") && sentence.contains("minimum to maximum of 3 blocks"),
        "{sentence}"
    );
    let text = terminal(&few, 80, false);
    assert!(text.contains("gain (min to max)") && !text.contains("gain [95 %]"), "{text}");
    for table in tables(&few) {
        assert!(table.rows.iter().flatten().all(|cell| !cell.contains('[')), "{}", table.title);
    }
    let compared = compare(&few, &with_blocks(2, 3));
    assert!(compared.contains("Parentheses: minimum to maximum"), "{compared}");
    assert!(
        !compared.contains("one in twenty"),
        "there is no interval that could exclude 1 by chance"
    );
    assert!(compared.contains(" 0 better, 0 worse, 0 different, 0 the same"), "{compared}");
    assert!(compare_html(&few, &with_blocks(2, 3)).contains("Parentheses: minimum to maximum"));
    let value = data::document(vec![data::study(&few, &groups, &headlines(&groups))]);
    let arms = value["studies"][0]["groups"][0]["arms"].as_array().expect("arms");
    assert_eq!(arms[0]["confidence"], 0.75);
    for text in [html(&with_blocks(1, 8)), compare(&with_blocks(1, 8), &with_blocks(2, 8))] {
        assert!(
            !text.contains("Parentheses: minimum to maximum"),
            "eight blocks should give an interval"
        );
    }
}

/// The advice about too few blocks is never what was already done.
#[test]
fn advice_about_few_samples_depends_on_the_mode() {
    let mut input: Input = sample(1);
    let quick = terminal(&input, 80, false);
    assert!(quick.contains("few samples: repeat with --full, or with --blocks 12"), "{quick}");
    input.mode = Mode::Full;
    let full = [terminal(&input, 80, false), html(&input)];
    for text in full {
        assert!(text.contains("repeat with --blocks 12"), "{text}");
        assert!(!text.contains("repeat with --full"));
    }
}
