//! A listener with its settings, and the handling of connections above the limit.

use crate::choice::Model;
use crate::service::Service;
use ioloom_exchange::{Answer, Form, Settings, Stop, encode};
use ioloom_sys_net::wait::SELECT_MAX;
use ioloom_sys_net::{Listener, Socket};

/// Number of file descriptors within the `select` limit that are not connections.
const SELECT_RESERVED: usize = 24;

/// Maximum number of listeners per loop.
pub(crate) const PORTS_MAX: usize = 7;

/// A listener, and the variant of the original protocol used on it.
pub(crate) struct Port {
    pub(crate) listener: Listener,
    pub(crate) settings: Settings,
    /// Whether it is the second one, for unpadded answers.
    pub(crate) is_line: bool,
}

impl Port {
    /// Answers a connection above the limit with `BUSY`.
    pub(super) fn turn_away(&self, service: &Service, socket: &Socket) {
        turn_away(service, &self.settings, socket);
    }
}

/// Answers a connection above the limit with `BUSY`. This does not block, because the send buffer
/// of a new connection has room for it.
pub(super) fn turn_away(service: &Service, settings: &Settings, socket: &Socket) {
    let bytes = busy_bytes(service, settings);
    if !bytes.is_empty() {
        let _ = socket.send(&bytes);
    }
}

/// Returns the answer for a connection above the limit. With TLS it is empty, because nothing can
/// be sent before a handshake.
pub(super) fn busy_bytes(service: &Service, settings: &Settings) -> Vec<u8> {
    let mut bytes = Vec::new();
    if service.is_sealed() {
        return bytes;
    }
    encode(Form::Classic(None), settings, &Answer::Stopped(Stop::Busy), &mut bytes);
    bytes
}

/// Returns the maximum number of connections of the model.
pub(super) fn connections_max(service: &Service) -> usize {
    match service.model {
        Model::Select => SELECT_MAX - SELECT_RESERVED,
        _ => service.live.connections(),
    }
}
