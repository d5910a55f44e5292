//! `ioloom serve`: runs the stock exchange with any concurrency model.

mod control;
mod database;
mod greeting;
mod limits_file;
mod log_queue;
mod logging;
mod open_files;

use crate::exit::{Ended, Exit, Failure};
use crate::{out, token_file, values};
use clap::Args;
use control::{Control, ReadSettings, Replaced};
use database::DatabaseArgs;
use greeting::greet;
use ioloom_exchange::{Access, ClassicForm, Settings, Spelling, UnknownStock};
use ioloom_failure::quoted;
use ioloom_model::units::format_counted;
use ioloom_serve::handover::{self, Handover, Program};
use ioloom_serve::{
    Durability, Limits, Model, OrderStore, Reload, ServeEnd, ServeError, ServeOptions,
    ServeSummary, Server, Sharing, ShowMode, StoreChoice, StoreKind, TlsFiles, detect_store,
    inherited, named,
};
use ioloom_sys::proc;
use logging::{LogForm, LogLevel};
use serde::Serialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Stands for a number of connections that was not requested.
const UNLIMITED: usize = usize::MAX;
/// Version of the `--json` document.
const SCHEMA: u32 = 1;

/// Serve a durable stock exchange
///
/// Clients list stocks and send buy and sell orders. One port serves four protocols (listed below),
/// detected from the first bytes a client sends.
///
/// The stock file contains a line NUMBER LEFT PRICE for each stock. It is rewritten when the last
/// client disconnects and on exit; between rewrites, orders are in the store. If it cannot be written,
/// the server continues and retries.
///
/// On SIGTERM, SIGINT and other signals that terminate programs, the server answers all received
/// requests, writes the stock file and exits with code 0; another SIGTERM, SIGINT or SIGQUIT more than
/// a second later ends it immediately. SIGHUP reloads --token-file, --tls-cert, --tls-key and --limits-file. SIGUSR1 prints
/// the state and all counters. SIGUSR2 starts the program again, for example a newer version, without
/// refusing a connection: the server finishes its requests, closes the store, and passes its listening
/// sockets and locks.
///
/// Under systemd, the server accepts listening sockets (LISTEN_FDS), which replace --listen and
/// --listen-line, and reports when it is ready (NOTIFY_SOCKET).
#[derive(Debug, Clone, Args)]
#[command(after_long_help = "\
Protocols:
  lines    show, buy ID N, sell ID N, exit; responses padded to 8192 bytes,
           as expected by the clients of the original assignment
  stock/2  HELLO stock/2 client=NAME, then 1 BUY 3 10, 2 SHOW, ...: numbered,
           pipelined; an order repeated with the same number counts once
  RESP     redis-cli -p PORT BUY 3 10, redis-benchmark and Redis libraries
  HTTP     GET /show, /metrics, /healthz, /readyz

TLS with a self-signed certificate:
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \\
    -keyout key.pem -out cert.pem -days 30 -subj /CN=localhost \\
    -addext subjectAltName=IP:127.0.0.1,DNS:localhost \\
    -addext basicConstraints=critical,CA:FALSE
  ioloom serve --stock stock.txt --tls-cert cert.pem --tls-key key.pem
  ioloom load --tls --tls-ca cert.pem

Examples:
  ioloom serve --stock stock.txt
  ioloom serve --stock stock.txt --model pool --threads 10 --durability none
  ioloom serve --stock stock.txt --listen 127.0.0.1:5000
  curl http://127.0.0.1:7004/show")]
pub(crate) struct ServeArgs {
    /// Stock file
    ///
    /// It must exist; each line is NUMBER LEFT PRICE. A store that already contains orders takes
    /// precedence, and the file is rewritten from it.
    #[arg(long, value_name = "FILE", default_value = "stock.txt")]
    stock: PathBuf,

