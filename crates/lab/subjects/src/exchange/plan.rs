//! Exchange scenarios and their settings.
//!
//! Every scenario specifies a server (model, sharing, stocks, durability) and an action. Unknown
//! settings are refused, as are values for which a run would never finish.

use ioloom_load::{Mix, Protocol};
use ioloom_model::units::{format_counted, format_ns, parse_duration_ns};
use ioloom_model::{AnyPlan, SubjectPlan};
use ioloom_predict::closed_loop::sleepers_elapsed_s;
use ioloom_serve::{
    Durability, Limits, Model, OrderStore, SERVICE_TIME_MAX, Sharing, ShowMode, StoreKind,
    held_refusal, refusal, show_refusal, store_refusal,
};
use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

/// Maximum number of clients, connections and threads.
const CLIENTS_MAX: u64 = 20_000;
/// Maximum number of stocks.
const STOCKS_MAX: u64 = 20_000;
/// Maximum number of connections in a history, which bounds the pending requests in the search.
const HISTORY_CONNECTIONS_MAX: u64 = 64;
/// Maximum sleep between two orders and maximum duration of a load.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Seconds allowed for creating a database and starting its server.
const DATABASE_S: f64 = 20.0;
/// Maximum sleep with a pool, which closes connections that are idle for longer.
const SLEEP_OF_POOL_MAX: Duration = Duration::from_millis(900);

/// The program that answers the requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    /// The exchange under a concurrency model.
    Exchange(Model),
    /// A server that only answers.
    Null,
}

/// Where the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// In a separate process, started like `ioloom serve`.
    Process,
    /// In threads of the run process.
    Inside,
}

/// The server of a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct ServerSpec {
    pub(super) answers: Answers,
    pub(super) threads: u16,
    pub(super) sharing: Sharing,
    pub(super) show: ShowMode,
    pub(super) durability: Durability,
    pub(super) store: OrderStore,
    pub(super) stocks: u32,
    /// Additional CPU time of each order and each list.
    pub(super) service: Duration,
    /// Whether that time is spent with the stocks locked.
    pub(super) in_lock: bool,
    pub(super) protocol: Protocol,
    pub(super) placement: Placement,
    /// Number of connections that the server must accept.
    pub(super) room: usize,
}

/// The published clients, which sleep after every order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Cell {
    pub(super) clients: usize,
    pub(super) orders: u32,
    pub(super) sleep: Duration,
    pub(super) mix: Mix,
}

/// Connections that send the next request immediately, or requests that arrive at a fixed rate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Steady {
    pub(super) connections: usize,
    /// Arrivals per second of an open loop; `None` is a closed loop.
    pub(super) rate_per_s: Option<f64>,
    pub(super) pipeline: usize,
    pub(super) lasts: Duration,
    pub(super) mix: Mix,
    /// Additional idle connections.
    pub(super) idle: usize,
    /// Additional connections that have sent a partial line.
    pub(super) halves: usize,
}

impl Steady {
    /// Returns the number of concurrent connections, including the one that reads the counter.
    fn all(&self) -> usize {
        let idle_clients = self.idle + self.halves;
        self.connections + idle_clients + usize::from(idle_clients > 0)
    }
}

/// Successive clients with one order each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visits {
    pub(super) visits: u32,
    /// Whether another connection stays open, so there is always a client connected.
    pub(super) held: bool,
}

/// How a server exits before a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EndBy {
    /// All clients disconnect. The server is killed when the stock file contains their orders, or
    /// after a time limit.
    Leave,
    /// SIGTERM while a client is connected.
    Term,
    /// SIGKILL while a client is connected.
    Kill,
}

/// Number of histories, and of connections in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Histories {
    pub(super) histories: u32,
    pub(super) connections: usize,
}

/// An action on a server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    Cell(Cell),
    Steady(Steady),
    Visits(Visits),
    /// Orders, an exit, and a restart.
    Restart(EndBy, u32),
    /// More connections than the model accepts.
    Flood(usize),
    /// Loads in which all requests are recorded and checked.
    Histories(Histories),
}

/// A scenario: a server and an action.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scenario {
    pub(super) spec: ServerSpec,
    pub(super) action: Action,
}

