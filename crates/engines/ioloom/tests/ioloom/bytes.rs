//! The same bytes from every method under every schedule, whole and in chunks.

use crate::support::{expected, lacks, list, make, plan, roots, run};
use ioloom::{Error, Plan};
use ioloom_model::{Method, table};
use std::path::{Path, PathBuf};

const SCHEDULES: [&str; 16] = [
    "threads:n=1",
    "threads:n=3",
    "window:l=1,p=1",
    "window:l=5,p=2",
    "window:l=32,p=3",
    "window:l=2,p=4",
    "roles:r=1,c=1,w=1",
    "roles:r=2,c=2,w=8",
    "roles:r=1,h=1,c=0,w=4",
    "roles:r=0,h=2,c=0,w=3,order=read-first",
    "roles:r=0,h=2,c=0,w=3,order=compute-first",
    "roles:r=0,h=2,c=0,w=3,order=turns",
    "roles:r=1,h=2,c=1,w=6,open=1,order=turns",
    "roles:r=2,h=0,c=1,w=all,open=1",
    "roles:r=0,h=3,c=0,w=all,open=2",
    "roles:r=1,h=1,c=1,w=all,order=compute-first",
];

const SIZES: [usize; 18] = [
    0,
    1,
    511,
    512,
    513,
    4095,
    4096,
    4097,
    8192,
    65_535,
    65_536,
    65_537,
    69_632,
    96 << 10,
    (96 << 10) + 1,
    (1 << 20) + 3,
    0,
    7,
];

/// Runs every plan over the files. Only the table or the machine may refuse one.
fn agree(root: &Path, paths: &[PathBuf], plans: impl IntoIterator<Item = Plan>) -> u32 {
    let want = expected(paths);
    let mut ran = 0;
    for plan in plans {
        let refused_by_table = table::check(&plan).is_err();
        match run(list(paths), plan) {
            Ok(got) => {
                assert!(!refused_by_table, "{plan} must be refused");
                assert!(got.failed.is_empty(), "{plan} in {}: {:?}", root.display(), got.failed);
                assert!(got.hashes == want, "{plan} in {}: other bytes", root.display());
                assert!(got.budget_peak_bytes <= plan.memory_bytes, "{plan} exceeded its budget");
                ran += 1;
            }
            Err(Error::Refused(reason)) if refused_by_table => {
                assert!(reason.len() > 40, "{reason}")
            }
            Err(error) => assert!(lacks(&plan, &error), "{plan} in {}: {error}", root.display()),
        }
    }
    ran
}

fn plans<'a>(schedules: &'a [&str], options: &'a str) -> impl Iterator<Item = Plan> + 'a {
    Method::ALL.iter().flat_map(move |method| {
        schedules.iter().map(move |schedule| plan(&format!("{method}/{schedule}{options}")))
    })
}

#[test]
fn whole_files_are_the_same_under_every_plan() {
    for root in roots() {
        let (_dir, mut paths) = make(&root, &SIZES);
        // The null method reads nothing, so it is compared elsewhere.
        paths.rotate_left(3);
        let plans = plans(&SCHEDULES, "").filter(|p| p.method != Method::Null);
        assert!(agree(&root, &paths, plans) > 90);
    }
}

#[test]
fn chunks_are_the_same_under_every_plan() {
    let schedules =
        ["threads:n=1", "threads:n=2", "window:l=1,p=1", "window:l=4,p=2", "window:l=3,p=3"];
    for root in roots() {
        let (_dir, tiny) = make(&root, &[0, 1, 2, 511, 513]);
        let (_dir2, paths) = make(&root, &SIZES);
        for (chunk, files) in [("1", &tiny), ("4KiB", &paths), ("4097", &paths), ("64KiB", &paths)]
        {
            let options = format!("/chunk={chunk}");
            let plans = plans(&schedules, &options).filter(|p| p.method != Method::Null);
            assert!(agree(&root, files, plans) > 5);
        }
    }
}

