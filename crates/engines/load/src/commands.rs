//! A load of other commands, for servers such as Redis.
//!
//! A commands file says which RESP command each kind of request sends, so that the same loops,
//! mixes and latencies can be compared with another server. Its answers are not verified, except
//! that errors are wrong.

use ioloom_exchange::{Order, Side};
use std::io::Write;

/// Maximum number of stocks.
const STOCKS_MAX: u32 = 1_000_000;
/// Number of stocks if the file does not specify it.
const STOCKS: u32 = 10;

/// The commands of a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commands {
    /// Number of stocks; 0 until the file or the default sets it.
    pub(crate) stocks: u32,
    /// Name and text of each script.
    pub(crate) scripts: Vec<(String, String)>,
    /// Sent once per stock before the load.
    pub(crate) prepare: Vec<Vec<String>>,
    pub(crate) show: Option<Vec<String>>,
    pub(crate) buy: Option<Vec<String>>,
    pub(crate) sell: Option<Vec<String>>,
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
            stocks: 0,
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
        if commands.stocks == 0 {
            commands.stocks = STOCKS;
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
            "stocks" if self.stocks > 0 => return Err("stocks is repeated".to_owned()),
            "stocks" => {
                let stocks = rest.first().and_then(|word| word.parse().ok());
                let stocks = stocks.filter(|n| (1..=STOCKS_MAX).contains(n) && rest.len() == 1);
                self.stocks = stocks.ok_or(format!("stocks must be 1 to {STOCKS_MAX}"))?;
            }
            "script" => match rest {
                [name, text] => {
                    let word = format!("{{{name}}}");
                    if self.scripts.iter().any(|(other, _)| *other == word) {
                        return Err(format!("script '{name}' is repeated"));
                    }
                    self.scripts.push((word, text.clone()));
                }
                _ => return Err("expected script NAME TEXT; quote the text".to_owned()),
            },
            "prepare" => self.prepare.push(command()?),
            "show" => set(&mut self.show, name, command()?)?,
            "buy" => set(&mut self.buy, name, command()?)?,
            "sell" => set(&mut self.sell, name, command()?)?,
            _ => {
                return Err(format!(
                    "unknown word '{name}'; use stocks, script, prepare, show, buy or sell"
                ));
            }
        }
        Ok(())
    }

    /// Returns a kind of requests with a share of the load but without a command.
    pub(crate) fn missing(&self, show: f64, buy: f64, sell: f64) -> Option<&'static str> {
        let all = [("show", &self.show, show), ("buy", &self.buy, buy), ("sell", &self.sell, sell)];
        all.into_iter()
            .find(|(_, command, share)| command.is_none() && *share > 0.0)
            .map(|(name, ..)| name)
    }

    /// Appends the command of an order, or of a list.
    pub(crate) fn encode(&self, order: Option<&Order>, out: &mut Vec<u8>) {
        let (command, stock, count) = match order {
            None => (&self.show, 1, 1),
            Some(order) => {
                let command = if order.side() == Side::Buy { &self.buy } else { &self.sell };
                (command, order.stock(), order.count())
            }
        };
        if let Some(command) = command {
            encode_words(&filled(command, stock, count), out);
        }
    }
}

/// Sets the command of a kind of requests, which must not have one.
fn set(slot: &mut Option<Vec<String>>, name: &str, words: Vec<String>) -> Result<(), String> {
    if slot.replace(words).is_some() {
        return Err(format!("{name} is repeated"));
    }
    Ok(())
}

/// Replaces the numbers in a command.
pub(crate) fn filled(command: &[String], stock: u32, count: u32) -> Vec<String> {
    let fill = |word: &String| {
        if !word.contains('{') {
            return word.clone();
        }
        word.replace("{stock}", &stock.to_string()).replace("{count}", &count.to_string())
    };
    command.iter().map(fill).collect()
}

/// Appends a RESP command.
pub(crate) fn encode_words(words: &[String], out: &mut Vec<u8>) {
    // Writing to memory cannot fail.
    let _ = write!(out, "*{}\r\n", words.len());
    for word in words {
        let _ = write!(out, "${}\r\n{word}\r\n", word.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_filled_in_and_encoded() {
        let text = "# redis\nstocks 3\nprepare SET stock:{stock} 100\nbuy DECRBY stock:{stock} \
                    {count}\nsell EVALSHA {s} 0 \"a b\"\nscript s 'return 1'\n";
        let commands = Commands::parse(text).unwrap();
        assert_eq!((commands.stocks, commands.scripts.len()), (3, 1));
        let mut out = Vec::new();
        commands.encode(Order::new(Side::Buy, 3, 12).as_ref(), &mut out);
        assert_eq!(out, b"*3\r\n$6\r\nDECRBY\r\n$7\r\nstock:3\r\n$2\r\n12\r\n");
        assert_eq!(commands.missing(1.0, 1.0, 1.0), Some("show"));
        assert_eq!(commands.missing(0.0, 1.0, 1.0), None);
    }

    #[test]
    fn invalid_files_are_refused_with_the_line() {
        for (text, word) in [
            ("", "no line that starts with"),
            ("stocks 0\n", "line 1: stocks must be"),
            ("stocks x\n", "line 1: stocks must be"),
            ("stocks 3\nstocks 3\n", "line 2: stocks is repeated"),
            ("\nbuy\n", "line 2: buy needs a command"),
            ("fly X\n", "line 1: unknown word 'fly'"),
            ("buy \"X\n", "line 1: "),
            ("script a\n", "line 1: expected script"),
            ("script a x\nscript a y\n", "line 2: script 'a' is repeated"),
            ("buy X\nbuy Y\n", "line 2: buy is repeated"),
        ] {
            let error = Commands::parse(text).unwrap_err();
            assert!(error.contains(word), "{text:?}: {error}");
        }
    }
}
