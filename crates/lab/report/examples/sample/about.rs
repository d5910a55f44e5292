//! The machine, claims and doubts of the synthetic session.

use super::HOSTILE;
use ioloom_model::machine::{DeviceFacts, FeatureFacts};
use ioloom_model::{Doubt, MachineFacts};
use ioloom_report::{ClaimCurve, ClaimRow, DoubtRow, Verdict};

pub(crate) fn machine() -> MachineFacts {
    MachineFacts {
        fingerprint: "0123456789abcdef".to_owned(),
        kernel: Some("Linux 0.0 (synthetic)".to_owned()),
        cpu_model: Some("Synthetic Processor \"9\" <fast>".to_owned()),
        cpus_online: 2,
        cpus_usable: 2,
        threads_per_core: Some(1),
        memory_bytes: Some(24 << 30),
        memory_available_bytes: Some(22 << 30),
        page_bytes: 4096,
        virtual_machine: Some(true),
        clock_source: Some("tsc".to_owned()),
        devices: vec![DeviceFacts {
            name: "vda".to_owned(),
            bytes: Some(270 << 30),
            rotational: Some(false),
            scheduler: Some("none".to_owned()),
            queue_requests: Some(256),
            read_ahead_kib: Some(128),
            mounts: vec![("/".to_owned(), "ext4".to_owned())],
        }],
        features: vec![
            FeatureFacts { name: "io_uring".to_owned(), missing: None },
            FeatureFacts {
                name: "cachestat".to_owned(),
                missing: Some("the kernel returned ENOSYS".to_owned()),
            },
        ],
        limits: vec![("open files".to_owned(), "1024, at most 20000".to_owned())],
        privileged: false,
    }
}

pub(super) fn claims() -> Vec<ClaimRow> {
    let claim =
        |id: &str, statement: &str, published: &str, verdict, sentence: &str, effect| ClaimRow {
            id: id.to_owned(),
            same_as: None,
            statement: statement.to_owned(),
            published: published.to_owned(),
            verdict,
            sentence: sentence.to_owned(),
            effect,
            curves: Vec::new(),
            published_values: Vec::new(),
        };
    let mut ladder = claim(
        "000-P27",
        "With small files, adding threads helps a lot at first and then stops helping.",
        "4 threads 1844.82 ms, 16: 607.75 ms, 32: 542.49 ms",
        Verdict::Confirmed,
        "eight threads / one thread, 8 blocks",
        Some((3.96, 3.81, 4.12)),
    );
    ladder.curves = vec![ClaimCurve {
        place: "threads-small-files, set E, cold".to_owned(),
        axis: "n".to_owned(),
        metric: "elapsed_ns".to_owned(),
        points: vec![(1.0, 4.1e8), (2.0, 2.3e8), (4.0, 1.4e8), (8.0, 1.0e8), (16.0, 1.02e8)],
    }];
    ladder.published_values =
        [("4 threads", 1844.82), ("16 threads", 607.75), ("32 threads", 542.49)]
            .map(|(what, value)| (what.to_owned(), value, "ms".to_owned()))
            .to_vec();
    vec![
        ladder,
        claim(
            "000-P22",
            "With large files, the number of threads does not matter.",
            "9377 to 9382 ms from 1 to 16 threads",
            Verdict::Refuted,
            "32 threads / 2 threads, 8 blocks",
            Some((0.31, 0.29, 0.33)),
        ),
        claim(
            "000-P33",
            "12 hybrids with 12 compute threads beat 24 hybrids.",
            "439 ms and 524 ms",
            Verdict::Scope,
            "holds with simulated compute, not with work that needs a core",
            Some((1.08, 1.02, 1.15)),
        ),
        claim(
            "000-P47",
            "16 hybrids collapse on a million files; a division of roles does not.",
            "1 602 226 ms and 77 443 ms",
            Verdict::Undecided,
            "no stored runs (quick mode does not run them)",
            None,
        ),
        claim(
            "000-P09",
            "<b>Hostile</b> statement with \"quotes\" & an <img src=x onerror=alert(1)>.",
            "",
            Verdict::NotTestableHere,
            "needs 65 536 open files, the limit here is 20 000",
            None,
        ),
    ]
}

pub(super) fn doubts() -> Vec<DoubtRow> {
    vec![
        DoubtRow {
            doubt: Doubt::FewSamples,
            experiment: None,
            arm: None,
            detail: "8 blocks in quick mode".to_owned(),
        },
        DoubtRow {
            doubt: Doubt::Oversubscribed,
            experiment: Some("sync-or-reader".to_owned()),
            arm: Some("sync-32".to_owned()),
            detail: "32 threads on 2 cores".to_owned(),
        },
        DoubtRow {
            doubt: Doubt::Drift,
            experiment: Some("elapsed-small-files".to_owned()),
            arm: Some(HOSTILE.to_owned()),
            detail: "later blocks are slower".to_owned(),
        },
    ]
}
