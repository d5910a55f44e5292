//! The program from end to end, as a user starts it, each time in a home of its own.

mod errors;
mod help;
mod home;
mod kill;
mod sets;
mod study;
