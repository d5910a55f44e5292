//! A stock exchange without any input or output of its own.
//!
//! What a server does with bytes is split in two. [`State`] is the exchange: stocks, orders, and what
//! it remembers of clients so that a repeated order counts once. [`Session`] is one connection: bytes
//! go in, requests come out in order, and [`encode`] spells each answer in the protocol that the
//! connection speaks. Neither knows a socket, a thread or a clock, so every server that is built
//! around them gives the same answers to the same bytes, and tests need no network.
//!
//! The same order log gives the same state: what is random or depends on time stays outside.

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
pub use codec::{ClassicForm, Command, Form, LINE_MAX, PADDED, Request, Session, Settings};
pub use codec::{Spelling, UnknownStock, encode};
pub use state::{BadRecord, Record, State};
pub use stock::{COUNT_MAX, Line, Order, Refused, RequestId, Side, Stock};
pub use token::{BadToken, Token};
