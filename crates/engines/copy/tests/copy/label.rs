//! The security label, which is an extended attribute with its own option.

use crate::test_dir::TestDir;
use ioloom_copy::{CopyCounters, CopyOptions, Preserve, Silent, Target, copy};
use ioloom_sys::attr::XattrOf;
use std::fs::File;
use std::os::fd::AsFd;

#[test]
fn the_label_and_the_other_attributes_are_preserved_apart() {
    let place = TestDir::disk();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let source = File::create(&from).unwrap();
    let (user, label) = (c"user.test", c"security.selinux");
    for name in [user, label] {
        if let Err(e) = XattrOf::Open(source.as_fd()).set(name, b"value") {
            return println!("skipped: {}: {e}", name.to_string_lossy());
        }
    }
    for (xattrs, context) in [(false, true), (true, false), (true, true)] {
        let preserve = Preserve { xattrs, context, ..Preserve::default() };
        let options = CopyOptions { preserve, ..CopyOptions::default() };
        let (sources, target) = ([from.clone()], Target::As(to.clone()));
        let report = copy(&sources, &target, &options, &Silent, &CopyCounters::default()).unwrap();
        assert_eq!(report.errors_count, 0, "{:?}", report.errors);
        let made = File::open(&to).unwrap();
        let comes = |name| XattrOf::Open(made.as_fd()).get(name).unwrap().is_some();
        assert_eq!((comes(user), comes(label)), (xattrs, context));
        std::fs::remove_file(&to).unwrap();
    }
}
