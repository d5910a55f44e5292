//! What a line of the first page may say about the default, by the times of all arms.

use crate::records::sample;
use ioloom_model::{Condition, Doubt, Outcome, RunRecord};
use ioloom_report::compare::{earlier, since};
use ioloom_report::group::groups;
use ioloom_report::headline::{answer, headlines, plain_text};
use ioloom_report::{DoubtRow, Input, Verdict, html, html_all, json, markdown, terminal};

/// Time of an arm in a block, in milliseconds.
type Times<'t> = &'t dyn Fn(u32) -> f64;

/// Returns a study of one question with these arms in twelve blocks.
fn study(arms: &[(&str, Times<'_>)]) -> Input {
    let mut input = sample(1);
    input.study.experiments.truncate(1);
    input.doubts.clear();
    input.verdicts.clear();
    let experiment = &mut input.study.experiments[0];
    experiment.topic = Some("small files".to_owned());
    experiment.usual = Some("default".to_owned());
    let models = std::mem::take(&mut input.records);
    for (arm, ms) in arms {
        let is_it = |r: &&RunRecord| r.key.experiment == experiment.name && r.key.arm == *arm;
        let model = models.iter().find(is_it).expect(arm);
        for block in 0..12 {
            let mut record = model.clone();
            record.key.block = block;
            record.doubts.clear();
            if let Outcome::Done { measured } = &mut record.outcome {
                measured.elapsed_ns = (ms(block) * 1e6) as u64;
            }
            input.records.push(record);
        }
    }
    input
}

/// Returns the line of the first page.
fn line(input: &Input) -> String {
    let text = markdown(std::slice::from_ref(input));
    text.lines().find(|line| line.starts_with("- **")).expect("a line of advice").to_owned()
}

/// Returns a time that only the blocks that choose have, and another one for those that compare.
fn lucky(chosen: f64, compared: f64) -> impl Fn(u32) -> f64 {
    move |block| if block % 4 == 0 { chosen } else { compared }
}

#[test]
fn the_default_is_not_the_fastest_if_an_arm_that_was_not_chosen_is_faster() {
    let usual = |_| 2_000.0;
    let fast = |_| 1_000.0;
    let other = lucky(900.0, 3_000.0);
    let text = line(&study(&[("default", &usual), ("uring-window", &other), ("mmap-8", &fast)]));
    assert!(!text.contains("fastest"), "{text}");
    let wanted = "Your default: 1.50× \\[1.50, 1.50\\] the speed of up to 64 requests in flight, \
        io\\_uring, the best in other blocks; 8 threads, memory mapping looks faster: 2.00× \
        \\[2.00, 2.00\\]; repeat to decide.";
    assert!(text.contains(wanted), "{text}");
    // The number of the other arm is in the data.
    let ratio =
        &json(&[study(&[("default", &usual), ("uring-window", &other), ("mmap-8", &fast)])]);
    let ratios = ratio["studies"][0]["ratios"].as_array().expect("ratios");
    let advice = ratios.iter().find(|r| r["topic"] == "small files").expect("a line");
    let ratio = advice["rival_ratio"].as_f64().expect("a number");
    assert!((ratio - 2.0).abs() < 1e-9 && advice["rival"].is_string(), "{advice}");
}

#[test]
fn an_arm_that_only_may_be_faster_is_not_called_faster() {
    let usual = |_| 2_000.0;
    let wide = |block: u32| if block % 2 == 1 { 1_000.0 + f64::from(block) } else { 2_900.0 };
    let other = lucky(900.0, 3_000.0);
    let text = line(&study(&[("default", &usual), ("uring-window", &other), ("mmap-8", &wide)]));
    assert!(!text.contains("fastest") && !text.contains("looks faster"), "{text}");
    assert!(text.contains("; no plan is shown to be faster."), "{text}");
    // Its median is worse, but it may be faster.
    let near = |block: u32| if block > 3 && block % 2 == 1 { 1_900.0 } else { 2_900.0 };
    let text = line(&study(&[("default", &usual), ("uring-window", &other), ("mmap-8", &near)]));
    assert!(!text.contains("fastest") && !text.contains("looks faster"), "{text}");
    assert!(text.contains("No plan is shown to be faster than your default; "), "{text}");
    // Of two arms with better medians, the slower one is shown to be faster.
    let sure = |_| 1_800.0;
    let text = line(&study(&[
        ("default", &usual),
        ("uring-window", &other),
        ("mmap-8", &wide),
        ("roles-1-3", &sure),
    ]));
    assert!(
        text.contains("; separate readers and compute threads, blocking reads looks faster: 1.11×"),
        "{text}"
    );
    // All other arms are slower, so the default is the fastest, and the next best is the closest.
    let slow = |_| 2_500.0;
    let text = line(&study(&[("default", &usual), ("uring-window", &other), ("mmap-8", &slow)]));
    let wanted = "Your default is the fastest measured here: 1.25× \\[1.25, 1.25\\] the speed of the \
        next best (8 threads, memory mapping).";
    assert!(text.contains(wanted), "{text}");
}

/// Only an arm that is faster than the chosen one looks faster than it.
#[test]
fn a_slower_arm_does_not_look_faster() {
    let usual = |_| 2_000.0;
    let speed = |block: u32, speeds: [f64; 3]| 2_000.0 / speeds[block as usize % 3];
    let slower = move |block| speed(block, [1.06, 1.10, 1.15]);
    for (speeds, wanted) in [
        ([1.02, 1.20, 1.40], "is also faster than your default: 1.10× \\[1.06, 1.15\\]."),
        ([0.90, 1.20, 1.40], "is faster than your default: 1.10× \\[1.06, 1.15\\]."),
        ([1.02, 1.08, 1.40], "looks faster: 1.10× \\[1.06, 1.15\\]; repeat to decide."),
    ] {
        let chosen = move |block| if block % 4 == 0 { 900.0 } else { speed(block, speeds) };
        let arms: [(&str, Times<'_>); 3] =
            [("default", &usual), ("uring-window", &chosen), ("mmap-8", &slower)];
        let text = line(&study(&arms));
        assert!(text.contains(&format!("; 8 threads, memory mapping {wanted}")), "{text}");
    }
}

/// A small loss is clear, too.
#[test]
fn an_interval_below_one_is_a_clear_difference() {
    let usual = |_| 100_000.0;
    let speed = |block: u32, speeds: [f64; 3]| 100_000.0 / speeds[block as usize % 3];
    let chosen =
        move |block| if block % 4 == 0 { 50_000.0 } else { speed(block, [0.96, 0.97, 0.99]) };
    let other = move |block| speed(block, [1.06, 1.10, 1.15]);
    let text = line(&study(&[("default", &usual), ("uring-window", &chosen), ("mmap-8", &other)]));
    assert!(!text.contains("o clear difference"), "{text}");
    let wanted = "io\\_uring: 0.97× \\[0.96, 0.99\\] the speed of your default; 8 threads, memory \
        mapping looks faster: 1.10× \\[1.06, 1.15\\]; repeat to decide.";
    assert!(text.contains(wanted), "{text}");
}

/// The named arm is the best one, even if another one has a larger upper end.
#[test]
fn a_bound_names_the_best_arm() {
    let usual = |_| 100_000.0;
    let speed = |block: u32, speeds: [f64; 3]| 100_000.0 / speeds[block as usize % 3];
    let of = |chosen: [f64; 3], other: [f64; 3]| {
        let chosen = move |block| if block % 4 == 0 { 50_000.0 } else { speed(block, chosen) };
        let other = move |block| speed(block, other);
        line(&study(&[("default", &usual), ("uring-window", &chosen), ("mmap-8", &other)]))
    };
    let text = of([1.035, 1.040, 1.045], [0.96, 1.005, 1.048]);
    let wanted =
        "Your default is at most 4.8 % slower than the best measured here (up to 64 requests";
    assert!(text.contains(wanted), "{text}");
    // The other arm may be faster by more, but its median is worse than that of the default.
    let text = of([0.95, 0.98, 1.03], [0.90, 0.99, 1.20]);
    assert!(text.contains("at most 3.0 % slower than up to 64 requests in flight"), "{text}");
}

/// A bound holds for all arms with a better median.
#[test]
fn the_bound_is_that_of_all_arms() {
    let usual = |_| 1_000.0;
    let chosen = lucky(980.0, 990.0);
    let other = lucky(995.0, 970.0);
    let text = line(&study(&[("default", &usual), ("uring-window", &chosen), ("mmap-8", &other)]));
    assert!(
        text.contains(
            "Your default is at most 3.1 % slower than the best measured here (8 threads, memory"
        ),
        "{text}"
    );
}

/// Returns the line if the other arm has a speed between these bounds, relative to the default.
fn between(low: f64, high: f64) -> String {
    let usual = |_| 100_000.0;
    let other = move |block| 100_000.0 / if block % 2 == 0 { low } else { high };
    line(&study(&[("default", &usual), ("threads-2", &other)]))
}

#[test]
fn a_small_bound_is_rounded_up_and_the_margin_is_the_same_in_both_directions() {
    let text = between(0.999_0, 1.000_4);
    assert!(text.contains("Your default is at most 0.1 % slower than the best"), "{text}");
    let text = between(0.999_0, 0.999_8);
    assert!(
        !text.contains("fastest")
            && text.contains("No difference above 5.0 % between your default and 2 threads"),
        "{text}"
    );
    let text = between(0.9, 0.96);
    assert!(text.contains("No plan is shown to be faster than your default; 2 threads"), "{text}");
    let text = between(0.9, 0.95);
    assert!(text.contains("Your default is the fastest measured here"), "{text}");
    let text = between(1.06, 1.10);
    assert!(text.contains("Change to 2 threads"), "{text}");
}

#[test]
fn a_line_has_the_doubts_of_its_experiment_and_those_of_few_runs_with_their_share() {
    let (usual, fast) = (|_| 2_000.0, |_| 1_000.0);
    let mut input = study(&[("default", &usual), ("threads-2", &fast)]);
    let row = |experiment: &str, doubt| DoubtRow {
        doubt,
        experiment: Some(experiment.to_owned()),
        arm: None,
        detail: String::new(),
    };
    input.doubts =
        vec![row("elapsed-small-files", Doubt::NoiseFloor), row("roles-grid", Doubt::TwoRegimes)];
    for record in input.records.iter_mut().take(3) {
        record.doubts.push(Doubt::NoisyNeighbour);
    }
    for record in input.records.iter_mut().skip(8) {
        record.doubts.push(Doubt::ShortRun);
    }
    let wanted = "short run, noise floor (in its experiment), noisy neighbour (3 of 24 runs)";
    assert!(line(&input).contains(&format!("(◇ {wanted})")), "{}", line(&input));
    assert!(terminal(&input, 120, false).contains(&format!("◇ {wanted}\n")));
    assert!(html(&input).contains(&format!("◇ {wanted}<")));
    // The experiment has a doubt because some of its runs do; their number is known.
    input.doubts.push(row("elapsed-small-files", Doubt::NoisyNeighbour));
    assert!(line(&input).contains(&format!("(◇ {wanted})")), "{}", line(&input));
    // Three doubts are listed, those of most runs first.
    for doubt in [Doubt::Drift, Doubt::Alternation] {
        input.doubts.push(row("elapsed-small-files", doubt));
    }
    let wanted = "short run, drift (in its experiment), alternation (in its experiment), +2 more";
    assert!(line(&input).contains(&format!("(◇ {wanted})")), "{}", line(&input));
}

/// A comparison without a default and with a single arm does not hide a complete one.
#[test]
fn a_comparison_comes_before_a_single_arm() {
    let (usual, fast) = (|_| 2_000.0, |_| 1_000.0);
    let mut input = study(&[("default", &usual), ("mmap-8", &fast)]);
    let mut warm = input.records.clone();
    for record in &mut warm {
        record.key.condition = Condition::Warm;
    }
    assert!(line(&input).contains("Small files (cold):** Change to 8 threads"), "{}", line(&input));
    input.records.retain(|r| r.key.arm != "default");
    assert!(line(&input).contains("so nothing is compared."), "{}", line(&input));
    input.records.extend(warm);
    assert!(line(&input).contains("Small files (warm):** Change to 8 threads"), "{}", line(&input));
}

#[test]
fn a_line_names_its_condition_and_medium() {
    let (usual, fast) = (|_| 2_000.0, |_| 1_000.0);
    let mut input = study(&[("default", &usual), ("threads-2", &fast)]);
    assert!(line(&input).starts_with("- **Small files (cold):** "), "{}", line(&input));
    for record in &mut input.records {
        record.key.medium = "tmpfs".to_owned();
    }
    assert!(line(&input).starts_with("- **Small files (cold, on tmpfs):** "), "{}", line(&input));
    assert!(terminal(&input, 80, false).contains("\nSmall files (cold, on tmpfs)\n"));
    assert!(html(&input).contains("<dt>Small files (cold, on tmpfs)</dt>"));
}

#[test]
fn a_default_without_a_result_is_named() {
    let (usual, slow, fast) = (|_| 2_000.0, |_| 2_000.0, |_| 1_000.0);
    let arms: [(&str, Times<'_>); 3] =
        [("default", &usual), ("roles-1-3", &slow), ("mmap-8", &fast)];
    let with = |outcome: &dyn Fn() -> Outcome| {
        let mut input = study(&arms);
        for record in input.records.iter_mut().filter(|r| r.key.arm == "default") {
            record.outcome = outcome();
        }
        input
    };
    let refused = with(&|| Outcome::Refused { reason: "needs io_uring".to_owned() });
    let text = line(&refused);
    assert!(
        text.contains(
            "Your default was not measured (refused: needs io\\_uring); 8 threads, memory mapping: 2.00×"
        ),
        "{text}"
    );
    let late = line(&with(&|| Outcome::TimedOut { seconds: 5.0 }));
    assert!(late.contains("was not measured (stopped at its deadline of 5.00 s); 8 "), "{late}");
    let absent = line(&study(&arms[1..]));
    assert!(absent.contains("Your default was not measured (it did not run); 8 "), "{absent}");
    let mut alone = refused.clone();
    alone.records.retain(|r| r.key.arm != "mmap-8");
    let alone = line(&alone);
    assert!(alone.contains("(refused: needs io\\_uring), so nothing is compared."), "{alone}");
}

/// The remaining runs of an arm that was often killed are the faster ones.
#[test]
fn an_arm_that_was_often_killed_is_not_judged() {
    let (usual, slow, fast) = (|_| 2_000.0, |_| 2_500.0, |_| 1_000.0);
    let arms: [(&str, Times<'_>); 3] =
        [("default", &usual), ("roles-1-3", &slow), ("mmap-8", &fast)];
    let killed = |arm: &str, runs: usize| {
        let mut input = study(&arms);
        for record in input.records.iter_mut().filter(|r| r.key.arm == arm).take(runs) {
            record.outcome = Outcome::TimedOut { seconds: 5.0 };
        }
        input
    };
    let text = line(&killed("mmap-8", 2));
    assert!(text.contains("Change to 8 threads, memory mapping"), "{text}");
    let input = killed("mmap-8", 3);
    let text = line(&input);
    assert!(!text.contains("memory mapping"), "{text}");
    assert!(text.contains(" Not judged, because many runs were killed: mmap-8."), "{text}");
    let answer = answered(&input);
    assert!(answer.contains("(not judged, because many runs were killed: mmap-8)"), "{answer}");
    let answer = answered(&with_other_work(killed("mmap-8", 3), "mmap-8"));
    assert!(answer.contains("speed") && !answer.contains("not judged"), "{answer}");
    let text = line(&killed("default", 3));
    assert!(text.contains("not measured (at least a quarter of its runs were killed)"), "{text}");
}

/// Lets the remaining runs of an arm read one file more. The arm is then not compared.
fn with_other_work(mut input: Input, arm: &str) -> Input {
    for record in input.records.iter_mut().filter(|r| r.key.arm == arm) {
        if let Outcome::Done { measured } = &mut record.outcome {
            measured.files += 1;
        }
    }
    input
}

/// Returns the first sentence of the answer.
fn answered(input: &Input) -> String {
    let groups = groups(input);
    plain_text(&answer(&headlines(&groups), &groups)[0])
}

/// The bound is about the default, so it is unknown without one.
#[test]
fn only_a_default_has_a_bound_in_the_data() {
    let (fast, slow) = (|_| 1_000.0, |_| 3_000.0);
    let mut input = study(&[("default", &fast), ("mmap-8", &slow)]);
    let within = |input: &Input| {
        let data = json(std::slice::from_ref(input));
        let ratios = data["studies"][0]["ratios"].as_array().expect("ratios").clone();
        let line = ratios.into_iter().find(|r| r["topic"] == "small files").expect("a line");
        line["within"].as_f64()
    };
    assert_eq!(within(&input).map(f64::to_bits), Some(0));
    input.study.experiments[0].usual = None;
    assert_eq!(within(&input), None);
    // The advice about smaller file sets names the command that made them.
    assert!(input.advice(Doubt::Scaled).contains("study --full"));
    input.is_scaled = true;
    let words = "use `claims --verify --full-size` for the published size";
    assert_eq!(input.advice(Doubt::Scaled), words);
}

/// An answer that killed runs make impossible is not left out.
#[test]
fn killed_runs_that_leave_nothing_to_compare_are_named() {
    let (usual, fast) = (|_| 2_000.0, |_| 1_000.0);
    let killed = |of: &[(&str, usize)]| {
        let mut input = study(&[("default", &usual), ("mmap-8", &fast)]);
        for (arm, runs) in of {
            let records = input.records.iter_mut();
            for record in records.filter(|r| r.key.arm == *arm).take(*runs) {
                record.outcome = Outcome::TimedOut { seconds: 5.0 };
            }
        }
        input
    };
    let alone = killed(&[("mmap-8", 3)]);
    let text = line(&alone);
    let wanted = "Nothing is compared. Not judged, because many runs were killed: mmap-8.";
    assert!(text.contains(wanted), "{text}");
    let text = answered(&alone);
    assert!(
        text.starts_with("Many runs of mmap-8 were killed at their deadline, and no"),
        "{text}"
    );
    // Both; one has no median.
    let none = killed(&[("default", 12), ("mmap-8", 3)]);
    let text = line(&none);
    let wanted = "Your default was not measured (stopped at its deadline of 5.00 s), so nothing is \
        compared. Not judged, because many runs were killed: mmap-8.";
    assert!(text.contains(wanted), "{text}");
    assert!(answered(&none).starts_with("Many runs of default, mmap-8 were killed"), "both arms");
    assert!(!html(&none).is_empty() && !terminal(&none, 80, false).is_empty());
    let text = answered(&with_other_work(killed(&[("mmap-8", 3)]), "mmap-8"));
    assert!(text.starts_with("No two plans have finished the same work"), "{text}");
    // An arm at another level of a factor of the default would not be compared.
    let mut other = killed(&[("mmap-8", 3)]);
    for record in &mut other.records {
        let level = if record.key.arm == "default" { 1.0 } else { 2.0 };
        record.key.factors.insert("rate".to_owned(), level);
    }
    assert!(!markdown(&[other]).contains("Not judged"));
}

/// A session of other files, of one experiment only, or without an end does not hide an older one.
#[test]
fn the_latest_comparable_session_is_compared() {
    let [slow, usual, fast] = [2_500.0, 2_000.0, 1_000.0].map(|ms| move |_: u32| ms);
    let arms: [(&str, Times<'_>); 3] =
        [("default", &usual), ("roles-1-3", &slow), ("mmap-8", &fast)];
    let named = |session: &str| Input { session: session.to_owned(), ..study(&arms) };
    let now = named("now");
    let mut other = named("other files");
    other.records.iter_mut().for_each(|record| record.set.hash = "other".to_owned());
    let mut part = named("one arm");
    part.records.retain(|record| record.key.arm == "mmap-8");
    let chosen = |candidates: &[(bool, &Input)]| {
        let all = candidates.iter().map(|(ended, input)| (*ended, (*input).clone()));
        earlier(all, &now).map(|input| input.session)
    };
    let (killed, old) = (named("killed"), named("old"));
    let all = [(true, &other), (true, &part), (false, &killed), (true, &old)];
    assert_eq!(chosen(&all).as_deref(), Some("old"));
    assert_eq!(chosen(&all[..3]).as_deref(), Some("one arm"));
    assert_eq!(chosen(&[(false, &killed)]).as_deref(), Some("killed"));
    assert_eq!(chosen(&all[..1]), None);
    // A session with fewer arms that has ended is preferred to a later one with more that has not.
    assert_eq!(chosen(&[(false, &killed), (true, &part)]).as_deref(), Some("one arm"));
}

/// What could not be judged is not called unchanged.
#[test]
fn arms_that_cannot_be_judged_are_not_unchanged() {
    let [slow, usual, fast] = [20_000.0, 2_000.0, 1_000.0].map(|ms| move |_: u32| ms);
    let arms: [(&str, Times<'_>); 2] = [("default", &usual), ("threads-2", &fast)];
    let before = study(&arms);
    let same = study(&arms);
    let slower = study(&[("default", &slow), ("threads-2", &fast)]);
    let few = |mut input: Input| {
        input.records.retain(|r| r.key.block < 4);
        input
    };
    let words = |a: &Input, b: &Input| {
        let text = since(a, b);
        text.split_once("UTC: ").expect("a time").1.to_owned()
    };
    assert_eq!(words(&before, &same), "none of 2 arms changed by more than 5 %.");
    let undecided = "2 of 2 arms undecided (too few blocks).";
    assert_eq!(words(&few(before.clone()), &few(slower.clone())), undecided);
    let text = words(&before, &slower);
    assert!(
        text.starts_with(
            "1 of 2 arms worse beyond the noise within the sessions, 1 the same within 5 %; most: \
             default in "
        ),
        "{text}"
    );
    let mut killed = slower.clone();
    for record in killed.records.iter_mut().filter(|r| r.key.arm == "default").take(3) {
        record.outcome = Outcome::TimedOut { seconds: 5.0 };
    }
    let one_undecided =
        |why: &str| format!("1 of 2 arms the same within 5 %, 1 undecided ({why}).");
    assert_eq!(words(&before, &killed), one_undecided("killed runs"));
    let mut partly = same;
    partly.records.retain(|r| r.key.arm == "default" || r.key.block < 4);
    assert_eq!(words(&before, &partly), one_undecided("too few blocks"));
}

/// The limit of a plan is that of the named plan, and a plan is the fastest only if it is shown to be.
#[test]
fn a_plan_that_is_not_shown_to_be_faster_is_not_the_fastest() {
    let (usual, same) = (|_| 2_000.0, |block| if block % 3 == 0 { 2_100.0 } else { 1_990.0 });
    let fast = |_| 1_000.0;
    let without_topic = |arms: &[(&str, Times<'_>)]| {
        let mut input = study(arms);
        input.study.experiments[0].topic = None;
        (terminal(&input, 160, false), html(&input))
    };
    let (text, page) = without_topic(&[("default", &usual), ("uring-window", &same)]);
    assert!(text.contains("no plan is shown to be faster than the simpler ones"), "{text}");
    assert!(text.contains("uring/window:l=64,p=2 was limited by "), "{text}");
    assert!(!text.contains("fastest") && !page.contains("astest plan"), "{text}");
    assert!(page.contains("Gain of the chosen plan."));
    let (_, page) = without_topic(&[("default", &usual), ("uring-window", &fast)]);
    assert!(page.contains("Gain of the fastest plan."));
}

/// Studies of one seed have claims in common. Each is counted and listed once, on the page as in the score.
#[test]
fn a_claim_of_two_studies_is_listed_once() {
    let part = |prefix: &str| {
        let mut input = sample(1);
        input.prefix = prefix.to_owned();
        input.study.experiments[0].topic = Some("small files".to_owned());
        input
    };
    let [mut first, second] = ["a-", "b-"].map(part);
    // The verdict that runs decided counts, wherever it is.
    let decided = first.verdicts[0].verdict;
    first.verdicts[0].verdict = Verdict::Undecided;
    let page = html_all(&[first.clone(), second]);
    for claim in &first.verdicts {
        let listed = page.matches(&format!("\"cid\">{}<", claim.id)).count();
        assert_eq!(listed, 1, "{}", claim.id);
    }
    let filter =
        page.split("id=\"claim-filter\"").nth(1).and_then(|rest| rest.split("</div>").next());
    let counts = filter.expect("a filter").split("\"count\">").skip(1);
    let sum: usize = counts.filter_map(|c| c.split('<').next()?.parse::<usize>().ok()).sum();
    assert_eq!(sum, first.verdicts.len());
    let row = page.split("<tr data-verdict=\"").find(|row| row.contains(">000-P27<"));
    assert!(row.is_some_and(|row| row.starts_with(decided.name())));
}

/// Two studies that decide a claim differently are both listed, and the claim is counted once.
#[test]
fn a_claim_with_different_verdicts_is_listed_with_each() {
    let with = |prefix: &str, verdict| {
        let mut input = sample(1);
        input.prefix = prefix.to_owned();
        input.session = format!("of-{prefix}");
        input.study.experiments[0].topic = Some("small files".to_owned());
        input.verdicts.truncate(1);
        input.verdicts[0].verdict = verdict;
        input
    };
    let page =
        |verdicts: [Verdict; 2]| html_all(&[with("a-", verdicts[0]), with("b-", verdicts[1])]);
    let differ = page([Verdict::Confirmed, Verdict::Refuted]);
    for (verdict, session) in [(Verdict::Confirmed, "of-a-"), (Verdict::Refuted, "of-b-")] {
        let row = format!("<tr data-verdict=\"{}\"", verdict.name());
        let row = differ.split(&row).nth(1).and_then(|rest| rest.split("</tr>").next());
        let row = row.expect("a row of each verdict");
        assert!(row.contains(&format!("session {session}; another one differs.")), "{row}");
    }
    let wanted = "1 of 1 published claims reproduced here (0 confirmed, 0 refuted, 0 limited in \
        scope, 1 with different verdicts), ";
    assert!(differ.contains(wanted));
    for same in [[Verdict::Confirmed; 2], [Verdict::Undecided, Verdict::Confirmed]] {
        let page = page(same);
        assert!(page.contains("(1 confirmed, 0 refuted, 0 limited in scope), "));
        assert_eq!(page.matches("<tr data-verdict").count(), 1);
        assert!(!page.contains("another one differs"));
    }
}

/// Runs too few for an interval do not show that an arm is slower than the default.
#[test]
fn an_arm_without_an_interval_may_be_faster_than_the_default() {
    let (usual, slow, slowest) = (|_| 1_000.0, |_| 2_000.0, |_| 3_000.0);
    let mut input = study(&[("default", &usual), ("mmap-8", &slow), ("threads-2", &slowest)]);
    assert!(line(&input).contains("Your default is the fastest measured here"), "{}", line(&input));
    input.records.retain(|r| r.key.arm != "threads-2" || r.key.block < 4);
    let text = line(&input);
    assert!(text.contains("No plan is shown to be faster than your default"), "{text}");
}
