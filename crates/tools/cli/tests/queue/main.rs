//! Workers that take shards from a queue, on a server of this test.

use ioloom_testbed::{Nats, ProcessOutput, Workspace};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A hang is a failure after this time.
const GUARD: Duration = Duration::from_secs(60);

/// A server and a plan of shards.
struct Scene {
    server: Nats,
    space: Workspace,
}

impl Scene {
    /// Plans shards of three files each, which are called `N` and contain `N`.
    fn new(shards: u32) -> Option<Self> {
        let server = Nats::start("")?;
        let space = Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"));
        for file in 0..shards * 3 {
            let name = format!("tree/{file:04}");
            std::fs::create_dir_all(space.at("tree")).unwrap();
            space.write(name, file.to_string());
        }
        std::fs::create_dir(space.at("parts")).unwrap();
        let scene = Self { server, space };
        scene.run(&["shard", "plan", "tree", "--shards", &shards.to_string()]).ended(0);
        Some(scene)
    }

    fn url(&self) -> String {
        self.server.queue("q")
    }

    fn run(&self, args: &[&str]) -> ProcessOutput {
        self.space.ours(args).output().unwrap().into()
    }

    fn submit(&self, more: &[&str]) -> ProcessOutput {
        let url = self.url();
        self.run(&[&["shard", "submit", "tree.shards", "--queue", &url], more].concat())
    }

    fn status(&self) -> Value {
        self.run(&["shard", "status", "--json", "--queue", &self.url()]).ended(0).json()
    }

    /// Purges the stream of leases without the program.
    fn lose_leases(&self) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        let purge = "PUB $JS.API.STREAM.PURGE.ioloom-q-work _INBOX.x 0\r\n\r\n";
        let words = format!("CONNECT {{\"verbose\":false}}\r\nSUB _INBOX.x 1\r\n{purge}");
        stream.write_all(words.as_bytes()).unwrap();
        let mut said = String::new();
        while !said.contains("\"success\":true") {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).unwrap();
            assert!(count > 0, "{said}");
            said += &String::from_utf8_lossy(&buffer[..count]);
        }
    }

    fn worker(&self, more: &[&str]) -> Command {
        let url = self.url();
        let args = ["each", "--queue", &url, "--manifest", "tree.shards", "--part", "parts"];
        let mut command = self.space.ours(&[&args[..], more].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn digest(&self, args: &[&str]) -> Value {
        self.run(args).ended(0).json()["digest"].clone()
    }

    /// Asserts that every shard counts once, the result is that of one run, and no lease is left.
    fn is_complete(&self, shards: u64) {
        let status = self.status();
        let numbers = ["done", "parked", "leases_queued"].map(|name| status[name].as_u64());
        assert_eq!(numbers, [Some(shards), Some(0), Some(0)], "{status:#}");
        let merged = self.digest(&["shard", "merge", "--json", "tree.shards", "parts"]);
        assert!(!merged.is_null());
        assert_eq!(merged, self.digest(&["each", "--json", "tree"]));
    }
}

fn ended(child: Child) -> ProcessOutput {
    child.wait_with_output().unwrap().into()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < GUARD, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn workers_share_the_shards_and_the_result_is_that_of_one_run() {
    let Some(scene) = Scene::new(12) else { return };
    let said = scene.submit(&[]).ended(0).text();
    assert_eq!(said, format!("queued 12 shards in {}\n", scene.url()));
    let said = scene.submit(&[]).ended(0).text();
    assert_eq!(said, format!("{} has all 12 shards already\n", scene.url()));
    let workers: Vec<Child> = (0..2).map(|_| scene.worker(&["--json"]).spawn().unwrap()).collect();
    let ran: Vec<Value> = workers.into_iter().map(|child| ended(child).ended(0).json()).collect();
    let sum = |name: &str| ran.iter().map(|ran| ran["queue"][name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("shards"), sum("late"), sum("failed")), (12, 0, 0));
    assert!(ran.iter().all(|ran| ran["queue"]["finished"] == true));
    scene.is_complete(12);
    let text = scene.run(&["shard", "watch", "--queue", &scene.url()]).ended(0).text();
    assert!(text.starts_with("12 of 12 shards done, 0 running\nshards      12 of 12"), "{text}");
    // A later worker finds nothing to do.
    assert!(ended(scene.worker(&[]).spawn().unwrap()).ended(0).text().contains("0 shards"));
}

#[test]
fn a_worker_that_is_killed_loses_its_shard_to_another() {
    let Some(scene) = Scene::new(3) else { return };
    scene.submit(&["--lease", "1"]).ended(0);
    let slow = scene.space.at("slow");
    scene.space.write("slow", "");
    // A command that waits while the file exists.
    let command = format!("sh -c 'while test -e {}; do sleep 0.02; done' {{}}", slow.display());
    let mut doomed = scene.worker(&["--exec", &command]).spawn().unwrap();
    wait_until("the shard begins", || scene.status()["running"] != Value::Array(Vec::new()));
    doomed.kill().unwrap();
    doomed.wait().unwrap();
    std::fs::remove_file(slow).unwrap();
    ended(scene.worker(&["--exec", &command]).spawn().unwrap()).ended(0);
    let status = scene.status();
    assert_eq!((&status["done"], &status["parked"]), (&3.into(), &0.into()));
}

#[test]
fn a_server_that_is_killed_comes_back_to_the_same_queue() {
    let Some(mut scene) = Scene::new(90) else { return };
    if !scene.server.survives_kills() {
        return;
    }
    scene.submit(&["--lease", "1"]).ended(0);
    let workers: Vec<Child> = (0..2).map(|_| scene.worker(&[]).spawn().unwrap()).collect();
    // A worker that starts while the server is down ends with an error.
    wait_until("both have joined", || scene.status()["workers"].as_array().unwrap().len() == 2);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(60));
        scene.server.kill();
        scene.server.start_again();
    }
    for worker in workers {
        ended(worker).ended(0);
    }
    scene.is_complete(90);
}

