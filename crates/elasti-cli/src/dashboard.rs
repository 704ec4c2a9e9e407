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

/// Serves a page that shows every service: asleep or awake, why, and what that saves.
///
/// It has your own rights and no more, listens on this machine only, and ends with Ctrl-C. The printed address
/// carries a token; whoever has it may wake, sleep and pause. Without -n it shows all namespaces.
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
    /// A name under which browsers may call it, besides its address and localhost
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
    /// Only show: nobody can wake, sleep or pause from the page
    #[arg(long)]
    read_only: bool,
    /// What an hour of a CPU core and of a GiB of memory cost, to tell savings in money: 0.03,0.004,EUR
    #[arg(long, value_name = "CPU,GIB,CURRENCY")]
    price: Option<Price>,
    /// Open the address in the browser
    #[arg(long)]
    open: bool,
}

impl Dashboard {
    pub(crate) fn run(self) -> Result<(), Failed> {
        block_on(self.until_told())
    }

    async fn until_told(self) -> Result<(), Failed> {
        let mut signals = EndSignals::listen().context("signals cannot be taken over")?;
        let namespace = self.access.namespace.clone();
        let cluster = self.access.connect().await?;
        let settings = Settings {
            listen: self.listen,
            place: match &namespace {
                Some(namespace) => format!("namespace {namespace}"),
                None => "all namespaces".to_owned(),
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
            eprintln!("Others on the network can see it too.");
        }
        if self.open {
            open(&running.url());
        }
        signals.next().await;
        Ok(())
    }
}

/// A browser that does not come is no reason to end: the address stands there.
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
        eprintln!("No browser could be opened; open the address yourself.");
    }
}
