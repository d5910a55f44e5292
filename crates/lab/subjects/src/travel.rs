//! Measures disk head travel: the sum of the distances from the end of each request to the start of
//! the next, in the order in which the device received them.
//!
//! Uses the kernel's block events, which require root or a granted tracefs instance. On a disk with
//! heads, this distance determines the time; on other devices, it only measures the order of
//! requests. The rings are read after the run, so reading does not disturb it. Events that did not
//! fit are counted and reported.

use ioloom_failure::{quoted, reason};
use ioloom_sys_trace::tracefs::event::{Decoder, EventData, Kind};
use ioloom_sys_trace::tracefs::page::Page;
use ioloom_sys_trace::tracefs::{Instance, Pipe};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

/// Ring size per CPU, enough for about 100 000 requests.
const RING_KIB: u32 = 8192;
const SECTOR_BYTES: u64 = 512;
const ADVICE: &str = "run as root, or let root run `ioloom trace grant`";

/// Records the requests to a directory's device.
pub(crate) struct Travel {
    instance: Instance,
    pipes: Vec<Pipe>,
    decoder: Decoder,
}

impl Travel {
    /// Starts recording.
    ///
    /// # Errors
    /// The missing requirement and advice.
    pub(crate) fn start(dir: &Path) -> Result<Self, String> {
        let fail = |e: io::Error| format!("cannot record block events: {}; {ADVICE}", reason(&e));
        let (major, minor) =
            ioloom_fileset::medium(dir).ok().and_then(|m| numbers(&m.device)).ok_or_else(|| {
                format!(
                    "cannot record block events: the device of {} is unknown; use a directory on \
                    a disk",
                    quoted(dir)
                )
            })?;
        let mut instance = Instance::open().map_err(fail)?;
        instance.set_ring_kib(RING_KIB).map_err(fail)?;
        let mut decoder = Decoder::default();
        // The kernel packs the two device numbers like this.
        let filter = format!("dev == {}", (major << 20) | minor);
        instance.enable(Kind::Issue, &filter, &mut decoder).map_err(fail)?;
        let pipes = instance.pipes().map_err(fail)?;
        instance.set_recording(true).map_err(fail)?;
        Ok(Self { instance, pipes, decoder })
    }

    /// Stops recording and returns the totals by metric name.
    ///
    /// # Errors
    /// A ring cannot be read.
    pub(crate) fn stop(mut self) -> Result<BTreeMap<String, f64>, String> {
        let fail = |e: io::Error| format!("cannot read block events: {}", reason(&e));
        self.instance.set_recording(false).map_err(fail)?;
        let (mut requests, mut lost) = (Vec::new(), 0);
        for pipe in &mut self.pipes {
            let cpu = pipe.cpu;
            while let Some(bytes) = pipe.next_page().map_err(fail)? {
                let Some(page) = Page::parse(bytes) else { continue };
                for (at_ns, record) in page.events() {
                    if let Some(event) = self.decoder.decode(at_ns, cpu, record)
                        && let EventData::Issue { sector, bytes, write: false, .. } = event.what
                    {
                        requests.push((event.at_ns, sector, u64::from(bytes)));
                    }
                }
            }
            lost += pipe.stats().map_err(fail)?.lost();
        }
        requests.sort_unstable();
        let mut out = BTreeMap::from([
            ("head_requests".to_owned(), requests.len() as f64),
            ("head_requests_lost".to_owned(), lost as f64),
        ]);
        // If requests are missing, the distance would be too short.
        if lost == 0 {
            let path = requests.iter().map(|(_, sector, bytes)| (*sector, *bytes));
            out.insert("head_travel_bytes".to_owned(), travel_bytes(path) as f64);
        }
        Ok(out)
    }
}

fn numbers(device: &str) -> Option<(u32, u32)> {
    let (major, minor) = device.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?)).filter(|(major, _)| *major > 0)
}

/// Returns the sum of the distances between requests, each given as first sector and length in
/// bytes.
fn travel_bytes(requests: impl Iterator<Item = (u64, u64)>) -> u64 {
    let (mut head, mut sum) = (None, 0u64);
    for (sector, bytes) in requests {
        let start = sector * SECTOR_BYTES;
        sum = sum.saturating_add(head.map_or(0, |at: u64| at.abs_diff(start)));
        head = Some(start + bytes);
    }
    sum
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "tests that cannot run here report it")]
mod tests {
    use super::*;

    #[test]
    fn travel_is_the_way_between_requests() {
        assert_eq!(travel_bytes([].into_iter()), 0);
        assert_eq!(travel_bytes([(8, 4096)].into_iter()), 0);
        assert_eq!(travel_bytes([(0, 4096), (8, 4096), (16, 512)].into_iter()), 0, "in order");
        assert_eq!(travel_bytes([(0, 512), (101, 512), (0, 512)].into_iter()), 51_200 + 52_224);
    }

    #[test]
    fn a_missing_requirement_is_reported_with_advice() {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        match Travel::start(dir.path()).and_then(Travel::stop) {
            Ok(numbers) => assert!(numbers.contains_key("head_requests")),
            Err(reason) => {
                assert!(reason.contains("; "), "{reason}");
                println!("skipped: {reason}");
            }
        }
    }
}
