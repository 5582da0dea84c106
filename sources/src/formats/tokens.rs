//! [`TokenFile`]: a source that reads fixed-length windows from files of tokens.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::error::{Error, Result, counted};
use crate::model::value::{Element, Numbers};
use crate::model::{Sample, Source};
use crate::storage::{Files, OpenFile, delegate_to_files};
use crate::values::Npy;

/// Maximum window length and maximum stride, in tokens.
pub(super) const MAX_TOKENS: usize = 1 << 24;

/// Number of leading bytes from which a file's header and token type are detected.
const DETECTION_BYTES: usize = 64 << 10;

const MAX_COMPARED_TOKENS: usize = 4096;

/// The smallest implausible token. Real vocabularies are smaller.
const MIN_IMPLAUSIBLE_TOKEN: u32 = 1 << 24;

/// Size of the chunks in which a memory map is loaded, in bytes. By default, Linux reads twice this
/// size around a page fault, so loading a chunk does not read more than a page fault would.
const CHUNK_BYTES: usize = 64 << 10;

const READS_PER_CHECK: u64 = 256;

/// The magic numbers of llm.c files, and the token types that they imply. An llm.c header consists
/// of 256 32-bit integers. The first three are the magic number, the version, and the number of
/// tokens.
const LLM_C_MAGIC: [(i32, TokenType); 2] = [(20_240_520, TokenType::U16), (20_240_801, TokenType::U32)];
/// Size of an llm.c header, in bytes.
const LLM_C_HEADER_BYTES: u64 = 1024;

/// The type of the tokens in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenType {
    /// 16 bits, for vocabularies of up to 65,536 tokens.
    U16,
    /// 32 bits.
    U32,
}

impl TokenType {
    pub(super) fn element(self) -> Element {
        match self {
            TokenType::U16 => Element::U16,
            TokenType::U32 => Element::U32,
        }
    }

    pub(super) fn bytes(self) -> u64 {
        self.element().size() as u64
    }

    fn name(self) -> &'static str {
        match self {
            TokenType::U16 => "u16",
            TokenType::U32 => "u32",
        }
    }
}

/// Fixed-length windows of tokens from memory-mapped files, for training language models.
///
/// Supported files:
/// - a `.bin` file of little-endian integers without a header, as nanoGPT, Megatron and other
///   programs write it,
/// - a `.bin` file with an llm.c header,
/// - an `.npy` file with one axis.
///
/// A folder may contain any number of these files, which are read in name order. A sample is a
/// window of `length` consecutive tokens of one file, in the `tokens.npy` field, without a label. A
/// window starts every `stride` tokens, and tokens after the last complete window of a file are
/// dropped. A key consists of the file name and the range of tokens, such as
/// `corpus.bin/1024..2049`.
///
/// `field::Tokens` delivers the windows and, if its end token is set, the document and the position
/// of each token. For next-token prediction, make the windows one token longer than the stride:
///
/// ```no_run
/// use warpfeed_sources::{TokenType, TokenFile};
///
/// let source = TokenFile::open("corpus", TokenType::U16, 1025, 1024)?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
pub struct TokenFile {
    files: Files<Windows>,
    token_type: TokenType,
    length: usize,
    stride: u64,
}

struct Windows {
    name: String,
    /// Offset of the first token in the file, in bytes.
    data_start: u64,
    count: usize,
    /// One bit for each [chunk](CHUNK_BYTES) of the map, which is set once the chunk's pages have
    /// been loaded without an error.
    loaded_chunks: Box<[AtomicU64]>,
    /// Approximate number of windows that have been read from the map. Concurrent updates may be
    /// lost.
    reads: AtomicU64,
}

