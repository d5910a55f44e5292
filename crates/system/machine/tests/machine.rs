//! Machine properties from synthetic trees, from captured trees if present, and from this machine.

// Tests print what they skipped.
#![allow(clippy::print_stdout)]

use ioloom_machine::{Probe, facts, topology, usable};
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
    assert!(facts.limits.contains(&pair("memory mappings per process", "65530")));
}

#[test]
fn file_systems_with_their_own_numbers_are_found_by_the_name_of_a_mapped_device() {
    let temp = tree(&[
        ("proc/self/mountinfo", "28 1 0:44 / /home rw - btrfs /dev/mapper/luks-home rw\n"),
        ("sys/block/dm-0/dev", "253:0\n"),
        ("sys/block/dm-0/dm/name", "luks-root\n"),
        ("sys/block/dm-1/dev", "253:1\n"),
        ("sys/block/dm-1/dm/name", "luks-home\n"),
    ]);
    let devices = facts(temp.path(), &[]).devices;
    let mounts: Vec<_> = devices.iter().map(|d| (d.name.as_str(), d.mounts.as_slice())).collect();
    let home = [("/home".to_owned(), "btrfs".to_owned())];
    assert_eq!(mounts, [("dm-0", &[][..]), ("dm-1", &home[..])]);
}

#[test]
fn an_empty_tree_gives_no_facts() {
    let temp = tempfile::tempdir().unwrap();
    let empty = facts(temp.path(), &[]);
    let fingerprint = empty.fingerprint.clone();
    assert_eq!(empty, MachineFacts { fingerprint, cpus_usable: 1, ..MachineFacts::default() });
    let absent = facts(&temp.path().join("no"), &[]);
    assert_eq!(absent.fingerprint, empty.fingerprint);
}

#[test]
fn only_relevant_facts_change_the_fingerprint() {
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
fn other_architectures_have_other_keys() {
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
    // Uses taskset on another process as the oracle: one allowed processor must be reported as one.
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
            println!("skipped: this process is not allowed to use processor 0");
        }
        Ok(output) => assert!(output.status.success(), "{output:?}"),
        Err(e) => println!("skipped: taskset: {e}"),
    }
}

/// Unpacks a captured /sys tree, stored as one file of `PATH=TEXT` lines.
fn captured(name: &str) -> tempfile::TempDir {
    let text = match name {
        "laptop" => include_str!("trees/four-cores-eight-threads.txt"),
        _ => include_str!("trees/two-cores-no-smt.txt"),
    };
    let files: Vec<(&str, &str)> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_once('=').unwrap())
        .collect();
    tree(&files)
}

#[test]
fn captured_machines_are_read() {
    let laptop = facts(captured("laptop").path(), &[]);
    assert_eq!((laptop.cpus_online, laptop.threads_per_core), (8, Some(2)));
    let vm = facts(captured("vm").path(), &[]);
    assert_eq!((vm.cpus_online, vm.threads_per_core), (2, Some(1)));
    assert_ne!(vm.fingerprint, laptop.fingerprint);
}

#[test]
fn the_published_processor_has_all_siblings_and_caches() {
    let found = topology(captured("laptop").path());
    let pairs = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]];
    assert_eq!(found.smt.siblings, pairs);
    assert_eq!(found.cores(), pairs);
    assert_eq!((found.smt.state.as_str(), found.smt.control.as_deref()), ("active", Some("on")));
    assert!(found.smt.sentence.ends_with("0,4  1,5  2,6  3,7"), "{}", found.smt.sentence);
    // From the published study: size, ways, sets, line size and instances of each kind.
    for (level, kind, bytes, ways, sets, instances) in [
        (1, "data", 48 << 10, 12, 64, 4),
        (1, "instruction", 32 << 10, 8, 64, 4),
        (2, "unified", 512 << 10, 8, 1024, 4),
        (3, "unified", 6 << 20, 12, 8192, 1),
    ] {
        let of: Vec<_> =
            found.caches.iter().filter(|c| c.level == level && c.kind == kind).collect();
        assert_eq!(of.len(), instances, "L{level} {kind}");
        for (i, cache) in of.iter().enumerate() {
            assert_eq!(cache.bytes, bytes);
            assert_eq!(
                (cache.ways, cache.sets, cache.line_bytes),
                (Some(ways), Some(sets), Some(64))
            );
            assert_eq!(cache.adds_up, Some(true));
            assert_eq!(cache.id, Some(i as u32));
            let shared = if level == 3 { (0..8).collect() } else { pairs[i].clone() };
            assert_eq!(cache.shared, shared);
        }
    }
    // Totals printed by lscpu.
    let total = |level, kind: &str| -> u64 {
        found.caches.iter().filter(|c| c.level == level && c.kind == kind).map(|c| c.bytes).sum()
    };
    assert_eq!((total(1, "data"), total(1, "instruction")), (192 << 10, 128 << 10));
    assert_eq!((total(2, "unified"), total(3, "unified")), (2 << 20, 6 << 20));
    let of_cpu_7: Vec<u64> = found.data_caches_of(7).iter().map(|c| c.bytes >> 10).collect();
    assert_eq!(of_cpu_7, [48, 512, 6144]);
    assert!(found.cpuid.is_none() && found.cpus.iter().all(|c| c.allowed.is_none()));
}

