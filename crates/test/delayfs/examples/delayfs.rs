//! Mounts a delay file system by hand:
//!
//! ```text
//! delayfs MOUNTPOINT --files 3000 --size 4KiB --open 2ms --read 2ms
//! ```
//!
//! It runs until SIGINT or SIGTERM, then unmounts and prints its counters. SIGUSR1 prints the counters
//! and sets them to zero. Arguments: `--files N`, `--size SIZE[,SIZE…]`, `--dirs N`, the delays
//! `--lookup`, `--getattr`, `--open` and `--read`, `--limit N` requests served at the same time, and
//! `--until-overlap N`.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use ioloom_delayfs::{DelayFs, Options};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::error::Error;
use std::path::Path;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [dir, rest @ ..] = args.as_slice() else {
        return Err("usage: delayfs MOUNTPOINT [--files N] [--size SIZE] [--open TIME] …".into());
    };
    let options = Options::parse(rest.iter().map(String::as_str))?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    let mounted = DelayFs::mount(Path::new(dir), options)?;
    println!("mounted");
    for signal in signals.forever() {
        println!("{}", mounted.counters());
        mounted.reset();
        if signal != SIGUSR1 {
            break;
        }
    }
    Ok(())
}