/// Settings for every server. Pool threads are named `workers` because a study repeats ladders over
/// `threads` on every medium, but these servers do not depend on the medium.
const SHAPE: [&str; 11] = [
    "model",
    "workers",
    "sharing",
    "show",
    "durability",
    "store",
    "stocks",
    "service",
    "in-lock",
    "dialect",
    "server",
];
/// Settings not supported by the null server.
const OF_THE_EXCHANGE: std::ops::Range<usize> = 1..9;

fn word<T: FromStr<Err = String>>(plan: &SubjectPlan, key: &str, usual: T) -> Result<T, String> {
    let Some(text) = plan.settings.get(key) else { return Ok(usual) };
    text.parse().map_err(|e| format!("{plan}: {key}: {e}"))
}

fn one_of<T: Copy>(
    plan: &SubjectPlan,
    key: &str,
    usual: T,
    known: &[(&str, T)],
) -> Result<T, String> {
    let Some(text) = plan.settings.get(key) else { return Ok(usual) };
    known.iter().find(|(word, _)| word == text).map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
        format!("{plan}: {key} must be one of {}", words.join(", "))
    })
}

fn count(plan: &SubjectPlan, key: &str, usual: u64, most: u64) -> Result<u64, String> {
    match plan.number(key)? {
        None => Ok(usual),
        Some(n) if (1..=most).contains(&n) => Ok(n),
        Some(_) => Err(format!("{plan}: {key} must be 1 to {most}")),
    }
}

fn time(plan: &SubjectPlan, key: &str, usual: Duration) -> Result<Duration, String> {
    let Some(text) = plan.settings.get(key) else { return Ok(usual) };
    let ns = parse_duration_ns(text).map_err(|e| format!("{plan}: {key}: {e}"))?;
    let time = Duration::from_nanos(ns);
    if time.is_zero() || time > TIME_MAX {
        return Err(format!("{plan}: {key} must be above 0 and at most 60 s"));
    }
    Ok(time)
}

fn service(plan: &SubjectPlan) -> Result<Duration, String> {
    if !plan.settings.contains_key("service") {
        return Ok(Duration::ZERO);
    }
    let service = time(plan, "service", Duration::ZERO)?;
    if service > SERVICE_TIME_MAX {
        return Err(format!("{plan}: service must be at most {SERVICE_TIME_MAX:?}"));
    }
    Ok(service)
}

fn mix(plan: &SubjectPlan) -> Result<Mix, String> {
    let known = [
        ("all", Mix::default()),
        ("show", Mix { show: 1.0, buy: 0.0, sell: 0.0 }),
        ("trade", Mix { show: 0.0, buy: 1.0, sell: 1.0 }),
        ("few-shows", Mix { show: 1.0, buy: 10.0, sell: 10.0 }),
    ];
    one_of(plan, "mix", known[0].1, &known)
}

impl ServerSpec {
    fn of(plan: &SubjectPlan) -> Result<Self, String> {
        let answers = match plan.settings.get("model").map(String::as_str) {
            None => return Err(format!("{plan}: model=MODEL is missing")),
            Some("null") => Answers::Null,
            Some(_) => Answers::Exchange(word(plan, "model", Model::Epoll)?),
        };
        let store = word(plan, "store", OrderStore::Own(StoreKind::Sqlite))?;
        let usual = match answers {
            _ if store == OrderStore::Postgres => Sharing::Database,
            Answers::Exchange(model) => model.default_sharing(),
            Answers::Null => Sharing::Global,
        };
        let spec = Self {
            answers,
            threads: count(plan, "workers", Limits::default().threads as u64, 4096)? as u16,
            sharing: word(plan, "sharing", usual)?,
            show: word(plan, "show", ShowMode::Atomic)?,
            durability: word(plan, "durability", Durability::None)?,
            store,
            stocks: count(plan, "stocks", 10, STOCKS_MAX)? as u32,
            service: service(plan)?,
            in_lock: one_of(plan, "in-lock", false, &[("yes", true), ("no", false)])?,
            protocol: word(plan, "dialect", Protocol::Padded)?,
            placement: one_of(
                plan,
                "server",
                Placement::Process,
                &[("process", Placement::Process), ("inside", Placement::Inside)],
            )?,
            room: 0,
        };
        if let Answers::Exchange(model) = answers {
            let refused = match spec.store {
                OrderStore::Own(store) => refusal(model, spec.sharing, spec.durability)
                    .or_else(|| store_refusal(store, spec.durability)),
                OrderStore::Postgres => spec.database_refusal(),
            };
            let refused = refused
                .or_else(|| spec.held_refusal())
                .or_else(|| spec.unused_refusal(model, &plan.settings));
            if let Some(reason) = refused {
                return Err(format!("{plan}: {reason}"));
            }
        } else if let Some(key) =
            SHAPE[OF_THE_EXCHANGE].iter().find(|k| plan.settings.contains_key(**k))
        {
            return Err(format!("{plan}: the null server has no {key}"));
        }
        Ok(spec)
    }

