//! Azure with Azurite and Google Cloud Storage with fake-gcs-server, if they are installed, and the latter's protocol
//! with a server in this process, which is that of S3 in what the client uses.

use super::Ran;
use super::independent::{assert_same, await_server, free_address, installed, tree_in};
use ioloom_bucket::{Law, Server};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The signature of the request for a new container with the account of the emulator, which everybody knows.
const NEW_CONTAINER: &str = "PUT /devstoreaccount1/container?restype=container HTTP/1.1\r\nhost: emulator\r\n\
    connection: close\r\ncontent-length: 0\r\nx-ms-date: Mon, 30 Nov 2026 20:00:00 GMT\r\n\
    x-ms-version: 2021-08-06\r\nauthorization: SharedKey \
    devstoreaccount1:Fe5eubKy+Ewvmgbu/D1TFjKIYs21e1WjnnyFarJdPSo=\r\n\r\n";

/// A server that ends when it is dropped, and the variables with which the client finds it.
struct Emulator {
    process: Child,
    address: SocketAddr,
    variables: Vec<(&'static str, String)>,
    dir: tempfile::TempDir,
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Emulator {
    fn start(
        mut command: Command,
        address: SocketAddr,
        variables: Vec<(&'static str, String)>,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        command.current_dir(dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        await_server(address);
        Self { process, address, variables, dir }
    }

    fn azurite() -> Option<Self> {
        let program = installed("azurite-blob", "npm install -g azurite")?;
        let address = free_address();
        let mut command = Command::new(program);
        command.args(["--inMemoryPersistence", "--skipApiVersionCheck", "--loose"]).args([
            "--disableTelemetry",
            "--silent",
            "--blobPort",
            &address.port().to_string(),
        ]);
        let variables = vec![
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
            ("AZURITE_BLOB_STORAGE_URL", format!("http://{address}")),
        ];
        let emulator = Self::start(command, address, variables);
        emulator.request(NEW_CONTAINER.as_bytes(), "201");
        Some(emulator)
    }

    fn fake_gcs() -> Option<Self> {
        let how = "go install github.com/fsouza/fake-gcs-server@latest";
        let program = installed("fake-gcs-server", how)?;
        let address = free_address();
        let mut command = Command::new(program);
        command.args(["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory"]).args([
            "-port",
            &address.port().to_string(),
            "-public-host",
            &address.to_string(),
        ]);
        let variables = vec![("STORAGE_EMULATOR_HOST", address.to_string())];
        let emulator = Self::start(command, address, variables);
        emulator.post("/storage/v1/b", br#"{"name":"bucket"}"#);
        Some(emulator)
    }

    /// Sends a request outside of the client.
    fn request(&self, bytes: &[u8], status: &str) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.split(' ').nth(1), Some(status), "{answer}");
    }

    fn post(&self, path: &str, body: &[u8]) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        self.request(&[head.as_bytes(), body].concat(), "200");
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(&[], args)
    }

    fn run_with(&self, more: &[(&str, &str)], args: &[&str]) -> Ran {
        run(self.dir.path(), &self.variables, more, args)
    }
}

fn run(
    dir: &Path,
    variables: &[(&'static str, String)],
    more: &[(&str, &str)],
    args: &[&str],
) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ioloom"));
    command
        .env_clear()
        .env("HOME", "/nonexistent")
        .env("XDG_STATE_HOME", dir.join("state"))
        .envs(variables.iter().map(|(name, value)| (*name, value)))
        .envs(more.iter().copied())
        .args(args);
    Ran::of(command.output().unwrap())
}

/// Runs the program with these arguments.
type Program<'a> = dyn Fn(&[&str]) -> Ran + 'a;

/// Copies a tree to a store and back, and compares digests and sizes. Returns the documents of both copies.
fn there_and_back(
    dir: &Path,
    root: &str,
    run: &Program<'_>,
) -> (serde_json::Value, serde_json::Value) {
    let (tree, names) = tree_in(dir);
    let from = tree.display().to_string();
    let sent = run(&["cp", "-r", "--json", &from, root]).well().json();
    assert_eq!(sent["files"], names.len());
    let below = format!("{root}/");
    compare(&names, (&tree, &dir.join("back")), (&below, run), &sent)
}

fn compare(
    names: &[PathBuf],
    (tree, back): (&Path, &Path),
    (below, run): (&str, &Program<'_>),
    sent: &serde_json::Value,
) -> (serde_json::Value, serde_json::Value) {
    let digest = |path: &str| {
        let document = run(&["each", "--json", "--compute", "sha256", path]).well().json();
        (document["files"].clone(), document["digest"].clone())
    };
    assert_eq!(digest(below), digest(&tree.display().to_string()));
    let sums = run(&["du", "-b", "-s", below]).well().out;
    let bytes: u64 = names.iter().map(|name| fs::metadata(tree.join(name)).unwrap().len()).sum();
    assert!(sums.starts_with(&format!("{bytes}\t")), "{sums}");
    let received = run(&["cp", "-r", "--json", below, &back.display().to_string()]).well().json();
    assert_same(names, tree, back);
    (sent.clone(), received)
}

/// Returns how many files were verified, and of how many only the length.
fn verified(document: &serde_json::Value) -> (u64, u64) {
    let of = |name: &str| document[name].as_u64().unwrap();
    (of("verified_files"), of("length_only_files"))
}

#[test]
fn objects_of_azure_are_sent_and_received() {
    let Some(server) = Emulator::azurite() else { return };
    let run = |args: &[&str]| server.run(args);
    let (sent, received) = there_and_back(server.dir.path(), "az://container/up", &run);
    // The one that is sent in parts has no sum.
    assert_eq!((verified(&sent), verified(&received)), ((4, 1), (4, 1)));
    let one = server.dir.path().join("one");
    server.run(&["cp", "abfs://container/up/a/one", &one.display().to_string()]).well();
    assert_eq!(fs::read(&one).unwrap(), [0]);
    let left = fs::read_dir(server.dir.path().join("state/ioloom/uploads"));
    assert_eq!(left.map_or(0, Iterator::count), 0, "there is nothing to abort");
}

#[test]
fn what_azure_refuses_is_one_error() {
    let Some(server) = Emulator::azurite() else { return };
    let file = server.dir.path().join("file");
    fs::write(&file, "x").unwrap();
    let [file, target] = [file, server.dir.path().join("new")].map(|p| p.display().to_string());
    let words = "(ContainerNotFound); check the name of the container, AZURE_STORAGE_ACCOUNT_NAME";
    for args in [
        &["each", "az://absent/up/"][..],
        &["each", "az://absent/up"],
        &["cp", "az://absent/up", &target],
        &["cp", &file, "az://absent/up"],
    ] {
        server.run(args).one_error(1, words);
    }
    server.run(&["cp", "az://container/absent", &target]).one_error(1, "(BlobNotFound)");
    let wrong = [("AZURE_STORAGE_ACCOUNT_KEY", "d3Jvbmc=")];
    let words = "(AuthorizationFailure); check AZURE_STORAGE_ACCOUNT_KEY";
    server.run_with(&wrong, &["each", "az://container/up/"]).one_error(1, words);
    server.run_with(&wrong, &["cp", &file, "az://container/up"]).one_error(1, words);
    let gone = [("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:9")];
    let each = server.run_with(&gone, &["each", "az://container/up/"]);
    each.one_error(1, "check AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ENDPOINT and the network");
    assert!(!Path::new(&target).exists());
}

#[test]
fn objects_of_an_emulator_of_google_are_received() {
    let Some(server) = Emulator::fake_gcs() else { return };
    let (tree, names) = tree_in(server.dir.path());
    for name in &names {
        let key: String =
            format!("up/{}", name.display()).bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/upload/storage/v1/b/bucket/o?uploadType=media&name={key}");
        server.post(&path, &fs::read(tree.join(name)).unwrap());
    }
    let back = server.dir.path().join("back");
    let run = |args: &[&str]| server.run(args);
    let nothing = serde_json::Value::Null;
    let (_, received) = compare(&names, (&tree, &back), ("gs://bucket/up/", &run), &nothing);
    assert_eq!(verified(&received), (5, 0));
    let target = server.dir.path().join("new").display().to_string();
    server
        .run(&["cp", "gs://bucket/none", &target])
        .one_error(1, "'gs://bucket/none': No such object");
}

#[test]
fn objects_of_google_are_sent_and_received() {
    let (server, dir) = (Server::start(Law::default()), tempfile::tempdir().unwrap());
    let variables = [("STORAGE_EMULATOR_HOST", server.endpoint())];
    let run = |args: &[&str]| run(dir.path(), &variables, &[], args);
    let (sent, _) = there_and_back(dir.path(), "gs://bucket/up", &run);
    // The `ETag` of the server is the MD5 of the parts.
    assert_eq!(verified(&sent), (5, 0));
    assert_eq!(server.open_uploads(), 0);
    run(&["each", "gs://absent/up/"]).one_error(1, "STORAGE_EMULATOR_HOST and GOOGLE_BASE_URL");
    run(&["each", "gs://denied/up/"]).one_error(1, "that they permit storage.objects.list");
}

#[test]
fn refused_requests_of_google_are_counted_and_repeated() {
    let law = Law { cap_per_s: 200.0, burst: 10.0, ..Law::default() };
    let (server, dir) = (Server::start(law), tempfile::tempdir().unwrap());
    for number in 0..300 {
        server.put(&format!("p/{number}"), vec![0; 16]);
    }
    let variables = [("STORAGE_EMULATOR_HOST", server.endpoint())];
    let document = run(dir.path(), &variables, &[], &["each", "--json", "gs://bucket/p/"]).well();
    let document = document.json();
    assert_eq!(document["files"], 300);
    assert!(document["requests"]["refused"].as_u64().unwrap() > 0, "{document}");
}

/// A server with the answers of Azure for two objects. The first request for one is refused, and the sum of the other is
/// wrong. It ends with the test program.
fn two_blobs() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/me", listener.local_addr().unwrap());
    let blob = |name: &str| {
        format!(
            "<Blob><Name>p/{name}</Name><Properties><Last-Modified>Mon, 30 Nov 2026 20:00:00 GMT</Last-Modified>\
             <Etag>0x1</Etag><Content-Length>5</Content-Length><Content-Type>x</Content-Type></Properties></Blob>"
        )
    };
    let page = format!(
        "<EnumerationResults><Blobs>{}</Blobs><NextMarker/></EnumerationResults>",
        ["good", "odd//key", "wrong"].map(blob).concat()
    );
    std::thread::spawn(move || {
        let mut refused = false;
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(&stream).lines();
            let first = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let sum = match first.contains("/good") {
                true => "XUFAKrxLKna5cZ2REBfFkg==",
                false => "1B2M2Y8AsgTpgAmY7PhCfg==",
            };
            let blob = format!("content-md5: {sum}\r\netag: \"0x1\"\r\n");
            let (status, more, body) = match () {
                () if first.contains("comp=list") => ("200 OK", String::new(), &*page),
                () if first.contains("/good") && !refused => {
                    refused = true;
                    ("503 Busy", String::new(), "<Error><Code>ServerBusy</Code></Error>")
                }
                () => ("200 OK", blob, "hello"),
            };
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nconnection: close\r\nlast-modified: Mon, 30 Nov 2026 20:00:00 GMT\r\n\
                 {more}content-length: {}\r\n\r\n{body}",
                body.len()
            );
        }
    });
    url
}

