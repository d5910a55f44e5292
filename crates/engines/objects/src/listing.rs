//! The objects below a prefix.

use crate::error::{Action, Kind, ObjectError};
use crate::location::Location;
use crate::options::until_set;
use crate::reason::Reason;
use crate::retries::Retries;
use crate::store::Store;
use crate::wire::{Seen, watched};
use futures_util::StreamExt;
use object_store::aws::AmazonS3;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore};
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

/// Most attempts of a page whose response breaks off or is not a list.
const PAGE_ATTEMPTS: u32 = 4;

/// Why an object cannot be read.
const ODD_KEY: &str = "keys with a slash at either end, an empty segment (//), a segment . or .. \
                       or control characters are not supported";

/// A listed object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Key in the bucket.
    pub key: String,
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change, nanoseconds since 1970.
    pub modified_ns: i64,
    /// Version of the contents, if the server gives one.
    pub e_tag: Option<String>,
}

impl Listed {
    pub(crate) fn of(meta: ObjectMeta) -> Self {
        Self {
            key: meta.location.as_ref().to_owned(),
            size: meta.size,
            modified_ns: meta.last_modified.timestamp_nanos_opt().unwrap_or(0),
            e_tag: meta.e_tag,
        }
    }

    /// Returns the time of the last change.
    pub fn modified(&self) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.modified_ns.max(0) as u64)
    }
}

/// Returns the description of one object.
pub(crate) async fn describe(client: &AmazonS3, key: &Path) -> object_store::Result<ObjectMeta> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    Ok(client.get_opts(key, options).await?.meta)
}

/// Passes every object of the location to `each` in the order of the keys, until it returns false.
/// Objects with keys that the client cannot represent are errors, which come before the other objects
/// of their page. Without an object below it, the location must be an object itself.
pub(crate) async fn visit<F: Future<Output = bool>>(
    store: &Store,
    recursive: bool,
    mut each: impl FnMut(Result<Listed, ObjectError>) -> F,
) -> Result<(), ObjectError> {
    let location = &store.location;
    let failed = |reason, attempts| unlisted(location, reason, attempts);
    if !recursive {
        return visit_one(store, each).await;
    }
    let mut found = false;
    if let Some(listed) = of_the_prefix(store).await? {
        found = true;
        if !each(Ok(listed)).await {
            return Ok(());
        }
    }
    let retries = Retries::default();
    let (mut order, mut attempts) = (Order::of(location), 0);
    // Keys of the last pages that had such keys. A page that is requested again has them again.
    let mut reported = HashSet::new();
    'again: loop {
        let mut pages = match &order.last {
            None => store.patient.list(Some(&location.key)),
            Some(last) => store.patient.list_with_offset(Some(&location.key), last),
        };
        order.resumed = order.last.is_some();
        loop {
            let (next, mut seen) = watched(pages.next()).await;
            let removed = std::mem::take(&mut seen.removed);
            found |= removed.markers || !removed.keys.is_empty();
            if attempts == 0 && !removed.keys.is_empty() {
                reported.clear();
            }
            for key in removed.keys {
                if reported.insert(key.clone()) && !each(Err(unsupported(location, &key))).await {
                    return Ok(());
                }
            }
            let meta = match next {
                None => break 'again,
                Some(Ok(meta)) => meta,
                Some(Err(error)) => {
                    attempts += 1;
                    let reason = Reason::of(&error, &seen);
                    let repeats = order.can_go_on(&reason, &seen) && attempts < PAGE_ATTEMPTS;
                    match repeats.then(|| retries.take(attempts)).flatten() {
                        Some(pause) => tokio::time::sleep(pause).await,
                        None => return Err(failed(order.explained(reason, &seen), attempts)),
                    }
                    continue 'again;
                }
            };
            (found, attempts) = (true, 0);
            let taken = order.take(&meta.location);
            taken.map_err(|text| failed(Reason::new(Kind::Response, text), 1))?;
            if !each(Ok(Listed::of(meta))).await {
                return Ok(());
            }
        }
    }
    if found || location.key.is_root() {
        return Ok(());
    }
    let reason = Reason::new(Kind::Missing, "No such object or prefix");
    Err(ObjectError { action: Action::Read, ..failed(reason, 1) })
}

