//! [`Arrays`], a source of arrays, and the rules for choosing its columns.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "hdf5")]
use super::chunks::ChunkCache;
use super::column::{ArraySelector, Column};
#[cfg(feature = "hdf5")]
use super::hdf5;
use super::{numpy, safetensors, splits, torch};
use crate::error::{Error, Result};
use crate::machine::file::{has_extension, is_folder};
#[cfg(feature = "hdf5")]
use crate::model::BatchIndex;
use crate::model::{Lookahead, Prefetcher, Sample, Source};
use crate::options::ColumnChoice;
use crate::options::Options;
use crate::stats::NetworkStats;
use crate::storage::prefetch::{Remote, SampleRanges, max_prefetch_bytes, order_of_reads};
use crate::storage::{DatasetLocation, OpenFile, RowBytes, are_unchanged};
#[cfg(feature = "hdf5")]
use crate::values::grants::Grant;
use crate::values::pixels;
use crate::values::record::{ColumnValue, NamedCell, RowConverter, Survey, is_label};

/// A dataset of arrays. The first axis of each array is the sample index.
///
/// Reads `.npy` files, folders of `.npy` files, `.npz` archives, `.safetensors` files, `.pt` and
/// `.pth` files written by `torch.save`, and, with the `hdf5` Cargo feature, HDF5 files.
///
/// ```python
/// numpy.savez("train.npz", images=images, labels=labels)  # (n, height, width, 3) and (n,)
/// ```
///
/// **Columns.** Each array is a column. The image array has the type `uint8` and the shape (n,
/// height, width, channels), (n, channels, height, width) or (n, height, width), with 1, 3 or 4
/// channels. An array with a common name, such as `images` or `x`, takes precedence. If the choice
/// is ambiguous, as with `float32` images and `uint8` masks, opening fails with an error that asks
/// you to choose an array. The label array is called `label`, `labels`, `target`, `y`, ... and
/// contains one integer per sample. Other arrays of numbers become fields called `<name>.npy`, and
/// may have up to three axes per sample. Arrays without axes are ignored. The key of a sample is
/// its index.
///
/// **Splits.** The dataset has splits if every array name begins or ends with the name of a split
/// such as `train`, `val` or `test`, as in `train_images` or `x_test`. To select a split, append
/// its name to the path: `pathmnist.npz/train`.
///
/// **Checksums.** Opening an `.npz` archive verifies the checksums of the compressed arrays that it
/// loads. Opening a local `.npz`, `.pt` or `.pth` archive also verifies the checksums of up to 256
/// MiB of uncompressed arrays.
///
/// **Memory.** Local files are memory-mapped by default. Reading a sample accesses only the bytes
/// of that sample, except in chunked or variable-length HDF5 arrays. Opening an `.npz` archive
/// decompresses the selected compressed arrays into memory, up to 4 GiB. The loader's memory plan
/// does not include this memory. For large arrays, use `numpy.savez` instead of `savez_compressed`.
///
/// **Conversions.** Booleans become `uint8`, `float16` becomes `float32`, and numbers are converted
/// to the byte order of this machine.
///
/// **HDF5.** Arrays may be contiguous, compact or chunked, with the filters gzip, LZF, shuffle and
/// fletcher32. Chunks are decoded as a whole. For each loader, an array caches up to 32 MiB of
/// decoded chunks, or one chunk if a chunk is larger. If the file is local, the loader's memory
/// plan counts these caches as memory of the source. Variable-length values may be encoded images,
/// bytes or text. Text in a label column is the name of the sample's class.
///
/// **Not supported:** arrays in Fortran order, tensors that are not contiguous, and elements other
/// than integers, `float16`, `float32`, `float64`, booleans and variable-length HDF5 values.
/// Reading the pickle in a `.pt` file executes no code. Opening fails if the pickle contains an
/// object of an unsupported class, or if a selected column is neither a tensor nor a list or tuple
/// of integers.
pub struct Arrays {
    files: Vec<Arc<OpenFile>>,
    columns: Arc<[Column]>,
    row_converter: RowConverter,
    label: Option<usize>,
    len: usize,
    path: PathBuf,
    kind: &'static str,
    requested_checks: AtomicU64,
}

