//! What limited a run, in one word and one sentence.

use ioloom_model::record::Bottleneck;
use ioloom_model::units::format_ns;
use ioloom_model::{CallKind, Measured};

/// Share of processor time from which processors count as busy.
const BUSY: f64 = 0.85;

/// A shorter run cannot be judged: starting and ending threads takes a large part of it, and the
/// system counts processor time in steps of milliseconds.
const JUDGED_FROM_NS: u64 = 10_000_000;

/// Judges a run on `cores` usable processors. In this order: threads waited for the memory budget;
/// processors were busy (with the function or with system calls); threads waited for each other;
/// threads waited for the device.
pub fn bottleneck(m: &Measured, cores: u32) -> Bottleneck {
    let total: f64 = m.threads.iter().map(|t| t.elapsed_ns as f64).sum();
    if total == 0.0 || m.elapsed_ns == 0 {
        return word("unknown", "nothing ran".to_owned());
    }
    if m.elapsed_ns < JUDGED_FROM_NS {
        let elapsed = format_ns(m.elapsed_ns as f64);
        return word("unknown", format!("the run took only {elapsed}, too short to judge"));
    }
    let call = |kind| m.calls.get(&kind).map_or(0.0, |c| c.total_ns as f64);
    let memory = call(CallKind::Memory) / total;
    if memory > 0.25 {
        return word(
            "memory",
            format!(
                "threads spent {} of their time waiting for the memory budget",
                percent(memory)
            ),
        );
    }
    let cpu = (m.cpu_user_ns + m.cpu_kernel_ns) as f64;
    let cpu_share = cpu / (m.elapsed_ns as f64 * f64::from(cores.max(1)));
    let share = |state| m.share(state).unwrap_or(0.0);
    // Other programs may keep the processors busy: then threads are ready more than they wait.
    let waits_for_cpu = share("ready") > share("io") + share("sync") + share("compute-blocked");
    if cpu_share >= BUSY || waits_for_cpu { busy(m, cpu, cpu_share) } else { waiting(m, cpu_share) }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// Judges a run whose limit were the processors: by the function, or by system calls.
fn busy(m: &Measured, cpu: f64, cpu_share: f64) -> Bottleneck {
    let kernel = m.cpu_kernel_ns as f64 / cpu.max(1.0);
    let others = by_others(m.others_cpu.unwrap_or(0.0));
    let ours = percent(cpu_share.min(1.0));
    if kernel > 0.5 {
        return word(
            "metadata",
            format!(
                "processors were {ours} busy{others}, {} of it in the kernel: opening, reading and \
                 closing files is the limit",
                percent(kernel)
            ),
        );
    }
    word(
        "compute",
        format!(
            "processors were {ours} busy{others}, {} of it in user space: more cores would help, a \
             faster disk would not",
            percent(1.0 - kernel)
        ),
    )
}

/// Judges a run whose threads waited: in the function, for each other, or for input.
fn waiting(m: &Measured, cpu_share: f64) -> Bottleneck {
    let share = |state| m.share(state).unwrap_or(0.0);
    let (io, sync, inside) = (share("io"), share("sync"), share("compute-blocked"));
    let cpu = percent(cpu_share);
    if inside > io && inside > sync && inside > 0.3 {
        return word(
            "compute",
            format!("the function itself waited for {} of the threads' time", percent(inside)),
        );
    }
    if sync > io {
        return word(
            "hand-over",
            format!(
                "threads waited for each other {} of their time and for input {}, with processors \
                 {cpu} busy",
                percent(sync),
                percent(io)
            ),
        );
    }
    word(
        "device",
        format!(
            "threads waited for input {} of their time with processors {cpu} busy: a faster disk or \
             more requests in flight would help, more cores would not",
            percent(io)
        ),
    )
}

/// Returns text about the share of other processes, empty if it is small.
fn by_others(share: f64) -> String {
    if share < 0.1 {
        return String::new();
    }
    format!(" (and {:.0} % by other programs)", 100.0 * share.min(1.0))
}

fn word(word: &str, sentence: String) -> Bottleneck {
    Bottleneck { word: word.to_owned(), sentence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_model::{CallStats, ThreadTime};

    /// Returns a run of 100 ms; the arguments are in ms.
    fn run(user: u64, kernel: u64, io: u64, sync: u64, memory: u64) -> Measured {
        const MS: u64 = 1_000_000;
        let (user, kernel, memory) = (user * MS, kernel * MS, memory * MS);
        let (io, sync) = (io * MS, sync * MS);
        let mut m = Measured {
            elapsed_ns: 100 * MS,
            cpu_user_ns: user,
            cpu_kernel_ns: kernel,
            threads: vec![ThreadTime {
                elapsed_ns: 100 * MS,
                on_cpu_ns: 100 * MS - io - sync,
                ready_ns: Some(0),
                io_ns: io,
                sync_ns: sync,
                ..ThreadTime::default()
            }],
            ..Measured::default()
        };
        let stats = CallStats { total_ns: memory, count: 1, ..CallStats::default() };
        m.calls.insert(CallKind::Memory, stats);
        m
    }

    /// Turns half of the time on a processor into waiting for one.
    fn pushed_out(mut m: Measured) -> Measured {
        m.threads[0].on_cpu_ns -= 60_000_000;
        m.threads[0].ready_ns = Some(60_000_000);
        m
    }

    #[test]
    fn a_run_of_a_few_milliseconds_is_too_short_to_judge() {
        let mut m = run(0, 0, 0, 0, 0);
        m.elapsed_ns = 2_100_000;
        m.threads[0].elapsed_ns = m.elapsed_ns;
        let found = bottleneck(&m, 2);
        assert_eq!(found.word, "unknown");
        assert!(found.sentence.contains("too short"), "{}", found.sentence);
        assert!(!found.sentence.contains('%'), "{}", found.sentence);
    }

    #[test]
    fn words_follow_the_evidence() {
        for (m, expected) in [
            (run(90, 5, 0, 0, 0), "compute"),
            (run(20, 75, 0, 0, 0), "metadata"),
            (run(10, 10, 70, 10, 0), "device"),
            (run(10, 10, 10, 70, 0), "hand-over"),
            (run(90, 5, 0, 0, 40), "memory"),
            (Measured { others_cpu: Some(0.9), ..run(5, 2, 80, 0, 0) }, "device"),
            (pushed_out(run(20, 10, 10, 0, 0)), "compute"),
            (Measured::default(), "unknown"),
        ] {
            assert_eq!(bottleneck(&m, 1).word, expected);
        }
    }
}
