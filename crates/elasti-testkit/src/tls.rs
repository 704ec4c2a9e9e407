//! Folders as a Secret's volume shows them, with certificates of three authorities. Made with openssl for the names
//! `elasti-operator` and `elasti-resolver`, valid for a hundred years but for one; the keys are good for nothing else.

use std::path::Path;

/// One version of the Secret.
#[derive(Clone, Copy, Debug)]
pub struct Certificates {
    pub certificate: &'static str,
    pub key: &'static str,
    pub authority: &'static str,
}

pub const FIRST: Certificates = Certificates {
    certificate: include_str!("tls/first/tls.crt"),
    key: include_str!("tls/first/tls.key"),
    authority: include_str!("tls/first/ca.crt"),
};

pub const SECOND: Certificates = Certificates {
    certificate: include_str!("tls/second/tls.crt"),
    key: include_str!("tls/second/tls.key"),
    authority: include_str!("tls/second/ca.crt"),
};

/// With an authority of its own, whose certificate for the two names has expired.
pub const EXPIRED: Certificates = Certificates {
    certificate: include_str!("tls/expired/tls.crt"),
    key: include_str!("tls/expired/tls.key"),
    authority: include_str!("tls/expired/ca.crt"),
};

impl Certificates {
    /// Writes the three files.
    pub fn write(self, folder: &Path) {
        std::fs::write(folder.join("tls.crt"), self.certificate).unwrap();
        std::fs::write(folder.join("tls.key"), self.key).unwrap();
        std::fs::write(folder.join("ca.crt"), self.authority).unwrap();
    }
}