/// Where a listing is, and whether it goes forward. A list whose keys are not in order is accepted, since not
/// all servers sort, but cannot be requested from a key on.
#[derive(Debug, Default)]
struct Order {
    last: Option<Path>,
    /// A key that was listed. Where pages follow each other in a circle, it comes again.
    mark: Option<Path>,
    /// Keys until the next mark, and between the last mark and that one: so every circle is found, however
    /// long it is.
    left: u64,
    distance: u64,
    /// Whether the list of the server is not sorted, so that one from a key on can lack keys.
    is_unsorted: bool,
    /// Whether a key was smaller than the one before it.
    is_mixed: bool,
    /// Whether the next key is the first one after `last` in a new listing.
    resumed: bool,
}

/// What a listing says that broke off and cannot be continued.
const UNSORTED: &str =
    "the list of a directory bucket is not sorted, so it cannot go on where it broke off";

impl Order {
    fn of(location: &Location) -> Self {
        Self { is_unsorted: location.is_directory_bucket(), ..Self::default() }
    }

    /// Returns the reason of a listing that ends because it cannot be continued.
    fn explained(&self, reason: Reason, seen: &Seen) -> Reason {
        if self.goes_on_from_a_key() || !Self::broke_off(&reason, seen) {
            return reason;
        }
        Reason { text: format!("{}; {UNSORTED}", reason.text), ..reason }
    }

    /// Returns whether the list can be requested again, which begins after the last key.
    fn goes_on_from_a_key(&self) -> bool {
        !self.is_unsorted || self.last.is_none()
    }

    /// Requests were repeated already; only a page that broke off was not.
    fn broke_off(reason: &Reason, seen: &Seen) -> bool {
        let broke_off = seen.status.is_some_and(|status| status < 300);
        broke_off && !seen.is_repeated && reason.is_transient()
    }

    /// Returns whether the list can be requested again from the last key on.
    fn can_go_on(&self, reason: &Reason, seen: &Seen) -> bool {
        Self::broke_off(reason, seen) && !self.is_mixed && self.goes_on_from_a_key()
    }

    /// Takes the next key.
    ///
    /// # Errors
    /// Returns the reason if it was listed before.
    fn take(&mut self, key: &Path) -> Result<(), &'static str> {
        let is_back = self.last.as_ref().is_some_and(|last| key <= last);
        if is_back && std::mem::take(&mut self.resumed) {
            return Err("the server does not continue the list where it broke off");
        }
        self.resumed = false;
        if self.mark.as_ref() == Some(key) || self.last.as_ref() == Some(key) {
            return Err("the server lists an object again");
        }
        self.is_mixed |= is_back;
        if self.left == 0 {
            self.distance = (self.distance * 2).max(1);
            (self.left, self.mark) = (self.distance, Some(key.clone()));
        }
        self.left -= 1;
        self.last = Some(key.clone());
        Ok(())
    }
}

fn unlisted(location: &Location, reason: Reason, attempts: u32) -> ObjectError {
    let error = ObjectError::new(Action::List, location.url(), reason.kind, reason.text);
    ObjectError { attempts, ..error }
}

/// Returns the object that has the name of the prefix, if there is one.
async fn of_the_prefix(store: &Store) -> Result<Option<Listed>, ObjectError> {
    let location = &store.location;
    if location.is_prefix {
        return Ok(None);
    }
    // Without an answer it may be there.
    match watched(describe(&store.patient, &location.key)).await {
        (Ok(meta), _) => Ok(Some(Listed::of(meta))),
        (Err(error), seen) => {
            let reason = Reason::of(&error, &seen);
            match reason.kind {
                Kind::Credentials
                | Kind::Unreachable
                | Kind::Configuration
                | Kind::Busy
                | Kind::Server
                | Kind::Interrupted => Err(unlisted(location, reason, 1)),
                // The listing reports these, if it fails for the same reason.
                Kind::Missing | Kind::NoBucket | Kind::NoStore | Kind::Region => Ok(None),
                _ => listed_itself(store).await,
            }
        }
    }
}

/// Returns the object that has the name of the prefix from a listing. An object whose description is refused can
/// exist: its description needs another permission than its listing, and that of an object encrypted with a key of
/// the client needs the key. The request for its contents will fail, too, and report it.
async fn listed_itself(store: &Store) -> Result<Option<Listed>, ObjectError> {
    let key = &store.location.key;
    let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
    let (page, seen) = watched(store.patient.list_paginated(Some(key.as_ref()), options)).await;
    let page = page.map_err(|error| unlisted(&store.location, Reason::of(&error, &seen), 1))?;
    let first = page.result.objects.into_iter().next();
    Ok(first.filter(|meta| meta.location == *key).map(Listed::of))
}

