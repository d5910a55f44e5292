//! `shard submit`: creates a queue that hands out the shards of a plan.

use super::queue_args::SubmitArgs;
use crate::exit::{Ended, Exit, Failure};
use crate::out;
use crate::queueing::{address, failure as queue_failure};
use crate::sharding::{check_file, failure, now_ns};
use ioloom_model::units::{format_count, format_counted};
use ioloom_queue::{Queue, QueueError, Terms};
use ioloom_shard::plan::Plan;
use serde_json::json;

pub(super) fn run(args: &SubmitArgs) -> Ended {
    let address = address(&args.queue)?;
    if args.remove {
        let removed = Queue::connect(&address).and_then(|queue| queue.remove());
        removed.map_err(not_removed)?;
        if args.json {
            out::print_json(&json!({"schema": 1, "command": "shard submit", "removed": true}))?;
        } else {
            out::print(&format!("removed {address}\n"))?;
        }
        return Ok(Exit::Ok);
    }
    let Some(plan) = &args.plan else { return Err(Failure::usage("name the plan")) };
    check_file(plan)?;
    let (header, checksum) = Plan::glance(plan).map_err(failure)?;
    let terms = Terms {
        plan: checksum,
        shards: header.shards,
        files: header.files,
        lease_ms: u64::from(args.lease) * 1000,
        tries: args.tries,
        created_ns: now_ns(),
    };
    let queue = Queue::connect(&address).map_err(queue_failure)?;
    let submitted = queue.submit(&terms, args.unpark).map_err(queue_failure)?;
    let existed = submitted.terms.created_ns != terms.created_ns;
    if args.json {
        out::print_json(&json!({
            "schema": 1,
            "command": "shard submit",
            "queue": address.to_string(),
            "existed": existed,
            "terms": submitted.terms,
            "leases": submitted.leases,
            "shards": submitted.shards,
            "unparked": submitted.unparked,
        }))?;
        return Ok(Exit::Ok);
    }
    let counted = |shards| format_counted(shards, "shard", "shards");
    let shards = counted(submitted.shards);
    let mut text = match submitted.leases {
        0 => format!("{address} has all {} already\n", counted(submitted.terms.shards)),
        leases if leases == submitted.shards => format!("queued {shards} in {address}\n"),
        leases => format!("queued {shards} in {} leases in {address}\n", format_count(leases)),
    };
    let kept = submitted.terms.lease_ms != terms.lease_ms || submitted.terms.tries != terms.tries;
    if existed && kept {
        text += &format!(
            "the queue keeps its terms: a lease of {} s, {} tries\n",
            submitted.terms.lease_ms / 1000,
            submitted.terms.tries
        );
    }
    if args.unpark {
        let parked = format_counted(submitted.unparked, "parked shard", "parked shards");
        text += &format!("queued {parked} again\n");
    }
    out::print(&text)?;
    Ok(Exit::Ok)
}

/// Returns the failure of a removal. An absent queue is not to be created for it.
fn not_removed(error: QueueError) -> Failure {
    match error {
        QueueError::Missing { queue } => {
            let queue = out::readable(queue.as_bytes());
            Failure::failed(format!("cannot remove {queue}: the server has no such queue"))
        }
        error => queue_failure(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_removal_of_an_absent_queue_does_not_advise_to_create_it() {
        let failure = not_removed(QueueError::Missing { queue: "nats://h/q".to_owned() });
        assert_eq!(failure.exit, Exit::Failed);
        assert_eq!(failure.message, "cannot remove nats://h/q: the server has no such queue");
    }
}
