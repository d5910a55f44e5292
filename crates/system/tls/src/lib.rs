//! TLS as bytes in, bytes out: the two sides of a connection, without a socket.
//!
//! A [`TlsSession`] stands between the bytes of a network and those of a protocol. It opens what has
//! arrived and seals what shall leave, and never reads, writes or waits by itself, so a loop that is
//! told when bytes are there uses it as well as a thread that blocks. What a handshake has to say
//! comes out of [`TlsSession::seal`] like everything else: whoever seals after each opening needs to know
//! nothing of handshakes.
//!
//! TLS 1.3 only, of rustls with ring. Nobody is remembered: each handshake is whole, no ticket is given
//! out and no key outlives its connection. Clients are not asked for a certificate; who may order is
//! decided by a token, inside. The cost is on the thread that calls: a signature for each handshake,
//! and one more copy of each byte on its way through the cipher.
//!
//! Without the feature `rustls` the same types exist, cannot be made, and say so.

mod error;
#[cfg(feature = "rustls")]
mod session;
#[cfg(feature = "rustls")]
mod sides;
#[cfg(not(feature = "rustls"))]
mod without;

pub use error::{SessionError, TlsError};
#[cfg(feature = "rustls")]
pub use session::TlsSession;
#[cfg(feature = "rustls")]
pub use sides::{Identity, Trust};
#[cfg(not(feature = "rustls"))]
pub use without::{Identity, TlsSession, Trust};
