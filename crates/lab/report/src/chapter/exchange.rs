//! The chapter of the exchange: the 42 published runs beside what the closed loop says of them and
//! beside this machine's, the picture that explains them, what the servers do when nobody sleeps, and
//! why it is so.
//!
//! The law is that of `predict::closed`: rounds of clients times orders times the sleep. It knows no
//! server at all, which is the point.

use super::arms::{arm, median_of, row};
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
/// Sleep of the published clients, seconds.
const SLEEP_S: f64 = 1.0;
/// Where the cells were run here, the longer sleep first.
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

    /// The server and the commands, as arms of ours are named.
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

/// The chapter; empty without runs of ours.
pub(super) fn chapter(input: &Input, groups: &[Group<'_>]) -> Markup {
    let mut m = Markup::new();
    if groups.is_empty() {
        return m;
    }
    let published = published(input);
    if let Some(figure) = picture(input, groups, &published) {
        parts::figure(&mut m, &figure, |m| {
            m.tag("b").text("The sleep, the threads, and far below them the servers.");
            m.text(&format!(
                " Time of one order over the number of clients. Above: as published, each client \
                 sleeping for a second after every order; whoever answers takes a second, and where a \
                 thread belongs to a client, the others wait for whole clients. In the middle the same \
                 here with a shorter sleep. Below: the answer alone, when nobody sleeps. Published \
                 points are single runs; ours are medians; bars: {}.",
                figure.ends_words()
            ));
        });
    }
    cells(&mut m, input, groups, &published);
    for table in TABLES {
        arms_table(&mut m, input, groups, table);
    }
    group_commit(&mut m, input, groups);
    mechanism(&mut m);
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

/// Arms of an experiment whose names are a family and a number of clients, fewest clients first.
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
            title: "Time of one order by the number of clients".to_owned(),
            description: "Published runs with a sleep of a second, ours with one of ten \
                          milliseconds, and answers without a sleep."
                .to_owned(),
            x_title: "clients".to_owned(),
            x_unit: Unit::Number,
            y_title: "one order".to_owned(),
            y_unit: Unit::Time,
            lines,
            levels: Vec::new(),
            plot_height: 340.0,
        })
    })
}

fn off(measured: f64, law: f64) -> String {
    format!("{:+.2} %", (measured / law - 1.0) * 100.0)
}

