use std::sync::Arc;

use pyo3::prelude::*;

use crate::answer::{Answer, Shared, Waits, bytes};
use crate::either::{either, of};
use crate::error::Raised as _;
use crate::waiting::dropping;

type DynamicBatcher<B> = warpfeed::DynamicBatcher<B, Py<PyAny>>;

either! {
    /// The queue of requests that wait for a batch, with their futures.
    Requests of DynamicBatcher
}

/// A batch that has started: its pending response, and the value and number of images of each
/// request.
type Begun = (Answer, Vec<(Py<PyAny>, usize)>);

/// Dynamic batching: combines the images of several requests into batches.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DynamicBatcherCore {
    requests: Option<Requests>,
    shared: Arc<Shared>,
}

impl DynamicBatcherCore {
    pub(crate) fn new(requests: Requests, shared: Arc<Shared>) -> Self {
        DynamicBatcherCore { requests: Some(requests), shared }
    }

    fn requests(&self) -> &Requests {
        self.requests.as_ref().expect("it leaves in drop only")
    }
}

#[pymethods]
impl DynamicBatcherCore {
    /// Submits `images` as one request and returns the request's id. `value` is returned together
    /// with the batch.
    fn submit(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>, value: Py<PyAny>) -> PyResult<u64> {
        let images = images.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| of!(Requests, self.requests(), requests => requests.submit(images, value))).raised(py)
    }

    /// Cancels a request that is not part of a batch yet. Returns whether it was cancelled.
    fn cancel(&self, py: Python<'_>, request: u64) -> bool {
        py.detach(|| of!(Requests, self.requests(), requests => requests.cancel(request))).is_some()
    }

    /// Waits for the next batch to start. Returns `None` once the batcher is closed and every
    /// request has become part of a batch.
    fn next(&self, py: Python<'_>) -> Option<Begun> {
        let (waits, requests) = py.detach(|| match self.requests() {
            Requests::Host(requests) => requests.next().map(|batch| (Waits::Host(batch.pending), batch.requests)),
            #[cfg(feature = "cuda")]
            Requests::Cuda(requests) => requests.next().map(|batch| (Waits::Cuda(batch.pending), batch.requests)),
        })?;
        let requests = requests.into_iter().map(|(value, places)| (value, places.len())).collect();
        Some((Answer::new(waits, self.shared.clone()), requests))
    }

    /// Rejects further requests, and starts a batch with the waiting ones.
    fn close(&self, py: Python<'_>) {
        py.detach(|| of!(Requests, self.requests(), requests => requests.close()));
    }
}

impl Drop for DynamicBatcherCore {
    fn drop(&mut self) {
        dropping(&self.shared.process, self.requests.take());
    }
}
