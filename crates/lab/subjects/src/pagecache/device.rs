//! Reads the same bytes through a file and through its block device to determine which pages are
//! resident for each, and whether changes to one are visible through the other.
//!
//! First, a part of the file is read through the file and then through the device. After each step,
//! cachestat reports the resident pages of both. The device's pages are then evicted with the same
//! advice as those of a file. Second, a new file is written and synced, its location is looked up,
//! and it is overwritten. The device is read before the sync, after the sync, and after evicting
//! its pages.
//!
//! The device is opened read-only, and only on file systems whose extents are device locations:
//! ext4, ext3, ext2 and XFS. Requires root. None of the device's pages stay resident.

use super::plan::{PART_STEP, Part};
use super::write;
use crate::stage::{Acts, Stage, cannot, make_cold, only_file, page_state, put};
use ioloom_failure::{Operation, PathError, quoted, reason};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::cache;
use ioloom_sys::clock::monotonic_ns;
use ioloom_sys::extents::{self, Extent};
use ioloom_sys::file::{
    OpenHow, WriteMode, block_device_number, open, read_full_at, scratch, write_full_at,
};
use ioloom_sys::mount::{device_file, mount_of};
use ioloom_sys::proc::page_bytes;
use ioloom_sys::transfer;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

/// File systems on a single device with locations relative to its start.
const ONE_DEVICE: [&str; 4] = ["ext4", "ext3", "ext2", "xfs"];
/// Size in bytes of the file to overwrite.
const FRESH_BYTES: usize = 1 << 20;
/// Maximum number of attempts to evict pages. A page that the kernel is holding for migration or
/// aging remains without an error.
const EVICT_ATTEMPTS: u32 = 200;
/// Pause between attempts.
const EVICT_PAUSE: Duration = Duration::from_millis(5);

/// The device and the location of part of a file.
struct OnDevice<'d> {
    device: &'d OwnedFd,
    pieces: Vec<Piece>,
}

/// A contiguous piece of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Offset in the file in bytes.
    offset: u64,
    /// Position on the device in bytes.
    at: u64,
    /// Length, bytes.
    bytes: u64,
}

/// Returns the pieces of the first `bytes` of a file; `None` if there is a gap or an unwritten
/// extent.
fn pieces(extents: &[Extent], bytes: u64) -> Option<Vec<Piece>> {
    let mut found = Vec::new();
    let mut next = 0;
    for extent in extents.iter().take_while(|extent| extent.offset < bytes) {
        if extent.offset != next || extent.unwritten {
            return None;
        }
        let length = extent.bytes.min(bytes - next);
        found.push(Piece { offset: next, at: extent.start?, bytes: length });
        next += length;
    }
    (next == bytes).then_some(found)
}

pub(super) fn probe(dir: &Path) -> Result<(), String> {
    open_device(dir).map(drop)
}

/// Opens the device of a directory for reading.
fn open_device(dir: &Path) -> Result<OwnedFd, String> {
    const ADVICE: &str = "run as root with --dir on ext4 or XFS with an accessible device, such as \
                          a loop-mounted image";
    let mount =
        mount_of(dir).map_err(|e| PathError::new(Operation::FindMount, dir, e).to_string())?;
    if !ONE_DEVICE.contains(&mount.file_system.as_str()) {
        let kind = mount.file_system;
        return Err(format!(
            "{} is on {kind}, whose extents may not be device locations; {ADVICE}",
            quoted(dir)
        ));
    }
    let (major, minor) = mount.device;
    let path = device_file(mount.device)
        .map_err(|e| format!("cannot find the device {major}:{minor}: {}; {ADVICE}", reason(&e)))?;
    let device = open(&path, OpenHow::default())
        .map_err(|e| format!("cannot open {}: {}; {ADVICE}", quoted(&path), reason(&e)))?;
    // A name in /dev does not guarantee that it is the device.
    match block_device_number(&device) {
        Ok(Some(number)) if number == mount.device => Ok(device),
        _ => Err(format!("{} is not the device {major}:{minor}; {ADVICE}", quoted(&path))),
    }
}

