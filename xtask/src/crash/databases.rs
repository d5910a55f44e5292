//! A server with a PostgreSQL database. One of the two is killed under load.
//!
//! After each kill, every order must count once and have a distinct number, the stocks must be the
//! sum of all orders, and an acknowledged order must keep its answer. A killed server is restarted.
//! If its database is killed, a server stays up and must reconnect automatically. At durability
//! `os`, a killed database may lose its latest orders; such losses are counted.
//!
//! Without PostgreSQL, nothing is killed here, as noted in the summary.

use super::home::{Home, LIMIT, Random};
use super::stores::{
    Answers, Client, KILL_MAX, Log, MODELS, ORDERS, last_number, make_stocks, names, order,
    ordered, serve,
};
use anyhow::{Context, bail, ensure};
use ioloom_testbed::Postgres;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The durability levels of a database. Their number is coprime to the numbers of models and
/// victims, which makes all combinations occur.
const DURABILITIES: [&str; 3] = ["os", "group", "each"];
/// Pause before a request is repeated while the database is down.
const PAUSE: Duration = Duration::from_millis(10);

/// A home for all servers, their database server, and the totals.
pub(super) struct Databases {
    home: Home,
    /// `None` before the first round, or without PostgreSQL.
    postgres: Option<Postgres>,
    rounds: usize,
    acknowledged: usize,
    /// Orders among them that were lost at `os` with a killed database.
    lost: usize,
}

impl Databases {
    pub(super) fn new(home: Home) -> Self {
        Self { home, postgres: None, rounds: 0, acknowledged: 0, lost: 0 }
    }

    /// Kills a server or its database up to three times. Returns the number of kills, 0 without
    /// PostgreSQL.
    pub(super) fn crash(&mut self, random: &mut Random) -> anyhow::Result<u32> {
        let round = self.rounds;
        self.rounds += 1;
        if round == 0 {
            self.postgres = Postgres::start(&[]);
        }
        let Some(postgres) = &mut self.postgres else { return Ok(0) };
        let (durability, model) =
            (DURABILITIES[round % DURABILITIES.len()], MODELS[round % MODELS.len()][0]);
        let kills_database = !round.is_multiple_of(2);
        let words = postgres.database(&format!("round_{round}"));
        let dir = self.home.0.join("database");
        make_stocks(&dir)?;
        let args = [
            ["--stock", "database/stock.txt"],
            ["--listen", "127.0.0.1:0"],
            ["--store", "postgres"],
            ["--database", &words],
            ["--durability", durability],
            ["--model", model],
        ];
        let args = [&["serve", "--dialect", "line"][..], args.as_flattened()].concat();
        let mut log = Log::default();
        let kills = 1 + random.next() % 3;
        let (mut server, mut address) = serve(&self.home, &args)?;
        for life in 0..kills {
            let victim = if kills_database { "database" } else { "server" };
            let of = || format!("life {life} with a killed {victim}, {durability}, {model}");
            let (names, moment) = (names(life), random.moment(KILL_MAX));
            let heard = if kills_database {
                let heard = ordered(&address, &names, moment, || postgres.kill());
                postgres.start_again();
                heard
            } else {
                let heard = ordered(&address, &names, moment, || drop(server));
                (server, address) = serve(&self.home, &args).with_context(of)?;
                heard
            };
            self.acknowledged += heard.iter().map(BTreeMap::len).sum::<usize>();
            let may_lose = kills_database && durability == "os";
            self.lost += take(&mut log, &address, &names, &heard, may_lose).with_context(of)?;
        }
        drop(server);
        std::fs::remove_dir_all(&dir).context("remove a stock file")?;
        Ok(u32::try_from(kills).unwrap_or(u32::MAX))
    }

    /// Summarises all rounds.
    pub(super) fn summary(&self) -> String {
        match (&self.postgres, self.rounds) {
            (None, 0) => "no databases".to_owned(),
            (None, _) => "no databases, because PostgreSQL is not installed".to_owned(),
            (Some(_), rounds) => format!(
                "{rounds} databases lost {} of {} acknowledged orders, all at durability os with \
                 the database killed",
                self.lost, self.acknowledged
            ),
        }
    }
}

/// Repeats all orders of the clients, which had received these answers, until each is answered.
/// Returns how many acknowledged orders are only now executed.
fn take(
    log: &mut Log,
    address: &str,
    names: &[String],
    heard: &[Answers],
    may_lose: bool,
) -> anyhow::Result<usize> {
    let mut lost = 0;
    for (name, heard) in names.iter().zip(heard) {
        let mut client = Client::new(address, name)?;
        for number in 1..=ORDERS {
            let answer = settled(&mut client, &order(number))?;
            if let Some(before) = heard.get(&number).filter(|before| **before != answer) {
                ensure!(may_lose, "{before:?} was acknowledged, now it is {answer:?}");
                lost += 1;
            }
            log.note(last_number(&answer)?, number)?;
        }
    }
    let (latest, left) = Client::new(address, "watcher")?.list()?;
    let expected = log.lead_to(left)?;
    ensure!(latest == expected, "the list includes order {latest}, the latest one is {expected}");
    Ok(lost)
}

/// Returns the answer to an order, repeating it while the database is down or the outcome unknown.
fn settled(client: &mut Client, order: &str) -> anyhow::Result<String> {
    let since = Instant::now();
    loop {
        let answer = client.ask(order)?;
        if !answer.ends_with(" ERR busy") && !answer.ends_with(" ERR unknown-outcome") {
            return Ok(answer);
        }
        if since.elapsed() > LIMIT {
            bail!("{order:?} keeps being answered with {answer:?}");
        }
        std::thread::sleep(PAUSE);
    }
}
