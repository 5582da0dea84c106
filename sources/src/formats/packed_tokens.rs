//! [`PackedTokens`]: a source that packs the documents of token files into rows.

use std::fmt;
use std::path::Path;

use super::tokens::{MAX_TOKENS, TokenRange, TokenType, open_files};
use crate::error::{Error, Result, push};
use crate::machine::hash::Hash;
use crate::model::value::{Element, Numbers};
use crate::model::{Sample, Source};
use crate::storage::{Files, OpenFile, RowBytes, delegate_to_files};

/// Size of the reads that search a file for the ends of documents, in bytes.
const READ_BYTES: u64 = 1 << 20;

/// Options for packing documents with [`PackedTokens`].
#[derive(Debug, Clone, Copy)]
pub struct Packing {
    length: usize,
    eos_token_id: u32,
    window_documents: usize,
    max_documents: usize,
    pad_token_id: u32,
}

impl Packing {
    /// Packs documents into rows of `length` tokens. `eos_token_id` marks the end of a document.
    pub fn new(length: usize, eos_token_id: u32) -> Self {
        Packing { length, eos_token_id, window_documents: 1024, max_documents: length, pad_token_id: 0 }
    }

    /// Sets how many consecutive documents the packer considers at once; 1,024 by default. A larger
    /// window usually reduces padding, but a row may then mix documents from more distant parts of
    /// the file.
    #[must_use]
    pub fn window_documents(mut self, documents: usize) -> Self {
        self.window_documents = documents;
        self
    }

    /// Sets the maximum number of documents in a row. By default, only the length of a row limits
    /// it.
    #[must_use]
    pub fn max_documents(mut self, documents: usize) -> Self {
        self.max_documents = documents;
        self
    }

    /// Sets the token that fills the unused end of a row; 0 by default.
    #[must_use]
    pub fn pad_token_id(mut self, token: u32) -> Self {
        self.pad_token_id = token;
        self
    }

    fn check(&self, token_type: TokenType) -> Result<()> {
        let Packing { length, eos_token_id, window_documents, max_documents, pad_token_id } = *self;
        if !(1..=MAX_TOKENS).contains(&length) || window_documents == 0 || max_documents == 0 {
            return Err(Error::config(format!(
                "invalid packing (length={length}, max_documents={max_documents}, \
                 window_documents={window_documents}): expected a length of 1 to {MAX_TOKENS} tokens, and at \
                 least 1 document per row and per window"
            )));
        }
        for (name, token) in [("end of a document", eos_token_id), ("padding", pad_token_id)] {
            if token_type == TokenType::U16 && token > u32::from(u16::MAX) {
                return Err(Error::config(format!(
                    "the {name} is token {token}, but the tokens are u16: expected at most {}",
                    u16::MAX
                )));
            }
        }
        Ok(())
    }
}

/// Rows of packed documents from token files, for training language models with little padding.
///
/// The files have the same formats as for [`TokenFile`](super::TokenFile). A document runs up to
/// and including its end token, or to the end of the file. The packer looks at a window of
/// consecutive documents of one file at a time ([`Packing::window_documents`]). In file order, it
/// puts each document into the first row that has enough free space and fewer documents than
/// [`Packing::max_documents`] (first-fit). Only a document longer than a row is split: each full
/// piece fills a row, and the remainder is packed like a document. In a row, each piece counts as a
/// document.
///
/// Each row is a sample. Its `tokens.npy` field contains the tokens, padded to the length of a row.
/// Its `lengths.npy` field contains the lengths of the documents in tokens, as u32. `field::Packed`
/// turns the two fields into four arrays: the tokens, the document of each token, the position of
/// each token in its document, and the document ends. A key such as `corpus.bin/17-90c2ab41`
/// consists of the file name, the index of the row among the rows of the file, and a hash of the
/// positions and lengths of the documents in the row.
///
/// The rows depend only on the files and the options, so shuffling, ranks and checkpoints work as
/// with any other dataset. Opening the source reads all tokens. The index takes about 16 bytes of
/// memory per document or piece, and 8 bytes per row.
///
/// ```no_run
/// use warpfeed_sources::{PackedTokens, Packing, TokenType};
///
/// let source = PackedTokens::open("corpus", TokenType::U16, Packing::new(4096, 50256).window_documents(2048))?;
/// println!("{:.1}% of the tokens are padding", 100.0 * source.padding_fraction());
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
pub struct PackedTokens {
    files: Files<PackedFile>,
    token_type: TokenType,
    packing: Packing,
    max_documents: usize,
}

