//! Facts from trees made here, from captured ones where present, and from this machine.

// Tests say on standard output what they could not try.
#![allow(clippy::print_stdout)]

use ioloom_machine::{Probe, facts, usable};
use ioloom_model::MachineFacts;
use proptest::prelude::*;
use std::path::Path;

fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = temp.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    temp
}

const FILES: [(&str, &str); 27] = [
    ("proc/sys/kernel/ostype", "Linux\n"),
    ("proc/sys/kernel/osrelease", "6.1.0-9-amd64\n"),
    ("proc/cpuinfo", "processor\t: 0\nmodel name\t: Fast CPU 9\nflags\t\t: fpu hypervisor\n"),
    ("proc/meminfo", "MemTotal:       16000000 kB\nMemAvailable:    9000000 kB\n"),
    ("proc/self/status", "Name:\tx\nCapEff:\t0000000000200000\n"),
    ("proc/self/smaps", "55-56 r--p\nKernelPageSize:       16 kB\n"),
    (
        "proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n\
         Max open files            1024                 20000                files     \n\
         Max locked memory         8388608              8388608              bytes     \n",
    ),
    (
        "proc/self/mountinfo",
        "27 1 8:1 / / rw - ext4 /dev/sda1 rw\n28 27 0:44 / /home rw - btrfs /dev/sda2 rw\n\
         29 27 7:3 / /img rw - xfs /dev/loop3 rw\n30 27 8:1 /b /bind\\040me rw - ext4 /dev/sda1 rw\n",
    ),
    ("proc/sys/vm/max_map_count", "65530\n"),
    ("sys/devices/system/cpu/online", "0-7\n"),
    ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n"),
    ("sys/devices/system/cpu/cpu5/topology/core_cpus_list", "5\n"),
    ("sys/devices/system/cpu/cpufreq/policy", ""),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/block/sda/size", "2048\n"),
    ("sys/block/sda/dev", "8:0\n"),
    ("sys/block/sda/queue/rotational", "1\n"),
    ("sys/block/sda/queue/scheduler", "none [mq-deadline] kyber\n"),
    ("sys/block/sda/queue/nr_requests", "256\n"),
    ("sys/block/sda/queue/read_ahead_kb", "128\n"),
    ("sys/block/sda/sda1/dev", "8:1\n"),
    ("sys/block/sda/sda1/partition", "1\n"),
    ("sys/block/sda/sda2/dev", "8:2\n"),
    ("sys/block/sda/sda2/partition", "2\n"),
    ("sys/block/loop0/size", "0\n"),
    ("sys/block/loop3/dev", "7:3\n"),
    ("sys/block/ram0/size", "8192\n"),
];

#[test]
fn a_whole_tree_gives_all_facts() {
    let temp = tree(&FILES);
    let probe: Probe<'_> = ("never tried", &|| panic!("features of a captured tree"));
    let facts = facts(temp.path(), &[probe]);
    assert_eq!(facts.kernel.as_deref(), Some("Linux 6.1.0-9-amd64"));
    assert_eq!(facts.cpu_model.as_deref(), Some("Fast CPU 9"));
    assert_eq!((facts.cpus_online, facts.cpus_usable), (8, 8));
    assert_eq!(facts.threads_per_core, Some(2));
    assert_eq!(facts.memory_bytes, Some(16_000_000 << 10));
    assert_eq!(facts.memory_available_bytes, Some(9_000_000 << 10));
    assert_eq!((facts.page_bytes, facts.virtual_machine), (16 << 10, Some(true)));
    assert_eq!(facts.clock_source.as_deref(), Some("tsc"));
    assert!(facts.privileged && facts.features.is_empty());
    let names: Vec<_> = facts.devices.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["loop3", "sda"]);
    let sda = &facts.devices[1];
    assert_eq!((sda.bytes, sda.rotational), (Some(1 << 20), Some(true)));
    assert_eq!(sda.scheduler.as_deref(), Some("mq-deadline"));
    assert_eq!((sda.queue_requests, sda.read_ahead_kib), (Some(256), Some(128)));
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(sda.mounts, [pair("/", "ext4"), pair("/bind me", "ext4"), pair("/home", "btrfs")]);
    assert_eq!(facts.devices[0].mounts, [pair("/img", "xfs")]);
    assert!(facts.limits.contains(&pair("open files", "1024 (up to 20000)")));
    assert!(facts.limits.contains(&pair("locked memory, bytes", "8388608")));
    assert!(facts.limits.contains(&pair("mappings of a process", "65530")));
}

