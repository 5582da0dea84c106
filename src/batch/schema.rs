//! The fields of a batch, and their layout in a slot.

use std::sync::Arc;

use crate::error::{Error, Result};

/// Element type of a batch field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dtype {
    /// 8-bit unsigned integer. Images of this type are not normalized, so their values are 0 to
    /// 255.
    U8,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE 754 half-precision float. Conversions to this type round to nearest, ties to even.
    F16,
    /// bfloat16. Conversions to this type round to nearest, ties to even.
    Bf16,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer, the type of labels.
    I64,
    /// 16-bit unsigned integer.
    U16,
}

impl Dtype {
    /// Returns the number of bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 | Dtype::I16 | Dtype::U16 => 2,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// Returns the minimum and maximum of an integer type, or `None` for a float type.
    pub(crate) fn integer_range(self) -> Option<(i64, i64)> {
        match self {
            Dtype::U8 => Some((0, u8::MAX.into())),
            Dtype::U16 => Some((0, u16::MAX.into())),
            Dtype::I16 => Some((i16::MIN.into(), i16::MAX.into())),
            Dtype::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            Dtype::I64 => Some((i64::MIN, i64::MAX)),
            Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::Bf16 => None,
        }
    }

    /// Returns the name of the type in NumPy and PyTorch: `uint8`, `float32`, `float64`, `float16`,
    /// `bfloat16`, `int16`, `int32`, `int64`, `uint16`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::U8 => "uint8",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::I16 => "int16",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::U16 => "uint16",
        }
    }
}

/// Order of the axes of an image batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// (N, H, W, C), channels last.
    #[default]
    Nhwc,
    /// (N, C, H, W), as PyTorch models expect.
    Nchw,
}

/// Per-channel normalization `(pixel / 255 - mean) / std`, like torchvision's `ToTensor` followed
/// by `Normalize`. A loader with a mean or std greater than 1 cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
pub struct Normalize {
    /// Means of red, green and blue, on a scale of 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviations of red, green and blue, on the same scale.
    pub std: [f32; 3],
}

impl Normalize {
    /// Mean and standard deviation of ImageNet, as in torchvision's reference training scripts.
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    /// Scales pixels to `pixel / 255`, with a mean of 0 and a standard deviation of 1.
    pub const UNIT: Normalize = Normalize { mean: [0.0; 3], std: [1.0; 3] };

    /// Returns the scale and the bias of each channel. The fused multiply-add
    /// `scale * pixel + bias` normalizes a pixel value from 0 to 255.
    pub fn scale_bias(&self) -> ([f32; 3], [f32; 3]) {
        let scale = self.std.map(|s| 1.0 / (255.0 * s));
        let bias = [0, 1, 2].map(|c| -self.mean[c] / self.std[c]);
        (scale, bias)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let is_invalid = |v: &[f32; 3]| v.iter().any(|x| !x.is_finite());
        if is_invalid(&self.mean) || is_invalid(&self.std) || self.std.contains(&0.0) {
            return Err(Error::config(format!(
                "normalize: mean {:?} and std {:?} must be finite, and no std may be 0",
                self.mean, self.std
            )));
        }
        Ok(())
    }

    /// Checks that no mean and no standard deviation is greater than 1. A greater value is probably
    /// on a scale of 0 to 255, because pixels from 0 to 1 cannot have a mean above 1, or a standard
    /// deviation above 0.5. A standard deviation of up to 1 is accepted, because 1 is a common way
    /// to disable scaling.
    pub(crate) fn check_scale(&self) -> Result<()> {
        let largest = |v: [f32; 3]| v.into_iter().fold(0.0, f32::max);
        if largest(self.mean) <= 1.0 && largest(self.std) <= 1.0 {
            return Ok(());
        }
        let (mean, std) = (self.mean.map(|m| m / 255.0), self.std.map(|s| s / 255.0));
        Err(Error::config(format!(
            "normalize: mean {:?} and std {:?} seem to be on a scale of 0 to 255, but pixels are on a scale of 0 to 1: \
             divide both by 255, which gives mean {mean:.3?} and std {std:.3?}",
            self.mean, self.std
        )))
    }
}

