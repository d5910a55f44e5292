//! TLS state of a connection.

use crate::error::{NOT_TLS, SessionError};
use rustls::{Connection, Error};
use std::fmt;
use std::io::{Read, Write};

/// Converts between network bytes and the bytes of a protocol, on one side of a connection.
pub struct TlsSession {
    connection: Box<Connection>,
    has_ended: bool,
    sent_end: bool,
}

impl fmt::Debug for TlsSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsSession").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

impl TlsSession {
    pub(crate) fn new(mut connection: Connection) -> Self {
        // The callers bound the amount of buffered data.
        connection.set_buffer_limit(None);
        Self { connection: Box::new(connection), has_ended: false, sent_end: false }
    }

    /// Decrypts bytes from the network and appends the plain text to `plain`. Afterwards, even
    /// after an error, there may be bytes to [`seal`](Self::seal): the alert for the peer.
    ///
    /// # Errors
    /// Fails if the bytes are not TLS or do not belong to this session, which cannot be used
    /// afterwards.
    pub fn open(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), SessionError> {
        while !bytes.is_empty() {
            let taken = self.connection.read_tls(&mut bytes);
            if taken.map_err(|e| SessionError(e.to_string()))? == 0 {
                // Bytes after the end of the stream are ignored.
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
            Error::InvalidMessage(_) if self.connection.is_handshaking() => NOT_TLS.to_owned(),
            _ if self.connection.is_handshaking() => format!("the handshake failed: {error}"),
            _ => error.to_string(),
        })
    }

    /// Appends the data to send to `out`: pending handshake messages, then `plain`, encrypted.
    /// During the handshake, `plain` is buffered and returned by a later call.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) {
        if !plain.is_empty() {
            // Without a limit, the buffer accepts everything.
            let _ = self.connection.writer().write_all(plain);
        }
        while self.connection.wants_write() {
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
    }

    /// Announces the end of the stream, at most once. Returns true if that appended bytes to `out`.
    pub fn end(&mut self, out: &mut Vec<u8>) -> bool {
        if std::mem::replace(&mut self.sent_end, true) {
            return false;
        }
        let before = out.len();
        self.connection.send_close_notify();
        self.seal(&[], out);
        out.len() > before
    }

    /// Reports whether the handshake is still in progress.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Reports whether the peer has announced the end of its stream.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}
