//! Stores with objects, and options for the tests.

use ioloom_bucket::{BUCKET, Law, Server};
use ioloom_objects::{Location, Mapped, ObjectError, Options, Store, objects};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn store(server: &Server, url: &str) -> Store {
    Store::with_variables(Location::parse(url).unwrap(), server.environment()).unwrap()
}

/// Bytes that differ between objects and positions.
pub(crate) fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (x >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(crate) fn filled(
    law: Law,
    count: u64,
    len: impl Fn(u64) -> usize,
) -> (Server, BTreeMap<String, Vec<u8>>) {
    let server = Server::start(law);
    let mut all = BTreeMap::new();
    for number in 0..count {
        let key = format!("dir/sub {}/object+{number:04}", number % 3);
        let bytes = contents(number, len(number));
        server.put(&key, bytes.clone());
        all.insert(format!("s3://{BUCKET}/{key}"), bytes);
    }
    (server, all)
}

/// Repeats failed requests soon: the pauses themselves have tests of their own.
pub(crate) fn small() -> Options<'static> {
    let retry_pause = Duration::from_millis(2);
    Options { memory: 1 << 20, threads: 2, retry_pause, ..Options::default() }
}

pub(crate) fn read(store: &Store, options: &Options<'_>) -> Mapped<Vec<u8>> {
    objects(store, options, |object| object.bytes().to_vec()).unwrap()
}

pub(crate) fn only_error(mapped: &Mapped<Vec<u8>>) -> &ObjectError {
    assert_eq!(mapped.errors.len(), 1, "{:?}", mapped.errors);
    &mapped.errors[0]
}