    /// Returns why a database cannot be used as the store.
    fn database_refusal(&self) -> Option<String> {
        let all = [
            (
                self.durability == Durability::None,
                "a database keeps every order; add durability=os, group or each",
            ),
            (
                self.sharing != Sharing::Database,
                "with store=postgres the database shares the stocks; omit sharing",
            ),
            (
                self.show == ShowMode::PerStock,
                "a database lists all stocks in one statement; omit show=per-stock",
            ),
        ];
        all.iter().find(|(is_so, _)| *is_so).map(|(_, reason)| (*reason).to_owned())
    }

    /// Returns why the service time cannot be spent with the stocks locked.
    fn held_refusal(&self) -> Option<String> {
        if !self.in_lock {
            return None;
        }
        if self.service.is_zero() {
            return Some("in-lock=yes needs a service time; add service=TIME".into());
        }
        held_refusal(self.sharing, self.show)
    }

    /// Returns why a setting that the plan contains would have no effect: the run would be one of another
    /// plan.
    fn unused_refusal(&self, model: Model, settings: &BTreeMap<String, String>) -> Option<String> {
        if self.durability == Durability::None && settings.contains_key("store") {
            return Some(format!(
                "store={} is not used with durability=none, which keeps orders only in memory; \
                 write durability=os, group or each, or omit store",
                self.store
            ));
        }
        if !matches!(model, Model::Pool | Model::RequestPool) && settings.contains_key("workers") {
            return Some(format!(
                "model={model} has no pool of workers; omit workers, or write model=pool or \
                 request-pool"
            ));
        }
        // A database has a message of its own.
        (self.show == ShowMode::PerStock)
            .then(|| show_refusal(model, self.sharing, self.show))
            .flatten()
            .map(|reason| reason.replace("--show per-stock", "show=per-stock"))
    }

    /// Returns whether the server is a pool, in which a connection occupies a thread until it
    /// closes.
    pub(super) fn is_pool(&self) -> bool {
        self.answers == Answers::Exchange(Model::Pool)
    }

    fn sentence(&self) -> String {
        let Answers::Exchange(model) = self.answers else {
            return "a server that only answers".to_owned();
        };
        let threads = match model {
            Model::Pool | Model::RequestPool => {
                format!(" of {}", format_counted(self.threads.into(), "thread", "threads"))
            }
            _ => String::new(),
        };
        let stocks = format_counted(self.stocks.into(), "stock", "stocks");
        let mut text = format!("{model}{threads}, sharing {}, {stocks}", self.sharing);
        if self.durability != Durability::None {
            text.push_str(&format!(", orders stored by {} at {}", self.store, self.durability));
        }
        if !self.service.is_zero() {
            let service = format_ns(self.service.as_nanos() as f64);
            let held = if self.in_lock { " with its stocks locked" } else { "" };
            text.push_str(&format!(", {service} of CPU time per request{held}"));
        }
        if self.placement == Placement::Inside {
            text.push_str(", in the process of the load");
        }
        text
    }
}

