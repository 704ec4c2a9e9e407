//! `elasti dashboard`: the page, served on this machine with the user's permissions.

use std::net::SocketAddr;

use anyhow::Context as _;
use clap::Args;
use elasti_dashboard::held::Proxy;
use elasti_dashboard::{Price, Running, Settings};
use elasti_runtime::exit::{self, Failed};
use elasti_runtime::signals::EndSignals;

use crate::access::{Access, block_on};
use crate::why;

/// Serves a web page that shows every service: asleep or awake, why, and what that saves.
///
/// It uses your own permissions, listens on this machine only, and runs until Ctrl-C. The printed address contains a
/// token that allows waking, sleeping and pausing. Without -n it shows all namespaces.
///
/// Example: elasti dashboard -n shop
#[derive(Args, Debug)]
#[command(after_help = exit::CODES, verbatim_doc_comment)]
pub struct Dashboard {
    #[command(flatten)]
    access: Access,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: SocketAddr,
    /// A host name that browsers may use, besides its address and localhost
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Read-only: no waking, sleeping or pausing from the page
    #[arg(long)]
    read_only: bool,
    /// Price of a CPU core-hour and a GiB-hour of memory, to show savings in money: 0.03,0.004,EUR; and of an hour of
    /// extended resources: 0.03,0.004,EUR,nvidia.com/gpu=2.1
    #[arg(long, value_name = "CPU,GIB,CURRENCY")]
    price: Option<Price>,
    /// Open the address in the browser
    #[arg(long)]
    open: bool,
}

impl Dashboard {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.serve())
    }

    async fn serve(self) -> Result<(), Failed> {
        let mut signals = EndSignals::listen().context("cannot listen for signals")?;
        let namespace = self.access.namespace.clone();
        let cluster = self.access.connect().await?;
        let shown = match &namespace {
            Some(namespace) => format!("namespace {namespace}"),
            None => "all namespaces".to_owned(),
        };
        let settings = Settings {
            listen: self.listen,
            place: match self.access.place() {
                Some(place) => format!("{place}, {shown}"),
                None => shown,
            },
            namespaces: namespace.into_iter().collect(),
            hosts: self.hosts,
            writes: !self.read_only,
            price: self.price,
            explain: Some(why::for_page()),
        };
        let held_source = Proxy::new(cluster.client.clone());
        let running = Running::start(settings, cluster.client, held_source).await;
        let running = running.with_context(|| format!("cannot listen on {}", self.listen))?;
        println!("Dashboard: {}", running.url());
        if !running.address.ip().is_loopback() {
            eprintln!("Others on the network can reach it too.");
        }
        if self.open {
            open(&running.url());
        }
        signals.next().await;
        Ok(())
    }
}

/// Without a browser the printed address still works.
fn open(url: &str) {
    let program = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    if std::process::Command::new(program)
        .arg(url)
        .spawn()
        .is_err()
    {
        eprintln!("Cannot open a browser; open the address yourself.");
    }
}
