//! [`Tokens`], windows of tokens.

use super::encoded::{self, Encoded, Encoding};
use super::{FieldType, Input, RowMut};
use crate::batch::{Dtype, Field};
use crate::decode::Size;
use crate::error::{Error, Result};
use crate::source::{Numbers, Value};

const NOT_TOKENS: &str = "is not an array of tokens: expected integers with one axis";

/// Windows of token ids, as an array of shape (N, length).
///
/// The samples are windows of token files, from a [`source::TokenFile`](crate::source::TokenFile).
/// Any other field with `length` integers is accepted as well, except an array without a header and
/// an array with more than one axis.
///
/// [`eos_token_id`](Tokens::eos_token_id) adds two arrays, both i32 of shape (N, length).
/// `<name>.document` is the index of each token's document within the window, starting at 0. Packed
/// documents need this array for an attention mask. `<name>.position` is the position of each token
/// within its document, or within the window if the document began earlier.
#[derive(Debug, Clone, serde::Deserialize)]
pub struct Tokens {
    dtype: Dtype,
    length: usize,
    eos_token_id: Option<u32>,
    vocab_size: Option<u32>,
}

impl Tokens {
    /// Creates a field of windows of `length` tokens. `dtype` must be `U16`, `I32` or `I64`.
    pub fn new(dtype: Dtype, length: usize) -> Self {
        Tokens { dtype, length, eos_token_id: None, vocab_size: None }
    }

    /// Sets the token that ends a document. This token is part of the document.
    #[must_use]
    pub fn eos_token_id(mut self, token: u32) -> Self {
        self.eos_token_id = Some(token);
        self
    }

    /// Sets the size of the vocabulary. A sample fails if it contains a token id outside the
    /// vocabulary.
    #[must_use]
    pub fn vocab_size(mut self, tokens: u32) -> Self {
        self.vocab_size = Some(tokens);
        self
    }

    /// Returns the exclusive upper bound of the token ids.
    fn limit(&self) -> u64 {
        let type_limit = match self.dtype {
            Dtype::U16 => 1 << 16,
            Dtype::I32 => 1 << 31,
            _ => 1 << 32,
        };
        self.vocab_size.map_or(type_limit, |tokens| type_limit.min(u64::from(tokens)))
    }
}

impl FieldType for Tokens {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        if !matches!(self.dtype, Dtype::U16 | Dtype::I32 | Dtype::I64) {
            let dtype = self.dtype.name();
            return Err(Error::config(format!(
                "field {name:?}: tokens cannot have the type {dtype}: expected u16, i32 or i64"
            )));
        }
        if self.length == 0 || self.length > i32::MAX as usize {
            let length = self.length;
            return Err(Error::config(format!(
                "field {name:?}: windows of {length} tokens: expected 1 to {} tokens",
                i32::MAX
            )));
        }
        if let Some((end, vocabulary)) =
            self.eos_token_id.zip(self.vocab_size).filter(|(end, vocabulary)| end >= vocabulary)
        {
            return Err(Error::config(format!(
                "field {name:?}: the end of a document is token {end}, but the vocabulary has {vocabulary} tokens"
            )));
        }
        let array = |name: String, dtype| Field { name, dtype, shape: vec![self.length] };
        let mut arrays = vec![array(name.to_owned(), self.dtype)];
        if self.eos_token_id.is_some() {
            arrays.extend(["document", "position"].map(|part| array(format!("{name}.{part}"), Dtype::I32)));
        }
        Ok(arrays)
    }

    fn required_fields(&self, name: &str) -> Vec<String> {
        vec![name.to_owned()]
    }

    fn write_is_cheap(&self) -> bool {
        true
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let field = encoded::find(input.sample, input.name)?;
        let numbers = match field.value {
            Value::Numbers(numbers) => Some(numbers.parts()),
            _ => None,
        };
        if let Value::Numbers(numbers) = field.value
            && numbers.shape().len() > 1
        {
            return Err(field.error(NOT_TOKENS));
        }
        let owned;
        let (size, tokens) = match (numbers, &field) {
            (Some((b'u', size @ (2 | 4), bytes)), _) => (size, bytes),
            (_, field) => {
                owned = read_encoded(field)?;
                (4, &owned[..])
            }
        };
        self.write_bytes(&field, tokens, size, row)
    }

    fn write_stored(&self, numbers: Numbers<'_>, row: &mut RowMut<'_>) -> bool {
        let (b'u', size @ (2 | 4), bytes) = numbers.parts() else { return false };
        let field = Encoded::new("", Value::Numbers(numbers), Encoding::Typed);
        numbers.dims().count() < 2 && self.write_bytes(&field, bytes, size, row).is_ok()
    }
}

