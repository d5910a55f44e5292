//! The exchange chapter: the 42 published runs compared with the closed-loop law and with this
//! machine, an explanatory chart, the servers without sleeping clients, and an explanation.
//!
//! The law is that of `predict::closed`: rounds of clients times orders times the sleep. It
//! deliberately contains no property of the server.

use super::arms::{arm, median_of, row};
use super::causes::{self, Cause};
use crate::estimate::Estimate;
use crate::figures::Figure;
use crate::group::{ArmRuns, Group};
use crate::input::Input;
use crate::markup::Markup;
use crate::page::parts;
use crate::quantity::Unit;
use crate::svg::lines;
use ioloom_model::units::format_ns;
use ioloom_predict::closed_loop::sleepers_elapsed_s;

/// The published table, and its columns in the order of [`Cell`].
const TABLE: &str = "004_exchange";
const COLUMNS: [&str; 6] =
    ["model", "threads", "workload", "clients", "orders_per_client", "elapsed_us"];
/// Sleep of the published clients in seconds.
const SLEEP_S: f64 = 1.0;
/// Experiments that repeat the published cells, the longer sleep first.
const CELLS: [&str; 2] = ["cells", "cells-short"];

/// One published run.
struct Cell {
    model: String,
    threads: u64,
    workload: String,
    clients: u64,
    orders: u64,
    elapsed_s: f64,
}

impl Cell {
    fn read(columns: &[usize; 6], row: &[String]) -> Option<Self> {
        let text = |at: usize| row.get(columns[at]);
        Some(Self {
            model: text(0)?.clone(),
            threads: text(1)?.parse().ok()?,
            workload: text(2)?.clone(),
            clients: text(3)?.parse().ok()?,
            orders: text(4)?.parse().ok()?,
            elapsed_s: text(5)?.parse::<f64>().ok()? / 1e6,
        })
    }

    /// Returns the server and the commands, in the form of arm names.
    fn family(&self) -> String {
        let server = match self.model.as_str() {
            "pool" => format!("pool{}", self.threads),
            other => other.to_owned(),
        };
        let commands = match self.workload.as_str() {
            "show" => "show",
            "buy+sell" => "trade",
            _ => "all",
        };
        format!("{server}-{commands}")
    }

    fn words(&self) -> String {
        let server = match self.model.as_str() {
            "pool" => format!("pool of {}", self.threads),
            other => other.to_owned(),
        };
        let commands = match self.workload.as_str() {
            "show" => "lists",
            "buy+sell" => "orders",
            _ => "all commands",
        };
        format!("{server}, {commands}, {} clients", self.clients)
    }

    fn law_s(&self) -> f64 {
        let threads = (self.model == "pool").then_some(self.threads);
        sleepers_elapsed_s(self.clients, threads, self.orders, SLEEP_S)
    }
}

/// Draws the chapter; empty without measured runs.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    if groups.is_empty() {
        return m;
    }
    let published = published(input);
    if let Some(figure) = picture(input, groups, &published) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("The sleep, the threads and, far below, the servers.");
            m.text(&format!(
                " Time per order by number of clients. Top: in the published runs, each client \
                sleeps for a second after every order, so an order takes a second with any \
                server; if a thread serves one client until it disconnects, other clients wait \
                for all of its orders. Middle: the same on this machine, with a shorter sleep. \
                Bottom: the response alone, without a sleep. Published points are single runs; \
                measured points are medians; bars: {}.",
                figure.ends_words()
            ));
        });
    }
    cells(&mut m, input, groups, &published);
    for table in TABLES {
        arms_table(&mut m, input, groups, table);
    }
    group_commit(&mut m, input, groups);
    explanation(&mut m, groups);
    m
}

fn published(input: &Input) -> Vec<Cell> {
    let Some(table) = input.published.get(TABLE) else { return Vec::new() };
    let mut columns = [0; 6];
    for (at, name) in columns.iter_mut().zip(COLUMNS) {
        match table.columns.iter().position(|c| c == name) {
            Some(found) => *at = found,
            None => return Vec::new(),
        }
    }
    table.rows.iter().filter_map(|row| Cell::read(&columns, row)).collect()
}

/// Returns the arms of a family in ascending order of clients.
fn over_clients<'g, 'a>(
    groups: &'g [Group<'a>],
    experiment: &str,
    family: &str,
) -> Vec<(f64, &'g ArmRuns<'a>)> {
    let Some(group) = groups.iter().find(|g| g.experiment.name == experiment) else {
        return Vec::new();
    };
    let of_family = group.arms.iter().filter(|a| !a.is_again() && a.family == family);
    let mut found: Vec<_> =
        of_family.filter_map(|a| Some((*a.factors.get("clients")?, a))).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found
}