#[test]
fn a_machine_without_smt_is_reported() {
    let found = topology(captured("vm").path());
    assert!(found.smt.siblings.is_empty());
    assert_eq!(found.smt.sentence, "no SMT visible: one thread per core (kernel: notsupported)");
    let l3: Vec<_> = found.caches.iter().filter(|c| c.level == 3).collect();
    assert_eq!((l3.len(), l3[0].bytes, l3[0].shared.clone()), (1, 32 << 20, vec![0, 1]));
}

const CPU: &str = "sys/devices/system/cpu";

#[test]
fn offline_processors_are_named() {
    let temp = captured("laptop");
    let root = temp.path().join(CPU);
    std::fs::write(root.join("online"), "0-2,4-6\n").unwrap();
    for cpu in [3, 7] {
        std::fs::remove_dir_all(root.join(format!("cpu{cpu}/topology"))).unwrap();
        std::fs::remove_dir_all(root.join(format!("cpu{cpu}/cache"))).unwrap();
    }
    let found = topology(temp.path());
    assert_eq!(found.cpus.len(), 8);
    assert!(!found.cpus[3].online && !found.cpus[7].online && found.cpus[4].online);
    assert_eq!(found.cores().len(), 3);
    let said = "cores and caches of offline processors: 3,7";
    assert!(found.unknown.iter().any(|u| u == said), "{:?}", found.unknown);
}

#[test]
fn one_processor_and_a_hidden_tree_are_reported() {
    let one = topology(
        tree(&[
            (&format!("{CPU}/online"), "0\n"),
            (&format!("{CPU}/cpu0/topology/core_cpus_list"), "0\n"),
            (&format!("{CPU}/cpu0/topology/core_id"), "0\n"),
        ])
        .path(),
    );
    assert_eq!((one.cpus.len(), one.cores()), (1, vec![vec![0]]));
    assert_eq!(one.smt.state, "none");
    assert!(one.unknown.iter().any(|u| u.starts_with("caches:")), "{:?}", one.unknown);
    let hidden = topology(tree(&[("proc/self/status", "Name:\tx\n")]).path());
    assert_eq!((hidden.cpus.len(), hidden.smt.state.as_str()), (0, "unknown"));
    assert!(hidden.unknown.iter().any(|u| u.starts_with("processors:")));
    let silent = topology(tree(&[(&format!("{CPU}/cpu0/uevent"), "")]).path());
    assert_eq!((silent.cpus.len(), silent.cores().len()), (1, 0));
}

#[test]
fn a_cache_whose_shape_contradicts_its_size_is_named() {
    let temp = captured("vm");
    std::fs::write(temp.path().join(CPU).join("cpu0/cache/index0/size"), "64K\n").unwrap();
    let found = topology(temp.path());
    assert!(found.unknown.iter().any(|u| u.contains("L1 data")), "{:?}", found.unknown);
}

