use std::sync::Arc;

use pyo3::prelude::*;

use crate::either::{either, match_either};
use crate::error::Raised as _;
use crate::response::{DecoderState, PendingBatch, PendingResponse, image_bytes};
use crate::waiting::drop_detached;

type DynamicBatcher<B> = warpfeed::DynamicBatcher<B, Py<PyAny>>;

either! {
    /// The queue of a dynamic batcher. Each request has a Python future as its value.
    Requests of DynamicBatcher
}

/// A batch that is being decoded: its pending response, and the `value` and the number of images of
/// each request.
type StartedBatch = (PendingResponse, Vec<(Py<PyAny>, usize)>);

#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct DynamicBatcherCore {
    requests: Option<Requests>,
    shared: Arc<DecoderState>,
}

impl DynamicBatcherCore {
    pub(crate) fn new(requests: Requests, shared: Arc<DecoderState>) -> Self {
        DynamicBatcherCore { requests: Some(requests), shared }
    }

    fn requests(&self) -> &Requests {
        self.requests.as_ref().expect("only `drop` takes the requests")
    }
}

#[pymethods]
impl DynamicBatcherCore {
    /// Queues a request with `images`, and returns its id. [`next`](Self::next) returns `value`
    /// together with the batch that contains the images.
    fn submit(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>, value: Py<PyAny>) -> PyResult<u64> {
        let images = images.iter().map(image_bytes).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| match_either!(Requests, self.requests(), requests => requests.submit(images, value))).raised(py)
    }

    /// Removes a request from the queue. Returns false if it is already part of a batch.
    fn cancel(&self, py: Python<'_>, request: u64) -> bool {
        py.detach(|| match_either!(Requests, self.requests(), requests => requests.cancel(request))).is_some()
    }

    /// Waits for the next batch to start decoding. Returns `None` once the batcher is closed and
    /// all requests are in batches.
    fn next(&self, py: Python<'_>) -> Option<StartedBatch> {
        let (pending, requests) = py.detach(|| match self.requests() {
            Requests::Host(requests) => {
                requests.next().map(|batch| (PendingBatch::Host(batch.pending), batch.requests))
            }
            #[cfg(feature = "cuda")]
            Requests::Cuda(requests) => {
                requests.next().map(|batch| (PendingBatch::Cuda(batch.pending), batch.requests))
            }
        })?;
        let requests = requests.into_iter().map(|(value, positions)| (value, positions.len())).collect();
        Some((PendingResponse::new(pending, self.shared.clone()), requests))
    }

    /// Rejects new requests, and starts to decode the requests that are still queued.
    fn close(&self, py: Python<'_>) {
        py.detach(|| match_either!(Requests, self.requests(), requests => requests.close()));
    }
}

impl Drop for DynamicBatcherCore {
    fn drop(&mut self) {
        drop_detached(&self.shared.process, self.requests.take());
    }
}
