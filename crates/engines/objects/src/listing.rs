//! The objects below a prefix.

use crate::client::Client;
use crate::cloud::Cloud;
use crate::error::{Action, Kind, ObjectError};
use crate::location::Location;
use crate::options::until_set;
use crate::page::Removed;
use crate::reason::Reason;
use crate::retries::Retries;
use crate::store::Store;
use crate::wire::{REPEATED, Seen, watched};
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta};
use reqwest::header::HeaderValue;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, UNIX_EPOCH};

/// Most attempts of a page whose response breaks off or is not a list.
const PAGE_ATTEMPTS: u32 = 4;

/// Why a listing ends that goes in a circle.
const AGAIN: &str = "the server listed the same object twice";

/// Why a listing ends whose server ignores the prefix.
const OUTSIDE: &str = "the server listed an object that is not below the prefix";

/// Why an object with a version that a request cannot name cannot be read.
const ODD_VERSION: &str = "the server listed it with a version (ETag) that a header cannot contain";

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
    /// Returns a listed object, or the error of one whose version cannot be a header of the request for its contents.
    fn of(location: &Location, mut meta: ObjectMeta) -> Result<Self, ObjectError> {
        // Azure lists them without the quotes that the headers of contents have. Those of a web server are used as sent.
        if matches!(location.cloud, Cloud::Azure | Cloud::Google) {
            meta.e_tag = meta.e_tag.map(quoted);
        }
        let key = meta.location.as_ref().to_owned();
        if meta.e_tag.as_deref().is_some_and(|text| HeaderValue::from_str(text).is_err()) {
            let url = location.url_of(&key);
            return Err(ObjectError::new(Action::Read, url, Kind::Unsupported, ODD_VERSION));
        }
        let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or(0);
        Ok(Self { key, size: meta.size, modified_ns, e_tag: meta.e_tag })
    }

    /// Returns the time of the last change.
    pub fn modified(&self) -> std::time::SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.modified_ns.max(0) as u64)
    }
}

/// Returns a version with the quotes that a header needs.
fn quoted(e_tag: String) -> String {
    if e_tag.ends_with('"') { e_tag } else { format!("\"{e_tag}\"") }
}

/// Returns the description of one object.
pub(crate) async fn describe(client: &dyn Client, key: &Path) -> object_store::Result<ObjectMeta> {
    let options = GetOptions { head: true, ..GetOptions::default() };
    Ok(client.get_opts(key, options).await?.meta)
}

/// Passes every object of the location to `each` in the order of the list, until it returns false. A page is passed on
/// before the next one is requested, and one that breaks off is requested again.
/// Objects with keys that the client cannot represent are errors, which come before the other objects
/// of their page. So is the object that has the name of the location, if it is unknown whether it exists.
/// Without an object below it, the location must be an object itself.
pub(crate) async fn visit<F: Future<Output = bool>>(
    store: &Store,
    recursive: bool,
    mut each: impl FnMut(Result<Listed, ObjectError>) -> F,
) -> Result<(), ObjectError> {
    let location = &store.location;
    let failed = |reason, attempts| unlisted(location, reason, attempts);
    if !recursive || location.is_web_file() {
        return visit_one(store, each).await;
    }
    let (mut found, mut unknown) = (false, None);
    match of_the_prefix(store).await? {
        Named::Absent => {}
        Named::Unknown(error, refusal) => unknown = Some((error, refusal)),
        Named::Found(listed) => {
            found = true;
            if !each(listed).await {
                return Ok(());
            }
        }
    }
    let prefix = (!location.key.is_root()).then(|| format!("{}/", location.key));
    let retries = Retries::default();
    let (mut keys, mut tokens) = (Circle::new(), Circle::new());
    let (mut last, mut token) = (None, None);
    loop {
        let options = PaginatedListOptions { page_token: token, ..Default::default() };
        let page = request_page(store, prefix.as_deref(), options, &retries).await;
        let cause = page.as_ref().err().map(|(reason, _)| reason.kind);
        if let Some((error, refusal)) = unknown.take()
            && cause.is_none_or(|kind| kind != error.kind && Some(kind) != refusal)
        {
            found = true;
            if !each(Err(error)).await {
                return Ok(());
            }
        }
        let (page, seen) = page.map_err(|(reason, attempts)| failed(reason, attempts))?;
        let (removed, objects) = (seen.removed, page.result.objects);
        found |= removed.markers || !removed.keys.is_empty() || !objects.is_empty();
        for key in removed.keys {
            if !each(Err(unsupported(location, &key))).await {
                return Ok(());
            }
        }
        for meta in objects {
            if last.as_ref() == Some(&meta.location) || keys.closes_with(&meta.location) {
                return Err(failed(Reason::new(Kind::Response, AGAIN), 1));
            }
            last = Some(meta.location.clone());
            if !each(Listed::of(location, meta)).await {
                return Ok(());
            }
        }
        match page.page_token.filter(|token| !token.is_empty()) {
            None => break,
            Some(next) if tokens.closes_with(&next) => {
                return Err(failed(Reason::new(Kind::Response, REPEATED), 1));
            }
            next => token = next,
        }
    }
    if found || location.key.is_root() {
        return Ok(());
    }
    let reason = Reason::new(Kind::Missing, "No such object or prefix");
    Err(ObjectError { action: Action::Read, ..failed(reason, 1) })
}

