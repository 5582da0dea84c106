//! Batches in host memory.
//!
//! The memory of a batch is called a slot. All slots are allocated when the loader is opened.

mod dlpack;
mod feed;
mod fused;
mod host;
mod info;
#[allow(unsafe_code)]
mod memory;
mod mix;
mod packing;
#[doc(hidden)] // for tests and benchmarks, as in `cuda::internal`
pub mod records;
mod schema;
#[allow(unsafe_code)]
mod slot;
mod soft;
mod write;

pub use dlpack::{DlDevice, DlManagedTensor, DlManagedTensorVersioned, DlTensor, DlpackTensor};
pub(crate) use feed::{Delivered, Feed, ReleaseDeferred, RunPlan, Wait, is_recoverable, threads_ended_error};
pub use host::{Element, HostBatch, TensorView};
pub(crate) use host::{MakeReclaimer, SlotReclaimer, SlotReturn};
pub use info::BatchInfo;
pub(crate) use info::{BatchHeader, LaunchStats};
pub(crate) use memory::SlotMemory;
pub(crate) use mix::mix;
#[cfg(feature = "video")]
pub(crate) use records::YuvRegion;
pub(crate) use records::{DecodeOps, EncodedLocation, SampleOps};
pub(crate) use schema::{
    COUNT_SUFFIX, CU_SEQLENS_SUFFIX, ENDS_SUFFIX, GRID_THW_SUFFIX, IMAGES_SUFFIX, Role, SOFT_LABEL, SPAN_ALIGN, Schema,
    Schemas, Span,
};
pub use schema::{Dtype, Field, Layout, Normalize};
pub(crate) use slot::{FilledSlot, FreeSlot, Row, SlotPart};
pub(crate) use soft::write_soft_label;
pub use write::BatchWriter;
pub(crate) use write::UncastImage;
