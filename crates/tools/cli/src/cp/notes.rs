//! Notes about the result of a copy.

use super::args::CpArgs;
use crate::stderr;
use ioloom_copy::{Durable, Report, Verify};
use ioloom_model::units::{format_count, format_ns, format_size};

/// Prints notes about the result. A successful copy without special flags prints nothing.
pub(super) fn print_notes(args: &CpArgs, report: &Report) {
    if report.lost_xattrs && args.wants_all_attributes() {
        stderr::message(
            "the target does not support all extended attributes; the copies lack some",
        );
    }
    if report.verify != Verify::None {
        stderr::message(&verified(report));
    }
    if report.cancelled && args.flags.resume {
        stderr::message(
            "interrupted: complete files are kept under a hidden name; run the same command to continue",
        );
    } else if report.cancelled {
        stderr::message(
            "interrupted: new files that are incomplete and new directories were removed; an existing file that is written in place may be incomplete, and so may a copy of a pipe or device",
        );
    }
    if report.durable != Durable::None && report.errors_count == 0 && !report.cancelled {
        let (size, time) = (format_size(report.bytes), format_ns(report.elapsed_ns as f64));
        stderr::message(&format!("{size} synced to the device after {time}"));
    }
}

/// Formats the verification result with its evidence.
fn verified(report: &Report) -> String {
    let seen = &report.evidence;
    if matches!(report.verify, Verify::None | Verify::InFlight) {
        return "data was hashed while copying; the copies were not read back".to_owned();
    }
    let word = report.verified_word();
    let files =
        |n: u64| if n == 1 { "1 file".to_owned() } else { format!("{} files", format_count(n)) };
    if seen.files == 0 {
        return format!("{word}: no file was read back");
    }
    let (bytes, device) = (format_size(seen.bytes), format_size(seen.device_bytes));
    let mut text = format!(
        "{word}: {}, {bytes} read back, including {device} from the device",
        files(seen.files)
    );
    if seen.not_from_device > 0 {
        let unknown = files(seen.not_from_device);
        text += &format!("; for {unknown} it is unknown whether the data came from the device");
    }
    if report.counts.resumed > 0 {
        let earlier = files(report.counts.resumed);
        text += &format!("; {earlier} from an earlier copy not read back");
    }
    text
}