    /// Concurrency model
    ///
    /// iterative serves one connection at a time. thread starts a thread per connection; pool has
    /// --threads threads, each serving one connection until it is closed; request-pool passes each
    /// request to a thread pool. select, poll, epoll and epoll-et are event loops on one thread;
    /// reuseport and io-threads run --loops event loops. uring, uring-multishot and uring-per-core use
    /// io_uring, and tokio uses the Tokio runtime. Event loops serve thousands of connections with
    /// little memory; threads are simpler and less affected by slow requests.
    #[arg(long, value_name = "MODEL", default_value = "epoll", hide_possible_values = true,
          value_parser = values::choice(Model::ALL.iter().map(|model| (model.name(), *model))))]
    model: Model,

    /// How threads share the stocks
    ///
    /// global uses a single lock, stock one lock per stock, rw a readers-writer lock, and atomic no
    /// lock. With writer a single thread executes all orders; with shards each thread executes those
    /// for some of the stocks. Default: global; writer with the model io-threads; database with
    /// --store postgres.
    #[arg(long, value_name = "HOW", hide_possible_values = true,
          value_parser = values::choice(Sharing::ALL.iter().map(|how| (how.name(), *how))))]
    sharing: Option<Sharing>,

    /// When orders are durable
    ///
    /// none keeps orders only in memory, so a crash of the server loses them. os writes them to the
    /// operating system: they survive a crash of the server but not of the machine. group syncs
    /// concurrent orders together before acknowledging them, at the cost of one sync per group. each
    /// syncs every order separately and is the slowest.
    #[arg(long, value_name = "LEVEL", default_value = "group", hide_possible_values = true,
          value_parser = values::choice(Durability::ALL.iter().map(|level| (level.name(), *level))))]
    durability: Durability,

    /// Order store
    ///
    /// sqlite, redb, fjall, log, log-dsync, log-direct, log-uring or postgres. Default: the kind of
    /// the existing store; for a new store, sqlite with durability group or each, and log with
    /// durability os, where it answered 1.98 times as many requests per second as SQLite (geometric
    /// mean over six loads; with group, log-direct 1.53 and 1.47 times in two measurements). The
    /// kind of an existing store cannot be changed.
    ///
    /// postgres stores stocks and orders in a PostgreSQL database, which several servers can share.
    /// group and each set synchronous_commit = on. os sets it to off: a crash of the database server
    /// can then lose the last fraction of a second. The stock file initializes an empty database and
    /// never changes one that has stocks. The connection is encrypted with sslmode=require, verify-ca or
    /// verify-full.
    #[arg(long, value_name = "KIND", value_parser = store_words(), hide_possible_values = true)]
    store: Option<OrderStore>,

    /// Path of the store
    ///
    /// A directory for fjall, otherwise a file. Default: the stock file with the extension .store.
    #[arg(long, value_name = "FILE")]
    store_path: Option<PathBuf>,

    /// Continue without lost orders
    ///
    /// Starts although acknowledged orders are missing from the store, or its end is unreadable. The
    /// server reports how many orders are lost and moves the unreadable data to FILE.damaged-N. By
    /// default it refuses to start.
    #[arg(long)]
    accept_loss: bool,

    #[command(flatten)]
    database: DatabaseArgs,

    /// Consistency of stock lists
    ///
    /// atomic lists all stocks at a single point in time. per-stock reads them one after another, as in
    /// the original assignment, and never delays orders. It is refused where it would change nothing:
    /// with sharing global, writer and database, and with models that execute requests on one thread.
    #[arg(long, value_name = "HOW", default_value = "atomic", hide_possible_values = true,
          value_parser = values::choice(ShowMode::ALL.iter().map(|how| (how.name(), *how))))]
    show: ShowMode,

    /// Listen address
    ///
    /// Other machines can reach every address except loopback; the server then warns unless both
    /// --token-file and --tls-cert are set.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7004")]
    listen: SocketAddr,

    /// Second listen address, unpadded responses
    ///
    /// For clients of the original protocol that read lines rather than blocks of 8192 bytes.
    #[arg(long, value_name = "ADDRESS")]
    listen_line: Option<SocketAddr>,

    /// Response format
    ///
    /// For the original protocol only. padded pads each response to 8192 bytes, as the original clients
    /// expect. line terminates it with a newline, which uses far less bandwidth. marked adds a line EOF,
    /// for clients that read lines until then.
    #[arg(long, value_name = "FORM", default_value = "padded",
          value_parser = ["padded", "line", "marked"], hide_possible_values = true)]
    dialect: String,

    /// Wording of rejections
    ///
    /// official answers "Not enough left stocks", as in the assignment; short answers "stock", like the
    /// first servers written for it.
    #[arg(long, value_name = "WHICH", default_value = "official",
          value_parser = ["official", "short"], hide_possible_values = true)]
    spelling: String,

    /// Answer unknown stocks like the first servers
    ///
    /// For comparisons with those servers. By default an unknown stock is an error.
    #[arg(long)]
    unknown_as_first: bool,

    /// Number of pool threads
    ///
    /// For the models pool and request-pool: 1 to 4096. With the model pool, also the number of
    /// connections served at a time.
    #[arg(long, value_name = "N", default_value = "10", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: u16,

    /// Queue of the pool
    ///
    /// Maximum number of accepted connections waiting for a pool thread. Further ones wait in the
    /// backlog of the kernel, or get BUSY with --busy.
    #[arg(long, value_name = "N", default_value = "16", value_parser = clap::value_parser!(u16).range(1..))]
    waiting: u16,

    /// Answer BUSY when the pool's queue is full
    ///
    /// Accepts further connections, answers BUSY and closes them. The clients of the original
    /// assignment do not expect this.
    #[arg(long)]
    busy: bool,

    /// Limit on open connections
    ///
    /// Further connections get BUSY. Default: 15000, or fewer if the open files limit requires it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: Option<u32>,

    /// Connections per client
    ///
    /// A client is an IPv4 address or an IPv6 network of 64 bits. Further connections get BUSY.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    client_connections: u32,

    /// Requests per second and client
    ///
    /// Orders and lists beyond N per second are answered busy and not executed; a second's worth can
    /// arrive at once.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    client_rate: u32,

    /// Bytes per second and client
    ///
    /// While a client has sent more, its orders and lists are answered busy and not executed.
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    client_bytes: u32,

    /// Limits that SIGHUP reloads
    ///
    /// Lines NAME VALUE with the names connections, idle, request-time, client-connections,
    /// client-rate and client-bytes, which take precedence over the flags of the same names.
    #[arg(long, value_name = "FILE")]
    limits_file: Option<PathBuf>,

    /// Close idle connections
    ///
    /// Closes connections that send no request for S seconds; 0 never closes them.
    #[arg(long, value_name = "S", default_value = "0")]
    idle: u32,

    /// Time limit per request
    ///
    /// Closes connections that take more than S seconds to send a request, so slow clients cannot
    /// occupy resources.
    #[arg(long, value_name = "S", default_value = "10", value_parser = clap::value_parser!(u32).range(1..))]
    request_time: u32,

    /// Event loops, tokio threads, shards
    ///
    /// For the models reuseport, io-threads and tokio, and for --sharing shards. Default: the number of
    /// usable cores.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    loops: Option<u16>,

    /// Busy-poll before sleeping
    ///
    /// The models epoll and epoll-et poll for up to TIME before sleeping while polling keeps finding
    /// requests; 0 disables polling. Lowers latency at the cost of processor time.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "50us")]
    spin: Duration,

    /// Extra time per request
    ///
    /// Each order and list uses this much extra processor time. For experiments.
    #[arg(long, value_name = "TIME", value_parser = values::time, default_value = "0s")]
    service_time: Duration,

    /// Spend --service-time under the lock
    ///
    /// Spends the extra time while the stocks of the request are locked rather than before.
    #[arg(long, requires = "service_time")]
    service_in_lock: bool,

    /// Require a token from this file
    ///
    /// The file must be accessible only by its owner. Each line is a token of 16 to 256 characters,
    /// optionally followed by trade (default) or read, which permits lists and monitoring but no orders.
    /// Clients present one of them with AUTH TOKEN or HELLO 3 AUTH NAME TOKEN (RESP),
    /// HELLO stock/2 token=TOKEN (stock/2) or Authorization: Bearer TOKEN (HTTP, in each request).
    /// Clients of the original protocol, which has no authentication, are rejected.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Serve TLS with this certificate (PEM)
    ///
    /// All ports then require TLS 1.3, with every model and protocol. Needs --tls-key.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// Private key for the certificate (PEM)
    ///
    /// The key must not have a passphrase, and the file must not be accessible by users outside its
    /// group.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Form of log lines
    ///
    /// text prints messages, json one object per line with time, level, target and message. Rejected
    /// and closed connections are summarised, at most every 10 seconds.
    #[arg(long, value_name = "FORM", default_value = "text", hide_possible_values = true)]
    log: LogForm,

    /// Least severe level to log
    ///
    /// error, warn, info or debug.
    #[arg(long, value_name = "LEVEL", default_value = "info", hide_possible_values = true)]
    log_level: LogLevel,

    /// Print one JSON document at the end
    ///
    /// Contains totals and settings. The format is described in docs/reference/json.md.
    #[arg(long)]
    json: bool,
}

