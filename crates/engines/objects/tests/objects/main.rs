//! Runs over objects of a server in this process, with and without faults.

mod budget;
mod changes;
mod downloads;
mod listings;
mod reads;
mod setup;
mod stops;
