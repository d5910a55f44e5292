//! Lost data is never dropped silently: what was acknowledged is there, or the server refuses to
//! start, or it reports what is missing.

use crate::bench::{Bench, Client, STOCKS, config, dir_for, is_store_possible, used_bytes};
use ioloom_serve::{Durability, Model, ServeOptions, Server, StoreKind, store_refusal};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

const ORDERS: usize = 40;

fn start(dir: &TempDir, change: impl FnOnce(&mut ServeOptions)) -> Result<Server, String> {
    let mut config = config(dir, Model::Epoll);
    change(&mut config);
    Server::start(&config).map_err(|error| error.to_string())
}

/// Each store and durability that can be combined here.
fn each_store(test: impl Fn(StoreKind, Durability)) {
    let is_possible = |kind: &StoreKind| is_store_possible(*kind, &dir_for(*kind));
    for kind in StoreKind::ALL.iter().copied().filter(is_possible) {
        for durability in [Durability::Os, Durability::Group, Durability::Each] {
            if store_refusal(kind, durability).is_none() {
                test(kind, durability);
            }
        }
    }
}

/// Leaves a store as a killed server does, with `ORDERS` acknowledged orders.
fn killed(kind: StoreKind, durability: Durability) -> TempDir {
    let bench = Bench::in_dir(dir_for(kind), Model::Epoll, |config| {
        (config.store.kind, config.durability) = (kind, durability);
    });
    let mut client = Client::new(bench.address);
    client.send("HELLO stock/2 client=a\n");
    client.line();
    for number in 1..=ORDERS {
        client.send(format!("{number} BUY 1 1\n"));
        assert_eq!(client.line(), format!("{number} OK {} {number}\n", 1000 - number));
    }
    let copy = dir_for(kind);
    let mut command = Command::new("cp");
    command.args(["-rT", "--sparse=auto"]).arg(bench.dir.path()).arg(copy.path());
    assert!(command.status().unwrap().success());
    copy
}

/// The file to which a store appends orders.
fn log_of(dir: &TempDir, kind: StoreKind) -> PathBuf {
    let name = match kind {
        StoreKind::Sqlite => "store-wal",
        StoreKind::Fjall => "store/0.jnl",
        _ => "store",
    };
    dir.path().join(name)
}

fn flip(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

/// Returns the contents of all files, to detect changes.
fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(contents(&path));
        } else {
            let bytes = fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all.sort();
    all
}

#[test]
fn a_flipped_bit_in_the_log_of_a_killed_server_is_refused_and_keeps_the_evidence() {
    each_store(|kind, durability| {
        let case = format!("{kind} {durability}");
        let dir = killed(kind, durability);
        let change = |config: &mut ServeOptions| {
            (config.store.kind, config.durability) = (kind, durability);
        };
        let log = log_of(&dir, kind);
        if kind != StoreKind::Redb {
            flip(&log, used_bytes(&log) * 7 / 10);
        } else {
            // Both copies of the header name a tree; the latest one is used.
            let store = log;
            fs::write(&store, &fs::read(&store).unwrap()[..8192]).unwrap();
        }
        let before = contents(dir.path());
        let error = start(&dir, change).err().unwrap_or_else(|| panic!("{case} is refused"));
        assert_eq!(error.lines().count(), 1, "{case}: {error}");
        assert!(contents(dir.path()) == before, "{case}: a refusal changes nothing: {error}");
        if kind == StoreKind::Redb {
            return;
        }
        assert!(error.contains("--accept-loss") && error.contains(" orders"), "{case}: {error}");
        let server = start(&dir, |config| {
            change(config);
            config.store.accept_loss = true;
        });
        let server = server.unwrap_or_else(|error| panic!("{case}: {error}"));
        let lost = ORDERS as u64 - server.seq();
        let [notice] = server.notices() else { panic!("{case}: {:?}", server.notices()) };
        assert!(lost > 0 && notice.starts_with(&format!("{lost} order")), "{case}: {notice}");
        assert!(notice.contains("store.damaged-1"), "{case}: {notice}");
        if kind != StoreKind::Fjall {
            assert!(notice.contains(" bytes after offset "), "{case}: {notice}");
        }
        drop(server);
        assert!(dir.path().join("store.damaged-1").exists(), "{case}");
        // The loss was accepted once; it is not reported again.
        let server = start(&dir, change).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert!(server.notices().is_empty(), "{case}: {:?}", server.notices());
        assert_eq!(server.seq(), ORDERS as u64 - lost, "{case}");
    });
}

