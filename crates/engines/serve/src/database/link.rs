//! One database connection. A broken or unresponsive connection counts as lost.
//!
//! ```text
//! orders ──► sent? ── no ───────────────────────────► not executed: the client may retry
//!              │ yes
//!              ▼
//!           answered? ── statement error ─► rolled back: retried if that may help, else not executed
//!              │ │
//!          yes │ └── lost ─► unsure: repeated on a new connection while there is time
//!              ▼                         │ answered: each order's answer, old or new
//!           answers                      ▼ timeout
//!                                       unsure: reported to the client
//! ```
//!
//! **The entire exchange is limited to one second**, because a waiting thread may block all
//! connections of its loop. The database itself cancels statements earlier, so an order that timed
//! out waiting for a lock was definitely not executed. Only a slow commit or an unresponsive
//! network makes the outcome unsure. A timeout also loses the connection: the database may still
//! execute what it has received, which is what unsure means. New connections are made outside this
//! limit, with more time, and are used only after the database has committed something over them.
//!
//! Orders can be repeated safely because every order has a name and number in the database and
//! locks its stock: the second copy waits for the first and then finds its result. Only an error
//! with severity `ERROR` proves that nothing was committed; a connection can also break after a
//! commit.
//!
//! The client library is asynchronous but the threads are not, so each link has a small runtime
//! that runs only during a query. An idle connection is checked before the next query, so no query
//! is sent over a connection known to be lost.

use super::{Access, reason, tables};
use crate::error::{ServeError, SystemOperation};
use crate::store::words::refusal_of;
use ioloom_exchange::{Answer, Line, Order, Shown, Side, Stop};
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;
use tokio_postgres::error::{DbError, Severity, SqlState};
use tokio_postgres::{Client, Error, Row, Statement};

/// Time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a query, including retries; longer than the database's limit for a statement
/// (`super::STATEMENT_MS`).
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval between checks whether a connection attempt is still needed.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Pause before a retry.
const PAUSE: Duration = Duration::from_millis(50);

/// An order with the name and number that identify it in the database.
pub(crate) struct NamedOrder<'a> {
    /// The order.
    pub(crate) order: Order,
    /// Name of its client or of this server.
    pub(crate) client: &'a str,
    /// Its number.
    pub(crate) request: u64,
}

/// Why orders were not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// None of them was executed.
    NotTried(String),
    /// Either all or none of them were executed.
    Unsure(String),
}

/// Why a query returned no result.
#[derive(Debug)]
struct Fault {
    reason: String,
    /// It was definitely not executed.
    is_void: bool,
    /// A retry may help.
    again: bool,
}

/// The task that transfers the bytes of a connection; aborted on drop.
pub(super) struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // Otherwise it would keep waiting for answers that are no longer needed.
        self.0.abort();
    }
}

/// A connection ready for queries.
struct Ready {
    client: Client,
    carry_out: Statement,
    show: Statement,
    _task: ConnectionTask,
}

pub(crate) struct Link {
    access: Access,
    runtime: Runtime,
    /// The connection, or the reason why there is none.
    ready: Result<Ready, String>,
}

/// Connects and sets the session options within the time limit.
pub(super) async fn connect(access: &Access) -> Result<(Client, ConnectionTask), String> {
    let connecting = async {
        let (client, connection) = access.config.connect(access.sealer.clone()).await?;
        let task = ConnectionTask(tokio::spawn(async move {
            // The next query reports that the connection is closed.
            let _ = connection.await;
        }));
        client.batch_execute(&access.set_up).await?;
        Ok((client, task))
    };
    within(CONNECT_TIMEOUT, connecting).await
}

/// Opens a connection, with its prepared statements, to a database that can commit. A database with
/// an unresponsive disk or in read-only mode does not count as available.
async fn make(access: &Access) -> Result<Ready, String> {
    let (client, _task) = connect(access).await?;
    let prepared = async {
        let carry_out = client.prepare(tables::CARRY_OUT).await?;
        let show = client.prepare(tables::SHOW).await?;
        client.batch_execute(tables::KEEP).await?;
        Ok((carry_out, show))
    };
    let (carry_out, show) = within(CONNECT_TIMEOUT, prepared).await?;
    Ok(Ready { client, carry_out, show, _task })
}

