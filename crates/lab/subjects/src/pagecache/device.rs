//! The same bytes through a file and through the device that holds it: where each copy is in memory,
//! and who knows of the other.
//!
//! First a part of the file is read through the file and then through the device, and after each step
//! both are asked what of it is in memory (cachestat). The device's pages are then put out by the
//! advice that puts out those of any file. Then a file of our own is written, its place on the device
//! is looked up, and it is written anew: what the device shows before that is on it, after it is, and
//! when its own pages are gone.
//!
//! The device is opened for reading alone, and only where a place in the file system is a place on the
//! device: on ext4, ext3, ext2 and XFS. Root only. Nothing of the device's pages stays afterwards.

use super::plan::{PART_STEP, Part};
use super::write;
use crate::stage::{Acts, Stage, make_cold, only_file, put};
use ioloom_model::Measured;
use ioloom_model::record::RunOrder;
use ioloom_observe::counters::Field;
use ioloom_sys::cache::{self, CacheState};
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

/// File systems that lie on one device and number it from its beginning.
const ONE_DEVICE: [&str; 4] = ["ext4", "ext3", "ext2", "xfs"];
/// Bytes of the file that is written anew.
const FRESH_BYTES: usize = 1 << 20;
/// How often pages are put out at most. One that the kernel holds at that moment, to move it or to look
/// at its age, stays where it is, without an error.
const PUT_OUT_TRIES: u32 = 200;
/// Time between two of them.
const PUT_OUT_PAUSE: Duration = Duration::from_millis(5);

/// The device, and where a part of a file lies on it.
struct Below<'d> {
    device: &'d OwnedFd,
    pieces: Vec<Piece>,
}

/// What of the part lies in one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    /// Where in the file it begins, bytes.
    offset: u64,
    /// Where on the device, bytes.
    at: u64,
    /// Length, bytes.
    bytes: u64,
}

/// The pieces of the first `bytes` of a file, without a gap; `None` where some of it is not on the device
/// as it stands in the file.
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
    open_below(dir).map(drop)
}

/// Opens the device that holds a directory, for reading; the error is a sentence.
fn open_below(dir: &Path) -> Result<OwnedFd, String> {
    const REMEDY: &str = "remedy: as root --dir on an ext4 or XFS whose device may be opened, such \
                          as an image that is mounted by a loop device";
    let mount = mount_of(dir).map_err(|e| format!("find the mount of {}: {e}", dir.display()))?;
    if !ONE_DEVICE.contains(&mount.file_system.as_str()) {
        let kind = mount.file_system;
        return Err(format!(
            "{} lies on {kind}, where a place in the file system is not known to be a place on a \
             device; {REMEDY}",
            dir.display()
        ));
    }
    let (major, minor) = mount.device;
    let path = device_file(mount.device)
        .map_err(|e| format!("find the device {major}:{minor}: {e}; {REMEDY}"))?;
    let device = open(&path, OpenHow::default())
        .map_err(|e| format!("open {}: {e}; {REMEDY}", path.display()))?;
    // A name in /dev proves nothing.
    match block_device_number(&device) {
        Ok(Some(number)) if number == mount.device => Ok(device),
        _ => Err(format!("{} is not the device {major}:{minor}; {REMEDY}", path.display())),
    }
}

impl<'d> Below<'d> {
    /// Where the first `bytes` of a file lie.
    fn find(device: &'d OwnedFd, file: &OwnedFd, bytes: u64) -> Result<Self, String> {
        let told = extents::of_file(file).map_err(|e| format!("FIEMAP: {e}"))?;
        let found = told.and_then(|extents| pieces(&extents, bytes));
        let pieces = found.ok_or("the file system does not tell where all of the file lies")?;
        Ok(Self { device, pieces })
    }

    /// Resident bytes of the device in the place of the part.
    fn resident(&self) -> Result<u64, String> {
        let mut sum = 0;
        for piece in &self.pieces {
            sum += look(self.device, piece.at, piece.bytes)?.resident * page_bytes();
        }
        Ok(sum)
    }

    /// Puts out the device's pages there, by advice; an error if some stay.
    fn put_out(&self) -> Result<(), String> {
        let mut left = 0;
        for _ in 0..PUT_OUT_TRIES {
            for piece in &self.pieces {
                let range = piece.at..piece.at + piece.bytes;
                transfer::evict_range(self.device, range).map_err(|e| format!("fadvise: {e}"))?;
            }
            left = self.resident()?;
            if left == 0 {
                return Ok(());
            }
            std::thread::sleep(PUT_OUT_PAUSE);
        }
        Err(format!("{left} bytes of the device's pages cannot be put out of memory"))
    }