impl<'d> OnDevice<'d> {
    /// Looks up the location of the first `bytes` of a file.
    fn find(device: &'d OwnedFd, file: &OwnedFd, bytes: u64) -> Result<Self, String> {
        let extents = extents::of_file(file).map_err(|e| cannot("query the extents", &e))?;
        let found = extents.and_then(|extents| pieces(&extents, bytes));
        let pieces =
            found.ok_or("the file system does not report the location of the whole file")?;
        Ok(Self { device, pieces })
    }

    /// Returns the device's resident bytes at this location.
    fn resident(&self) -> Result<u64, String> {
        let mut sum = 0;
        for piece in &self.pieces {
            sum += page_state(self.device, piece.at, piece.bytes)?.resident * page_bytes();
        }
        Ok(sum)
    }

    /// Evicts the device's pages at this location.
    fn evict(&self) -> Result<(), String> {
        let mut left = 0;
        for _ in 0..EVICT_ATTEMPTS {
            for piece in &self.pieces {
                let range = piece.at..piece.at + piece.bytes;
                transfer::evict_range(self.device, range).map_err(|e| cannot("evict", &e))?;
            }
            left = self.resident()?;
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(EVICT_PAUSE);
        }
        Err(format!("cannot evict {left} bytes of the device's pages"))
    }

    /// Reads the part through the device in steps, passing the file offset of each step.
    fn read(&self, mut each: impl FnMut(u64, &[u8]) -> Result<(), String>) -> Result<(), String> {
        let mut buffer = vec![0; PART_STEP as usize];
        for piece in &self.pieces {
            let mut done = 0;
            while done < piece.bytes {
                let step = (piece.bytes - done).min(PART_STEP) as usize;
                let got = read_full_at(self.device, &mut buffer[..step], piece.at + done)
                    .map_err(|e| cannot("read the device", &e))?;
                if got != step {
                    return Err("the device ends before the file".to_owned());
                }
                each(piece.offset + done, &buffer[..step])?;
                done += step as u64;
            }
        }
        Ok(())
    }

    /// Returns how many bytes of the part, read through the device, equal `wanted`.
    fn same(&self, wanted: &[u8]) -> Result<u64, String> {
        let mut sum = 0;
        self.read(|at, bytes| {
            sum += same(bytes, &wanted[at as usize..][..bytes.len()]);
            Ok(())
        })?;
        Ok(sum)
    }
}

fn same(a: &[u8], b: &[u8]) -> u64 {
    a.iter().zip(b).filter(|(a, b)| a == b).count() as u64
}

pub(super) fn run(order: &RunOrder, scenario: Part) -> Result<Measured, String> {
    let (_, file, file_bytes) = only_file(&order.dir)?;
    if file_bytes < scenario.bytes {
        return Err(format!(
            "the scenario needs a file of {} bytes, not of {file_bytes}",
            scenario.bytes
        ));
    }
    let device = open_device(&order.dir)?;
    for opened in [&file, &device] {
        // Readahead would load more than the scenario reads.
        cache::advise_random(opened).map_err(|e| cannot("disable readahead", &e))?;
    }
    make_cold(&file, file_bytes)?;
    let part = OnDevice::find(&device, &file, scenario.bytes)?;
    part.evict()?;
    let mut stage = Stage::open(&order.dir)?;
    let start = monotonic_ns();
    let numbers = both(&mut stage, &file, &part, scenario.bytes)?;
    let elapsed_ns = monotonic_ns() - start;
    for (name, value) in numbers.into_iter().chain(overwritten(order, &device)?) {
        stage.put(name, value as f64);
    }
    let (mut measured, acts) = stage.close(elapsed_ns, 2 * scenario.bytes);
    counted(&mut measured, &acts);
    Ok(measured)
}