fn picture(input: &Input, groups: &[Group<'_>], published: &[Cell]) -> Option<Figure> {
    let exact = |median: f64| Estimate { values: Vec::new(), median, ends: None };
    let theirs =
        [("select-all", "select"), ("pool10-all", "pool of 10"), ("pool5-all", "pool of 5")].map(
            |(family, name)| lines::Line {
                name: format!("{name}, published"),
                points: published
                    .iter()
                    .filter(|cell| cell.family() == family)
                    .map(|cell| lines::Point {
                        x: cell.clients as f64,
                        y: exact(cell.elapsed_s / cell.orders as f64 * 1e9),
                        thin: None,
                        note: "one run".to_owned(),
                    })
                    .collect(),
            },
        );
    let own = |experiment: &str, family: &str, metric: &str, name: &str| lines::Line {
        name: name.to_owned(),
        points: over_clients(groups, experiment, family)
            .into_iter()
            .filter_map(|(clients, arm)| {
                let y = arm.metric(&format!("extra.{metric}"), input.seed)?;
                Some(lines::Point { x: clients, y, thin: None, note: arm.name.to_owned() })
            })
            .collect(),
    };
    let ours = [
        own("cells-short", "select-all", "order_ns", "select, sleep 10 ms"),
        own("cells-short", "pool10-all", "order_ns", "pool of 10, sleep 10 ms"),
        own("no-sleep", "select", "latency_p50_ns", "select, no sleep"),
        own("no-sleep", "pool", "latency_p50_ns", "pool, no sleep"),
    ];
    let drawn = theirs.into_iter().chain(ours).filter(|line| line.points.len() > 1);
    let lines: Vec<_> = drawn.collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Time per order by number of clients".to_owned(),
            description:
                "Published runs with a one-second sleep, measured runs with a ten-millisecond \
                sleep, and responses without a sleep."
                    .to_owned(),
            x_title: "clients".to_owned(),
            x_unit: Unit::Number,
            y_title: "time per order".to_owned(),
            y_unit: Unit::Time,
            lines,
            levels: Vec::new(),
            plot_height: 340.0,
            misses: Vec::new(),
        })
    })
}

fn error_of(measured: f64, law: f64) -> String {
    format!("{:+.2} %", (measured / law - 1.0) * 100.0)
}

