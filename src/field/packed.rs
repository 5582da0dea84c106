//! [`Packed`], rows of packed documents.

use super::encoded;
use super::{FieldType, Input, RowMut, Tokens};
use crate::batch::{Dtype, ENDS_SUFFIX, Field};
use crate::decode::Size;
use crate::error::{Error, Result};

const LENGTHS: &str = "lengths";

/// Rows of packed documents from a [`source::PackedTokens`](crate::source::PackedTokens), as an
/// array of shape (N, length).
///
/// The field has three more arrays, all i32:
/// - `<name>.document`, of shape (N, length): the index of each token's document within the row,
///   and -1 for padding.
/// - `<name>.position`, of shape (N, length): the position of each token within its document, or
///   within the padding.
/// - `<name>.ends`, of shape (N, max_documents + 1): the end of each document in the row. Padding
///   counts as a document. The elements after the last document are `length`.
///
/// If a document is longer than a row, each piece of the document counts as a document.
///
/// [`HostBatch::cu_seqlens`](crate::HostBatch::cu_seqlens) returns the cumulative lengths of the
/// documents of the whole batch, in the format of FlashAttention's `flash_attn_varlen_func`.
///
/// ```no_run
/// use warpfeed::source::{PackedTokens, Packing, TokenType};
/// use warpfeed::{Dtype, Loader, field};
///
/// let source = PackedTokens::open("corpus", TokenType::U16, Packing::new(4096, 50256))?;
/// let tokens = field::Packed::new(Dtype::I64, 4096, source.max_documents());
/// let loader = Loader::source(source).batch_size(4).shuffle(1).drop_field("image").drop_field("label");
/// for batch in loader.field("tokens", tokens).host()?.epoch(0) {
///     let batch = batch?;
///     let tokens = batch.field("tokens").expect("added above"); // (4, 4096)
///     let (cu_seqlens, max_seqlen) = batch.cu_seqlens("tokens").expect("the field is packed");
/// }
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(from = "SerializedOptions")]
pub struct Packed {
    tokens: Tokens,
    length: usize,
    max_documents: usize,
}

impl Packed {
    /// Creates a field of rows with `length` tokens and at most `max_documents` documents
    /// ([`max_documents`](crate::source::PackedTokens::max_documents)). `dtype` must be `U16`,
    /// `I32` or `I64`.
    pub fn new(dtype: Dtype, length: usize, max_documents: usize) -> Self {
        Packed { tokens: Tokens::new(dtype, length), length, max_documents }
    }

    /// Sets the size of the vocabulary. A sample fails if it contains a token id outside the
    /// vocabulary.
    #[must_use]
    pub fn vocab_size(mut self, tokens: u32) -> Self {
        self.tokens = self.tokens.vocab_size(tokens);
        self
    }
}

#[derive(serde::Deserialize)]
struct SerializedOptions {
    dtype: Dtype,
    length: usize,
    max_documents: usize,
    vocab_size: Option<u32>,
}

impl From<SerializedOptions> for Packed {
    fn from(SerializedOptions { dtype, length, max_documents, vocab_size }: SerializedOptions) -> Self {
        let packed = Packed::new(dtype, length, max_documents);
        vocab_size.map_or(packed.clone(), |tokens| packed.vocab_size(tokens))
    }
}

impl FieldType for Packed {
    fn describe_arrays(&self, name: &str, output_size: Size) -> Result<Vec<Field>> {
        let Packed { tokens, length, max_documents } = self;
        if *max_documents == 0 || max_documents > length {
            return Err(Error::config(format!(
                "field {name:?}: {max_documents} documents per row of {length} tokens: expected 1 to {length}"
            )));
        }
        let mut arrays = tokens.describe_arrays(name, output_size)?;
        let parts = [(".document", *length), (".position", *length), (ENDS_SUFFIX, max_documents + 1)];
        let array = |(part, size)| Field { name: format!("{name}{part}"), dtype: Dtype::I32, shape: vec![size] };
        arrays.extend(parts.map(array));
        Ok(arrays)
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned(), LENGTHS.to_owned()]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        self.tokens.write(input, row)?;
        let mut lengths = Vec::<i64>::new();
        encoded::read_numbers(input.sample, LENGTHS, &mut lengths)?;
        let field = encoded::find(input.sample, LENGTHS)?;
        let fits = |lengths: &[i64]| {
            let total = lengths.iter().try_fold(0_i64, |sum, length| sum.checked_add(*length));
            lengths.iter().all(|length| *length > 0) && total.is_some_and(|total| total <= self.length as i64)
        };
        if lengths.len() > self.max_documents {
            let (actual, max_documents) = (lengths.len(), self.max_documents);
            return Err(field.error(format_args!(
                "has {actual} documents in a row: expected at most {max_documents}; call PackedTokens::max_documents \
                 for the number"
            )));
        }
        if !fits(&lengths) {
            let length = self.length;
            return Err(field.error(format_args!(
                "is {lengths:?}: expected positive lengths of documents that fit into a row of {length} tokens"
            )));
        }
        let padding = self.length - lengths.iter().sum::<i64>() as usize;
        let numbered = lengths.iter().zip(0_i32..).map(|(length, document)| (*length as usize, document));
        let runs = || numbered.clone().chain([(padding, -1)]);
        let documents = runs().flat_map(|(length, document)| std::iter::repeat_n(document, length));
        write_integers(row.bytes(1), documents);
        write_integers(row.bytes(2), runs().flat_map(|(length, _)| 0..length as i32));
        let mut end = 0;
        let ends = runs().map(|(length, _)| {
            end += length as i32;
            end
        });
        write_integers(row.bytes(3), ends.chain(std::iter::repeat(self.length as i32)));
        Ok(())
    }
}

fn write_integers(out: &mut [u8], values: impl Iterator<Item = i32>) {
    out.as_chunks_mut::<4>().0.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_ne_bytes());
}
