//! The body of an answer: what came in, or a text that may stall, break off, and have trailers.

use super::wish::{Break, Wish};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::header::HeaderMap;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Before it breaks off, so that what came before is on its way.
const FLUSH: Duration = Duration::from_millis(20);

pub(super) enum Body {
    /// The request's, as it comes.
    Returned(Incoming),
    Told(Told),
}

/// Its parts in their order.
#[derive(Default)]
pub(super) struct Told {
    first: Option<Bytes>,
    stall: Option<Pin<Box<Sleep>>>,
    breaks: bool,
    rest: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

// === impl Body ===

impl Body {
    /// `text`, as the request wants it.
    pub(super) fn told(text: String, wish: &mut Wish) -> Self {
        let mut rest = Bytes::from(text);
        let breaks = wish.breaks == Some(Break::Body);
        let parted = breaks || wish.stall.is_some();
        let first = parted.then(|| rest.split_to(rest.len() / 2));
        let stall = wish.stall.or_else(|| breaks.then_some(FLUSH)).map(|stall| Box::pin(sleep(stall)));
        Self::Told(Told { first, stall, breaks, rest: Some(rest), trailers: wish.trailers.take() })
    }

    /// Nothing.
    pub(super) fn empty() -> Self {
        Self::Told(Told::default())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.get_mut() {
            Self::Returned(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
            Self::Told(told) => told.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Returned(body) => body.is_end_stream(),
            Self::Told(told) => told.rest.is_none() && told.trailers.is_none(),
        }
    }

    /// Exact where the length may be announced.
    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Returned(body) => body.size_hint(),
            Self::Told(told) if told.first.is_some() || told.trailers.is_some() => SizeHint::default(),
            Self::Told(told) => SizeHint::with_exact(told.rest.as_ref().map_or(0, Bytes::len) as u64),
        }
    }
}

// === impl Told ===

impl Told {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        if let Some(stall) = &mut self.stall {
            ready!(stall.as_mut().poll(context));
            self.stall = None;
        }
        if self.breaks {
            return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::ConnectionAborted).into())));
        }
        if let Some(rest) = self.rest.take() {
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }
}