impl Windows {
    /// Returns the bytes in `range` of `map`, a map of `file`, or `None` if the pages cannot be
    /// loaded or a check finds that the file has been truncated. The system calls for this take
    /// longer than the copy. A chunk is therefore loaded only once, and the length of the file is
    /// checked only once per [`READS_PER_CHECK`] reads.
    fn load_range<'a>(&self, file: &OpenFile, map: &'a [u8], range: Range<usize>) -> Option<&'a [u8]> {
        let reads = self.reads.load(Relaxed);
        self.reads.store(reads.wrapping_add(1), Relaxed);
        if reads.is_multiple_of(READS_PER_CHECK)
            && fs::metadata(&file.path).is_ok_and(|metadata| metadata.len() < file.len())
        {
            return None;
        }
        for chunk in range.start / CHUNK_BYTES..=(range.end - 1) / CHUNK_BYTES {
            let (word, bit) = (&self.loaded_chunks[chunk / 64], 1 << (chunk % 64));
            if word.load(Relaxed) & bit == 0 {
                let end = map.len().min((chunk + 1) * CHUNK_BYTES);
                file.load(&map[chunk * CHUNK_BYTES..end], end as u64).ok()?;
                word.fetch_or(bit, Relaxed);
            }
        }
        map.get(range)
    }
}

impl TokenFile {
    /// Opens the file or folder at `path`, which contains tokens of type `token_type`. A window
    /// contains `length` tokens, and a new window starts every `stride` tokens.
    ///
    /// # Errors
    /// - [`ErrorKind::Io`](crate::ErrorKind::Io) if a file cannot be read.
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) if the length or the stride is not between
    ///   1 and 16,777,216, if a file contains tokens of a different type, or if this machine is
    ///   big-endian.
    /// - [`ErrorKind::Source`](crate::ErrorKind::Source) if no file contains a complete window, if
    ///   a folder contains no token files, or if a file is damaged.
    pub fn open(path: impl AsRef<Path>, token_type: TokenType, length: usize, stride: usize) -> Result<Self> {
        Self::open_with(path, token_type, (length, stride), true)
    }

    /// Like [`open`](TokenFile::open). If `mapped` is false, the files are not mapped into memory,
    /// and each read copies its tokens.
    ///
    /// # Errors
    /// See [`open`](TokenFile::open).
    pub fn open_with(
        path: impl AsRef<Path>,
        token_type: TokenType,
        (length, stride): (usize, usize),
        mapped: bool,
    ) -> Result<Self> {
        let path = path.as_ref();
        if !(1..=MAX_TOKENS).contains(&length) || !(1..=MAX_TOKENS).contains(&stride) {
            return Err(Error::config(format!(
                "window length {length}, stride {stride}: expected values from 1 to {MAX_TOKENS}"
            )));
        }
        let files = open_files(path, token_type, mapped, |file, TokenRange { name, data_start, count: tokens }| {
            let windows = (tokens + stride as u64).saturating_sub(length as u64) / stride as u64;
            if windows == 0 {
                tracing::warn!(
                    "{}: the file is ignored, because it has only {}, too few for a window of {length}",
                    file.path.display(),
                    counted(tokens, "token", "tokens")
                );
            }
            let count = usize::try_from(windows)
                .map_err(|_| Error::in_source(format!("{windows} windows exceed the address space of this machine")))?;
            let chunks = file.map().map_or(0, |map| map.len().div_ceil(CHUNK_BYTES));
            let loaded_chunks = (0..chunks.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
            Ok(Windows { name, data_start, count, loaded_chunks, reads: AtomicU64::new(0) })
        })?;
        let files = Files::new(files, |windows| windows.count)?;
        if files.len() == 0 {
            let cause = format!(
                "no file is long enough for a window of {length} tokens of type {}: use shorter windows",
                token_type.name()
            );
            return Err(Error::in_source(cause).at_path(path));
        }
        Ok(TokenFile { files, token_type, length, stride: stride as u64 })
    }
}

pub(super) struct TokenRange {
    pub(super) name: String,
    /// Offset of the first token in the file, in bytes.
    pub(super) data_start: u64,
    pub(super) count: u64,
}

/// Opens the token files at `path`. `index` finds the samples of a file. Fails on big-endian
/// machines.
pub(super) fn open_files<T>(
    path: &Path,
    token_type: TokenType,
    mapped: bool,
    index: impl Fn(&OpenFile, TokenRange) -> Result<T>,
) -> Result<Vec<(OpenFile, T)>> {
    if cfg!(target_endian = "big") {
        return Err(Error::config(
            "token files are little-endian and cannot be read on this machine, which is big-endian",
        ));
    }
    let open = |path: PathBuf| {
        let file = OpenFile::open(&path, mapped)?.0;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let item = locate_tokens(&file, token_type)
            .and_then(|(data_start, count)| index(&file, TokenRange { name, data_start, count }));
        Ok((file, item.map_err(|e| e.at_path(&path))?))
    };
    list_files(path)?.into_iter().map(open).collect()
}

