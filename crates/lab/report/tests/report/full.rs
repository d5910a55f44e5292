//! A full session of the built-in study with synthetic numbers: it has as many arms, runs and threads as
//! a real one, so that tests can limit the size of its page.

use crate::records;
use ioloom_model::record::{RECORD_SCHEMA, RunKey};
use ioloom_model::study::{MediaUse, Mode, fill};
use ioloom_model::{Doubt, Outcome, Plan, RunRecord, StudySpec};
use ioloom_report::Input;

const PIPELINE: &str = ioloom_studies::ALL[0].study;

/// Returns numbers that differ between runs in every digit, like measured ones.
fn jitter(state: &mut u64, value: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let part = (*state >> 33) as f64 / (1u64 << 31) as f64;
    (value as f64 * (0.9 + 0.2 * part)) as u64
}

pub(crate) fn full(media: &[&str]) -> Input {
    let study: StudySpec = toml::from_str(PIPELINE).expect("the built-in study");
    let mut records: Vec<RunRecord> = Vec::new();
    let mut state = 1;
    for medium in media {
        for experiment in &study.experiments {
            if experiment.media == MediaUse::LadderOfSeveral && media.len() == 1 {
                continue;
            }
            if *medium != "work" && !experiment.name.contains("threads") {
                continue;
            }
            for set in &experiment.sets {
                for condition in &experiment.conditions {
                    for compute in &experiment.computes {
                        for arm in &experiment.arms {
                            for factors in arm.points() {
                                let name = fill(&arm.name, &factors).expect("a name");
                                let plan = fill(&arm.plan, &factors).expect("a plan");
                                let plan: Plan = plan.parse().expect("a plan");
                                let own = arm.set.as_ref().map(|s| fill(s, &factors));
                                let own = own.map_or(set.clone(), |s| s.expect("a set"));
                                for block in 0..experiment.blocks_full {
                                    let position = records.len() as u32;
                                    let key = RunKey {
                                        study: study.name.clone(),
                                        session: "full".to_owned(),
                                        experiment: experiment.name.clone(),
                                        arm: name.clone(),
                                        set: own.clone(),
                                        medium: (*medium).to_owned(),
                                        condition: *condition,
                                        compute: compute.clone(),
                                        block,
                                        position,
                                        factors: factors.clone(),
                                    };
                                    records.push(record(key, plan.complete(2), &mut state));
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    Input { study, mode: Mode::Full, records, session: "full".to_owned(), ..records::sample(1) }
}

fn record(key: RunKey, plan: Plan, state: &mut u64) -> RunRecord {
    let set = records::set(&key.set, 10_000, 5_120.0, &key.medium);
    let mut measured = records::measured(&plan, &set, jitter(state, 900_000_000), 0.8);
    for calls in measured.calls.values_mut() {
        for value in [
            &mut calls.total_ns,
            &mut calls.min_ns,
            &mut calls.p50_ns,
            &mut calls.p90_ns,
            &mut calls.p99_ns,
            &mut calls.max_ns,
        ] {
            *value = jitter(state, *value);
        }
    }
    for thread in &mut measured.threads {
        thread.on_cpu_ns = jitter(state, thread.on_cpu_ns);
        thread.io_ns = jitter(state, thread.io_ns);
    }
    measured.cpu_user_ns = jitter(state, measured.cpu_user_ns);
    measured.cpu_kernel_ns = jitter(state, measured.cpu_kernel_ns);
    measured.memory_peak_bytes = jitter(state, measured.memory_peak_bytes);
    measured.faults_minor = jitter(state, measured.faults_minor);
    RunRecord {
        schema: RECORD_SCHEMA,
        plan: plan.into(),
        set,
        proof: Some(records::proof(key.condition, key.block)),
        outcome: Outcome::Done { measured: Box::new(measured) },
        doubts: if key.block == 3 { vec![Doubt::NoisyNeighbour] } else { Vec::new() },
        machine: "0123456789abcdef".to_owned(),
        version: "0.1.0".to_owned(),
        started_unix_ms: 1_700_000_000_000 + u64::from(key.position) * 700,
        seed: 1,
        key,
    }
}
