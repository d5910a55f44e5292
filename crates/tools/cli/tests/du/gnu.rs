//! Compares the lines with those of GNU du for the same flags.

use crate::place::{Du, Workspace, fresh, gnu_is_there, in_memory};
use ioloom_sys::dir::Dir;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Flags that affect totals, tested in all pairs.
const SUMS: [&str; 3] = ["-s", "-sb", "-s --inodes"];
const HOW: [&str; 6] = ["", "-x", "-L", "-l", "-lx", "-D"];

fn all_totals(place: &Workspace, root: &str) {
    for sum in SUMS {
        for how in HOW {
            let args: Vec<&str> =
                sum.split(' ').chain(how.split_whitespace()).chain([root]).collect();
            place.same(&args);
        }
    }
}

#[test]
fn totals_match_gnu_du_on_disk_and_in_memory() {
    if !gnu_is_there() {
        return;
    }
    let mut places = vec![fresh()];
    match in_memory() {
        Some(place) => places.push(place),
        None => println!("skipped: no /dev/shm here"),
    }
    for place in places {
        place.odd_dirs("t");
        place.hard_links("t");
        all_totals(&place, "t");
        all_totals(&place, "t/");
        all_totals(&place, "t/link");
        all_totals(&place, "t/again/");
    }
}

#[test]
fn lines_match_gnu_du() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    place.odd_dirs("t");
    for args in [
        &["-0", "t"][..],
        &["-a0", "t"],
        &["-a0b", "t"],
        &["-0", "-d1", "t"],
        &["-a0", "-d2", "t"],
        &["-h0", "t"],
        &["--si", "-0", "t"],
        &["-0", "-B", "1M", "t"],
        &["-0", "-B", "K", "t"],
        &["-0m", "t"],
        &["-0k", "--apparent-size", "t"],
        &["-0", "--inodes", "t"],
        &["-0S", "t"],
        &["-a0S", "t"],
        &["-0S", "-d1", "t"],
        &["-sS0", "t"],
        &["-c0S", "--inodes", "t"],
        &["-b0S", "-t", "9000", "t"],
        &["-c0", "t", "t/deep"],
        &["-c0", "t/deep", "t"],
        &["-sc0", "t/plain", "t", "t/deep/hole"],
        &["-0", "t", "t"],
        &["-0l", "t", "t"],
        &["-a0", "-t", "8K", "t"],
        &["-a0", "-t", "-8K", "t"],
        &["-0", "-t", "3", "--inodes", "t"],
        &["-0", "-Ld0", "t", "t/deep"],
    ] {
        place.same(args);
    }
    for args in [
        &["-0", "--time", "--time-style=full-iso", "t"][..],
        &["-a0", "--time=ctime", "--time-style=+%s", "t"],
        &["-S0", "--time=status", "t"],
        &["-s0c", "--time", "t/deep", "t"],
        &["-0b", "--si", "-h", "-k", "t"],
        &["-0", "--max=1", "--app", "--th=4K", "t"],
        &["-0", "-LP", "t/link"],
        &["-0", "t", "-s"],
        &["-0", "--", "t"],
    ] {
        place.same(args);
    }
    place.write("list", "t/deep\0t\0t/plain\0");
    place.same(&["-0", "--files0-from=list"]);
}

#[test]
fn patterns_exclude_what_gnu_du_excludes() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    place.odd_dirs("t");
    for pattern in [
        "plain",
        "*in*",
        "d*",
        "deep/er",
        "t/deep",
        "t",
        "*/est",
        "e?t",
        "[a-p]*",
        "[!a-p]*",
        "*\n*",
        "er/*/big",
        "*",
        "\\*",
        "[[:alpha:]]*",
        "./t",
        "deep/",
        "*r*g",
        "?",
        "",
        "[[.d.]]*",
        "[[=p=]]*",
        "[[.d.]-p]*",
        "*[[:foo:]]*",
        "/plain",
        "/p*",
    ] {
        for root in ["t", "t/", "./t", "t//deep", "t//plain"] {
            place.same(&["-a0", &format!("--exclude={pattern}"), root]);
        }
    }
    place.write("patterns", "plain  \n\n \t\nhole\n");
    place.same(&["-a0", "-X", "patterns", "t"]);
}

#[test]
fn sums_that_do_not_fit_and_years_of_five_digits_are_shown_as_in_gnu_du() {
    if !gnu_is_there() {
        return;
    }
    let Some(place) = in_memory() else { return println!("skipped: no /dev/shm here") };
    fs::create_dir(place.at("t")).unwrap();
    for name in ["a", "b", "c"] {
        let file = fs::File::create(place.at("t").join(name)).unwrap();
        if file.set_len(i64::MAX as u64).is_err() {
            return println!("skipped: no such large files here");
        }
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(253_405_152_000);
        file.set_modified(time).unwrap();
    }
    for args in
        [&["-b0", "t"][..], &["-bcah0", "t"], &["-bS0", "t"], &["-bc0", "t/a", "t/b", "t/c"]]
    {
        place.same(args);
    }
    for style in ["full-iso", "long-iso", "+%G-%V %F %c"] {
        place.same(&["-a0", "--time", "--time-style", style, "t"]);
    }
    let shown = place.du(&["-b", "--time", "t"]).ended(0).text();
    assert!(shown.starts_with("Infinity\t10000-02-0"), "{shown}");
}