fn store_words() -> values::Choice<OrderStore> {
    let own = StoreKind::ALL.iter().copied().map(OrderStore::Own);
    values::choice(own.chain([OrderStore::Postgres]).map(|store| (store.name(), store)))
}

/// The document printed on exit with `--json`.
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

pub(crate) fn run(args: &ServeArgs) -> Ended {
    // The program that requested a check adds the message to its own log.
    let form = if handover::is_check() { LogForm::Text } else { args.log };
    logging::start(form, args.log_level);
    let ended = run_logged(args).map_err(logging::report);
    logging::finish();
    ended
}

fn run_logged(args: &ServeArgs) -> Ended {
    let database = args.database.choice(args.store, args.durability, args.model)?;
    if database.is_some() && args.store_path.is_some() {
        return Err(Failure::usage("--store-path cannot be used with --store postgres"));
    }
    let config = ServeOptions { access: access(args)?, database, ..config(args, limits(args)?)? };
    if handover::is_check() {
        return Server::check(&config).map_err(failure).map(|()| Exit::Ok);
    }
    let program = Program::of_this_process();
    let program = program.map_err(|e| {
        Failure::failed(format!("cannot find this program: {}", ioloom_failure::reason(&e)))
    })?;
    let control = &Arc::new(Control::new(program)?);
    let mut signals = control.signals()?;
    // Orders are private, also in the files that storage engines create.
    proc::restrict_umask();
    let handle = signals.handle();
    let (addresses, ended) = std::thread::scope(|scope| {
        let read = settings(args);
        let watching = move || control.watch(&mut signals, &read);
        let watching =
            std::thread::Builder::new().name("signals".to_owned()).spawn_scoped(scope, watching);
        let served = match watching {
            Ok(_) => serve(&config, control),
            Err(e) => Err(Failure::failed(format!("cannot start a thread: {e}"))),
        };
        handle.close();
        served
    })?;
    if args.json {
        // Signals are not handled any more, so the wait for a stalled reader must have a limit.
        logging::finish();
        let printed = out::print_json_to_slow_reader(&Served {
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
        });
        printed.map_err(not_by_signal)?;
    } else {
        tracing::info!(
            target: logging::TARGET,
            "stopped: {} executed over {}, wrote {}",
            format_counted(ended.done, "order", "orders"),
            format_counted(ended.connections, "connection", "connections"),
            quoted(&config.stock)
        );
    }
    Ok(Exit::Ok)
}