/// Names of label columns that are recognized only in array datasets.
const OTHER_LABELS: [&str; 3] = ["y", "targets", "fine_labels"];

fn is_other_label(name: &str) -> bool {
    OTHER_LABELS.iter().any(|label| name.eq_ignore_ascii_case(label))
}

/// Maximum number of samples that are read on opening to determine the types of variable-length
/// columns.
const MAX_SURVEYED_SAMPLES: usize = 64;

fn kind_of(path: &Path) -> Result<&'static str> {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("npz") => Ok("npz"),
        Some("safetensors") => Ok("safetensors"),
        Some("pt" | "pth") => Ok("torch"),
        Some("npy") => Ok("npy"),
        #[cfg(feature = "hdf5")]
        Some("h5" | "hdf5") => Ok("hdf5"),
        _ if is_folder(path)? => Ok("npy"),
        _ => {
            let hdf5 = if cfg!(feature = "hdf5") { ", .h5, .hdf5" } else { "" };
            Err(Error::config(format!(
                "unknown array format: expected an .npy, .npz, .safetensors{hdf5}, .pt or .pth file, or a folder of \
                 .npy files"
            ))
            .at_path(path))
        }
    }
}

impl Arrays {
    /// Opens the arrays at `path`: a folder of `.npy` files, or a file whose extension names its
    /// format.
    ///
    /// # Errors
    /// If a file is missing, damaged or of an unknown format, if there are several splits or no
    /// samples, or if the arrays have different numbers of samples. Also fails if an array has an
    /// unsupported element type, memory order or number of axes, or if the choice of the image
    /// array is ambiguous.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::open_at(&DatasetLocation::local(path), kind_of(path)?, &Options::default())
    }

    /// `kind` is `npy`, `npz`, `safetensors`, `torch` or `hdf5`.
    pub(crate) fn open_at(location: &DatasetLocation, kind: &'static str, options: &Options) -> Result<Self> {
        let choice = options.column_choice();
        let selector = |names: &[String]| select_arrays(names, location.split.as_deref(), &choice);
        let (files, columns) = open_columns(location, kind, &selector).map_err(|e| e.at_path(&location.path))?;
        Self::from_columns(&location.path, kind, choice, files, columns, options)
    }

    #[cfg(test)]
    pub(super) fn in_memory(bytes: Vec<u8>, kind: &'static str, part: Option<&str>) -> Result<Self> {
        let file = Arc::new(OpenFile::in_memory("memory".into(), bytes));
        let selector = |names: &[String]| select_arrays(names, part, &ColumnChoice::default());
        let columns = read_columns(&file, kind, "x", &selector)?;
        Self::from_columns(Path::new("memory"), kind, ColumnChoice::default(), vec![file], columns, &Options::default())
    }

    fn from_columns(
        path: &Path,
        kind: &'static str,
        mut choice: ColumnChoice,
        files: Vec<Arc<OpenFile>>,
        columns: Vec<Column>,
        options: &Options,
    ) -> Result<Self> {
        let with_path = |e: Error| e.at_path(path);
        let columns: Vec<Column> = columns.into_iter().filter(|column| column.len().is_some()).collect();
        let len = check_columns(&columns).map_err(with_path)?;
        let has_usual_label = columns.iter().any(|column| is_label(&column.name));
        if choice.label.is_none() && !choice.without_label && !has_usual_label {
            let is_scalar = |column: &&Column| column.shape[1..].iter().all(|&side| side == 1);
            let is_integer_column = |column: &&Column| matches!(column.dtype.kind, b'i' | b'u') && is_scalar(column);
            let label = |name: &&str| {
                columns.iter().filter(is_integer_column).find(|column| column.name.eq_ignore_ascii_case(name))
            };
            choice.label = OTHER_LABELS.iter().find_map(label).map(|column| column.name.clone());
        }
        let mut buffer = Vec::new();
        let mut survey = Survey::default();
        // All rows of a numeric array have the same type, so one row is enough.
        let survey_count =
            if columns.iter().any(|column| column.heap.is_some()) { len.min(MAX_SURVEYED_SAMPLES) } else { 1 };
        for index in 0..survey_count {
            buffer.clear();
            let row = read_row(&columns, &files, index, None, &mut buffer).map_err(with_path)?;
            survey.add_row(&row, &buffer).map_err(with_path)?;
        }
        let mut row_converter = survey.finish(&choice).map_err(with_path)?;
        let texts = |name: &str, visit: &mut dyn FnMut(usize, &str)| {
            let label = columns.iter().filter(|column| column.name == name);
            (0..len).try_for_each(|index| {
                buffer.clear();
                for NamedCell { content, .. } in read_row(label.clone(), &files, index, None, &mut buffer)? {
                    if let ColumnValue::Text(text) = content {
                        let text = std::str::from_utf8(text.resolve(&buffer));
                        visit(index, text.map_err(|_| Error::in_source("a label is not UTF-8"))?);
                    }
                }
                Ok(())
            })
        };
        row_converter
            .learn_labels(options.classes.as_ref(), options.defer_unknown_classes, texts)
            .map_err(with_path)?;
        let label = row_converter.label().and_then(|name| columns.iter().position(|column| column.name == name));
        let requested_checks = AtomicU64::new(0);
        Ok(Arrays {
            files,
            columns: columns.into(),
            row_converter,
            label,
            len,
            path: path.to_owned(),
            kind,
            requested_checks,
        })
    }

    #[cfg(feature = "hdf5")]
    fn caches(&self) -> impl Iterator<Item = (&Arc<ChunkCache>, usize)> {
        self.columns.iter().filter_map(Column::cache)
    }

    #[cfg(feature = "hdf5")]
    fn grant_caches(&self, order: &Lookahead) -> Option<Box<dyn Prefetcher>> {
        let (needed, granted) = (self.prefetch_bytes() as u128, order.budget_bytes() as u128);
        let share = |(cache, bytes): (&Arc<ChunkCache>, usize)| {
            // The share is at most `granted`, so the cast is lossless.
            Grant::new(cache.clone(), (bytes as u128 * granted / needed) as usize)
        };
        (needed > 0)
            .then(|| Box::new(CacheGrants { _grants: self.caches().map(share).collect() }) as Box<dyn Prefetcher>)
    }

    #[cfg(not(feature = "hdf5"))]
    fn grant_caches(&self, _: &Lookahead) -> Option<Box<dyn Prefetcher>> {
        None
    }

    fn remote(&self) -> Option<&Arc<Remote>> {
        Some(self.files.first()?.object()?.1)
    }

    fn check_files(&self) -> Result<()> {
        let requested_checks = self.requested_checks.load(Ordering::Relaxed);
        self.files.iter().try_for_each(|file| file.check_once(requested_checks))
    }
}

