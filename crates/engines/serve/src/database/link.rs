//! One connection to the database, which is lost when it breaks or keeps silent for too long.
//!
//! ```text
//! orders ──► sent? ── no ──────────────────────────────► not tried: the client may try again
//!              │ yes
//!              ▼
//!           answered? ── error of a statement ─► rolled back: again if that may help, else not tried
//!              │ │
//!          yes │ └── lost ─► unsure: asked again on a new connection while there is time
//!              ▼                          │ answered: each order's answer, old or new
//!           answers                       ▼ not in time
//!                                       unsure: the client is told so
//! ```
//!
//! **There is a second for all of that**, because whoever waits may hold up all connections of its loop.
//! The database itself gives a statement up before that, so an order that waits for a lock in vain was
//! certainly not carried out; only a commit that takes longer, or a silent network, leaves it unsure. A
//! question that was given up is lost with its connection: what the database had of it may still be
//! carried out later, which is what unsure means. A new connection is made beside, with more time, and
//! counts only when the database has kept something over it.
//!
//! Asking again is safe because every order has a name and a number in the database, and the lock on
//! its stock: whoever comes second waits for the first, then finds what it has written. Only an error
//! of severity `ERROR` says that nothing was committed; a connection that ends may do so behind a
//! commit.
//!
//! The library is asynchronous and the threads here are not: each link has a small runtime of its own,
//! which runs while something is asked. An idle connection is looked at before the next question, so
//! what is known to be lost is not asked there.

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
use tokio_postgres::{Client, Error, NoTls, Row, Statement};

/// How long a connection may take to be made beside what is asked.
const CONNECTING: Duration = Duration::from_secs(10);
/// How long everything together may take that one question needs; longer than the database may work on
/// a statement (`super::STATEMENT_MS`).
const ASKING: Duration = Duration::from_secs(1);
/// How long nobody looks whether a connection that is made is still needed.
const LOOK: Duration = Duration::from_millis(50);
/// How long is waited before something is asked again.
const PAUSE: Duration = Duration::from_millis(50);

/// An order with the name and the number by which the database knows it again.
pub(crate) struct NamedOrder<'a> {
    /// The order.
    pub(crate) order: Order,
    /// The name: of its client, or of this server.
    pub(crate) client: &'a str,
    /// The number.
    pub(crate) request: u64,
}

/// Why orders have no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// Nothing of them was carried out.
    NotTried(String),
    /// They may have been carried out, all of them or none.
    Unsure(String),
}

/// Why something that was asked has no answer.
#[derive(Debug)]
struct Fault {
    reason: String,
    /// It cannot have been carried out.
    is_void: bool,
    /// Asking once more may help.
    again: bool,
}

/// What moves the bytes of a connection, until this goes.
pub(super) struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        // Else it would wait for answers that nobody waits for.
        self.0.abort();
    }
}

/// A connection that can be asked.
struct Ready {
    client: Client,
    carry_out: Statement,
    show: Statement,
    _task: ConnectionTask,
}

pub(crate) struct Link {
    access: Access,
    runtime: Runtime,
    /// Without one, why there is none.
    ready: Result<Ready, String>,
}

/// Connects and sets up; what is not answered in time is an error.
pub(super) async fn connect(access: &Access) -> Result<(Client, ConnectionTask), String> {
    let connecting = async {
        let (client, connection) = access.config.connect(NoTls).await?;
        let task = ConnectionTask(tokio::spawn(async move {
            // Its end is told to whoever asks.
            let _ = connection.await;
        }));
        client.batch_execute(&access.set_up).await?;
        Ok((client, task))
    };
    within(CONNECTING, connecting).await
}

/// A connection with everything that it needs, to a database that keeps what it is told: one whose disk
/// does not answer is not there yet, nor is one that may only be read.
async fn make(access: &Access) -> Result<Ready, String> {
    let (client, _task) = connect(access).await?;
    let prepared = async {
        let carry_out = client.prepare(tables::CARRY_OUT).await?;
        let show = client.prepare(tables::SHOW).await?;
        client.batch_execute(tables::KEEP).await?;
        Ok((carry_out, show))
    };
    let (carry_out, show) = within(CONNECTING, prepared).await?;
    Ok(Ready { client, carry_out, show, _task })
}

/// What comes of something within some time.
async fn within<T>(
    time: Duration,
    asked: impl Future<Output = Result<T, Error>>,
) -> Result<T, String> {
    match timeout(time, asked).await {
        Ok(answered) => answered.map_err(|error| reason(&error)),
        Err(_) => Err(no_answer(time)),
    }
}

