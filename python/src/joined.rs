use std::sync::Arc;

use pyo3::prelude::*;

use crate::answer::{Answer, Shared, Waits, bytes};
use crate::either::{either, of};
use crate::error::Raised as _;
use crate::waiting::dropping;

type DynamicBatcher<B> = warpfeed::DynamicBatcher<B, Py<PyAny>>;

either! {
    /// Requests that wait for a batch, with their futures.
    Requests of DynamicBatcher
}

/// A batch that has begun: its answer, and the value and the number of images of each request.
type Begun = (Answer, Vec<(Py<PyAny>, usize)>);

/// Joins the images of several requests into batches.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct JoinedCore {
    requests: Option<Requests>,
    shared: Arc<Shared>,
}

impl JoinedCore {
    pub(crate) fn new(requests: Requests, shared: Arc<Shared>) -> Self {
        JoinedCore { requests: Some(requests), shared }
    }

    fn requests(&self) -> &Requests {
        self.requests.as_ref().expect("it leaves in drop only")
    }
}

#[pymethods]
impl JoinedCore {
    /// Submits `images` as one request, and returns its number. `value` comes back with the
    /// batch.
    fn submit(&self, py: Python<'_>, images: Vec<Bound<'_, PyAny>>, value: Py<PyAny>) -> PyResult<u64> {
        let images = images.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| of!(Requests, self.requests(), requests => requests.submit(images, value))).raised(py)
    }

    /// Takes a request back that does not belong to a batch yet. Returns whether it was taken back.
    fn cancel(&self, py: Python<'_>, request: u64) -> bool {
        py.detach(|| of!(Requests, self.requests(), requests => requests.cancel(request))).is_some()
    }

    /// Waits for the next batch to begin. `None` after `close`, once all requests were in a batch.
    fn next(&self, py: Python<'_>) -> Option<Begun> {
        let (waits, requests) = py.detach(|| match self.requests() {
            Requests::Host(requests) => requests.next().map(|batch| (Waits::Host(batch.pending), batch.requests)),
            #[cfg(feature = "cuda")]
            Requests::Cuda(requests) => requests.next().map(|batch| (Waits::Cuda(batch.pending), batch.requests)),
        })?;
        let requests = requests.into_iter().map(|(value, places)| (value, places.len())).collect();
        Some((Answer::new(waits, self.shared.clone()), requests))
    }

    /// Refuses further requests, and begins a batch with those that wait.
    fn close(&self, py: Python<'_>) {
        py.detach(|| of!(Requests, self.requests(), requests => requests.close()));
    }
}

impl Drop for JoinedCore {
    fn drop(&mut self) {
        dropping(&self.shared.process, self.requests.take());
    }
}