#[test]
fn an_empty_tree_gives_nothing_and_no_guess() {
    let temp = tempfile::tempdir().unwrap();
    let empty = facts(temp.path(), &[]);
    let fingerprint = empty.fingerprint.clone();
    assert_eq!(empty, MachineFacts { fingerprint, cpus_usable: 1, ..MachineFacts::default() });
    let absent = facts(&temp.path().join("no"), &[]);
    assert_eq!(absent.fingerprint, empty.fingerprint);
}

#[test]
fn the_fingerprint_changes_with_what_matters_only() {
    let of = |path: &str, text: &str| {
        let mut files = FILES.to_vec();
        files.retain(|(p, _)| *p != path);
        files.push((path, text));
        facts(tree(&files).path(), &[]).fingerprint
    };
    let base = facts(tree(&FILES).path(), &[]).fingerprint;
    assert!(base.len() == 12 && base.bytes().all(|b| b.is_ascii_hexdigit()), "{base}");
    assert_eq!(of("proc/meminfo", "MemTotal: 16000400 kB\nMemAvailable: 5 kB\n"), base);
    assert_eq!(of("sys/block/sda/queue/read_ahead_kb", "4096"), base);
    for (path, text) in [
        ("proc/meminfo", "MemTotal: 32000000 kB\n"),
        ("proc/sys/kernel/osrelease", "6.2.0"),
        ("proc/cpuinfo", "model name: Slow CPU\n"),
        ("sys/devices/system/cpu/online", "0-3"),
    ] {
        assert_ne!(of(path, text), base, "{path}");
    }
}

#[test]
fn other_architectures_name_themselves_otherwise() {
    let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n\nprocessor\t: 1\n";
    let facts = facts(tree(&[("proc/cpuinfo", arm)]).path(), &[]);
    assert_eq!(facts.cpu_model.as_deref(), Some("implementer 0x41 part 0xd0c"));
    assert_eq!((facts.cpus_online, facts.virtual_machine), (2, None));
}

#[test]
fn this_machine_is_read_and_features_are_tried() {
    let probes: [Probe<'_>; 2] =
        [("works", &|| Ok(())), ("fails", &|| Err("not on a Tuesday".to_owned()))];
    let facts = facts(Path::new("/"), &probes);
    assert_eq!(facts.features.len(), 2);
    assert_eq!(facts.features[0].missing, None);
    assert_eq!(facts.features[1].missing.as_deref(), Some("not on a Tuesday"));
    assert!(facts.page_bytes.is_power_of_two());
    assert!(facts.kernel.as_deref().is_some_and(|kernel| kernel.starts_with("Linux ")));
    assert!(facts.memory_bytes > facts.memory_available_bytes);
    assert!((1..=facts.cpus_online).contains(&facts.cpus_usable));
    let again = ioloom_machine::facts(Path::new("/"), &[]);
    assert_eq!(again.fingerprint, facts.fingerprint);
}

#[test]
fn usable_processors_follow_the_mask() {
    // taskset of another process is the oracle: one processor must be one.
    let me = std::env::current_exe().unwrap();
    if std::env::var_os("IOLOOM_ONE_CPU").is_some() {
        assert_eq!(usable(), 1);
        return;
    }
    let output = std::process::Command::new("taskset")
        .args(["-c", "0"])
        .arg(me)
        .args(["usable_processors_follow_the_mask", "--exact"])
        .env("IOLOOM_ONE_CPU", "1")
        .output();
    match output {
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("failed to set pid") => {
            println!("skipped: processor 0 is not ours");
        }
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(e) => println!("skipped: taskset: {e}"),
    }
}

#[test]
fn captured_machines_are_read() {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/topology-fixtures.tar.gz");
    if !archive.exists() {
        println!("skipped: no captured trees beside the repository");
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("tar")
        .args(["xzf", archive.to_str().unwrap(), "-C", temp.path().to_str().unwrap()])
        .status();
    if !status.is_ok_and(|status| status.success()) {
        println!("skipped: tar does not unpack the captured trees");
        return;
    }
    let laptop = facts(&temp.path().join("seed002-i5-1035g4"), &[]);
    assert_eq!((laptop.cpus_online, laptop.threads_per_core), (8, Some(2)));
    let vm = facts(&temp.path().join("vm-zen5-2vcpu-nosmt"), &[]);
    assert_eq!((vm.cpus_online, vm.threads_per_core), (2, Some(1)));
    assert_ne!(vm.fingerprint, laptop.fingerprint);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]
    #[test]
    fn no_text_panics(text in "(?s).{0,60}", which in 0usize..FILES.len()) {
        let temp = tree(&FILES);
        std::fs::write(temp.path().join(FILES[which].0), text).unwrap();
        facts(temp.path(), &[]);
    }
}
