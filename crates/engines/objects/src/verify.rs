//! Compares an object with the file that was sent.
//!
//! The `ETag` of the answer proves the contents if it is their MD5, or the MD5 of those of the parts.
//! One that looks like it and differs does not prove damage, since some servers give versions of that
//! form, so the object is read back. Azure and Google give the MD5 of what was sent whole in a header. Other objects
//! are compared by their length.

use crate::error::Action;
use crate::listing::describe;
use crate::pace::{Pace, paced};
use crate::paced::{Paced, Problem, Unsent};
use crate::record::digits;
use crate::wire::Seen;
use futures_util::TryStreamExt;
use md5::{Digest, Md5};
use object_store::path::Path as Key;
use object_store::{GetOptions, GetRange, ObjectMeta};
use std::path::Path;

/// How a file was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    Verified,
    LengthOnly,
    Stopped,
}

/// What was sent.
pub(crate) struct Contents<'a> {
    pub(crate) key: &'a Key,
    pub(crate) size: u64,
    /// Size of a part, and the MD5 of each. A file that was sent whole is one part.
    pub(crate) part: u64,
    pub(crate) sums: &'a [Vec<u8>],
    pub(crate) in_parts: bool,
}

impl Contents<'_> {
    /// Returns the `ETag` of servers that use the MD5.
    fn e_tag(&self) -> String {
        match self.in_parts {
            true => format!("{}-{}", digits(&Md5::digest(self.sums.concat())), self.sums.len()),
            false => digits(&self.sums.concat()),
        }
    }

    /// Returns whether an `ETag` has the form of the sum.
    fn has_form(&self, e_tag: &str) -> bool {
        let (sum, count) = e_tag.split_once('-').unwrap_or((e_tag, ""));
        let expected = if self.in_parts { self.sums.len().to_string() } else { String::new() };
        sum.len() == 32 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) && count == expected
    }
}

impl Paced {
    /// Verifies an object whose writing was answered with this `ETag`.
    pub(crate) async fn verify(
        &self,
        sent: &Contents<'_>,
        e_tag: Option<&str>,
        seen: &Seen,
    ) -> Result<Sent, Problem> {
        let found = e_tag.map(plain).unwrap_or_default();
        let is_whole = |sum: &Option<String>| !sent.in_parts && *sum == Some(sent.e_tag());
        if found == sent.e_tag() || is_whole(&seen.md5) {
            return Ok(Sent::Verified);
        }
        let failed = |unsent| self.failure(Action::Verify, sent.key, unsent);
        let (meta, at) = match self.described(sent.key).await {
            Err(Unsent::Stopped) => return Ok(Sent::Stopped),
            described => described.map_err(failed)?,
        };
        let shown = ioloom_failure::quoted(Path::new(&self.url(sent.key))).to_string();
        if meta.size != sent.size {
            let (found, size) = (meta.size, sent.size);
            let text =
                format!("cannot verify {shown}: the object has {found} bytes, the file has {size}");
            return Err(text.into());
        }
        if is_whole(&at.md5) {
            return Ok(Sent::Verified);
        }
        let has_other = !sent.in_parts && at.md5.is_some();
        if !has_other && (seen.no_md5 || !sent.has_form(&found)) {
            return Ok(Sent::LengthOnly);
        }
        match self.reads_the_same(sent, &meta).await {
            Ok(true) => Ok(Sent::Verified),
            Ok(false) => {
                Err(format!("cannot verify {shown}: the object differs from the file").into())
            }
            Err(Unsent::Stopped) => Ok(Sent::Stopped),
            Err(unsent) => Err(failed(unsent)),
        }
    }

    /// Returns whether the object has the contents that were sent: after a request whose answer was
    /// lost. Anything but a proof counts as no.
    pub(crate) async fn is_there(&self, sent: &Contents<'_>) -> bool {
        let Ok((meta, _)) = self.described(sent.key).await else { return false };
        let e_tag = meta.e_tag.as_deref().map(plain).unwrap_or_default();
        meta.size == sent.size
            && (e_tag == sent.e_tag() || self.reads_the_same(sent, &meta).await.unwrap_or(false))
    }

    async fn described(&self, key: &Key) -> Result<(ObjectMeta, Seen), Unsent> {
        let client = &*self.store.reading;
        self.small(|| describe(client, key)).await
    }

    /// Reads an object part by part and compares the sums.
    async fn reads_the_same(&self, sent: &Contents<'_>, meta: &ObjectMeta) -> Result<bool, Unsent> {
        for (number, sum) in (0..).zip(sent.sums) {
            let start = number * sent.part;
            let end = sent.size.min(start + sent.part);
            if start == end {
                continue;
            }
            let mut place = self.enter(end - start).await.ok_or(Unsent::Stopped)?;
            let read = || async {
                let options = GetOptions {
                    if_match: meta.e_tag.clone(),
                    range: Some(GetRange::Bounded(start..end)),
                    ..GetOptions::default()
                };
                let body = self.store.reading.get_opts(sent.key, options).await?.into_stream();
                let (mut found, mut body) = (Md5::new(), paced(body, Pace::new()));
                while let Some(part) = body.try_next().await? {
                    found.update(&part);
                }
                Ok::<_, object_store::Error>(found.finalize())
            };
            let (found, _) = self.send(&mut place, read).await?;
            if found.as_slice() != sum.as_slice() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn plain(e_tag: &str) -> String {
    e_tag.trim_matches('"').to_ascii_lowercase()
}
