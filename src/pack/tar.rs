//! One tar file, or numbered shards.
//!
//! Headers are written by hand at the end of this file. The library also reads them by hand (see
//! `source::tar`), so the crate `tar` would be used only here.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::writer::{
    WriteOptions, Writer, Written, exists, no_samples, partial, remove_if_there, sync_folder_of, without_slash,
};
use crate::error::{Error, Result};
use crate::source::{CLASSES_MEMBER, KEY_RECORD, Sample};

const BLOCK: usize = 512;
/// Two blocks of zeros end an archive.
const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];
/// Maximum size that fits into eleven octal digits.
const MAX_OCTAL_SIZE: u64 = (1 << 33) - 1;

/// Writes WebDataset shards that [`Tar`](crate::source::Tar), WebDataset and `tar` read.
///
/// A sample's fields are the files `KEY.FIELD`, its label the file `KEY.cls`. Headers are POSIX
/// ustar, with a PAX header where a name or size needs one. Owner and time are zero, so the same
/// samples give the same bytes.
///
/// **Keys.** WebDataset ends a key at the first dot of its last component, and joins neighbouring
/// files with the same key into one sample. It would misread a key that has such a dot, an empty
/// component or `..`, or that repeats the previous key. Such a key is written under a similar name.
/// The PAX record `WARPFEED.key` holds the true key for [`Tar`](crate::source::Tar); other readers
/// ignore it.
///
/// **Shards.** With [`WriteOptions::shard_size`], `OUT.tar` becomes `OUT-000000.tar`,
/// `OUT-000001.tar`, … A shard exceeds the size only if a single sample does. Each shard holds the
/// class names in the member `__classes__`.
pub struct TarWriter {
    target: PathBuf,
    options: WriteOptions,
    /// Final names of the shards so far. The last one is open.
    paths: Vec<PathBuf>,
    open: Option<BufWriter<File>>,
    /// Bytes of the open shard, and of the finished shards.
    shard_bytes: u64,
    bytes: u64,
    samples: u64,
    /// Name of the last sample's files, without the extension.
    last_stem: String,
    /// First write error. The open shard may then end in a partial sample, so nothing more can be
    /// added or finished.
    failed: Option<Error>,
    /// Buffer for one sample, which is written completely or not at all.
    gathered: Vec<u8>,
}

impl std::fmt::Debug for TarWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TarWriter")
            .field("target", &self.target)
            .field("samples", &self.samples)
            .finish_non_exhaustive()
    }
}

impl TarWriter {
    /// Begins a tar file that [`finish`](Writer::finish) puts at `target`, or shards with numbers
    /// before its extension. `.partial` files of an interrupted run are overwritten.
    ///
    /// # Errors
    /// If the target, or a shard of that name, exists and `force` is not set.
    pub fn create(target: impl AsRef<Path>, options: &WriteOptions) -> Result<Self> {
        let writer = TarWriter {
            target: without_slash(target.as_ref()),
            options: options.clone(),
            paths: Vec::new(),
            open: None,
            shard_bytes: 0,
            bytes: 0,
            samples: 0,
            last_stem: String::new(),
            failed: None,
            gathered: Vec::new(),
        };
        match writer.old_shards()?.first() {
            Some(old) if !options.force => Err(exists(old)),
            Some(old) if !old.is_file() => Err(Error::config("exists and is not a file; not replaced").at_path(old)),
            _ => Ok(writer),
        }
    }

    /// Existing files under this writer's names.
    fn old_shards(&self) -> Result<Vec<PathBuf>> {
        if self.options.shard_size.is_none() {
            return Ok(if self.target.exists() { vec![self.target.clone()] } else { Vec::new() });
        }
        let folder = self.target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(|e| Error::io(folder, &e))?,
        };
        let stem = self.shard_stem();
        let mut old = Vec::new();
        for entry in entries {
            let name = entry.map_err(|e| Error::io(folder, &e))?.file_name();
            let number = name
                .to_str()
                .and_then(|n| n.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(".tar")?.parse().ok());
            if let Some(number) = number
                && self.shard_path(number).file_name() == Some(&name)
            {
                old.push(self.shard_path(number));
            }
        }
        old.sort();
        Ok(old)
    }

    /// The target's name without `.tar`, to which numbers are added.
    fn shard_stem(&self) -> String {
        let name = self.target.file_name().unwrap_or_default().to_string_lossy();
        name.strip_suffix(".tar").unwrap_or(&name).to_owned()
    }

    fn shard_path(&self, number: usize) -> PathBuf {
        match self.options.shard_size {
            None => self.target.clone(),
            Some(_) => self.target.with_file_name(format!("{}-{number:06}.tar", self.shard_stem())),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let path = self.paths.last().expect("a shard is open");
        if let Err(e) = self.open.as_mut().expect("a shard is open").write_all(bytes) {
            let error = Error::io(partial(path), &e);
            self.failed = Some(error.clone());
            return Err(error);
        }
        self.shard_bytes += bytes.len() as u64;
        Ok(())
    }

    fn check_whole(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn begin_shard(&mut self) -> Result<()> {
        let path = self.shard_path(self.paths.len());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|e| Error::io(folder, &e))?;
        }
        let file = File::create(partial(&path)).map_err(|e| Error::io(partial(&path), &e))?;
        self.open = Some(BufWriter::with_capacity(1 << 20, file));
        self.paths.push(path);
        self.shard_bytes = 0;
        self.last_stem.clear();
        if !self.options.classes.is_empty() {
            let names = serde_json::to_vec(&self.options.classes).expect("text is JSON");
            let mut member = Vec::new();
            append(&mut member, CLASSES_MEMBER, None, &names);
            self.write(&member)?;
        }
        Ok(())
    }

    fn end_shard(&mut self) -> Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        let path = partial(self.paths.last().expect("a shard is open"));
        let written = open.write_all(&END).and_then(|()| open.flush()).and_then(|()| open.get_ref().sync_all());
        written.map_err(|e| Error::io(path, &e))?;
        self.bytes += self.shard_bytes + END.len() as u64;
        Ok(())
    }
}

