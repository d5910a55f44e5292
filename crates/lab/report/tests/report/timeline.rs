//! Timelines of synthetic traces: the drawn areas equal the shares, and nothing is hidden.

use crate::synthetic::{account_only, mapped, million, reader_and_computers, sync_threads};
use ioloom_model::{State, StateTime};
use ioloom_report::timeline::{
    SvgOptions, Theme, letter, section, timeline_page, timeline_svg, timeline_text,
};
use ioloom_trace::shares::Lanes;
use ioloom_trace::{Device, Mark, ROLE_TOOL, Thread, Trace};
use std::collections::BTreeSet;

fn light() -> SvgOptions {
    SvgOptions { theme: Theme::Light, ..SvgOptions::default() }
}

/// Returns the area of all rectangles of the paths of a state in square pixels.
fn area(svg: &str, state: State) -> f64 {
    let class = format!("class=\"tf-{}\" d=\"", state.name());
    let paths = svg.split(class.as_str()).skip(1).filter_map(|p| p.split('"').next());
    let rectangles = paths.flat_map(|p| p.split('z')).filter_map(|r| {
        let (width, rest) = r.split_once('h')?.1.split_once('v')?;
        let height = rest.split_once('h')?.0;
        Some(width.parse::<f64>().ok()? * height.parse::<f64>().ok()?)
    });
    rectangles.sum()
}

#[test]
fn the_drawn_areas_are_the_shares() {
    for trace in [sync_threads(), reader_and_computers(), account_only()] {
        let range = (3_000_000, 11_000_000);
        for range_ns in [None, Some(range)] {
            let svg = timeline_svg(&trace, &SvgOptions { range_ns, ..light() });
            let (from, to) = range_ns.unwrap_or((0, trace.elapsed_ns));
            let shares = Lanes::new(&trace).all(from, to);
            let drawn: f64 = State::ALL.into_iter().map(|s| area(&svg, s)).sum();
            assert!(drawn > 1000.0, "{drawn}");
            for state in State::ALL {
                let wanted = shares.pct(state).unwrap_or(0.0);
                let found = area(&svg, state) / drawn * 100.0;
                assert!((wanted - found).abs() < 0.5, "{} {wanted} {found}", state.name());
            }
        }
    }
}

#[test]
fn sums_have_their_own_pattern_in_addition_to_that_of_the_state() {
    let overlay = |id: &str| format!("<path fill=\"url(#tlp-{id})\"");
    let svg = timeline_svg(&account_only(), &light());
    assert!(svg.contains(&overlay("summed")));
    for state in State::ALL.into_iter().filter(|s| *s != State::OnCpu) {
        let is_drawn = area(&svg, state) > 0.0;
        assert_eq!(svg.contains(&overlay(state.name())), is_drawn, "{}", state.name());
    }
    let mut trace = sync_threads();
    assert!(!timeline_svg(&trace, &light()).contains(&overlay("summed")));
    // One segment does not mark the other columns of its lane.
    trace.threads[0].segments[0].placed = false;
    let svg = timeline_svg(&trace, &light());
    assert_eq!(svg.matches(&overlay("summed")).count(), 1);
    let path = svg.split(&overlay("summed")).nth(1).and_then(|rest| rest.split('"').nth(1));
    assert!(path.is_some_and(|path| path.matches('z').count() < 20), "{path:?}");
}

#[test]
fn the_busiest_devices_are_drawn_and_marks_at_one_place_are_one_line() {
    let mut trace = sync_threads();
    let mut device = trace.devices[0].clone();
    device.requests.truncate(1);
    device.requests[0].issue_ns = 0;
    trace.devices = (0..18_u64)
        .map(|i| {
            let mut device = Device { name: format!("disk{i}"), ..device.clone() };
            device.requests[0].complete_ns = Some(1_000_000 + i);
            device
        })
        .collect();
    let mark = |i: u64| Mark { at_ns: i * 100, name: "m".to_owned() };
    trace.marks = (0..50_000).map(mark).collect();
    let svg = timeline_svg(&trace, &light());
    assert!(svg.contains("and 2 more devices, not drawn"));
    let drawn = |i: u32| svg.contains(&format!(">disk{i} "));
    assert!(!drawn(0) && !drawn(1) && (2..18).all(drawn));
    let lines = svg.matches("class=\"mark\"").count();
    assert!(lines > 0 && lines <= 1100, "{lines}");
}