#[test]
fn an_interrupted_worker_gives_its_shard_back() {
    let Some(scene) = Scene::new(2) else { return };
    scene.submit(&["--lease", "600", "--tries", "1"]).ended(0);
    let slow = scene.space.at("slow");
    scene.space.write("slow", "");
    // A command that takes long while the file exists: the run does not end before the interrupt.
    let command = format!("sh -c 'if test -e {}; then sleep 5; fi' {{}}", slow.display());
    let child = scene.worker(&["--exec", &command]).spawn().unwrap();
    wait_until("the shard begins", || scene.status()["running"] != Value::Array(Vec::new()));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(ended(child).code, Some(130));
    std::fs::remove_file(slow).unwrap();
    // Its lease is not waited for, and the interrupt was no try.
    ended(scene.worker(&["--exec", &command]).spawn().unwrap()).ended(0);
    assert_eq!(scene.status()["done"], 2);
}

#[test]
fn a_shard_whose_files_are_gone_is_parked_with_its_reason() {
    let Some(scene) = Scene::new(2) else { return };
    scene.submit(&["--tries", "2"]).ended(0);
    let away = scene.space.at("away");
    std::fs::rename(scene.space.at("tree"), &away).unwrap();
    std::fs::create_dir(scene.space.at("tree")).unwrap();
    // A host that fails to run both is not the only one to park them.
    let ran = ended(scene.worker(&[]).spawn().unwrap()).ended(1);
    assert!(ran.err.contains("stopped after 5 failed runs of shards in a row"), "{}", ran.err);
    // One that comes back because the server is slow can be parked.
    assert!(scene.status()["parked"].as_u64().unwrap() <= 1);
    let ran = ended(scene.worker(&[]).spawn().unwrap()).ended(1);
    assert!(
        ran.err.contains("is parked: cannot complete the shard: none of its 3 files"),
        "{}",
        ran.err
    );
    let status = scene.status();
    assert_eq!(
        (&status["done"], &status["parked"], &status["finished"]),
        (&0.into(), &2.into(), &true.into())
    );
    assert!(status["parked_shards"][0]["error"].as_str().unwrap().contains("none of its 3 files"));
    std::fs::remove_dir(scene.space.at("tree")).unwrap();
    std::fs::rename(away, scene.space.at("tree")).unwrap();
    let said = scene.submit(&["--unpark", "--tries", "2"]).ended(0).text();
    assert!(said.ends_with("queued 2 parked shards again\n"), "{said}");
    ended(scene.worker(&[]).spawn().unwrap()).ended(0);
    scene.is_complete(2);
}

