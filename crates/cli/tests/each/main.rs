//! `ioloom each` from end to end, as a user starts it, against programs that are not ours.

mod bytes;
mod checks;
mod place;
mod programs;
mod trouble;
