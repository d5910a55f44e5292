//! Chapters of studies with synthetic runs: long names, timeouts, wrong bytes, and the texts of chapters.

use crate::records::sample;
use ioloom_model::record::{RECLAIM_CURVES, RunKey};
use ioloom_model::{Condition, Doubt, Measured, Outcome, RunRecord, StudySpec};
use ioloom_report::group::Unusable;
use ioloom_report::{Input, html};
use std::collections::BTreeMap;

/// Returns a study with one experiment on one file set.
fn study(name: &str, experiment: &str, arms: &str) -> StudySpec {
    let text = format!(
        "name = \"{name}\"\ntitle = \"t\"\nquestion = \"q\"\nseed = 1\n\
         [sets.S]\nabout = \"s\"\nfull = {{ count = 9, size = \"1KiB\" }}\n\
         [[experiment]]\nname = \"{experiment}\"\nquestion = \"which?\"\nsets = [\"S\"]\n\
         {arms}\n"
    );
    toml::from_str(&text).expect("a study")
}

fn record(study: &StudySpec, arm: &str, plan: &str, block: u32, outcome: Outcome) -> RunRecord {
    let invented = sample(1).records.remove(0);
    let key = RunKey {
        study: study.name.clone(),
        experiment: study.experiments[0].name.clone(),
        arm: arm.to_owned(),
        set: "S".to_owned(),
        condition: study.experiments[0].conditions[0],
        compute: "none".parse().expect("work"),
        block,
        position: block,
        factors: BTreeMap::new(),
        ..invented.key.clone()
    };
    let plan = plan.parse().expect("a plan");
    RunRecord { key, plan, outcome, doubts: Vec::new(), proof: None, ..invented }
}

fn done(ms: u64, extra: &[(&str, f64)]) -> Outcome {
    let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let measured = Measured {
        elapsed_ns: ms * 1_000_000,
        files: 9,
        bytes: 9216,
        extra,
        ..Measured::default()
    };
    Outcome::Done { measured: Box::new(measured) }
}

fn input(study: StudySpec, records: Vec<RunRecord>) -> Input {
    Input { study, records, verdicts: Vec::new(), doubts: Vec::new(), ..sample(1) }
}

/// Returns the heads of tables on a page: class and text without markup.
fn heads(page: &str) -> Vec<(String, String)> {
    let all = page.split("<th scope=\"col\"").skip(1);
    all.filter_map(|rest| {
        let (class, rest) = rest.split_once('>')?;
        let (text, _) = rest.split_once("</th>")?;
        Some((class.to_owned(), text.replace("<wbr>", "")))
    })
    .collect()
}

#[test]
fn long_directories_have_short_unique_heads() {
    let ladder = "conditions = [\"warm\"]\naxis = \"threads\"\narm = [{ name = \"t-{threads}\", \
                  plan = \"walk:statx/threads={threads}\", with = { threads = [1, 2] } }]";
    let study = study("walk", "threads-warm", ladder);
    assert_eq!(study.experiments[0].conditions, [Condition::Warm]);
    let long =
        "/mnt/a/directory/of/which/the/name/is/much/longer/than/any/head/of/a/table/could/be";
    let media = [format!("{long}/first"), format!("{long}/second")];
    let mut records = Vec::new();
    for medium in &media {
        for threads in [1.0, 2.0] {
            for block in 0..3 {
                let arm = format!("t-{threads}");
                let plan = format!("walk:statx/threads={threads}");
                let took = done((100.0 / threads) as u64 + u64::from(block), &[]);
                let mut run = record(&study, &arm, &plan, block, took);
                run.key.medium.clone_from(medium);
                run.key.factors.insert("threads".to_owned(), threads);
                records.push(run);
            }
        }
    }
    let page = html(&input(study, records));
    let heads = heads(&page);
    for name in ["here, warm, …/first", "here, warm, …/second"] {
        assert!(heads.iter().any(|(_, text)| text == name), "{name}: {heads:?}");
    }
    for (class, text) in &heads {
        assert!(text.chars().count() <= 28 || class.contains("long"), "{class}: {text}");
    }
    assert!(page.contains("a/<wbr>directory/<wbr>of"), "a path in a cell should be breakable");
}

