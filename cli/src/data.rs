//! Defines the options for opening a dataset, which several commands share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::PossibleValuesParser;
use warpfeed::AnnotationFrame;
use warpfeed::source::{Classes, DATA_FORMATS, Options, Source, Store, TableOptions};

// Options for opening a dataset. This is not a doc comment, because clap would use it as the
// command's help text.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Classes and tables")]
pub(crate) struct DataArgs {
    /// Format of the dataset [default: detected]
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(DATA_FORMATS.iter().map(|f| f.name)))]
    format: Option<String>,
    /// File that lists the classes in the order of their labels: text with one name per line, or a
    /// JSON array
    #[arg(long, value_name = "FILE")]
    classes: Option<PathBuf>,
    /// Cache the listing of a folder in FOLDER.warpfeed-index
    #[arg(long)]
    cache_listing: bool,
    /// Folder of masks, relative to the parent of the image folder, or a pattern such as
    /// train_masks/*_mask, in which * stands for the name of the image without its extension
    #[arg(long, value_name = "FOLDER")]
    masks: Option<PathBuf>,
    /// Column with the images (in tables: with the paths of the images) [default in tables: path,
    /// file, image, filename, file_name or img]
    #[arg(long, value_name = "COLUMN")]
    image_column: Option<String>,
    /// Folder to which the paths in the table are relative (tables only) [default: the table's
    /// folder]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Column with the labels [default in tables: label, class, cls or category]
    #[arg(long, value_name = "COLUMN")]
    label_column: Option<String>,
    /// Column with paths of additional files, such as masks (tables only)
    #[arg(long, value_name = "COLUMN")]
    file_column: Vec<String>,
    /// Other columns to read [default: all]
    #[arg(long, value_name = "COLUMN,...", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Combine several numeric columns into one vector field (tables only)
    #[arg(long, value_name = "FIELD=COLUMN,...", value_parser = parse_gather)]
    gather: Vec<(String, Vec<String>)>,
    /// Character that separates cells (tables only) [default: detected from the first line]
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// Treat the first line as a row, and name the columns 0, 1, 2, ... (tables only)
    #[arg(long)]
    no_header: bool,
}

// Options of commands that read annotations. This is not a doc comment, because clap would use it
// as the command's help text.
#[derive(clap::Args, Default, Clone, Copy)]
pub(crate) struct AnnotationFrameArgs {
    /// Whether annotations refer to the stored or to the EXIF-rotated image. Used only for
    /// images with an EXIF rotation, if the annotations contain no image size or one that fits both
    #[arg(long, value_name = "IMAGE", value_enum)]
    annotations_follow: Option<FrameChoice>,
}

#[derive(clap::ValueEnum, Clone, Copy)]
enum FrameChoice {
    /// The pixels as stored in the file
    Stored,
    /// The image after its EXIF rotation, as viewers show it
    Upright,
}

impl AnnotationFrameArgs {
    pub(crate) fn choice(self) -> Option<AnnotationFrame> {
        self.annotations_follow.map(|frame| match frame {
            FrameChoice::Stored => AnnotationFrame::Stored,
            FrameChoice::Upright => AnnotationFrame::Upright,
        })
    }
}

fn parse_gather(text: &str) -> Result<(String, Vec<String>), String> {
    let (field, columns) = text.split_once('=').ok_or("expected a field and its columns, such as size=width,height")?;
    Ok((field.to_owned(), columns.split(',').map(str::to_owned).collect()))
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        [byte] => Ok(*byte),
        b"\\t" => Ok(b'\t'),
        _ => Err("expected one ASCII character, such as ';', or \\t for a tab".to_owned()),
    }
}

/// Returns the object stores for URLs, by URL scheme. The list is empty without the feature
/// `stores`.
pub(crate) fn stores() -> Vec<(&'static str, Arc<dyn Store>)> {
    #[cfg(feature = "stores")]
    return warpfeed_stores::all();
    #[cfg(not(feature = "stores"))]
    Vec::new()
}

impl DataArgs {
    pub(crate) fn open(&self, path: &Path) -> warpfeed::Result<Arc<dyn Source>> {
        self.open_with_stores(path, stores())
    }

    /// Like [`open`](Self::open), but reads URLs with `stores`.
    pub(crate) fn open_with_stores(
        &self,
        path: &Path,
        stores: impl IntoIterator<Item = (&'static str, Arc<dyn Store>)>,
    ) -> warpfeed::Result<Arc<dyn Source>> {
        let mut table = TableOptions::new();
        if let Some(column) = &self.image_column {
            table = table.image(column);
        }
        if let Some(root) = &self.root {
            table = table.root(root);
        }
        if let Some(column) = &self.label_column {
            table = table.label(column);
        }
        if let Some(columns) = &self.columns {
            table = table.columns(columns);
        }
        if let Some(delimiter) = self.delimiter {
            table = table.delimiter(delimiter);
        }
        if self.no_header {
            table = table.headerless();
        }
        table = self.file_column.iter().fold(table, TableOptions::file);
        table = self.gather.iter().fold(table, |table, (field, columns)| table.gather(field, columns));
        let mut options = Options::new().table(table).cache_listing(self.cache_listing).stores(stores);
        if let Some(masks) = &self.masks {
            options = options.masks(masks);
        }
        if let Some(list) = &self.classes {
            options = options.classes(Classes::read(list)?);
        }
        if let Some(format) = &self.format {
            options = options.format(format);
        }
        options.open(path)
    }
}
