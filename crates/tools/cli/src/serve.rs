//! `ioloom serve`: the stock exchange of the original assignment, under every concurrency model.

mod database;

use crate::exit::{Ended, Exit, Failure};
use crate::{out, stderr, token_file};
use clap::Args;
use database::DatabaseArgs;
use ioloom_exchange::{ClassicForm, Settings, Spelling, UnknownStock};
use ioloom_model::units::{format_counted, parse_duration_ns};
use ioloom_serve::{
    Durability, Limits, Model, OrderStore, ServeError, ServeOptions, Server, Sharing, ShowMode,
    StopHandle, StoreChoice, StoreKind, TlsFiles, detect_store,
};
use ioloom_sys::proc;
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Descriptors that are not connections: listeners, the store, standard streams and some air.
const DESCRIPTORS_OTHER: usize = 64;
/// The version of the document of `--json`.
const SCHEMA: u32 = 1;

/// Serves the stock exchange: one service, every concurrency model
#[derive(Debug, Args)]
#[command(after_help = "\
One port speaks four protocols, told apart by the first bytes of a client:
  lines     show, buy ID N, sell ID N, exit; answers padded to 8192 bytes, as
            the clients of the original assignment read them
  stock/2   HELLO stock/2 client=NAME, then 1 BUY 3 10, 2 SHOW, …: numbered,
            pipelined, and an order sent again with its number counts once
  RESP      redis-cli -p PORT BUY 3 10; redis-benchmark too
  HTTP      GET /show, /metrics, /healthz

Models: iterative, thread, pool, request-pool, select, poll, epoll, epoll-et,
reuseport, io-threads, uring, uring-multishot, uring-per-core, tokio.
Sharing: global, stock, rw, atomic, writer, shards; database (store postgres).
Durability: none (memory), os (survives the end of the program), group (synced,
together with orders beside it), each (synced one by one).
Stores: what lies there already; else log at os, and sqlite at group and each.
A raw log is the default where it is more than 1.5 times as fast, which it was
only where nothing is synced (results/serve-vs-redis/2026-11-22-intel-xeon-2c).
Store postgres keeps stocks and orders in a PostgreSQL database, before which
several servers may stand; group and each are its synchronous_commit = on. os is
off: a crash of the database server may lose its latest fraction of a second.
The stock file fills an empty database and never changes a filled one. The
connection is not encrypted.
The stock file has a line NUMBER LEFT PRICE for each stock. It is written again
when the last client leaves and at the end; between, orders are in the store
beside it.

With --token-file a client has to show the token: RESP by AUTH TOKEN, stock/2 by
HELLO stock/2 token=TOKEN, HTTP by Authorization: Bearer TOKEN in each request.
The original protocol has no place for it and is refused.

With --tls-cert and --tls-key every port speaks TLS 1.3, under every model and
in every protocol. Try it with a certificate that is its own authority:
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \\
    -keyout key.pem -out cert.pem -days 30 -subj /CN=localhost \\
    -addext subjectAltName=IP:127.0.0.1,DNS:localhost \\
    -addext basicConstraints=critical,CA:FALSE
  ioloom serve --stock stock.txt --tls-cert cert.pem --tls-key key.pem
  ioloom load --tls --tls-ca cert.pem

SIGTERM and SIGINT finish what has arrived, write the stock file and end with 0;
a second one ends at once.

Examples:
  ioloom serve --stock stock.txt
  ioloom serve --stock stock.txt --model pool --threads 10 --durability none
  ioloom serve --stock stock.txt --listen 127.0.0.1:5000 --listen-line 127.0.0.1:5001
  curl http://127.0.0.1:7004/show")]
pub(crate) struct ServeArgs {
    /// The stock file
    #[arg(long, value_name = "FILE", default_value = "stock.txt")]
    stock: PathBuf,

    /// Which threads read, write and wait, and how
    #[arg(long, value_name = "MODEL", default_value = "epoll")]
    model: Model,

    /// How threads share the stocks [default: global; writer with io-threads; database with store
    /// postgres]
    #[arg(long, value_name = "HOW")]
    sharing: Option<Sharing>,

    /// When an order counts as safe: none, os, group, each
    #[arg(long, value_name = "LEVEL", default_value = "group")]
    durability: Durability,

    /// Where orders are kept: sqlite, redb, fjall, log, log-dsync, log-direct, log-uring, postgres
    /// [default: what is there, or the fastest for the level]
    #[arg(long, value_name = "KIND")]
    store: Option<OrderStore>,

    /// The store, for fjall a directory [default: the stock file with .store]
    #[arg(long, value_name = "FILE")]
    store_path: Option<PathBuf>,

    #[command(flatten)]
    database: DatabaseArgs,

    /// A list of all stocks: atomic (one moment) or per-stock (as in the assignment)
    #[arg(long, value_name = "HOW", default_value = "atomic")]
    show: ShowMode,

    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:7004")]
    listen: SocketAddr,

    /// A second address, where lines are not padded
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen_line: Option<SocketAddr>,

    /// Answers in the original protocol: padded or line
    #[arg(long, value_name = "FORM", default_value = "padded", value_parser = ["padded", "line"])]
    dialect: String,

