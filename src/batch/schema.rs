use std::sync::Arc;

use crate::error::{Error, Result};

/// Element type of a batch field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Dtype {
    /// Unsigned bytes. Images keep their values of 0 to 255 and are not normalized.
    U8,
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// IEEE 754 half, rounded to nearest even.
    F16,
    /// bfloat16, rounded to nearest even.
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
    /// Number of bytes per element.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 | Dtype::I16 | Dtype::U16 => 2,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::I64 | Dtype::F64 => 8,
        }
    }

    /// Minimum and maximum of an integer type, or `None` for floats.
    pub(crate) fn integers(self) -> Option<(i64, i64)> {
        match self {
            Dtype::U8 => Some((0, u8::MAX.into())),
            Dtype::U16 => Some((0, u16::MAX.into())),
            Dtype::I16 => Some((i16::MIN.into(), i16::MAX.into())),
            Dtype::I32 => Some((i32::MIN.into(), i32::MAX.into())),
            Dtype::I64 => Some((i64::MIN, i64::MAX)),
            Dtype::F32 | Dtype::F64 | Dtype::F16 | Dtype::Bf16 => None,
        }
    }

    /// Name in NumPy and PyTorch: `uint8`, `float32`, `float64`, `float16`, `bfloat16`, `int16`,
    /// `int32`, `int64`, `uint16`.
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

/// Per-channel normalization, `(pixel / 255 - mean) / std`, like torchvision's `ToTensor` followed
/// by `Normalize`.
/// Opening a loader is an error if a mean or a std exceeds 1.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
pub struct Normalize {
    /// Mean of red, green and blue, each on a scale of 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviation of red, green and blue, on the same scale.
    pub std: [f32; 3],
}

impl Normalize {
    /// Mean and deviation of ImageNet, used in torchvision's reference training.
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    /// `pixel / 255`, without mean or deviation.
    pub const UNIT: Normalize = Normalize { mean: [0.0; 3], std: [1.0; 3] };

    /// Returns (`scale`, `bias`) per channel. The fused multiply-add `scale * pixel + bias`
    /// normalizes a pixel of 0 to 255.
    pub fn scale_bias(&self) -> ([f32; 3], [f32; 3]) {
        let scale = self.std.map(|s| 1.0 / (255.0 * s));
        let bias = [0, 1, 2].map(|c| -self.mean[c] / self.std[c]);
        (scale, bias)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let bad = |v: &[f32; 3]| v.iter().any(|x| !x.is_finite());
        if bad(&self.mean) || bad(&self.std) || self.std.contains(&0.0) {
            return Err(Error::config(format!(
                "normalize: mean {:?} and std {:?} must be finite, and no std may be 0",
                self.mean, self.std
            )));
        }
        Ok(())
    }

    /// Refuses numbers on the scale of bytes. Values between 0 and 1 have a mean of at most 1 and a
    /// deviation of at most 0.5; a std of 1 is common for "do not scale".
    pub(crate) fn check_scale(&self) -> Result<()> {
        let most = |v: [f32; 3]| v.into_iter().fold(0.0, f32::max);
        if most(self.mean) <= 1.0 && most(self.std) <= 1.0 {
            return Ok(());
        }
        let (mean, std) = (self.mean.map(|m| m / 255.0), self.std.map(|s| s / 255.0));
        Err(Error::config(format!(
            "normalize: mean {:?} and std {:?} are on a scale of 0 to 255, but pixels are on a scale of 0 to 1: divide both by 255, \
             which gives mean {mean:.3?} and std {std:.3?}",
            self.mean, self.std
        )))
    }
}

/// One array of a batch. Every sample has one entry of `shape`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// `image`, or the name of the sample's field.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape per sample, without the batch axis. For images it is (H, W, 3) or (3, H, W).
    pub shape: Vec<usize>,
}

impl Field {
    /// Number of bytes per sample.
    pub fn sample_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

/// Name of the field that contains labels as rows of shares.
pub(crate) const SOFT_LABEL: &str = "soft_label";

/// Suffix of a field's name for the field with its row counts.
pub(crate) const COUNT: &str = ".count";

/// How the rest of the pipeline treats a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Delivered unchanged.
    Plain,
    /// The integer labels, delivered if the batch has any.
    Label,
    /// An image. On its way to a device it is `u8` (H, W, 3), whatever its final type.
    Image,
    /// The labels, as rows of shares.
    SoftLabels,
    /// One record per sample that says what is still to be done with the image of span `of`, by a
    /// device, or by the worker that mixes; not delivered.
    Records { of: usize },
    /// One record per sample that tells a device how to decode the image of span `of`; not
    /// delivered.
    Decoding { of: usize },
    /// Entropy-coded data for a device, of all samples together, in order of arrival. The span has
    /// an equal share for each sample, but each sample takes what it needs. The device has room for
    /// `blocks` blocks of coefficients per sample. Not delivered.
    Encoded { blocks: usize },
}

impl Role {
    /// Whether the consumer receives the array.
    pub(crate) fn is_delivered(self) -> bool {
        !matches!(self, Role::Records { .. } | Role::Decoding { .. } | Role::Encoded { .. })
    }
}

/// The arrays of a batch and their layout in a buffer: spans in sequence, each aligned to [`ALIGN`]
/// bytes, with samples packed without gaps.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    /// Number of samples in a full batch.
    pub(crate) batch: usize,
    pub(crate) spans: Vec<Span>,
    pub(crate) bytes: usize,
}

