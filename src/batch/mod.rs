//! Batches in host memory.
//!
//! 1. `schema`: the fields of a batch, each with a name, a [`Dtype`] and a shape, and their offsets
//!    in the buffer.
//! 2. `write`: [`Writer`], the last pass over an image: normalise, cast, lay out.
//! 3. `memory`: the memory of a buffer, page-locked or pageable.
//! 4. `slot`: the life cycle of a batch buffer: free, filling, full, and free again.
//! 5. `host`: [`HostBatch`], a full slot that the user holds.
//! 6. `mix`: MixUp and CutMix over a complete batch; `soft`: its labels as rows of shares.
//! 7. `dlpack`: the same memory for other frameworks, without a copy.
//! 8. `feed`: the interface of all sources of batches.
//!
//! Slots are allocated once, when the loader is opened.

mod dlpack;
mod feed;
mod host;
#[allow(unsafe_code)]
mod memory;
mod mix;
mod schema;
#[allow(unsafe_code)]
mod slot;
mod soft;
mod write;

pub use dlpack::{DlDevice, DlManagedTensor, DlManagedTensorVersioned, DlTensor, DlpackTensor};
pub(crate) use feed::{Delivered, Feed};
pub use host::{Element, HostBatch, TensorView};
pub(crate) use host::{Home, Keeper};
#[cfg(feature = "cuda")]
pub(crate) use host::{no_label_field, no_labels};
pub(crate) use memory::Memory;
pub(crate) use mix::mix;
pub(crate) use schema::{ALIGN, COUNT, Role, SOFT_LABEL, Schema, Span};
pub use schema::{Dtype, Field, Layout, Normalize};
pub(crate) use slot::{Free, Full, Header, Part, Row, Slots};
pub(crate) use soft::soft_label;
pub use write::Writer;
