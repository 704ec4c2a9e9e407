//! Plays the same random requests to the town and to the server of a kubeconfig and lists where the answers differ:
//! `KUBECONFIG=… cargo run --example compare -- <seed> <length>`. Never decides who is right.

use elasti_town::api_server::{ApiServer, ApiServerConfig};
use elasti_town::recorder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse::<u64>().ok());
    let (seed, length) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(300));
    let requests = recorder::sequence(seed, usize::try_from(length)?);
    let other = kube::Client::try_default().await?;
    let theirs = recorder::record(&other, &requests).await?;
    let ours = recorder::record(
        &ApiServer::new(ApiServerConfig::default()).client(),
        &requests,
    )
    .await?;
    let differences = recorder::differences(&theirs, &ours);
    for (their, our) in &differences {
        println!(
            "{} {} {}\n  theirs {} {}\n  ours   {} {}",
            our.asked.method,
            our.asked.path,
            our.asked.body,
            their.code,
            their.body,
            our.code,
            our.body
        );
    }
    println!(
        "seed {seed}: {} of {} answers differ",
        differences.len(),
        requests.len()
    );
    Ok(())
}
