use super::*;
use crate::Measure;
use proptest::prelude::*;

fn read(text: &[u8]) -> Result<Tree, ImportError> {
    // With a tiny buffer, every token crosses a buffer boundary.
    let read = import(&mut io::BufReader::with_capacity(3, text), Limits::default());
    read.map(|imported| imported.tree)
}

fn written(tree: &Tree) -> Vec<u8> {
    let mut out = Vec::new();
    export(tree, ("ioloom", "0"), 7, false, &mut out).unwrap();
    out
}

const REAL: &[u8] = b"[1,0,{\"progname\":\"ncdu\",\"progver\":\"1.18\",\"timestamp\":1},\n\
    [{\"name\":\"/t\",\"asize\":4096,\"dsize\":4096,\"dev\":65024},\n\
    {\"name\":\"a\\u0041\\\"\xff\",\"asize\":10,\"dsize\":4096,\"ino\":5,\"hlnkc\":true,\"nlink\":3},\n\
    {\"name\":\"gone\",\"excluded\":\"pattern\"},\n\
    [{\"name\":\"sub\",\"asize\":4096,\"dsize\":4096,\"read_error\":true,\"extra\":[{},[1,-2.5e3]]},\n\
    {\"name\":\"b\",\"asize\":10,\"dsize\":4096,\"ino\":5,\"hlnkc\":true,\"nlink\":3}]]]\n";

#[test]
fn ncdu_exports_are_read() {
    let tree = read(REAL).unwrap();
    let total = tree.root().total;
    assert_eq!((total.apparent_bytes, total.disk_bytes, total.inodes), (8202, 12288, 3));
    assert_eq!(tree.root().shared_bytes, 4096, "a third link is elsewhere");
    let parts = b"[1,0,{},[{\"name\":\"x\",\"asize\":7.25,\"mtime\":-99999999999999999999.5}]]";
    assert_eq!(read(parts).unwrap().root().total.apparent_bytes, 7);
    assert_eq!(tree.name(1), b"aA\"\xff");
    assert!(tree.nodes()[3].unreadable);
    assert_eq!(tree.nodes()[3].total.by(Measure::Disk), 4096, "the first path is charged");
    assert_eq!(written(&tree), written(&read(&written(&tree)).unwrap()));
}

#[test]
fn excluded_entries_are_kept_with_their_reasons_and_do_not_count() {
    let text = b"[1,2,{},[{\"name\":\"r\",\"asize\":1,\"dsize\":512,\"dev\":1},\n\
        {\"name\":\"a\",\"excluded\":\"pattern\",\"asize\":9,\"dsize\":9,\"nlink\":2},\n\
        {\"name\":\"b\",\"dev\":2,\"excluded\":\"othfs\"},\n\
        {\"name\":\"c\",\"excluded\":\"kernfs\",\"notreg\":true},\n\
        {\"name\":\"d\",\"excluded\":\"frmlnk\"},\n\
        {\"name\":\"e\",\"excluded\":\"new\"},\n\
        {\"name\":\"f\",\"excluded\":false,\"asize\":2},\n\
        [{\"name\":\"g\",\"excluded\":\"pattern\",\"asize\":4},{\"name\":\"h\",\"asize\":8}]]]";
    let tree = read(text).unwrap();
    let expected = [
        None,
        Some(Excluded::Pattern),
        Some(Excluded::OtherFileSystem),
        Some(Excluded::KernelFileSystem),
        Some(Excluded::Firmlink),
        Some(Excluded::Pattern),
        None,
        Some(Excluded::Pattern),
        None,
    ];
    assert!(tree.nodes().iter().map(|node| node.excluded).eq(expected));
    let total = tree.root().total;
    assert_eq!((total.apparent_bytes, total.disk_bytes, total.inodes), (15, 512, 4));
    let again = written(&tree);
    let lines = String::from_utf8(again.clone()).unwrap();
    let lines: Vec<&str> = lines.lines().skip(2).take(5).collect();
    assert_eq!(
        lines,
        [
            "{\"name\":\"a\",\"excluded\":\"pattern\"},",
            "{\"name\":\"b\",\"dev\":2,\"excluded\":\"otherfs\"},",
            "{\"name\":\"c\",\"excluded\":\"kernfs\"},",
            "{\"name\":\"d\",\"excluded\":\"frmlnk\"},",
            "{\"name\":\"e\",\"excluded\":\"pattern\"},",
        ]
    );
    assert_eq!(written(&read(&again).unwrap()), again);
}

