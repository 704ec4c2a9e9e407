//! Plays the same random requests to the simulated cluster and to the server of a kubeconfig and lists where the answers differ:
//! `cargo run -p elasti-fake_cluster --example compare -- --kubeconfig FILE [--seed N] [--length N] [--most N]`.
//! Never decides who is right, but ends with an error if more answers differ than are known to (docs/simulated-cluster.md).

use std::error::Error;

use elasti_fake_cluster::api_server::{ApiServer, ApiServerConfig};
use elasti_fake_cluster::recorder;
use kube::config::{KubeConfigOptions, Kubeconfig};

struct Wish {
    kubeconfig: String,
    seed: u64,
    length: usize,
    most: usize,
}

fn read() -> Result<Wish, Box<dyn Error>> {
    let mut wish = Wish {
        kubeconfig: String::new(),
        seed: 1,
        length: 500,
        most: 15,
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    for pair in words.chunks(2) {
        match pair {
            [flag, value] if flag == "--kubeconfig" => wish.kubeconfig = value.clone(),
            [flag, value] if flag == "--seed" => wish.seed = value.parse()?,
            [flag, value] if flag == "--length" => wish.length = value.parse()?,
            [flag, value] if flag == "--most" => wish.most = value.parse()?,
            other => return Err(format!("not known: {other:?}").into()),
        }
    }
    Ok(wish)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let wish = read()?;
    let requests = recorder::sequence(wish.seed, wish.length);
    let kubeconfig = Kubeconfig::read_from(&wish.kubeconfig)?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    let theirs = recorder::record(&kube::Client::try_from(config)?, &requests).await?;
    let fake_cluster = ApiServer::new(ApiServerConfig::default());
    let ours = recorder::record(&fake_cluster.client(), &requests).await?;
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
    let (differ, all) = (differences.len(), requests.len());
    println!("seed {}: {differ} of {all} answers differ", wish.seed);
    match differ > wish.most {
        true => Err(format!("more than {} answers differ", wish.most).into()),
        false => Ok(()),
    }
}
