use crate::medium::brought::Companions;
use crate::medium::layout::is_npy_folder;
use crate::options::{AtUrl, DataFormat, with_feature};

pub(crate) const NPY: DataFormat = DataFormat {
    is_folder: is_npy_folder,
    is_file: |_, start| start.starts_with(b"\x93NUMPY"),
    has_parts: true,
    ..DataFormat::new(
        "npy",
        "an `.npy` file whose first axis counts the samples, or a folder of them",
        &["npy"],
        |path, options| {
            with_feature!("arrays", "a data set of arrays", path, options => {
                super::Arrays::with(path, "npy", options)?
            })
        },
    )
};

pub(crate) const NPZ: DataFormat = DataFormat {
    has_parts: true,
    ..DataFormat::new("npz", "an `.npz` archive of NumPy", &["npz"], |path, options| {
        with_feature!("arrays", "a data set of arrays", path, options => {
            super::Arrays::with(path, "npz", options)?
        })
    })
};

pub(crate) const SAFETENSORS: DataFormat = DataFormat {
    has_parts: true,
    ..DataFormat::new("safetensors", "a `.safetensors` file", &["safetensors"], |path, options| {
        with_feature!("arrays", "a data set of arrays", path, options => {
            super::Arrays::with(path, "safetensors", options)?
        })
    })
};

pub(crate) const TORCH: DataFormat = DataFormat {
    has_parts: true,
    ..DataFormat::new("torch", "a `.pt` or `.pth` file of tensors", &["pt", "pth"], |path, options| {
        with_feature!("arrays", "a data set of arrays", path, options => {
            super::Arrays::with(path, "torch", options)?
        })
    })
};

pub(crate) const HDF5: DataFormat = DataFormat {
    is_file: |_, start| start.starts_with(b"\x89HDF\r\n\x1a\n"),
    has_parts: true,
    at_url: AtUrl::Brought(Companions::NONE),
    ..DataFormat::new(
        "hdf5",
        "an HDF5 file whose arrays have the samples on their first axis",
        &["h5", "hdf5"],
        |path, options| {
            with_feature!("hdf5", "an HDF5 file", path, options => {
                super::Arrays::with(path, "hdf5", options)?
            })
        },
    )
};
