//! Each kind of error must give one clear message and the correct exit code.

use crate::home::{Home, TINY};

#[test]
fn a_wrong_study_or_ledger_names_file_and_line_and_exits_with_2() {
    let home = Home::new();
    for (from, to, word) in [
        ("title = \"A small question\"", "title = A", "line 3"),
        ("read/threads", "reed/threads", "reed"),
        ("xxh3", "sha9", "sha9"),
        ("4KiB", "4XiB", "4XiB"),
        ("blocks_quick = 3", "blocks_quick = 0", "block"),
    ] {
        assert!(TINY.contains(from), "{from}");
        let studies = home.studies(&TINY.replace(from, to));
        let ran = home.run(&["study", "--studies", &studies]);
        ran.one_error(2, &["tiny.toml", "line ", word]);
    }
    let studies = home.studies(TINY);
    home.run(&["study", "tinny", "--studies", &studies]).one_error(2, &["tinny", "tiny"]);
    let args = ["study", "--studies", &studies, "--experiment", "three"];
    home.run(&args).one_error(2, &["three", "two"]);
    let args = ["study", "tiny", "--studies", &studies, "--blocks", "4294967295"];
    home.run(&args).one_error(2, &["study tiny has 12884901885 runs", "use fewer blocks"]);
    home.run(&["study", "--budget", "soon"]).one_error(2, &["soon"]);
    std::fs::create_dir(home.path("ledger")).unwrap();
    std::fs::write(home.path("ledger/x.toml"), "[[claim]]\nid = 7\n").unwrap();
    home.run(&["claims", "--claims", "ledger"]).one_error(2, &["x.toml", "line 2"]);
    home.run(&["claims", "--source", "1", "000-P01"]).one_error(2, &["000-P01 is of source 0"]);
}

#[test]
fn missing_or_unreadable_files_exit_with_1() {
    let home = Home::new();
    for args in [
        &["study", "--files", "missing"][..],
        &["study", "--studies", "missing"],
        &["study", "missing.toml"],
        &["study", "--claims", "missing"],
        &["claims", "--store", "missing"],
        &["report", "--store", "missing"],
        &["report", "--studies", "missing"],
        &["compare", "a", "b", "--studies", "missing"],
        &["machine", "--root", "missing"],
        &["clean", "--dir", "missing"],
    ] {
        home.run(args).one_error(1, &["missing"]);
    }
    home.run(&["report"]).one_error(1, &["ioloom study"]);
    home.run(&["results", "list"]).one_error(1, &["no results"]);
}

#[cfg(not(feature = "objects"))]
#[test]
fn builds_without_object_storage_refuse_urls_and_say_how_to_build_it() {
    let home = Home::new();
    for (args, code) in [
        (&["each", "s3://b/x"][..], 3),
        (&["each", "--per-file", "file", "gs://b"], 3),
        (&["du", "s3://b/x"], 1),
        (&["cp", "-r", "s3://b/x", "new"], 1),
        (&["cp", "file", "s3://b/x"], 1),
    ] {
        let words =
            ["cannot open '", "no object storage", "rebuild with the cargo feature 'objects'"];
        home.run(args).one_error(code, &words);
    }
    assert!(!home.path("new").exists());
}

#[cfg(not(feature = "exchange"))]
#[test]
fn builds_without_the_exchange_refuse_to_probe_it() {
    let home = Home::new();
    let words = ["no stock exchange", "rebuild with the cargo feature 'exchange'"];
    home.run(&["predict", "--calibrate", "--exchange"]).one_error(3, &words);
}

#[test]
fn an_empty_store_says_how_to_fill_it() {
    let home = Home::new();
    std::fs::create_dir_all(home.store().join("sessions")).unwrap();
    home.run(&["report", "latest"]).one_error(1, &["no results"]);
    home.run(&["compare", "a", "b"]).one_error(1, &["no results"]);
    // Another study is not the remedy if a session is there.
    let newer = "{\"session\":{\"schema\":99}}\n";
    std::fs::write(home.store().join("sessions/t-20261101T000000Z.jsonl"), newer).unwrap();
    for args in ["report latest", "results show latest", "compare a b"] {
        let ran = home.run(&args.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("can be read") && ran.err.contains("99"), "{}", ran.err);
        assert!(!ran.err.contains("ioloom study"), "{}", ran.err);
    }
}

