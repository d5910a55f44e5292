//! `each --queue`: takes shards from a queue until none is left.
//!
//! The part of a shard is written as with `--shard`, so of two results the first one counts. Then what it
//! found is committed to the queue, which then counts the shard as done. A worker that ends between
//! the two leaves a part that the next one finds.

use super::args::EachArgs;
use super::job::Job;
use super::output;
use super::run::stop_flag_of;
use super::shard;
use crate::exit::{Ended, Failure};
use crate::queue_worker::{self, Joining, Step};
use crate::queueing::connect;
use crate::sharding::{absolute, check_kind, check_writable, enter, failure, runner};
use ioloom_shard::plan::Plan;

/// Runs shards of the queue that the flags name.
pub(super) fn run(args: &EachArgs, job: &Job) -> Ended {
    let mut args = shard::absolute_paths(args)?;
    let (Some(url), Some(plan)) = (args.sharding.queue.clone(), args.sharding.manifest.clone())
    else {
        return Err(Failure::usage("--queue needs --manifest and --part"));
    };
    let plan = Plan::read(&absolute(plan)?).map_err(failure)?;
    check_kind(&plan, false)?;
    // Before the directory changes: credentials are files.
    let queue = connect(&url)?;
    enter(&plan)?;
    if let Some(dir) = &args.sharding.part {
        check_writable(dir)?;
    }
    let stop = stop_flag_of(&args, job)?;
    let joining = Joining {
        command: "each",
        by: runner(args.sharding.worker.clone()),
        work: shard::work(&args, job).words(),
        stop: stop.clone(),
        json: args.json,
        quiet: args.quiet,
    };
    // Results of shards are not printed; a worker says at the end what it did.
    args.quiet = true;
    queue_worker::run(&queue, &plan, joining, |entry| {
        let names = plan.names(entry).map_err(failure)?;
        Ok(match shard::one(&args, job, &plan, (entry, names), &stop)? {
            shard::Ran::Interrupted(_) => Step::Interrupted,
            shard::Ran::Part { part, outcome, .. } => {
                if let Some(outcome) = &outcome {
                    output::print_errors(outcome);
                }
                Step::Part(part)
            }
        })
    })
}
