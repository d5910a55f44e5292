//! What workers and `shard` have in common about queues: addresses, connections and errors.

use crate::exit::{Exit, Failure};
use crate::out;
use ioloom_queue::{Address, Queue, QueueError};

/// Reads the address of a queue.
pub(crate) fn address(url: &str) -> Result<Address, Failure> {
    url.parse().map_err(|error| Failure::usage(format!("invalid --queue '{}': {error}", hide(url))))
}

/// Connects to the server of a queue.
pub(crate) fn connect(url: &str) -> Result<Queue, Failure> {
    Queue::connect(&address(url)?).map_err(failure)
}

/// Returns an address without what is before its host, which may be a password.
fn hide(url: &str) -> String {
    let Some((before, rest)) = url.rsplit_once('@') else { return url.to_owned() };
    // Any other text before :// may be a password.
    let known = ["nats", "tls", "ws", "wss", "http", "https"];
    match before.split_once("://").filter(|(scheme, _)| known.contains(scheme)) {
        Some((scheme, _)) => format!("{scheme}://{rest}"),
        None => rest.to_owned(),
    }
}

/// Returns the failure of a command: what was given does not fit the queue (2), or the queue cannot be
/// used (1).
pub(crate) fn failure(error: QueueError) -> Failure {
    let exit = match &error {
        QueueError::Address { .. }
        | QueueError::Credentials { .. }
        | QueueError::Denied { .. }
        | QueueError::OtherPlan { .. }
        | QueueError::OtherQueue { .. }
        | QueueError::OtherWork { .. } => Exit::Usage,
        _ => Exit::Failed,
    };
    Failure::new(exit, text(&error))
}

/// Returns an error as text. What others stored in the queue can be part of it.
pub(crate) fn text(error: &QueueError) -> String {
    out::readable(error.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_in_invalid_addresses_are_hidden() {
        for (url, shown) in [
            ("nats://me:secret@host/", "nats://host/"),
            ("me:secret@host/q", "host/q"),
            ("nats:/me:secret@host/q", "host/q"),
            ("me:secret@host://q", "host://q"),
            ("me:secret://x@host/q", "host/q"),
            ("secret://x@host/q", "host/q"),
            ("host/q", "host/q"),
        ] {
            assert_eq!(hide(url), shown);
            let Err(failure) = address(url) else { panic!("{shown} is valid") };
            assert!(!failure.message.contains("secret"), "{}", failure.message);
        }
    }

    #[test]
    fn what_others_stored_cannot_control_the_terminal() {
        let found = "\u{1b}[2J".to_owned();
        let queue = "nats://h/q".to_owned();
        let failure = failure(QueueError::OtherWork { queue, found, wanted: "each".to_owned() });
        assert!(failure.message.contains("'\\u{1b}[2J'"), "{}", failure.message);
    }
}
