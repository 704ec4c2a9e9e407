//! Project chores.
//! It never ships.

fn main() {}
