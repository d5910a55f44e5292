//! Tables of the arms of experiments in the exchange chapter.

use crate::chapter::arms::median_of;
use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::Unit;
use ioloom_model::AnyPlan;
use ioloom_model::units::format_counted;

/// Counts of rare events, which are summed over all runs: a median hides those of a few runs.
const SUMMED: [&str; 6] = [
    "histories",
    "histories_violated",
    "histories_undecided",
    "acknowledged_orders",
    "kept_orders",
    "lost_orders",
];

/// A table of the arms of one experiment.
pub(super) struct ArmsTable {
    experiment: &'static str,
    heading: &'static str,
    note: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

/// The tables in the order of the chapter.
pub(super) const TABLES: &[ArmsTable] = &[
    ArmsTable {
        experiment: "no-sleep",
        heading: "Without sleeping clients",
        note: "Names end with the number of clients. Clients and server share the CPUs, so rates \
            depend on both; CPU time, context switches and memory cover the server process only.",
        columns: &[
            ("requests", "requests_per_s"),
            ("response, median", "latency_p50_ns"),
            ("p99", "latency_p99_ns"),
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("context switches per request", "server_switches_per_request"),
            ("peak memory", "server_peak_bytes"),
        ],
    },
    ArmsTable {
        experiment: "mix",
        heading: "Lists and orders",
        note: "Every response is padded to the same length.",
        columns: &[
            ("requests", "requests_per_s"),
            ("response, median", "latency_p50_ns"),
            ("CPU time per request", "server_cpu_per_request_ns"),
        ],
    },
    ArmsTable {
        experiment: "arrivals",
        heading: "Requests at a fixed rate",
        note: "Names end with the number of requests per second, sent regardless of earlier \
            responses. Latency is measured from the time at which a request was due; runs in \
            which the load generator was late are excluded.",
        columns: &[
            ("response, median", "latency_p50_ns"),
            ("p99", "latency_p99_ns"),
            ("p99.9", "latency_p999_ns"),
            ("load generator delay, p99", "load_late_p99_ns"),
        ],
    },
    ArmsTable {
        experiment: "sharing",
        heading: "How threads share the stocks",
        note: "one-stock: all buy and sell the same stock.",
        columns: &[
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("context switches per request", "server_switches_per_request"),
        ],
    },
    ArmsTable {
        experiment: "cores",
        heading: "CPU usage",
        note: "The clients list all stocks. Clients and server share the CPUs, so no server can use \
            all of them.",
        columns: &[("CPUs used by the server", "server_cores"), ("requests", "requests_per_s")],
    },
    ArmsTable {
        experiment: "replies",
        heading: "Padded and compact responses",
        note: "The original protocol pads every response to 8192 bytes. A 1 Gbit/s network would \
            limit any server to 14 370 responses per second; these runs use no network.",
        columns: &[
            ("requests", "requests_per_s"),
            ("received", "received_bytes_per_s"),
            ("response, median", "latency_p50_ns"),
            ("CPU time per request", "server_cpu_per_request_ns"),
        ],
    },
    ArmsTable {
        experiment: "idle",
        heading: "Idle connections",
        note: "Names end with the number of idle connections.",
        columns: &[
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("p99", "latency_p99_ns"),
            ("memory", "server_memory_bytes"),
            ("threads", "server_threads"),
        ],
    },
    ArmsTable {
        experiment: "threads",
        heading: "Number of threads",
        note: "In the request pool, any thread takes any request; in the pool, a thread serves one \
            connection, so threads in excess of the clients are idle.",
        columns: &[
            ("requests", "requests_per_s"),
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("context switches per request", "server_switches_per_request"),
            ("peak memory", "server_peak_bytes"),
        ],
    },
    ArmsTable {
        experiment: "service-time",
        heading: "Command cost by number of stocks",
        note: "Responses are compact; names end with the number of stocks.",
        columns: &[
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("response, median", "latency_p50_ns"),
        ],
    },
    ArmsTable {
        experiment: "critical-section",
        heading: "Time in the critical section",
        note: "The clients buy and sell; names end with the CPU time of an order, spent before \
            locking the stock or while holding the lock. The bound is that time divided by the \
            number of orders that can spend it concurrently, which depends on threads, CPUs and \
            locks. Clients and server share the CPUs.",
        columns: &[
            ("time per order", "request_ns"),
            ("bound", "law_request_ns"),
            ("orders", "requests_per_s"),
            ("CPUs used by the server", "server_cores"),
        ],
    },
    ArmsTable {
        experiment: "meanwhile",
        heading: "Latency during other requests",
        note: "Purchases at one event loop: without other requests, while another client has sent a \
            partial line, and during lists of all stocks.",
        columns: &[
            ("purchase, median", "buy_latency_p50_ns"),
            ("p99", "buy_latency_p99_ns"),
            ("requests", "requests_per_s"),
        ],
    },
    ArmsTable {
        experiment: "visits",
        heading: "Clients with one order",
        note: "With -file, no other client is connected, so the stock file is written and synced \
            each time the client disconnects, and the next client waits for that.",
        columns: &[("visit, median", "visit_p50_ns"), ("p99", "visit_p99_ns")],
    },
    ArmsTable {
        experiment: "histories",
        heading: "Linearizability",
        note: "Each history was searched for a sequential order of its requests that explains \
            every \
               response. A list of all stocks is one request. With per-stock in the name, stocks \
               are read one at a time, so concurrent orders can produce totals that never existed. \
               The counts are sums over all runs.",
        columns: &[
            ("histories", "histories"),
            ("violated", "histories_violated"),
            ("undecided", "histories_undecided"),
        ],
    },
    ArmsTable {
        experiment: "restart",
        heading: "After a restart",
        note: "leave: all clients had disconnected before the exit; term and kill: one was \
            connected. Without a durability level in the name, orders are kept only in memory. The \
            counts are sums over all runs.",
        columns: &[
            ("acknowledged", "acknowledged_orders"),
            ("kept", "kept_orders"),
            ("lost", "lost_orders"),
        ],
    },
];

/// Draws a table, if its experiment has runs.
pub(super) fn arms_table(m: &mut Markup, input: &Input, groups: &[Group<'_>], table: &ArmsTable) {
    let Some(group) = groups.iter().find(|g| g.experiment.name == table.experiment) else { return };
    let arms: Vec<_> = group.arms.iter().filter(|a| !a.is_again() && !a.runs.is_empty()).collect();
    if arms.is_empty() {
        return;
    }
    let note = format!("{}{}", shared_words(arms.iter().map(|arm| arm.plan)), table.note);
    m.tag("h3").text(table.heading);
    let is_summed = table.columns.iter().any(|(_, metric)| SUMMED.contains(metric));
    let columns: Vec<_> = std::iter::once(("server", false))
        .chain(is_summed.then_some(("runs", true)))
        .chain(table.columns.iter().map(|(title, _)| (*title, true)))
        .collect();
    parts::table(m, "plain", &columns, |m| {
        for arm in arms {
            m.tag("tr").body(|m| {
                m.tag("td").text(arm.name);
                if is_summed {
                    m.tag("td").a("class", "r").text(&arm.runs.len().to_string());
                }
                for (_, metric) in table.columns {
                    let value = if SUMMED.contains(metric) {
                        sum_of(arm, metric)
                    } else {
                        median_of(Some(arm), metric, input.seed)
                    };
                    let text = value.map(|value| Unit::of(metric).format(value));
                    m.tag("td").a("class", "r").text(text.as_deref().unwrap_or("unknown"));
                }
            });
        }
    });
    m.tag("p").a("class", "lead").text(&note);
}

/// Settings of plans that the notes count: name, one and several.
const COUNTED: [(&str, &str, &str); 3] = [
    ("connections", "client", "clients"),
    ("workers", "thread", "threads"),
    ("stocks", "stock", "stocks"),
];

/// Returns the counts that all plans set to the same number as a sentence, with a space after it; empty if
/// there are none.
fn shared_words<'p>(plans: impl Iterator<Item = &'p AnyPlan>) -> String {
    let plans: Vec<_> = plans.collect();
    let count = |(key, one, several): &(&str, &str, &str)| {
        let mut numbers =
            plans.iter().map(|plan| plan.for_subject("exchange")?.number(key).ok().flatten());
        let first = numbers.next()??;
        numbers.all(|n| n == Some(first)).then(|| format_counted(first, one, several))
    };
    let counts: Vec<String> = COUNTED.iter().filter_map(count).collect();
    match counts.split_last() {
        None => String::new(),
        Some((last, [])) => format!("Each server has {last}. "),
        Some((last, others)) => format!("Each server has {} and {last}. ", others.join(", ")),
    }
}

/// Returns the sum of an `extra` metric over the finished runs of an arm, if they have it.
fn sum_of(arm: &ArmRuns<'_>, metric: &str) -> Option<f64> {
    let values = arm.blocks(&format!("extra.{metric}"));
    (!values.is_empty()).then(|| values.iter().map(|(_, value)| value).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_note_are_those_of_the_plans() {
        let of = |plans: &[&str]| {
            let plans: Vec<AnyPlan> = plans.iter().map(|text| text.parse().unwrap()).collect();
            shared_words(plans.iter())
        };
        let one = "exchange:closed/model=pool,workers=3,connections=7";
        assert_eq!(of(&[one]), "Each server has 7 clients and 3 threads. ");
        let other = "exchange:closed/model=pool,workers=4,connections=7,stocks=5";
        assert_eq!(of(&[one, other]), "Each server has 7 clients. ");
        assert_eq!(of(&[one, "exchange:closed/model=epoll,connections=1"]), "");
        assert_eq!(of(&["exchange:closed/model=epoll,stocks=1"]), "Each server has 1 stock. ");
        assert_eq!(of(&[]), "");
    }

    #[test]
    fn no_note_types_the_size_of_a_load() {
        for table in TABLES {
            let note = table.note.to_lowercase();
            for word in ["forty", "sixteen", "sixty", "four clients", "four active", "ten stocks"] {
                assert!(!note.contains(word), "{}: {word}", table.experiment);
            }
        }
    }
}