    /// "Not enough left stocks" (official) or "… stock" (short)
    #[arg(long, value_name = "WHICH", default_value = "official", value_parser = ["official", "short"])]
    spelling: String,

    /// Answer for stocks that do not exist as the first servers did
    #[arg(long)]
    unknown_as_first: bool,

    /// Threads of the models pool and request-pool
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: u16,

    /// Connections that may wait for a thread of the pool
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..))]
    waiting: u16,

    /// Connections at most; one more is told BUSY [default: 15000, or what open files allow]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,

    /// End connections that say nothing for so many seconds; 0 never
    #[arg(long, value_name = "S", default_value = "0")]
    idle: u32,

    /// End connections that take longer than so many seconds for one request
    #[arg(long, value_name = "S", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    request_time: u32,

    /// Loops of reuseport and io-threads, threads of tokio, shards [default: usable cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,

    /// How long models epoll and epoll-et look for the next request before they sleep, while that
    /// brings something; 0 never
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "50us")]
    spin: Duration,

    /// Processor time that each order and each list takes beside its own; for experiments
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    service_time: Duration,

    /// Spend that time with the stock or the stocks held that the request needs, and not before
    #[arg(long, requires = "service_time")]
    service_in_lock: bool,

    /// Serve only who shows the word in this file; nobody else may read it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Speak TLS, with the certificate in this file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate (PEM, without a password); not everybody may read it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Print one JSON document at the end
    #[arg(long)]
    json: bool,
}

/// What is printed at the end with `--json`.
#[derive(Debug, Serialize)]
struct Served {
    schema: u32,
    command: &'static str,
    model: &'static str,
    sharing: &'static str,
    show: &'static str,
    durability: &'static str,
    store: Option<&'static str>,
    addresses: Vec<String>,
    tls: bool,
    connections: u64,
    orders_done: u64,
    log_number: u64,
}

fn time(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}

pub(crate) fn run(args: &ServeArgs) -> Ended {
    let token =
        args.token_file.as_deref().map(token_file::read).transpose()?.map(|(token, _)| token);
    let database = args.database.choice(args.store, args.durability, args.model)?;
    if database.is_some() && args.store_path.is_some() {
        return Err(Failure::usage(
            "--store-path is for stores of this server alone; with --store postgres leave it out",
        ));
    }
    let config = ServeOptions { token, database, ..config(args, connections(args)?)? };
    // Until here nothing was promised, so an interrupt ends a start that takes long at once.
    let server = Server::start(&config).map_err(failure)?;
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Failure::failed(format!("cannot take over interrupts: {e}")))?;
    let addresses: Vec<_> = server.addresses().iter().map(SocketAddr::to_string).collect();
    greet(&config, &server);
    let stop = server.stop_handle();
    let handle = signals.handle();
    let watching = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || watch_signals(&mut signals, &stop))
        .map_err(|e| Failure::failed(format!("start a thread: {e}")))?;
    let ended = server.run();
    handle.close();
    let _ = watching.join();
    let ended = ended.map_err(failure)?;
    if args.json {
        out::print_json(&Served {
            schema: SCHEMA,
            command: "serve",
            model: config.model.name(),
            sharing: config.sharing.name(),
            show: config.show.name(),
            durability: config.durability.name(),
            store: match &config.database {
                Some(_) => Some(OrderStore::Postgres.name()),
                None => (config.durability != Durability::None).then(|| config.store.kind.name()),
            },
            addresses,
            tls: config.tls.is_some(),
            connections: ended.connections,
            orders_done: ended.done,
            log_number: ended.seq,
        })?;
    } else {
        stderr::message(&format!(
            "stopped: {} of {} carried out, {} is written",
            format_counted(ended.done, "order", "orders"),
            format_counted(ended.connections, "connection", "connections"),
            config.stock.display()
        ));
    }
    Ok(Exit::Ok)
}

fn config(args: &ServeArgs, connections: usize) -> Result<ServeOptions, Failure> {
    let store_path = args.store_path.clone().unwrap_or_else(|| {
        let mut path = args.stock.clone().into_os_string();
        path.push(".store");
        path.into()
    });
    let kind = match args.store {
        Some(OrderStore::Own(asked)) => asked,
        // No store is opened.
        Some(OrderStore::Postgres) => StoreKind::default_for(args.durability),
        None if args.durability == Durability::None => StoreKind::default_for(args.durability),
        None => detect_store(&store_path)
            .map_err(Failure::failed)?
            .unwrap_or(StoreKind::default_for(args.durability)),
    };
    let seconds = |n: u32| Duration::from_secs(n.into());
    Ok(ServeOptions {
        model: args.model,
        sharing: args.sharing.unwrap_or(match args.store {
            Some(OrderStore::Postgres) => Sharing::Database,
            _ => args.model.default_sharing(),
        }),
        show: args.show,
        durability: args.durability,
        store: StoreChoice { kind, path: store_path },
        database: None,
        stock: args.stock.clone(),
        listen: args.listen,
        listen_line: args.listen_line,
        settings: Settings {
            classic: if args.dialect == "line" { ClassicForm::Line } else { ClassicForm::Padded },
            spelling: if args.spelling == "short" { Spelling::Short } else { Spelling::Official },
            unknown: if args.unknown_as_first { UnknownStock::AsFirst } else { UnknownStock::Say },
        },
        limits: Limits {
            connections,
            threads: args.threads.into(),
            waiting: args.waiting.into(),
            idle: seconds(args.idle),
            request: seconds(args.request_time),
            spin: args.spin,
            ..Limits::default()
        },
        cores: args.loops.map_or_else(|| ioloom_machine::usable() as usize, usize::from),
        token: None,
        tls: tls(args),
        warn: Some(stderr::message),
        service_time: args.service_time,
        service_in_lock: args.service_in_lock,
    })
}

