//! Runs a whole town until it is interrupted: `cargo run --example town -- kubeconfig 2`.
//! Never touches another kubeconfig than the one it is told to write.

use elasti_town::Town;
use elasti_town::api_server::ApiServerConfig;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "kubeconfig".to_owned());
    let nodes = arguments
        .next()
        .and_then(|nodes| nodes.parse().ok())
        .unwrap_or(2);
    let town = Town::start(ApiServerConfig::default(), nodes).await?;
    town.install_rollouts_and_keda();
    std::fs::write(&path, town.kubeconfig())?;
    println!(
        "API on http://{}, Prometheus on http://{}; try: kubectl --kubeconfig {path} get nodes",
        town.address(),
        town.prometheus.address
    );
    std::future::pending().await
}
