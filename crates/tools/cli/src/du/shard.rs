//! `du --shard` and `du --queue`: scan the subtrees of a shard, and write what they use as its part.
//!
//! An inode with links in several subtrees of a shard counts once in its part. The part lists all inodes with
//! several links, so the merge can subtract those that other shards have counted, too.

use super::args::DuArgs;
use super::input::{print_errors_of, print_notes};
use crate::exit::{Ended, Failure};
use crate::out;
use crate::subtrees::{
    self, Comparison, Outcome, Sharding, Standing, SubtreeCommand, changed, meta, one_file_system,
    subtree,
};
use ioloom_du::scan::{ScanOptions, ScanProgress, Scanner};
use ioloom_du::{Scan, Tally};
use ioloom_model::units::{format_counted, format_ns, format_size};
use ioloom_shard::part::{PartHeader, Work};
use ioloom_shard::plan::Plan;
use ioloom_shard::usage::{self, Link, Usage};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Runs the shard, or the shards of the queue, that the flags name.
pub(super) fn run(args: &DuArgs) -> Ended {
    subtrees::run(&Scanning { args })
}

struct Scanning<'a> {
    args: &'a DuArgs,
}

impl SubtreeCommand for Scanning<'_> {
    const NAME: &'static str = "du";

    fn sharding(&self) -> &Sharding {
        &self.args.sharding
    }

    fn json(&self) -> bool {
        self.args.json
    }

    fn work(&self, plan: &Plan) -> Work {
        let option =
            one_file_system(plan).then(|| ("one-file-system".to_owned(), "yes".to_owned()));
        Work { command: Self::NAME.to_owned(), options: option.into_iter().collect() }
    }

    fn run(
        &self,
        plan: &Plan,
        paths: &[&[u8]],
        stop: &Arc<AtomicBool>,
    ) -> Result<Option<Outcome>, Failure> {
        let (scan, usage) = scan(self.args, plan, paths, stop)?;
        if scan.interrupted {
            return Ok(None);
        }
        print_errors_of(&scan);
        print_notes(&scan);
        Ok(Some(Outcome {
            files: usage.inodes,
            bytes: usage.disk_bytes,
            errors: scan.errors_count,
            method: self.args.method.word().to_owned(),
            body: usage::encode(&usage),
        }))
    }

    fn print(&self, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure> {
        print(self.args, plan, part, own)
    }
}

/// Scans subtrees as one scan, in which every inode counts once.
fn scan(
    args: &DuArgs,
    plan: &Plan,
    paths: &[&[u8]],
    stop: &Arc<AtomicBool>,
) -> Result<(Scan, Usage), Failure> {
    let options = ScanOptions {
        one_file_system: one_file_system(plan),
        method: args.method,
        threads: args.threads,
        ..ScanOptions::default()
    };
    let subtrees = paths.iter().map(|path| subtree(path));
    let subtrees: Vec<(PathBuf, bool)> = subtrees.collect();
    let progress = Arc::new(ScanProgress::default());
    // Without the roots: what is reached by two paths must not depend on the shards that they are in.
    let scanner = Scanner::new(options, &[], stop.clone(), progress);
    let mut scanner = scanner.map_err(Failure::refused)?;
    let mut comparison = Comparison::new(plan);
    for (path, alone) in &subtrees {
        match comparison.standing(path, *alone) {
            Standing::Same => {}
            Standing::OtherDevice | Standing::Reported => continue,
            Standing::Changed(directory) => {
                scanner.fail(changed("scan", &directory));
                continue;
            }
        }
        let scanned = match alone {
            true => scanner.root_alone(path),
            false => scanner.root(path),
        };
        scanned.map_err(Failure::refused)?;
        if scanner.stopped() {
            break;
        }
    }
    let own = plan.header.roots.first().and_then(|root| device_of(root.path()));
    let links = scanner.linked().into_iter().map(|(id, size, links)| Link {
        device: Some(id.device).filter(|device| Some(*device) != own),
        inode: id.inode,
        links,
        apparent_bytes: size.apparent_bytes,
        disk_bytes: size.disk_bytes,
    });
    let links = links.collect();
    let scan = scanner.finish();
    let Tally { apparent_bytes, disk_bytes, inodes, .. } = scan.total();
    let errors = scan.errors.clone();
    Ok((scan, Usage { apparent_bytes, disk_bytes, inodes, links, errors }))
}

fn device_of(path: &Path) -> Option<u64> {
    let meta = meta(path).ok()?;
    Some(ioloom_du::links::FileId::new(meta.device, meta.inode).device)
}

fn print(args: &DuArgs, plan: &Plan, part: &PartHeader, own: bool) -> Result<(), Failure> {
    let found = &part.found;
    if args.json {
        return out::print_json(&json!({
            "schema": 1,
            "command": "du",
            "inodes": found.files,
            "disk_bytes": found.bytes,
            "errors": found.errors,
            "shard": {
                "number": part.shard,
                "of": part.shards,
                "plan": plan.checksum,
                "written": own,
            },
        }));
    }
    let done = if own { "scanned" } else { "had a part" };
    out::print(&format!(
        "shard {}/{} {done}: {}, {}, {}\n",
        part.shard,
        part.shards,
        format_counted(found.files, "inode", "inodes"),
        format_size(found.bytes),
        format_ns(found.elapsed_ns as f64),
    ))
}
