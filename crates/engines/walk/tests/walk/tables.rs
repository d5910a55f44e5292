//! Walks that read inode tables, in builds with the feature `inode-tables`.

use crate::collect::{Collect, collect, fill, one, walk};
use crate::oracle::{self, Tree};
use ioloom_sys_lab::image::LoopImage;
use ioloom_testbed::alone;
use ioloom_walk::{Fields, Follow, Method, Walk};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// Returns a varied tree whose inode tables can be read: next to other files if that device is
/// readable, otherwise in a new image. If neither works, prints the reason and returns `None`.
fn varied_in_tables() -> Option<(Option<LoopImage>, tempfile::TempDir, PathBuf)> {
    let temp = tempfile::tempdir().unwrap();
    let mut root = temp.path().join("tree");
    std::fs::create_dir(&root).unwrap();
    let mut image = None;
    if let Err(refused) = walk(Method::InodeTables, 1).probe(&one(&root)) {
        let (file, point) = (temp.path().join("image"), temp.path().join("point"));
        match LoopImage::create_for(&file, &point, 64 << 20, Some(9000)) {
            Ok(made) => image = Some(made),
            Err(error) => {
                let _ = writeln!(std::io::stdout(), "skipped: {refused}; {error}");
                return None;
            }
        }
        root = point.join("tree");
        std::fs::create_dir(&root).unwrap();
    }
    fill(&root);
    Some((image, temp, root))
}

#[test]
fn inode_tables_find_the_same() {
    let Some((_image, _temp, root)) = varied_in_tables() else { return };
    let expected = oracle::tree(&root, false);
    for (threads, descriptors_max) in [(1, 64), (5, 3)] {
        let walk =
            Walk { descriptors_max, sweep_files_max: 700, ..walk(Method::InodeTables, threads) };
        let (found, all, report) = collect(&walk, &one(&root));
        assert!(found == expected, "{threads}");
        assert!(all.sums.into_iter().collect::<BTreeMap<_, _>>() == oracle::sums(&expected));
        let used = report.tables.unwrap();
        assert_eq!(used.read + used.asked, report.entries, "{used:?}");
        assert!(used.read > 0 && used.sampled > 0 && used.changed == 0, "{used:?}");
    }
    let mut here = Collect::default();
    walk(Method::InodeTables, 9).run_here(&one(&root), &mut here).unwrap();
    assert!(here.seen.into_iter().collect::<Tree>() == expected);
    let follow = Walk { follow: Follow::Always, ..walk(Method::InodeTables, 2) };
    assert!(collect(&follow, &one(&root)).0 == oracle::tree(&root, true));
    let names = Walk { fields: Fields::NONE, ..walk(Method::InodeTables, 2) };
    assert!(names.run(&one(&root), |_| Collect::default()).unwrap().1.tables.is_none());
}

#[test]
fn files_of_an_unreadable_table_are_queried_by_name() {
    if !alone("tables::files_of_an_unreadable_table_are_queried_by_name") {
        return;
    }
    let Some((_image, _temp, root)) = varied_in_tables() else { return };
    let by = walk(Method::InodeTables, 1);
    ioloom_sys::fault::set("syncfs:1:5");
    let refused = by.run(&one(&root), |_| Collect::default()).err().unwrap();
    assert!(refused.to_string().contains("cannot sync"), "{refused}");
    ioloom_sys::fault::set("pread:1:5");
    let refused = by.run(&one(&root), |_| Collect::default()).err().unwrap();
    assert!(refused.to_string().contains("cannot read the inode tables"), "{refused}");
    // How many reads precede the first table read depends on the file system.
    ioloom_sys::fault::set("");
    let (expected, _, report) = collect(&by, &one(&root));
    let (calls, before) = (ioloom_sys::fault::calls_of("pread"), report.tables.unwrap().asked);
    ioloom_sys::fault::set(&format!("pread:{calls}:5"));
    let (found, _, report) = collect(&by, &one(&root));
    assert!(found == expected && report.errors_count == 0);
    assert!(report.tables.unwrap().asked > before);
}