fn read_encoded(field: &Encoded<'_>) -> Result<Vec<u8>> {
    let mut tokens = Vec::new();
    field.with_numbers(Dtype::I64, |bytes, shape| {
        if shape.is_none_or(|shape| shape.len() > 1) {
            return Err(field.error(NOT_TOKENS));
        }
        for (index, token) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let token = i64::from_ne_bytes(*token);
            let token = u32::try_from(token)
                .map_err(|_| field.error(format_args!("has {token} at index {index}: expected 0 to {}", u32::MAX)))?;
            tokens.extend_from_slice(&token.to_le_bytes());
        }
        Ok(())
    })?;
    Ok(tokens)
}

impl Tokens {
    fn write_bytes(&self, field: &Encoded<'_>, tokens: &[u8], size: usize, row: &mut RowMut<'_>) -> Result<()> {
        if tokens.len() / size != self.length {
            let (actual, length) = (tokens.len() / size, self.length);
            return Err(field.error(format_args!("has {actual} tokens: expected {length}")));
        }
        match size {
            2 => self.write_tokens(field, tokens.as_chunks::<2>().0, u16::from_le_bytes, row),
            _ => self.write_tokens(field, tokens.as_chunks::<4>().0, u32::from_le_bytes, row),
        }
    }

    fn write_tokens<T: Copy + Into<u32> + Ord, const N: usize>(
        &self,
        field: &Encoded<'_>,
        tokens: &[[u8; N]],
        read: impl Fn([u8; N]) -> T + Copy,
        row: &mut RowMut<'_>,
    ) -> Result<()> {
        let limit = self.limit();
        if limit < 1 << (8 * N) {
            let largest: u32 = tokens.iter().map(|token| read(*token)).max().map_or(0, Into::into);
            if u64::from(largest) >= limit {
                let index = tokens.iter().position(|token| read(*token).into() == largest).unwrap_or_default();
                let cause = match self.vocab_size {
                    Some(tokens) => format!("; the vocabulary has {tokens} tokens"),
                    None => format!(", which {} cannot hold", self.dtype.name()),
                };
                return Err(field.error(format_args!("has the token {largest} at index {index}{cause}")));
            }
        }
        // If the stored type is too small for the end token, no token can end a document, and the
        // whole window would be a single document.
        if let Some(end) = self.eos_token_id.filter(|end| u64::from(*end) >= 1 << (8 * N)) {
            let bits = 8 * N;
            return Err(field.error(format_args!("has {bits}-bit tokens, which cannot hold the end token {end}")));
        }
        let out = row.bytes(0);
        match self.dtype {
            Dtype::U16 if N == 2 => out.copy_from_slice(tokens.as_flattened()),
            Dtype::I32 if N == 4 => out.copy_from_slice(tokens.as_flattened()),
            Dtype::U16 => write_each(out, tokens, |token| (read(token).into() as u16).to_ne_bytes()),
            Dtype::I32 => write_each(out, tokens, |token| (read(token).into() as i32).to_ne_bytes()),
            _ => write_each(out, tokens, |token| i64::from(read(token).into()).to_ne_bytes()),
        }
        if let Some(end) = self.eos_token_id {
            let (mut document, mut position) = (0_i32, 0_i32);
            write_each(row.bytes(1), tokens, |token| {
                let current = document;
                document += i32::from(read(token).into() == end);
                current.to_ne_bytes()
            });
            write_each(row.bytes(2), tokens, |token| {
                let current = position;
                position = if read(token).into() == end { 0 } else { position + 1 };
                current.to_ne_bytes()
            });
        }
        Ok(())
    }
}

fn write_each<const N: usize, const M: usize>(
    out: &mut [u8],
    tokens: &[[u8; N]],
    mut convert: impl FnMut([u8; N]) -> [u8; M],
) {
    out.as_chunks_mut::<M>().0.iter_mut().zip(tokens).for_each(|(out, &token)| *out = convert(token));
}