/// Description of one array of a batch. Each sample has one row of shape `shape`. In a
/// [`Patches`](crate::field::Patches) field, the first length of `shape` is only the maximum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name of the field, such as `image`.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape of one row, without the batch axis, such as (H, W, 3) or (3, H, W) for images.
    pub shape: Vec<usize>,
}

impl Field {
    /// Returns the number of bytes per sample.
    pub fn sample_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

pub(crate) const SOFT_LABEL: &str = "soft_label";

/// Name suffix of the array that contains the row counts of a field.
pub(crate) const COUNT_SUFFIX: &str = ".count";

/// Name suffix of the array that contains the ends of the documents in a row of packed tokens.
pub(crate) const ENDS_SUFFIX: &str = ".ends";

/// Name suffix of the array that contains the grid (time, height and width) of each image in a
/// field of patches. The next two arrays accompany the same field.
pub(crate) const GRID_THW_SUFFIX: &str = ".grid_thw";
pub(crate) const IMAGES_SUFFIX: &str = ".images";
pub(crate) const CU_SEQLENS_SUFFIX: &str = ".cu_seqlens";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A field that is delivered unchanged.
    Plain,
    /// The labels. Not delivered in a batch without labels.
    Label,
    /// An image field. If a device converts the images to their final type, they are `u8` (H, W,
    /// 3).
    Image,
    /// A field with a variable number of elements along its first axis. Span `counts` contains the
    /// number of elements of each sample, as i64. The worker that finishes a batch closes the gaps.
    Packed { counts: usize },
    /// Cumulative patch counts of the images, computed from the grids in span `grids`.
    CuSeqlens { grids: usize },
    /// A row with one element per class.
    SoftLabels,
    /// One record per image, or per frame of a clip, with the effects and the mixing of the image
    /// in span `image_span`. Not delivered.
    Records { image_span: usize },
    /// One record per image or frame, which tells a device how to decode the image in span
    /// `image_span`. Not delivered.
    Decoding { image_span: usize },
    /// JPEG data and video frames that a device decodes or converts. All samples share the span, so
    /// a large sample may use the space that small samples do not use. The device has space for an
    /// average of `blocks` blocks of coefficients per sample. Not delivered.
    Encoded { blocks: usize },
}

impl Role {
    pub(crate) fn is_packed(self) -> bool {
        matches!(self, Role::Packed { .. } | Role::CuSeqlens { .. })
    }

    pub(crate) fn is_delivered(self) -> bool {
        !matches!(self, Role::Records { .. } | Role::Decoding { .. } | Role::Encoded { .. })
    }
}

/// The arrays of a batch, and their layout in a buffer. The arrays occupy consecutive spans, and
/// the rows of a span have no gaps.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) batch: usize,
    pub(crate) spans: Vec<Span>,
    pub(crate) bytes: usize,
}

/// The schemas of a loader's batches. Each combination of image sizes has a variant. Variants
/// differ only in the maximum number of samples, and in the lengths of the axes of their arrays.
#[derive(Debug, Clone)]
pub(crate) struct Schemas(Arc<[Schema]>);

#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) field: Field,
    pub(crate) role: Role,
    pub(crate) offset: usize,
    pub(crate) sample_bytes: usize,
}

/// Alignment of each span in bytes. It suffices for cache lines, AVX-512 registers, all element
/// types, and 16-byte loads on a device.
pub(crate) const SPAN_ALIGN: usize = 256;