fn list_files(path: &Path) -> Result<Vec<PathBuf>> {
    let io = |e: std::io::Error| Error::io(path, &e);
    if !fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        let is_known = file.extension().is_some_and(|end| end == "bin" || end == "npy");
        if is_known && fs::metadata(&file).map_err(io)?.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(Error::in_source("the folder contains no token files (.bin or .npy)").at_path(path));
    }
    Ok(files)
}

/// Returns the offset of the first token in bytes, and the number of tokens.
fn locate_tokens(file: &OpenFile, token_type: TokenType) -> Result<(u64, u64)> {
    let mut scratch = Vec::new();
    let start = file.get(0, DETECTION_BYTES as u64, &mut scratch)?;
    let (size, len) = (token_type.bytes(), file.len());
    let (offset, count) = if Npy::matches(start) {
        let npy = Npy::read(start).map_err(|e| Error::in_source(e.cause().to_owned()))?;
        let Some([count]) = npy.shape.as_deref() else {
            return Err(Error::in_source(format!(
                "expected an array with one axis, found {}",
                npy.header_for_message()
            )));
        };
        if (npy.kind, npy.item_size as u64, npy.big_endian) != (b'u', size, false) {
            let name = token_type.name();
            return Err(Error::config(format!(
                "the tokens are {}, but the dataset was opened as {name}: open it with the type in the file",
                npy.header_for_message()
            )));
        }
        (npy.data_offset as u64, *count as u64)
    } else if let Some((declared_type, count)) = parse_llm_c(start)? {
        if declared_type != token_type {
            let (declared_type, name) = (declared_type.name(), token_type.name());
            return Err(Error::config(format!(
                "the header declares {declared_type}, but the dataset was opened as {name}: open it with the type in \
                 the file"
            )));
        }
        (LLM_C_HEADER_BYTES, count)
    } else {
        if !len.is_multiple_of(size) {
            let name = token_type.name();
            return Err(Error::in_source(format!(
                "the file has {len} bytes: expected a multiple of the token size ({name})"
            )));
        }
        check_type(start, token_type)?;
        (0, len / size)
    };
    if count.checked_mul(size).and_then(|bytes| bytes.checked_add(offset)) != Some(len) {
        return Err(Error::in_source(format!(
            "the header claims {count} tokens of {size} bytes starting at byte {offset}, but the file has {len} bytes"
        )));
    }
    Ok((offset, count))
}

/// Returns the type and the number of the tokens if the file begins with an llm.c header.
fn parse_llm_c(start: &[u8]) -> Result<Option<(TokenType, u64)>> {
    let word = |offset: usize| Some(i32::from_le_bytes(start.get(4 * offset..4 * offset + 4)?.try_into().ok()?));
    let Some((_, token_type)) = LLM_C_MAGIC.iter().find(|(magic, _)| word(0) == Some(*magic)) else { return Ok(None) };
    match (word(1), word(2)) {
        (Some(1 | 7), Some(count @ 0..)) if start.len() as u64 >= LLM_C_HEADER_BYTES => {
            Ok(Some((*token_type, count.unsigned_abs().into())))
        }
        (version, count) => {
            let display = |word: Option<i32>| word.map_or_else(|| "missing".to_owned(), |word| word.to_string());
            Err(Error::in_source(format!(
                "invalid llm.c header of {} bytes with version={} and tokens={}: expected {LLM_C_HEADER_BYTES} bytes, \
                 version 1 or 7, and at least 0 tokens",
                LLM_C_HEADER_BYTES.min(start.len() as u64),
                display(version),
                display(count),
            )))
        }
    }
}

