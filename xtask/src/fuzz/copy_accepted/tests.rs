//! Each rule accepts only its own difference.

use super::*;
use crate::fuzz::copy_parents::retain_unparented;
use crate::fuzz::program::Ended;

fn snapshot(paths: &[(&str, &[(&'static str, &str)])]) -> Snapshot {
    let record = |fields: &[(&'static str, &str)]| Record {
        fields: fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
    };
    paths.iter().map(|(path, fields)| (PathBuf::from(path), record(fields))).collect()
}

fn run(err: &str, snapshot: &Snapshot) -> Run {
    (Ended { code: Some(1), out: Vec::new(), err: err.to_owned() }, snapshot.clone())
}

fn case(options: &[&str], root: bool) -> Case {
    let options = options.iter().map(|word| (*word).to_owned()).collect();
    Case { options, root, ..Case::draw(1, root) }
}

#[test]
fn a_target_that_only_ours_keeps_needs_a_reason_and_no_change() {
    const CANNOT: &str = "t/f: can make relative symbolic links only in current directory";
    let with = |text| snapshot(&[("t/f", &[("type", "file"), ("contents", text)])]);
    let (old, changed, none) = (with("1"), with("2"), Snapshot::new());
    let left = |options: &[&str], said: &str, after: &Snapshot| {
        let (system, ours) = (run(said, &none), run(said, after));
        let mut differences = compare(&none, after);
        retain_unkept(&case(options, true), &mut differences, (&system, &ours), &old);
        differences.len()
    };
    assert_eq!(left(&["-r", "-s"], CANNOT, &old), 0);
    assert_eq!(left(&["-r", "-s"], CANNOT, &changed), 1);
    assert_eq!(left(&["-r", "-s"], "", &old), 1);
    assert_eq!(left(&["-r"], CANNOT, &old), 1);
    const NO_LINK: &str = "cannot create hard link 't/f' to 'source/f'";
    assert_eq!(left(&["-r", "--link"], NO_LINK, &old), 0);
    assert_eq!(left(&["-r", "--link"], NO_LINK, &changed), 1);
    assert_eq!(left(&["-r"], NO_LINK, &old), 1);
    assert_eq!(left(&["-r", "--rem"], "", &old), 1, "root can read every source");
}

#[test]
fn a_directory_is_as_it_was_where_backups_were_moved_back() {
    let tree = |mtime| snapshot(&[("t/d", &[("type", "directory"), ("mtime", mtime)])]);
    let left = |options: &[&str], said: &str, root: bool| {
        let (system, ours) = (run(said, &tree("now")), run(said, &tree("1")));
        let mut differences = compare(&system.1, &ours.1);
        retain_unkept(&case(options, root), &mut differences, (&system, &ours), &tree("1"));
        differences.len()
    };
    let said = "cp: cannot open 'source/x' for reading: Permission denied";
    assert_eq!(left(&["-r", "-b"], said, false), 0);
    assert_eq!(left(&["-r"], said, false), 1);
    assert_eq!(left(&["-r", "-b"], "", false), 1);
    assert_eq!(left(&["-r", "-b"], said, true), 1);
}

#[test]
fn what_is_copied_into_itself_differs_only_below_the_directory_that_both_refused() {
    let tree = |names: &[&str]| {
        let link = ("t/x", &[("type", "symlink"), ("target", "\"../source/d\"")][..]);
        let plain = names.iter().map(|name| (*name, &[("type", "file")][..]));
        snapshot(&plain.chain([link]).collect::<Vec<_>>())
    };
    let left = |names: &[&str], said: [&str; 2]| {
        let [system, ours] = [run(said[0], &tree(names)), run(said[1], &tree(&[]))];
        by_result(&case(&["-r"], true), &system, &ours, false).len()
    };
    let said = "cp: cannot copy a directory, 'source', into itself, 't/x/source'";
    let other = "cp: cannot copy a directory, 'source', into itself, 't/y'";
    assert_eq!(left(&["source/d/source/f"], [said, said]), 0);
    assert_eq!(left(&["source/d/f"], [said, said]), 1, "outside of it");
    assert_eq!(left(&["source/d/source/f"], [other, said]), 0, "one found it later");
    assert_eq!(left(&["source/d/source/f"], [other, other]), 1);
    assert_eq!(left(&["source/d/source/f"], [said, ""]), 1);
    let quoted = "cp: cannot copy a directory, \"it's\", into itself, \"t/it's\"";
    assert_eq!(left(&["t/it's/f"], [quoted, quoted]), 0);
}

#[test]
fn a_newer_target_is_kept_only_where_the_other_one_replaced_it() {
    let file = |text, links| [("type", "file"), ("contents", text), ("links", links)];
    let old = snapshot(&[("t/a", &file("1", "")[..2]), ("t/b", &file("2", "")[..2])]);
    let linked = |text| snapshot(&[("t/a", &file("1", "a = b")), ("t/b", &file(text, "a = b"))]);
    let left = |options: &[&str], system: &Snapshot, ours: &Snapshot| {
        let mut differences = compare(system, ours);
        let (system, ours) = (run("", system), run("", ours));
        retain_unkept(&case(options, true), &mut differences, (&system, &ours), &old);
        differences.len()
    };
    assert_eq!(left(&["-r", "-u"], &linked("1"), &old), 0);
    assert_ne!(left(&["-a", "-u"], &linked("1"), &old), 0, "links are preserved");
    assert_ne!(left(&["-r"], &linked("1"), &old), 0);
    assert_ne!(left(&["-r", "-u"], &linked("3"), &old), 0, "a file from elsewhere");
}

#[test]
fn only_user_attributes_of_the_source_can_be_more_than_the_system_sets() {
    let tree = |attributes: &str| {
        snapshot(&[
            ("t/d", &[("type", "directory"), ("attributes", attributes)]),
            ("source/d", &[("type", "directory"), ("attributes", "user.a=01")]),
        ])
    };
    let left = |ours: &str, said: &str, root: bool| {
        let system = run(said, &tree("system.posix_acl_default=02"));
        let ours = run(said, &tree(ours));
        by_result(&case(&["-a"], root), &system, &ours, false).len()
    };
    let times = "preserving times for 't/d'";
    let both = "system.posix_acl_default=02 user.a=01";
    assert_eq!(left(both, times, false), 0);
    assert_eq!(left(both, "", false), 1);
    assert_eq!(left(both, times, true), 1);
    assert_eq!(left("user.a=01", times, false), 1, "the access list is lost");
    assert_eq!(left("system.posix_acl_default=02 user.b=01", times, false), 1);
}

#[test]
fn links_of_a_directory_that_gnu_does_not_enter_are_accepted_if_they_are_copies() {
    const EXISTS: &str = "cp: cannot create directory 't/source/.': File exists";
    let drawn = case(&["-r", "-l", "--parents"], true);
    let case = Case { operands: vec!["source/.".into(), "t".into()], ..drawn };
    let mut all = 1..case.source.entries.len();
    let is_file = |index: &usize| {
        case.source.original(*index) == *index && !case.is_directory(&case.source.path(*index))
    };
    let index = all.find(is_file).expect("the drawn tree has a file");
    let from = case.source.path(index).display().to_string();
    let copy = format!("t/{from}");
    let left = |options: &[&str], copy: &str| {
        let theirs = snapshot(&[(&from, &[("type", "file"), ("links", "")])]);
        let linked = [("type", "file"), ("links", "both")];
        let ours = snapshot(&[(&from, &linked), (copy, &linked)]);
        let mut differences = compare(&theirs, &ours);
        differences.retain(|difference| difference.path == *from);
        let options = options.iter().map(|word| (*word).to_owned()).collect();
        let case = Case { options, ..case.clone() };
        let (system, ours) = (run(EXISTS, &theirs), run("", &ours));
        retain_unparented(&case, &mut differences, (&system, &ours));
        differences.len()
    };
    assert_eq!(left(&["-r", "-l", "--parents"], &copy), 0);
    assert_eq!(left(&["-r", "--parents"], &copy), 1, "no links were asked for");
    assert_eq!(left(&["-r", "-l", "--parents"], "t/other"), 1, "a name that is not a copy");
}

#[test]
fn a_copy_whose_other_name_gnu_does_not_make_may_have_no_link_to_it() {
    const EXISTS: &str = "cp: cannot create directory 't/source': File exists";
    // It has the operands source/it's30, source and t.
    let case = Case::draw(20_270_197, true);
    let (first, second) = ("t/source/it's30", "t/source/plain42/ space 79");
    let linked = [("type", "file"), ("links", "both")];
    let left = |said: &str, theirs: &Snapshot, other: &str| {
        let ours = snapshot(&[(first, &linked), (other, &linked)]);
        let mut differences = compare(theirs, &ours);
        differences.retain(|difference| *difference.path == *first);
        retain_unparented(&case, &mut differences, (&run(said, theirs), &run("", &ours)));
        differences.len()
    };
    let alone = [("type", "file"), ("links", "")];
    let without = snapshot(&[(first, &alone)]);
    assert_eq!(left(EXISTS, &without, second), 0);
    assert_eq!(left("", &without, second), 1, "GNU's has not failed");
    assert_eq!(left(EXISTS, &without, "t/other"), 1, "a name that is not a copy");
    let apart = snapshot(&[(first, &alone), (second, &alone)]);
    assert_eq!(left(EXISTS, &apart, second), 1, "GNU's has made both");
}

#[test]
fn names_in_messages_are_read_as_the_shell_would() {
    for (text, name) in [
        ("'t/a b'", "t/a b"),
        (r"'t/'$'\303\251''51'", "t/é51"),
        (r"'new'$'\n''line27'", "new\nline27"),
        (r"'a\b'", r"a\b"),
    ] {
        assert_eq!(unquoted(text), Some(PathBuf::from(name)), "{text}");
    }
    assert_eq!(unquoted("'a"), None);
    assert_eq!(unquoted("a'"), None);
}

/// Goal: only what GNU's does with directories above sources is accepted. Method: one difference each, with
/// and without what explains it.
#[test]
fn times_above_a_source_may_differ_only_where_gnu_sets_them_once() {
    let accepted = |options: &[&str], sources: &[&str], path: &str, field, values: (&str, &str)| {
        let operands = sources.iter().chain(&["t"]).map(PathBuf::from).collect();
        let case = Case { operands, target: None, ..case(options, true) };
        let none = run("", &Snapshot::new());
        let (theirs, ours) = (values.0.to_owned(), values.1.to_owned());
        let difference = Difference { path: path.into(), field, theirs, ours };
        parents::accepts(&case, &difference, &none, &none)
    };
    let (options, two) = (["-a", "--parents"], ["source/a", "source/b"]);
    assert!(accepted(&options, &two, "t/source", "mtime", ("now", "1.0")));
    assert!(!accepted(&["-a"], &two, "t/source", "mtime", ("now", "1.0")));
    assert!(!accepted(&options, &two[..1], "t/source", "mtime", ("now", "1.0")));
    assert!(!accepted(&options, &two, "t/source", "mtime", ("1.0", "now")), "ours made it");
    assert!(!accepted(&options, &two, "t/source/a", "mtime", ("now", "1.0")));
    assert!(!accepted(&options, &two, "t/source", "mode", ("755", "777")));
    assert!(!accepted(&options, &two, "t/source", "entry", ("directory", "absent")));
}

#[test]
fn a_directory_above_a_closed_one_is_open_to_its_owner_only_in_gnus_copy() {
    const SAID: &str = "cp: failed to get attributes of 'source/d/e': Permission denied";
    let accepted = |said: &str, root: bool, values: (&str, &str)| {
        let operands = ["source/d/e/f", "t"].map(PathBuf::from).to_vec();
        let case = Case { operands, target: None, ..case(&["-dR", "--parents"], root) };
        let both = run(said, &Snapshot::new());
        let (theirs, ours) = (values.0.to_owned(), values.1.to_owned());
        let difference = Difference { path: "t/source/d".into(), field: "mode", theirs, ours };
        parents::accepts(&case, &difference, &both, &both)
    };
    assert!(accepted(SAID, false, ("700", "200")));
    assert!(!accepted(SAID, true, ("700", "200")), "root can reach every source");
    assert!(!accepted(SAID, false, ("200", "700")));
    assert!(!accepted("", false, ("700", "200")));
}

#[test]
fn only_the_directory_that_gnus_could_not_create_has_another_inherited_acl() {
    let tree = |mode: &str, acl: &str| {
        let attributes = format!("system.posix_acl_access={acl} system.posix_acl_default=1");
        let fields = [("type", "directory"), ("mode", mode), ("attributes", &attributes)];
        snapshot(&[("t/source/source", &fields)])
    };
    let left = |said: &str, [theirs, ours]: [&str; 2]| {
        let (system, ours) = (run(said, &tree(theirs, "7")), run("", &tree(ours, "5")));
        let mut differences = compare(&system.1, &ours.1);
        let case = case(&["-rP", "--parents"], true);
        retain_unparented(&case, &mut differences, (&system, &ours));
        differences.len()
    };
    let said = "cp: cannot create directory 't/source/source/.': File exists";
    let other = "cp: cannot create directory 't/source/other/.': File exists";
    assert_eq!(left(said, ["774", "754"]), 0);
    assert_eq!(left(said, ["754", "774"]), 1, "ours gives more");
    assert_eq!(left(other, ["774", "754"]), 2);
}

#[test]
fn a_time_that_cannot_be_restored_is_that_of_the_directory_in_the_message() {
    let tree = |mtime| snapshot(&[("t/d", &[("type", "directory"), ("mtime", mtime)])]);
    let is_accepted = |said: &str| {
        let difference = compare(&tree("1"), &tree("now")).remove(0);
        changed_and_forbidden(&difference, &run(said, &tree("now")))
    };
    assert!(is_accepted("ioloom: preserving times for 't/./d': Operation not permitted"));
    assert!(!is_accepted("ioloom: preserving times for 't/d/e': Operation not permitted"));
}