impl Schema {
    /// Lays out `arrays` for `batch` samples. Fails if the buffer would be larger than `isize::MAX`
    /// bytes.
    pub(crate) fn new(batch: usize, arrays: impl IntoIterator<Item = (Field, Role)>) -> Result<Self> {
        let mut bytes = 0usize;
        let mut spans = Vec::new();
        for (field, role) in arrays {
            let elements = field.shape.iter().try_fold(field.dtype.bytes(), |n, &d| n.checked_mul(d));
            let sizes = elements.and_then(|element_bytes| {
                Some((element_bytes, element_bytes.checked_mul(batch)?.checked_next_multiple_of(SPAN_ALIGN)?))
            });
            let end = sizes.and_then(|(_, total)| bytes.checked_add(total)).filter(|&n| n <= isize::MAX as usize);
            let (Some((sample_bytes, _)), Some(end)) = (sizes, end) else {
                return Err(Error::config(format!(
                    "a batch of {batch} samples of {:?} ({}) is larger than the address space",
                    field.shape,
                    field.dtype.name()
                )));
            };
            spans.push(Span { field, role, offset: bytes, sample_bytes });
            bytes = end;
        }
        Ok(Schema { batch, spans, bytes })
    }

    pub(crate) fn find(&self, role: Role) -> Option<usize> {
        self.spans.iter().position(|span| span.role == role)
    }

    pub(crate) fn find_named(&self, name: &str) -> Option<usize> {
        self.spans.iter().position(|span| span.role.is_delivered() && span.field.name == name)
    }

    pub(crate) fn image_span(&self) -> Option<usize> {
        let image_span = self.find_named("image").filter(|&span| self.spans[span].role == Role::Image);
        image_span.or_else(|| self.find(Role::Image))
    }

    pub(crate) fn sample_bytes(&self) -> usize {
        self.spans.iter().map(|span| span.sample_bytes).sum()
    }

    pub(crate) fn encoded_span(&self) -> Option<usize> {
        self.spans.iter().position(|span| matches!(span.role, Role::Encoded { .. }))
    }
}

impl Schemas {
    /// Lays out each variant, given by its maximum number of samples and its arrays. There must be
    /// at least one variant. Fails if a variant is too large, or if the arrays differ in more than
    /// the lengths of axes.
    pub(crate) fn new(variants: impl IntoIterator<Item = (usize, Vec<(Field, Role)>)>) -> Result<Self> {
        let schemas =
            variants.into_iter().map(|(batch, arrays)| Schema::new(batch, arrays)).collect::<Result<Arc<[_]>>>()?;
        let first = &schemas[0].spans;
        for Schema { spans, .. } in schemas.iter() {
            if spans.len() != first.len() {
                return Err(Error::config(format!(
                    "the fields have {} arrays for one image size and {} for a different one: the number of arrays \
                     must be the same",
                    first.len(),
                    spans.len()
                )));
            }
            let is_alike = |a: &Span, b: &Span| {
                (&a.field.name, a.field.dtype, a.role) == (&b.field.name, b.field.dtype, b.role)
                    && a.field.shape.len() == b.field.shape.len()
            };
            if let Some((Span { field: a, .. }, Span { field: b, .. })) =
                first.iter().zip(spans).find(|(a, b)| !is_alike(a, b))
            {
                return Err(Error::config(format!(
                    "field {:?} is {} {:?} for one image size, but {:?} is {} {:?} for a different one: only the \
                     lengths of axes may differ",
                    a.name,
                    a.dtype.name(),
                    a.shape,
                    b.name,
                    b.dtype.name(),
                    b.shape
                )));
            }
        }
        Ok(Schemas(schemas))
    }

    #[cfg(test)]
    pub(crate) fn one(schema: Schema) -> Self {
        Schemas(Arc::new([schema]))
    }

    /// Returns the schema with the index `variant`. Panics if there is no such schema.
    pub(crate) fn variant(&self, variant: usize) -> &Schema {
        &self.0[variant]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Schema> {
        self.0.iter()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|schema| schema.bytes).max().unwrap_or(0)
    }

    pub(crate) fn batch(&self) -> usize {
        self.iter().map(|schema| schema.batch).max().unwrap_or(0)
    }

    pub(crate) fn with_batch_size(&self, batch: usize) -> Result<Self> {
        let arrays = |schema: &Schema| {
            Schema::new(batch.min(schema.batch), schema.spans.iter().map(|span| (span.field.clone(), span.role)))
        };
        self.iter().map(arrays).collect::<Result<_>>().map(Schemas)
    }
}