#[test]
fn refusals_of_azure_are_repeated_and_wrong_sums_are_errors() {
    let (url, dir) = (two_blobs(), tempfile::tempdir().unwrap());
    let variables = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "me".to_owned()),
        ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5".to_owned()),
        ("AZURE_STORAGE_ENDPOINT", url),
    ];
    let target = dir.path().join("new");
    let args = ["cp", "-r", "--json", "az://container/p/", &target.display().to_string()];
    let ran = run(dir.path(), &variables, &[], &args);
    let document = ran.json();
    assert_eq!((ran.code, &document["files"]), (Some(1), &1.into()), "{document}");
    assert_eq!(document["requests"]["refused"], 1, "{document}");
    assert!(ran.err.contains("the store has d41d8cd98f00b204e9800998ecf8427e"), "{}", ran.err);
    assert!(ran.err.contains("'az://container/p/odd//key': keys with a slash"), "{}", ran.err);
    assert_eq!(fs::read(target.join("good")).unwrap(), b"hello");
    assert!(!target.join("wrong").exists());
}

#[test]
fn settings_that_are_missing_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let none = |more: &[(&str, &str)], url: &str| run(dir.path(), &[], more, &["each", url]);
    none(&[], "az://container/x").one_error(2, "set AZURE_STORAGE_ACCOUNT_NAME to its name");
    let absent = [("GOOGLE_APPLICATION_CREDENTIALS", "/absent")];
    none(&absent, "gs://bucket/x").one_error(2, "set GOOGLE_APPLICATION_CREDENTIALS to a file");
}