#[test]
fn plain_colours_need_no_variables() {
    for theme in [Theme::Light, Theme::Dark] {
        let svg = timeline_svg(&sync_threads(), &SvgOptions { theme, ..SvgOptions::default() });
        assert!(!svg.contains("var("), "rasterizers do not support variables");
    }
    assert!(timeline_svg(&sync_threads(), &SvgOptions::default()).contains("var(--tl-io)"));
    let [a, b] = [Theme::Light, Theme::Dark]
        .map(|theme| timeline_svg(&sync_threads(), &SvgOptions { theme, ..SvgOptions::default() }));
    assert_ne!(a, b);
}

#[test]
fn losses_and_unmeasured_states_are_always_shown() {
    let trace = account_only();
    let why = "not measured: needs switch events: sysctl kernel.perf_event_paranoid=2";
    let lost = "spans lost 34 of 285 records (11.9 %)";
    let text = timeline_text(&trace, 4000);
    let page = timeline_page(std::slice::from_ref(&trace));
    let svg = timeline_svg(&trace, &light());
    for (name, out) in [("text", &text), ("page", &page), ("svg", &svg)] {
        assert!(out.contains(why), "{name} hides a state that was not measured");
        assert!(out.contains(lost), "{name} hides a loss");
    }
    assert!(!timeline_text(&sync_threads(), 4000).contains("not measured"));
}

#[test]
fn text_lanes_fit_and_show_the_largest_share() {
    let trace = sync_threads();
    for width in [40, 80, 133] {
        let text = timeline_text(&trace, width);
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        for thread in &trace.threads {
            let start = format!("{} ", thread.name);
            let lane = text.lines().find(|l| l.starts_with(&start)).expect(&thread.name);
            let letters: BTreeSet<char> = lane[start.len()..].chars().collect();
            let known: BTreeSet<char> = State::ALL.into_iter().map(letter).chain([' ']).collect();
            assert!(letters.is_subset(&known), "{lane}");
            assert!(letters.contains(&'C') && letters.contains(&'I'), "{lane}");
        }
    }
}

#[test]
fn the_text_has_no_control_characters_of_a_trace() {
    let mut hostile = sync_threads();
    let odd = "a\u{1b}]0;x\u{7}\nb\u{202e}";
    hostile.title = odd.to_owned();
    hostile.evidence.sources[0].name = odd.to_owned();
    hostile.evidence.sources[0].lost = 1;
    for thread in &mut hostile.threads {
        thread.name = odd.to_owned();
        thread.role = odd.to_owned();
    }
    let text = timeline_text(&hostile, 80);
    let control = text.chars().find(|c| c.is_control() && *c != '\n' || *c == '\u{202e}');
    assert_eq!(control, None, "{text}");
    assert!(text.contains("\\u{1b}]0;x"), "{text}");
}

/// Returns the trace of a build, each process of which is a role with one thread.
fn build(processes: u32) -> Trace {
    let mut trace = sync_threads();
    let thread = trace.threads[0].clone();
    let of_process =
        |pid: u32| Thread { tid: pid, role: format!("process {pid}"), ..thread.clone() };
    trace.threads = (0..processes).map(of_process).collect();
    trace
}

#[test]
fn more_roles_than_are_drawn_are_counted() {
    let text = timeline_text(&build(1100), 80);
    assert!(text.contains("process 63 (1)") && !text.contains("process 64 (1)"), "{text}");
    assert!(text.contains("and 1 036 more roles with 1 036 threads"), "{text}");
    let text = timeline_text(&build(65), 80);
    assert!(text.contains("and 1 more role with 1 thread\n"), "{text}");
}

#[test]
fn drawings_and_tables_do_not_grow_with_the_roles() {
    let height = |trace: &Trace, threads: usize| {
        let svg = timeline_svg(trace, &SvgOptions { threads, ..light() });
        svg.split(" height=\"").nth(1).and_then(|rest| rest.split('"').next()).map(str::to_owned)
    };
    for threads in [24, 1000] {
        assert_eq!(height(&build(500), threads), height(&build(900), threads));
    }
    let svg = timeline_svg(&build(500), &light());
    assert!(svg.contains("and 476 more roles with 476 threads, not drawn"), "{svg}");
    let page = timeline_page(&[build(500)]);
    assert_eq!(page.matches(" (1)</th>").count(), 64);
    assert!(page.contains("and 436 more roles with 436 threads, not in this table."));
}

