//! Several media in one study: a disk and memory, and a private image.

use crate::home::{Home, TINY};

#[test]
fn two_directories_hold_the_same_set_and_memory_is_never_cold() {
    let home = Home::new();
    let disk = home.path("disk").display().to_string();
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let memory = memory.path().display().to_string();
    let studies = home.studies(TINY);
    let both = ["study", "tiny", "--studies", &studies, "--on", &disk, "--on", &memory];
    home.run(&both).well();
    let records = home.records();
    let on = |medium: &str| -> Vec<_> {
        records.iter().filter(|r| r["key"]["medium"] == medium).collect()
    };
    assert!(!on(&disk).is_empty() && !on(&memory).is_empty());
    assert_eq!(on(&disk)[0]["set"]["hash"], on(&memory)[0]["set"]["hash"]);
    assert_ne!(on(&disk)[0]["set"]["medium"]["file_system"], "");
    if on(&memory)[0]["set"]["medium"]["file_system"] != "tmpfs" {
        println!("skipped: /dev/shm is not tmpfs");
        return;
    }
    for record in on(&memory) {
        assert_eq!(record["outcome"]["kind"], "refused", "{record}");
        assert!(record["outcome"]["reason"].as_str().unwrap().contains("in-memory"), "{record}");
    }
}

#[test]
fn an_image_makes_names_cold_or_is_refused_with_advice() {
    let home = Home::new();
    let studies = home.studies(TINY);
    let ran = home.run(&["study", "tiny", "--studies", &studies, "--image"]);
    if ran.code == Some(3) {
        assert!(ran.err.contains("--image: ") && ran.err.contains("remedy: "), "{}", ran.err);
        println!("skipped: {}", ran.err);
        return;
    }
    ran.well();
    let done: Vec<_> =
        home.records().into_iter().filter(|r| r["outcome"]["kind"] == "done").collect();
    assert!(!done.is_empty());
    for record in done {
        assert_eq!(record["proof"]["made_by"], "remount", "{record}");
        assert_eq!(record["proof"]["metadata"], "cold", "{record}");
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(&home.path("").display().to_string()), "{mounts}");
}
