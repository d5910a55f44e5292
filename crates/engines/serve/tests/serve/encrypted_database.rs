//! Encrypted connections to a PostgreSQL database, with certificates of a generated CA.
//!
//! If PostgreSQL or openssl is not installed, each test prints that it is skipped.

use crate::bench::Bench;
use crate::database::{refused, with_database};
use ioloom_serve::{Durability, Model};
use ioloom_testbed::Postgres;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// User that PostgreSQL runs as if the test runs as root.
const NOBODY: u32 = 65_534;
const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/// Runs openssl in a directory. Returns false if it is not installed.
fn openssl(dir: &Path, args: &str) -> bool {
    let Ok(ran) = Command::new("openssl").args(args.split(' ')).current_dir(dir).output() else {
        println!("skipped: openssl is not installed");
        return false;
    };
    assert!(ran.status.success(), "{args}: {}", String::from_utf8_lossy(&ran.stderr));
    true
}

/// Creates a CA, a certificate for an address, and another CA. Returns false if that is impossible.
fn certificates(dir: &Path, address: &str) -> bool {
    let extensions = format!("subjectAltName=IP:{address}\nbasicConstraints=critical,CA:FALSE\n");
    std::fs::write(dir.join("extensions"), extensions).unwrap();
    let sign = "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2";
    let ca = |name: &str| {
        let args = format!("req -x509 {KEY} -keyout {name}.key -out {name}.pem -days 2");
        openssl(dir, &format!("{args} -subj /CN={name} -addext basicConstraints=critical,CA:TRUE"))
    };
    ca("ca")
        && ca("other")
        && openssl(dir, &format!("req {KEY} -keyout server.key -out server.csr -subj /CN=database"))
        && openssl(dir, &format!("{sign} -extfile extensions -out server.pem"))
}

#[test]
fn connections_are_encrypted_and_verified_as_requested() {
    let dir = TempDir::new().unwrap();
    // No other process of this machine uses this loopback address.
    let number = std::process::id();
    let address = format!("127.{}.{}.{}", number >> 16 & 127, number >> 8 & 255, number & 255 | 1);
    if !certificates(dir.path(), &address) {
        return;
    }
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(dir.path(), 0o755);
    let at = |name: &str| dir.path().join(name);
    mode(&at("server.key"), 0o600);
    if ioloom_testbed::is_root() {
        std::os::unix::fs::chown(at("server.key"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let file = |name: &str| at(name).to_str().unwrap().to_owned();
    let settings = [
        format!("listen_addresses={address}"),
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", file("server.pem")),
        format!("ssl_key_file={}", file("server.key")),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let Some(postgres) = Postgres::start(&settings) else { return };
    postgres.database("sealed");
    let host = format!("host={address} user=tester dbname=sealed");
    // localhost is not in the certificate.
    let other_name = format!("host=localhost hostaddr={address} user=tester dbname=sealed");
    let (ca, other) = (file("ca.pem"), file("other.pem"));
    let encrypted = "SELECT count(*) > 0 FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'ioloom serve' AND ssl";
    let url = format!("postgresql://tester@{address}/sealed?sslmode=verify-full&sslrootcert={ca}");
    let mut left = 1000;
    for (words, is_encrypted) in [
        (host.clone(), "f"),
        (format!("{host} sslmode=prefer"), "f"),
        (format!("{host} sslmode=require"), "t"),
        (format!("{host} sslmode=require sslrootcert={ca}"), "t"),
        (format!("{other_name} sslmode=require"), "t"),
        (format!("{other_name} sslmode=verify-ca sslrootcert={ca}"), "t"),
        (format!("{host} sslmode=verify-full sslrootcert='{ca}'"), "t"),
        (url, "t"),
    ] {
        let bench = Bench::with(Model::Epoll, with_database(&words, Durability::Group));
        assert_eq!(bench.client().request("buy 1 10"), "[buy] success\n", "{words}");
        left -= 10;
        assert_eq!(postgres.sql("sealed", encrypted), is_encrypted, "{words}");
        bench.end();
    }
    let dir = TempDir::new().unwrap();
    for (words, expected) in [
        (format!("{host} sslmode=verify-full sslrootcert={other}"), "certificate"),
        (format!("{host} sslmode=verify-ca sslrootcert={other}"), "certificate"),
        (format!("{host} sslmode=require sslrootcert={other}"), "certificate"),
        (format!("{other_name} sslmode=verify-full sslrootcert={ca}"), "localhost"),
    ] {
        refused(&dir, with_database(&words, Durability::Group), &["connect to", expected]);
    }
    let stock = "SELECT remaining FROM ioloom_exchange.stock WHERE id = 1";
    assert_eq!(postgres.sql("sealed", stock), left.to_string());
}

#[test]
fn a_database_without_tls_is_refused() {
    let number = std::process::id() ^ 0x55_5555;
    let address = format!("127.{}.{}.{}", number >> 16 & 127, number >> 8 & 255, number & 255 | 1);
    let listen = format!("listen_addresses={address}");
    let Some(postgres) = Postgres::start(&[&listen]) else { return };
    let local = postgres.database("plain");
    let dir = TempDir::new().unwrap();
    let words = format!("host={address} user=tester dbname=plain sslmode=require");
    refused(&dir, with_database(&words, Durability::Group), &["does not support TLS"]);
    // As in libpq, sockets of the same machine are not encrypted.
    let bench = Bench::with(
        Model::Epoll,
        with_database(&format!("{local} sslmode=require"), Durability::Os),
    );
    assert_eq!(bench.client().request("buy 1 10"), "[buy] success\n");
}