/// Returns the error of an object whose key the client cannot represent.
pub(crate) fn unsupported(location: &Location, key: &str) -> ObjectError {
    ObjectError::new(Action::Read, location.url_of(key), Kind::Unsupported, ODD_KEY)
}

/// Passes the object that the location names to `each`.
async fn visit_one<F: Future<Output = bool>>(
    store: &Store,
    mut each: impl FnMut(Result<Listed, ObjectError>) -> F,
) -> Result<(), ObjectError> {
    let location = &store.location;
    let failed = |kind, text: String| ObjectError::new(Action::Read, location.url(), kind, text);
    if location.is_prefix {
        return Err(failed(
            Kind::Missing,
            "it is a prefix, not an object; add -r to copy what is below it".to_owned(),
        ));
    }
    match watched(describe(&store.patient, &location.key)).await {
        (Ok(meta), _) => {
            each(Ok(Listed::of(meta))).await;
            Ok(())
        }
        (Err(error), seen) => {
            let mut reason = Reason::of(&error, &seen);
            if reason.kind == Kind::Missing {
                // The answer to a description has no error document, so it does not say what is missing.
                let read = store.patient.get_opts(&location.key, GetOptions::default());
                if let (Err(error), seen) = watched(read).await {
                    let found = Reason::of(&error, &seen);
                    reason = if found.kind == Kind::Missing { reason } else { found };
                }
            }
            Err(failed(reason.kind, reason.text))
        }
    }
}

/// Lists every object of the location until `each` returns false or `stop` is set. `each` gets an error
/// of the kind [`Kind::Unsupported`] for each object with a key that the client cannot represent.
///
/// # Errors
///
/// Returns why the listing failed or ended early.
pub fn list(
    store: &Store,
    stop: &AtomicBool,
    mut each: impl FnMut(Result<Listed, ObjectError>) -> bool,
) -> Result<(), ObjectError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| store.no_client(&error))?;
    runtime.block_on(async {
        tokio::select! {
            listed = visit(store, true, |listed| std::future::ready(each(listed))) => listed,
            () = until_set(stop) => Ok(()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(order: &mut Order, key: &str) -> Result<(), &'static str> {
        order.take(&Path::from(key))
    }

    #[test]
    fn a_list_in_any_order_is_accepted_and_only_one_in_order_can_go_on() {
        let broke_off = Seen { status: Some(200), ..Seen::default() };
        let reason = Reason::new(Kind::Interrupted, "");
        for (keys, goes_on) in [(["a", "b", "c"], true), (["a", "c", "b"], false)] {
            let mut order = Order::default();
            assert!(keys.iter().all(|key| take(&mut order, key).is_ok()), "{keys:?}");
            assert_eq!(order.can_go_on(&reason, &broke_off), goes_on, "{keys:?}");
            order.resumed = true;
            assert!(take(&mut order, "a").is_err(), "{keys:?}");
        }
    }

    #[test]
    fn the_list_of_a_directory_bucket_begins_again_and_is_not_continued() {
        let broke_off = Seen { status: Some(200), ..Seen::default() };
        let reason = Reason::new(Kind::Interrupted, "it broke off");
        for (url, goes_on) in [("s3://data--use1-az4--x-s3/p/", false), ("s3://data-x-s3/p/", true)]
        {
            let mut order = Order::of(&Location::parse(url).unwrap());
            assert!(order.can_go_on(&reason, &broke_off), "{url}: no key was listed");
            take(&mut order, "p/a").unwrap();
            take(&mut order, "p/b").unwrap();
            assert_eq!(order.can_go_on(&reason, &broke_off), goes_on, "{url}");
            let text = order.explained(reason.clone(), &broke_off).text;
            assert_eq!(text.contains(UNSORTED), !goes_on, "{text}");
        }
    }

    #[test]
    fn every_circle_is_found() {
        for (start, len) in [(0, 1), (0, 2), (1, 3), (7, 1), (10, 100), (100, 7)] {
            let mut order = Order::default();
            let keys = (0..start).chain((start..start + len).cycle());
            let taken = keys.map(|key| take(&mut order, &format!("{key:03}")));
            let count = taken.take(10_000).take_while(Result::is_ok).count();
            assert!(count >= start + len && count <= 4 * (start + len), "{start} {len}: {count}");
        }
    }
}