struct PackedFile {
    name: String,
    /// Offset of the first token in the file, in bytes.
    data_start: u64,
    /// The documents of all rows, sorted by row.
    documents: Vec<Document>,
    /// The index of the first document of each row, followed by the total number of documents.
    row_starts: Vec<usize>,
}

/// A document, or a piece of a document that is longer than a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Document {
    /// Index of the first token within the file.
    first_token: u64,
    /// Length in tokens.
    len: u32,
}

impl PackedTokens {
    /// Opens the file or folder at `path`, which contains tokens of type `token_type`, and packs
    /// its documents.
    ///
    /// # Errors
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if a file cannot be read.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if an option is out of range, if a file
    ///   contains tokens of a different type, or if this machine is big-endian.
    /// - [`ErrorKind::Source`](crate::ErrorKind::Source) if a folder contains no token files, if no
    ///   file contains a token, or if a file is damaged.
    pub fn open(path: impl AsRef<Path>, token_type: TokenType, packing: Packing) -> Result<Self> {
        Self::open_with(path, token_type, packing, true)
    }

    /// Like [`open`](PackedTokens::open), but maps the files into memory only if `mapped` is true.
    ///
    /// # Errors
    /// See [`open`](PackedTokens::open).
    pub fn open_with(path: impl AsRef<Path>, token_type: TokenType, packing: Packing, mapped: bool) -> Result<Self> {
        let path = path.as_ref();
        packing.check(token_type)?;
        let files =
            open_files(path, token_type, mapped, |file, tokens| PackedFile::find(file, tokens, token_type, &packing))?;
        let files = Files::new(files, PackedFile::len)?;
        if files.len() == 0 {
            return Err(Error::in_source("the files contain no tokens").at_path(path));
        }
        let max_documents = files
            .entries()
            .flat_map(|(_, packed_file, _)| packed_file.row_starts.windows(2))
            .map(|row| row[1] - row[0])
            .max();
        Ok(PackedTokens { files, token_type, packing, max_documents: max_documents.unwrap_or(0) })
    }

    /// Returns the largest number of documents in any row, for `field::Packed`.
    pub fn max_documents(&self) -> usize {
        self.max_documents
    }

    /// Returns the fraction of padding among the tokens of all rows, from 0 to 1.
    pub fn padding_fraction(&self) -> f64 {
        let documents = self.files.entries().flat_map(|(_, packed_file, _)| &packed_file.documents);
        let tokens: u64 = documents.map(|document| u64::from(document.len)).sum();
        1.0 - tokens as f64 / (self.files.len() as f64 * self.packing.length as f64)
    }
}

impl PackedFile {
    fn find(file: &OpenFile, tokens: TokenRange, token_type: TokenType, packing: &Packing) -> Result<PackedFile> {
        let TokenRange { name, data_start, count: tokens } = tokens;
        let mut packed_file = PackedFile { name, data_start, documents: Vec::new(), row_starts: vec![0] };
        let (mut window, mut count, mut first) = (Vec::new(), 0, 0);
        let mut end_document = |end: u64, packed_file: &mut PackedFile| -> Result<()> {
            while first < end {
                let len = (end - first).min(packing.length as u64);
                push(&mut window, Document { first_token: first, len: len as u32 })?;
                first += len;
            }
            count += 1;
            if count == packing.window_documents || end == tokens {
                packed_file.pack(&window, packing)?;
                window.clear();
                count = 0;
            }
            Ok(())
        };
        let (size, mut scratch, mut position, mut last) = (token_type.bytes(), Vec::new(), 0, 0);
        while position < tokens {
            let count = (tokens - position).min(READ_BYTES / size);
            let bytes = file.get(data_start + position * size, count * size, &mut scratch)?;
            for (index, token) in bytes.chunks_exact(size as usize).enumerate() {
                let token = token.iter().rev().fold(0_u32, |token, &byte| token << 8 | u32::from(byte));
                if token == packing.eos_token_id {
                    last = position + index as u64 + 1;
                    end_document(last, &mut packed_file)?;
                }
            }
            position += count;
        }
        if last < tokens {
            end_document(tokens, &mut packed_file)?;
        }
        Ok(packed_file)
    }

    fn pack(&mut self, documents: &[Document], packing: &Packing) -> Result<()> {
        let document_rows = first_fit(documents, packing.length as u32, packing.max_documents);
        let mut order: Vec<usize> = (0..documents.len()).collect();
        // The sort is stable, so the documents of a row stay in file order.
        order.sort_by_key(|&document| document_rows[document]);
        for (position, &document) in order.iter().enumerate() {
            if position > 0 && document_rows[order[position - 1]] != document_rows[document] {
                push(&mut self.row_starts, self.documents.len())?;
            }
            push(&mut self.documents, documents[document])?;
        }
        push(&mut self.row_starts, self.documents.len())
    }