#[test]
fn a_path_of_5000_directories_is_counted() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    fs::create_dir(place.at("t")).unwrap();
    let mut at = Dir::open(&place.at("t")).unwrap();
    for _ in 0..5000 {
        at.make_dir_at(b"d").unwrap();
        at = at.open_at(b"d").unwrap();
    }
    at.create_at(b"end").unwrap().write(&[1; 5000]).unwrap();
    drop(at);
    for sum in SUMS {
        for how in ["-k", "-x", "-l"] {
            let args: Vec<&str> = sum.split(' ').chain([how, "-d0", "t"]).collect();
            place.same(&args);
        }
        // When following links, GNU du fails at paths of 4096 bytes.
        let sum_of =
            |how: &str| place.du(&[sum, how, "t"].join(" ").split(' ').collect::<Vec<_>>());
        assert_eq!(sum_of("-L").ended(0).out, sum_of("-x").ended(0).out);
    }
    place.same(&["-0", "t"]);
    let json = place.du(&["--json", "t"]).ended(0).json();
    assert_eq!(json["directories"].as_array().unwrap().len(), 5000);
    assert_eq!(place.du(&["--tree", "--top", "9000", "t"]).ended(0).text().lines().count(), 5003);
    let removed = std::process::Command::new("rm").arg("-rf").arg(place.at("t")).status().unwrap();
    assert!(removed.success());
}

#[test]
fn unreadable_entries_are_reported_and_the_rest_is_counted() {
    let place = fresh();
    place.odd_dirs("t");
    place.write("t/closed/inside", "x");
    place.write("t/blind/inside", "x");
    let mode = |name: &str, mode| {
        fs::set_permissions(place.at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    // One directory cannot be opened; the other can be listed, but its entries cannot be statted.
    mode("t/closed", 0o000);
    mode("t/blind", 0o444);
    let place = place.for_nobody();
    if gnu_is_there() {
        all_totals_as_nobody(&place);
    }
    let ran = place.du(&["-s", "t"]).ended(1);
    for name in ["t/closed", "t/blind/inside"] {
        assert!(ran.err.contains(name), "{}", ran.err);
    }
    assert!(ran.err.to_lowercase().contains("permission denied"), "{}", ran.err);
    let json = place.du(&["--json", "t"]).ended(1).json();
    assert_eq!((&json["complete"], &json["errors"]), (&false.into(), &2.into()));
    let closed = json["directories"].as_array().unwrap().iter().find(|d| d["path"] == "t/closed");
    assert_eq!(closed.unwrap()["unreadable"], true);
    let picture = place.du(&["--tree", "t"]).ended(1).text();
    assert!(picture.contains("INCOMPLETE: 2 paths"), "{picture}");
    for name in ["t/closed", "t/blind"] {
        fs::set_permissions(place.at(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn all_totals_as_nobody(place: &Workspace) {
    for sum in SUMS {
        for how in ["", "-x", "-L", "-l"] {
            let args: Vec<&str> =
                sum.split(' ').chain(how.split_whitespace()).chain(["t"]).collect();
            place.same(&args);
        }
    }
    place.same(&["-0", "t"]);
}

#[test]
fn every_method_and_number_of_threads_prints_the_same() {
    let place = fresh();
    place.odd_dirs("t");
    place.hard_links("t");
    for args in [&["-a0"][..], &["-s"], &["-d1"], &["-sL"]] {
        let first = place.du(&[args, &["--threads", "1", "t"]].concat());
        for method in ["statx", "lstat", "sweep", "uring"] {
            for threads in ["1", "2", "3", "16", "256", "auto"] {
                let how = ["--method", method, "--threads", threads, "t"];
                let ran = place.du(&[args, &how].concat());
                if ran.code == Some(1) && ran.err.contains("ring") {
                    println!("skipped: no {method} here");
                    break;
                }
                assert_eq!((&ran.out, ran.code), (&first.out, first.code), "{how:?} {}", ran.err);
            }
        }
    }
}

#[test]
fn times_are_in_the_zone_of_the_variable_or_of_the_system() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    place.write("f", "");
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    fs::File::open(place.at("f")).unwrap().set_modified(old).unwrap();
    let args = ["--time", "--time-style=+%F %T %z", "f"];
    let zones = ["Europe/Prague", ":America/New_York", "Asia/Kolkata", "Nonsense/X", "FOO-5", ""];
    for zone in zones.into_iter().map(Some).chain([None]) {
        let out = |mut command: std::process::Command| {
            match zone {
                Some(zone) => command.env("TZ", zone),
                None => command.env_remove("TZ"),
            };
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        let mut gnu = place.command("du");
        gnu.args(args);
        assert_eq!(out(place.our_command(&args)), out(gnu), "{zone:?}");
    }
    if !std::path::Path::new("/usr/share/zoneinfo/Europe/Prague").exists() {
        println!("skipped in part: no time zones are installed");
    }
}

#[test]
fn a_total_is_not_older_than_1970() {
    if !gnu_is_there() {
        return;
    }
    let place = fresh();
    place.write("f", "");
    let old = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1_000_000);
    fs::File::open(place.at("f")).unwrap().set_modified(old).unwrap();
    for args in [&["-c", "--time", "f"][..], &["-c", "--time", "--files0-from=/dev/null"]] {
        place.same(args);
    }
}
