//! Code shared by the programs in this package: running and measuring programs, run order, machine
//! facts, preparation of runs, and records.

pub mod before;
pub mod child;
pub mod device;
pub mod facts;
pub mod interleaved;
pub mod kept;
pub mod neighbour;
pub mod order;
pub mod pairs;
pub mod volume;