/// The published runs, the law, and ours.
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
        ("off by", true),
        ("here", true),
        ("law", true),
        ("off by", true),
        ("the answer alone", true),
    ];
    let mut errors = Vec::new();
    parts::table(m, "plain", &columns, |m| {
        for cell in published {
            let (theirs, law) = (cell.elapsed_s * 1e9, cell.law_s() * 1e9);
            errors.push((theirs / law - 1.0).abs());
            let name = format!("{}-{}", cell.family(), cell.clients);
            let ours = arm(groups, experiment, &name).filter(|arm| !arm.runs.is_empty());
            let here = ours.and_then(|a| a.metric("elapsed_ns", input.seed)).map(|e| e.median);
            let own_law = median_of(ours, "law_ns", input.seed);
            let text = |ns: Option<f64>, none: &str| ns.map_or_else(|| none.to_owned(), format_ns);
            let error = here.zip(own_law).map_or_else(|| "–".to_owned(), |(ns, law)| off(ns, law));
            row(
                m,
                [
                    &cell.words(),
                    &format_ns(theirs),
                    &format_ns(law),
                    &off(theirs, law),
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
        "The law is rounds of clients times orders times the sleep: all clients at once for select, \
         as many as threads for a pool. It knows nothing of the server and is off by {middle:.2} % in \
         the middle and {worst:.2} % at worst. Here the sleep is a {} of the published second, so \
         that what starting clients and servers costs weighs as many times as much. The printed rates \
         are orders in ten seconds, not in one.",
        if experiment == CELLS[0] { "tenth" } else { "hundredth" }
    ));
}

/// A table of the arms of one experiment: heading, what to say below, and columns.
struct ArmsTable {
    experiment: &'static str,
    heading: &'static str,
    says: &'static str,
    columns: &'static [(&'static str, &'static str)],
}

const TABLES: &[ArmsTable] = &[
    ArmsTable {
        experiment: "no-sleep",
        heading: "When nobody sleeps",
        says: "The number behind the name is that of the clients. Client and server share the \
               processors, so a rate is that of both; processor time, switches and memory are those \
               of the server's process alone.",
        columns: &[
            ("requests", "requests_per_s"),
            ("answer, median", "latency_p50_ns"),
            ("99 of 100", "latency_p99_ns"),
            ("processor time a request", "server_cpu_per_request_ns"),
            ("switches a request", "server_switches_per_request"),
            ("largest memory", "server_peak_bytes"),
        ],
    },
    ArmsTable {
        experiment: "mix",
        heading: "Lists and orders",
        says: "Forty clients and ten stocks; each answer has 8192 bytes, whatever was asked.",
        columns: &[
            ("requests", "requests_per_s"),
            ("answer, median", "latency_p50_ns"),
            ("processor time a request", "server_cpu_per_request_ns"),
        ],
    },
    ArmsTable {
        experiment: "arrivals",
        heading: "Requests that arrive at a rate",
        says: "The number behind the name is requests a second, whatever became of those before. \
               Latencies count from when a request was due; a run in which the load was late is not \
               one.",
        columns: &[
            ("answer, median", "latency_p50_ns"),
            ("99 of 100", "latency_p99_ns"),
            ("999 of 1000", "latency_p999_ns"),
            ("the load's own lateness", "load_late_p99_ns"),
        ],
    },
    ArmsTable {
        experiment: "sharing",
        heading: "How threads share the stocks",
        says: "Forty clients on forty threads. one-stock: all buy and sell the same one.",
        columns: &[
            ("processor time a request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("switches a request", "server_switches_per_request"),
        ],
    },
    ArmsTable {
        experiment: "cores",
        heading: "On how many processors",
        says: "Sixteen clients that list 5000 stocks. Client and server share the processors, so \
               that no server can have them all.",
        columns: &[("processors of the server", "server_cores"), ("requests", "requests_per_s")],
    },
    ArmsTable {
        experiment: "replies",
        heading: "Padded and compact answers",
        says: "The original protocol pads every answer to 8192 bytes. On a wire of 1 Gbit/s that \
               allows 14 370 answers a second, for any server; here is no wire.",
        columns: &[
            ("requests", "requests_per_s"),
            ("received", "received_bytes_per_s"),
            ("answer, median", "latency_p50_ns"),
            ("processor time a request", "server_cpu_per_request_ns"),
        ],
    },
    ArmsTable {
        experiment: "idle",
        heading: "Connections that say nothing",
        says: "Four clients ask; as many others as the number behind the name say nothing.",
        columns: &[
            ("processor time a request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("99 of 100", "latency_p99_ns"),
            ("memory", "server_memory_bytes"),
            ("threads", "server_threads"),
        ],
    },
    ArmsTable {
        experiment: "threads",
        heading: "How many threads",
        says: "Sixty-four clients. In the request pool any thread takes any request; in the pool a \
               thread belongs to a connection, and those beyond the clients have nothing to do.",
        columns: &[
            ("requests", "requests_per_s"),
            ("processor time a request", "server_cpu_per_request_ns"),
            ("switches a request", "server_switches_per_request"),
            ("largest memory", "server_peak_bytes"),
        ],
    },
    ArmsTable {
        experiment: "service-time",
        heading: "What a command costs by the number of stocks",
        says: "Four clients, compact answers; the number behind the name is that of the stocks.",
        columns: &[
            ("processor time a request", "server_cpu_per_request_ns"),
            ("requests", "requests_per_s"),
            ("answer, median", "latency_p50_ns"),
        ],
    },
    ArmsTable {
        experiment: "critical-section",
        heading: "Time with the stocks held",
        says: "Sixteen clients that buy and sell, sixteen threads; the number behind the name is the \
               processor time of an order, before it takes its stock or while it holds it. At most: \
               that time over the orders that can spend theirs at once, by threads, processors and \
               locks. Client and server share the processors.",
        columns: &[
            ("an order each", "request_ns"),
            ("at most", "law_request_ns"),
            ("orders", "requests_per_s"),
            ("processors of the server", "server_cores"),
        ],
    },
    ArmsTable {
        experiment: "meanwhile",
        heading: "While something else is in work",
        says: "Purchases of four clients of one loop: alone, beside a client that has sent half a \
               line, and beside lists of 5000 stocks.",
        columns: &[
            ("purchase, median", "buy_latency_p50_ns"),
            ("99 of 100", "buy_latency_p99_ns"),
            ("requests", "requests_per_s"),
        ],
    },
    ArmsTable {
        experiment: "visits",
        heading: "Clients that come for one order",
        says: "With -file nobody else stays, so the stock file is written and synced each time the \
               client leaves, and the next one waits for that.",
        columns: &[("visit, median", "visit_p50_ns"), ("99 of 100", "visit_p99_ns")],
    },
    ArmsTable {
        experiment: "histories",
        heading: "Whether an order of the requests explains every answer",
        says: "Each history was searched for an order of its requests, one after the other, that \
               explains every answer. A list of all stocks is one request: with per-stock in the \
               name it is made stock by stock, and shows sums that never were as soon as orders \
               fall into it.",
        columns: &[
            ("histories", "histories"),
            ("not explained", "histories_violated"),
            ("not decided", "histories_undecided"),
        ],
    },
    ArmsTable {
        experiment: "restart",
        heading: "What is left after a restart",
        says: "leave: all clients left before; term and kill: one was connected. Without a level in \
               the name orders are in memory only.",
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
    m.tag("p").a("class", "lead").text(table.says);
}

/// Orders a second by level, store and clients, beside what one sync for many orders allows.
fn group_commit(m: &mut Markup, input: &Input, groups: &[Group<'_>]) {
    let Some(group) = groups.iter().find(|g| g.experiment.name == "durability") else { return };
    let arms: Vec<_> = group.arms.iter().filter(|a| !a.is_again() && !a.runs.is_empty()).collect();
    if arms.is_empty() {
        return;
    }
    m.tag("h3").text("What it costs to keep orders");
    let columns = [
        ("store, level, clients", false),
        ("orders", true),
        ("law", true),
        ("99 of 100", true),
        ("orders in a commit", true),
    ];
    parts::table(m, "plain", &columns, |m| {
        for one in arms {
            let of = |metric: &str| median_of(Some(one), metric, input.seed);
            let clients = one.factors.get("clients").copied().unwrap_or(1.0);
            // One order alone takes one sync.
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
        "os: written before the answer, not synced; group: one sync for all orders that wait; each: \
         a sync for each order. The law is clients over one and a half syncs: an order that comes \
         during a sync waits for the rest of it and for the next one. The sync is what one client \
         alone waits for with each. The stores that are called log have no engine: log writes and \
         then syncs, log-dsync syncs by writing, log-direct writes past the cache into blocks that \
         are there, log-uring links both in a ring. postgres is a database server beside the server \
         of orders, made for each run on the same disk; a commit takes two changes of process more.",
    );
}

fn rate(per_s: f64) -> String {
    Unit::PerSecond.format(per_s)
}

fn mechanism(m: &mut Markup) {
    m.tag("h3").text("Why it is so");
    m.tag("p").text(
        "A client that sleeps for a second after each order asks ten times in ten seconds, however \
         fast it is answered. Clients do that side by side as long as somebody reads what they send: \
         an event loop reads all of them, a pool as many as it has threads, because its threads \
         belong to a client until that leaves. So the published times are rounds of clients times ten \
         seconds; what differs between the servers is how many clients they let sleep at a time.",
    );
    m.tag("p").text(
        "Without the sleep the servers themselves are seen. A request costs the kernel the reading \
         and the writing of a socket, and that is most of it: a lock that nobody else holds and an \
         order in a tree of stocks are small beside it, and a list is small until it has hundreds of \
         lines. Threads add a switch for each request that has to be waited for. select and poll look \
         at every connection each time they are asked; epoll is told which ones have something to \
         say.",
    );
    m.tag("p").text(
        "Keeping an order costs a sync of the disk, a thousand times what everything else costs. Many \
         clients share one sync when their orders are committed together, and only then does the \
         number of clients raise the rate. A stock file written when the last client leaves keeps \
         nothing of a server that ends before that; and written by the thread that serves, it lets \
         the next client wait for the disk.",
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
    fn published_runs_are_named_as_ours_and_have_their_law() {
        let pool = cell("pool", "show+buy+sell", "20");
        assert_eq!((pool.family().as_str(), pool.law_s()), ("pool10-all", 20.0));
        assert_eq!(pool.words(), "pool of 10, all commands, 20 clients");
        assert_eq!(off(pool.elapsed_s, pool.law_s()), "+0.14 %");
        let select = cell("select", "buy+sell", "100");
        assert_eq!((select.family().as_str(), select.law_s()), ("select-trade", 10.0));
        assert_eq!(cell("select", "show", "4").family(), "select-show");
    }
}
