//! TLS as bytes in, bytes out: both sides of a connection, without a socket.
//!
//! A [`TlsSession`] converts between network bytes and the bytes of a protocol. It decrypts what
//! has arrived and encrypts what is to be sent, but never reads, writes or waits, so both event
//! loops and blocking threads can use it. Handshake messages are returned by [`TlsSession::seal`]
//! like everything else: a caller that seals after every [`TlsSession::open`] does not need to know
//! about handshakes.
//!
//! Only TLS 1.3 is supported, provided by rustls with ring. Sessions are never resumed: every
//! handshake is complete, no tickets are issued and no key outlives its connection. Client
//! certificates are not requested; authorization uses a token inside the encrypted stream. The cost
//! to the calling thread is one signature per handshake and one extra copy of each byte.
//!
//! Without the feature `rustls` the same types exist but cannot be constructed; the constructors
//! return an error.

mod error;
#[cfg(feature = "rustls")]
mod session;
#[cfg(feature = "rustls")]
mod sides;
#[cfg(feature = "rustls")]
mod verify;
#[cfg(not(feature = "rustls"))]
mod without;

pub use error::{SessionError, TlsError};
#[cfg(feature = "rustls")]
pub use session::TlsSession;
#[cfg(feature = "rustls")]
pub use sides::{Identity, Trust};
#[cfg(not(feature = "rustls"))]
pub use without::{Identity, TlsSession, Trust};
