//! The bodies of requests and responses: streamed frame by frame, or a short text of our own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::http2_pool::StreamGuard;
use super::pool::Http1;
use crate::pod::{InFlightGuard, PodState};
use crate::table::OpenGuard;
use crate::unfinished_heads::OpenUpload;

/// A request's body, on its way to a pod.
#[derive(Debug)]
pub(crate) struct RequestBody {
    incoming: Incoming,
    /// Until it has ended.
    upload: Option<Arc<OpenUpload>>,
}

impl RequestBody {
    pub(crate) fn new(incoming: Incoming, upload: Option<Arc<OpenUpload>>) -> Self {
        Self { incoming, upload }
    }

    pub(crate) fn upload(&self) -> Option<Arc<OpenUpload>> {
        self.upload.clone()
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { incoming, upload } = self.get_mut();
        let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
        if !matches!(frame, Some(Ok(_))) || http_body::Body::is_end_stream(incoming) {
            *upload = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.incoming)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.incoming)
    }
}

/// What lives until the response has ended.
#[derive(Debug)]
pub(crate) struct ResponseGuard {
    pub(crate) _open: OpenGuard,
    pub(crate) _in_flight: InFlightGuard,
    pub(crate) _stream: Option<StreamGuard>,
    pub(crate) _upload: Option<Arc<OpenUpload>>,
    /// The connection that returns to the pool at the end.
    pub(crate) connection: Option<(Arc<PodState>, Http1)>,
}

/// A response's body.
#[derive(Debug)]
pub(crate) enum Body {
    /// A pod's.
    Pod(Incoming, Option<ResponseGuard>),
    /// Ours.
    Own(Option<Bytes>),
}

impl Body {
    pub(crate) fn from_pod(incoming: Incoming, guard: ResponseGuard) -> Self {
        let mut guard = Some(guard);
        if http_body::Body::is_end_stream(&incoming) {
            finish(&mut guard);
        }
        Self::Pod(incoming, guard)
    }

    pub(crate) fn from_text(text: impl Into<Bytes>) -> Self {
        let text = text.into();
        Self::Own(Some(text).filter(|text| !text.is_empty()))
    }
}

/// The response has ended in order, so its connection can be used again.
fn finish(guard: &mut Option<ResponseGuard>) {
    if let Some((state, sender)) = guard.take().and_then(|guard| guard.connection) {
        state.pool.put(sender);
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Pod(incoming, guard) => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    Some(Err(_)) => *guard = None,
                    Some(Ok(_)) if !http_body::Body::is_end_stream(incoming) => {}
                    Some(Ok(_)) | None => finish(guard),
                }
                Poll::Ready(frame)
            }
            Self::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pod(incoming, _) => http_body::Body::is_end_stream(incoming),
            Self::Own(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pod(incoming, _) => http_body::Body::size_hint(incoming),
            Self::Own(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
