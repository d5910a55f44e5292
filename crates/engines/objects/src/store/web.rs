//! Files on web servers: one object for a URL, which can only be read.

use super::settings::{Clients, SILENCE, connections, is_plain, no_retries, retries};
use crate::client::{Answer, Client};
use crate::cloud::Cloud;
use crate::location::Location;
use crate::wire::{Connector, had_status, innermost};
use object_store::http::{HttpBuilder, HttpStore};
use object_store::list::{PaginatedListOptions, PaginatedListResult};
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetResult, MultipartId, ObjectStore, PutOptions, PutPayload, PutResult,
};
use std::sync::Arc;

/// The client of one file.
#[derive(Debug)]
pub(super) struct Web {
    inner: HttpStore,
}

/// Makes the clients.
///
/// # Errors
///
/// Returns why the URL cannot be used.
pub(super) fn open(location: &Location) -> Result<Clients<Web>, String> {
    let url = &location.bucket;
    let plain = is_plain(url);
    let connector =
        Connector { cloud: Cloud::Web, store: Arc::default(), services: Arc::default() };
    let builder = HttpBuilder::new()
        .with_url(url)
        .with_http_connector(connector)
        .with_client_options(connections(SILENCE, plain));
    let build = |builder: HttpBuilder| Ok(Arc::new(Web { inner: builder.build()? }));
    let unusable = |error: Error| innermost(&error);
    let patient = build(builder.clone().with_retry(retries())).map_err(unusable)?;
    let settings = builder.with_retry(no_retries());
    let reading = build(settings.clone()).map_err(unusable)?;
    let writing = reading.clone();
    let make = Arc::new(move || build(settings.clone()).map(|client| client as _));
    Ok(Clients { endpoint: String::new(), make, reading, writing, patient })
}

impl Web {
    async fn get(&self, key: &Path, mut options: GetOptions) -> object_store::Result<GetResult> {
        // A comparison with a weak version never succeeds.
        options.if_match = options.if_match.filter(|version| !version.starts_with("W/"));
        // The URL of the client is that of the file.
        let at = Path::default();
        let mut answer = self.inner.get_opts(&at, options.clone()).await;
        let is_doubtful = options.head
            && match &answer {
                // Servers that answer as if every file were empty.
                Ok(answer) => answer.meta.size == 0 && had_status(&[200]),
                // URLs that are signed for one method, servers without this method, and pages whose length is only
                // sent with them.
                Err(_) => had_status(&[200, 400, 403, 404, 405, 501]),
            };
        if is_doubtful {
            let whole = GetOptions { head: false, ..options };
            answer = self.inner.get_opts(&at, whole).await;
        }
        let mut answer = answer?;
        answer.meta.location = key.clone();
        Ok(answer)
    }
}

/// The error of every request that is not for the contents.
fn read_only<'a, T: Send + 'a>() -> Answer<'a, T> {
    let source = "files on web servers can only be read".into();
    Box::pin(std::future::ready(Err(Error::NotSupported { source })))
}

impl Client for Web {
    fn get_opts<'a>(&'a self, key: &'a Path, options: GetOptions) -> Answer<'a, GetResult> {
        Box::pin(self.get(key, options))
    }

    fn list_paginated<'a>(
        &'a self,
        _: Option<&'a str>,
        _: PaginatedListOptions,
    ) -> Answer<'a, PaginatedListResult> {
        read_only()
    }

    fn put_opts<'a>(&'a self, _: &'a Path, _: PutPayload, _: PutOptions) -> Answer<'a, PutResult> {
        read_only()
    }

    fn create_multipart<'a>(&'a self, _: &'a Path) -> Answer<'a, MultipartId> {
        read_only()
    }

    fn put_part<'a>(
        &'a self,
        _: &'a Path,
        _: &'a MultipartId,
        _: usize,
        _: PutPayload,
    ) -> Answer<'a, PartId> {
        read_only()
    }

    fn complete_multipart<'a>(
        &'a self,
        _: &'a Path,
        _: &'a MultipartId,
        _: Vec<PartId>,
    ) -> Answer<'a, PutResult> {
        read_only()
    }

    fn abort_multipart<'a>(&'a self, _: &'a Path, _: &'a MultipartId) -> Answer<'a, ()> {
        read_only()
    }
}
