//! A stub Prometheus for idle services: it is up, and every query of a trigger is 0.
//! A real one counts as unknown until it has been up for a cooldown of 15 minutes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use serde_json::json;

/// Serves until the process ends.
pub(crate) fn serve(address: SocketAddr) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = [0; 16_384];
            let length = stream.read(&mut asked).unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..length]);
            // Only the question for its uptime looks back.
            let value = if asked.contains("min_over_time") {
                "1"
            } else {
                "0"
            };
            let now = jiff::Timestamp::now().as_second();
            let result = json!([{"metric": {}, "value": [now, value]}]);
            let body =
                json!({"status": "success", "data": {"resultType": "vector", "result": result}})
                    .to_string();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
}
