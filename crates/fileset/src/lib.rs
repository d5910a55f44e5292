//! Seeded file sets from distributions, and the shape of existing trees.
