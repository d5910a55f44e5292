//! One connection.

use crate::error::SessionError;
use rustls::{Connection, Error};
use std::fmt;
use std::io::{Read, Write};

/// What stands between the bytes of a network and those of a protocol, on one side of a connection.
pub struct TlsSession {
    connection: Box<Connection>,
    has_ended: bool,
    said_end: bool,
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl TlsSession {
    pub(crate) fn new(mut connection: Connection) -> Self {
        // What waits is bounded by whoever asks for it, before it comes here.
        connection.set_buffer_limit(None);
        Self { connection: Box::new(connection), has_ended: false, said_end: false }
    }

    /// Takes bytes of the network and appends what they mean to `plain`. Afterwards there may be
    /// something to [`seal`](Self::seal), also after an error: the word that tells the other side.
    ///
    /// # Errors
    /// They are not TLS, or not of this connection. It is over.
    pub fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        while !bytes.is_empty() {
            let taken = self.connection.read_tls(&mut bytes);
            if taken.map_err(|e| SessionError(e.to_string()))? == 0 {
                // Nothing counts behind the end.
                return Ok(());
            }
            let state = self.connection.process_new_packets().map_err(|e| self.broken(&e))?;
            self.has_ended |= state.peer_has_closed();
            let (at, arrived) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(at + arrived, 0);
            if let Err(reason) = self.connection.reader().read_exact(&mut plain[at..]) {
                plain.truncate(at);
                return Err(SessionError(reason.to_string()));
            }
        }
        Ok(())
    }

    fn broken(&self, error: &Error) -> SessionError {
        SessionError(match error {
            Error::InvalidMessage(_) if self.connection.is_handshaking() => {
                "what it sent is not TLS".to_owned()
            }
            _ if self.connection.is_handshaking() => format!("the handshake failed: {error}"),
            _ => error.to_string(),
        })
    }

    /// Appends to `out` what has to leave: first what the handshake says, then `plain`, sealed. While
    /// the handshake lasts `plain` is kept, and leaves at a later call.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        if !plain.is_empty() {
            // Without a limit memory takes everything.
            let _ = self.connection.writer().write_all(plain);
        }
        while self.connection.wants_write() {
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
    }

    /// Says that nothing more comes, once; true if that appended something to `out`.
    pub fn end(&mut self, out: &mut Vec<u8>) -> bool {
        if std::mem::replace(&mut self.said_end, true) {
            return false;
        }
        let before = out.len();
        self.connection.send_close_notify();
        self.seal(&[], out);
        out.len() > before
    }

    /// Whether the handshake is not over yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the other side has said that nothing more comes.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}
