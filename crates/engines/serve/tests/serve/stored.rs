//! Restarts: every acknowledged order survives, with every model and sharing strategy.

use crate::bench::{Bench, Client, config, every_model, is_store_possible, sharings};
use ioloom_serve::{
    Durability, Model, ServeError, Server, Sharing, StoreKind, detect_store, store_refusal,
};
use ioloom_testbed::in_memory;
use tempfile::TempDir;

#[test]
fn orders_and_answers_survive_a_stop() {
    every_model(|model| {
        for durability in [Durability::Os, Durability::Group, Durability::Each] {
            for sharing in sharings(model, durability) {
                let dir = in_memory();
                let change = |config: &mut ioloom_serve::ServeOptions| {
                    (config.durability, config.sharing) = (durability, sharing);
                };
                let bench = Bench::in_dir(dir, model, change);
                let mut client = Client::new(bench.address);
                client.send("HELLO stock/2 client=a\n1 BUY 1 10\n2 BUY 3 9\n3 SELL 2 1\n");
                let received = [client.line(), client.line(), client.line(), client.line()];
                let reused = "1 ERR number-reused\n";
                assert_eq!(client.request("1 SELL 2 5"), reused, "{sharing}");
                let (dir, _) = bench.end();
                // The stock file alone would suffice, so reset it to simulate a crash: the stocks
                // must come from the store.
                std::fs::write(dir.path().join("stock.txt"), crate::bench::STOCKS).unwrap();
                let refused = Server::start(&{
                    let mut config = config(&dir, model);
                    change(&mut config);
                    config
                });
                assert!(
                    matches!(refused, Err(ServeError::Refused(_))),
                    "an old file must be detected"
                );
                std::fs::write(dir.path().join("stock.txt"), "1 990 10\n2 1001 20\n3 5 30\n")
                    .unwrap();
                let bench = Bench::in_dir(dir, model, change);
                let mut client = Client::new(bench.address);
                client.send("HELLO stock/2 client=a\n1 BUY 1 10\n2 BUY 3 9\n3 SELL 2 1\n4 SHOW\n");
                for line in &received {
                    assert_eq!(client.line(), *line, "{model} {sharing} {durability}");
                }
                assert_eq!(client.line(), "4 STOCKS 3 3\n", "{model} {sharing} {durability}");
                assert_eq!(client.line(), "1 990 10\n");
                assert_eq!([client.line(), client.line()], ["2 1001 20\n", "3 5 30\n"]);
                assert_eq!(client.request("1 SELL 2 5"), reused, "{sharing} after a restart");
            }
        }
    });
}

/// On a real disk, every store retains acknowledged orders, repeats earlier answers, and refuses a second server.
#[test]
fn every_store_keeps_orders_and_answers() {
    std::thread::scope(|scope| {
        for kind in StoreKind::ALL {
            scope.spawn(|| {
                for durability in [Durability::Os, Durability::Group, Durability::Each] {
                    keeps_orders_and_answers(*kind, durability);
                }
            });
        }
    });
}

fn keeps_orders_and_answers(kind: StoreKind, durability: Durability) {
    let mut dir = TempDir::new().unwrap();
    if store_refusal(kind, durability).is_some() || !is_store_possible(kind, &dir) {
        return;
    }
    let change = |config: &mut ioloom_serve::ServeOptions| {
        config.store.kind = kind;
        (config.durability, config.sharing) = (durability, Sharing::Stock);
    };
    let orders = "HELLO stock/2 client=a\n1 BUY 1 10\n2 BUY 3 9\n3 SELL 2 1\n4 BUY 9 1\n";
    let mut received: Vec<String> = Vec::new();
    // Repeated stops and starts do not change anything.
    for round in 0..3 {
        let bench = Bench::in_dir(dir, Model::Epoll, change);
        if round == 0 {
            // Once is enough: a second server waits for the first for a while before it reports
            // this.
            let text = error(start(&bench.dir, change));
            assert!(text.contains("lock"), "{kind}: {text}");
        }
        let mut client = Client::new(bench.address);
        client.send(orders);
        let now: Vec<String> = (0..5).map(|_| client.line()).collect();
        if round == 0 {
            received.clone_from(&now);
        }
        assert_eq!(now, received, "{kind} {durability} round {round}");
        client.send(format!("{} SELL 3 1\n", 10 + round));
        let expected = format!("{} OK {} {}\n", 10 + round, 6 + round, 5 + round);
        assert_eq!(client.line(), expected, "{kind} {durability}");
        dir = bench.end().0;
    }
    let path = dir.path().join("store");
    let found = detect_store(&path).unwrap();
    let raw = !matches!(kind, StoreKind::Sqlite | StoreKind::Redb | StoreKind::Fjall);
    assert_eq!(found, Some(if raw { StoreKind::Log } else { kind }), "{}", path.display());
    // The file written last matches the store; any other file does not.
    std::fs::write(dir.path().join("stock.txt"), "1 5 10\n").unwrap();
    let refused = start(&dir, change);
    assert!(matches!(refused, Err(ServeError::Refused(_))), "{kind} {durability}");
}

