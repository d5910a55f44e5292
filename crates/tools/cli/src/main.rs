//! The ioloom program: flags and output. Each command has a module of the same name; the library
//! crates do the work.

mod abbreviated;
mod advise;
mod atomic_file;
mod bar_target;
mod cache;
mod claims;
mod clean;
mod command_line;
mod compare;
mod cp;
mod directories;
mod doctor;
mod du;
mod each;
mod evidence;
mod exit;
mod facts;
mod fileset;
mod getopt;
mod interrupt;
mod ledger;
#[cfg(feature = "exchange")]
mod load;
mod machine;
mod manual;
mod media;
mod memory;
mod out;
mod predict;
#[cfg(feature = "queue")]
mod queue_worker;
#[cfg(feature = "queue")]
mod queueing;
mod remote;
mod report;
mod results;
mod resume;
#[cfg(feature = "exchange")]
mod serve;
mod session_report;
mod sessions;
mod shard;
mod sharding;
mod shell_line;
mod slow_reader;
mod standard_input;
mod status_line;
mod stderr;
#[cfg(feature = "exchange")]
mod store;
mod study;
mod study_end;
mod study_files;
mod study_progress;
mod subtrees;
#[cfg(feature = "exchange")]
mod token_file;
mod trace;
mod tree_map;
mod usage;
mod values;
mod verify;
mod version;
mod watch;

use command_line::Command;
use ioloom_sys::descriptor_table;
use ioloom_sys::stdio::Stream;
use std::process::ExitCode;

/// Open files for which there is room from the start: the default window and more.
const PLACES: u32 = 1024;

fn main() -> ExitCode {
    ioloom_sys::address_space::share_heap_if_limited();
    // While there is one thread, this does not wait. It may fail: files then open more slowly.
    let _ = descriptor_table::make_room(PLACES);
    ioloom_sys::proc::keep_exit_codes_of_children();
    let command = command_line::parse();
    if command.prints() && Stream::Output.was_closed() {
        stderr::message(usage::CLOSED);
        return exit::Exit::Failed.into();
    }
    let ended = match command {
        Command::Study(args) => study::run(&args),
        Command::Each(args) => each::run(&args),
        Command::Du(args) => du::run(&args),
        Command::Shard(args) => shard::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::Cp(args) => cp::run(&args),
        #[cfg(feature = "exchange")]
        Command::Serve(args) => serve::run(&args),
        #[cfg(feature = "exchange")]
        Command::Load(args) => load::run(&args),
        #[cfg(feature = "exchange")]
        Command::Store(args) => store::run(&args),
        #[cfg(not(feature = "exchange"))]
        Command::Serve(_) | Command::Load(_) | Command::Store(_) => {
            Err(exit::Failure::no_exchange())
        }
        Command::Advise(args) => advise::run(&args),
        Command::Claims(args) => claims::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Results(args) => results::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Machine(args) => machine::run(&args),
        Command::Memory(args) => memory::run(&args),
        Command::Watch(args) => return watch::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Fileset(args) => fileset::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Completions(args) => manual::completions(&args, command_line::complete()),
        Command::Man(args) => manual::man(&args, command_line::complete()),
        Command::RunOrder => return ioloom_lab::child::serve(ioloom_subjects::run_order),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(failure) => {
            if !failure.message.is_empty() {
                stderr::message(&failure.message);
            }
            failure.exit.into()
        }
    }
}
