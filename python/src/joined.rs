use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use warpfeed::HostBatch;

use crate::decoder::{Answer, Open, Shared, Waits, bytes};
use crate::error::Raised as _;
use crate::waiting::dropping;

/// Requests that wait for a batch, with their futures. Either kind of decoder.
enum Requests {
    Host(warpfeed::Joined<HostBatch, Py<PyAny>>),
    #[cfg(feature = "cuda")]
    Cuda(warpfeed::Joined<warpfeed::CudaBatch, Py<PyAny>>),
}

/// A batch that has begun: its answer, and the value and the number of pictures of each request.
type Begun = (Answer, Vec<(Py<PyAny>, usize)>);

/// Evaluates `$result` with either kind of requests.
macro_rules! of {
    ($value:expr, $it:ident => $result:expr) => {
        match $value {
            Requests::Host($it) => $result,
            #[cfg(feature = "cuda")]
            Requests::Cuda($it) => $result,
        }
    };
}

/// Joins the pictures of several requests into batches.
#[pyclass(frozen, module = "warpfeed._warpfeed")]
pub(crate) struct JoinedCore {
    requests: Option<Requests>,
    shared: Arc<Shared>,
}

impl JoinedCore {
    pub(crate) fn new(open: &Open, max_delay: Duration, shared: Arc<Shared>) -> warpfeed::Result<Self> {
        let requests = match open {
            Open::Host(decoder) => Requests::Host(decoder.joined(max_delay)?),
            #[cfg(feature = "cuda")]
            Open::Cuda(decoder) => Requests::Cuda(decoder.joined(max_delay)?),
        };
        Ok(JoinedCore { requests: Some(requests), shared })
    }

    fn requests(&self) -> &Requests {
        self.requests.as_ref().expect("it leaves in drop only")
    }
}

#[pymethods]
impl JoinedCore {
    /// Submits `pictures` as one request, and returns its number. `value` comes back with the
    /// batch.
    fn submit(&self, py: Python<'_>, pictures: Vec<Bound<'_, PyAny>>, value: Py<PyAny>) -> PyResult<u64> {
        let pictures = pictures.iter().map(bytes).collect::<PyResult<Vec<_>>>()?;
        py.detach(|| of!(self.requests(), requests => requests.submit(pictures, value))).raised(py)
    }

    /// Takes a request back that does not belong to a batch yet. Returns whether it was taken back.
    fn cancel(&self, py: Python<'_>, request: u64) -> bool {
        py.detach(|| of!(self.requests(), requests => requests.cancel(request))).is_some()
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
        py.detach(|| of!(self.requests(), requests => requests.close()));
    }
}

impl Drop for JoinedCore {
    fn drop(&mut self) {
        dropping(&self.shared.process, self.requests.take());
    }
}