#[test]
fn settings_and_limits_are_read_with_their_meaning() {
    let found = topology(
        tree(&[
            ("proc/sys/vm/dirty_background_ratio", "10\n"),
            ("proc/sys/vm/dirty_expire_centisecs", "3000\n"),
            ("proc/vmstat", "nr_dirty_threshold 512\nnr_dirty_background_threshold 256\n"),
            ("proc/self/smaps", "55-56 r--p\nKernelPageSize:       16 kB\n"),
            ("proc/self/cgroup", "2:cpu:/a\n1:memory:/a\n0::/b\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n"),
            ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/b/memory.high", "max\n"),
            ("sys/fs/cgroup/b/cpu.max", "max 100000\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("proc/pressure/cpu", "some avg10=12.50 avg60=1 avg300=0 total=5\n"),
        ])
        .path(),
    );
    let value = |list: &[ioloom_model::topology::Setting], name: &str| {
        list.iter().find(|s| s.name == name).map(|s| s.value.clone())
    };
    assert_eq!(value(&found.dirty, "dirty_background_ratio").as_deref(), Some("10"));
    assert!(found.dirty[0].meaning.contains("available memory"));
    assert_eq!(value(&found.dirty, "nr_dirty_threshold").as_deref(), Some("8 MiB"));
    assert_eq!(value(&found.control_groups, "processor time").as_deref(), Some("1.50 processors"));
    let limit = value(&found.control_groups, "memory.limit_in_bytes");
    assert_eq!((limit.as_deref(), found.control_groups.len()), (Some("1073741824"), 2));
    assert_eq!(value(&found.memory, "transparent huge pages").as_deref(), Some("madvise"));
    assert_eq!(value(&found.neighbours, "pressure cpu").as_deref(), Some("12.50 %"));
}

#[test]
fn the_smallest_limit_of_all_groups_above_is_reported() {
    let limits = |files: &[(&str, &str)]| -> Vec<(String, String)> {
        let found = topology(tree(files).path());
        found.control_groups.into_iter().map(|limit| (limit.name, limit.value)).collect()
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let two = limits(&[
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/a/b/memory.max", "9000\n"),
        ("sys/fs/cgroup/a/memory.max", "10000\n"),
        ("sys/fs/cgroup/a/b/io.max", "8:0 rbps=500 wbps=max riops=max wiops=7\n"),
        ("sys/fs/cgroup/a/io.max", "8:0 rbps=400 wbps=max riops=9 wiops=max\n9:1 wiops=max\n"),
        ("sys/fs/cgroup/a/pids.max", "max\n"),
    ]);
    let expected = [
        pair("processor time", "0.50 processors"),
        pair("memory.max", "9000"),
        pair("io.max", "8:0 rbps=400 riops=9 wiops=7"),
    ];
    assert_eq!(two, expected);
    let one = limits(&[
        ("proc/self/cgroup", "3:pids:/a/b\n2:cpu,cpuacct:/a/b\n1:memory:/a/b\n"),
        ("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "150000\n"),
        ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "4096\n"),
        ("sys/fs/cgroup/pids/a/b/pids.max", "max\n"),
        ("sys/fs/cgroup/pids/pids.max", "12\n"),
    ]);
    let expected = [
        pair("pids.max", "12"),
        pair("processor time", "1.50 processors"),
        pair("memory.limit_in_bytes", "4096"),
    ];
    assert_eq!(one, expected);
    let both = limits(&[
        ("proc/self/cgroup", "5:blkio:/a/b\n0::/c\n"),
        ("sys/fs/cgroup/blkio/a/b/blkio.throttle.read_bps_device", "8:0 500\n"),
        ("sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device", "8:0 400\n8:16 7\n"),
        ("sys/fs/cgroup/blkio/a/blkio.throttle.write_iops_device", "8:0 9\n"),
        ("sys/fs/cgroup/unified/c/memory.max", "4096\n"),
    ]);
    let expected =
        [pair("blkio.throttle", "8:0 rbps=400 wiops=9; 8:16 rbps=7"), pair("memory.max", "4096")];
    assert_eq!(both, expected);
}

#[test]
fn no_limit_is_reported_only_if_a_group_was_read() {
    let groups = ("proc/self/cgroup", "0::/a\n");
    for (files, is_read) in [
        (vec![], false),
        (vec![groups], false),
        (vec![groups, ("sys/fs/cgroup/a/memory.max", "max\n")], true),
        (vec![groups, ("sys/fs/cgroup/cgroup.controllers", "\n")], true),
    ] {
        let found = topology(tree(&files).path());
        let names: Vec<&str> = found.control_groups.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names == ["limits"], is_read, "{files:?}: {names:?}");
        let unknown = found.unknown.iter().any(|u| u.starts_with("limits of control groups"));
        assert_eq!(unknown, !is_read, "{files:?}");
    }
}

#[test]
fn limits_of_control_groups_reduce_the_available_memory() {
    let mut files = vec![
        ("proc/meminfo", "MemTotal: 16000000 kB\nMemAvailable: 9000000 kB\n"),
        ("proc/self/cgroup", "0::/a\n"),
    ];
    assert_eq!(facts(tree(&files).path(), &[]).memory_available_bytes, Some(9_000_000 << 10));
    files.push(("sys/fs/cgroup/a/memory.max", "1073741824\n"));
    files.push(("sys/fs/cgroup/a/memory.current", "73741824\n"));
    assert_eq!(facts(tree(&files).path(), &[]).memory_available_bytes, Some(1_000_000_000));
}

#[test]
fn this_machine_has_processors_that_are_allowed() {
    let found = topology(Path::new("/"));
    let allowed = found.cpus.iter().filter(|c| c.allowed == Some(true)).count();
    if found.cpus.is_empty() {
        println!("skipped: /sys is hidden here");
        return;
    }
    assert!(allowed >= 1 && allowed <= found.cpus.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]
    #[test]
    fn no_text_panics(text in "(?s).{0,60}", which in 0usize..FILES.len()) {
        let temp = tree(&FILES);
        std::fs::write(temp.path().join(FILES[which].0), text).unwrap();
        facts(temp.path(), &[]);
        topology(temp.path());
    }
}
