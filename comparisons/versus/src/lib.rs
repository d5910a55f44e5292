//! What the programs of this package share: how a program is run and seen from outside, in which
//! order, on which machine, and what every run meets.

pub mod before;
pub mod beside;
pub mod child;
pub mod device;
pub mod facts;
pub mod order;
