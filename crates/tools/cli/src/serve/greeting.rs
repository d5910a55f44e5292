//! What a server prints when it starts.

use super::{logging, open_files};
use ioloom_failure::quoted;
use ioloom_model::units::format_counted;
use ioloom_serve::{ServeOptions, Server, StoreChoice};
use std::net::IpAddr;

/// Prints the addresses, the settings, and what the operator should know.
pub(super) fn greet(config: &ServeOptions, server: &Server) {
    for (at, address) in server.addresses().iter().enumerate() {
        let lines = if at == 0 { "" } else { " (unpadded)" };
        tracing::info!(target: logging::TARGET, "listening on {address}{lines}");
    }
    let StoreChoice { kind, path, .. } = &config.store;
    let store = match (server.database(), server.is_new_store()) {
        (Some(place), Some(true)) => format!("new tables in database {place}"),
        (Some(place), _) => format!("database {place}, latest order {}", server.seq()),
        (None, None) => "no store: orders are lost if the process is killed".to_owned(),
        (None, Some(true)) => format!("new {kind} store {}", quoted(path)),
        (None, Some(false)) => {
            let orders = format_counted(server.seq(), "order", "orders");
            format!("{kind} store {}, {orders}", quoted(path))
        }
    };
    tracing::info!(
        target: logging::TARGET,
        "model {}, sharing {}, durability {}{}; {store}",
        config.model,
        config.sharing,
        config.durability,
        if config.tls.is_some() { ", TLS" } else { "" }
    );
    if let (Some(files), Some(reason)) = (&config.tls, server.outdated()) {
        tracing::warn!(
            target: logging::TARGET,
            "certificate {} {reason}; clients reject it",
            quoted(&files.certificate)
        );
    }
    if let Some(warning) = open_files::warning(config.limits.connections) {
        tracing::warn!(target: logging::TARGET, "{warning}");
    }
    for notice in server.notices() {
        tracing::warn!(target: logging::TARGET, "store {}: {notice}", quoted(&config.store.path));
    }
    for address in server.addresses().iter().filter(|address| is_reachable(address.ip())) {
        let open_to = open_to(config.tls.is_some(), config.access.is_some());
        tracing::warn!(
            target: logging::TARGET,
            "{address} can be reached from other machines; {open_to}"
        );
    }
}

/// Returns whether other machines can reach an address of this machine.
fn is_reachable(address: IpAddr) -> bool {
    !address.to_canonical().is_loopback()
}

/// Describes who can use a port that other machines can reach.
fn open_to(tls: bool, token: bool) -> &'static str {
    match (tls, token) {
        (false, false) => {
            "any client\ncan send orders, and nothing is encrypted; use --token-file and --tls-cert"
        }
        (false, true) => "nothing is\nencrypted, including the token; use --tls-cert",
        (true, false) => "TLS is on, but\nany client can send orders; use --token-file",
        (true, true) => "TLS is on, and\na token is required",
    }
}

#[cfg(test)]
mod tests {
    use super::{is_reachable, open_to};

    #[test]
    fn only_loopback_addresses_are_not_reachable() {
        for (address, expected) in [
            ("127.0.0.1", false),
            ("::1", false),
            ("::ffff:127.0.0.1", false),
            ("0.0.0.0", true),
            ("::", true),
            ("::ffff:192.0.2.1", true),
        ] {
            assert_eq!(is_reachable(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn the_warning_about_a_reachable_port_names_what_is_missing() {
        for (tls, token, has, lacks) in [
            (false, false, &["any client", "--token-file", "--tls-cert"][..], &["TLS is on"][..]),
            (false, true, &["token", "--tls-cert"], &["TLS is on", "any client", "--token-file"]),
            (true, false, &["TLS is on", "any client", "--token-file"], &["--tls-cert"]),
            (true, true, &["TLS is on", "token is required"], &["any client", "--"]),
        ] {
            let text = open_to(tls, token);
            assert!(has.iter().all(|word| text.contains(word)), "{text}");
            assert!(!lacks.iter().any(|word| text.contains(word)), "{text}");
        }
    }
}
