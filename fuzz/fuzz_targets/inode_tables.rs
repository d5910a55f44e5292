//! A device with arbitrary contents: superblock, descriptors, inodes.

#![no_main]

use ioloom_sys_lab::ext4::{Groups, inode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The boot block is ignored, so it is not part of the input.
    let device = |into: &mut [u8], at: u64| {
        let at = usize::try_from(at).ok().and_then(|at| at.checked_sub(1024));
        let rest = at.and_then(|at| bytes.get(at..)).unwrap_or(&[]);
        let long = rest.len().min(into.len());
        into[..long].copy_from_slice(&rest[..long]);
        Ok(long)
    };
    let Ok(groups) = Groups::read(device) else { return };
    for number in [0, 1, 2, 11, 12, u64::from(groups.layout().inodes), u64::MAX] {
        let place = groups.place(number).map_or(0, |at| at as usize);
        let raw = bytes.get(place.saturating_sub(1024)..).unwrap_or(bytes);
        let _ = inode(groups.layout(), number, raw);
    }
});
