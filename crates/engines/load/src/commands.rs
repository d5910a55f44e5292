//! A load of other commands, for servers such as Redis.
//!
//! A commands file says which RESP command each kind of request sends, so that the same loops,
//! mixes and latencies can be compared with another server. Its answers are not verified, except
//! that errors are wrong.

use crate::channel::Channel;
use crate::client_codec::{Expected, Reader, Response, encode_words, greeting};
use crate::draw::Op;
use crate::error::LoadError;
use crate::judge::StockList;
use crate::plan::LoadPlan;
use ioloom_exchange::{Line, Side};
use std::io;

/// Maximum number of stocks.
const STOCKS_MAX: u32 = 1_000_000;
/// Number of stocks if the file does not specify it.
const STOCKS: u32 = 10;

/// The commands of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands {
    stocks: u32,
    /// Name and text of each script.
    scripts: Vec<(String, String)>,
    /// Sent once per stock before the load.
    prepare: Vec<Vec<String>>,
    show: Option<Vec<String>>,
    buy: Option<Vec<String>>,
    sell: Option<Vec<String>>,
}

impl Commands {
    /// Parses a commands file: lines `stocks N`, `script NAME TEXT`, `prepare COMMAND`,
    /// `show COMMAND`, `buy COMMAND` and `sell COMMAND`. In commands, `{stock}` and `{count}` are
    /// replaced by numbers, and `{NAME}` by the digest of a script. Words can be quoted.
    ///
    /// # Errors
    /// Returns the line number and the reason if a line is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut commands = Self {
            stocks: STOCKS,
            scripts: Vec::new(),
            prepare: Vec::new(),
            show: None,
            buy: None,
            sell: None,
        };
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            commands.add(line).map_err(|why| format!("line {}: {why}", at + 1))?;
        }
        if commands.show.is_none() && commands.buy.is_none() && commands.sell.is_none() {
            return Err("it has no line that starts with show, buy or sell".to_owned());
        }
        Ok(commands)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let words = shell_words::split(line).map_err(|e| e.to_string())?;
        let (name, rest) = words.split_first().ok_or("it is empty")?;
        let command = || match rest {
            [] => Err(format!("{name} needs a command")),
            words => Ok(words.to_vec()),
        };
        match name.as_str() {
            "stocks" => {
                let stocks = rest.first().and_then(|word| word.parse().ok());
                let stocks = stocks.filter(|n| (1..=STOCKS_MAX).contains(n) && rest.len() == 1);
                self.stocks = stocks.ok_or(format!("stocks must be 1 to {STOCKS_MAX}"))?;
            }
            "script" => match rest {
                [name, text] => self.scripts.push((format!("{{{name}}}"), text.clone())),
                _ => return Err("expected script NAME TEXT; quote the text".to_owned()),
            },
            "prepare" => self.prepare.push(command()?),
            "show" => self.show = Some(command()?),
            "buy" => self.buy = Some(command()?),
            "sell" => self.sell = Some(command()?),
            _ => {
                return Err(format!(
                    "unknown word '{name}'; use stocks, script, prepare, show, buy or sell"
                ));
            }
        }
        Ok(())
    }

    /// Returns the kinds of requests without a command.
    pub(crate) fn missing(&self, plan: &LoadPlan) -> Option<&'static str> {
        let all = [
            ("show", &self.show, plan.mix.show),
            ("buy", &self.buy, plan.mix.buy),
            ("sell", &self.sell, plan.mix.sell),
        ];
        all.into_iter()
            .find(|(_, command, share)| command.is_none() && *share > 0.0)
            .map(|(name, ..)| name)
    }

    /// Appends the command of a request.
    pub(crate) fn encode(&self, op: Op, out: &mut Vec<u8>) {
        let (command, stock, count) = match op {
            Op::Show => (&self.show, 1, 1),
            Op::Trade(order) => {
                let command = if order.side() == Side::Buy { &self.buy } else { &self.sell };
                (command, order.stock(), order.count())
            }
        };
        if let Some(command) = command {
            encode_words(&filled(command, stock, count), out);
        }
    }

    /// Loads the scripts and prepares the stocks. Returns the commands with the digests of the
    /// scripts, and the numbers of the stocks.
    pub(crate) fn prepare(&self, plan: &LoadPlan) -> Result<(Self, StockList), LoadError> {
        let target = plan.target;
        let connected = Channel::connect(plan);
        let mut channel = connected.map_err(|source| LoadError::Connect { target, source })?;
        let mut commands = self.clone();
        let made = channel
            .set_timeouts(plan.timeout, plan.timeout)
            .and_then(|()| commands.set_up(&mut channel, plan));
        made.map_err(|error| LoadError::Prepare {
            target,
            reason: ioloom_failure::reason(&error),
        })?;
        let line = |id| Line { id, left: 0, price: 0 };
        Ok((commands, StockList { lines: (1..=self.stocks).map(line).collect(), is_cut: false }))
    }

    fn set_up(&mut self, channel: &mut Channel, plan: &LoadPlan) -> io::Result<()> {
        let mut reader = Reader::plain();
        if let Some(greeting) = greeting(plan.protocol, None, plan.token.as_deref()) {
            channel.send(&greeting)?;
            answer(channel, &mut reader)?;
        }
        for (name, text) in std::mem::take(&mut self.scripts) {
            let mut bytes = Vec::new();
            encode_words(&["SCRIPT".to_owned(), "LOAD".to_owned(), text], &mut bytes);
            channel.send(&bytes)?;
            let digest = answer(channel, &mut reader)?;
            let all = [&mut self.show, &mut self.buy, &mut self.sell].into_iter().flatten();
            for word in all.chain(&mut self.prepare).flatten() {
                *word = word.replace(&name, &digest);
            }
        }
        for command in &self.prepare {
            for stock in 1..=self.stocks {
                let mut bytes = Vec::new();
                encode_words(&filled(command, stock, 1), &mut bytes);
                channel.send(&bytes)?;
                answer(channel, &mut reader)?;
            }
        }
        Ok(())
    }
}