/// A runtime for one connection.
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
    /// A link that is not connected yet.
    pub(crate) fn new(access: Access) -> Result<Self, ServeError> {
        Ok(Self { access, runtime: runtime()?, ready: Err("not connected yet".to_owned()) })
    }

    /// Why there is no connection, if there is none.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.ready.as_ref().err().map(String::as_str)
    }

    /// Gives the connection up.
    pub(crate) fn leave(&mut self, reason: &str) {
        self.ready = Err(reason.to_owned());
    }

    /// Makes a new connection, unless that takes too long or `is_over` says that nobody needs it.
    pub(crate) fn connect(&mut self, is_over: &dyn Fn() -> bool) -> Result<(), String> {
        self.leave("it is being connected to");
        let made = self.runtime.block_on(async {
            let mut making = pin!(make(&self.access));
            loop {
                match timeout(LOOK, making.as_mut()).await {
                    Ok(made) => return made,
                    Err(_) if is_over() => return Err("the server ends".to_owned()),
                    Err(_) => {}
                }
            }
        });
        self.ready = made;
        self.lost().map_or(Ok(()), |reason| Err(reason.to_owned()))
    }

    /// Carries out orders in one transaction, each once; gives their answers in the same order, and
    /// the largest number among them.
    pub(crate) fn carry_out(
        &mut self,
        orders: &[NamedOrder<'_>],
    ) -> Result<(Vec<Answer>, u64), Unanswered> {
        let (until, mut is_unsure) = (Instant::now() + ASKING, false);
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
        // PostgreSQL has signed numbers only; the bits are what counts.
        let requests: Vec<i64> = orders.iter().map(|one| one.request as i64).collect();
        let sells: Vec<bool> = orders.iter().map(|one| one.order.side() == Side::Sell).collect();
        let stocks: Vec<i64> = orders.iter().map(|one| one.order.stock().into()).collect();
        let counts: Vec<i32> = orders.iter().map(|one| one.order.count() as i32).collect();
        self.ask(until, async |ready: &Ready| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&clients, &requests, &sells, &stocks, &counts];
            let rows = ready.client.query(&ready.carry_out, &values).await?;
            answers(&rows, orders.len())
        })
    }

    /// All stocks at one moment. Without any, because the database cannot be asked, the reason.
    pub(crate) fn show(&mut self) -> Result<Shown, String> {
        let show = async |ready: &Ready| {
            let rows = ready.client.query(&ready.show, &[]).await?;
            shown(&rows)
        };
        let until = Instant::now() + ASKING;
        // A list changes nothing, so it may be asked for on a new connection.
        match self.ask(until, show) {
            Ok(shown) => Ok(shown),
            Err(_) => self.ask(until, show).map_err(|fault| fault.reason),
        }
    }

    /// Takes orders up to a number out of the table. What fails is done by the next one.
    pub(crate) fn trim(&mut self, up_to: u64) {
        let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
        let _ = self.ask(Instant::now() + ASKING, async |ready: &Ready| {
            ready.client.execute(tables::TRIM, &[&up_to]).await.map(drop)
        });
    }

    /// Asks something of the database, over a connection that is made where there is none. Without an
    /// answer by `until` the connection is lost.
    fn ask<T>(
        &mut self,
        until: Instant,
        f: impl AsyncFnOnce(&Ready) -> Result<T, Error>,
    ) -> Result<T, Fault> {
        let left = || until.saturating_duration_since(Instant::now());
        self.runtime.block_on(async {
            // One turn for what the system has to tell, one for who reads it.
            yield_now().await;
            yield_now().await;
        });
        let had = std::mem::replace(&mut self.ready, Err(String::new()));
        let connected = match had.ok().filter(|ready| !ready.client.is_closed()) {
            Some(ready) => Ok(ready),
            None => self.runtime.block_on(async {
                timeout(left(), make(&self.access)).await.unwrap_or_else(|_| Err(no_answer(ASKING)))
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
            Err(_) => Fault { reason: no_answer(ASKING), is_void: false, again: true },
        };
        // A statement that failed leaves the connection as it was.
        self.ready = if fault.is_void { Ok(ready) } else { Err(fault.reason.clone()) };
        Err(fault)
    }
}

impl Fault {
    /// Nothing was sent.
    fn before(reason: String) -> Self {
        Self { reason, is_void: true, again: false }
    }

    fn of(error: &Error) -> Self {
        let db_error = error.as_db_error();
        let is_void = db_error.and_then(DbError::parsed_severity) == Some(Severity::Error);
        // Two transactions that met, not a fault of either.
        let met = [
            SqlState::UNIQUE_VIOLATION,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        let again = db_error.is_some_and(|db_error| met.contains(db_error.code()));
        Self { reason: reason(error), is_void, again }
    }
}

/// The answers in rows of `carry_out`, and the largest number among them.
fn answers(rows: &[Row], count: usize) -> Result<(Vec<Answer>, u64), Error> {
    // Whatever has no row stays what is known of it: nothing.
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

/// The list in rows of `SHOW`.
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