fn tls(args: &ServeArgs) -> Option<TlsFiles> {
    let (certificate, key) = args.tls_cert.clone().zip(args.tls_key.clone())?;
    Some(TlsFiles { certificate, key })
}

/// How many connections are served at most: as asked for, or refused; else what is usual or possible.
fn connections(args: &ServeArgs) -> Result<usize, Failure> {
    // Without the right to raise it the old limit stays, and is looked at below.
    let _ = proc::raise_open_files_limit();
    let limit = proc::open_files_limit().and_then(|limit| usize::try_from(limit).ok());
    let possible = limit.map_or(usize::MAX, |limit| limit.saturating_sub(DESCRIPTORS_OTHER).max(1));
    match args.connections.map(|asked| asked as usize) {
        None => Ok(Limits::default().connections.min(possible)),
        Some(asked) if asked <= possible => Ok(asked),
        Some(asked) => Err(Failure::refused(format!(
            "{asked} connections need {} open files, and the limit is {}; use --connections \
             {possible} or fewer, or raise the limit (ulimit -n)",
            asked + DESCRIPTORS_OTHER,
            possible + DESCRIPTORS_OTHER
        ))),
    }
}

fn watch_signals(signals: &mut Signals, stop: &StopHandle) {
    let mut asked = false;
    for _ in signals.forever() {
        if asked {
            stderr::message("stopped at once");
            std::process::exit(Exit::Interrupted as i32);
        }
        asked = true;
        stop.stop();
    }
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Refused(_) => Failure::refused(error),
        ServeError::BadStock { .. } => Failure::usage(error),
        _ => Failure::failed(error),
    }
}

fn greet(config: &ServeOptions, server: &Server) {
    let mut text = String::new();
    for (at, address) in server.addresses().iter().enumerate() {
        let lines = if at == 0 { "" } else { " (lines without filling)" };
        let _ = writeln!(text, "ioloom: listening on {address}{lines}");
    }
    let StoreChoice { kind, path } = &config.store;
    let store = match (server.database(), server.is_new_store()) {
        (Some(place), Some(true)) => format!("new tables in database {place}"),
        (Some(place), _) => format!("database {place}, latest order {}", server.seq()),
        (None, None) => {
            "memory only: orders are lost with the process, the stock file is not".to_owned()
        }
        (None, Some(true)) => format!("new {kind} store {}", path.display()),
        (None, Some(false)) => {
            let orders = format_counted(server.seq(), "order", "orders");
            format!("{kind} store {}, {orders} so far", path.display())
        }
    };
    let _ = write!(
        text,
        "ioloom: model {}, sharing {}, durability {}{}; {store}",
        config.model,
        config.sharing,
        config.durability,
        if config.tls.is_some() { ", TLS" } else { "" }
    );
    stderr::line(&text);
    for address in server.addresses().iter().filter(|address| !address.ip().is_loopback()) {
        let open_to = open_to(config.tls.is_some(), config.token.is_some());
        stderr::line(&format!(
            "ioloom: warning: {address} can be reached from other machines; {open_to}"
        ));
    }
}

/// To whom a port is open that others can reach.
fn open_to(tls: bool, token: bool) -> &'static str {
    match (tls, token) {
        (false, false) => {
            "whoever reaches it can\norder, nothing is encrypted and nobody is asked for a name or a \
             password (--tls-cert,\n--token-file)"
        }
        (false, true) => {
            "whoever reads the\nnetwork can read the token and every order: nothing is encrypted \
             (--tls-cert)"
        }
        (true, false) => {
            "TLS is on, but whoever\nreaches it can order: nobody is asked for a name or a password \
             (--token-file)"
        }
        (true, true) => "TLS is on, and whoever\nshows the token can order",
    }
}

#[cfg(test)]
mod tests {
    use super::open_to;

    #[test]
    fn a_port_that_others_reach_is_warned_of_with_what_keeps_them_out() {
        for (tls, token, words) in [
            (
                false,
                false,
                ["nothing is encrypted", "nobody is asked", "--tls-cert", "--token-file"],
            ),
            (false, true, ["read the token", "nothing is encrypted", "order", "--tls-cert"]),
            (true, false, ["TLS is on", "whoever", "nobody is asked", "--token-file"]),
            (true, true, ["TLS is on", "whoever", "shows the token", "can order"]),
        ] {
            let said = open_to(tls, token).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
    }
}
