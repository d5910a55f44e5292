//! Markdown and JSON contain the changes, the doubts and what was not measured, as the page does.

use crate::records::sample;
use ioloom_model::Outcome;
use ioloom_report::{html, json, markdown, merge, terminal};

#[test]
fn markdown_and_data_have_what_the_page_has() {
    let mut input = sample(1);
    input.since = Some("Since yesterday: 1 of 2 arms worse.".to_owned());
    let text = markdown(std::slice::from_ref(&input));
    let data = json(std::slice::from_ref(&input));
    assert!(text.contains("\nSince yesterday: 1 of 2 arms worse.\n"), "{text}");
    assert_eq!(data["studies"][0]["since"], "Since yesterday: 1 of 2 arms worse.");
    for record in &mut input.records {
        if record.key.arm == "threads-2" && record.key.block == 1 {
            record.outcome = Outcome::TimedOut { seconds: 5.0 };
        }
    }
    let text = markdown(std::slice::from_ref(&input));
    for line in [
        "| direct-window | not measured, refused: this file system has no direct I/O: open with O\\_DIRECT gave EINVAL",
        "| threads-2 | not measured, timed out: stopped at its deadline of 5.00 s | – | 1 |",
        "\nDoubts:\n\n- ◇ ",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let page = html(&input);
    for doubt in input.doubts.iter().map(|row| row.doubt) {
        assert!(text.contains(&format!("- ◇ {doubt} (")) && page.contains(&format!("◇ {doubt}")));
    }
    let details: Vec<&str> = input.doubts.iter().map(|row| row.detail.as_str()).collect();
    assert!(details.iter().any(|detail| !detail.is_empty() && text.contains(detail)), "{text}");
    // A comparison in which nothing finished has its reasons.
    for record in &mut input.records {
        record.outcome = Outcome::Refused { reason: "needs root".to_owned() };
    }
    let text = markdown(std::slice::from_ref(&input));
    assert!(text.contains("| threads-1 | not measured, refused: needs root | – | 8 |"), "{text}");
}

/// `ioloom claims` corrects for all sessions, so its verdicts can differ from those of a report.
#[test]
fn counts_of_verdicts_name_their_runs() {
    let mut input = sample(1);
    let words = "one session alone; ioloom claims counts all sessions.";
    for text in [html(&input), terminal(&input, 160, false)] {
        assert!(text.contains(words), "{text}");
    }
    input.study.experiments.iter_mut().for_each(|e| e.topic = Some("files".to_owned()));
    let of_md = markdown(std::slice::from_ref(&input));
    for text in [html(&input), terminal(&input, 160, false), of_md] {
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{text}");
    }
    input.verdicts.clear();
    assert!(!html(&input).contains(words));
}

#[test]
fn every_format_says_that_a_session_has_not_ended() {
    let mut input = sample(1);
    let ended = json(std::slice::from_ref(&input));
    assert_eq!(ended["studies"][0]["ended"], true);
    assert!(!html(&input).contains("not finished"));
    input.continued_by = Some("ioloom study --resume and the same options");
    input.runs_planned = input.records.len() + 20;
    let runs = format!("{} of {} runs", input.records.len(), input.runs_planned);
    let sentence = format!("is not finished: {runs}; continue with ioloom study --resume and");
    for topic in [None, Some("files".to_owned())] {
        input.study.experiments.iter_mut().for_each(|e| e.topic.clone_from(&topic));
        let of_md = markdown(std::slice::from_ref(&input));
        for text in [html(&input), terminal(&input, 160, false), of_md] {
            let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(flat.contains(&sentence), "{text}");
        }
    }
    let data = json(std::slice::from_ref(&input));
    let study = &data["studies"][0];
    assert_eq!(study["ended"], false);
    assert_eq!(study["runs_planned"], input.runs_planned);
    let merged = merge(&[("here".to_owned(), data.clone())]).expect("a report");
    assert!(merged.contains(&format!("not finished ({runs})")), "{merged}");
}

/// With few blocks, the same blocks choose the best of several arms and compare it.
#[test]
fn an_unknown_confidence_is_null() {
    let mut input = sample(1);
    input.records.retain(|record| record.key.block < 3);
    let data = json(std::slice::from_ref(&input));
    let ratios = data["studies"][0]["ratios"].as_array().expect("ratios");
    assert!(ratios.iter().any(|r| r["confidence"].is_null() && r["low"].is_number()), "{ratios:?}");
    assert!(ratios.iter().all(|r| r["confidence"] != 0.0), "{ratios:?}");
}