#[test]
fn a_timed_out_run_is_listed_and_has_no_time() {
    let arms = "conditions = [\"as-is\"]\nmetric = \"settled_ns\"\narm = [\
                { name = \"buffered\", plan = \"copy:buffered/settle=alone\" }, \
                { name = \"uncached\", plan = \"copy:uncached/settle=alone\" }]";
    let study = study("copy", "left-alone", arms);
    let stopped = |block| {
        let outcome = Outcome::TimedOut { seconds: 26.625_324_25 };
        record(&study, "buffered", "copy:buffered/settle=alone", block, outcome)
    };
    let settled = |block| {
        let took = done(210, &[("settled_ns", 210e6)]);
        record(&study, "uncached", "copy:uncached/settle=alone", block, took)
    };
    let all = vec![stopped(0), settled(0), stopped(1), settled(1)];
    let mut refused = input(study.clone(), all.clone());
    assert!(html(&refused).contains("These runs exceeded their deadline."));
    refused.records[0].outcome = Outcome::Refused { reason: "needs root".to_owned() };
    assert!(!html(&refused).contains("exceeded their deadline"), "a refused run has no deadline");
    let page = html(&input(study.clone(), all));
    assert!(page.contains("were fully written after: uncached 210 ms."), "the arm that ran");
    let why = "buffered, 2 runs timed out (stopped at its deadline of 26.6 s)";
    assert!(page.contains(why), "the arm that was stopped");
    assert!(!page.contains("26.62532425"), "the deadline should be rounded");
    // Two of three runs were stopped, so the finished one does not estimate the median.
    let ended = record(&study, "buffered", "copy:buffered/settle=alone", 2, {
        done(20_000, &[("settled_ns", 20e9)])
    });
    let mostly = input(study.clone(), vec![stopped(0), stopped(1), ended.clone()]);
    let groups = ioloom_report::group::groups(&mostly);
    assert!(groups[0].arms[0].estimate.is_none() && groups[0].arms[0].is_stopped());
    assert!(!html(&mostly).contains("were fully written after"));
    let mut again = ended.clone();
    again.key.block = 3;
    let rarely = input(study.clone(), vec![stopped(0), ended, again]);
    let groups = ioloom_report::group::groups(&rarely);
    assert_eq!(groups[0].arms[0].estimate.as_ref().expect("two of three").median, 20e9);
    // An arm is listed even if no other arm ran.
    let alone = html(&input(study.clone(), vec![stopped(0)]));
    assert!(
        alone.contains("buffered, 1 run timed out") && !alone.contains("were fully written after")
    );
}

#[test]
fn a_run_with_wrong_bytes_is_in_no_number() {
    let arms = "conditions = [\"cold\"]\narm = [{ name = \"sound\", plan = \
                \"read/threads:n=1\" }, { name = \"broken\", plan = \"read/threads:n=2\" }]";
    let study = study("own", "x", arms);
    let mut records = Vec::new();
    for block in 0..4 {
        records.push(record(&study, "sound", "read/threads:n=1", block, done(100, &[])));
        let mut broken = record(&study, "broken", "read/threads:n=2", block, done(1, &[]));
        broken.doubts.push(Doubt::WrongBytes);
        records.push(broken);
    }
    let input = input(study, records);
    let groups = ioloom_report::group::groups(&input);
    assert_eq!(groups[0].best().expect("one arm").name, "sound");
    let broken = groups[0].arms.iter().find(|arm| arm.name == "broken").expect("the broken arm");
    assert!(broken.runs.is_empty() && broken.estimate.is_none());
    assert_eq!((broken.unusable[0].0, broken.unusable[0].2), (Unusable::WrongBytes, 4));
    assert!(html(&input).contains("excluded from all statistics"));
}

/// Metrics of a run of the scenario `limits`.
const LIMITS: [(&str, f64); 8] = [
    ("dirty_ratio", 20.0),
    ("dirty_background_ratio", 10.0),
    ("dirty_bytes", 0.0),
    ("dirty_expire_centisecs", 3000.0),
    ("dirty_limit_bytes", 4_294_967_296.0),
    ("dirty_limit_over_ratio_of_total", 0.8),
    ("dirty_limit_over_ratio_of_available", 1.0),
    ("background_limit_bytes", 2_147_483_648.0),
];