/// Rewrites both slots of a mark as another boot would have left them.
fn change_boot(dir: &TempDir) {
    let path = dir.path().join("store.mark");
    let file = File::options().read(true).write(true).open(path).unwrap();
    for at in [0, 4096] {
        let mut slot = [0; 112];
        file.read_exact_at(&mut slot, at).unwrap();
        slot[16] ^= 1;
        let sum = xxhash_rust::xxh3::xxh3_64(&slot[..104]);
        slot[104..].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&slot, at).unwrap();
    }
}

#[test]
fn unsynced_orders_may_be_missing_after_another_boot_and_are_counted() {
    each_store(|kind, durability| {
        let case = format!("{kind} {durability}");
        let dir = killed(kind, durability);
        change_boot(&dir);
        if kind == StoreKind::Redb {
            return;
        }
        let log = log_of(&dir, kind);
        flip(&log, used_bytes(&log) * 7 / 10);
        let started = start(&dir, |config| {
            (config.store.kind, config.durability) = (kind, durability);
        });
        if durability != Durability::Os {
            assert!(started.err().unwrap().contains("--accept-loss"), "{case}");
            return;
        }
        let server = started.unwrap_or_else(|error| panic!("{case}: {error}"));
        let lost = ORDERS as u64 - server.seq();
        let [notice] = server.notices() else { panic!("{case}: {:?}", server.notices()) };
        assert!(lost > 0 && notice.starts_with(&format!("{lost} order")), "{case}: {notice}");
        assert!(notice.contains("restart of the system"), "{case}: {notice}");
    });
}

#[test]
fn a_store_without_its_mark_opens_and_a_mark_without_its_store_is_refused() {
    each_store(|kind, durability| {
        let case = format!("{kind} {durability}");
        let change = |config: &mut ServeOptions| {
            (config.store.kind, config.durability) = (kind, durability);
        };
        let dir = killed(kind, durability);
        fs::remove_file(dir.path().join("store.mark")).unwrap();
        let server = start(&dir, change).unwrap();
        assert_eq!((server.seq(), server.notices()), (ORDERS as u64, &[][..]), "{case}");
        drop(server);
        // Damaged beyond use.
        fs::write(dir.path().join("store.mark"), [7; 12288]).unwrap();
        let server = start(&dir, change).unwrap();
        assert_eq!((server.seq(), server.notices().len()), (ORDERS as u64, 1), "{case}");
        drop(server);
        let store = dir.path().join("store");
        if store.is_dir() { fs::remove_dir_all(store) } else { fs::remove_file(store) }.unwrap();
        let _ = fs::remove_file(dir.path().join("store-wal"));
        let error = start(&dir, change).err().unwrap();
        assert!(error.contains("does not exist: 40 orders"), "{case}: {error}");
        let server = start(&dir, |config| {
            change(config);
            config.store.accept_loss = true;
        });
        assert_eq!(server.unwrap().notices().len(), 1, "{case}");
    });
}

