//! [`TokenFile`]: windows over files of tokens.

use std::fmt;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::medium::{Files, HeldFile, of_files};
use crate::model::value::{Element, Numbers};
use crate::model::{Sample, Source};
use crate::values::Npy;

/// Maximum tokens of a window.
const MOST: usize = 1 << 24;

/// Bytes of a file that are read for its header.
const HEADER: usize = 64 << 10;

/// Halves of 16 bits that are compared with the type when a file is opened.
const COMPARED: usize = 4096;

/// No vocabulary has as many tokens.
const UNLIKELY: u32 = 1 << 24;

/// The header of llm.c's files: 256 numbers of 32 bits, of which the first three are a magic
/// number, a version and the number of tokens.
const LLM_C: [(i32, TokenType); 2] = [(20_240_520, TokenType::U16), (20_240_801, TokenType::U32)];
const LLM_C_BYTES: u64 = 1024;

/// Type of the tokens in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TokenType {
    /// 16 bits, for vocabularies of up to 65,536 tokens.
    U16,
    /// 32 bits.
    U32,
}

impl TokenType {
    fn element(self) -> Element {
        match self {
            TokenType::U16 => Element::U16,
            TokenType::U32 => Element::U32,
        }
    }

    fn bytes(self) -> u64 {
        self.element().size() as u64
    }

    fn name(self) -> &'static str {
        match self {
            TokenType::U16 => "u16",
            TokenType::U32 => "u32",
        }
    }
}

/// Windows over memory-mapped files of tokens, for language models.
///
/// A file is a `.bin` of little-endian integers without a header, as nanoGPT, Megatron and others
/// write them, or with the header of llm.c; or an `.npy` of one axis. A folder has any number of
/// such files, which are sorted by name. A sample is `length` consecutive tokens of one file, in
/// its field `tokens.npy`; it has no label. Windows begin every `stride` tokens. Tokens after the
/// last whole window of a file are in no sample. A key names the file and the range of the tokens,
/// such as `corpus.bin/1024..2049`.
///
/// `field::Tokens` delivers them, with the numbers of the documents in a
/// window. For inputs and targets that are shifted by one take one token more than the stride:
///
/// ```no_run
/// use warpfeed_sources::{TokenType, TokenFile};
///
/// let source = TokenFile::open("corpus", TokenType::U16, 1025, 1024)?;
/// # Ok::<(), warpfeed_sources::Error>(())
/// ```
pub struct TokenFile {
    files: Files<Windows>,
    kind: TokenType,
    length: usize,
    stride: u64,
}

/// The windows of one file.
struct Windows {
    name: String,
    /// Offset of the first token in the file.
    start: u64,
    count: usize,
}

impl TokenFile {
    /// Opens the file or the folder at `path`, whose tokens have the type `kind`. A window has
    /// `length` tokens and begins `stride` tokens after the one before.
    ///
    /// # Errors
    /// - [`ErrorKind::Config`](crate::ErrorKind::Config) for a length or a stride that cannot work, and for a file of another
    ///   type.
    /// - [`ErrorKind::Source`](crate::ErrorKind::Source) if no file has a whole window, or a file is damaged.
    pub fn open(path: impl AsRef<Path>, kind: TokenType, length: usize, stride: usize) -> Result<Self> {
        Self::with(path, kind, (length, stride), true)
    }

    /// As [`open`](TokenFile::open). Without `mapped`, the files are read instead of mapped.
    ///
    /// # Errors
    /// Those of [`open`](TokenFile::open).
    pub fn with(
        path: impl AsRef<Path>,
        kind: TokenType,
        (length, stride): (usize, usize),
        mapped: bool,
    ) -> Result<Self> {
        let path = path.as_ref();
        if !(1..=MOST).contains(&length) || !(1..=MOST).contains(&stride) {
            return Err(Error::config(format!("windows of {length} tokens every {stride}: both must be 1 to {MOST}")));
        }
        if cfg!(target_endian = "big") {
            return Err(Error::config("files of tokens are little-endian; this machine is not"));
        }
        let mut files = Vec::new();
        for path in files_at(path)? {
            let file = HeldFile::open(&path, mapped)?.0;
            let (start, tokens) = tokens_of(&file, kind).map_err(|e| e.at_path(&path))?;
            let windows = (tokens + stride as u64).saturating_sub(length as u64) / stride as u64;
            if windows == 0 {
                tracing::warn!("{}: {tokens} tokens, which make no window of {length}", path.display());
            }
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let count = usize::try_from(windows)
                .map_err(|_| Error::in_source(format!("{windows} windows are too many")).at_path(&path))?;
            files.push((file, Windows { name, start, count }));
        }
        let files = Files::new(files, |windows| windows.count)?;
        if files.len() == 0 {
            let cause = format!("no file has {length} tokens of {}, which make a window", kind.name());
            return Err(Error::in_source(cause).at_path(path));
        }
        Ok(TokenFile { files, kind, length, stride: stride as u64 })
    }
}

/// The files of a dataset at `path`.
fn files_at(path: &Path) -> Result<Vec<PathBuf>> {
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
        return Err(Error::in_source("no .bin or .npy files of tokens in this folder").at_path(path));
    }
    Ok(files)
}