#[test]
fn other_files_are_left_alone() {
    for kind in StoreKind::ALL {
        let dir = TempDir::new().unwrap();
        let contents = "this is not a store, but it is long enough\n".repeat(400);
        std::fs::write(dir.path().join("text"), &contents).unwrap();
        let text = error(start(&dir, |config| {
            (config.store.kind, config.store.path) = (*kind, dir.path().join("text"));
        }));
        assert!(text.contains("--store-path"), "{kind}: {text}");
        assert_eq!(detect_store(&dir.path().join("text")).unwrap(), None);
        assert_eq!(detect_store(&dir.path().join("nothing")).unwrap(), None);
        assert_eq!(std::fs::read_to_string(dir.path().join("text")).unwrap(), contents, "{kind}");
    }
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("other")).unwrap();
    std::fs::write(dir.path().join("other/file"), "x").unwrap();
    let text = error(start(&dir, |config| {
        (config.store.kind, config.store.path) = (StoreKind::Fjall, dir.path().join("other"));
    }));
    assert!(text.contains("something else"), "{text}");
    for kind in [StoreKind::Redb, StoreKind::LogDsync] {
        let text = error(start(&dir, |config| {
            (config.store.kind, config.durability) = (kind, Durability::Os);
        }));
        assert!(text.contains("group or each"), "{text}");
    }
}

fn start(
    dir: &TempDir,
    change: impl FnOnce(&mut ioloom_serve::ServeOptions),
) -> Result<Server, ServeError> {
    let mut config = config(dir, Model::Epoll);
    config.durability = Durability::Group;
    change(&mut config);
    Server::start(&config)
}

fn error(started: Result<Server, ServeError>) -> String {
    started.err().expect("the store must be refused").to_string()
}

#[test]
fn a_store_of_another_type_is_not_to_be_removed() {
    let dir = TempDir::new().unwrap();
    let log = |config: &mut ioloom_serve::ServeOptions| config.store.kind = StoreKind::Log;
    drop(start(&dir, log).unwrap());
    for kind in [StoreKind::Redb, StoreKind::Sqlite, StoreKind::Fjall] {
        let text = error(start(&dir, |config| config.store.kind = kind));
        assert!(text.contains("it is a store of type log; omit --store"), "{kind}: {text}");
    }
    drop(start(&dir, log).unwrap());
}

#[test]
fn unsupported_options_are_refused_with_advice() {
    let dir = TempDir::new().unwrap();
    let text = error(start(&dir, |config| config.sharing = Sharing::Atomic));
    assert!(text.contains("durability none"), "{text}");
    let text = error(start(&dir, |config| config.stock = dir.path().join("none")));
    assert!(text.contains("--stock"), "{text}");
    std::fs::write(dir.path().join("bad"), "1 2\n").unwrap();
    let text = error(start(&dir, |config| config.stock = dir.path().join("bad")));
    assert!(text.contains("line 1"), "{text}");
    std::fs::write(
        dir.path().join("text"),
        "this is not a store, but it is long enough\n".repeat(40),
    )
    .unwrap();
    let text = error(start(&dir, |config| config.store.path = dir.path().join("text")));
    assert!(text.contains("--store-path"), "{text}");
    let first = start(&dir, |_| {}).unwrap();
    let text = error(start(&dir, |config| config.listen = first.addresses()[0]));
    assert!(text.contains("--listen"), "{text}");
    // A second server must not open the first server's store.
    let text = error(start(&dir, |_| {}));
    assert!(text.contains("locked"), "{text}");
}