/// Two servers that start at the same time on a new store: one serves, the other names it.
fn race(kind: StoreKind, durability: Durability) {
    let dir = dir_for(kind);
    drop(config(&dir, Model::Epoll));
    let both = [(); 2].map(|()| {
        let stocks = dir.path().join("stock.txt");
        let mut own = config(&dir, Model::Epoll);
        (own.stock, own.store.kind, own.durability) = (stocks, kind, durability);
        own
    });
    let barrier = std::sync::Barrier::new(2);
    let started: Vec<_> = std::thread::scope(|scope| {
        let start = |own| {
            barrier.wait();
            Server::start(own).map_err(|error| error.to_string())
        };
        let threads: Vec<_> = both.iter().map(|own| scope.spawn(move || start(own))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let errors: Vec<_> = started.iter().filter_map(|started| started.as_ref().err()).collect();
    let pid = format!("(process {})", std::process::id());
    let [error] = errors[..] else { panic!("{kind}: one server starts: {errors:?}") };
    assert!(error.contains("locked by another server") && error.contains(&pid), "{kind}: {error}");
    assert!(!error.contains("remove"), "{kind}: {error}");
    drop(started);
    let server = start(&dir, |config| (config.store.kind, config.durability) = (kind, durability));
    assert_eq!(server.unwrap().is_new_store(), Some(false), "{kind}");
    let left = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter_map(|name| name.into_string().ok()).collect();
    assert!(left.iter().all(|name| !name.contains(".new")), "{kind}: {left:?}");
}

#[test]
fn of_two_first_starts_one_serves() {
    let pairs = std::env::var("IOLOOM_PAIRS").ok().and_then(|n| n.parse().ok()).unwrap_or(3);
    each_store(|kind, durability| {
        if durability == Durability::Group {
            for _ in 0..pairs {
                race(kind, durability);
            }
            println!("{kind}: {pairs} pairs");
        }
    });
}

#[test]
fn a_stock_file_has_one_server() {
    let dir = TempDir::new().unwrap();
    let first = start(&dir, |config| config.durability = Durability::Os).unwrap();
    for change in [
        (|config: &mut ServeOptions| config.durability = Durability::None) as fn(&mut _),
        |config| {
            config.durability = Durability::Group;
            config.store.path.set_file_name("other");
        },
    ] {
        let error = start(&dir, change).err().expect("the stock file is in use");
        assert!(error.contains("stock file") && error.contains("--stock"), "{error}");
        assert!(error.contains(&format!("process {}", std::process::id())), "{error}");
    }
    // The refused server leaves no store behind.
    let names = fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 4, "stock file, store, its log, and mark");
    drop(first);
    start(&dir, |config| config.durability = Durability::None).unwrap();
}

#[test]
fn a_server_without_a_store_does_not_ignore_orders_silently() {
    let dir = killed(StoreKind::Log, Durability::Os);
    let none = |config: &mut ServeOptions| config.durability = Durability::None;
    let before = contents(dir.path());
    let error = start(&dir, none).err().expect("it would serve old stocks");
    assert!(error.contains("has orders") && error.contains("--accept-loss"), "{error}");
    assert!(contents(dir.path()) == before, "a refusal changes nothing");
    let accepted = start(&dir, |config| {
        none(config);
        config.store.accept_loss = true;
    });
    assert!(accepted.unwrap().notices()[0].contains("has orders"));
    // The user replaced the stocks.
    fs::write(dir.path().join("stock.txt"), "1 7 10\n").unwrap();
    start(&dir, none).unwrap();
}

#[test]
fn a_server_without_a_store_does_not_ignore_lost_orders_or_an_unreadable_store() {
    let none = |config: &mut ServeOptions| config.durability = Durability::None;
    let begin = |config: &mut ServeOptions| {
        (config.store.kind, config.durability) = (StoreKind::Log, Durability::Os);
    };
    let new = dir_for(StoreKind::Log);
    drop(start(&new, begin).unwrap());
    let head = used_bytes(&new.path().join("store"));
    let lost = "orders are missing";
    for (case, expected) in [lost, lost, "compared"].into_iter().enumerate() {
        let dir = killed(StoreKind::Log, Durability::Os);
        let store = dir.path().join("store");
        match case {
            0 => fs::remove_file(&store).unwrap(),
            // The readable part has no orders, like the stock file.
            1 => flip(&store, head + 10),
            _ => fs::write(&store, "SQLite format 3\0 and no database").unwrap(),
        }
        let error = start(&dir, none).err().expect(expected);
        assert!(error.contains(expected) && error.contains("--accept-loss"), "{error}");
        let starts_over = error.contains("remove the store and its mark");
        assert_eq!(starts_over, expected == lost, "{error}");
        let accepted = start(&dir, |config| {
            none(config);
            config.store.accept_loss = true;
        });
        let server = accepted.unwrap();
        let [notice] = server.notices() else { panic!("{:?}", server.notices()) };
        assert!(notice.contains(expected), "{notice}");
    }
    // A directory that is not a store.
    let dir = TempDir::new().unwrap();
    fs::create_dir_all(dir.path().join("store/photos")).unwrap();
    start(&dir, none).unwrap();
}

#[test]
fn new_files_are_private() {
    each_store(|kind, durability| {
        let dir = killed(kind, durability);
        for (path, _) in contents(dir.path()) {
            let name = path.strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned();
            // Below a private directory, files have the usual mode.
            if name != "stock.txt" && !name.contains('/') {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                assert_eq!(mode, 0o600, "{kind}: {name}");
            }
        }
        let mode = fs::metadata(dir.path().join("store")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{kind}");
    });
}

#[test]
fn nothing_listens_before_the_store_is_open() {
    let dir = killed(StoreKind::Sqlite, Durability::Group);
    let log = log_of(&dir, StoreKind::Sqlite);
    flip(&log, used_bytes(&log) / 2);
    fs::write(dir.path().join("stock.txt"), STOCKS).unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let connected = scope.spawn(|| {
            let mut connected = 0;
            while !stop.load(std::sync::atomic::Ordering::SeqCst) {
                connected += usize::from(std::net::TcpStream::connect(port).is_ok());
            }
            connected
        });
        for _ in 0..20 {
            let refused = start(&dir, |config| {
                (config.durability, config.listen) = (Durability::Group, port);
            });
            assert!(refused.is_err());
        }
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(connected.join().unwrap(), 0, "a refused server accepted a connection");
    });
}
