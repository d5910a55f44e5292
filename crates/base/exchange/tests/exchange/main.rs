//! Tests of the exchange: stocks against a simple oracle, and protocols against fixed bytes split
//! in every possible way.

mod book;
mod protocols;
mod redis;
mod state;
