//! A stock exchange without I/O.
//!
//! The crate splits a server into two parts. [`State`] is the exchange: stocks, orders, and the
//! request history that makes a repeated order execute once. [`Session`] is one connection: bytes
//! go in, requests come out in order, and [`encode`] writes each answer in the protocol of the
//! connection. Neither knows about sockets, threads or clocks. Every server built on them gives the
//! same answers to the same bytes, and tests need no network.
//!
//! Replaying an order log always produces the same state: nothing depends on randomness or time.

mod answer;
mod book;
mod clients;
mod codec;
mod state;
mod stock;
mod token;

pub use answer::{Answer, Fault, Local, Shown, Stop};
pub use book::{BadStockFile, Exchange};
pub use clients::{Clients, OrderOutcome, Seen, WINDOW};
pub use codec::{
    ClassicForm, Command, END_MARK, Form, LINE_MAX, PADDED, Request, Session, Settings,
};
pub use codec::{Spelling, UnknownStock, encode, is_client_name};
pub use state::{BadRecord, Record, State};
pub use stock::{COUNT_MAX, Line, Order, Refused, RequestId, Side, Stock};
pub use token::{Access, BadToken, Rights, Token};
