//! Finds responses that come byte by byte: they are never silent, and would never end.

use futures_util::{Stream, StreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use std::time::{Duration, Instant};

/// Longest time without a byte of a response.
pub(crate) const SILENCE: Duration = Duration::from_secs(20);

/// Least number of bytes of a response in this time. A slow line that many responses share must not
/// fall below it.
const LEAST_BYTES: usize = 1024;

/// The bytes of a response over time.
pub(crate) struct Pace {
    since: Instant,
    bytes: usize,
    limit: Duration,
}

impl Pace {
    /// Describes a response that begins now.
    pub(crate) fn new() -> Self {
        Self::with_limit(SILENCE)
    }

    /// The same with another time in which the bytes must arrive.
    pub(crate) fn with_limit(limit: Duration) -> Self {
        Self { since: Instant::now(), bytes: 0, limit }
    }

    /// The same for a response that begins now, after its request was sent.
    pub(crate) fn restarted(&self) -> Self {
        Self::with_limit(self.limit)
    }

    /// Returns true if too little of a response has arrived for too long. `bytes`: all that has.
    pub(crate) fn is_lost(&mut self, bytes: usize) -> bool {
        self.is_lost_at(Instant::now(), bytes)
    }

    fn is_lost_at(&mut self, now: Instant, bytes: usize) -> bool {
        if now.duration_since(self.since) < self.limit {
            return false;
        }
        let got = bytes - self.bytes;
        (self.since, self.bytes) = (now, bytes);
        got < LEAST_BYTES
    }

    /// Says why a response was given up.
    pub(crate) fn lost(&self) -> String {
        format!("the response brought less than {LEAST_BYTES} bytes in {} s", self.limit.as_secs())
    }

    /// Returns the same as an error of the client.
    pub(crate) fn error(&self) -> HttpError {
        HttpError::new(HttpErrorKind::Interrupted, std::io::Error::other(self.lost()))
    }
}

/// Returns the parts of a body until too little of it arrives for too long, which is an error.
pub(crate) fn paced<B: AsRef<[u8]>>(
    body: impl Stream<Item = object_store::Result<B>> + Unpin,
    mut pace: Pace,
) -> impl Stream<Item = object_store::Result<B>> + Unpin {
    let mut bytes = 0;
    body.map(move |part| {
        let part = part?;
        bytes += part.as_ref().len();
        if pace.is_lost(bytes) {
            let source = Box::new(pace.error());
            return Err(object_store::Error::Generic { store: "S3", source });
        }
        Ok(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::reason::Reason;
    use crate::wire::Seen;
    use futures_util::{TryStreamExt, stream};

    #[tokio::test]
    async fn a_body_that_drips_is_an_interrupted_response() {
        let body = || stream::iter([b"a", b"b"]).map(Ok);
        let all: Vec<&[u8; 1]> = paced(body(), Pace::new()).try_collect().await.unwrap();
        assert_eq!(all, [b"a", b"b"]);
        let error = paced(body(), Pace::with_limit(Duration::ZERO)).try_next().await.unwrap_err();
        let reason = Reason::of(&error, &Seen { status: Some(200), ..Seen::default() });
        assert_eq!((reason.kind, reason.is_transient()), (Kind::Interrupted, true));
        assert_eq!(reason.text, "the response brought less than 1024 bytes in 0 s");
    }

    #[test]
    fn a_response_that_drips_is_lost_and_a_slow_one_is_not() {
        let start = Instant::now();
        let after = |s: u64| start + Duration::from_secs(s);
        let mut drips = Pace { since: start, bytes: 0, limit: SILENCE };
        assert!(!drips.is_lost_at(after(19), 19));
        assert!(drips.is_lost_at(after(20), 20));
        let mut slow = Pace { since: start, bytes: 0, limit: SILENCE };
        for s in 1..100 {
            assert!(!slow.is_lost_at(after(s), s as usize * 60), "{s}");
        }
        // It has been fast, and drips now.
        let mut fast = Pace { since: start, bytes: 0, limit: SILENCE };
        assert!(!fast.is_lost_at(after(21), 1 << 20));
        assert!(fast.is_lost_at(after(42), (1 << 20) + 30));
    }
}
