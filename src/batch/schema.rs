use crate::error::{Error, Result};

/// Element type of a batch field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dtype {
    /// Unsigned bytes; images keep their 0 to 255 and are not normalised.
    U8,
    /// 32-bit float.
    F32,
    /// IEEE 754 half, rounded to nearest even.
    F16,
    /// bfloat16, rounded to nearest even.
    Bf16,
    /// 64-bit signed integer, as labels are.
    I64,
}

impl Dtype {
    /// Bytes an element takes.
    pub fn bytes(self) -> usize {
        match self {
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::F32 => 4,
            Dtype::I64 => 8,
        }
    }

    /// The name NumPy and PyTorch use: `uint8`, `float32`, `float16`, `bfloat16`, `int64`.
    pub fn name(self) -> &'static str {
        match self {
            Dtype::U8 => "uint8",
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::I64 => "int64",
        }
    }
}

/// Order of an image batch's axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Layout {
    /// (N, H, W, C), channels last.
    #[default]
    Nhwc,
    /// (N, C, H, W), as PyTorch models expect.
    Nchw,
}

/// Per-channel normalisation: `(pixel / 255 - mean) / std`, as torchvision's `ToTensor` followed by
/// `Normalize`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalize {
    /// Mean of each of red, green and blue, on a scale of 0 to 1.
    pub mean: [f32; 3],
    /// Standard deviation of each, on the same scale.
    pub std: [f32; 3],
}

impl Normalize {
    /// Mean and deviation of ImageNet, as torchvision's reference training uses them.
    pub const IMAGENET: Normalize = Normalize { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    /// `pixel / 255`, nothing else.
    pub const UNIT: Normalize = Normalize { mean: [0.0; 3], std: [1.0; 3] };

    /// Per channel (`scale`, `bias`), so that `scale * pixel + bias` in one fused multiply-add
    /// normalises a pixel of 0 to 255.
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
}

/// One array of a batch: every sample contributes one element of `shape`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// `image`, or the name of the sample field it is read from.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Shape of one sample's part, without the batch axis; for images (H, W, 3) or (3, H, W).
    pub shape: Vec<usize>,
}

impl Field {
    /// Bytes one sample takes.
    pub fn sample_bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }
}

/// Name of the field that holds labels as rows of shares.
pub(crate) const SOFT_LABEL: &str = "soft_label";

/// Where the fields of a batch lie in its buffer: one after the other, each from a multiple of
/// [`ALIGN`] bytes, samples without gaps.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) batch: usize,
    pub(crate) spans: Vec<Span>,
    pub(crate) bytes: usize,
    /// The field that holds labels as rows of shares, which is then the last.
    pub(crate) soft: Option<usize>,
}

/// One field's place in the buffer.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) field: Field,
    pub(crate) offset: usize,
    pub(crate) sample_bytes: usize,
}

/// A cache line, an AVX-512 register, and more than any element type or 16-byte device load needs.
pub(crate) const ALIGN: usize = 256;

impl Plan {
    /// The plan of a batch of `batch` samples.
    ///
    /// # Errors
    /// If the buffer would be larger than the address space.
    pub(crate) fn new(batch: usize, fields: Vec<Field>) -> Result<Self> {
        let mut bytes = 0usize;
        let mut spans = Vec::with_capacity(fields.len());
        for field in fields {
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
            spans.push(Span { field, offset: bytes, sample_bytes });
            bytes = next;
        }
        Ok(Plan { batch, spans, bytes, soft: None })
    }

    /// The plan with one more field: labels as rows of `classes` shares.
    pub(crate) fn with_soft_labels(self, classes: usize) -> Result<Self> {
        let soft = self.spans.len();
        let mut fields: Vec<Field> = self.spans.into_iter().map(|span| span.field).collect();
        fields.push(Field { name: SOFT_LABEL.to_owned(), dtype: Dtype::F32, shape: vec![classes] });
        Ok(Plan { soft: Some(soft), ..Plan::new(self.batch, fields)? })
    }
}