/// Returns whether a page has a key that is not below the prefix.
fn is_outside(prefix: Option<&str>, objects: &[ObjectMeta], removed: &Removed) -> bool {
    let outside = |key: &str| prefix.is_some_and(|prefix| !key.starts_with(prefix));
    objects.iter().any(|meta| outside(meta.location.as_ref()))
        || removed.keys.iter().any(|key| outside(key))
}

/// Requests a page of a list, and again if it breaks off or is not a list. If it fails, returns the reason and the number
/// of attempts.
async fn request_page(
    store: &Store,
    prefix: Option<&str>,
    options: PaginatedListOptions,
    retries: &Retries,
) -> Result<(PaginatedListResult, Seen), (Reason, u32)> {
    let (mut attempts, mut requests) = (0, 0);
    loop {
        let page = store.patient.list_paginated(prefix, options.clone());
        let (page, seen) = watched(page).await;
        let error = match page {
            Ok(page) if is_outside(prefix, &page.result.objects, &seen.removed) => {
                let requests = requests + seen.requests.max(1);
                return Err((Reason::new(Kind::Response, OUTSIDE), requests));
            }
            Ok(page) => return Ok((page, seen)),
            Err(error) => error,
        };
        attempts += 1;
        requests += seen.requests.max(1);
        let reason = Reason::of(&error, &seen);
        match pause_after(&reason, &seen, retries, attempts) {
            Some(pause) => tokio::time::sleep(pause).await,
            None => return Err((reason, requests)),
        }
    }
}

/// Returns the pause before a page is requested again that broke off or is not a list. Other failed requests were
/// repeated already.
fn pause_after(reason: &Reason, seen: &Seen, retries: &Retries, attempts: u32) -> Option<Duration> {
    let began_well = seen.status.is_some_and(|status| status < 300);
    let broke_off = began_well && !seen.is_repeated && reason.is_transient();
    let repeats = broke_off && attempts < PAGE_ATTEMPTS;
    repeats.then(|| retries.take(attempts)).flatten()
}

/// Finds out whether a sequence goes in a circle: it remembers one item, which then comes again, and replaces it after
/// twice as many items as the one before. So it finds every circle, however long it is.
#[derive(Debug)]
struct Circle<T> {
    mark: Option<T>,
    /// Items until the next mark, and between the last mark and that one.
    left: u64,
    distance: u64,
}

impl<T: Clone + PartialEq> Circle<T> {
    fn new() -> Self {
        Self { mark: None, left: 0, distance: 0 }
    }

    /// Takes the next item. Returns whether it is the mark.
    fn closes_with(&mut self, item: &T) -> bool {
        if self.mark.as_ref() == Some(item) {
            return true;
        }
        if self.left == 0 {
            self.distance = (self.distance * 2).max(1);
            (self.left, self.mark) = (self.distance, Some(item.clone()));
        }
        self.left -= 1;
        false
    }
}

fn unlisted(location: &Location, reason: Reason, attempts: u32) -> ObjectError {
    let error = ObjectError::new(Action::List, location.url(), reason.kind, reason.text);
    ObjectError { attempts, ..error }
}

fn undescribed(location: &Location, Reason { kind, text }: Reason) -> ObjectError {
    ObjectError::new(Action::Read, location.url(), kind, text)
}

/// What is known of the object that has the name of the prefix.
enum Named {
    /// It does not exist, or the listing of what is below it fails for the same reason.
    Absent,
    Found(Result<Listed, ObjectError>),
    /// It can exist: the error of its description, and why it could not be listed alone, if that was requested. If the
    /// listing of what is below it fails for one of both reasons, that is the only error.
    Unknown(ObjectError, Option<Kind>),
}

