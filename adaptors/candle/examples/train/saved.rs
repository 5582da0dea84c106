//! Saves and loads a checkpoint in one file: weights, the optimizer's momentum, and JSON with the
//! loader's position, the losses and the accuracies. The file is replaced atomically, so the
//! weights and the loader's position always match.

use std::fs;
use std::path::Path;

use candle_core::{Device, Tensor, safetensors};
use serde::{Deserialize, Serialize};
use warpfeed::Checkpoint;

use crate::sgd::Sgd;

const RUN: &str = "run.json";

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurements {
    pub(crate) losses: Vec<f32>,
    /// For each finished epoch, the number of steps up to its end, and the held-out accuracy from 0
    /// to 1.
    pub(crate) accuracies: Vec<(usize, f64)>,
}

#[derive(Serialize, Deserialize)]
struct Run {
    loader: Checkpoint,
    measured: Measurements,
}

pub(crate) fn save(path: &Path, loader: Checkpoint, measured: &Measurements, sgd: &Sgd) -> Result<()> {
    let json = serde_json::to_vec(&Run { loader, measured: measured.clone() })?;
    let count = json.len();
    let mut tensors: std::collections::HashMap<_, _> = sgd.state().collect();
    tensors.insert(RUN.to_owned(), Tensor::from_vec(json, count, &Device::Cpu)?);
    let new = path.with_extension("new");
    safetensors::save(&tensors, &new)?;
    fs::rename(&new, path)?;
    Ok(())
}

/// The content of a checkpoint. [`Sgd::restore`] copies `tensors` into the network and the
/// optimizer.
pub(crate) struct SavedRun {
    pub(crate) loader: Checkpoint,
    pub(crate) measured: Measurements,
    pub(crate) tensors: std::collections::HashMap<String, Tensor>,
}

pub(crate) fn load(path: &Path, device: &Device) -> Result<Option<SavedRun>> {
    if !path.exists() {
        return Ok(None);
    }
    let mut tensors = safetensors::load(path, device)?;
    let json = tensors.remove(RUN).ok_or("the checkpoint does not contain run.json")?;
    let Run { loader, measured } = serde_json::from_slice(&json.to_vec1::<u8>()?)?;
    Ok(Some(SavedRun { loader, measured, tensors }))
}
