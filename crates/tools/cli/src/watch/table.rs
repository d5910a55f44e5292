//! System counters while a command ran: the columns of sar for the whole run, as text.

use crate::out;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_observe::counters::{Field, Record, Sample, devices, memory};
use std::fmt::Write;

/// Width of the row labels in columns.
const HEAD: usize = 10;
/// Names of the device columns and their widths.
const COLUMNS: [(&str, usize); 8] = [
    ("tps", 7),
    ("rkB/s", 9),
    ("wkB/s", 9),
    ("areq-sz", 8),
    ("aqu-sz", 7),
    ("await", 8),
    ("%util", 5),
    ("flush/s", 7),
];

/// Formats the table in `width` columns. Missing values are `unknown`.
pub(super) fn text(record: &Record, width: usize) -> String {
    let Some((a, b)) = record.ends() else {
        return format!("\n{}", out::wrap("System counters: fewer than two samples.", width, 0));
    };
    let elapsed = format_ns((b.at_ns - a.at_ns) as f64);
    let samples = format_count(record.samples.len() as u64);
    let cost = record.cost() * 100.0;
    let heading = format!("System counters, including all processes ({elapsed}):");
    let mut out = format!("\n{}", out::wrap(&heading, width, 0));
    let seen = Seen { a, b, record };
    for (head, line) in [
        ("paging", seen.paging()),
        ("reclaim", seen.reclaim()),
        ("dirty", seen.dirty()),
        ("memory", seen.memory()),
        ("waiting", seen.waiting()),
        ("program", seen.program()),
    ] {
        let line = line.unwrap_or_else(|| "unknown: not reported by the system".to_owned());
        out.push_str(&out::labelled(head, HEAD, &line, width));
    }
    seen.devices(width, &mut out);
    let note = format!(
        "{samples} samples, {} late; sampling took {cost:.2} % of one processor.",
        format_count(record.late)
    );
    out.push_str(&out::wrap(&note, width, 0));
    out
}

struct Seen<'a> {
    a: &'a Sample,
    b: &'a Sample,
    record: &'a Record,
}

fn pages(count: u64) -> String {
    format_size(count.saturating_mul(ioloom_sys::proc::page_bytes()))
}