impl Scenario {
    /// Returns the scenario of a plan.
    pub(super) fn of(plan: &AnyPlan) -> Result<Self, String> {
        let own =
            plan.for_subject("exchange").ok_or_else(|| format!("{plan}: not of the exchange"))?;
        let allow = |more: &[&str]| own.allow_only(&[&SHAPE[..], more].concat());
        let action = match own.method.as_str() {
            "cell" => {
                allow(&["clients", "orders", "sleep", "mix"])?;
                Action::Cell(Cell {
                    clients: count(own, "clients", 10, CLIENTS_MAX)? as usize,
                    orders: count(own, "orders", 10, 10_000)? as u32,
                    sleep: time(own, "sleep", Duration::from_millis(100))?,
                    mix: mix(own)?,
                })
            }
            method @ ("closed" | "open") => {
                let only = if method == "open" { "rate" } else { "pipeline" };
                allow(&["connections", "lasts", "mix", "idle", "halves", only])?;
                Action::Steady(steady(own)?)
            }
            "visits" => {
                allow(&["visits", "held"])?;
                let visits = count(own, "visits", 50, 100_000)? as u32;
                let held = one_of(own, "held", false, &[("yes", true), ("no", false)])?;
                Action::Visits(Visits { visits, held })
            }
            "restart" => {
                allow(&["end", "orders"])?;
                let ends = [("leave", EndBy::Leave), ("term", EndBy::Term), ("kill", EndBy::Kill)];
                let end = one_of(own, "end", EndBy::Leave, &ends)?;
                Action::Restart(end, count(own, "orders", 50, 10_000)? as u32)
            }
            "flood" => {
                allow(&["connections"])?;
                Action::Flood(count(own, "connections", 1100, CLIENTS_MAX)? as usize)
            }
            "histories" => {
                allow(&["histories", "connections"])?;
                Action::Histories(Histories {
                    histories: count(own, "histories", 5, 1000)? as u32,
                    connections: count(own, "connections", 4, HISTORY_CONNECTIONS_MAX)? as usize,
                })
            }
            other => {
                return Err(format!(
                    "{plan}: no scenario '{other}'; there are: cell, closed, open, visits, \
                    restart, \
                     flood, histories"
                ));
            }
        };
        let mut scenario = Self { spec: ServerSpec::of(own)?, action };
        scenario.spec.room = scenario.connections();
        scenario.check().map_err(|reason| format!("{plan}: {reason}"))?;
        Ok(scenario)
    }

