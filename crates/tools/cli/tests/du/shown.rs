//! Output: tree views, documents, exports, comparisons, treemaps. Snapshots are made from an import
//! and so do not depend on a file system.

use crate::place::{Du, Workspace, fresh};
use serde_json::Value;

const EXPORT: &str = r#"[1,2,{"progname":"ncdu","progver":"2.5","timestamp":1700000000},
[{"name":"/srv/data","asize":4096,"dsize":4096,"dev":65024},
 [{"name":"photos","asize":4096,"dsize":4096},
  {"name":"big.raw","asize":41943040,"dsize":41943040},
  {"name":"linked.raw","asize":10485760,"dsize":10485760,"ino":7,"hlnkc":true,"nlink":2},
  [{"name":"2023 – 여름","asize":4096,"dsize":4096},
   {"name":"a.jpg","asize":5000000,"dsize":5001216}]],
 [{"name":"backup","asize":4096,"dsize":4096},
  {"name":"linked.raw","asize":10485760,"dsize":10485760,"ino":7,"hlnkc":true,"nlink":2},
  {"name":"hole","asize":104857600,"dsize":8192}],
 [{"name":"locked","asize":4096,"dsize":4096,"read_error":true}],
 [{"name":"empty\n\u001b[31m","asize":4096,"dsize":4096}],
 {"name":"notes.txt","asize":120,"dsize":4096}]]
"#;

fn imported() -> Workspace {
    let place = fresh();
    place.write("x.json", EXPORT);
    place
}

#[test]
fn help_matches_its_snapshot() {
    insta::assert_snapshot!("help", fresh().du(&["--help"]).ended(0).text());
}

#[test]
fn the_tree_view_matches_its_snapshot_and_fits() {
    let place = imported();
    for (name, args) in [
        ("picture", &["--tree"][..]),
        ("picture-all", &["--tree", "--all", "--top", "4"]),
        ("picture-inodes", &["--tree", "--inodes", "-d1"]),
    ] {
        let ran = place.du(&[args, &["--import", "x.json"]].concat()).ended(1);
        let text = ran.text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!text.contains('\x1b'), "{text:?}");
        insta::assert_snapshot!(name, text);
    }
}

#[test]
fn the_document_matches_its_snapshot_and_every_field_is_documented() {
    let place = imported();
    let ran = place.du(&["--json", "--import", "x.json"]).ended(1);
    insta::assert_snapshot!("document", ran.text());
    let json = ran.json();
    let text = include_str!("../../../../../docs/reference/json.md");
    let section = text.split("## Disk usage: `du`").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let mut parts = section.split("\n### ");
    let fields = |part: Option<&str>| -> Vec<String> {
        let lines = part.unwrap().lines();
        let mut all: Vec<String> = lines
            .filter_map(|l| l.strip_prefix("| `")?.split('`').next().map(str::to_owned))
            .collect();
        all.sort();
        all
    };
    let keys = |value: &Value| -> Vec<String> {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&json), fields(parts.next()));
    assert_eq!(keys(&json["directories"][0]), fields(parts.next()));
    place.du(&["--save", "s.json", "--import", "x.json"]).ended(1);
    let diff = place.du(&["--json", "--diff", "s.json", "s.json"]).ended(1).json();
    assert_eq!(keys(&diff), fields(parts.next()));
}

#[test]
fn lines_of_an_import_and_the_largest_of_it() {
    let place = imported();
    let lines = place.du(&["--lines", "-d0", "--import", "x.json"]).ended(1);
    assert_eq!(lines.text(), "56120\t/srv/data\n");
    let top = place.du(&["-ab", "--top", "2", "--import", "x.json"]).ended(1);
    assert_eq!(top.text(), "162311096\t/srv/data\n115347456\t/srv/data/backup\n");
    let total = place.du(&["-cd0", "--inodes", "--import", "x.json"]).ended(1);
    assert_eq!(total.text(), "11\t/srv/data\n11\ttotal\n");
}

