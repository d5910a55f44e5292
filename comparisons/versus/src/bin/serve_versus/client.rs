//! Queries during a load: the remaining stock, and whether idle connections were accepted.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A server that does not answer within this time is considered hung.
const PATIENCE: Duration = Duration::from_secs(20);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(2);

/// A RESP reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Number(i64),
    Text(String),
    List(Vec<Reply>),
}

/// A RESP client with one request in flight.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("cannot connect to the server")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a request and waits for the reply; an error reply is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(text.as_bytes())?;
        read(&mut self.0).with_context(|| format!("request {}", words[0]))
    }
}

/// Reads one reply.
fn read(from: &mut impl BufRead) -> Result<Reply> {
    let mut line = String::new();
    ensure!(from.read_line(&mut line)? > 0, "the server closed the connection");
    let line = line.trim_end_matches(['\r', '\n']);
    let Some(mark) = line.chars().next() else { bail!("an empty answer") };
    let rest = &line[mark.len_utf8()..];
    Ok(match mark {
        ':' => Reply::Number(rest.parse()?),
        '+' => Reply::Text(rest.to_owned()),
        '-' => bail!("the server refuses: {rest}"),
        '$' => {
            let mut bytes = vec![0; rest.parse::<usize>().context("a null reply")? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Text(String::from_utf8(bytes)?)
        }
        '*' => {
            let count = rest.parse::<usize>()?;
            Reply::List((0..count).map(|_| read(from)).collect::<Result<_>>()?)
        }
        _ => bail!("'{line}' is not a RESP reply"),
    })
}

/// Returns the remaining amount of the first stock in the exchange's list.
pub(crate) fn left_of_list(reply: &Reply) -> Result<i64> {
    if let Reply::List(stocks) = reply
        && let Some(Reply::List(stock)) = stocks.first()
        && let Some(Reply::Number(left)) = stock.get(1)
    {
        return Ok(*left);
    }
    bail!("{reply:?} is not a list of stocks")
}

/// Returns a number stored in redis.
pub(crate) fn number_of_text(reply: &Reply) -> Result<i64> {
    match reply {
        Reply::Text(text) => text.parse().with_context(|| format!("'{text}' is not a number")),
        other => bail!("{other:?} is not a number"),
    }
}

/// Opens idle connections in addition to the existing one; returns once the exchange has accepted
/// all of them.
pub(crate) fn guests(address: SocketAddr, count: u32) -> Result<Vec<TcpStream>> {
    let connect = |_| TcpStream::connect(address).context("cannot open an idle connection");
    let guests = (0..count).map(connect).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    // Including the existing one and the one that queries.
    while open(address)? < u64::from(count) + 2 {
        ensure!(start.elapsed() < PATIENCE, "not all of {count} connections were accepted");
        std::thread::sleep(LOOK);
    }
    Ok(guests)
}

/// Returns the number of connections that the exchange counts, including the one that queries.
fn open(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = text.lines().find_map(|line| line.strip_prefix("ioloom_connections "));
    line.context("no count of connections in /metrics")?.parse().context("no number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let reply = |text: &str| read(&mut text.as_bytes());
        let list = reply("*2\r\n*3\r\n:1\r\n:90\r\n:5\r\n*3\r\n:2\r\n:7\r\n:5\r\n").unwrap();
        assert_eq!(left_of_list(&list).unwrap(), 90);
        assert_eq!(number_of_text(&reply("$2\r\n-7\r\n").unwrap()).unwrap(), -7);
        assert_eq!(reply("+OK\r\n").unwrap(), Reply::Text("OK".to_owned()));
        for bad in ["", "-ERR no\r\n", "$-1\r\n", "hello\r\n", "*1\r\n", "$5\r\nab"] {
            assert!(reply(bad).is_err(), "{bad:?}");
        }
        assert!(left_of_list(&Reply::Number(1)).is_err());
    }
}
