//! Runs a function on the objects of an object store, and copies from and to it.
//!
//! The function is plain and synchronous, as in the library `ioloom`: it runs on one thread per core
//! while requests are in flight, and one number bounds the bytes that wait for it. An async runtime
//! runs inside `run` and is not visible outside.
//!
//! How a run proceeds: a task lists the prefix; a second one starts requests, in the order of the list
//! and in ranges of large objects, whenever the number in flight, the pace and the memory budget allow
//! it; threads take what has arrived, each object's bytes in order. A request, its connection and its
//! response stay on one thread, of which a second one is opened only when the first is busy. The number in flight comes from
//! `ioloom_control::Auto`; the pace from `ioloom_control::Pace`, which engages when the server
//! refuses requests (503).
//!
//! A response is used only if its length, the size of the object and its `ETag` are the expected ones;
//! anything else is tried again within a budget of retries and is then one error. An object that is
//! replaced while its ranges are read fails.
//!
//! Without the feature `s3` the crate is empty: the client needs many other crates.
#![cfg(feature = "s3")]

mod advice;
mod case;
mod client;
mod cloud;
mod connect;
mod credentials;
mod descriptors;
mod download;
mod error;
mod fetch;
mod gate;
mod hand_over;
mod headers;
mod kind;
mod lanes;
mod listing;
mod location;
mod map;
mod mode;
mod options;
mod pace;
mod paced;
mod page;
mod pilot;
mod reason;
mod record;
mod retries;
mod run;
mod saying;
mod send;
mod store;
mod upload;
mod verify;
mod wire;
mod work;

pub use download::{Downloaded, Place, download};
pub use error::{Action, Kind, ObjectError};
pub use listing::{Listed, list};
pub use location::Location;
pub use map::{Mapped, Object, objects};
pub use options::{Options, Progress};
pub use run::{Requests, Run, run};
pub use store::Store;
pub use upload::{Uploaded, upload};
pub use work::{Piece, Work, WorkError};
