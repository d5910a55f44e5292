//! What the programs of this package share: how a program is run and seen from outside, in which
//! order, on which machine, what every run meets, and what is kept of it.

pub mod before;
pub mod beside;
pub mod child;
pub mod device;
pub mod facts;
pub mod kept;
pub mod order;
pub mod pairs;