#[test]
fn kernel_settings_are_listed_with_the_published_ones() {
    let arms = "conditions = [\"as-is\"]\nmetric = \"dirty_limit_over_ratio_of_available\"\n\
                arm = [{ name = \"limits\", plan = \"pagecache:limits\" }]";
    let study = study("pagecache", "limits", arms);
    let runs =
        (0..3).map(|block| record(&study, "limits", "pagecache:limits", block, done(1, &LIMITS)));
    let mut input = input(study.clone(), runs.collect());
    let row = |name: &str, value: &str| vec![name.to_owned(), value.to_owned()];
    let table = ioloom_report::Table {
        title: String::new(),
        columns: row("name", "value"),
        rows: vec![row("vm.dirty_ratio", "40"), row("vm.dirty_writeback_centisecs", "500")],
        ..Default::default()
    };
    input.published.insert("002_sysctl".to_owned(), table);
    let page = html(&input);
    for words in [
        "Kernel settings",
        "dirty_ratio",
        ">40 %<",
        ">20 %<",
        ">500 cs<",
        ">3000 cs<",
        "a dirty page of this age is written",
        "dirty pages are limited to 4.00 GiB, 0.80 times its ratio of total memory and 1.00 times",
        "starts to write at 2.00 GiB, set in bytes",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn reclaim_is_drawn_with_its_cost() {
    let page = reclaimed([12e6, 0.0, 36e6, 24e6], 48e6, RECLAIM_CURVES[1]);
    for words in [
        "When memory is short",
        "What is reclaimed first.",
        "Remaining pages by allocated memory",
        "dirty, allocated memory",
        "25 % of the clean pages and 0.0 % of the dirty pages were gone",
        "took 20.0 ms, 100 % of it came from the device, and the kernel recognized 50 %",
        "and at most unknown",
        "Theory (Documentation/admin-guide/mm/concepts.rst of the kernel).",
    ] {
        assert!(page.contains(words), "{words}");
    }
    // Runs that show the opposite are not given the usual cause.
    let opposite = reclaimed([0.0, 12e6, 24e6, 36e6], 0.0, "change, by memory in use");
    assert!(opposite.contains("dirty, allocated memory"), "stored under an earlier name");
    assert!(opposite.contains("0.0 % of the clean pages and 25 % of the dirty pages were gone"));
    assert!(!opposite.contains("only age matters") && !opposite.contains("pays the price"));
}

/// Returns the page of a study of reclaim with this many bytes gone: clean and dirty after an eighth,
/// clean and dirty after half. The clean file is then read with so many bytes from the device.
/// The curve of dirty pages has the name `changed`.
fn reclaimed(gone: [f64; 4], again: f64, changed: &str) -> String {
    let arms = "conditions = [\"as-is\"]\nmetric = \"again_ns\"\n\
                arm = [{ name = \"limit-128MiB\", plan = \"pagecache:reclaim/limit=128MiB\" }]";
    let study = study("pagecache", "reclaim", arms);
    let run = |block| {
        let numbers = [
            ("clean_before_bytes", 48e6),
            ("changed_before_bytes", 48e6),
            ("clean_gone_at_eighth_bytes", gone[0]),
            ("changed_gone_at_eighth_bytes", gone[1]),
            ("clean_gone_at_half_bytes", gone[2]),
            ("changed_gone_at_half_bytes", gone[3]),
            ("again_ns", 20e6),
            ("again_device_bytes", again),
            ("refaulted_bytes", 24e6),
            ("step_ns_p50", 1e6),
        ];
        let mut outcome = done(50, &numbers);
        if let Outcome::Done { measured } = &mut outcome {
            let curve =
                |from: f64| (0..9).map(|i| (f64::from(i) * 1e6, from - f64::from(i))).collect();
            for (name, from) in RECLAIM_CURVES.into_iter().zip([48e6, 48e6, 20e6]) {
                let name = if name == RECLAIM_CURVES[1] { changed } else { name };
                measured.curves.insert(name.to_owned(), curve(from));
            }
        }
        record(&study, "limit-128MiB", "pagecache:reclaim/limit=128MiB", block, outcome)
    };
    html(&input(study.clone(), (0..3).map(run).collect()))
}

/// Returns the page of one experiment with one arm and three runs with these numbers.
fn page_of(experiment: &str, arm: &str, plan: &str, numbers: &[(&str, f64)]) -> String {
    let arms = format!(
        "conditions = [\"as-is\"]\nmetric = \"elapsed_ns\"\n\
         arm = [{{ name = \"{arm}\", plan = \"{plan}\" }}]"
    );
    let study = study("pagecache", experiment, &arms);
    let runs = (0..3).map(|block| record(&study, arm, plan, block, done(1, numbers)));
    let mut input = input(study.clone(), runs.collect());
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    let free = ioloom_report::Table {
        title: String::new(),
        columns: row(&["when", "cache_kib", "shared_kib"]),
        rows: vec![
            row(&["before drop", "2702600", "526436"]),
            row(&["after drop", "991112", "527360"]),
        ],
        ..Default::default()
    };
    input.published.insert("002_free".to_owned(), free);
    html(&input).replace("<wbr>", "")
}

#[test]
fn dropped_caches_are_listed_with_the_published_numbers() {
    let numbers = [
        ("clean_before_bytes", 16_777_216.0),
        ("clean_dropped_bytes", 0.0),
        ("changed_dropped_bytes", 16_777_216.0),
        ("cached_before_bytes", 3_221_225_472.0),
    ];
    let page = page_of("drop", "each-16MiB", "pagecache:drop/bytes=16MiB", &numbers);
    for words in [
        "Dropping all caches",
        "published: including shared memory",
        "968 MiB",
        "3.00 GiB",
        "not run",
        "Only pages that can be read again are dropped",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn a_file_and_its_device_may_be_incoherent() {
    let numbers = |old: [f64; 2]| {
        [
            ("range_bytes", 16_777_216.0),
            ("equal_bytes", 16_777_216.0),
            ("device_pages_by_file_bytes", 0.0),
            ("cache_growth_by_device_bytes", -1_048_576.0),
            ("fresh_bytes", 1_048_576.0),
            ("fresh_old_before_sync_bytes", old[0]),
            ("fresh_old_after_sync_bytes", old[1]),
        ]
    };
    let page_of = |old| page_of("device", "first-16MiB", "pagecache:device", &numbers(old));
    let coherent = page_of([0.0, 0.0]);
    assert!(coherent.contains("No stale bytes were read: after the file was rewritten"));
    assert!(!coherent.contains("not coherent"));
    let page = page_of([1_048_576.0, 524_288.0]);
    for words in [
        "A file and its device",
        "one cache with separate address spaces",
        "-1.00 MiB",
        "The two were not coherent: after the file was rewritten",
        "100 % of the old bytes before a sync, 50 % of them after it",
        "and unknown of the new ones",
    ] {
        assert!(page.contains(words), "{words}");
    }
}

#[test]
fn each_shell_is_listed_and_each_that_is_missing() {
    let numbers = [
        ("shells", 2.0),
        ("sh_there", 1.0),
        ("sh_began", 1.0),
        ("sh_exit_code", 2.0),
        ("bash_there", 1.0),
        ("bash_began", 0.0),
        ("bash_exit_code", 1.0),
        ("privileged_shell_began", 1.0),
    ];
    let page = page_of("shell", "every-shell", "pagecache:shell", &numbers);
    for words in [
        "sh: started, exit code 2; bash: not started, exit code 1. Not installed: dash, zsh, ksh, \
         busybox, fish.",
        "inside the privileged process worked, a privileged tee was not tested",
        "Theory (POSIX, Shell Command Language, Redirection).",
    ] {
        assert!(page.contains(words), "{words}");
    }
    assert!(!page.contains("it never starts"), "a shell started the command");
}

/// Returns the page of an exchange study in which syncing each order takes `each_ms` and not syncing
/// takes `os_ms`, in this many blocks. The second plan of an edited study can have other settings.
fn durability_of(each_ms: f64, os_ms: f64, blocks: u32, other: &str) -> Input {
    let arms = format!(
        "[[experiment.arm]]\nname = \"log-each-1\"\nplan = \"{EACH}\"\n\
         [[experiment.arm]]\nname = \"log-os-1\"\nplan = \"{other}\""
    );
    let mut study = study("exchange", "durability", &arms);
    study.subject = "exchange".to_owned();
    let mut records = Vec::new();
    for block in 0..blocks {
        let wobble = 1.0 + 0.01 * f64::from(block % 3);
        for (arm, plan, ms) in [("log-each-1", EACH, each_ms * wobble), ("log-os-1", other, os_ms)]
        {
            let outcome = done(10, &[("request_ns", ms * 1e6)]);
            records.push(record(&study, arm, plan, block, outcome));
        }
    }
    input(study, records)
}

/// Two plans that differ in their durability only.
const EACH: &str = "exchange:closed/model=epoll,store=log,durability=each";
const OS: &str = "exchange:closed/model=epoll,store=log,durability=os";

fn durability(each_ms: f64, os_ms: f64, blocks: u32) -> String {
    html(&durability_of(each_ms, os_ms, blocks, OS))
}

/// "Because" needs plans that differ in the factor and in nothing else, whatever their names.
#[test]
fn a_cause_needs_plans_that_differ_in_one_setting() {
    let because = "because of syncing the log for each order";
    let goes_with = "times as high, which goes with syncing the log for each order";
    assert!(durability(2.0, 1.0, 12).contains(because));
    for other in [
        "exchange:closed/model=select,store=log,durability=os",
        "exchange:closed/model=epoll,store=log,durability=none",
        EACH,
    ] {
        let page = html(&durability_of(2.0, 1.0, 12, other));
        assert!(page.contains(goes_with) && !page.contains(because), "{other}");
        assert!(!page.contains("the arms differ in nothing else"), "{other}");
    }
    // The plans differ in the factor, but the arm with it has the name of the other one.
    let mut swapped = durability_of(2.0, 1.0, 12, OS);
    for record in &mut swapped.records {
        let plan = if record.key.arm == "log-os-1" { EACH } else { OS };
        record.plan = plan.parse().expect("a plan");
    }
    let page = html(&swapped);
    assert!(page.contains(goes_with) && !page.contains(because), "swapped plans");
    // Kernel settings and file sets are no part of the plans.
    let mut edited = durability_of(2.0, 1.0, 12, OS);
    edited.study.experiments[0].arms[1].settings.insert("dirty_bytes".to_owned(), 1 << 20);
    assert!(html(&edited).contains(goes_with));
    // The remaining runs of an arm that was often killed are the faster ones.
    let mut killed = durability_of(2.0, 1.0, 12, OS);
    for record in killed.records.iter_mut().filter(|r| r.key.arm == "log-os-1").take(3) {
        record.outcome = Outcome::TimedOut { seconds: 5.0 };
    }
    let page = html(&killed);
    assert!(!page.contains(because) && page.contains("the runs of log-os-1 were killed"));
}

/// A sleep in the legend is that of the runs.
#[test]
fn the_legend_names_the_sleep_of_the_runs() {
    let page = |sleep: &[(&str, f64)]| {
        let arms = "arm = [{ name = \"select-all-{clients}\", plan = \
                    \"exchange:cell/model=select,clients={clients},sleep=20ms\", \
                    with = { clients = [4, 10] } }]";
        let mut study = study("exchange", "cells-short", arms);
        study.subject = "exchange".to_owned();
        let of = |clients: u32| {
            let name = format!("select-all-{clients}");
            let plan = format!("exchange:cell/model=select,clients={clients},sleep=20ms");
            let mut extra = vec![("order_ns", 2e7)];
            extra.extend_from_slice(sleep);
            let mut record = record(&study, &name, &plan, 0, done(200, &extra));
            record.key.factors.insert("clients".to_owned(), f64::from(clients));
            record
        };
        let records = vec![of(4), of(10)];
        html(&input(study, records))
    };
    let with = page(&[("sleep_ns", 2e7)]);
    assert!(with.contains("select, here, sleep 20.0"), "the sleep of the runs");
    let without = page(&[]);
    assert!(without.contains("select, here") && !without.contains("here, sleep"), "unknown");
}

/// The ratio of warm to cold walks is that of equal thread counts, and a direction is not assumed.
#[test]
fn warm_and_cold_walks_are_compared_at_equal_threads() {
    let sentence = |warm: [u64; 2], blocks: u32| {
        let arms = |condition: &str| {
            format!(
                "conditions = [\"{condition}\"]\narm = [{{ name = \"statx-{{threads}}\", plan = \
                 \"walk:statx/threads={{threads}}\", with = {{ threads = [1, 8, 64] }} }}]"
            )
        };
        let mut both = study("walk", "threads-cold", &arms("cold"));
        let warm_study = study("walk", "threads-warm", &arms("warm"));
        let mut records = Vec::new();
        for (of, medium, times) in [
            (&both, "cold-only", &[10, 10][..]),
            (&both, "work", &[100, 50, 40][..]),
            (&warm_study, "work", &warm[..]),
        ] {
            for (threads, ms) in [1, 8, 64].into_iter().zip(times) {
                for block in 0..blocks {
                    let (arm, plan) =
                        (format!("statx-{threads}"), format!("walk:statx/threads={threads}"));
                    let mut run = record(of, &arm, &plan, block, done(*ms, &[]));
                    run.key.medium = medium.to_owned();
                    run.key.factors.insert("threads".to_owned(), f64::from(threads));
                    records.push(run);
                }
            }
        }
        both.experiments.extend(warm_study.experiments);
        html(&input(both, records))
    };
    let faster = sentence([20, 20], 12);
    assert!(
        faster.contains(
            "takes 20 % to 40 % of the time of a cold walk with as many threads. The 95 % interval of \
             the ratio is below 1 at each of the thread counts compared (2)."
        ),
        "{faster}"
    );
    let mixed = sentence([50, 55], 12);
    let words = "compared (2), the 95 % interval of the ratio is below 1 at 1, above 1 at 1, ";
    assert!(mixed.contains(words), "{mixed}");
    assert!(!mixed.contains("at each of the thread counts"));
    let few = sentence([20, 20], 3);
    assert!(few.contains("Too few blocks ran for an interval, so this may be noise."));
    assert!(!few.contains("The 95 % interval of the ratio is"));
}

/// One violation among many runs is not hidden by a median.
#[test]
fn violations_of_all_runs_are_counted() {
    let plan = "exchange:histories/model=thread,sharing=stock,histories=3,dialect=v2";
    let arms = format!("arm = [{{ name = \"stock\", plan = \"{plan}\" }}]");
    let mut study = study("exchange", "histories", &arms);
    study.subject = "exchange".to_owned();
    let of = |block| {
        let violated = if block == 7 { 1.0 } else { 0.0 };
        let counts =
            [("histories", 3.0), ("histories_violated", violated), ("histories_undecided", 0.0)];
        record(&study, "stock", plan, block, done(10, &counts))
    };
    let page = html(&input(study.clone(), (0..12).map(of).collect()));
    let (_, table) = page.rsplit_once(">Linearizability<").expect("the table");
    let (table, _) = table.split_once("</table>").expect("its end");
    let texts = table.split("<td").skip(1).filter_map(|cell| cell.split(['>', '<']).nth(1));
    assert_eq!(texts.collect::<Vec<_>>(), ["stock", "12", "36", "1", "0"], "{table}");
}

/// The sizes of unaligned requests are those that the runs made.
#[test]
fn the_sizes_of_unaligned_requests_follow_the_runs() {
    let page = |sizes: &[u32]| {
        let arms = "arm = [{ name = \"requests\", plan = \"copy:requests\" }]";
        let mut study = study("copy", "requests", arms);
        study.subject = "copy".to_owned();
        let of = |block| {
            let both = |n: &u32| ["write", "read"].map(|what| format!("{what}_{n}_refused"));
            let names: Vec<String> = sizes.iter().flat_map(both).collect();
            let mut extra: Vec<(&str, f64)> = names.iter().map(|n| (n.as_str(), 1.0)).collect();
            extra.push(("direct_multiple_bytes", 512.0));
            record(&study, "requests", "copy:requests", block, done(10, &extra))
        };
        html(&input(study.clone(), (0..3).map(of).collect()))
    };
    let page = page(&[100, 2500]);
    let (_, table) = page.rsplit_once(">Unaligned requests<").expect("the table");
    let (table, _) = table.split_once("</table>").expect("its end");
    let table = table.replace("<wbr>", "");
    assert!(table.contains("100 bytes") && table.contains("2500 bytes"), "{table}");
    assert!(!table.contains("335 bytes"), "{table}");
    assert_eq!(table.matches("refused, refused").count(), 2, "{table}");
}

/// The explanation comes from the runs: opposite runs give another sentence.
#[test]
fn causes_follow_the_runs() {
    let slower = durability(2.0, 1.0, 12);
    assert!(slower.contains("times as high, because of syncing the log for each order"));
    assert!(slower.contains("95 % interval 2.00 to 2.04; log-each-1 / log-os-1, 12 blocks"));
    let faster = durability(1.0, 2.0, 12);
    assert!(faster.contains("lower by a factor of"), "the opposite effect is another sentence");
    assert!(!faster.contains("times as high, because of syncing"));
    let same = durability(1.0, 1.01, 12);
    assert!(same.contains("no difference is shown"));
    let small = durability(1.03, 1.0, 12);
    assert!(small.contains("the measured difference is below 5 %"));
    assert!(!small.contains("because of syncing"), "too small for a cause");
    let few = durability(2.0, 1.0, 3);
    assert!(few.contains("too few blocks to say whether this is more than noise"));
    for page in [&slower, &faster, &same, &few] {
        assert!(!page.contains("thousand times"), "no cause is typed in");
        assert!(page.contains("Theory (select(2), epoll(7))."), "theory has a source");
    }
}