#[test]
fn names_of_marks_fit() {
    let mut trace = sync_threads();
    trace.marks[0].name = "m".repeat(300);
    for width in [320.0, 1100.0] {
        let svg = timeline_svg(&trace, &SvgOptions { width, ..light() });
        assert!(svg.contains("mm…</text>") && !svg.contains(&trace.marks[0].name), "{width}");
    }
}

#[test]
fn the_page_is_one_file_and_escapes_names() {
    let mut hostile = reader_and_computers();
    hostile.title = "</script><img src=x onerror=alert(1)>".to_owned();
    hostile.threads[0].name = "\"><b>".to_owned();
    hostile.evidence.notes.push("<i>".to_owned());
    let page = timeline_page(&[sync_threads(), hostile.clone()]);
    for wrong in ["<img", "\"><b>", "<i>", "http://", "https://"] {
        // The SVG namespace is not loaded.
        let found = page.replace("http://www.w3.org/2000/svg", "").contains(wrong);
        assert!(!found, "{wrong} is in the page");
    }
    assert_eq!(page.matches("class=\"tl-trace\"").count(), 2);
    assert!(!timeline_svg(&hostile, &light()).contains("<img"));
    let ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|p| p.split('"').next()).collect();
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len(), "{ids:?}");
}

#[test]
fn empty_and_tiny_traces_can_be_drawn() {
    let nothing = Trace::default();
    let one_ns = Trace { elapsed_ns: 1, ..sync_threads() };
    for trace in [nothing, one_ns] {
        assert!(timeline_svg(&trace, &light()).contains("</svg>"));
        assert!(timeline_page(std::slice::from_ref(&trace)).contains("tl-root"));
        assert!(!timeline_text(&trace, 80).is_empty());
    }
    assert!(timeline_page(&[]).contains("There is no trace."));
    assert!(section(&[sync_threads()]).as_str().contains("data-wheel=\"focus\""));
}

#[test]
fn threads_of_the_tool_are_not_counted_and_sums_do_not_overflow() {
    let time = |ns| StateTime { ns: Some(ns), ..StateTime::default() };
    let states = [(State::OnCpu, time(u64::MAX)), (State::Io, time(1))];
    let thread = |role: &str| Thread {
        role: role.to_owned(),
        end_ns: 1,
        states: states.clone().into(),
        ..Thread::default()
    };
    let threads = vec![thread("worker"), thread(ROLE_TOOL)];
    let trace = Trace { elapsed_ns: 1, threads, ..Trace::default() };
    let text = timeline_text(&trace, 80);
    assert!(text.starts_with("1 thread, ") || text.contains("\n1 thread, "), "{text}");
    assert!(timeline_page(std::slice::from_ref(&trace)).contains("1 thread, "));
}

#[test]
fn more_threads_than_are_drawn_are_counted() {
    let svg = timeline_svg(&reader_and_computers(), &SvgOptions { threads: 2, ..light() });
    assert!(svg.contains("and 2 more threads, not drawn"), "the rest is counted");
    let svg = timeline_svg(&reader_and_computers(), &SvgOptions { threads: 3, ..light() });
    assert!(svg.contains("and 1 more thread, not drawn"), "one is singular");
}

#[test]
fn findings_are_above_the_lanes_with_their_evidence() {
    let page = timeline_page(&[mapped()]);
    let found = page.find("data-finding=\"page-fault-stalls\"").expect("a finding");
    assert!(found < page.find("class=\"tl-still\"").expect("the lanes"), "findings come first");
    let item = page[found..].split("</li>").next().unwrap_or_default();
    assert!(item.contains("Try: ") && item.contains("time in page faults"), "{item}");
    assert!(timeline_text(&mapped(), 80).contains("* Threads wait for pages"));
}

/// The size of a drawing does not depend on the trace: columns are merged.
#[test]
fn a_million_segments_fit_a_static_drawing() {
    let trace = million();
    let segments: usize = trace.threads.iter().map(|t| t.segments.len()).sum();
    assert!(segments >= 1_000_000, "{segments}");
    let svg = timeline_svg(&trace, &light());
    assert!(svg.len() < 4_000_000, "{} bytes", svg.len());
}

#[test]
fn the_same_trace_gives_the_same_bytes() {
    assert_eq!(timeline_page(&[sync_threads()]), timeline_page(&[sync_threads()]));
    assert_eq!(timeline_text(&sync_threads(), 80), timeline_text(&sync_threads(), 80));
}
