//! Elasti beside the real controllers of others, on a real cluster: `cargo xtask e2e --partners` runs these tests, and
//! all others that need KEDA or Rollouts, without any stand-in.

mod hpa;
mod keda;
mod rollouts;
mod traefik;
