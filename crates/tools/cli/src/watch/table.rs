//! System counters while a command ran: the columns of sar for the whole run, as text.

use crate::out;
use ioloom_model::units::{format_count, format_ns, format_size};
use ioloom_observe::counters::{Field, Record, Sample, devices, memory};
use std::fmt::Write;

/// Width of the row labels in columns.
const HEAD: usize = 10;

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
    seen.devices(&mut out);
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

    fn devices(&self, out: &mut String) {
        let names = self.record.devices.iter().enumerate();
        let rows: Vec<_> = names
            .filter_map(|(i, name)| Some((name, devices(self.a, self.b, i)?)))
            .filter(|(_, rates)| rates.tps > 0.0 || rates.flushes_per_s > 0.0)
            .collect();
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "{:<HEAD$} {:>7} {:>9} {:>9} {:>8} {:>7} {:>8} {:>5} {:>7}",
            "device", "tps", "rkB/s", "wkB/s", "areq-sz", "aqu-sz", "await", "%util", "flush/s"
        );
        for (name, r) in rows {
            let name: String = name.chars().take(HEAD).collect();
            let _ = writeln!(
                out,
                "{name:<HEAD$} {:>7.0} {:>9.0} {:>9.0} {:>8.1} {:>7.2} {:>8.2} {:>5.0} {:>7.1}",
                r.tps,
                r.rkb_per_s,
                r.wkb_per_s,
                r.areq_sz_kib,
                r.aqu_sz,
                r.await_ms,
                r.util_percent,
                r.flushes_per_s,
            );
        }
    }
}
