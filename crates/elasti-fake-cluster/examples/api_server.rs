//! Serves the simulated cluster's API on a loopback port until it is interrupted: `cargo run --example api_server -- 8001 kubeconfig`.

use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let port = arguments
        .next()
        .and_then(|port| port.parse().ok())
        .unwrap_or(8001);
    let server = ApiServer::new(ApiServerConfig::default());
    let listening = server.listen(port).await?;
    if let Some(path) = arguments.next() {
        std::fs::write(path, server.kubeconfig(listening.address))?;
    }
    println!("serving on http://{}", listening.address);
    std::future::pending().await
}