/// Returns an interrupted write as an ordinary failure: no signal interrupted it, only the time limit
/// of a server that ends.
fn not_by_signal(failure: Failure) -> Failure {
    match failure.exit {
        Exit::Interrupted => Failure::failed(failure.message),
        _ => failure,
    }
}

/// Serves until a stop is requested. Returns the addresses and the final counters.
fn serve(config: &ServeOptions, control: &Control) -> Result<(Vec<String>, ServeSummary), Failure> {
    let mut handed = match handover::take().map_err(Failure::refused)? {
        Some(handed) => handed,
        None => {
            let sockets = inherited::take_listeners().map_err(Failure::refused)?;
            Handover { listeners: named(sockets).map_err(failure)?, ..Handover::default() }
        }
    };
    let mut config = config.clone();
    loop {
        let server = Server::start_on(&config, handed).map_err(failure)?;
        let addresses: Vec<_> = server.addresses().iter().map(SocketAddr::to_string).collect();
        control.set_ready(server.handle(), &format!("serving on {}", addresses.join(", ")));
        greet(&config, &server);
        match server.run_to_end() {
            Ok(ServeEnd::HandedOver(handover, summary)) => match control.replace_program(&handover)
            {
                Replaced::Stopped => {
                    control.set_stopping();
                    return Ok((addresses, summary));
                }
                // This program continues with its current settings.
                Replaced::Failed => {
                    handed = handover;
                    if let Some(Reload { access, tls, limits }) = control.reloaded() {
                        config = ServeOptions { access, tls, limits, ..config };
                    }
                }
            },
            Ok(ServeEnd::Stopped(summary)) => {
                control.set_stopping();
                return Ok((addresses, summary));
            }
            Err(error) => {
                control.set_stopping();
                return Err(failure(error));
            }
        }
    }
}

/// Returns a function that reads the settings that SIGHUP reloads.
fn settings(args: &ServeArgs) -> ReadSettings {
    let args = args.clone();
    let mut read = Vec::from_iter(args.token_file.as_ref().map(|_| "the tokens"));
    read.extend(args.tls_cert.as_ref().map(|_| "the certificate"));
    read.extend(args.limits_file.as_ref().map(|_| "the limits"));
    Arc::new(move || {
        let new = Reload { access: access(&args)?, tls: tls(&args), limits: limits(&args)? };
        Ok((new, read.clone()))
    })
}

/// Reads the tokens.
fn access(args: &ServeArgs) -> Result<Option<Access>, Failure> {
    args.token_file.as_deref().map(token_file::read_access).transpose()
}

