//! What a program does with `object_store` alone: lists a prefix and reads every object with `buffer_unordered`.
//!
//! `ioloom-object-rivals URL AT_ONCE SECONDS` prints the objects read, the errors and the processor time in one line of
//! JSON. `object_store` repeats refused requests itself.

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::time::{Duration, Instant};

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, at_once, seconds] = args.as_slice() else {
        println!("usage: ioloom-object-rivals URL AT_ONCE SECONDS");
        return;
    };
    let at_once: usize = at_once.parse().expect("a number");
    let limit = Duration::from_secs(seconds.parse().expect("a number"));
    let store = AmazonS3Builder::new()
        .with_endpoint(url)
        .with_bucket_name("bucket")
        .with_region("us-east-1")
        .with_access_key_id("id")
        .with_secret_access_key("secret")
        .with_allow_http(true)
        .build()
        .expect("settings");
    let start = Instant::now();
    let prefix = Path::from("o");
    let (mut done, mut errors, mut bytes) = (0u64, 0u64, 0u64);
    let store = &store;
    let reads = store
        .list(Some(&prefix))
        .map_ok(|meta| async move { store.get(&meta.location).await?.bytes().await })
        .map(|found| async { found?.await })
        .buffer_unordered(at_once);
    let mut reads = std::pin::pin!(reads);
    while start.elapsed() < limit {
        let Ok(Some(read)) = tokio::time::timeout(limit - start.elapsed(), reads.next()).await else {
            break;
        };
        match read {
            Ok(body) => {
                done += 1;
                bytes += body.len() as u64;
            }
            Err(_) => errors += 1,
        }
    }
    let stat = std::fs::read_to_string("/proc/self/stat").expect("stat");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().map(|at| fields[*at].parse::<u64>().unwrap_or(0)).sum();
    println!(
        "{{\"seconds\":{:.2},\"objects\":{done},\"errors\":{errors},\"bytes\":{bytes},\"cpu_s\":{:.2}}}",
        start.elapsed().as_secs_f64(),
        ticks as f64 / 100.0
    );
}