impl Writer for TarWriter {
    fn put(&mut self, sample: &Sample<'_>) -> Result<()> {
        let label = sample.label()?;
        if sample.fields().is_empty() && label.is_none() {
            return Err(Error::in_source("sample has no fields and no label, so a tar cannot store it"));
        }
        let mut stem = stem(sample.key());
        if stem == self.last_stem {
            stem.push('~');
        }
        let key = (stem != sample.key()).then(|| sample.key());
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        for &(name, value) in sample.fields() {
            // Such a name would be read back as another name or path.
            if name.is_empty() || name.contains(['/', '\0']) || name.to_lowercase() != name {
                return Err(Error::in_source(format!("field name {name:?} cannot be a lower-case file extension")));
            }
            append(&mut gathered, &format!("{stem}.{name}"), key, &value.encoded(name));
        }
        if let Some(label) = label {
            append(&mut gathered, &format!("{stem}.cls"), key, label.to_string().as_bytes());
        }

        self.check_whole()?;
        let after = self.shard_bytes + (gathered.len() + END.len()) as u64;
        let full = self.options.shard_size.is_some_and(|limit| after > limit);
        // A shard without samples is never full, so a sample larger than the limit gets its own
        // shard.
        if self.open.is_none() || full && !self.last_stem.is_empty() {
            self.end_shard()?;
            self.begin_shard()?;
        }
        self.write(&gathered)?;
        self.gathered = gathered;
        self.last_stem = stem;
        self.samples += 1;
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<Written> {
        self.check_whole()?;
        if self.samples == 0 {
            return Err(no_samples(&self.target));
        }
        self.end_shard()?;
        let old = self.old_shards()?;
        if let (Some(old), false) = (old.first(), self.options.force) {
            return Err(exists(old));
        }
        // If the old set has more shards, the extra ones are removed. They would become part of the
        // new set.
        for path in old.iter().filter(|path| !self.paths.contains(path)) {
            remove_if_there(path)?;
        }
        // Renames the first shard last, so that an interrupted set visibly lacks its beginning.
        for path in self.paths.iter().rev() {
            fs::rename(partial(path), path).map_err(|e| Error::io(path, &e))?;
        }
        sync_folder_of(&self.target);
        Ok(Written { samples: self.samples, bytes: self.bytes, paths: self.paths.clone() })
    }
}

impl Drop for TarWriter {
    /// Removes unfinished `.partial` files.
    fn drop(&mut self) {
        self.open = None;
        for path in &self.paths {
            let _ = fs::remove_file(partial(path));
        }
    }
}

/// Path of the files of `key`: `key` itself, unless it would be misread or would lead out of the
/// folder.
fn stem(key: &str) -> String {
    let (folders, base) = key.rsplit_once('/').map_or((None, key), |(folders, base)| (Some(folders), base));
    let component = |name: &str| if matches!(name, "" | "." | "..") { "_".to_owned() } else { name.replace('\0', "_") };
    let base = component(base).replace('.', "_");
    match folders {
        None => base,
        Some(folders) => {
            let folders: Vec<String> = folders.split('/').map(component).collect();
            format!("{}/{base}", folders.join("/"))
        }
    }
}

/// Appends a member: a PAX header if needed, the header, and the data padded to a whole block.
fn append(out: &mut Vec<u8>, path: &str, key: Option<&str>, data: &[u8]) {
    let size = data.len() as u64;
    let split = split_path(path);
    let mut records = String::new();
    if split.is_none() {
        records += &pax_record("path", path);
    }
    if size > MAX_OCTAL_SIZE {
        records += &pax_record("size", &size.to_string());
    }
    if let Some(key) = key {
        records += &pax_record(KEY_RECORD, key);
    }
    if !records.is_empty() {
        out.extend_from_slice(&header("", "./PaxHeaders/x", records.len() as u64, b'x'));
        out.extend_from_slice(records.as_bytes());
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    // Readers without PAX support see the name truncated at a character boundary.
    let (prefix, name) = split.unwrap_or_else(|| {
        let end = (0..=path.len().min(100)).rev().find(|&end| path.is_char_boundary(end)).unwrap_or(0);
        ("", &path[..end])
    });
    out.extend_from_slice(&header(prefix, name, size.min(MAX_OCTAL_SIZE), b'0'));
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// Splits a path at a slash into ustar's prefix and name, if they fit: 155 and 100 bytes of ASCII.
fn split_path(path: &str) -> Option<(&str, &str)> {
    if !path.is_ascii() {
        return None;
    }
    if path.len() <= 100 {
        return Some(("", path));
    }
    let slash = path.len() - 101 + path[path.len() - 101..].find('/')?;
    (1..=155).contains(&slash).then(|| (&path[..slash], &path[slash + 1..])).filter(|(_, name)| !name.is_empty())
}

/// Formats `LENGTH KEYWORD=VALUE\n`, where LENGTH includes its own digits.
fn pax_record(keyword: &str, value: &str) -> String {
    let rest = keyword.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    format!("{len} {keyword}={value}\n")
}

/// Builds a ustar header (POSIX.1-1988). Prefix, name and size must fit their fields.
fn header(prefix: &str, name: &str, size: u64, kind: u8) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}
