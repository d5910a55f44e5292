//! Tests of the statistics against other programs, against brute force and against simulation.

mod golden;
mod histogram;
mod judgement;
mod ladder;
mod noise_source;
mod properties;
mod simulation;
mod tails;