    fn len(&self) -> usize {
        self.row_starts.len() - 1
    }

    /// Returns the key of a row. The key contains a hash of the positions and lengths of the row's
    /// documents, so that rows that are packed differently have different keys. Resuming from a
    /// checkpoint compares keys.
    fn key(&self, row: usize) -> String {
        let documents = &self.documents[self.row_starts[row]..self.row_starts[row + 1]];
        let hash = documents
            .iter()
            .fold(Hash::default(), |hash, document| hash.number(document.first_token).number(document.len.into()));
        format!("{}/{row}-{:08x}", self.name, hash.finish() as u32)
    }
}

/// Puts each document into the first row of `length` tokens that has enough space and fewer than
/// `max_documents` documents. Returns the index of the row of each document. No document may be
/// longer than a row.
///
/// Each leaf of a binary tree contains the number of free tokens of a row, or 0 if the row has
/// `max_documents` documents. Each inner node contains the maximum of its two children. Finding a
/// row therefore takes logarithmic time.
fn first_fit(documents: &[Document], length: u32, max_documents: usize) -> Vec<usize> {
    let leaves = documents.len().next_power_of_two();
    let (mut free_tokens, mut counts) = (vec![length; 2 * leaves], vec![0; leaves]);
    let place_document = |document: &Document| {
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(free_tokens[2 * node] < document.len);
        }
        let row = node - leaves;
        counts[row] += 1;
        free_tokens[node] = if counts[row] == max_documents { 0 } else { free_tokens[node] - document.len };
        while node > 1 {
            node /= 2;
            free_tokens[node] = free_tokens[2 * node].max(free_tokens[2 * node + 1]);
        }
        row
    };
    documents.iter().map(place_document).collect()
}

impl Source for PackedTokens {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, packed_file, row) = self.files.open(index)?;
        let documents = &packed_file.documents[packed_file.row_starts[row]..packed_file.row_starts[row + 1]];
        let size = self.token_type.bytes();
        scratch.clear();
        scratch.extend_from_slice(packed_file.key(row).as_bytes());
        let key = scratch.len();
        let mut count = 0;
        for document in documents {
            let offset = packed_file.data_start + document.first_token * size;
            let range = offset..offset + u64::from(document.len) * size;
            let part = file.read_range(Some(index as u64), range, scratch).map_err(|e| e.at_path(&file.path))?;
            if let RowBytes::Borrowed(bytes) = part {
                scratch.extend_from_slice(bytes);
            }
            count += document.len as usize;
        }
        let padding = self.packing.pad_token_id.to_le_bytes();
        (count..self.packing.length).for_each(|_| scratch.extend_from_slice(&padding[..size as usize]));
        let lengths = scratch.len();
        documents.iter().for_each(|document| scratch.extend_from_slice(&document.len.to_le_bytes()));
        let scratch = &scratch[..];
        let tokens = Numbers::from_element(&scratch[key..lengths], self.token_type.element(), &[self.packing.length]);
        let lengths = Numbers::from_element(&scratch[lengths..], Element::U32, &[documents.len()]);
        let (tokens, lengths) = tokens.zip(lengths).expect("the arrays were written with these lengths");
        let key = std::str::from_utf8(&scratch[..key]).expect("the key was written as text");
        Sample::new(key).with_field("tokens.npy", tokens)?.with_field("lengths.npy", lengths)
    }

    delegate_to_files!(files);

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let (_, packed_file, row) = self.files.locate(index);
        Ok(packed_file.key(row))
    }

    fn fingerprint(&self) -> Option<u64> {
        let hash = Hash::default().number(self.packing.length as u64).number(self.packing.pad_token_id.into());
        let add_file = |hash: Hash, (_, packed_file, _): (_, &PackedFile, _)| {
            let hash =
                packed_file.row_starts.iter().fold(hash.text(&packed_file.name), |hash, &row| hash.number(row as u64));
            packed_file
                .documents
                .iter()
                .fold(hash, |hash, document| hash.number(document.first_token).number(document.len.into()))
        };
        Some(self.files.entries().fold(hash, add_file).finish())
    }

    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(vec!["tokens.npy".to_owned(), "lengths.npy".to_owned()])
    }

    fn kind(&self) -> &'static str {
        "packed tokens"
    }
}

impl fmt::Debug for PackedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedTokens")
            .field("files", &self.files.entries().len())
            .field("rows", &self.len())
            .field("packing", &self.packing)
            .finish_non_exhaustive()
    }
}