#[test]
fn excluded_entries_of_an_import_are_listed_and_exported() {
    let place = fresh();
    let export = r#"[1,2,{},[{"name":"/srv","asize":9,"dsize":4096},
        {"name":"tmp","excluded":"pattern"},{"name":"proc","excluded":"kernfs"}]]"#;
    place.write("x.json", export);
    let ran = place.du(&["-a", "--import", "x.json"]).ended(0);
    assert_eq!(ran.text(), "4\t/srv\n");
    assert_eq!(ran.err, "ioloom: 'x.json' records 2 entries as excluded; see --json\n");
    place.du(&["--import", "x.json", "--export-ncdu", "y.json"]).ended(0);
    for file in ["x.json", "y.json"] {
        let json = place.du(&["--json", "--import", file]).ended(0).json();
        assert_eq!(
            json["excluded"],
            serde_json::json!([
                { "path": "/srv/proc", "path_hex": null, "reason": "kernfs" },
                { "path": "/srv/tmp", "path_hex": null, "reason": "pattern" },
            ])
        );
        assert_eq!(json["total"]["inodes"], 1);
    }
}

#[test]
fn scan_flags_of_an_import_and_maps_of_a_comparison_are_refused() {
    let place = imported();
    place.du(&["--save", "s.json", "--import", "x.json"]).ended(1);
    for args in [
        &["--import", "x.json", "--time"][..],
        &["--time=ctime", "--import", "x.json"],
        &["--diff", "s.json", "--svg", "map.svg", "s.json"],
        &["--import", "x.json", "--exclude=*.jpg"],
        &["--import", "x.json", "-X", "x.json"],
        &["--import", "x.json", "-x"],
        &["-L", "--import", "x.json"],
        &["-H", "--import", "x.json"],
        &["-l", "--import", "x.json"],
        &["--import", "x.json", "--method=lstat"],
        &["--import", "x.json", "--threads=1"],
    ] {
        let ran = place.du(args).ended(1);
        assert!(ran.err.contains("cannot be used with"), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.text());
    }
}

#[test]
fn an_export_imports_unchanged() {
    let place = fresh();
    place.odd_dirs("t");
    place.hard_links("t");
    place.du(&["-s", "--export-ncdu", "out.json", "t"]).ended(0);
    let direct = place.du(&["-a0", "t"]).ended(0);
    let back = place.du(&["-a0", "--import", "out.json"]).ended(0);
    assert_eq!(direct.out, back.out);
    let piped = place.du(&["--export-ncdu", "-", "t"]).ended(0);
    assert!(piped.out.starts_with(b"[1,2,{\"progname\":\"ioloom\""), "{}", piped.text());
    place.du(&["--export-ncdu", "out.json", "t", "t"]).ended(1);
    place.write("bad.json", "[1,0,{},[{\"name\":\"x\"},");
    let bad = place.du(&["--import", "bad.json"]).ended(1);
    assert!(bad.err.contains("bad.json") && bad.err.contains("byte"), "{}", bad.err);
    assert_eq!(bad.err.lines().count(), 1);
}

#[test]
fn an_export_with_each_link_counted_imports_unchanged() {
    let place = fresh();
    place.hard_links("t");
    let direct = place.du(&["-la", "t"]).ended(0);
    place.du(&["-l", "--export-ncdu", "out.json", "t"]).ended(0);
    assert_eq!(place.du(&["-a", "--import", "out.json"]).ended(0).text(), direct.text());
}

#[test]
fn the_tree_view_has_the_unit_of_the_flags_and_the_number_of_an_entry() {
    let place = fresh();
    let export = r#"[1,2,{},[{"name":"t","asize":3,"dsize":4096}]]"#;
    place.write("x.json", export);
    for (args, size) in [
        (&["-k"][..], "4 "),
        (&["-B1"], "4096 "),
        (&["--si"], "4.1k "),
        (&["-b"], "3 "),
        (&[], "4.00 KiB "),
    ] {
        let text = place.du(&[args, &["--tree", "--import", "x.json"]].concat()).ended(0).text();
        let row = text.lines().nth(1).unwrap().trim_start();
        assert!(row.starts_with(size), "{args:?}: {text}");
        assert!(text.contains("\n1 entry, "), "{text}");
    }
}