/// Selects the arrays of a split. If the user has listed columns, selects only these arrays, and
/// arrays that may contain the labels or the images.
fn select_arrays(names: &[String], part: Option<&str>, choice: &ColumnChoice) -> Result<Vec<(usize, String)>> {
    let mut selected = splits::select_split_arrays(names, part)?;
    if let Some(columns) = &choice.columns {
        let is_named = |option: &Option<String>, name: &str| option.as_deref() == Some(name);
        selected.retain(|(_, name)| {
            let is_label_column = match &choice.label {
                None => !choice.without_label && (is_label(name) || is_other_label(name)),
                label => is_named(label, name),
            };
            let is_image_column = match &choice.image {
                None => pixels::is_image_name(name),
                image => is_named(image, name),
            };
            columns.contains(name) || is_label_column || is_image_column
        });
        if selected.is_empty() {
            return Err(Error::config(format!("no column {:?} among {names:?}", columns.first().map_or("", |s| s))));
        }
    }
    Ok(selected)
}

fn open_columns(
    location: &DatasetLocation,
    kind: &str,
    selector: ArraySelector<'_>,
) -> Result<(Vec<Arc<OpenFile>>, Vec<Column>)> {
    let (path, storage) = (&*location.path, location.storage.clone());
    let is_npy = |name: &str| has_extension(name, "npy");
    if kind == "npy" {
        let is_folder = if storage.is_store() { !path.to_str().is_some_and(is_npy) } else { is_folder(path)? };
        let storage = if is_folder { storage.listed(path) } else { storage };
        let paths = if is_folder { storage.files_in(path, is_npy)? } else { vec![path.to_owned()] };
        if paths.is_empty() {
            return Err(Error::in_source("the folder contains no .npy files"));
        }
        let stem = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let names: Vec<String> = paths.iter().map(stem).collect();
        // A path to one file selects that file, even if its name denotes a split.
        let selected = if is_folder { selector(&names)? } else { vec![(0, names[0].clone())] };
        let (mut files, mut columns) = (Vec::new(), Vec::new());
        for (index, name) in selected {
            let file = Arc::new(storage.open(&paths[index])?);
            columns.push(numpy::npy(&*file, name, files.len()).map_err(|e| e.at_path(&paths[index]))?);
            files.push(file);
        }
        return Ok((files, columns));
    }
    let file = Arc::new(storage.open(path)?);
    let columns = read_columns(&file, kind, "", selector)?;
    Ok((vec![file], columns))
}

