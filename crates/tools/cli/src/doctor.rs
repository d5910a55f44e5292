//! `ioloom machine --doctor`: lists available evidence sources and how to enable the others.

use crate::exit::{Ended, Exit, Failure};
use crate::out;
use ioloom_observe::collect::{Probe, probe};
use serde::Serialize;

/// Version of the `--json` document.
const SCHEMA: u32 = 1;

/// The document of `machine --doctor --json`.
#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    command: &'a str,
    /// The highest working level.
    level: u8,
    sources: &'a [Probe],
}

pub(crate) fn run(json: bool) -> Ended {
    let found = probe();
    let level = level(&found);
    if json {
        let command = "machine --doctor";
        out::print_json(&Document { schema: SCHEMA, command, level, sources: &found })?;
    } else {
        out::print(&text(&found, out::columns()))?;
    }
    Ok::<_, Failure>(Exit::Ok)
}

/// The sources required by a level.
const NEEDED: [&str; 4] =
    ["perf.switch", "perf.major-fault", "tracefs.sched_waking", "tracefs.sched_switch"];

fn level(found: &[Probe]) -> u8 {
    let works = |level| {
        found
            .iter()
            .filter(|p| p.level == level && NEEDED.contains(&p.source.as_str()))
            .all(|p| p.ok)
    };
    // Level 2 does not need level 1: scheduler events include the switches.
    if works(2) { 2 } else { u8::from(works(1)) }
}

fn text(found: &[Probe], width: usize) -> String {
    let level = level(found);
    let name = ["account", "switch", "kernel"][usize::from(level)];
    let mut all = out::wrap(
        &format!("Evidence of where threads spend time: level {level} ({name}) works here."),
        width,
        0,
    );
    all.push_str("\nlevel source                    works gives\n");
    for p in found {
        let works = if p.ok { "yes" } else { "no" };
        let head = format!("{:<5} {:<25} {works:<5}", p.level, p.source);
        all.push_str(&out::labelled(&head, 37, &p.gives, width));
    }
    let mut reasons: Vec<(&str, &str)> = Vec::new();
    for p in found {
        let pair = p.why.as_deref().zip(p.remedy.as_deref());
        reasons.extend(pair.filter(|pair| !reasons.contains(pair)));
    }
    for (why, remedy) in reasons {
        let of: Vec<&str> = found
            .iter()
            .filter(|p| p.why.as_deref() == Some(why))
            .map(|p| p.source.as_str())
            .collect();
        all.push('\n');
        all.push_str(&out::labelled("missing:", 8, &of.join(", "), width));
        all.push_str(&out::labelled("why:", 8, &crate::stderr::without_errno(why), width));
        all.push_str(&out::labelled("remedy:", 8, remedy, width));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(source: &str, level: u8, why: Option<&str>) -> Probe {
        Probe {
            source: source.to_owned(),
            level,
            ok: why.is_none(),
            gives: "a description that is too long for one line of a table column".to_owned(),
            why: why.map(str::to_owned),
            remedy: why.map(|_| "sudo sysctl kernel.perf_event_paranoid=2".to_owned()),
        }
    }

    #[test]
    fn a_missing_source_is_listed_once_with_its_remedy() {
        let why = Some("Permission denied (os error 13)");
        let found = [
            one("spans", 0, None),
            one("perf.switch", 1, why),
            one("perf.major-fault", 1, why),
            one("tracefs.sched_waking", 2, Some("not mounted")),
            one("tracefs.block_rq_complete", 2, None),
        ];
        assert_eq!(level(&found), 0);
        let text = text(&found, 80);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert_eq!(text.matches("why:").count(), 2, "{text}");
        assert!(text.contains("missing: perf.switch, perf.major-fault\n"), "{text}");
        assert!(!text.contains("os error"), "{text}");
    }

    #[test]
    fn the_highest_working_level_is_shown() {
        let works = |one_ok: bool, two_ok: bool| {
            let why = |ok: bool| (!ok).then_some("no");
            [
                one("perf.switch", 1, why(one_ok)),
                one("tracefs.sched_waking", 2, why(two_ok)),
                one("tracefs.contention", 2, Some("this event alone is missing")),
            ]
        };
        assert_eq!(level(&works(true, true)), 2);
        assert_eq!(level(&works(true, false)), 1);
        assert_eq!(level(&works(false, false)), 0);
        assert_eq!(level(&works(false, true)), 2);
    }
}
