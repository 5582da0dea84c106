//! Device batches, and the stream that libtorch uses.

#![allow(unsafe_code)]

use std::sync::Arc;

use warpfeed::batch::DlpackTensor;
use warpfeed::cuda::cudarc::driver::CudaStream;
use warpfeed::{CudaBatch, Result};

use crate::libtorch;
use crate::share::Fields;

/// Returns libtorch's current stream of the calling thread on CUDA device `ordinal`, to pass to
/// [`Loader::cuda`](warpfeed::Loader::cuda). This is the default stream, unless libtorch code
/// outside tch has set a different stream.
///
/// # Errors
/// If libtorch was built without CUDA, if the device does not exist, if libtorch did not create the
/// stream (an external stream), or if a driver call fails.
pub fn stream(ordinal: usize) -> Result<Arc<CudaStream>> {
    let handle = libtorch::stream(ordinal)?;
    // SAFETY: `libtorch::stream` returns only libtorch's own streams, which it never destroys.
    unsafe { warpfeed::cuda::borrowed_stream(ordinal, handle) }
}

impl Fields for CudaBatch {
    fn wait_on_current_stream(&self) -> Result<()> {
        let Some(field) = self.fields().find_map(|field| self.field(&field.name)) else { return Ok(()) };
        let handle = libtorch::stream(field.device())?;
        // SAFETY: libtorch uses the primary context. `libtorch::stream` returns only libtorch's own
        // streams, which it never destroys.
        unsafe { self.use_on(handle) }
    }

    fn export(self: &Arc<Self>, name: &str) -> Option<DlpackTensor> {
        self.dlpack(name)
    }

    fn image_name(&self) -> String {
        let images = self.images().device_ptr();
        let is_image = |name: &String| self.field(name).is_some_and(|field| field.device_ptr() == images);
        self.names().into_iter().find(is_image).expect("the image field is one of the fields")
    }

    fn check_labels(&self) -> Result<()> {
        self.labels().map(|_| ())
    }

    fn names(&self) -> Vec<String> {
        self.fields().map(|field| field.name.clone()).filter(|name| self.field(name).is_some()).collect()
    }

    fn valid_samples(&self) -> Vec<bool> {
        self.valid().collect()
    }
}