/// Describes the object that has the name of the prefix.
async fn of_the_prefix(store: &Store) -> Result<Named, ObjectError> {
    let location = &store.location;
    if location.is_prefix {
        return Ok(Named::Absent);
    }
    // Without an answer it may be there.
    match watched(describe(&*store.patient, &location.key)).await {
        (Ok(meta), _) => Ok(Named::Found(Listed::of(location, meta))),
        (Err(error), seen) => {
            let reason = Reason::of(&error, &seen);
            match reason.kind {
                Kind::Credentials
                | Kind::Renewal
                | Kind::Unreachable
                | Kind::Configuration
                | Kind::Busy
                | Kind::Server
                | Kind::Descriptors
                | Kind::Interrupted => Err(unlisted(location, reason, seen.requests.max(1))),
                // The listing reports these, if it fails for the same reason.
                Kind::Missing | Kind::NoBucket | Kind::NoStore | Kind::Region => Ok(Named::Absent),
                // Lists are not sorted there, and only prefixes with a slash at their end can be listed.
                // A list of Azure has only what is below the prefix.
                _ if location.is_directory_bucket() || location.cloud == Cloud::Azure => {
                    Ok(Named::Unknown(undescribed(location, reason), None))
                }
                _ => listed_itself(store, reason).await,
            }
        }
    }
}

/// Finds the object that has the name of the prefix in a listing. An object whose description is refused for `reason` can
/// exist: its description needs another permission than its listing, and that of an object encrypted with a key of
/// the client needs the key. The request for its contents will fail, too, and report it. A policy can permit only the
/// listing of what is below it, so a refusal of this listing does not end the other one.
async fn listed_itself(store: &Store, reason: Reason) -> Result<Named, ObjectError> {
    let location = &store.location;
    let options = PaginatedListOptions { max_keys: Some(1), ..Default::default() };
    let prefix = Some(location.key.as_ref());
    match request_page(store, prefix, options, &Retries::default()).await {
        Ok((page, _)) => {
            let first = page.result.objects.into_iter().next();
            let itself = first.filter(|meta| meta.location == location.key);
            Ok(itself.map_or(Named::Absent, |meta| Named::Found(Listed::of(location, meta))))
        }
        Err((refusal, attempts)) if refusal.is_transient() => {
            Err(unlisted(location, refusal, attempts))
        }
        Err((refusal, _)) => Ok(Named::Unknown(undescribed(location, reason), Some(refusal.kind))),
    }
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
    match watched(describe(&*store.patient, &location.key)).await {
        (Ok(meta), _) => {
            each(Listed::of(location, meta)).await;
            Ok(())
        }
        (Err(error), seen) => {
            let attempts = seen.requests.max(1);
            let mut reason = Reason::of(&error, &seen);
            if reason.kind == Kind::Missing {
                // The answer to a description has no error document, so it does not say what is missing.
                let read = store.patient.get_opts(&location.key, GetOptions::default());
                if let (Err(error), seen) = watched(read).await {
                    let found = Reason::of(&error, &seen);
                    reason = if found.kind == Kind::Missing { reason } else { found };
                }
            }
            Err(ObjectError { attempts, ..failed(reason.kind, reason.text) })
        }
    }
}

/// Lists every object of the location until `each` returns false or `stop` is set. `each` gets an error
/// of the kind [`Kind::Unsupported`] for each object with a key or a version that the client cannot use, and one of another
/// kind for an object with the name of the location of which the server does not say whether it exists.
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

    #[test]
    fn versions_have_the_quotes_of_a_header() {
        for (text, expected) in [("0x8", "\"0x8\""), ("\"0x8\"", "\"0x8\""), ("W/\"a\"", "W/\"a\"")]
        {
            assert_eq!(quoted(text.to_owned()), expected);
        }
    }

    #[test]
    fn every_circle_is_found() {
        for (start, len) in [(0, 1), (0, 2), (1, 3), (7, 1), (10, 100), (100, 7)] {
            let mut circle = Circle::new();
            let items = (0..start).chain((start..start + len).cycle());
            let count = items.take(10_000).take_while(|item| !circle.closes_with(item)).count();
            assert!(count >= start + len && count <= 4 * (start + len), "{start} {len}: {count}");
        }
    }
}