#[test]
fn a_host_that_can_run_no_shard_parks_none() {
    let Some(scene) = Scene::new(8) else { return };
    scene.submit(&["--tries", "2"]).ended(0);
    // A host that sees the plan without its manifests.
    let list = std::fs::read(scene.space.at("tree.shards/plan")).unwrap();
    scene.space.write("other/plan", list);
    let args = ["each", "--queue", &scene.url(), "--manifest", "other", "--part", "parts"];
    for _ in 0..4 {
        let ran = scene.run(&args);
        assert_eq!(ran.code, Some(1));
        assert!(ran.err.contains("stopped after 5 failed runs of shards in a row"), "{}", ran.err);
    }
    assert_eq!(scene.status()["parked"], 0);
    ended(scene.worker(&[]).spawn().unwrap()).ended(0);
    scene.is_complete(8);
}

#[test]
fn a_worker_that_cannot_write_parts_takes_no_shard() {
    let Some(scene) = Scene::new(2) else { return };
    scene.submit(&["--tries", "1"]).ended(0);
    scene.space.write("file", "");
    let wrong = || {
        for (part, advice) in [("file", "choose another"), ("gone", "create the dir")] {
            let url = scene.url();
            let args = ["each", "--queue", &url, "--manifest", "tree.shards", "--part", part];
            scene.run(&args).ended(1).one_error(&["cannot write parts to", part, advice]);
        }
    };
    wrong();
    let status = scene.status();
    assert_eq!((&status["done"], &status["parked"]), (&0.into(), &0.into()));
    ended(scene.worker(&[]).spawn().unwrap()).ended(0);
    wrong();
    scene.is_complete(2);
}

#[test]
fn a_watch_ends_with_1_if_files_failed_even_if_their_worker_was_killed() {
    let Some(scene) = Scene::new(3) else { return };
    scene.submit(&["--lease", "1"]).ended(0);
    std::fs::remove_file(scene.space.at("tree/0004")).unwrap();
    let mut child = scene.worker(&[]).spawn().unwrap();
    wait_until("all are done", || scene.status()["done"] == 3);
    let _ = child.kill();
    child.wait().unwrap();
    assert_eq!(scene.status()["with_errors"], 1);
    let watched = scene.run(&["shard", "watch", "--queue", &scene.url()]).ended(1);
    assert!(watched.text().contains("errors      1 shard with failed files"), "{}", watched.text());
}

/// A server that loses its disk has neither the results nor the leases of shards.
#[test]
fn a_watch_ends_with_1_if_leases_were_lost() {
    let Some(scene) = Scene::new(3) else { return };
    scene.submit(&[]).ended(0);
    scene.lose_leases();
    let watched = scene.run(&["shard", "watch", "--queue", &scene.url()]).ended(1);
    let words = "3 of its shards are neither done nor queued; run";
    assert!(watched.err.contains(words), "{}", watched.err);
    scene.submit(&[]).ended(0);
    ended(scene.worker(&[]).spawn().unwrap()).ended(0);
    scene.is_complete(3);
}

#[test]
fn du_takes_shards_from_a_queue_too() {
    let Some(scene) = Scene::new(6) else { return };
    for dir in 0..9 {
        std::fs::create_dir(scene.space.at(format!("tree/dir{dir}"))).unwrap();
    }
    let plan = ["shard", "plan", "--subtrees", "--shards", "4", "--out", "p", "tree"];
    scene.run(&plan).ended(0);
    let url = scene.url();
    scene.run(&["shard", "submit", "p", "--queue", &url]).ended(0);
    let worker = ["du", "--queue", &url, "--manifest", "p", "--part", "parts"];
    let workers: Vec<Child> =
        (0..2).map(|_| scene.space.ours(&worker).stdout(Stdio::piped()).spawn().unwrap()).collect();
    for worker in workers {
        assert!(ended(worker).ended(0).text().ends_with("the queue is finished\n"));
    }
    let status = scene.status();
    assert_eq!((&status["done"], &status["work"]), (&4.into(), &"du".into()));
    let merged = scene.run(&["shard", "merge", "--json", "p", "parts"]).ended(0).json();
    let whole = scene.run(&["du", "-s", "--inodes", "tree"]).ended(0).text();
    assert_eq!(whole, format!("{}\ttree\n", merged["inodes"]));
}

