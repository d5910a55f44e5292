//! Tests of the exchange: its books against a simple oracle, its protocols against fixed bytes and
//! against every way in which bytes can be cut.

mod book;
mod protocols;
mod state;
