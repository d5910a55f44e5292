//! Evidence and its correctness: the commands from end to end.

use crate::home::Home;

#[test]
fn the_doctor_lists_every_source_and_a_level() {
    let home = Home::new();
    let text = home.run(&["machine", "--doctor"]).well().out;
    assert!(text.contains("Evidence of where threads spend time: level"), "{text}");
    assert!(text.contains("perf.switch") && text.contains("tracefs.sched_waking"), "{text}");
    let document = home.run(&["machine", "--doctor", "--json"]).well().json();
    let sources = document["sources"].as_array().unwrap();
    assert!(document["level"].as_u64().unwrap() <= 2 && sources.len() > 10, "{document}");
    for source in sources.iter().filter(|s| s["ok"] == false) {
        assert!(source["remedy"].is_string(), "{source}");
    }
}

#[test]
fn a_small_selftest_runs_and_its_shares_add_up() {
    let home = Home::new();
    let args = "trace selftest --evidence 0 --runs 1 --length 50 --tasks 20";
    let args: Vec<&str> = args.split(' ').collect();
    let text = home.run(&args).well().out;
    assert!(text.contains("Level 0, 1 run of 50 ms"), "{text}");
    assert!(text.contains("sum to 100.000 to 100.000 %"), "{text}");
}

#[test]
fn a_grant_to_an_unknown_user_exits_with_2() {
    let home = Home::new();
    for (user, word) in [("no-such-user-here", "no user"), ("root", "without a grant")] {
        home.run(&["trace", "grant", "--user", user]).one_error(2, &[word]);
    }
}
