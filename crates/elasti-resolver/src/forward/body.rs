//! The body of an answer: streamed from a pod, or a few words of our own.
//! Never collects: one frame at a time, as fast as the client reads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::pool::Http1;
use crate::pod::{PodState, UnderWay};
use crate::table::Open;

/// What lives as long as an answer is under way.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) _open: Open,
    pub(crate) _under_way: UnderWay,
    /// The connection to give back at the end.
    pub(crate) back: Option<(Arc<PodState>, Http1)>,
}

/// An answer's body.
#[derive(Debug)]
pub(crate) enum Body {
    /// A pod's.
    Pod(Incoming, Option<Carried>),
    /// Ours.
    Own(Option<Bytes>),
}

impl Body {
    pub(crate) fn of_pod(incoming: Incoming, carried: Carried) -> Self {
        let mut carried = Some(carried);
        if http_body::Body::is_end_stream(&incoming) {
            finish(&mut carried);
        }
        Self::Pod(incoming, carried)
    }

    pub(crate) fn of_words(words: impl Into<Bytes>) -> Self {
        let words = words.into();
        Self::Own(Some(words).filter(|words| !words.is_empty()))
    }
}

/// The answer has ended in order, so its connection can carry the next one.
fn finish(carried: &mut Option<Carried>) {
    if let Some((state, sender)) = carried.take().and_then(|carried| carried.back) {
        state.pool.keep(sender);
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
            Self::Pod(incoming, carried) => {
                let frame = ready!(Pin::new(&mut *incoming).poll_frame(cx));
                match &frame {
                    Some(Err(_)) => *carried = None,
                    Some(Ok(_)) if !http_body::Body::is_end_stream(incoming) => {}
                    Some(Ok(_)) | None => finish(carried),
                }
                Poll::Ready(frame)
            }
            Self::Own(words) => Poll::Ready(words.take().map(|words| Ok(Frame::data(words)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pod(incoming, _) => http_body::Body::is_end_stream(incoming),
            Self::Own(words) => words.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pod(incoming, _) => http_body::Body::size_hint(incoming),
            Self::Own(words) => {
                SizeHint::with_exact(words.as_ref().map_or(0, |words| words.len() as u64))
            }
        }
    }
}
