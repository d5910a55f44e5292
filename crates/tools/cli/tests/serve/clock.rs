//! Jumps of the system clock, simulated by a small library in front of the C library.

use crate::bench::{Client, STOCKS, Served, place, serve_in};
use std::fs;
use std::process::{Command, Stdio};

/// Adds the seconds in the file `shift` to the system clock; the monotonic clock is not changed.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long shift(void) {
    char text[32] = {0};
    int fd = open(getenv("SHIFT"), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    if (read(fd, text, sizeof text - 1) < 0) text[0] = 0;
    close(fd);
    return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += shift();
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *at) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (at) *at = exact.tv_sec;
    return exact.tv_sec;
}
"#;
const YEAR: i64 = 31_557_600;

#[test]
fn jumps_of_the_clock_change_nothing() {
    let library = place();
    library.write("clock.c", LIBRARY);
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o", "clock.so", "clock.c"]).current_dir(library.path());
    match cc.stdout(Stdio::null()).status() {
        Ok(status) => assert!(status.success(), "the library does not compile"),
        Err(_) => return println!("skipped: cc is not available"),
    }
    let library = library.at("clock.so");
    std::thread::scope(|scope| {
        for store in ["log", "sqlite", "redb", "fjall"] {
            let library = &library;
            scope.spawn(move || jumps(store, library));
        }
    });
}

fn jumps(store: &str, library: &std::path::Path) {
    let place = place();
    place.write("shift", "0");
    let start = || {
        // Limits that would close connections if they followed the system clock.
        let mut command = serve_in(place.path(), &["--store", store, "--durability", "group"]);
        command.args(["--idle", "60", "--client-rate", "1000"]);
        command.env("LD_PRELOAD", library).env("SHIFT", place.at("shift"));
        Served::start(&mut command)
    };
    let mut server = start();
    let mut client = Client::new(&server.address, "a").unwrap();
    let (mut id, mut answers) = (0, Vec::new());
    for years in [0, 10, -10, -60, 60] {
        place.write("shift", (years * YEAR).to_string());
        for _ in 0..20 {
            id += 1;
            let order = format!("{id} BUY 1 1 deadline=20000");
            let answer = client.ask(&order).unwrap_or_else(|| panic!("{store}: closed at {years}"));
            assert_eq!(answer, format!("{id} OK {} {id}", 100_000 - id), "{store}: {years} years");
            answers.push((order, answer));
        }
        if years == -10 {
            // A store that was written in the past of its files.
            server.kill();
            server = start();
            client = Client::new(&server.address, "a").unwrap();
        }
    }
    for (order, answer) in &answers {
        assert_eq!(client.ask(order).as_ref(), Some(answer), "{store}");
    }
    server.signal("-TERM");
    assert_eq!(server.ended().0.code(), Some(0), "{store}");
    let stocks = fs::read_to_string(place.at("stock.txt")).unwrap();
    assert_eq!(stocks, STOCKS.replacen("100000", "99900", 1), "{store}");
}
