//! The front door: one binary for the processes, the demo and the command line.
//! It never decides anything about a service; it reads arguments and starts the right room.

fn main() {}
