//! Pods where there are no nodes: each is ready as soon as it is created, and this process answers at its address.

use std::net::Ipv4Addr;
use std::pin::pin;

use elasti_e2e::TestEnv;
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::objects::PORT;

const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";

/// An address of this machine that an EndpointSlice may have: loopback addresses are refused.
/// `cargo xtask bench ten-thousand` makes this network local.
pub(crate) fn address(third: u8, fourth: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 202, third, fourth)
}

/// Until the end.
pub(crate) async fn run(env: TestEnv) {
    let everywhere = (Ipv4Addr::UNSPECIFIED, PORT);
    let listener = TcpListener::bind(everywhere).await.unwrap();
    tokio::spawn(answer_all(listener));
    let pods: Api<Pod> = Api::all(env.api().0.clone());
    let listed = pods.list(&ListParams::default().limit(1)).await.unwrap();
    let mut version = listed.metadata.resource_version.unwrap();
    // Network and broadcast addresses are left out.
    let mut addresses = (1..=u8::MAX).flat_map(|third| (1..255).map(move |last| (third, last)));
    loop {
        let params = WatchParams::default().timeout(290);
        let mut events = pin!(pods.watch(&params, &version).await.unwrap());
        while let Some(event) = events.try_next().await.unwrap() {
            let metadata = match event {
                WatchEvent::Added(pod) => {
                    let (third, last) = addresses.next().unwrap();
                    let (env, metadata) = (env.clone(), pod.metadata.clone());
                    tokio::spawn(async move {
                        let (namespace, name) =
                            (metadata.namespace.unwrap(), metadata.name.unwrap());
                        env.make_pod_ready(&namespace, &name, address(third, last))
                            .await;
                    });
                    pod.metadata
                }
                WatchEvent::Modified(pod) | WatchEvent::Deleted(pod) => pod.metadata,
                WatchEvent::Bookmark(bookmark) => {
                    version = bookmark.metadata.resource_version;
                    continue;
                }
                WatchEvent::Error(error) => panic!("{error:?}"),
            };
            version = metadata.resource_version.unwrap();
        }
    }
}

async fn answer_all(listener: TcpListener) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(answer(stream));
    }
}

/// Reads one request without a body; a connection that closes before its end was a probe.
async fn answer(mut stream: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_buf(&mut head).await {
            Ok(1..) => {}
            _ => return,
        }
    }
    // The resolver may have gone; its client tells.
    let _ = stream.write_all(ANSWER.as_bytes()).await;
}