#[test]
fn cp_takes_shards_from_a_queue_and_one_of_its_workers_is_killed() {
    let Some(scene) = Scene::new(6) else { return };
    let at = |name: &str| scene.space.at(name);
    for dir in 0..40 {
        std::fs::create_dir_all(at(&format!("tree/dir{dir}/sub"))).unwrap();
        std::fs::write(at(&format!("tree/dir{dir}/sub/file")), vec![b'x'; 20_000 + dir]).unwrap();
    }
    std::fs::create_dir(at("copy")).unwrap();
    let plan = ["shard", "plan", "--subtrees", "--shards", "16", "--out", "p", "tree"];
    scene.run(&plan).ended(0);
    let url = scene.url();
    scene.run(&["shard", "submit", "p", "--queue", &url, "--lease", "1"]).ended(0);
    let worker = ["cp", "-a", "--queue", &url, "--manifest", "p", "--part", "parts", "copy"];
    let mut workers: Vec<Child> =
        (0..3).map(|_| scene.space.ours(&worker).stdout(Stdio::piped()).spawn().unwrap()).collect();
    let mut killed = workers.pop().unwrap();
    killed.kill().unwrap();
    killed.wait().unwrap();
    for worker in workers {
        assert!(ended(worker).ended(0).text().ends_with(
            "the queue is finished
"
        ));
    }
    let args = ["shard", "merge", "--json", "--report", "r.html", "p", "parts"];
    let merged = scene.run(&args).ended(0).json();
    let all = scene.run(&["each", "tree", "--json"]).ended(0).json();
    assert_eq!((&merged["files"], &merged["errors"]), (&all["files"], &0.into()), "{merged:#}");
    let page = std::fs::read_to_string(at("r.html")).unwrap();
    assert!(page.contains("Workers over time"));
    for dir in 0..40 {
        let file = format!("dir{dir}/sub/file");
        let read = |tree: &str| std::fs::read(at(&format!("{tree}/{file}"))).unwrap();
        assert!(read("tree") == read("copy/tree"), "{file}");
    }
}

#[test]
fn what_cannot_be_used_is_one_error() {
    let Some(scene) = Scene::new(2) else { return };
    let refused = |code: i32, words: &[&str]| {
        let ran = ended(scene.worker(&[]).spawn().unwrap());
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        ran.one_error(words);
    };
    refused(1, &["cannot open nats://", "no such queue", "'ioloom shard submit'"]);
    scene.submit(&[]).ended(0);
    // The plan is made again: it is another one.
    std::fs::remove_dir_all(scene.space.at("tree.shards")).unwrap();
    scene.run(&["shard", "plan", "tree", "--shards", "2"]).ended(0);
    refused(2, &["another plan"]);
    let again = scene.submit(&[]);
    assert_eq!(again.code, Some(2));
    again.one_error(&["another plan"]);
    let gone = ["shard", "status", "--queue", "nats://user:secret@127.0.0.1:1/q"];
    let gone = scene.run(&gone);
    assert_eq!(gone.code, Some(1));
    gone.one_error(&["nats://127.0.0.1:1/q", "refused", "nats-server -js"]);
    let wrong = scene.run(&["shard", "status", "--queue", "http://user:secret@h/q"]);
    assert_eq!(wrong.code, Some(2));
    wrong.one_error(&["invalid --queue 'http://h/q'", "nats://HOST/NAME"]);
    assert!(!wrong.err.contains("secret"));
    let port = scene.run(&["shard", "status", "--queue", "nats://h:65536/q"]).ended(2);
    port.one_error(&["invalid --queue 'nats://h:65536/q'", "invalid port"]);
    let plain = scene.run(&["shard", "status", "--queue", &scene.url().replace("nats:", "tls:")]);
    plain.ended(1).one_error(&["the server does not use TLS; use nats://, or enable TLS"]);
}