/// Replaces the numbers in a command.
fn filled(command: &[String], stock: u32, count: u32) -> Vec<String> {
    let fill = |word: &String| {
        if !word.contains('{') {
            return word.clone();
        }
        word.replace("{stock}", &stock.to_string()).replace("{count}", &count.to_string())
    };
    command.iter().map(fill).collect()
}

/// Waits for an answer and returns its text; an error answer is an error.
fn answer(channel: &mut Channel, reader: &mut Reader) -> io::Result<String> {
    loop {
        match reader.next(Expected::Hello).map(|reply| reply.response) {
            Some(Response::Plain(text)) => return Ok(text),
            Some(Response::Other(error)) => return Err(io::Error::other(error)),
            Some(other) => return Err(io::Error::other(format!("unexpected answer {other:?}"))),
            None => {}
        }
        let bytes = channel.recv()?;
        reader.feed(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ioloom_exchange::Order;

    #[test]
    fn commands_are_filled_in_and_encoded() {
        let text = "# redis\nstocks 3\nprepare SET stock:{stock} 100\nbuy DECRBY stock:{stock} \
                    {count}\nsell EVALSHA {s} 0 \"a b\"\nscript s 'return 1'\n";
        let commands = Commands::parse(text).unwrap();
        assert_eq!((commands.stocks, commands.scripts.len()), (3, 1));
        let mut out = Vec::new();
        commands.encode(Op::Trade(Order::new(Side::Buy, 3, 12).unwrap()), &mut out);
        assert_eq!(out, b"*3\r\n$6\r\nDECRBY\r\n$7\r\nstock:3\r\n$2\r\n12\r\n");
        let mut plan = LoadPlan::new(([127, 0, 0, 1], 1).into());
        assert_eq!(commands.missing(&plan), Some("show"));
        plan.mix.show = 0.0;
        assert_eq!(commands.missing(&plan), None);
    }

    #[test]
    fn invalid_files_are_refused_with_the_line() {
        for (text, word) in [
            ("", "no line that starts with"),
            ("stocks 0\n", "line 1: stocks must be"),
            ("stocks x\n", "line 1: stocks must be"),
            ("\nbuy\n", "line 2: buy needs a command"),
            ("fly X\n", "line 1: unknown word 'fly'"),
            ("buy \"X\n", "line 1: "),
            ("script a\n", "line 1: expected script"),
        ] {
            let error = Commands::parse(text).unwrap_err();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