/// `name` is the name of the array in an `.npy` file. Files in other formats contain the names of
/// their arrays.
fn read_columns(file: &Arc<OpenFile>, kind: &str, name: &str, selector: ArraySelector<'_>) -> Result<Vec<Column>> {
    let bytes = &**file;
    match kind {
        "npy" => Ok(vec![numpy::npy(bytes, name.to_owned(), 0)?]),
        "npz" => numpy::npz(bytes, 0, selector),
        "safetensors" => safetensors::columns(bytes, 0, selector),
        #[cfg(feature = "hdf5")]
        "hdf5" => hdf5::columns(file, 0, selector),
        _ => torch::columns(bytes, 0, selector),
    }
}

/// Returns the number of samples. Fails if a column is not supported, if the columns have different
/// numbers of samples, or if there are no samples.
fn check_columns(columns: &[Column]) -> Result<usize> {
    let Some(len) = columns.first().and_then(Column::len) else {
        return Err(Error::in_source(
            "found no arrays whose first axis is the sample index: expected at least one array with an axis",
        ));
    };
    let advice = "select the columns with TableOptions::columns";
    if let Some(other) = columns.iter().find(|column| column.len() != Some(len)) {
        let first = &columns[0];
        return Err(Error::in_source(format!(
            "the first axes of the arrays differ in length: {:?} has shape {:?}, but {:?} has {:?}; {advice}",
            first.name, first.shape, other.name, other.shape
        )));
    }
    for Column { name, dtype, shape, heap, .. } in columns {
        if heap.is_none() {
            dtype.element().map_err(|e| Error::in_source(format!("array {name:?} has {}, or {advice}", e.cause())))?;
        }
        if shape.len() > 4 {
            return Err(Error::in_source(format!(
                "array {name:?} has the shape {shape:?}: at most three axes per sample are supported; {advice}"
            )));
        }
    }
    if len == 0 {
        return Err(Error::in_source("the arrays contain no samples"));
    }
    Ok(len)
}

