//! What the programs of this package share: how a program is run and measured from outside, in
//! which order, on which machine, how every run is prepared, and what is recorded.

pub mod before;
pub mod child;
pub mod device;
pub mod facts;
pub mod interleaved;
pub mod kept;
pub mod order;
pub mod pairs;