#[test]
fn too_little_space_is_refused_with_3_before_anything_is_made() {
    let home = Home::new();
    let text =
        TINY.replace("count = 40", "count = 4").replace("exp(mean=4KiB,min=1,max=64KiB)", "512TiB");
    let studies = home.studies(&text);
    let ran = home.run(&["study", "--studies", &studies]);
    ran.one_error(3, &["not enough space", "--dir", "ioloom clean"]);
    assert!(!home.path("cache/ioloom/sets").exists());
    assert!(home.lines().is_empty());
}

#[test]
fn without_a_home_one_error_names_the_flag() {
    let home = Home::new();
    let without = |args: &[&str]| {
        let mut command = home.command(args);
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env_remove("XDG_DATA_HOME");
        crate::home::Ran::from(command.output().unwrap())
    };
    without(&["study"]).one_error(2, &["HOME", "--dir DIR"]);
    without(&["study", "--dir", "d"]).one_error(2, &["HOME", "--store DIR"]);
    without(&["clean"]).one_error(2, &["--dir DIR"]);
    let mut relative = home.command(&["clean"]);
    relative.env("HOME", "home").env("XDG_CACHE_HOME", "cache");
    let ran = crate::home::Ran::from(relative.output().unwrap());
    ran.one_error(2, &["neither HOME nor XDG_CACHE_HOME is an absolute path", "--dir DIR"]);
    without(&["machine"]).well();
}

#[test]
fn a_group_without_a_command_names_its_commands() {
    let home = Home::new();
    for (group, commands) in [
        ("cache", "status, drop or warm"),
        ("fileset", "create, verify or remove"),
        ("results", "list, show, keep or index"),
        ("shard", "plan, merge, status, submit or watch"),
        ("trace", "show, export, compare, grant, revoke or selftest"),
        #[cfg(feature = "exchange")]
        ("store", "verify, inspect, backup or export"),
    ] {
        let ran = home.run(&[group]);
        let message =
            format!("ioloom {group} needs a command: {commands}; see 'ioloom {group} --help'");
        ran.one_error(2, &[&message]);
        assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    }
    let ran = home.run::<&str>(&[]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("Usage: ioloom") && !ran.err.contains("ioloom: "), "{}", ran.err);
}

#[test]
fn a_wrong_number_names_the_right_ones() {
    let home = Home::new();
    for (args, code, message) in [
        (&["study", "--blocks", "x"][..], 2, "'x' for --blocks: must be a whole number"),
        (&["study", "--blocks", "0"], 2, "'0' for --blocks: must be at least 1"),
        (&["predict", "files", "--threads", "0"], 2, "'0' for --threads: must be 1 to 8192"),
        (&["du", "--top", "x"], 1, "'x' for --top: must be a whole number"),
    ] {
        home.run(args).one_error(code, &[message]);
    }
}

#[test]
fn a_file_named_minus_is_refused_and_a_missing_directory_not_created() {
    let home = Home::new();
    for args in [
        &["machine", "--svg", "-"][..],
        &["memory", "--last", "--svg", "-"],
        &["cache", "status", "--svg", "-", "."],
        &["each", ".", "--trace", "-"],
        &["watch", "-o", "-", "--", "true"],
        &["watch", "--html", "-", "--", "true"],
        &["compare", "latest-1", "latest", "--html", "-"],
        &["predict", "files", "--device", "nvme", "--files", "10k", "--timeline", "-"],
        &["shard", "merge", "plan", "parts", "--report", "-"],
    ] {
        home.run(args).one_error(2, &["does not write to standard output", "'./-'"]);
        assert!(!home.path("-").exists(), "{args:?}");
    }
    for args in [
        &["machine", "--svg", "new/out"][..],
        &["cache", "status", "--svg", "new/out", "."],
        &["watch", "--html", "new/out", "--", "true"],
        &["watch", "--json", "new/out", "--", "true"],
    ] {
        home.run(args).one_error(1, &["'new/out'", "create the directory 'new' first"]);
        assert!(!home.path("new").exists(), "{args:?}");
    }
}

#[test]
fn an_unknown_flag_exits_with_2() {
    let home = Home::new();
    for args in [&["study", "--quik"][..], &["nonsense"], &["study", "--quick", "--full"]] {
        let ran = home.run(args);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("Usage"), "{}", ran.err);
    }
}
