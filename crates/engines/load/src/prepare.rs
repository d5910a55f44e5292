//! Prepares a server for a load of other commands.

use crate::channel::{Channel, Wait};
use crate::client_codec::{Expected, Reader, Response, greeting};
use crate::commands::{Commands, encode_words, filled};
use crate::error::LoadError;
use crate::judge::StockList;
use crate::plan::LoadPlan;
use ioloom_exchange::Line;
use std::io;
use std::sync::atomic::AtomicBool;

/// Loads the scripts and prepares the stocks. Returns the commands with the digests of the scripts,
/// and the numbers of the stocks. `stop` interrupts it.
pub(crate) fn prepare(
    commands: &Commands,
    plan: &LoadPlan,
    stop: &AtomicBool,
) -> Result<(Commands, StockList), LoadError> {
    let target = plan.target;
    let connected = Channel::connect(plan);
    let mut channel = connected.map_err(|source| LoadError::Connect { target, source })?;
    let mut commands = commands.clone();
    let made = channel
        .set_timeouts(plan.timeout, plan.timeout)
        .and_then(|()| set_up(&mut commands, &mut channel, plan, stop));
    made.map_err(|error| {
        if error.kind() == io::ErrorKind::Interrupted {
            return LoadError::Interrupted { target };
        }
        let prepare = || LoadError::Prepare { target, reason: ioloom_failure::reason(&error) };
        LoadError::of_tls(target, &error).unwrap_or_else(prepare)
    })?;
    let line = |id| Line { id, left: 0, price: 0 };
    let lines = (1..=commands.stocks).map(line).collect();
    Ok((commands, StockList { lines, is_cut: false }))
}

fn set_up(
    commands: &mut Commands,
    channel: &mut Channel,
    plan: &LoadPlan,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut reader = Reader::plain();
    let mut receive =
        |channel: &mut Channel| answer(channel, &mut reader, Wait::new(plan.timeout, Some(stop)));
    if let Some(greeting) = greeting(plan.protocol, None, plan.token.as_deref()) {
        channel.send(&greeting)?;
        receive(channel)?;
    }
    for (name, text) in std::mem::take(&mut commands.scripts) {
        let mut bytes = Vec::new();
        encode_words(&["SCRIPT".to_owned(), "LOAD".to_owned(), text], &mut bytes);
        channel.send(&bytes)?;
        let digest = receive(channel)?;
        let Commands { show, buy, sell, prepare, .. } = &mut *commands;
        let all = [show, buy, sell].into_iter().flatten();
        for word in all.chain(prepare).flatten() {
            *word = word.replace(&name, &digest);
        }
    }
    for command in &commands.prepare {
        for stock in 1..=commands.stocks {
            let mut bytes = Vec::new();
            encode_words(&filled(command, stock, 1), &mut bytes);
            channel.send(&bytes)?;
            receive(channel)?;
        }
    }
    Ok(())
}

/// Waits for an answer and returns its text; an error answer is an error.
fn answer(channel: &mut Channel, reader: &mut Reader, wait: Wait<'_>) -> io::Result<String> {
    loop {
        match reader.next(Expected::Hello).map(|reply| reply.response) {
            Some(Response::Plain(text)) => return Ok(text),
            Some(Response::Other(error)) => return Err(io::Error::other(error)),
            Some(other) => return Err(io::Error::other(format!("unexpected answer {other}"))),
            None => {}
        }
        let bytes = channel.recv_within(&wait)?;
        reader.feed(bytes);
    }
}