/// Reads through the file, then through the device, and queries the page cache after each step.
fn both(
    stage: &mut Stage,
    file: &OwnedFd,
    part: &OnDevice<'_>,
    bytes: u64,
) -> Result<Vec<(&'static str, u64)>, String> {
    let resident = || Ok::<_, String>(page_state(file, 0, bytes)?.resident * page_bytes());
    let mut buffer = vec![0; PART_STEP as usize];
    stage.sampler.mark("file");
    for at in (0..bytes).step_by(buffer.len()) {
        read_full_at(file, &mut buffer, at).map_err(|e| cannot("read the file", &e))?;
    }
    stage.sampler.mark("between");
    let by_file = (resident()?, part.resident()?);
    let mut equal = 0;
    stage.sampler.mark("device");
    part.read(|at, shown| {
        // The file is resident, so this does not read the device.
        let held = &mut buffer[..shown.len()];
        read_full_at(file, held, at).map_err(|e| cannot("read the file", &e))?;
        equal += same(shown, held);
        Ok(())
    })?;
    stage.sampler.mark("end");
    let by_device = (resident()?, part.resident()?);
    part.evict()?;
    let advised = (resident()?, part.resident()?);
    Ok(vec![
        ("range_bytes", bytes),
        ("equal_bytes", equal),
        ("file_pages_by_file_bytes", by_file.0),
        ("device_pages_by_file_bytes", by_file.1),
        ("file_pages_by_device_bytes", by_device.0),
        ("device_pages_by_device_bytes", by_device.1),
        ("file_pages_after_advice_bytes", advised.0),
        ("device_pages_after_advice_bytes", advised.1),
    ])
}

/// Overwrites a new file and reads it through the device.
fn overwritten(order: &RunOrder, device: &OwnedFd) -> Result<Vec<(&'static str, u64)>, String> {
    let file = scratch(&order.dir, WriteMode::Buffered).map_err(|e| cannot("create a file", &e))?;
    let (mut old, mut new) = (vec![0; FRESH_BYTES], vec![0; FRESH_BYTES]);
    write::fill(&mut old, order.seed);
    // Every byte differs.
    new.iter_mut().zip(&old).for_each(|(new, old)| *new = !old);
    let written = |bytes: &[u8]| write_full_at(&file, bytes, 0).map_err(|e| cannot("write", &e));
    let synced = || transfer::sync_data(&file).map_err(|e| cannot("sync the file", &e));
    written(&old)?;
    synced()?;
    let part = OnDevice::find(device, &file, FRESH_BYTES as u64)?;
    part.evict()?;
    written(&new)?;
    let state = page_state(&file, 0, 0)?;
    let old_before = part.same(&old)?;
    synced()?;
    let old_after = part.same(&old)?;
    part.evict()?;
    let new_at_last = part.same(&new)?;
    part.evict()?;
    Ok(vec![
        ("fresh_bytes", FRESH_BYTES as u64),
        ("fresh_unwritten_bytes", (state.dirty + state.writeback) * page_bytes()),
        ("fresh_old_before_sync_bytes", old_before),
        ("fresh_old_after_sync_bytes", old_after),
        ("fresh_new_after_advice_bytes", new_at_last),
    ])
}

fn counted(measured: &mut Measured, acts: &Acts) {
    for (name, from, to) in [("file", "file", "between"), ("device", "device", "end")] {
        let read = acts.grown(Field::TaskRead, from, to, 1.0);
        put(measured, &format!("read_by_{name}_bytes"), read);
        let pages = acts.changed_bytes(Field::FilePages, from, to);
        put(measured, &format!("cache_growth_by_{name}_bytes"), pages);
        for (level, field) in [("buffers", Field::Buffers), ("cached", Field::Cached)] {
            let ends = acts.level(field, from, 1024.0).zip(acts.level(field, to, 1024.0));
            let grown = ends.map(|(before, after)| after - before);
            put(measured, &format!("{level}_growth_by_{name}_bytes"), grown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_cut_from_its_extents_or_has_none() {
        let of =
            |offset, start, bytes| Extent { offset, start, bytes, unwritten: false, shared: false };
        let two = [of(0, Some(800), 100), of(100, Some(200), 1000), of(1100, None, 5)];
        let wanted = [(0, 800, 100), (100, 200, 300)];
        let wanted = wanted.map(|(offset, at, bytes)| Piece { offset, at, bytes });
        assert_eq!(pieces(&two, 400), Some(wanted.to_vec()));
        assert_eq!(pieces(&two, 1102), None, "an extent without a location");
        assert_eq!(pieces(&two[..2], 2000), None, "a hole at the end");
        assert_eq!(pieces(&two[1..], 400), None, "a hole before");
        let reserved = [Extent { unwritten: true, ..two[0] }];
        assert_eq!(pieces(&reserved, 50), None);
    }
}