fn config(args: &ServeArgs, limits: Limits) -> Result<ServeOptions, Failure> {
    let store_path = args.store_path.clone().unwrap_or_else(|| {
        let mut path = args.stock.clone().into_os_string();
        path.push(".store");
        path.into()
    });
    check_names(&store_path, &args.stock)?;
    let kind = match args.store {
        Some(OrderStore::Own(asked)) if args.durability == Durability::None => {
            return Err(Failure::refused(format!(
                "store {} is not used with durability none, which keeps orders only in memory; use \
                 os, group or each, or omit --store",
                asked.name()
            )));
        }
        Some(OrderStore::Own(asked)) => asked,
        // The store is not opened.
        Some(OrderStore::Postgres) => StoreKind::default_for(args.durability),
        None if args.durability == Durability::None => StoreKind::default_for(args.durability),
        None => detect_store(&store_path)
            .map_err(Failure::failed)?
            .unwrap_or(StoreKind::default_for(args.durability)),
    };
    Ok(ServeOptions {
        model: args.model,
        sharing: args.sharing.unwrap_or(match args.store {
            Some(OrderStore::Postgres) => Sharing::Database,
            _ => args.model.default_sharing(),
        }),
        show: args.show,
        durability: args.durability,
        store: StoreChoice { kind, path: store_path, accept_loss: args.accept_loss },
        database: None,
        stock: args.stock.clone(),
        listen: args.listen,
        listen_line: args.listen_line,
        settings: Settings {
            classic: match args.dialect.as_str() {
                "line" => ClassicForm::Line,
                "marked" => ClassicForm::Marked,
                _ => ClassicForm::Padded,
            },
            spelling: if args.spelling == "short" { Spelling::Short } else { Spelling::Official },
            unknown: if args.unknown_as_first { UnknownStock::AsFirst } else { UnknownStock::Say },
        },
        limits,
        cores: args.loops.map_or_else(|| ioloom_machine::usable() as usize, usize::from),
        access: None,
        tls: tls(args),
        service_time: args.service_time,
        service_in_lock: args.service_in_lock,
    })
}

/// Refuses a stock file that is the store, or has the name of a file next to it.
fn check_names(store: &Path, stock: &Path) -> Result<(), Failure> {
    for suffix in ["", ".mark", "-wal", "-journal"] {
        let mut name = store.as_os_str().to_owned();
        name.push(suffix);
        if is_same_file(Path::new(&name), stock) {
            let path = quoted(stock);
            let message = match suffix {
                "" => format!("--store-path and --stock specify the same file {path}; use another"),
                _ => format!("--stock specifies {path}, a file of the store; use another"),
            };
            return Err(Failure::usage(message));
        }
    }
    Ok(())
}

/// Returns true if two paths are the same or lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| path.canonicalize().ok();
    one == other || resolved(one).is_some_and(|one| resolved(other) == Some(one))
}

fn tls(args: &ServeArgs) -> Option<TlsFiles> {
    let (certificate, key) = args.tls_cert.clone().zip(args.tls_key.clone())?;
    Some(TlsFiles { certificate, key })
}

/// Returns the limits: those of the limits file, the flags, and the defaults, in this order.
///
/// # Errors
/// The file is invalid, or the requested number of connections exceeds the open files limit.
fn limits(args: &ServeArgs) -> Result<Limits, Failure> {
    let seconds = |n: u32| Duration::from_secs(n.into());
    let mut limits = Limits {
        connections: args.connections.map_or(UNLIMITED, |asked| asked as usize),
        threads: args.threads.into(),
        waiting: args.waiting.into(),
        busy_when_full: args.busy,
        client_connections: args.client_connections as usize,
        client_rate: args.client_rate,
        client_bytes: args.client_bytes.into(),
        idle: seconds(args.idle),
        request: seconds(args.request_time),
        spin: args.spin,
        ..Limits::default()
    };
    let flag = limits.connections;
    if let Some(path) = &args.limits_file {
        limits_file::apply(path, &mut limits)?;
    }
    let file = args.limits_file.as_deref().filter(|_| limits.connections != flag);
    let asked = (limits.connections != UNLIMITED).then_some(limits.connections);
    limits.connections = open_files::connections(asked, file)?;
    Ok(limits)
}

fn failure(error: ServeError) -> Failure {
    match error {
        ServeError::Refused(_) => Failure::refused(error),
        ServeError::Tls(error) => Failure::tls(error),
        ServeError::BadStock { .. } => Failure::usage(error),
        _ => Failure::failed(error),
    }
}
