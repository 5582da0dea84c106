//! Batches in host memory.
//!
//! 1. `schema`: the fields of a batch, each with a name, a [`Dtype`] and a shape, and their offsets
//!    in the buffer.
//! 2. `write`: [`BatchWriter`], the last pass over an image, which normalizes, casts and lays out
//!    its pixels. `fused`: a multiply-add with the same bits on every platform.
//! 3. `memory`: the memory of a slot, page-locked or pageable.
//! 4. `info`: [`BatchInfo`], the metadata of a batch.
//! 5. `slot`: the life cycle of a batch buffer: free, being filled, full, and free again.
//! 6. `host`: [`HostBatch`], a full slot that the consumer holds.
//! 7. `mix`: MixUp and CutMix over a complete batch. `soft`: soft labels. `packing`: removes the
//!    space between samples with variable numbers of rows.
//! 8. `dlpack`: shares the memory of a batch with other frameworks, without copying it.
//! 9. `feed`: the interface for receiving batches in order.
//! 10. `records`: instructions for a device, in one record per sample or image.
//!
//! All slots are allocated when the loader is opened.

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
pub(crate) use feed::{Delivered, Feed, RunPlan, Wait, is_recoverable, threads_ended_error};
pub use host::{Element, HostBatch, TensorView};
pub(crate) use host::{Keeper, MakeKeeper, SlotReturn};
pub use info::BatchInfo;
pub(crate) use info::{Header, Largest};
pub(crate) use memory::SlotMemory;
pub(crate) use mix::mix;
#[cfg(feature = "video")]
pub(crate) use records::YuvRegion;
pub(crate) use records::{DecodeOps, Encoded, SampleOps};
pub(crate) use schema::{ALIGN, COUNT, CU_SEQLENS, ENDS, GRID_THW, IMAGES, Role, SOFT_LABEL, Schema, Schemas, Span};
pub use schema::{Dtype, Field, Layout, Normalize};
pub(crate) use slot::{FilledSlot, FreeSlot, Row, SlotPart, Slots};
pub(crate) use soft::soft_label;
pub use write::BatchWriter;
pub(crate) use write::UncastImage;