impl Seen<'_> {
    fn grown(&self, field: Field) -> Option<u64> {
        Some(self.b.get(field)?.saturating_sub(self.a.get(field)?))
    }

    /// Returns the maximum of a field.
    fn most(&self, field: Field) -> Option<u64> {
        self.record.samples.iter().filter_map(|sample| sample.get(field)).max()
    }

    fn paging(&self) -> Option<String> {
        let kib = |field| Some(format_size(self.grown(field)?.saturating_mul(1024)));
        let count = |field| self.grown(field).map(format_count);
        Some(format!(
            "in {}, out {}; {} faults, including {} that waited for a device; freed {}",
            kib(Field::PageIn)?,
            kib(Field::PageOut)?,
            count(Field::Faults)?,
            count(Field::MajorFaults)?,
            pages(self.grown(Field::Freed)?),
        ))
    }

    fn reclaim(&self) -> Option<String> {
        let stalls = self.grown(Field::StallsNormal).unwrap_or(0)
            + self.grown(Field::StallsMovable).unwrap_or(0);
        let stolen = self.grown(Field::StolenAnon).zip(self.grown(Field::StolenFile));
        Some(format!(
            "scanned {} in the background and {} in tasks that needed memory, reclaimed {}, refaulted \
             {}; {} stalls",
            pages(self.grown(Field::ScannedBackground)?),
            pages(self.grown(Field::ScannedDirect)?),
            stolen.map_or_else(|| "unknown".to_owned(), |(anon, file)| pages(anon + file)),
            pages(self.grown(Field::RefaultedFile)?),
            format_count(stalls),
        ))
    }

    fn dirty(&self) -> Option<String> {
        let level = |field| self.b.get(field).map(pages);
        Some(format!(
            "{} at the start, {} maximum, {} at the end; {} maximum under writeback; background \
             writeback starts at {}, writers are throttled up to {}",
            pages(self.a.get(Field::Dirty)?),
            pages(self.most(Field::Dirty)?),
            level(Field::Dirty)?,
            pages(self.most(Field::Writeback)?),
            level(Field::BackgroundLimit)?,
            level(Field::DirtyLimit)?,
        ))
    }

    fn memory(&self) -> Option<String> {
        let change =
            |field| Some(format!("{} to {}", pages(self.a.get(field)?), pages(self.b.get(field)?)));
        let (_, last) = self.record.memory_ends()?;
        let levels = memory(last)?;
        let kib = |kib: u64| format_size(kib.saturating_mul(1024));
        Some(format!(
            "free {}, page cache {}; at the end {} available of {}, {} used ({:.0} %; {} in sar before \
             12.7.8), buffers {}, committed {} ({:.0} %), active {}, inactive {}",
            change(Field::Free)?,
            change(Field::FilePages)?,
            kib(levels.kbavail),
            kib(last.get(Field::MemTotal)?),
            kib(levels.kbmemused),
            levels.memused_percent,
            levels.kbmemused_before_12_7_8.map_or_else(|| "unknown".to_owned(), kib),
            kib(levels.kbbuffers),
            kib(levels.kbcommit),
            levels.commit_percent,
            kib(levels.kbactive),
            kib(levels.kbinact),
        ))
    }

    fn waiting(&self) -> Option<String> {
        let elapsed_us = (self.b.at_ns - self.a.at_ns) as f64 / 1000.0;
        let part = |field| {
            self.grown(field)
                .map(|us| format!("{:.0} %", (us as f64 / elapsed_us * 100.0).min(100.0)))
        };
        Some(format!(
            "for I/O {} of the time (all tasks {}), for memory {} (all {}), for a processor {}",
            part(Field::IoSome)?,
            part(Field::IoFull)?,
            part(Field::MemorySome)?,
            part(Field::MemoryFull)?,
            part(Field::CpuSome)?,
        ))
    }

    /// Uses only the last sample, because the command's counters start at zero.
    fn program(&self) -> Option<String> {
        let bytes = |field| self.most(field).map(format_size);
        Some(format!(
            "read {} from devices; dirtied or directly wrote {}, of which {} was never written back",
            bytes(Field::TaskRead)?,
            bytes(Field::TaskWritten)?,
            bytes(Field::TaskCancelled)?,
        ))
    }

    fn devices(&self, width: usize, out: &mut String) {
        let names = self.record.devices.iter().enumerate();
        let rows: Vec<_> = names
            .filter_map(|(i, name)| Some((name, devices(self.a, self.b, i)?)))
            .filter(|(_, rates)| rates.tps > 0.0 || rates.flushes_per_s > 0.0)
            .map(|(name, r)| {
                let values = [
                    format!("{:.0}", r.tps),
                    format!("{:.0}", r.rkb_per_s),
                    format!("{:.0}", r.wkb_per_s),
                    format!("{:.1}", r.areq_sz_kib),
                    format!("{:.2}", r.aqu_sz),
                    format!("{:.2}", r.await_ms),
                    format!("{:.0}", r.util_percent),
                    format!("{:.1}", r.flushes_per_s),
                ];
                (name.chars().take(HEAD).collect::<String>(), values)
            })
            .collect();
        out.push_str(&device_table(&rows, width));
    }
}

/// Formats a row for each device. Columns that do not fit continue in another table.
fn device_table(rows: &[(String, [String; COLUMNS.len()])], width: usize) -> String {
    let mut out = String::new();
    if rows.is_empty() {
        return out;
    }
    let heading = ("device".to_owned(), COLUMNS.map(|(name, _)| name.to_owned()));
    let mut first = 0;
    while first < COLUMNS.len() {
        let mut wide = HEAD;
        let fits = COLUMNS[first..].iter().take_while(|(_, columns)| {
            wide += 1 + columns;
            wide <= width
        });
        let shown = first..first + fits.count().max(1);
        for (name, values) in std::iter::once(&heading).chain(rows) {
            let _ = write!(out, "{name:<HEAD$}");
            for i in shown.clone() {
                let _ = write!(out, " {:>1$}", values[i], COLUMNS[i].1);
            }
            out.push('\n');
        }
        first = shown.end;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_fit_the_width_and_keep_all_columns() {
        let values = ["1234567", "12345678", "12345678", "1024.0", "12.25", "99.50", "100", "7.5"];
        let rows = [("nvme0n1".to_owned(), values.map(str::to_owned))];
        for (width, lines) in [(40, 6), (60, 4), (78, 2), (80, 2)] {
            let text = device_table(&rows, width);
            assert_eq!(text.lines().count(), lines, "{width}: {text}");
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            for value in values.into_iter().chain(COLUMNS.map(|(name, _)| name)) {
                assert!(text.contains(value), "{width}: {text}");
            }
        }
        assert_eq!(device_table(&[], 80), "");
    }
}