#[test]
fn one_file_for_two_outputs_is_refused() {
    let place = fresh();
    place.write("t/f", "x");
    for args in [
        &["--save", "q", "--svg", "./q"][..],
        &["--svg", "q", "--export-ncdu", "t/../q"],
        &["--save", "q", "--export-ncdu", "q"],
    ] {
        let ran = place.du(&[args, &["t"]].concat()).ended(1);
        assert!(ran.err.ends_with("name the same file\n"), "{}", ran.err);
        assert!(!place.at("q").exists());
    }
    place.du(&["--save", "/dev/null", "--svg", "/dev/null", "t"]).ended(0);
}

#[test]
fn a_file_is_not_exported() {
    let place = fresh();
    place.write("f", "x");
    let ran = place.du(&["--export-ncdu", "x.json", "f"]).ended(1);
    assert_eq!(ran.err, "ioloom: cannot export 'f': Not a directory\n");
    assert!(!place.at("x.json").exists());
}

#[test]
fn a_saved_scan_shows_what_has_grown() {
    let place = fresh();
    place.write("t/a/f", [1; 1000]);
    place.write("t/gone/f", [1; 500]);
    place.du(&["--save", "old.json", "t"]).ended(0);
    place.write("t/a/g", [1; 70_000]);
    place.write("t/new/f", [1; 300]);
    std::fs::remove_dir_all(place.at("t/gone")).unwrap();
    let text = place.du(&["-A", "--diff", "old.json", "t"]).ended(0).text();
    let row = |path: &str| {
        let line = text.lines().find(|line| line.ends_with(path));
        line.unwrap_or_else(|| panic!("{path}: {text}")).to_owned()
    };
    assert!(row(" t/a").contains("+68.4 KiB"), "{text}");
    assert!(row(" t/new").contains("new"), "{text}");
    assert!(row(" t/gone").contains("gone") && row(" t/gone").contains('-'), "{text}");
    place.du(&["--save", "new.json", "t"]).ended(0);
    let kept = place.du(&["-A", "--diff", "old.json", "new.json"]).ended(0).text();
    assert_eq!(kept, text);
    let bytes = place.du(&["-b", "--diff", "old.json", "new.json"]).ended(0).text();
    let grown = bytes.lines().find(|line| line.ends_with(" t/a")).unwrap();
    assert!(grown.trim_start().starts_with("+70") && !grown.contains("KiB"), "{bytes}");
    let ran = place.du(&["--diff", "old.json", "new.json", "--save", "third.json"]).ended(1);
    assert_eq!(ran.err, "ioloom: --save needs a scan, but 'new.json' is a saved one\n");
    assert!(!place.at("third.json").exists());
    let json = place.du(&["--json", "--diff", "old.json", "new.json"]).ended(0).json();
    assert_eq!(json["changes"].as_array().unwrap().len(), 4, "{json}");
    let args = ["--json", "--top", "1", "--diff", "old.json", "new.json"];
    let top = place.du(&args).ended(0).json();
    assert_eq!(top["changes"].as_array().unwrap()[..], json["changes"].as_array().unwrap()[..1]);
    for words in [&["-t", "1M"][..], &["--top", "1"], &["-a"]] {
        place.du(&[words, &["--save", "same.json", "t"]].concat()).ended(0);
        let args = ["--json", "--diff", "new.json", "same.json"];
        assert_eq!(place.du(&args).ended(0).json()["changes"], serde_json::json!([]), "{words:?}");
    }
    for words in [&["--top", "1"][..], &["-t", "1M"]] {
        let part = place.du(&[words, &["--json", "t"]].concat()).ended(0);
        place.write("part.json", part.text());
        for args in [["--diff", "part.json", "new.json"], ["--diff", "new.json", "part.json"]] {
            let ran = place.du(&args).ended(1);
            assert!(ran.err.contains("lists only some directories"), "{}", ran.err);
        }
    }
    place.du(&["--exclude", "g", "--save", "less.json", "t"]).ended(0);
    let ran = place.du(&["--diff", "new.json", "less.json"]).ended(1);
    assert!(ran.err.contains("--exclude; scan both"), "{}", ran.err);
    place.write("other.json", "{\"schema\":1}");
    assert_eq!(place.du(&["--diff", "other.json", "t"]).ended(1).err.lines().count(), 1);
}

