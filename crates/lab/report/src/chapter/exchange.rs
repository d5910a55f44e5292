//! The exchange chapter: the 42 published runs compared with the closed-loop law and with this
//! machine, an explanatory chart, the servers without sleeping clients, and an explanation.
//!
//! The law is that of `predict::closed`: rounds of clients times orders times the sleep. It
//! deliberately contains no property of the server.

mod tables;

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
use tables::{TABLES, arms_table};

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
    let own = |experiment: &str, family: &str, metric: &str, name: &str| {
        let arms = over_clients(groups, experiment, family);
        let name = format!("{name}{}", sleep_words(&arms, input.seed));
        let point = |(clients, arm): (f64, &ArmRuns<'_>)| {
            let y = arm.metric(&format!("extra.{metric}"), input.seed)?;
            Some(lines::Point { x: clients, y, thin: None, note: arm.name.to_owned() })
        };
        lines::Line { name, points: arms.into_iter().filter_map(point).collect() }
    };
    let ours = [
        own("cells-short", "select-all", "order_ns", "select, here"),
        own("cells-short", "pool10-all", "order_ns", "pool of 10, here"),
        own("no-sleep", "select", "latency_p50_ns", "select, no sleep"),
        own("no-sleep", "pool", "latency_p50_ns", "pool, no sleep"),
    ];
    let drawn = theirs.into_iter().chain(ours).filter(|line| line.points.len() > 1);
    let lines: Vec<_> = drawn.collect();
    (!lines.is_empty()).then(|| {
        Figure::Lines(lines::Lines {
            title: "Time per order by number of clients".to_owned(),
            description:
                "Published and measured runs of clients that sleep after each order, and responses \
                without a sleep."
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

/// Returns the sleeps of the runs of a line, with a comma before them; empty if they recorded none.
fn sleep_words(arms: &[(f64, &ArmRuns<'_>)], seed: u64) -> String {
    let sleeps = arms.iter().filter_map(|(_, arm)| median_of(Some(arm), "sleep_ns", seed));
    match each_once(sleeps.collect()) {
        sleeps if sleeps.is_empty() => String::new(),
        sleeps => format!(", sleep {sleeps}"),
    }
}

/// Joins times in nanoseconds in their order, each once.
fn each_once(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let mut texts: Vec<String> = times.into_iter().map(format_ns).collect();
    texts.dedup();
    texts.join(" or ")
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
    let count = published.len();
    m.tag("h3").text(&format!("The {count} published runs, the law, and this machine"));
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
            sleeps.extend(median_of(ours, "sleep_ns", input.seed));
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
        printed rates are orders per ten seconds, not per second.{}",
        own_sleep(sleeps)
    ));
}

/// Describes the sleeps of the runs on this machine, after a space; empty without runs.
fn own_sleep(sleeps: Vec<f64>) -> String {
    match each_once(sleeps) {
        sleeps if sleeps.is_empty() => String::new(),
        sleeps => format!(" The published clients slept {SLEEP_S} s, those here {sleeps}."),
    }
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
         same disk.",
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
        thread serves one client until it disconnects.",
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
        let of = |sleeps: &[f64]| own_sleep(sleeps.to_vec());
        assert_eq!(of(&[]), "");
        let text = " The published clients slept 1 s, those here 20.0 ms.";
        assert_eq!(of(&[20e6, 20e6]), text);
        assert!(of(&[100e6, 20e6]).ends_with(" those here 20.0 ms or 100 ms."));
    }
}