/// `first_prefetch_index` is the prefetch index of the first column, or `None` if the sample is not
/// prefetched. The other columns have the indices after it.
fn read_row<'a>(
    columns: impl IntoIterator<Item = &'a Column>,
    files: &'a [Arc<OpenFile>],
    index: usize,
    first_prefetch_index: Option<usize>,
    buffer: &mut Vec<u8>,
) -> Result<Vec<NamedCell<'a>>> {
    let cell = |(position, column): (usize, &'a Column)| {
        let prefetch_index = first_prefetch_index.map(|first| (first + position) as u64);
        let content = match column.heap {
            Some(_) => column.read_heap_value(files, index, buffer)?,
            None => ColumnValue::array(
                column.dtype.element()?,
                &column.shape[1..],
                column.read_sample(files, index, prefetch_index, buffer)?,
            ),
        };
        Ok(NamedCell { name: Cow::Borrowed(&*column.name), content })
    };
    columns.into_iter().enumerate().map(cell).collect()
}

/// Memory that a loader has granted to the chunk caches. Dropping this value ends the grants.
#[cfg(feature = "hdf5")]
struct CacheGrants {
    _grants: Vec<Grant>,
}

#[cfg(feature = "hdf5")]
impl Prefetcher for CacheGrants {
    fn start(&self, _batch: BatchIndex) {}
}

impl Source for Arrays {
    fn len(&self) -> usize {
        self.len
    }

    fn read<'a>(&'a self, index: usize, scratch: &'a mut Vec<u8>) -> Result<Sample<'a>> {
        self.check_files()?;
        scratch.clear();
        write!(scratch, "{index}").expect("writing to a Vec succeeds");
        let key = RowBytes::Page(0..scratch.len());
        let row = read_row(&*self.columns, &self.files, index, Some(index * self.columns.len()), scratch)
            .map_err(|e| e.at_path(&self.path))?;
        self.row_converter.sample(key, row, scratch).map_err(|e| e.at_path(&self.path))
    }

    fn prefetcher(&self, order: Lookahead) -> Option<Box<dyn Prefetcher>> {
        if let Some(remote) = self.remote() {
            let (columns, width) = (self.columns.clone(), self.columns.len());
            let byte_range = move |read: u64| columns[read as usize % width].byte_range(read as usize / width);
            let objects = self.files.iter().filter_map(|file| Some(file.object()?.0.clone()));
            return remote.prefetcher(order_of_reads(order, width), SampleRanges::new(objects.collect(), byte_range));
        }
        self.grant_caches(&order)
    }

    fn network_stats(&self) -> Option<NetworkStats> {
        self.remote().map(|remote| remote.network_stats())
    }

    fn prefetch_bytes(&self) -> usize {
        if self.remote().is_some() {
            return max_prefetch_bytes(self.files.iter().map(|file| file.len()));
        }
        #[cfg(feature = "hdf5")]
        return self.caches().fold(0, |total, (_, bytes)| total.saturating_add(bytes));
        #[cfg(not(feature = "hdf5"))]
        0
    }

    fn check(&self) -> Result<()> {
        self.requested_checks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn is_unchanged(&self) -> bool {
        are_unchanged(self.files.iter().map(|file| &**file), self.requested_checks.load(Ordering::Relaxed))
    }

    fn label(&self, index: usize, scratch: &mut Vec<u8>) -> Result<Option<i64>> {
        let Some(label) = self.label else { return Ok(None) };
        self.check_files()?;
        scratch.clear();
        let row =
            read_row([&self.columns[label]], &self.files, index, None, scratch).map_err(|e| e.at_path(&self.path))?;
        self.row_converter
            .sample(RowBytes::Borrowed(b""), row, scratch)
            .and_then(|s| s.label())
            .map_err(|e| e.at_path(&self.path))
    }

    fn path(&self, _index: usize) -> Option<PathBuf> {
        Some(self.path.clone())
    }

    fn fields(&self) -> Option<Vec<String>> {
        Some(self.row_converter.field_names())
    }

    fn classes(&self) -> &[String] {
        self.row_converter.classes()
    }

    fn kind(&self) -> &'static str {
        self.kind
    }
}

impl fmt::Debug for Arrays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrays")
            .field("path", &self.path)
            .field("len", &self.len)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}