/// Checks that the first tokens of a file without a header are plausible for `token_type`.
fn check_type(start: &[u8], token_type: TokenType) -> Result<()> {
    let halves = start.as_chunks::<2>().0;
    let halves = &halves[..halves.len().min(MAX_COMPARED_TOKENS) & !1];
    if halves.len() < 64 {
        return Ok(());
    }
    // Returns whether most words at odd (`odd` is 1) or even (`odd` is 0) positions could be the
    // upper half of a plausible 32-bit token.
    let are_plausible_upper_halves = |odd: usize| {
        let is_small = |half: &&[u8; 2]| u32::from(u16::from_le_bytes(**half)) < MIN_IMPLAUSIBLE_TOKEN >> 16;
        2 * halves.iter().skip(odd).step_by(2).filter(is_small).count() > halves.len() / 2
    };
    let largest = |odd: usize| halves.iter().skip(odd).step_by(2).map(|half| u16::from_le_bytes(*half)).max();
    // The upper half of a 32-bit token is zero if the token is below 2^16, and small in other
    // plausible tokens.
    let looks_like_u32 =
        (largest(1) == Some(0) && largest(0) != Some(0)) || (largest(1) < Some(64) && !are_plausible_upper_halves(0));
    match token_type {
        TokenType::U16 if looks_like_u32 => Err(Error::config(format!(
            "every other one of the first {} tokens is below 64, which indicates u32: open the file with that type",
            halves.len()
        ))),
        TokenType::U32 if !are_plausible_upper_halves(1) => Err(Error::config(format!(
            "most of the first {} tokens are {MIN_IMPLAUSIBLE_TOKEN} or more, which indicates u16: open the file with \
             that type",
            halves.len() / 2
        ))),
        _ => Ok(()),
    }
}

/// Appends `number` in decimal. This takes about a fifth of the time of `write!`.
fn push_decimal(text: &mut String, mut number: u64) {
    let mut digits = [0; 20];
    let mut first = digits.len();
    while first == digits.len() || number > 0 {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
    }
    text.push_str(std::str::from_utf8(&digits[first..]).expect("digits are ASCII"));
}

impl Source for TokenFile {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, windows, window) = self.files.open(index)?;
        let bytes = self.length as u64 * self.token_type.bytes();
        let first = window as u64 * self.stride;
        let offset = windows.data_start + first * self.token_type.bytes();
        scratch.clear();
        write!(scratch, "{}/{first}..{}", windows.name, first + self.length as u64).expect("writing to a Vec succeeds");
        let key = scratch.len();
        let tokens =
            file.read_range(Some(index as u64), offset..offset + bytes, scratch).map_err(|e| e.at_path(&file.path))?;
        let tokens = Numbers::from_element(tokens.resolve(scratch), self.token_type.element(), &[self.length]);
        let tokens = tokens.expect("the range has `length` tokens");
        let key = std::str::from_utf8(&scratch[..key]).expect("the key was written as text");
        Sample::new(key).with_field("tokens.npy", tokens)
    }

    fn stored(&self, index: usize, key: &mut String) -> Option<Numbers<'_>> {
        let (file, windows, window) = self.files.open(index).ok()?;
        let first = window as u64 * self.stride;
        let start = (windows.data_start + first * self.token_type.bytes()) as usize;
        let bytes = self.length * self.token_type.bytes() as usize;
        let tokens = windows.load_range(file, file.map()?, start..start + bytes)?;
        key.push_str(&windows.name);
        key.push('/');
        push_decimal(key, first);
        key.push_str("..");
        push_decimal(key, first + self.length as u64);
        Numbers::from_element(tokens, self.token_type.element(), &[self.length])
    }

    delegate_to_files!(files);

    fn label(&self, _index: usize, _scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        Ok(None)
    }

    fn key(&self, index: usize, _scratch: &mut Vec<u8>) -> Result<String> {
        let (_, windows, window) = self.files.locate(index);
        let first = window as u64 * self.stride;
        Ok(format!("{}/{first}..{}", windows.name, first + self.length as u64))
    }

    fn has_images(&self) -> Option<bool> {
        Some(false)
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(vec!["tokens.npy".to_owned()])
    }

    fn kind(&self) -> &'static str {
        "tokens"
    }
}

impl fmt::Debug for TokenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenFile")
            .field("files", &self.files.entries().len())
            .field("windows", &self.len())
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
