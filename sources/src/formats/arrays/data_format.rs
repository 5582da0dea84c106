//! The [`DataFormat`]s of arrays.

use std::path::Path;

use crate::error::Result;
use crate::format;
use crate::options::{DataFormat, with_feature};
use crate::storage::download::Companions;
use crate::storage::tree::Tree;

pub(crate) const NPY: DataFormat = DataFormat {
    is_folder: is_npy_folder,
    is_file: |_, start| start.starts_with(b"\x93NUMPY"),
    has_splits: true,
    ..DataFormat::new(
        "npy",
        "an `.npy` file with one sample per entry of the first axis, or a folder of such files",
        &["npy"],
        |location, options| {
            with_feature!("arrays", "a dataset of arrays", location, options => {
                super::Arrays::open_at(&location, "npy", options)?
            })
        },
    )
};

pub(crate) const NPZ: DataFormat = DataFormat {
    has_splits: true,
    ..DataFormat::new("npz", "an `.npz` archive of NumPy", &["npz"], |location, options| {
        with_feature!("arrays", "a dataset of arrays", location, options => {
            super::Arrays::open_at(&location, "npz", options)?
        })
    })
};

pub(crate) const SAFETENSORS: DataFormat = DataFormat {
    has_splits: true,
    ..DataFormat::new("safetensors", "a `.safetensors` file", &["safetensors"], |location, options| {
        with_feature!("arrays", "a dataset of arrays", location, options => {
            super::Arrays::open_at(&location, "safetensors", options)?
        })
    })
};

pub(crate) const TORCH: DataFormat = DataFormat {
    has_splits: true,
    ..DataFormat::new("torch", "a `.pt` or `.pth` file of tensors", &["pt", "pth"], |location, options| {
        with_feature!("arrays", "a dataset of arrays", location, options => {
            super::Arrays::open_at(&location, "torch", options)?
        })
    })
};

pub(crate) const HDF5: DataFormat = DataFormat {
    is_file: |_, start| start.starts_with(b"\x89HDF\r\n\x1a\n"),
    has_splits: true,
    companions: Some(Companions::NONE),
    ..DataFormat::new(
        "hdf5",
        "an HDF5 file of arrays with one sample per entry of the first axis",
        &["h5", "hdf5"],
        |location, options| {
            with_feature!("hdf5", "an HDF5 file", location, options => {
                super::Arrays::open_at(&location, "hdf5", options)?
            })
        },
    )
};

/// Maximum number of `.npy` files in a folder of arrays. A sample has at most 16 fields, so a
/// folder with many more files, even if they belong to several splits, is not a dataset of arrays.
const MAX_ARRAYS: usize = 64;

fn is_npy_folder(folder: Tree<'_>) -> Result<bool> {
    let mut arrays = 0;
    for entry in folder.entries() {
        let (name, is_folder) = entry?;
        let extension = Path::new(&name).extension().and_then(|end| end.to_str()).unwrap_or_default();
        let other = extension.eq_ignore_ascii_case("tar") || format::field_for_extension(extension, &[]).is_some();
        if other || arrays > MAX_ARRAYS || is_folder {
            return Ok(false);
        }
        arrays += usize::from(extension.eq_ignore_ascii_case("npy"));
    }
    Ok((1..=MAX_ARRAYS).contains(&arrays))
}
