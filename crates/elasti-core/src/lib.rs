//! The brain: every decision, pure.
//! It never does I/O, reads a clock, the environment or a random source, and depends on `elasti-api` only.
