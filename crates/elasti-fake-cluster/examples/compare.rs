//! Plays the same random requests to the simulated cluster and to the server of a kubeconfig and lists where the answers differ:
//! `cargo run -p elasti-fake-cluster --example compare -- --kubeconfig FILE [--seed N] [--length N] [--most N]`.

use std::error::Error;

use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_fake_cluster::recorder;
use kube::config::{KubeConfigOptions, Kubeconfig};

struct Options {
    kubeconfig: String,
    seed: u64,
    length: usize,
    most: usize,
}

fn parse_arguments() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        kubeconfig: String::new(),
        seed: 1,
        length: 500,
        most: 15,
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        match pair {
            [flag, value] if flag == "--kubeconfig" => options.kubeconfig = value.clone(),
            [flag, value] if flag == "--seed" => options.seed = value.parse()?,
            [flag, value] if flag == "--length" => options.length = value.parse()?,
            [flag, value] if flag == "--most" => options.most = value.parse()?,
            other => return Err(format!("unknown argument: {other:?}").into()),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = parse_arguments()?;
    let requests = recorder::sequence(options.seed, options.length);
    let kubeconfig = Kubeconfig::read_from(&options.kubeconfig)?;
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let theirs = recorder::record(&kube::Client::try_from(config)?, &requests).await?;
    let fake_cluster = ApiServer::new(ApiServerConfig::default());
    let ours = recorder::record(&fake_cluster.client(), &requests).await?;
    let differences = recorder::differences(&theirs, &ours);
    for (their, our) in &differences {
        println!(
            "{} {} {}\n  theirs {} {}\n  ours   {} {}",
            our.request.method,
            our.request.path,
            our.request.body,
            their.code,
            their.body,
            our.code,
            our.body
        );
    }
    let (differ, all) = (differences.len(), requests.len());
    println!("seed {}: {differ} of {all} answers differ", options.seed);
    match differ > options.most {
        true => Err(format!("more than {} answers differ", options.most).into()),
        false => Ok(()),
    }
}
