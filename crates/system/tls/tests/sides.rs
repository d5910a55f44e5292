//! Both sides in memory: data arrives unchanged regardless of how it is split, and wrong identities
//! are rejected.

#![cfg(feature = "rustls")]

use ioloom_testbed::Certificate;
use ioloom_tls::{Identity, TlsSession, Trust};
use std::path::Path;
use tempfile::TempDir;

struct Pair {
    _dir: TempDir,
    client: TlsSession,
    server: TlsSession,
}

fn pair(name: &str) -> Pair {
    let dir = TempDir::new().unwrap();
    let files = Certificate::in_dir(dir.path());
    let server = Identity::read(&files.certificate, &files.key).unwrap().session();
    let client = Trust::new(Some(&files.certificate), name).unwrap().session().unwrap();
    Pair { _dir: dir, client, server }
}

/// Moves pending bytes from one side to the other, `step` bytes at a time; returns the decrypted
/// bytes.
fn carry(from: &mut TlsSession, to: &mut TlsSession, step: usize) -> Result<Vec<u8>, String> {
    let (mut sealed, mut plain) = (Vec::new(), Vec::new());
    from.seal(&[], &mut sealed);
    for bytes in sealed.chunks(step) {
        to.open(bytes, &mut plain).map_err(|broken| broken.to_string())?;
    }
    Ok(plain)
}

fn agree(two: &mut Pair, step: usize) {
    while two.client.is_handshaking() || two.server.is_handshaking() {
        assert_eq!(carry(&mut two.client, &mut two.server, step).unwrap(), b"");
        assert_eq!(carry(&mut two.server, &mut two.client, step).unwrap(), b"");
    }
}

#[test]
fn data_arrives_however_it_is_split() {
    for step in [1, 7, 4096, usize::MAX >> 1] {
        let mut two = pair("127.0.0.1");
        agree(&mut two, step);
        // More than one record, and more than one read can return.
        let long: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
        for text in [&b"buy 1 1\n"[..], &long] {
            let mut sealed = Vec::new();
            two.client.seal(text, &mut sealed);
            assert!(!sealed.windows(text.len()).any(|window| window == text));
            let mut plain = Vec::new();
            sealed.chunks(step).for_each(|bytes| two.server.open(bytes, &mut plain).unwrap());
            assert_eq!(plain, text);
        }
    }
}

#[test]
fn data_sealed_during_the_handshake_leaves_afterwards() {
    let mut two = pair("localhost");
    let mut hello = Vec::new();
    two.client.seal(b"show\n", &mut hello);
    assert!(two.client.is_handshaking());
    let mut plain = Vec::new();
    two.server.open(&hello, &mut plain).unwrap();
    assert_eq!(plain, b"");
    carry(&mut two.server, &mut two.client, 4096).unwrap();
    assert_eq!(carry(&mut two.client, &mut two.server, 4096).unwrap(), b"show\n");
}

#[test]
fn the_end_is_sent_once_and_later_bytes_are_ignored() {
    let mut two = pair("127.0.0.1");
    agree(&mut two, 4096);
    let (mut sealed, mut plain) = (Vec::new(), Vec::new());
    assert!(two.client.end(&mut sealed) && !two.client.end(&mut sealed));
    sealed.extend_from_slice(b"noise");
    two.server.open(&sealed, &mut plain).unwrap();
    assert!(two.server.has_ended() && plain.is_empty());
    // The other direction stays open.
    let mut sealed = Vec::new();
    two.server.seal(b"bye", &mut sealed);
    two.client.open(&sealed, &mut plain).unwrap();
    assert_eq!(plain, b"bye");
}

#[test]
fn a_wrong_server_name_is_rejected() {
    let mut two = pair("example.org");
    carry(&mut two.client, &mut two.server, 4096).unwrap();
    let error = carry(&mut two.server, &mut two.client, 4096).unwrap_err();
    assert!(error.contains("handshake failed") && error.contains("certificate"), "{error}");
    // The server receives the alert.
    let error = carry(&mut two.client, &mut two.server, 4096).unwrap_err();
    assert!(error.contains("handshake failed"), "{error}");
    assert!(
        Trust::new(Some(Path::new("/nowhere.pem")), "a")
            .unwrap_err()
            .to_string()
            .contains("nowhere")
    );
    assert!(Trust::new(None, "two words").is_err());
}

#[test]
fn plain_text_and_corrupted_records_are_rejected() {
    for text in [&b"show\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"*1\r\n$4\r\nPING\r\n"] {
        let mut two = pair("127.0.0.1");
        let error = two.server.open(text, &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "the peer did not send TLS");
    }
    let mut two = pair("127.0.0.1");
    agree(&mut two, 4096);
    let mut sealed = Vec::new();
    two.client.seal(b"buy 1 1\n", &mut sealed);
    *sealed.last_mut().unwrap() ^= 1;
    let mut plain = Vec::new();
    assert!(two.server.open(&sealed, &mut plain).is_err());
    assert!(plain.is_empty());
}

#[test]
fn an_expired_certificate_is_recognized() {
    let dir = TempDir::new().unwrap();
    let files = Certificate::in_dir(dir.path());
    let of = |certificate: &Path| Identity::read(certificate, &files.key).unwrap().outdated();
    assert_eq!(of(&files.certificate), None);
    assert_eq!(of(&files.expired_certificate), Some("has expired"));
}

#[test]
fn invalid_files_are_described_without_dumps() {
    let dir = TempDir::new().unwrap();
    let files = Certificate::in_dir(dir.path());
    let whole = std::fs::read_to_string(&files.certificate).unwrap();
    let with = |certificate: &str| {
        std::fs::write(&files.certificate, certificate).unwrap();
        Identity::read(&files.certificate, &files.key).expect_err("invalid").to_string()
    };
    for (certificate, reason) in [
        ("", "no certificate found"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            "not an X.509 certificate",
        ),
        (&whole[..whole.len() / 2], "the end of a section is missing"),
        (&whole.replacen("-----\n", "\n", 1), "the start of a section is invalid"),
    ] {
        let text = with(certificate);
        assert!(text.starts_with("invalid certificate "), "{text}");
        assert!(text.contains(&format!(": {reason}; ")) && !text.contains('['), "{text}");
    }
    let text = with(&std::fs::read_to_string(&files.other_certificate).unwrap());
    assert!(
        text.contains("it does not match certificate") && !text.contains("KeyMismatch"),
        "{text}"
    );
    std::fs::write(&files.certificate, &whole).unwrap();
    std::fs::write(&files.key, "").unwrap();
    let text = Identity::read(&files.certificate, &files.key).unwrap_err().to_string();
    assert!(text.contains(": no key found; "), "{text}");
    let garbage = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    std::fs::write(&files.key, garbage).unwrap();
    let text = Identity::read(&files.certificate, &files.key).unwrap_err().to_string();
    assert!(text.starts_with("invalid private key ") && !text.contains("match"), "{text}");
}
