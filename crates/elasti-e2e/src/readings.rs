//! Readings for a real Prometheus: what it scrapes from this process is what triggers read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, OnceLock};

use elasti_fake_cluster::prometheus::Reading;
use parking_lot::Mutex;

/// By metric: its samples, one a series.
type Table = Arc<Mutex<BTreeMap<String, Vec<f64>>>>;

/// The metrics of this process; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Readings(Table);

impl Readings {
    /// The readings of all tests of this process, served at one address.
    pub(crate) fn served_at(address: SocketAddr) -> Self {
        static TABLE: OnceLock<Table> = OnceLock::new();
        let table = TABLE.get_or_init(|| {
            let table = Table::default();
            let listener = TcpListener::bind(address)
                .unwrap_or_else(|error| panic!("readings cannot be served at {address}: {error}"));
            let served = table.clone();
            std::thread::spawn(move || serve(&listener, &served));
            table
        });
        Self(table.clone())
    }

    /// Sets the value of a metric from now on; Prometheus gets it with the next scrape.
    pub(crate) fn set(&self, metric: &str, reading: &Reading) {
        let samples = match reading {
            Reading::Value(value) => vec![*value],
            Reading::Several(values) => values.clone(),
            Reading::Empty => Vec::new(),
            Reading::Fails(_) => panic!("a real Prometheus does not fail on demand"),
        };
        self.0.lock().insert(metric.to_owned(), samples);
    }
}

fn serve(listener: &TcpListener, table: &Table) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { continue };
        // Whatever is asked, the answer is the same.
        let _ = stream.read(&mut [0; 4096]);
        let body = text(&table.lock());
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
    }
}

fn text(table: &BTreeMap<String, Vec<f64>>) -> String {
    let mut text = String::new();
    for (metric, samples) in table {
        for (index, sample) in samples.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{metric}{{series=\"{index}\"}} {sample}");
        }
    }
    text
}
