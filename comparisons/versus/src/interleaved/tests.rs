use super::*;

struct Nothing;

impl Work for Nothing {
    const TITLE: &'static str = "Nothing";
    const PROGRAM: &'static str = "nothing";
    const SCHEMA: &'static str = "nothing-1";

    fn subject(&self) -> &Path {
        Path::new("/")
    }

    fn fill(&self, word: &str) -> String {
        word.replace("{dir}", "/")
    }
}

fn run(block: u32, arm: usize, seconds: [u64; 2], device_bytes: u64) -> Run {
    let [wall, durable] = seconds.map(|s| s * 1_000_000_000);
    Run {
        block,
        arm,
        wall_ns: wall,
        durable_ns: (durable > 0).then_some(durable),
        cpu_user_ns: wall,
        cpu_kernel_ns: 0,
        device_bytes: Some(device_bytes),
        machine_busy_ns: None,
        neighbours_ns: wall / 2,
        failure: None,
    }
}

fn set_up(condition: Condition, bytes: Option<u64>) -> Setup {
    let arms = ["one=a {dir}", "two=b"].iter();
    Setup {
        schema: "nothing-1".to_owned(),
        dir: "/".to_owned(),
        tree: String::new(),
        bytes,
        cold_bytes: None,
        warm_bytes: None,
        condition,
        blocks: 2,
        seed: 1,
        commit: "none".to_owned(),
        facts: Facts::default(),
        busy: 1,
        state: String::new(),
        arms: arms.flat_map(|arm| arms_of(&Nothing, arm, true, &[1]).unwrap()).collect(),
    }
}

#[test]
fn a_template_becomes_an_arm_for_each_number_of_threads() {
    let arms = arms_of(&Nothing, "x=p -j {threads} {dir}", false, &[1, 4]).unwrap();
    let text: Vec<_> = arms.iter().map(|a| (a.name.as_str(), a.command.join(" "))).collect();
    assert_eq!(text, [("x -j1", "p -j 1 /".to_owned()), ("x -j4", "p -j 4 /".to_owned())]);
    assert!(arms_of(&Nothing, "no command", false, &[1]).is_err());
}

#[test]
fn only_runs_that_were_cold_or_warm_count() {
    let (cold, warm) = (set_up(Condition::Cold, Some(1000)), set_up(Condition::Warm, Some(1000)));
    for (setup, read, counts) in
        [(&cold, 950, true), (&cold, 949, false), (&warm, 100, true), (&warm, 101, false)]
    {
        assert_eq!(why_not(setup, &run(0, 0, [1, 0], read), 0).is_none(), counts, "{read}");
    }
    let alone = Run { neighbours_ns: 199_999_999, ..run(0, 0, [1, 0], 950) };
    assert!(why_not(&cold, &alone, 0).is_some_and(|why| why.starts_with("not busy")));
    let shared = Setup { cold_bytes: Some(40), ..set_up(Condition::Cold, Some(1000)) };
    assert!(why_not(&shared, &run(0, 0, [1, 0], 40), 0).is_none());
    assert!(why_not(&shared, &run(0, 0, [1, 0], 39), 0).is_some());
    let blind = Run { device_bytes: None, ..run(0, 0, [1, 0], 0) };
    assert!(why_not(&cold, &blind, 0).is_some() && why_not(&warm, &blind, 0).is_none());
    let unknown = set_up(Condition::Cold, None);
    assert!(why_not(&unknown, &run(0, 0, [1, 0], 50), 100).is_none());
    assert!(why_not(&unknown, &run(0, 0, [1, 0], 49), 100).is_some());
    let walk = Setup { warm_bytes: Some(160), ..set_up(Condition::Warm, None) };
    assert!(why_not(&walk, &run(0, 0, [1, 0], 160), 0).is_none());
    assert!(why_not(&walk, &run(0, 0, [1, 0], 161), 0).is_some());
    // A run that failed says nothing about what the others must read.
    let failed = Run { failure: Some("exit 1".to_owned()), ..run(0, 0, [1, 0], 1000) };
    let blind = Run { device_bytes: None, ..run(0, 0, [1, 0], 0) };
    assert_eq!(first_read(&[failed.clone(), blind, run(0, 1, [1, 0], 100)]), 100);
    assert_eq!(first_read(&[failed]), 0);
}

#[test]
fn a_kept_result_is_complete_if_every_run_exists_and_counts() {
    let dir = tempfile::tempdir().unwrap();
    let keep = |name: &str, setup: &Setup, runs: &[Run]| {
        let out = dir.path().join(name);
        kept::claim(&out).unwrap();
        let mut raw = Raw::create(&out, "# Runs\n", setup).unwrap();
        runs.iter().for_each(|run| raw.add(run).unwrap());
        is_complete(&out)
    };
    let setup = Setup { blocks: 1, ..set_up(Condition::Warm, Some(1000)) };
    let runs = [run(0, 0, [1, 0], 0), run(0, 1, [1, 0], 0)];
    assert!(keep("whole", &setup, &runs).unwrap());
    assert!(!keep("short", &setup, &runs[..1]).unwrap());
    assert!(!keep("not warm", &setup, &[runs[0].clone(), run(0, 1, [1, 0], 101)]).unwrap());
    assert!(is_complete(&dir.path().join("missing")).is_err());
}

#[test]
fn arms_are_compared_by_the_time_until_all_was_done() {
    let setup = set_up(Condition::Warm, None);
    let runs: Vec<_> =
        (0..2).flat_map(|block| [run(block, 0, [1, 2], 0), run(block, 1, [1, 6], 0)]).collect();
    let (text, complete) = summary::<Nothing>(&setup, &runs).unwrap();
    assert!(complete);
    let row = text.lines().find(|line| line.starts_with("| two")).unwrap();
    assert!(row.contains("| 3.00 (3.00 to 3.00) | 1.00 (1.00 to 1.00) |"), "{row}");
    let (_, complete) = summary::<Nothing>(&setup, &runs[..3]).unwrap();
    assert!(!complete);
}