#[test]
fn a_large_file_is_the_same_under_every_method() {
    let schedules = ["threads:n=1", "window:l=3,p=2", "roles:r=1,h=1,c=1,w=3"];
    let sizes = [(64 << 20) + 1, (1 << 20) + 3, 4097];
    for root in roots() {
        let (_dir, paths) = make(&root, &sizes);
        let plans = plans(&schedules, "/memory=80MiB").filter(|p| p.method != Method::Null);
        assert!(agree(&root, &paths, plans) > 10);
    }
}

#[test]
fn buffers_and_order_change_no_byte() {
    for root in roots() {
        let (_dir, paths) = make(&root, &SIZES);
        for options in ["buffers=fresh", "buffers=prefaulted", "order=inode", "memory=4MiB"] {
            let options = format!("/{options}");
            let schedules = ["threads:n=2", "window:l=4,p=2", "roles:r=1,h=1,c=1,w=4"];
            let plans = plans(&schedules, &options).filter(|p| p.method != Method::Null);
            assert!(agree(&root, &paths, plans) > 5);
        }
    }
}

#[test]
fn null_gives_each_file_once_and_no_bytes() {
    let (_dir, paths) = make(&roots()[0], &[10; 40]);
    for schedule in SCHEDULES {
        let got = run(list(&paths), plan(&format!("null/{schedule}"))).unwrap();
        assert_eq!(got.hashes.len(), 40);
        assert!(got.hashes.values().all(|(_, len)| *len == 0));
    }
}

#[test]
fn impossible_plans_are_refused_with_the_reason() {
    let (_dir, paths) = make(&roots()[0], &[10; 3]);
    for (text, reason) in [
        ("read/roles:r=1,c=1/chunk=4KiB", "does not preserve chunk order"),
        ("mmap:plain/window:l=4,p=2", "read ahead"),
        ("direct:read/threads:n=1/chunk=4097", "multiple of 4KiB"),
        ("uring/window:l=40000,p=1", "the limit of 32768 per ring"),
        ("read/window:l=1000,p=2/memory=1MiB", "memory budget of at least"),
        ("uring:registered/window:l=64,p=1/memory=1MiB", "memory budget"),
    ] {
        match run(list(&paths), plan(text)) {
            Err(Error::Refused(r)) => {
                assert!(r.contains(reason) && r.contains(&plan(text).to_string()), "{text}: {r}")
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    // The public form refuses mappings, and refuses a window of all files for a stream.
    for text in
        ["mmap:plain/threads:n=1", "mmap:willneed/window:l=4,p=1", "uring/roles:r=1,c=1,w=all"]
    {
        let run = ioloom::files(paths.clone()).pin(plan(text)).map(|f| f.len()).run();
        assert!(matches!(run, Err(Error::Refused(_))), "{text}");
    }
    if roots().len() > 1 {
        let (_dir, paths) = make(&roots()[1], &[10; 3]);
        for text in ["direct:read/threads:n=1", "direct:uring/window:l=2,p=1"] {
            match run(list(&paths), plan(text)) {
                Err(Error::Refused(r)) => assert!(r.contains("direct I/O"), "{r}"),
                // A memory file system that supports direct I/O must give the right bytes.
                other => assert!(other.unwrap().hashes == expected(&paths)),
            }
        }
    }
}

#[test]
fn a_file_that_reports_no_size_is_read_to_its_end() {
    // Its size is zero, and reads of it are short long before the end.
    let path = PathBuf::from("/proc/kallsyms");
    let Ok(want) = std::fs::read(&path) else { return eprintln!("skipped: no /proc/kallsyms") };
    if want.len() < 200_000 {
        return eprintln!("skipped: /proc/kallsyms is short");
    }
    for text in [
        "read/threads:n=1",
        "nowait/window:l=2,p=1",
        "uring/window:l=2,p=1",
        "read/roles:r=1,c=1,w=1",
    ] {
        let got = run(list(std::slice::from_ref(&path)), plan(text)).unwrap();
        let len = got.hashes.get(&0).map(|(_, len)| *len);
        assert_eq!(len, Some(want.len() as u64), "{text}: {:?}", got.failed);
    }
}
