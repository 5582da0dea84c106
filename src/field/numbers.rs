use super::kind::bytes_of;
use super::{Kind, Place};
use crate::batch::{Dtype, Field};
use crate::error::{Error, Result};
use crate::source::Sample;
use crate::transform::Plan;

/// An array that has the same shape in every sample: an embedding, a vector of attributes, a
/// regression target.
///
/// The sample's bytes are a little-endian array of `dtype` and `shape`, without a header. The
/// augmentation does not change it. A device gets it unchanged.
///
/// ```no_run
/// use warpfeed::field::Numbers;
/// use warpfeed::{Dtype, Loader};
///
/// let batches = Loader::new("train.lmdb")
///     .field("emb", Numbers::new(Dtype::F32, [768])) // (N, 768)
///     .field("weight", Numbers::new(Dtype::F32, [])) // (N)
///     .host()?;
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Numbers {
    dtype: Dtype,
    shape: Vec<usize>,
}

impl Numbers {
    /// Arrays of `dtype` and `shape`. `shape` is that of one sample: `[]` for one number.
    pub fn new(dtype: Dtype, shape: impl Into<Vec<usize>>) -> Self {
        Numbers { dtype, shape: shape.into() }
    }
}

impl Kind for Numbers {
    fn arrays(&self, name: &str) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: self.dtype, shape: self.shape.clone() }])
    }

    fn write(&self, name: &str, sample: &Sample<'_>, _plan: Option<&Plan>, place: &mut Place<'_>) -> Result<()> {
        let (bytes, to) = (bytes_of(sample, name)?, place.bytes(0));
        if bytes.len() != to.len() {
            let (found, expected) = (bytes.len(), to.len());
            let cause = format!("field {name:?} has {found} bytes, its dtype and shape need {expected}");
            return Err(Error::in_source(cause));
        }
        to.copy_from_slice(bytes);
        Ok(())
    }
}
