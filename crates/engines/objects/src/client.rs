//! The requests that are sent to a store, whatever its protocol.

use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    GetOptions, GetResult, MultipartId, ObjectStore, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

/// An answer that has not arrived.
pub(crate) type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

/// A client of a store. The methods are those of the traits of `object_store` with the same names.
pub(crate) trait Client: Debug + Send + Sync {
    fn get_opts<'a>(&'a self, key: &'a Path, options: GetOptions) -> Answer<'a, GetResult>;

    fn list_paginated<'a>(
        &'a self,
        prefix: Option<&'a str>,
        options: PaginatedListOptions,
    ) -> Answer<'a, PaginatedListResult>;

    fn put_opts<'a>(
        &'a self,
        key: &'a Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<'a, PutResult>;

    fn create_multipart<'a>(&'a self, key: &'a Path) -> Answer<'a, MultipartId>;

    fn put_part<'a>(
        &'a self,
        key: &'a Path,
        id: &'a MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Answer<'a, PartId>;

    fn complete_multipart<'a>(
        &'a self,
        key: &'a Path,
        id: &'a MultipartId,
        parts: Vec<PartId>,
    ) -> Answer<'a, PutResult>;

    fn abort_multipart<'a>(&'a self, key: &'a Path, id: &'a MultipartId) -> Answer<'a, ()>;
}

impl<T: ObjectStore + MultipartStore + PaginatedListStore> Client for T {
    fn get_opts<'a>(&'a self, key: &'a Path, options: GetOptions) -> Answer<'a, GetResult> {
        ObjectStore::get_opts(self, key, options)
    }

    fn list_paginated<'a>(
        &'a self,
        prefix: Option<&'a str>,
        options: PaginatedListOptions,
    ) -> Answer<'a, PaginatedListResult> {
        PaginatedListStore::list_paginated(self, prefix, options)
    }

    fn put_opts<'a>(
        &'a self,
        key: &'a Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Answer<'a, PutResult> {
        ObjectStore::put_opts(self, key, payload, options)
    }

    fn create_multipart<'a>(&'a self, key: &'a Path) -> Answer<'a, MultipartId> {
        MultipartStore::create_multipart(self, key)
    }

    fn put_part<'a>(
        &'a self,
        key: &'a Path,
        id: &'a MultipartId,
        number: usize,
        payload: PutPayload,
    ) -> Answer<'a, PartId> {
        MultipartStore::put_part(self, key, id, number, payload)
    }

    fn complete_multipart<'a>(
        &'a self,
        key: &'a Path,
        id: &'a MultipartId,
        parts: Vec<PartId>,
    ) -> Answer<'a, PutResult> {
        MultipartStore::complete_multipart(self, key, id, parts)
    }

    fn abort_multipart<'a>(&'a self, key: &'a Path, id: &'a MultipartId) -> Answer<'a, ()> {
        MultipartStore::abort_multipart(self, key, id)
    }
}
