//! Runs a whole simulated cluster until it is interrupted: `cargo run --example fake_cluster -- kubeconfig 2`.

use elasti_fake_cluster::FakeCluster;
use elasti_fake_cluster::api_server::ApiServerConfig;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "kubeconfig".to_owned());
    let nodes = arguments
        .next()
        .and_then(|nodes| nodes.parse().ok())
        .unwrap_or(2);
    let fake_cluster = FakeCluster::start(ApiServerConfig::default(), nodes).await?;
    fake_cluster.install_rollouts_and_keda();
    std::fs::write(&path, fake_cluster.kubeconfig())?;
    println!(
        "API on http://{}, Prometheus on http://{}; try: kubectl --kubeconfig {path} get nodes",
        fake_cluster.address(),
        fake_cluster.prometheus.address
    );
    std::future::pending().await
}