/// Offset of the first token of a file, and the number of its tokens.
fn tokens_of(file: &HeldFile, kind: TokenType) -> Result<(u64, u64)> {
    let mut scratch = Vec::new();
    let start = file.get(0, HEADER as u64, &mut scratch)?;
    let (size, len) = (kind.bytes(), file.len());
    let (offset, count) = if Npy::matches(start) {
        let npy = Npy::read(start).map_err(|e| Error::in_source(e.cause().to_owned()))?;
        let Some([count]) = npy.shape.as_deref() else {
            return Err(Error::in_source(format!("an array of one axis is expected, not {}", npy.shown())));
        };
        if (npy.kind, npy.size as u64, npy.big_endian) != (b'u', size, false) {
            let name = kind.name();
            return Err(Error::config(format!("the tokens are {}; the dataset was opened with {name}", npy.shown())));
        }
        (npy.start as u64, *count as u64)
    } else if let Some((of, count)) = llm_c(start)? {
        if of != kind {
            let (of, name) = (of.name(), kind.name());
            return Err(Error::config(format!("the header says {of}; the dataset was opened with {name}")));
        }
        (LLM_C_BYTES, count)
    } else {
        if !len.is_multiple_of(size) {
            let name = kind.name();
            return Err(Error::in_source(format!("{len} bytes are not a whole number of tokens of {name}")));
        }
        check_type(start, kind)?;
        (0, len / size)
    };
    if count.checked_mul(size).and_then(|bytes| bytes.checked_add(offset)) != Some(len) {
        return Err(Error::in_source(format!(
            "the header claims {count} tokens of {size} bytes from byte {offset} on, and the file has {len} bytes"
        )));
    }
    Ok((offset, count))
}

/// Type and number of the tokens after llm.c's header, if there is one.
///
/// # Errors
/// If the header is not one that is known here.
fn llm_c(start: &[u8]) -> Result<Option<(TokenType, u64)>> {
    let word = |at: usize| Some(i32::from_le_bytes(start.get(4 * at..4 * at + 4)?.try_into().ok()?));
    let Some((_, kind)) = LLM_C.iter().find(|(known, _)| word(0) == Some(*known)) else { return Ok(None) };
    match (word(1), word(2).map(u64::try_from)) {
        (Some(1 | 7), Some(Ok(count))) if start.len() as u64 >= LLM_C_BYTES => Ok(Some((*kind, count))),
        (version, count) => {
            let shown = |word: Option<String>| word.unwrap_or_else(|| "none".to_owned());
            Err(Error::in_source(format!(
                "the header of llm.c has version {} and {} tokens; versions 1 and 7 are known, with a header of 1024 bytes",
                shown(version.map(|version| version.to_string())),
                shown(count.and_then(|count| count.ok()).map(|count| count.to_string())),
            )))
        }
    }
}

/// # Errors
/// If the first tokens show that the file has another type. Without a header nothing else would.
fn check_type(start: &[u8], kind: TokenType) -> Result<()> {
    let halves = start.as_chunks::<2>().0;
    let halves = &halves[..halves.len().min(COMPARED) & !1];
    if halves.len() < 64 {
        return Ok(());
    }
    // Upper halves of tokens below `UNLIKELY`.
    let are_small = |odd: usize| {
        let small = |half: &&[u8; 2]| u32::from(u16::from_le_bytes(**half)) < UNLIKELY >> 16;
        2 * halves.iter().skip(odd).step_by(2).filter(small).count() > halves.len() / 2
    };
    let most = |odd: usize| halves.iter().skip(odd).step_by(2).map(|half| u16::from_le_bytes(*half)).max();
    // Tokens of one byte have no upper half; others may have a small one.
    let looks_wide = (most(1) == Some(0) && most(0) != Some(0)) || (most(1) < Some(64) && !are_small(0));
    match kind {
        TokenType::U16 if looks_wide => Err(Error::config(format!(
            "every second of the first {} tokens is below 64, as in a file of u32: open it with that type",
            halves.len()
        ))),
        TokenType::U32 if !are_small(1) => Err(Error::config(format!(
            "most of the first {} tokens are {UNLIKELY} or more, as in a file of u16: open it with that type",
            halves.len() / 2
        ))),
        _ => Ok(()),
    }
}

impl Source for TokenFile {
    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        let (file, windows, window) = self.files.open(index)?;
        let bytes = self.length as u64 * self.kind.bytes();
        let first = window as u64 * self.stride;
        let at = windows.start + first * self.kind.bytes();
        scratch.clear();
        write!(scratch, "{}/{first}..{}", windows.name, first + self.length as u64).expect("a Vec takes everything");
        let key = scratch.len();
        let tokens = file.part(Some(index as u64), at..at + bytes, scratch).map_err(|e| e.at_path(&file.path))?;
        let tokens = Numbers::of_element(tokens.of(scratch), self.kind.element(), &[self.length]);
        let tokens = tokens.expect("bytes of this length");
        let key = std::str::from_utf8(&scratch[..key]).expect("a name and a number");
        Sample::new(key).with_field("tokens.npy", tokens)
    }

    of_files!(files);

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
        f.debug_struct("Tokens")
            .field("files", &self.files.each().len())
            .field("windows", &self.len())
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}