#[test]
fn an_import_keeps_the_time_and_what_is_known_of_links() {
    let time = |header: &str| {
        let text = format!("[1,2,{header},[{{\"name\":\"x\"}}]]");
        import(&mut text.as_bytes(), Limits::default()).map(|imported| imported.unix_s).ok()
    };
    for (header, expected) in [
        ("{\"progname\":\"ncdu\", \"timestamp\": 1700000000 }", Some(1_700_000_000)),
        ("{\"timestamp\":7,\"a\":{\"timestamp\":8}}", Some(7)),
        ("{\"timestamp\":\"7\"}", Some(0)),
        ("{}", Some(0)),
        ("[]", Some(0)),
        ("{\"timestamp\":7", None),
    ] {
        assert_eq!(time(header), expected, "{header}");
    }
    let file = |links: &str| {
        let text = format!("[1,2,{{}},[{{\"name\":\"x\"}},{{\"name\":\"f\",\"ino\":7{links}}}]]");
        String::from_utf8(written(&read(text.as_bytes()).unwrap())).unwrap()
    };
    assert!(file(",\"hlnkc\":true").contains("\"ino\":7,\"hlnkc\":true}"));
    assert!(file(",\"hlnkc\":true,\"nlink\":3").contains("\"hlnkc\":true,\"nlink\":3}"));
    assert!(file(",\"nlink\":3").contains("\"hlnkc\":true,\"nlink\":3}"));
    assert!(file(",\"hlnkc\":true,\"nlink\":1").contains("\"ino\":7,\"hlnkc\":true}"));
    assert!(!file(",\"nlink\":1").contains("hlnkc"));
}

#[test]
fn names_that_an_export_cannot_contain_are_found() {
    for (name, expected) in [("b", None), ("", Some(2)), (".", Some(2)), ("..", Some(2))] {
        let mut part = Part::default();
        let (kind, id) = (Kind::Directory, FileId::new((0, 1), 0));
        let found = Found { kind, size: Tally::entry(1, 1), id, links: 1, counts: true };
        part.make(ROOT, ROOT, b"s3://bucket/", found);
        part.make(1, ROOT, b"a", found);
        part.make(2, 1, name.as_bytes(), found);
        let tree = Tree::build(vec![part], &LinkSet::default()).unwrap();
        assert_eq!(unnamable(&tree), expected, "{name}");
        assert_eq!(read(&written(&tree)).is_ok(), expected.is_none(), "{name}");
    }
}

#[test]
fn faults_are_reported_with_their_offset() {
    for text in [
        &b""[..],
        b"{}",
        b"[2,0,{},[{\"name\":\"x\"}]]",
        b"[1,0,{},{\"name\":\"x\"}]",
        b"[1,0,{},[{\"asize\":1}]]",
        b"[1,0,{},[{\"name\":\"x\"},{\"name\":\"a/b\"}]]",
        b"[1,0,{},[{\"name\":\"x\"},{\"name\":\"..\"}]]",
        b"[1,0,{},[{\"name\":\"x\",\"asize\":99999999999999999999}]]",
        b"[1,0,{},[{\"name\":\"x\",\"asize\":1e3}]]",
        b"[1,0,{},[{\"name\":\"x\"}]",
        b"[1,0,{},[{\"name\":\"x\"}]] x",
        b"[1,0,{},[{\"name\":\"x\\ud800\"}]]",
        b"[1,0,{},[{\"name\":\"x",
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("byte"), "{error}");
    }
}

#[test]
fn limits_are_enforced_and_depth_uses_no_stack() {
    let deep = |levels: usize| {
        let mut text = b"[1,0,{},[{\"name\":\"r\"}".to_vec();
        for _ in 1..levels {
            text.extend_from_slice(b",[{\"name\":\"d\"}");
        }
        text.extend(std::iter::repeat_n(b']', levels + 1));
        text
    };
    assert_eq!(read(&deep(50_000)).unwrap().nodes().len(), 50_000);
    assert!(read(&deep(100_001)).unwrap_err().to_string().contains("deeply"));
    let tight = Limits { nodes_max: 3, text_bytes_max: 10, ..Limits::default() };
    assert!(import(&mut &deep(4)[..], tight).is_err());
    let long = b"[1,0,{},[{\"name\":\"a name that is long\"}]]";
    assert!(import(&mut &long[..], tight).is_err());
}

#[test]
fn device_numbers_are_packed_as_the_c_library_does() {
    assert_eq!(device_out(254 << 32), 65024);
    for device in [0, 8 << 32 | 1, 0xfff << 32 | 0xf_ffff, 0x12345 << 32 | 0xabcd_ef01] {
        assert_eq!(device_in(device_out(device)), device);
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }
    #[test]
    fn near_exports_do_not_panic(cut in 0..REAL.len(), with in any::<u8>(), at in 0..REAL.len()) {
        let mut text = REAL.to_vec();
        text[at] = with;
        let _ = read(&text);
        let _ = read(&REAL[..cut]);
    }
    #[test]
    fn names_come_back(name in proptest::collection::vec(1u8..=255, 1..40)) {
        prop_assume!(!name.contains(&b'/'));
        let mut text = b"[1,0,{},[{\"name\":".to_vec();
        super::text(&name, &mut text).unwrap();
        text.extend_from_slice(b"}]]");
        let tree = read(&text).unwrap();
        prop_assert_eq!(tree.name(0), &name[..]);
    }
}