    /// Rejects scenarios that would never finish or would measure something else.
    fn check(&self) -> Result<(), String> {
        let Self { spec, action } = self;
        let pool = spec.is_pool();
        match action {
            Action::Cell(cell) if pool && cell.sleep > SLEEP_OF_POOL_MAX => Err(
                "a pool closes connections that are idle for a second while others wait; use a \
                sleep of at most 900ms"
                    .to_owned(),
            ),
            Action::Steady(steady) if pool && steady.all() > usize::from(spec.threads) => {
                Err("permanent connections occupy pool threads; use as many workers as \
                    connections, and one more with idle connections"
                    .to_owned())
            }
            Action::Steady(_) | Action::Cell(_) | Action::Histories(_)
                if spec.answers == Answers::Exchange(Model::Iterative) =>
            {
                Err("the iterative server serves one connection after the other, so this load \
                    would never finish; use another model"
                    .to_owned())
            }
            Action::Visits(_) | Action::Restart(..) | Action::Flood(_)
                if spec.answers == Answers::Null || spec.protocol != Protocol::Line =>
            {
                Err("this scenario needs the exchange and dialect=line".to_owned())
            }
            Action::Histories(_)
                if spec.answers == Answers::Null || spec.protocol != Protocol::V2 =>
            {
                Err("this scenario needs the exchange and dialect=v2, whose lists are atomic"
                    .to_owned())
            }
            Action::Histories(histories)
                if pool && histories.connections > usize::from(spec.threads) =>
            {
                Err("permanent connections occupy pool threads; use as many workers as connections"
                    .to_owned())
            }
            Action::Cell(_) | Action::Visits(_) | Action::Restart(..) | Action::Flood(_)
                if spec.store == OrderStore::Postgres =>
            {
                Err("each server start creates a new database, so store=postgres is only for \
                    closed, open and histories"
                    .to_owned())
            }
            Action::Restart(..) if spec.placement == Placement::Inside => {
                Err("a server in this process cannot be killed; omit server=inside".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the number of connections of the load, which the server must accept.
    pub(super) fn connections(&self) -> usize {
        match self.action {
            Action::Cell(cell) => cell.clients,
            Action::Steady(steady) => steady.all(),
            Action::Flood(connections) => connections,
            Action::Histories(histories) => histories.connections,
            Action::Visits(_) | Action::Restart(..) => 2,
        }
    }

    /// Returns the total seconds of sleep, or the duration of the load.
    pub(super) fn takes_s(&self) -> f64 {
        let database_s = if self.spec.store == OrderStore::Postgres { DATABASE_S } else { 0.0 };
        database_s + self.load_s()
    }

    fn load_s(&self) -> f64 {
        match self.action {
            Action::Cell(cell) => {
                let threads = self.spec.is_pool().then(|| u64::from(self.spec.threads));
                let (clients, orders) = (cell.clients as u64, u64::from(cell.orders));
                sleepers_elapsed_s(clients, threads, orders, cell.sleep.as_secs_f64())
            }
            Action::Steady(steady) => steady.lasts.as_secs_f64(),
            Action::Visits(_) | Action::Restart(..) | Action::Flood(_) | Action::Histories(_) => {
                0.0
            }
        }
    }

    /// Returns a description for the report.
    pub(super) fn sentence(&self) -> String {
        let server = self.spec.sentence();
        match self.action {
            Action::Cell(cell) => format!(
                "{server}: {} of {}, each sleeping for {} after every order",
                format_counted(cell.clients as u64, "client", "clients"),
                format_counted(cell.orders.into(), "order", "orders"),
                format_ns(cell.sleep.as_nanos() as f64)
            ),
            Action::Steady(steady) => {
                let how = match steady.rate_per_s {
                    Some(rate) => {
                        format!("{rate} requests per second arrive regardless of earlier answers")
                    }
                    None if steady.pipeline > 1 => {
                        format!(
                            "each sends the next request immediately, {} in flight",
                            steady.pipeline
                        )
                    }
                    None => "each sends the next request immediately".to_owned(),
                };
                let connections =
                    format_counted(steady.connections as u64, "connection", "connections");
                let mut text = format!("{server}: {connections}, {how}");
                if steady.idle > 0 {
                    text.push_str(&format!(", and {} idle", steady.idle));
                }
                if steady.halves > 0 {
                    text.push_str(&format!(", and {} with a partial line", steady.halves));
                }
                text
            }
            Action::Visits(Visits { visits, held }) => {
                let held = if held { ", while another one stays connected" } else { "" };
                format!("{server}: {visits} successive clients with one order each{held}")
            }
            Action::Restart(end, orders) => {
                let end = match end {
                    EndBy::Leave => "the client disconnects, then the server is killed",
                    EndBy::Term => "the server is terminated while the client is connected",
                    EndBy::Kill => "the server is killed while the client is connected",
                };
                format!("{server}: {orders} orders are acknowledged, {end}, and it restarts")
            }
            Action::Flood(connections) => {
                format!(
                    "{server}: {connections} concurrent connections; they close and a new one is \
                    opened"
                )
            }
            Action::Histories(Histories { histories, connections }) => format!(
                "{server}, lists {}: {histories} histories of {connections} connections, each \
                 searched for an order of its requests that explains every answer",
                self.spec.show
            ),
        }
    }
}

fn steady(plan: &SubjectPlan) -> Result<Steady, String> {
    let many = |key: &str| match plan.number(key)? {
        Some(n) if n > CLIENTS_MAX => Err(format!("{plan}: {key} must be at most {CLIENTS_MAX}")),
        n => Ok(n.unwrap_or(0) as usize),
    };
    let rate_per_s = match (plan.method.as_str(), plan.number("rate")?) {
        ("open", Some(rate @ 1..=1_000_000)) => Some(rate as f64),
        ("open", _) => {
            return Err(format!("{plan}: rate must be 1 to 1000000 requests per second"));
        }
        _ => None,
    };
    Ok(Steady {
        connections: count(plan, "connections", 10, CLIENTS_MAX)? as usize,
        rate_per_s,
        pipeline: count(plan, "pipeline", 1, 128)? as usize,
        lasts: time(plan, "lasts", Duration::from_millis(200))?,
        mix: mix(plan)?,
        idle: many("idle")?,
        halves: many("halves")?,
    })
}