#[test]
fn a_comparison_ignores_a_slash_at_the_end_and_warns_of_other_arguments() {
    let place = fresh();
    place.write("t/a/f", [1; 1000]);
    place.du(&["--save", "old.json", "t"]).ended(0);
    let ran = place.du(&["--json", "--diff", "old.json", "t/"]).ended(0);
    assert_eq!((&ran.json()["changes"], ran.err.as_str()), (&serde_json::json!([]), ""));
    let ran = place.du(&["--diff", "old.json", "./t"]).ended(0);
    let expected = "ioloom: the scans have different arguments, such as 't' and './t': every path is \
                    new or gone\n";
    assert_eq!(ran.err, expected);
}

#[test]
fn output_that_an_export_would_replace_and_files_named_minus_are_refused() {
    let place = fresh();
    place.write("t/f", "x");
    for words in [&["--json"][..], &["--tree"], &["--lines"], &["--top", "1"], &["-c"]] {
        let ran = place.du(&[words, &["--export-ncdu", "-", "t"]].concat()).ended(1);
        assert!(ran.err.contains("--export-ncdu - cannot be combined with"), "{}", ran.err);
        assert!(ran.out.is_empty(), "{words:?}");
        place.du(&[words, &["--export-ncdu", "x.json", "t"]].concat()).ended(0);
    }
    for flag in ["--save", "--svg"] {
        let ran = place.du(&[flag, "-", "t"]).ended(1);
        assert!(ran.err.contains(flag) && ran.err.contains("'./-'"), "{}", ran.err);
        assert!(ran.out.is_empty() && !place.at("-").exists());
        place.du(&[flag, "./-", "t"]).ended(0);
        std::fs::remove_file(place.at("-")).unwrap();
    }
}

#[test]
fn a_map_is_drawn() {
    let place = imported();
    place.du(&["--svg", "map.svg", "--import", "x.json"]).ended(1);
    let text = std::fs::read_to_string(place.at("map.svg")).unwrap();
    for word in ["<svg", "photos", "backup", "/srv/data", "on disk", "incomplete"] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn the_document_of_a_scan_adds_up() {
    let place = fresh();
    place.odd_dirs("t");
    place.hard_links("t");
    let json = place.du(&["--json", "-a", "t"]).ended(0).json();
    let root = &json["roots"][0];
    assert_eq!(json["total"]["disk_bytes"], root["disk_bytes"]);
    assert_eq!(json["complete"], true);
    let lines = json["directories"].as_array().unwrap();
    let first: u64 = lines
        .iter()
        .filter(|line| line["depth"] == 1)
        .map(|line| line["inodes"].as_u64().unwrap())
        .sum();
    assert_eq!(first + 1, root["inodes"].as_u64().unwrap());
    let find = |path: &str| lines.iter().find(|line| line["path"] == path).unwrap();
    assert_eq!(find("t/a")["shared_bytes"], find("t/z")["shared_bytes"]);
    assert!(find("t/a/link")["disk_bytes"].as_u64() > Some(90_000));
    // A link counted elsewhere has no line.
    assert!(!lines.iter().any(|line| line["path"] == "t/deep/er/link"));
    assert_eq!(find("t/own")["shared_bytes"], 0);
    assert!(lines.iter().any(|line| line["path_hex"].is_string()));
}
