//! Tests of the exchange: stocks against a simple oracle, and protocols against fixed bytes and
//! every way of splitting them.

mod book;
mod protocols;
mod state;
