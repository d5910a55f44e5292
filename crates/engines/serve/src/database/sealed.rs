//! TLS for the connections to a database.
//!
//! The client library is given a stream that encrypts: [`Sealed`] converts between its bytes and
//! those of the socket by a [`TlsSession`]. The trust in each host is determined at startup, so a
//! lost file of CA certificates does not prevent reconnecting. Channel binding is not supported;
//! the password exchange (SCRAM) then works without it.

use super::words::Protection;
use ioloom_tls::{SessionError, TlsError, TlsSession, Trust};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};

/// Size of one read in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Number of unsent bytes from which on writing waits.
const UNSENT_MAX: usize = 64 * 1024;

/// Creates encrypted connections.
#[derive(Clone, Default)]
pub(super) struct Sealer(Vec<(String, Trust)>);

impl Sealer {
    /// Determines the trust in each of these hosts.
    pub(super) fn new<'a>(
        protection: Protection,
        authorities: Option<&Path>,
        hosts: impl Iterator<Item = &'a str>,
    ) -> Result<Self, TlsError> {
        let trust = |name: &str| match protection {
            Protection::None | Protection::Encrypted => Trust::unverified(name),
            Protection::Issued => Trust::of_any_name(authorities, name),
            Protection::Named => Trust::new(authorities, name),
        };
        hosts.map(|name| Ok((name.to_owned(), trust(name)?))).collect::<Result<_, _>>().map(Self)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for Sealer {
    type Stream = Sealed<S>;
    type TlsConnect = HostSealer;
    type Error = SessionError;

    fn make_tls_connect(&mut self, host: &str) -> Result<HostSealer, SessionError> {
        let found = self.0.iter().find(|(name, _)| name == host);
        Ok(HostSealer(found.map(|(_, trust)| trust.clone())))
    }
}

/// Encrypts a connection to one host; `None` if connections to it are not encrypted.
pub(super) struct HostSealer(Option<Trust>);

type Handshake<S> = Pin<Box<dyn Future<Output = io::Result<Sealed<S>>> + Send>>;

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for HostSealer {
    type Stream = Sealed<S>;
    type Error = io::Error;
    type Future = Handshake<S>;

    fn connect(self, socket: S) -> Handshake<S> {
        Box::pin(async move {
            let trust = self.0.ok_or_else(|| io::Error::other("the host has no name"))?;
            let session = trust.session().map_err(io::Error::other)?;
            let mut sealed = Sealed::new(socket, session);
            poll_fn(|cx| sealed.poll_handshake(cx)).await?;
            Ok(sealed)
        })
    }
}

/// An encrypted connection.
pub(super) struct Sealed<S> {
    socket: S,
    session: TlsSession,
    /// Decrypted bytes, and how many of them were read.
    plain: Vec<u8>,
    taken: usize,
    /// Encrypted bytes, and how many of them were sent.
    out: Vec<u8>,
    sent: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sealed<S> {
    fn new(socket: S, session: TlsSession) -> Self {
        Self { socket, session, plain: Vec::new(), taken: 0, out: Vec::new(), sent: 0 }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            self.session.seal(&[], &mut self.out);
            ready!(self.poll_send(cx))?;
            if !self.session.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_receive(cx))?;
        }
    }

    /// Sends all encrypted bytes.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() {
            let sending = Pin::new(&mut self.socket).poll_write(cx, &self.out[self.sent..]);
            match ready!(sending)? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.out.clear();
        self.sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Receives and decrypts some bytes. Returns false at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut buffer = [0; READ_BYTES];
        let mut buffer = ReadBuf::new(&mut buffer);
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            // Only a message of TLS proves that nothing is missing.
            return Poll::Ready(match self.session.has_ended() {
                true => Ok(false),
                false => Err(ErrorKind::UnexpectedEof.into()),
            });
        }
        let opened = self.session.open(buffer.filled(), &mut self.plain);
        // The answer to a key update, or the alert after an error.
        self.session.seal(&[], &mut self.out);
        if let Err(reason) = opened {
            let _ = self.poll_send(cx);
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, reason)));
        }
        Poll::Ready(Ok(true))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Sealed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.taken == this.plain.len() {
            this.plain.clear();
            this.taken = 0;
            // Bytes that cannot be sent now are sent by the next flush.
            if let Poll::Ready(Err(error)) = this.poll_send(cx) {
                return Poll::Ready(Err(error));
            }
            if this.session.has_ended() || !ready!(this.poll_receive(cx))? {
                return Poll::Ready(Ok(()));
            }
        }
        let count = into.remaining().min(this.plain.len() - this.taken);
        into.put_slice(&this.plain[this.taken..this.taken + count]);
        this.taken += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Sealed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.out.len() - self.sent > UNSENT_MAX {
            ready!(self.poll_send(cx))?;
        }
        let this = &mut *self;
        this.session.seal(bytes, &mut this.out);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.session.end(&mut this.out);
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.socket).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Sealed<S> {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