/// The schemas of a loader's batches: one form for each combination of image sizes that its epochs
/// have. All forms have the same arrays, of other shapes.
#[derive(Debug, Clone)]
pub(crate) struct Schemas(Arc<[Schema]>);

/// Place of one array in the buffer.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) field: Field,
    pub(crate) role: Role,
    pub(crate) offset: usize,
    pub(crate) sample_bytes: usize,
}

/// Alignment of a span. At least a cache line, an AVX-512 register, and whatever any element type
/// or 16-byte device load needs.
pub(crate) const ALIGN: usize = 256;

impl Schema {
    /// Creates the schema of a batch of `batch` samples.
    ///
    /// # Errors
    /// If the buffer would be larger than the address space.
    pub(crate) fn new(batch: usize, arrays: impl IntoIterator<Item = (Field, Role)>) -> Result<Self> {
        let mut bytes = 0usize;
        let mut spans = Vec::new();
        for (field, role) in arrays {
            let elements = field.shape.iter().try_fold(field.dtype.bytes(), |n, &d| n.checked_mul(d));
            let sized = elements.and_then(|one| Some((one, one.checked_mul(batch)?.checked_next_multiple_of(ALIGN)?)));
            let next = sized.and_then(|(_, all)| bytes.checked_add(all)).filter(|&n| n <= isize::MAX as usize);
            let (Some((sample_bytes, _)), Some(next)) = (sized, next) else {
                return Err(Error::config(format!(
                    "a batch of {batch} samples of {:?} ({}) is larger than the address space",
                    field.shape,
                    field.dtype.name()
                )));
            };
            spans.push(Span { field, role, offset: bytes, sample_bytes });
            bytes = next;
        }
        Ok(Schema { batch, spans, bytes })
    }

    /// The first span with this role.
    pub(crate) fn find(&self, role: Role) -> Option<usize> {
        self.spans.iter().position(|span| span.role == role)
    }

    /// The span that is delivered under `name`.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.spans.iter().position(|span| span.role.is_delivered() && span.field.name == name)
    }

    /// The image called `image`, or the first one.
    pub(crate) fn images(&self) -> Option<usize> {
        let named = self.named("image").filter(|&span| self.spans[span].role == Role::Image);
        named.or_else(|| self.find(Role::Image))
    }

    /// Number of bytes per sample over all arrays.
    pub(crate) fn sample_bytes(&self) -> usize {
        self.spans.iter().map(|span| span.sample_bytes).sum()
    }

    /// The span of entropy-coded data.
    pub(crate) fn encoded(&self) -> Option<usize> {
        self.spans.iter().position(|span| matches!(span.role, Role::Encoded { .. }))
    }
}

impl Schemas {
    /// Creates the schemas of batches of `batch` samples, from the arrays of each form, of which
    /// there is at least one.
    ///
    /// # Errors
    /// Those of [`Schema::new`], and if forms differ in more than the lengths of axes.
    pub(crate) fn new(batch: usize, forms: impl IntoIterator<Item = Vec<(Field, Role)>>) -> Result<Self> {
        let schemas = forms.into_iter().map(|arrays| Schema::new(batch, arrays)).collect::<Result<Arc<[_]>>>()?;
        let first = &schemas[0].spans;
        for Schema { spans, .. } in schemas.iter() {
            if spans.len() != first.len() {
                return Err(Error::config(format!(
                    "the fields have {} arrays for one size of the images and {} for another: the number of arrays must be \
                     the same",
                    first.len(),
                    spans.len()
                )));
            }
            let alike = |a: &Span, b: &Span| {
                (&a.field.name, a.field.dtype, a.role) == (&b.field.name, b.field.dtype, b.role)
                    && a.field.shape.len() == b.field.shape.len()
            };
            if let Some((Span { field: a, .. }, Span { field: b, .. })) =
                first.iter().zip(spans).find(|(a, b)| !alike(a, b))
            {
                return Err(Error::config(format!(
                    "field {:?} is {} {:?} for one size of the images, and {:?} is {} {:?} for another: only the lengths of \
                     axes may differ",
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

    /// The only form of batches that have one.
    #[cfg(test)]
    pub(crate) fn one(schema: Schema) -> Self {
        Schemas(Arc::new([schema]))
    }

    /// The schema of form number `form`.
    ///
    /// # Panics
    /// If there is no such form.
    pub(crate) fn form(&self, form: usize) -> &Schema {
        &self.0[form]
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &Schema> {
        self.0.iter()
    }

    /// Bytes of the largest form.
    pub(crate) fn bytes(&self) -> usize {
        self.iter().map(|schema| schema.bytes).max().unwrap_or(0)
    }

    /// Number of samples in a full batch.
    pub(crate) fn batch(&self) -> usize {
        self.form(0).batch
    }

    /// Returns the same schemas for another number of samples.
    ///
    /// # Errors
    /// Those of [`Schema::new`].
    pub(crate) fn of_batch(&self, batch: usize) -> Result<Self> {
        let arrays = |of: &Schema| Schema::new(batch, of.spans.iter().map(|span| (span.field.clone(), span.role)));
        self.iter().map(arrays).collect::<Result<_>>().map(Schemas)
    }
}