/// Limits the time of a query.
async fn within<T>(
    time: Duration,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, String> {
    match timeout(time, asked).await {
        Ok(answered) => answered.map_err(|error| reason(&error)),
        Err(_) => Err(no_answer(time)),
    }
}

/// Creates the runtime for one connection.
pub(super) fn runtime() -> Result<Runtime, ServeError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::system(SystemOperation::StartRuntime))
}

fn no_answer(time: Duration) -> String {
    format!("no answer within {} s", time.as_secs())
}

impl Link {
    /// Creates a link without a connection.
    pub(crate) fn new(access: Access) -> Result<Self, ServeError> {
        Ok(Self { access, runtime: runtime()?, ready: Err("not connected yet".to_owned()) })
    }

    /// Returns why there is no connection, or `None` if there is one.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.ready.as_ref().err().map(String::as_str)
    }

    /// Drops the connection.
    pub(crate) fn leave(&mut self, reason: &str) {
        self.ready = Err(reason.to_owned());
    }

    /// Opens a new connection. Gives up after the time limit, or when `is_over` reports that the
    /// caller stopped.
    pub(crate) fn connect(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), String> {
        self.leave("connecting");
        let made = self.runtime.block_on(async {
            let mut making = pin!(make(&self.access));
            loop {
                match timeout(CHECK_INTERVAL, making.as_mut()).await {
                    Ok(made) => return made,
                    Err(_) if is_over() => return Err("the server is stopping".to_owned()),
                    Err(_) => {}
                }
            }
        });
        self.ready = made;
        self.lost().map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    /// Executes orders in one transaction, each exactly once. Returns their answers in the same
    /// order, and the largest log number in them.
    pub(crate) fn carry_out(
        &mut self,
        orders: &[NamedOrder<'_>],
    ) -> Result<(Vec<Answer>, u64), Unanswered> {
        let (until, mut is_unsure) = (Instant::now() + QUERY_TIMEOUT, false);
        loop {
            let fault = match self.try_to_carry_out(orders, until) {
                Ok(answers) => return Ok(answers),
                Err(fault) => fault,
            };
            is_unsure |= !fault.is_void;
            let again = is_unsure || fault.again;
            if !again || Instant::now() + PAUSE >= until {
                let unanswered = if is_unsure { Unanswered::Unsure } else { Unanswered::NotTried };
                return Err(unanswered(fault.reason));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn try_to_carry_out(
        &mut self,
        orders: &[NamedOrder<'_>],
        until: Instant,
    ) -> Result<(Vec<Answer>, u64), Fault> {
        let clients: Vec<&str> = orders.iter().map(|one| one.client).collect();
        // PostgreSQL has no unsigned integers; the bits are preserved.
        let requests: Vec<i64> = orders.iter().map(|one| one.request as i64).collect();
        let sells: Vec<bool> = orders.iter().map(|one| one.order.side() == Side::Sell).collect();
        let stocks: Vec<i64> = orders.iter().map(|one| one.order.stock().into()).collect();
        let counts: Vec<i32> = orders.iter().map(|one| one.order.count() as i32).collect();
        self.query(until, async |ready: &Ready| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&clients, &requests, &sells, &stocks, &counts];
            let rows = ready.client.query(&ready.carry_out, &values).await?;
            answers(&rows, orders.len())
        })
    }

    /// Lists all stocks at one moment.
    pub(crate) fn show(&mut self) -> Result<Shown, String> {
        let show = async |ready: &Ready| {
            let rows = ready.client.query(&ready.show, &[]).await?;
            shown(&rows)
        };
        let until = Instant::now() + QUERY_TIMEOUT;
        // A list does not change anything, so it can be repeated on a new connection.
        match self.query(until, show) {
            Ok(shown) => Ok(shown),
            Err(_) => self.query(until, show).map_err(|fault| fault.reason),
        }
    }

    /// Deletes orders up to a number. After a failure, the next call deletes them.
    pub(crate) fn trim(&mut self, up_to: u64) {
        let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
        let _ = self.query(Instant::now() + QUERY_TIMEOUT, async |ready: &Ready| {
            ready.client.execute(tables::TRIM, &[&up_to]).await.map(drop)
        });
    }

    /// Runs a query, opening a connection if there is none. If there is no answer before `until`,
    /// the connection is lost.
    fn query<T>(
        &mut self,
        until: Instant,
        f: impl AsyncFnOnce(&Ready) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let left = || until.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            // The first turn is for events from the system, the second for the task that handles
            // them.
            yield_now().await;
            yield_now().await;
        });
        let had = std::mem::replace(&mut self.ready, Err(String::new()));
        let connected = match had.ok().filter(|ready| !ready.client.is_closed()) {
            Some(ready) => Ok(ready),
            None => self.runtime.block_on(async {
                timeout(left(), make(&self.access))
                    .await
                    .unwrap_or_else(|_| Err(no_answer(QUERY_TIMEOUT)))
            }),
        };
        let ready = connected.map_err(|reason| {
            self.leave(&reason);
            Fault::before(reason)
        })?;
        let asked = self.runtime.block_on(async { timeout(left(), f(&ready)).await });
        let fault = match asked {
            Ok(Ok(value)) => {
                self.ready = Ok(ready);
                return Ok(value);
            }
            Ok(Err(error)) => Fault::of(&error),
            Err(_) => Fault { reason: no_answer(QUERY_TIMEOUT), is_void: false, again: true },
        };
        // A failed statement does not affect the connection.
        self.ready = if fault.is_void { Ok(ready) } else { Err(fault.reason.clone()) };
        Err(fault)
    }
}

impl Fault {
    /// Creates a fault for a query that has not been sent.
    fn before(reason: String) -> Self {
        Self { reason, is_void: true, again: false }
    }

    fn of(error: &Error) -> Self {
        let db_error = error.as_db_error();
        let is_void = db_error.and_then(DbError::parsed_severity) == Some(Severity::Error);
        // Conflicts between two transactions.
        let met = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        let again = db_error.is_some_and(|db_error| met.contains(db_error.code()));
        Self { reason: reason(error), is_void, again }
    }
}

/// Returns the answers from the rows of `carry_out`, and the largest log number in them.
fn answers(rows: &[Row], count: usize) -> Result<(Vec<Answer>, u64), Error> {
    // An order without a row has an unknown outcome.
    let (mut answers, mut latest) = (vec![Answer::Stopped(Stop::Unsure); count], 0);
    for row in rows {
        let (place, outcome): (i32, &str) = (row.try_get(0)?, row.try_get(1)?);
        let (left, number): (Option<i32>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let answer = match (outcome, left, number) {
            ("done", Some(left), Some(seq)) => {
                latest = latest.max(seq as u64);
                Answer::Done { left: left as u32, seq: seq as u64 }
            }
            ("too-old", ..) => Answer::Stopped(Stop::TooOld),
            ("number-reused", ..) => Answer::Stopped(Stop::Reused),
            (word, ..) => match refusal_of(word) {
                Some(why) => Answer::Refused(why),
                None => continue,
            },
        };
        if let Some(slot) = answers.get_mut((place - 1) as usize) {
            *slot = answer;
        }
    }
    Ok((answers, latest))
}

/// Returns the list from the rows of `SHOW`.
pub(super) fn shown(rows: &[Row]) -> Result<Shown, Error> {
    let (mut lines, mut latest) = (Vec::with_capacity(rows.len()), 0);
    for row in rows {
        let (id, seq): (i64, i64) = (row.try_get(0)?, row.try_get(3)?);
        let (left, price): (i32, i32) = (row.try_get(1)?, row.try_get(2)?);
        latest = latest.max(seq as u64);
        lines.push(Line { id: id as u32, left: left as u32, price: price as u32 });
    }
    Ok(Shown { seq: latest, lines })
}