    /// Reads the part through the device, a step at a time, and hands on where each step begins.
    fn read(&self, mut each: impl FnMut(u64, &[u8]) -> Result<(), String>) -> Result<(), String> {
        let mut buffer = vec![0; PART_STEP as usize];
        for piece in &self.pieces {
            let mut done = 0;
            while done < piece.bytes {
                let step = (piece.bytes - done).min(PART_STEP) as usize;
                let got = read_full_at(self.device, &mut buffer[..step], piece.at + done)
                    .map_err(|e| format!("read the device: {e}"))?;
                if got != step {
                    return Err("the device ends before the file does".to_owned());
                }
                each(piece.offset + done, &buffer[..step])?;
                done += step as u64;
            }
        }
        Ok(())
    }

    /// How many bytes of the part are on the device, as it shows them, as in `wanted`.
    fn same(&self, wanted: &[u8]) -> Result<u64, String> {
        let mut sum = 0;
        self.read(|at, bytes| {
            sum += same(bytes, &wanted[at as usize..][..bytes.len()]);
            Ok(())
        })?;
        Ok(sum)
    }
}

fn look(file: &OwnedFd, at: u64, bytes: u64) -> Result<CacheState, String> {
    let state = cache::state(file, at, bytes).map_err(|e| format!("cachestat: {e}"))?;
    state.ok_or_else(|| "cachestat does not answer here, so nothing is known".to_owned())
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
    let device = open_below(&order.dir)?;
    for opened in [&file, &device] {
        // Else more would come in than is asked for.
        cache::advise_random(opened).map_err(|e| format!("turn reading ahead off: {e}"))?;
    }
    make_cold(&file, file_bytes)?;
    let below = Below::find(&device, &file, scenario.bytes)?;
    below.put_out()?;
    let mut stage = Stage::open(&order.dir)?;
    let start = monotonic_ns();
    let told = both(&mut stage, &file, &below, scenario.bytes)?;
    let elapsed_ns = monotonic_ns() - start;
    for (name, value) in told.into_iter().chain(fresh(order, &device)?) {
        stage.put(name, value as f64);
    }
    let (mut measured, acts) = stage.close(elapsed_ns, 2 * scenario.bytes);
    counted(&mut measured, &acts);
    Ok(measured)
}

/// Reads through the file, then through the device, and looks after each step.
fn both(
    stage: &mut Stage,
    file: &OwnedFd,
    below: &Below<'_>,
    bytes: u64,
) -> Result<Vec<(&'static str, u64)>, String> {
    let resident = || Ok::<_, String>(look(file, 0, bytes)?.resident * page_bytes());
    let mut buffer = vec![0; PART_STEP as usize];
    stage.sampler.mark("file");
    for at in (0..bytes).step_by(buffer.len()) {
        read_full_at(file, &mut buffer, at).map_err(|e| format!("read the file: {e}"))?;
    }
    stage.sampler.mark("between");
    let by_file = (resident()?, below.resident()?);
    let mut equal = 0;
    stage.sampler.mark("device");
    below.read(|at, shown| {
        // The file is in memory, so it costs the device nothing.
        let held = &mut buffer[..shown.len()];
        read_full_at(file, held, at).map_err(|e| format!("read the file: {e}"))?;
        equal += same(shown, held);
        Ok(())
    })?;
    stage.sampler.mark("end");
    let by_device = (resident()?, below.resident()?);
    below.put_out()?;
    let advised = (resident()?, below.resident()?);
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

/// What the device shows of a file that was written anew.
fn fresh(order: &RunOrder, device: &OwnedFd) -> Result<Vec<(&'static str, u64)>, String> {
    let file = scratch(&order.dir, WriteMode::Buffered).map_err(|e| format!("make a file: {e}"))?;
    let (mut old, mut new) = (vec![0; FRESH_BYTES], vec![0; FRESH_BYTES]);
    write::fill(&mut old, order.seed);
    // Each byte another one.
    new.iter_mut().zip(&old).for_each(|(new, old)| *new = !old);
    let written = |bytes: &[u8]| write_full_at(&file, bytes, 0).map_err(|e| format!("write: {e}"));
    let synced = || transfer::sync_data(&file).map_err(|e| format!("fdatasync: {e}"));
    written(&old)?;
    synced()?;
    let below = Below::find(device, &file, FRESH_BYTES as u64)?;
    below.put_out()?;
    written(&new)?;
    let state = look(&file, 0, 0)?;
    let old_before = below.same(&old)?;
    synced()?;
    let old_after = below.same(&old)?;
    below.put_out()?;
    let new_at_last = below.same(&new)?;
    below.put_out()?;
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
        assert_eq!(pieces(&two, 1102), None, "no place");
        assert_eq!(pieces(&two[..2], 2000), None, "a hole at the end");
        assert_eq!(pieces(&two[1..], 400), None, "a hole before");
        let reserved = [Extent { unwritten: true, ..two[0] }];
        assert_eq!(pieces(&reserved, 50), None);
    }
}
