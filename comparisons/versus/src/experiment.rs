//! Runs the blocks: each arm once per block, in an order drawn before the first run.

use crate::arms::{self, Arm};
use crate::cli::{Condition, Plan};
use crate::condition::Maker;
use crate::parse::{self, Job};
use crate::record::{Line, Run, Setup};
use crate::set::FileSet;
use anyhow::{Context, Result, bail};
use ioloom_sys::clock::unix_ms;
use ioloom_versus::facts::{Facts, commit};
use ioloom_versus::kept::{self, Raw, say};
use ioloom_versus::{child, order};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::time::Duration;

/// Measures a plan. Writes README.md and the raw data to the result directory.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    kept::claim(&plan.out)?;
    say(&format!("reading {} to compute the expected digest", plan.dir.display()));
    let set = FileSet::prepare(&plan.dir)?;
    let facts = Facts::of(&plan.dir);
    let (arms, refused) = arms::all(plan, &set, facts.cores)?;
    for (name, reason) in &refused {
        say(&format!("{name} is left out: {reason}"));
    }
    let medium = facts.medium.clone();
    let sample = set.sample(plan.seed, plan.sample_files);
    let maker = Maker::new(
        &set,
        &medium,
        plan.condition,
        (plan.drop_caches, plan.touch_memory_bytes),
        plan.seed,
        sample,
    );
    let job = Job::of(&set);
    if plan.rehearse {
        rehearse(&arms, job, plan.deadline)?;
    }
    let setup = setup(plan, &set, maker.name(), facts, (&arms, refused));
    let mut raw = Raw::create(&plan.out, &readme_text(&setup, plan), &Line::Setup(&setup))?;
    for (block, order) in (0u32..).zip(&setup.orders) {
        maker.before_block(block)?;
        for (position, index) in (0u32..).zip(order) {
            let arm = &arms[*index];
            let run = one(arm, &maker, job, plan.deadline, setup.facts.cores, (block, position))?;
            say(&progress_line(&run, plan.blocks, arms.len()));
            raw.add(&Line::Run(&run))?;
        }
    }
    Ok(())
}

/// Runs every arm once, uncounted, to detect mistakes now rather than after an hour.
fn rehearse(arms: &[Arm], job: Job, deadline: Duration) -> Result<()> {
    let mut wrong = Vec::new();
    for arm in arms {
        say(&format!("rehearsal: {}", arm.facts.name));
        let finished = start(arm, deadline)?;
        let failure = finished.failure.or_else(|| parse::read(&arm.reply, &finished.stdout, job).1);
        if let Some(failure) = failure {
            wrong.push(format!("{}: {failure}", arm.facts.name));
        }
    }
    if !wrong.is_empty() {
        bail!("these arms fail, so nothing was measured:\n  {}", wrong.join("\n  "));
    }
    Ok(())
}

fn start(arm: &Arm, deadline: Duration) -> Result<child::Finished> {
    let stdin = match &arm.stdin {
        Some(list) => {
            Some(File::open(list).with_context(|| format!("cannot open {}", list.display()))?)
        }
        None => None,
    };
    child::run(&arm.argv, stdin, deadline)
}