#[test]
fn a_server_that_wants_a_password_gets_it_from_the_environment() {
    let Some(server) = Nats::start("authorization { user: me, password: secret }") else { return };
    let space = Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"));
    let url = server.queue("q");
    let status = || space.ours(&["shard", "status", "--queue", &url]);
    let denied = ProcessOutput::from(status().output().unwrap()).ended(1);
    denied.one_error(&["cannot connect", "NATS_USER"]);
    let known = status().env("NATS_USER", "me").env("NATS_PASSWORD", "secret").output().unwrap();
    ProcessOutput::from(known).ended(1).one_error(&["no such queue"]);
    let gone = ProcessOutput::from(status().env("NATS_CREDS", "gone").output().unwrap());
    gone.ended(2).one_error(&["NATS_CREDS", "'gone'", "names a file"]);
    let seed = format!("SU{}", "A2".repeat(28));
    let inline = ProcessOutput::from(status().env("NATS_NKEY", &seed).output().unwrap()).ended(2);
    inline.one_error(&["NATS_NKEY", "a secret instead of the name of a file"]);
    assert!(!inline.err.contains(&seed), "{}", inline.err);
    let wrong = url.replace("nats://", "nats://me:wrong@");
    let denied = space.ours(&["shard", "status", "--queue", &wrong]).output().unwrap();
    let denied = ProcessOutput::from(denied).ended(1);
    denied.one_error(&["cannot connect", "correct the user and password in the URL"]);
    // In the URL, which messages do not repeat and which replaces the environment.
    let url = url.replace("nats://", "nats://me:%73ecret@");
    let known =
        space.ours(&["shard", "status", "--queue", &url]).env("NATS_USER", "other").output();
    let known = known.unwrap();
    let known = ProcessOutput::from(known).ended(1);
    known.one_error(&["cannot open nats://127.0.0.1", "no such queue"]);
    assert!(!known.err.contains("secret"), "{}", known.err);
    let half = space.ours(&["shard", "status", "--queue", &url]).env("NATS_CERT", "x").output();
    ProcessOutput::from(half.unwrap()).ended(2).one_error(&["NATS_CERT", "together"]);
}

#[test]
fn a_user_without_permissions_learns_it_at_once() {
    let rights = "publish: [\"x\"], subscribe: [\"_INBOX.>\"]";
    let users = format!(
        "authorization {{ users: [{{ user: me, password: secret, permissions: {{ {rights} }} }}] }}"
    );
    let Some(server) = Nats::start(&users) else { return };
    let space = Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"));
    let url = server.queue("q").replace("nats://", "nats://me:secret@");
    let start = Instant::now();
    let denied = space.ours(&["shard", "watch", "--queue", &url]).output().unwrap();
    ProcessOutput::from(denied).ended(2).one_error(&["denied permission", "Violation"]);
    assert!(start.elapsed() < GUARD);
}

#[test]
fn a_server_without_jetstream_is_one_error_at_once() {
    let Some(server) = Nats::start_without_jetstream() else { return };
    let space = Workspace::in_memory_or_on_disk(env!("CARGO_BIN_EXE_ioloom"));
    space.write("tree/a", "a");
    std::fs::create_dir(space.at("parts")).unwrap();
    let run = |args: &[&str]| ProcessOutput::from(space.ours(args).output().unwrap());
    run(&["shard", "plan", "tree", "--shards", "1"]).ended(0);
    let url = server.queue("q");
    let start = Instant::now();
    for args in [
        &["shard", "submit", "tree.shards", "--queue", &url][..],
        &["shard", "status", "--queue", &url],
        &["shard", "watch", "--queue", &url],
        &["each", "--queue", &url, "--manifest", "tree.shards", "--part", "parts"],
    ] {
        run(args).ended(1).one_error(&["the server has no JetStream", "'nats-server -js'"]);
    }
    assert!(start.elapsed() < GUARD);
}
