//! System settings are changed only on request, and restored even if the program is killed.

use crate::home::{Home, TINY};
use std::process::Stdio;
use std::time::{Duration, Instant};

const SETTING: &str = "/proc/sys/vm/dirty_expire_centisecs";

fn now() -> u64 {
    std::fs::read_to_string(SETTING).unwrap().trim().parse().unwrap()
}

/// A study in which one arm changes the maximum age of dirty pages, too little to affect other
/// programs.
fn changing(home: &Home, wanted: u64) -> String {
    let text = TINY.replace("headline = true", "headline = true\nsettings = { SETTING = VALUE }");
    let text = text.replace("SETTING", "dirty_expire_centisecs");
    home.studies(&text.replace("VALUE", &wanted.to_string()))
}

/// A single test, because both halves use the same system-wide setting.
#[test]
fn settings_are_changed_only_on_request_and_put_back_after_a_kill() {
    let usual = now();
    without_permission(usual);
    killed(usual);
}

fn without_permission(usual: u64) {
    let home = Home::new();
    let dir = changing(&home, usual + 1);
    let ran = home.run(&["study", "tiny", "--studies", &dir, "--json"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("no run succeeded: all were refused"), "{}", ran.err);
    let json = ran.json();
    let study = &json["studies"][0];
    assert_eq!((&study["runs_done"], &study["runs_failed"]), (&0.into(), &0.into()));
    assert_eq!(study["runs_refused"], study["runs"]);
    for record in home.records() {
        assert_eq!(record["outcome"]["kind"], "refused", "{record}");
        let reason = record["outcome"]["reason"].as_str().unwrap();
        assert!(reason.contains("dirty_expire_centisecs"), "{reason}");
        assert!(reason.contains("allow it with --allow-sysctl as root"), "{reason}");
    }
    assert_eq!(now(), usual);
    let wrong = home.studies(&TINY.replace("headline = true", "settings = { drop_caches = 3 }"));
    let ran = home.run(&["study", "tiny", "--studies", &wrong]);
    ran.one_error(2, &["invalid setting 'drop_caches'", "dirty_bytes"]);
}

fn killed(usual: u64) {
    if std::fs::OpenOptions::new().write(true).open(SETTING).is_err() {
        println!("skipped: {SETTING} is not writable here");
        return;
    }
    let home = Home::new();
    let dir = changing(&home, usual + 1);
    let args = ["study", "tiny", "--studies", &dir, "--allow-sysctl", "--blocks", "500"];
    let args = args.map(str::to_owned).to_vec();
    let mut command = home.command(&args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let since = Instant::now();
    while now() == usual {
        assert!(since.elapsed() < Duration::from_secs(120), "the setting was not changed");
        assert!(child.try_wait().unwrap().is_none(), "the study exited too early");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let since = Instant::now();
    while now() != usual {
        assert!(since.elapsed() < Duration::from_secs(120), "the setting was not restored");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Runs that finished normally had also restored it.
    let done = home.records().iter().filter(|r| r["outcome"]["kind"] == "done").count();
    let refused = home.records().len() - done;
    assert_eq!(refused, 0, "{:?}", home.records().last());
}
