//! A block of loopback addresses that belongs to one simulated cluster, whatever else runs on the machine.

use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Above the usual ephemeral range, so that no client socket ever takes it.
const CLAIM_PORT: u16 = 61_007;

/// `127.n.0.0/16`, claimed by a listening socket for as long as the simulated cluster lives.
#[derive(Debug)]
pub(crate) struct LoopbackBlock {
    number: u8,
    _claim: TcpListener,
}

impl LoopbackBlock {
    /// The first block that no other simulated cluster holds.
    pub(crate) fn claim() -> io::Result<Self> {
        let mut last = io::Error::other("no block");
        for number in 1..=u8::MAX {
            match TcpListener::bind((Ipv4Addr::new(127, number, 255, 254), CLAIM_PORT)) {
                Ok(claim) => {
                    return Ok(Self {
                        number,
                        _claim: claim,
                    });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A quarter of the block is for cluster addresses: 16,382 Services.
    pub(crate) fn services(&self) -> (Ipv4Addr, u8) {
        (Ipv4Addr::new(127, self.number, 0, 0), 18)
    }

    /// The `index`th node (from 1, at most 11) has 4,095 pod addresses.
    pub(crate) fn pods(&self, index: u8) -> Ipv4Addr {
        Ipv4Addr::new(
            127,
            self.number,
            64_u8.saturating_add(index.saturating_sub(1).min(10).saturating_mul(16)),
            0,
        )
    }
}
