//! Converts host batches to candle tensors.

use candle_core::{Device, Result, Tensor};
use warpfeed::{Dtype, HostBatch, TensorView};

use crate::convert::{Fields, unsupported_dtype};

impl Fields for HostBatch {
    type View<'a> = TensorView<'a>;

    fn image_view(&self) -> TensorView<'_> {
        self.images()
    }

    fn label_view(&self) -> warpfeed::Result<TensorView<'_>> {
        self.labels()?;
        Ok(self.field("label").expect("a batch with labels has the field `label`"))
    }

    fn field_view(&self, name: &str) -> Option<TensorView<'_>> {
        self.field(name)
    }

    fn count_view(&self, name: &str) -> Option<TensorView<'_>> {
        self.counts(name)?;
        self.field(&format!("{name}.count"))
    }

    fn names(&self) -> Vec<&str> {
        self.fields().map(|field| field.name.as_str()).collect()
    }

    fn valid_bytes(&self) -> Vec<u8> {
        self.valid().map(u8::from).collect()
    }

    fn tensor(&self, name: &str, view: TensorView<'_>, device: &Device) -> Result<Tensor> {
        const TYPE_CHECKED: &str = "the element type was checked above";
        let shape = view.shape();
        match view.dtype() {
            Dtype::U8 => Tensor::from_slice(view.as_u8().expect(TYPE_CHECKED), shape, device),
            Dtype::F32 => Tensor::from_slice(view.as_f32().expect(TYPE_CHECKED), shape, device),
            Dtype::F64 => Tensor::from_slice(view.elements::<f64>().expect(TYPE_CHECKED), shape, device),
            Dtype::F16 => Tensor::from_slice(view.as_f16().expect(TYPE_CHECKED), shape, device),
            Dtype::Bf16 => Tensor::from_slice(view.as_bf16().expect(TYPE_CHECKED), shape, device),
            Dtype::I16 => Tensor::from_slice(view.elements::<i16>().expect(TYPE_CHECKED), shape, device),
            Dtype::I32 => Tensor::from_slice(view.elements::<i32>().expect(TYPE_CHECKED), shape, device),
            Dtype::I64 => Tensor::from_slice(view.as_i64().expect(TYPE_CHECKED), shape, device),
            other => Err(unsupported_dtype(name, other)),
        }
    }
}
