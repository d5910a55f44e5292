//! What is asked of a server beside the load: how many are left, and whether guests have arrived.

use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// A server that does not answer for longer will not.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(2);

/// An answer of RESP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Number(i64),
    Text(String),
    List(Vec<Reply>),
}

/// A client of RESP that asks one thing after the other.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).context("cannot connect to the server")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Asks and waits for the answer; an error of the server is an error.
    pub(crate) fn ask(&mut self, words: &[&str]) -> Result<Reply> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(text.as_bytes())?;
        read(&mut self.0).with_context(|| format!("asked {}", words[0]))
    }
}

/// Reads one answer.
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
            let mut bytes = vec![0; rest.parse::<usize>().context("nothing is there")? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Reply::Text(String::from_utf8(bytes)?)
        }
        '*' => {
            let count = rest.parse::<usize>()?;
            Reply::List((0..count).map(|_| read(from)).collect::<Result<_>>()?)
        }
        _ => bail!("'{line}' is no answer of RESP"),
    })
}

/// What is left of the first stock in a list of ours.
pub(crate) fn left_of_list(reply: &Reply) -> Result<i64> {
    if let Reply::List(stocks) = reply
        && let Some(Reply::List(stock)) = stocks.first()
        && let Some(Reply::Number(left)) = stock.get(1)
    {
        return Ok(*left);
    }
    bail!("{reply:?} is no list of stocks")
}

/// What redis holds as a number.
pub(crate) fn number_of_text(reply: &Reply) -> Result<i64> {
    match reply {
        Reply::Text(text) => text.parse().with_context(|| format!("'{text}' is no number")),
        other => bail!("{other:?} is no number"),
    }
}

/// Opens connections that say nothing, beside one that is there already; returns when the exchange
/// has counted them all in.
pub(crate) fn guests(address: SocketAddr, count: u32) -> Result<Vec<TcpStream>> {
    let connect = |_| TcpStream::connect(address).context("cannot open a silent connection");
    let guests = (0..count).map(connect).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    // With the one that is there and the one that asks.
    while open(address)? < u64::from(count) + 2 {
        ensure!(start.elapsed() < PATIENCE, "not all of {count} connections were accepted");
        std::thread::sleep(LOOK);
    }
    Ok(guests)
}

/// Connections that the exchange counts, the one that asks among them.
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
