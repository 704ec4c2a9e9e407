//! What a tenant's triggers ask, and how the servers that it names answer.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::tenant::{Tenant, trigger};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n";

/// How a server of the tenant's answers, whatever it is asked.
#[derive(Clone, Copy)]
enum Answer {
    Silence,
    Endless,
    Drip,
    Bytes(&'static str),
}

impl Tenant {
    pub(super) async fn slow_triggers(&self) {
        let prometheus = &self.env.fake_cluster().prometheus;
        prometheus.set_delay_of("slow_", Duration::from_secs(4));
        let server = self.env.prometheus();
        for object in 0..50 {
            let triggers: Vec<Value> = (0..32)
                .map(|n| trigger(&format!("slow_{object}_{n}"), &server))
                .collect();
            let name = format!("slow-{object}");
            self.make(&name, json!({"triggers": triggers})).await;
        }
    }

    pub(super) async fn silent_servers(&mut self) {
        for n in 0..24 {
            let server = self.serve(Answer::Silence).await;
            self.read_from(&format!("silent-{n}"), &server).await;
        }
    }

    pub(super) async fn endless_answers(&mut self) {
        for (name, answer) in [("endless", Answer::Endless), ("drip", Answer::Drip)] {
            let server = self.serve(answer).await;
            self.read_from(name, &server).await;
        }
    }

    /// The attack has ended, and the suite fails, if the operator follows.
    pub(super) async fn redirected_queries(&mut self) {
        let secret = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = secret.local_addr().unwrap();
        let location = format!(
            "HTTP/1.1 307 X\r\nLocation: http://{address}/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        let server = self.serve(Answer::Bytes(location.leak())).await;
        self.read_from("redirected", &server).await;
        self.tasks.spawn(async move { drop(secret.accept().await) });
    }

    pub(super) async fn not_numbers(&mut self) {
        let series = |value: &str| {
            let result = json!([{"metric": {}, "value": [1, value]}]);
            let data = json!({"resultType": "vector", "result": result});
            let body = json!({"status": "success", "data": data});
            format!("{OK}{body}").leak()
        };
        for (n, answer) in [
            series("NaN"),
            series("+Inf"),
            series("1e999"),
            "\u{16}\u{3}no",
        ]
        .into_iter()
        .enumerate()
        {
            let server = self.serve(Answer::Bytes(answer)).await;
            self.read_from(&format!("odd-number-{n}"), &server).await;
        }
    }

    /// An object with 8 triggers at this server.
    async fn read_from(&self, name: &str, server: &str) {
        let triggers: Vec<Value> = (0..8)
            .map(|n| trigger(&format!("{name}_{n}"), server))
            .collect();
        self.make(name, json!({"triggers": triggers})).await;
    }

    /// A server of the tenant's; gives its address.
    async fn serve(&mut self, answer: Answer) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        self.tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((mut stream, _)) = listener.accept().await else {
                    continue;
                };
                connections.spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    match answer {
                        Answer::Silence => std::future::pending::<()>().await,
                        Answer::Bytes(bytes) => drop(stream.write_all(bytes.as_bytes()).await),
                        Answer::Endless => {
                            let _ = stream.write_all(OK.as_bytes()).await;
                            while stream.write_all(&[b' '; 8192]).await.is_ok() {}
                        }
                        Answer::Drip => {
                            let _ = stream.write_all(OK.as_bytes()).await;
                            while stream.write_all(b" ").await.is_ok() {
                                sleep(Duration::from_secs(1)).await;
                            }
                        }
                    }
                });
            }
        });
        format!("http://{address}")
    }
}
