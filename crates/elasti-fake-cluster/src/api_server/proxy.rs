//! `pods/NAME:PORT/proxy/…`: forwards a request to a pod.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join;
use http::{Request, Response, header};
use http_body_util::{BodyExt as _, Empty, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::ApiServer;
use super::object::Object as _;
use super::request::ApiRequest;
use super::serve::{Body, refuse};
use super::status::ApiError;
use super::store::Key;

const TIMEOUT: Duration = Duration::from_secs(30);
/// What a pod may answer.
const MOST_BYTES: usize = 16 << 20;

impl ApiServer {
    /// The pod's own answer, whatever its code; who may ask has been checked.
    pub(super) async fn proxy(&self, request: &ApiRequest) -> Response<Body> {
        let address = match self.pod_address(request) {
            Ok(address) => address,
            Err(error) => return refuse(&error),
        };
        match timeout(TIMEOUT, carry(address, &request.beyond)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => refuse(&ApiError::ServiceUnavailable(format!(
                "error trying to reach service: {why}"
            ))),
            Err(_) => refuse(&ApiError::ServiceUnavailable(
                "error trying to reach service: context deadline exceeded".to_owned(),
            )),
        }
    }

    /// `NAME`, `NAME:PORT` or `SCHEME:NAME:PORT`; without a port, the first of the pod's containers.
    fn pod_address(&self, request: &ApiRequest) -> Result<SocketAddr, ApiError> {
        let parts: Vec<&str> = request.name.split(':').collect();
        let (name, port) = match parts.as_slice() {
            [name] => (*name, ""),
            [name, port] | ["" | "http", name, port] => (*name, *port),
            _ => {
                let why = format!("invalid pod request {:?}", request.name);
                return Err(ApiError::BadRequest(why));
            }
        };
        let key = Key::new(&request.namespace, name);
        let pod = self
            .state
            .lock()
            .store
            .get(&request.resource.group_resource, &key);
        let pod = pod.ok_or_else(|| request.not_found())?;
        let first = pod.value.number("/spec/containers/0/ports/0/containerPort");
        let port = match port {
            "" => first.and_then(|port| u16::try_from(port).ok()),
            port => port.parse().ok(),
        };
        let ip: Option<IpAddr> = pod.value.text("/status/podIP").parse().ok();
        match (ip, port) {
            (Some(ip), Some(port)) => Ok(SocketAddr::new(ip, port)),
            _ => Err(ApiError::BadRequest("address not allowed".to_owned())),
        }
    }
}

async fn carry(address: SocketAddr, path: &str) -> Result<Response<Body>, String> {
    let words = |error: &dyn std::error::Error| error.to_string();
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|_| format!("dial tcp {address}: connect: connection refused"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| words(&error))?;
    let asked = Request::get(path)
        .header(header::HOST, address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| words(&error))?;
    // The sender goes with the answer, and the connection with it.
    let answered = async move {
        let answer = sender.send_request(asked).await.map_err(|e| words(&e))?;
        let (mut head, body) = answer.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        head.headers.remove(header::TRANSFER_ENCODING);
        head.headers.remove(header::CONNECTION);
        Ok(Response::from_parts(head, Full::new(body).boxed_unsync()))
    };
    join(answered, connection).await.0
}