/// Lists the published runs, the law, and the measured runs.
fn cells(m: &mut Markup, input: &Input, groups: &[Group<'_>], published: &[Cell]) {
    if published.is_empty() {
        return;
    }
    let experiment = CELLS
        .into_iter()
        .find(|name| groups.iter().any(|g| g.experiment.name == *name))
        .unwrap_or(CELLS[1]);
    m.tag("h3").text("The 42 published runs, the law, and this machine");
    let columns = [
        ("server, commands, clients", false),
        ("published", true),
        ("law", true),
        ("error", true),
        ("here", true),
        ("law", true),
        ("error", true),
        ("response alone", true),
    ];
    let (mut errors, mut sleeps) = (Vec::new(), Vec::new());
    parts::table(m, "plain", &columns, |m| {
        for cell in published {
            let (theirs, law) = (cell.elapsed_s * 1e9, cell.law_s() * 1e9);
            errors.push((theirs / law - 1.0).abs());
            let name = format!("{}-{}", cell.family(), cell.clients);
            let ours = arm(groups, experiment, &name).filter(|arm| !arm.runs.is_empty());
            let here = ours.and_then(|a| a.metric("elapsed_ns", input.seed)).map(|e| e.median);
            let own_law = median_of(ours, "law_ns", input.seed);
            sleeps.extend(median_of(ours, "sleep_ns", input.seed).map(format_ns));
            let text = |ns: Option<f64>, none: &str| ns.map_or_else(|| none.to_owned(), format_ns);
            let error =
                here.zip(own_law).map_or_else(|| "–".to_owned(), |(ns, law)| error_of(ns, law));
            row(
                m,
                [
                    &cell.words(),
                    &format_ns(theirs),
                    &format_ns(law),
                    &error_of(theirs, law),
                    &text(here, "not run"),
                    &text(own_law, "–"),
                    &error,
                    &text(median_of(ours, "latency_p50_ns", input.seed), "–"),
                ],
            );
        }
    });
    errors.sort_by(f64::total_cmp);
    let worst = errors.last().copied().unwrap_or(0.0) * 100.0;
    let middle = errors[errors.len() / 2] * 100.0;
    m.tag("p").a("class", "lead").text(&format!(
        "The law is rounds of clients times orders times the sleep; a round includes all clients \
        for select, and as many clients as threads for a pool. It contains no property of the \
        server; its median error is {middle:.2} %, its maximum error {worst:.2} %. The \
        printed rates are orders per ten seconds, not per second. {}",
        own_sleep(sleeps)
    ));
}

/// Describes the sleeps of the runs on this machine; empty without runs.
fn own_sleep(mut sleeps: Vec<String>) -> String {
    sleeps.sort();
    sleeps.dedup();
    match sleeps.is_empty() {
        true => String::new(),
        false => format!("The published clients slept 1 s, those here {}.", sleeps.join(" or ")),
    }
}

/// A table of the arms of one experiment.
struct ArmsTable {
    experiment: &'static str,
    heading: &'static str,
    note: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

const TABLES: &[ArmsTable] = &[
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
        note: "Forty clients and ten stocks; every response is 8192 bytes long.",
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
        note: "Forty clients on forty threads. one-stock: all buy and sell the same stock.",
        columns: &[
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("context switches per request", "server_switches_per_request"),
        ],
    },
    ArmsTable {
        experiment: "cores",
        heading: "CPU usage",
        note: "Sixteen clients that list 5000 stocks. Clients and server share the CPUs, so no \
            server can use all of them.",
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
        note: "Four active clients; names end with the number of idle connections.",
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
        note: "Sixty-four clients. In the request pool, any thread takes any request; in the \
            pool, a thread serves one connection, so threads in excess of the clients are idle.",
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
        note: "Four clients with compact responses; names end with the number of stocks.",
        columns: &[
            ("CPU time per request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("response, median", "latency_p50_ns"),
        ],
    },
    ArmsTable {
        experiment: "critical-section",
        heading: "Time in the critical section",
        note: "Sixteen clients that buy and sell, and sixteen threads; names end with the CPU \
            time of an order, spent before locking the stock or while holding the lock. The bound \
            is that time divided by the number of orders that can spend it concurrently, which \
            depends on threads, CPUs and locks. Clients and server share the CPUs.",
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
        note: "Purchases by four clients of one event loop: without other requests, while another \
            client has sent a partial line, and during lists of 5000 stocks.",
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
               are read one at a time, so concurrent orders can produce totals that never existed.",
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
            connected. Without a durability level in the name, orders are kept only in memory.",
        columns: &[("acknowledged", "acknowledged_orders"), ("kept", "kept_orders")],
    },
];

fn arms_table(m: &mut Markup, input: &Input, groups: &[Group<'_>], table: &ArmsTable) {
    let Some(group) = groups.iter().find(|g| g.experiment.name == table.experiment) else { return };
    let arms: Vec<_> = group.arms.iter().filter(|a| !a.is_again() && !a.runs.is_empty()).collect();
    if arms.is_empty() {
        return;
    }
    m.tag("h3").text(table.heading);
    let columns: Vec<_> = std::iter::once(("server", false))
        .chain(table.columns.iter().map(|(title, _)| (*title, true)))
        .collect();
    parts::table(m, "plain", &columns, |m| {
        for arm in arms {
            m.tag("tr").body(|m| {
                m.tag("td").text(arm.name);
                for (_, metric) in table.columns {
                    let value = median_of(Some(arm), metric, input.seed);
                    let text = value.map(|value| Unit::of(metric).format(value));
                    m.tag("td").a("class", "r").text(text.as_deref().unwrap_or("unknown"));
                }
            });
        }
    });
    m.tag("p").a("class", "lead").text(table.note);
}

/// Lists orders per second by store, durability level and clients, with the group commit law.
fn group_commit(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let Some(group) = groups.iter().find(|g| g.experiment.name == "durability") else { return };
    let arms: Vec<_> = group.arms.iter().filter(|a| !a.is_again() && !a.runs.is_empty()).collect();
    if arms.is_empty() {
        return;
    }
    m.tag("h3").text("Cost of durability");
    let columns = [
        ("store, level, clients", false),
        ("orders", true),
        ("law", true),
        ("p99", true),
        ("orders per commit", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for one in arms {
            let of = |metric: &str| median_of(Some(one), metric, input.seed);
            let clients = one.factors.get("clients").copied().unwrap_or(1.0);
            // A single order takes one sync.
            let store = one.name.rsplitn(3, '-').last().unwrap_or_default();
            let single = arm(groups, "durability", &format!("{store}-each-1"));
            let sync_ns = median_of(single, "latency_p50_ns", input.seed);
            let law = sync_ns.filter(|_| one.name.contains("-group-") && clients > 1.0);
            let law = law.map_or_else(|| "–".to_owned(), |ns| rate(clients / (1.5 * ns) * 1e9));
            let rated = of("requests_per_s").map_or_else(|| "unknown".to_owned(), rate);
            let p99 = of("latency_p99_ns").map_or_else(|| "unknown".to_owned(), format_ns);
            let batch =
                of("orders_per_commit").map_or_else(|| "–".to_owned(), |n| format!("{n:.1}"));
            row(m, [one.name, &rated, &law, &p99, &batch]);
        }
    });
    m.tag("p").a("class", "lead").text(
        "os: written before the response, not synced; group: one sync for all waiting orders; \
        each: \
         one sync per order. The predicted rate is the number of clients divided by the time of 1.5 syncs: \
         an order that arrives during a sync waits until that sync and the next one finish. The \
         sync time is the latency of a single client with each. The log stores use no database \
         engine: log writes and then syncs, \
         log-dsync uses O_DSYNC, log-direct uses direct writes to preallocated blocks, log-uring \
         links write and sync in a ring. postgres is a separate database server, created for each \
         run on the \
         same disk; a commit takes two additional process switches.",
    );
}

fn rate(per_s: f64) -> String {
    Unit::PerSecond.format(per_s)
}

/// The comparisons behind the explanation.
const CAUSES: [Cause; 7] = [
    Cause {
        experiment: "durability",
        arms: ["log-each-1", "log-os-1"],
        metric: "extra.request_ns",
        what: "the time per order of one client",
        factor: "syncing the log for each order",
        key: Some(("durability", [Some("each"), Some("os")])),
    },
    Cause {
        experiment: "durability",
        arms: ["log-each-64", "log-os-64"],
        metric: "extra.request_ns",
        what: "the time per order of 64 clients",
        factor: "syncing the log for each order",
        key: Some(("durability", [Some("each"), Some("os")])),
    },
    Cause {
        experiment: "durability",
        arms: ["log-group-64", "log-each-64"],
        metric: "extra.request_ns",
        what: "the time per order of 64 clients",
        factor: "sharing a sync between orders",
        key: Some(("durability", [Some("group"), Some("each")])),
    },
    Cause {
        experiment: "idle",
        arms: ["select-900", "select-10"],
        metric: "extra.server_cpu_per_request_ns",
        what: "the CPU time per request with select",
        factor: "900 instead of 10 idle connections",
        key: Some(("idle", [Some("900"), Some("10")])),
    },
    Cause {
        experiment: "idle",
        arms: ["epoll-900", "epoll-10"],
        metric: "extra.server_cpu_per_request_ns",
        what: "the CPU time per request with epoll",
        factor: "900 instead of 10 idle connections",
        key: Some(("idle", [Some("900"), Some("10")])),
    },
    Cause {
        experiment: "no-sleep",
        arms: ["pool-40", "select-40"],
        metric: "extra.request_ns",
        what: "the time per request of 40 clients",
        factor: "a pool of threads instead of one loop with select",
        key: None,
    },
    Cause {
        experiment: "service-time",
        arms: ["show-1000", "show-10"],
        metric: "extra.server_cpu_per_request_ns",
        what: "the CPU time per list",
        factor: "a hundred times as many stocks",
        key: Some(("stocks", [Some("1000"), Some("10")])),
    },
];

fn explanation(m: &mut Markup, groups: &[Group<'_>]) {
    causes::write(m, groups, &CAUSES);
    causes::theory(
        m,
        "the law of rounds in crate predict",
        "A client that sleeps for a second after each order sends ten orders in ten seconds with any \
        server that reads from all clients. A pool reads from as many clients as it has threads, if a \
        thread serves one client until it disconnects. The published times follow this law.",
    );
    causes::theory(
        m,
        "select(2), epoll(7)",
        "select passes the whole set of descriptors to the kernel on each call; epoll keeps it there \
        and returns the ready ones.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(model: &str, workload: &str, clients: &str) -> Cell {
        let words = [model, "10", workload, clients, "10", "20028302"].map(str::to_owned);
        Cell::read(&[0, 1, 2, 3, 4, 5], &words).unwrap()
    }

    #[test]
    fn published_runs_have_arm_names_and_a_law() {
        let pool = cell("pool", "show+buy+sell", "20");
        assert_eq!((pool.family().as_str(), pool.law_s()), ("pool10-all", 20.0));
        assert_eq!(pool.words(), "pool of 10, all commands, 20 clients");
        assert_eq!(error_of(pool.elapsed_s, pool.law_s()), "+0.14 %");
        let select = cell("select", "buy+sell", "100");
        assert_eq!((select.family().as_str(), select.law_s()), ("select-trade", 10.0));
        assert_eq!(cell("select", "show", "4").family(), "select-show");
    }

    #[test]
    fn the_sleep_is_that_of_the_runs() {
        let of = |sleeps: &[&str]| own_sleep(sleeps.iter().map(|s| (*s).to_owned()).collect());
        assert_eq!(of(&[]), "");
        let text = "The published clients slept 1 s, those here 20.0 ms.";
        assert_eq!(of(&["20.0 ms", "20.0 ms"]), text);
    }
}