fn one(
    arm: &Arm,
    maker: &Maker<'_>,
    job: Job,
    deadline: Duration,
    cores: u32,
    (block, position): (u32, u32),
) -> Result<Run> {
    let before = maker.before_run(&arm.argv, arm.stdin.as_ref().or(arm.list.as_ref()))?;
    let started_unix_ms = unix_ms();
    let busy_before = child::machine_busy_ns();
    let finished = start(arm, deadline)?;
    let busy_after = child::machine_busy_ns();
    let proof = maker.after_run(before);
    let (said, wrong) = match finished.failure {
        Some(failure) => (parse::Said::default(), Some(failure)),
        None => parse::read(&arm.reply, &finished.stdout, job),
    };
    let own_ns = finished.cpu_user_ns + finished.cpu_kernel_ns;
    let others_cpu = busy_before.zip(busy_after).map(|(before, after)| {
        let others_ns = after.saturating_sub(before).saturating_sub(own_ns);
        others_ns as f64 / (finished.wall_ns.max(1) as f64 * f64::from(cores))
    });
    Ok(Run {
        arm: arm.facts.name.clone(),
        block,
        position,
        started_unix_ms,
        wall_ns: finished.wall_ns,
        elapsed_ns: said.elapsed_ns,
        files: said.files,
        bytes: said.bytes,
        digest: said.digest,
        peak_rss_bytes: said.peak_rss_bytes,
        cpu_user_ns: finished.cpu_user_ns,
        cpu_kernel_ns: finished.cpu_kernel_ns,
        process_read_bytes: finished.read_bytes,
        others_cpu,
        proof,
        failure: wrong,
    })
}

fn progress_line(run: &Run, blocks: u32, arms: usize) -> String {
    let trouble = run.failure.as_ref().or(run.proof.doubt.as_ref());
    format!(
        "block {}/{blocks} run {}/{arms} {}: {:.3} s{}",
        run.block + 1,
        run.position + 1,
        run.arm,
        run.wall_ns as f64 / 1e9,
        trouble.map_or(String::new(), |t| format!(" (does not count: {t})")),
    )
}

fn setup(
    plan: &Plan,
    set: &FileSet,
    made_by: &str,
    facts: Facts,
    (arms, refused): (&[Arm], BTreeMap<String, String>),
) -> Setup {
    Setup {
        schema: 1,
        facts,
        commit: plan.commit.clone().unwrap_or_else(commit),
        condition: plan.condition,
        condition_made_by: made_by.to_owned(),
        input: plan.input,
        blocks: plan.blocks,
        seed: plan.seed,
        files: set.totals.files,
        bytes: set.totals.bytes,
        digest_sum: set.totals.hex(),
        digest_combined: set.combined.clone(),
        arms: arms.iter().map(|a| a.facts.clone()).collect(),
        refused,
        orders: order::blocks(plan.seed, plan.blocks, arms.len()),
    }
}

fn readme_text(setup: &Setup, plan: &Plan) -> String {
    let condition = match (plan.condition, plan.drop_caches) {
        (Condition::Cold, true) => "cold: the caches of the machine are dropped before each run",
        (Condition::Cold, false) => {
            "cold data by fadvise before each run; names and inodes stay in memory"
        }
        (Condition::Warm, true) => {
            "warm: before each block the caches of the machine dropped and every file read, in a \
             random order"
        }
        (Condition::Warm, false) => "warm: every file is read before each block, in a random order",
    };
    let mut text = format!(
        "# ioloom and its peers\n\n\
         Command:\n\n```sh\n{}\n```\n\n\
         - commit: {}\n{}- files: {} with {} bytes on {}\n- condition: {condition}\n\
         - blocks: {}, seed {}\n- digest of the set: {} (sum), {} (sorted lines)\n\n",
        kept::command(),
        setup.commit,
        setup.facts.lines(),
        setup.files,
        setup.bytes,
        setup.facts.medium.words(),
        setup.blocks,
        setup.seed,
        setup.digest_sum,
        setup.digest_combined,
    );
    text.push_str(
        "`raw.jsonl` holds the setup and one line per run, in the order in which they ran; \
         `summary.md` is made from it alone by `versus --from .`. What is fair in this comparison \
         and what is not is explained in `comparisons/README.md`.\n\n## Arms\n\n\
         | arm | version | program (XXH3-64) | command |\n|---|---|---|---|\n",
    );
    for arm in &setup.arms {
        let command = arm.command.join(" ").replace('|', "\\|");
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | `{command}` |",
            arm.name, arm.version, arm.program_xxh3
        );
    }
    text
}
