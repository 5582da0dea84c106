//! Records what a caller can observe in two epochs: the batches and properties of the loader.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use warpfeed::{Augment, Batches, Dtype, HostBatch, Result};

use super::SETTERS;
use super::data::{COUNT, Data, SETS, World, class, length, swapped};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Batch {
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) ids: Vec<u64>,
    pub(super) valid: Vec<bool>,
    pub(super) arrays: Vec<Array>,
}

/// The values of an image, from 0 to 1 unless the image is normalized.
pub(super) struct ImageValues {
    pub(super) width: usize,
    pub(super) channels: usize,
    pub(super) values: Vec<f32>,
}

impl ImageValues {
    pub(super) fn is_flat(&self) -> bool {
        self.values.chunks(self.channels).all(|pixel| pixel == &self.values[..self.channels])
    }

    pub(super) fn is_flat_above(&self) -> bool {
        let row = &self.values[..self.width * self.channels];
        row.chunks(self.channels).all(|pixel| pixel.iter().zip(row).all(|(a, b)| (a - b).abs() < 2e-3))
    }

    pub(super) fn least(&self) -> f32 {
        self.values.iter().copied().fold(f32::MAX, f32::min)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    pub(super) opened: bool,
    pub(super) classes: Vec<String>,
    pub(super) rank: usize,
    pub(super) ranks: usize,
    pub(super) workers: usize,
    pub(super) prefetch: usize,
    pub(super) seed: u64,
    pub(super) indexed: bool,
    pub(super) traced: bool,
    pub(super) swapped: bool,
    pub(super) batches: Vec<Batch>,
    pub(super) saved: Option<String>,
}

impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        let seen = |run: &Run| (run.rank, run.ranks, run.workers, run.prefetch, run.seed, run.indexed, run.traced);
        seen(self) == seen(other) && self.classes == other.classes && self.batches == other.batches
    }
}

impl Run {
    /// Opens a loader of `data` with the setters `names`, and reads two epochs. Returns the message
    /// of the first error as `Err`.
    pub(super) fn of(
        names: &[&str],
        data: &Data,
        root: &Path,
        saved: Option<String>,
    ) -> std::result::Result<Run, String> {
        let world = World { root, samples: data.0.len() as u64 * COUNT, saved };
        let index = root.join("set.warpfeed-index");
        let _ = (fs::remove_file(&index), fs::remove_file(world.trace()));
        let run = || -> Result<Run> {
            let mut loader = data.loader(root).batch_size(4).workers(1).prefetch(1);
            if !names.contains(&"views") {
                loader = loader.augment(Augment::resize(8, 8).flip(0.5));
            }
            for name in names {
                loader = (SETTERS.iter().find(|setter| setter.name == *name).unwrap().set)(loader, &world)?;
            }
            let mut batches = loader.host()?;
            let mut run = Run::begun(&batches);
            run.swapped = names.contains(&"table");
            for number in 0..2 {
                let mut epoch = batches.epoch(number);
                while let Some(batch) = epoch.next() {
                    run.batches.push(Batch::of(&batch?));
                    run.saved.get_or_insert_with(|| serde_json::to_string(&epoch.checkpoint()).unwrap());
                }
            }
            Ok(run)
        };
        let mut run = run().map_err(|e| e.to_string())?;
        run.indexed = index.exists();
        run.traced = fs::read_to_string(world.trace()).is_ok_and(|text| text.contains("\"ph\""));
        let saved: serde_json::Value = serde_json::from_str(run.saved.as_ref().unwrap()).unwrap();
        run.seed = saved["seed"].as_u64().unwrap();
        Ok(run)
    }

    pub(super) fn begun(batches: &Batches<HostBatch>) -> Run {
        let rank = batches.rank();
        Run {
            opened: true,
            classes: batches.classes().to_vec(),
            rank: rank.rank,
            ranks: rank.world_size,
            workers: batches.workers(),
            prefetch: batches.prefetch(),
            ..Run::default()
        }
    }

    pub(super) fn of_epoch(&self, epoch: u64) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.epoch == epoch)
    }

    pub(super) fn sizes(&self, epoch: u64) -> Vec<usize> {
        self.of_epoch(epoch).map(|batch| batch.ids.len()).collect()
    }

    pub(super) fn ids(&self, epoch: u64) -> Vec<u64> {
        self.of_epoch(epoch).flat_map(Batch::valid_ids).collect()
    }

    pub(super) fn all_ids(&self) -> impl Iterator<Item = u64> {
        self.batches.iter().flat_map(Batch::valid_ids)
    }

    pub(super) fn is_less_than(&self, other: &Run, share: f64) -> bool {
        self.ids(0).len() as f64 <= share * other.ids(0).len() as f64
    }

    pub(super) fn largest(&self) -> usize {
        self.batches.iter().map(|batch| batch.ids.len()).max().unwrap_or(0)
    }

    /// Whether the labels come from the `species` column. Without class names, compares them with
    /// the labels of `other`.
    pub(super) fn has_other_labels(&self, other: &Run) -> bool {
        if self.classes.is_empty() { self.labels().ne(other.labels()) } else { self.named(swapped) }
    }

    pub(super) fn keeps_labels(&self, _: &Run) -> bool {
        let truth = self.truth();
        self.labels().all(|(label, id)| SETS[(id / COUNT) as usize].1[label as usize] == truth(id))
    }

    pub(super) fn is_mixed(&self, _: &Run) -> bool {
        self.ids(0) != self.ids(1) && !self.ids(1).is_sorted()
    }

    pub(super) fn mixed_lengths(&self, epoch: u64) -> usize {
        let is_long = |batch: &Batch| batch.valid_ids().map(|id| length(id) > 4).collect::<BTreeSet<_>>();
        self.of_epoch(epoch).filter(|batch| is_long(batch).len() == 2).count()
    }

    pub(super) fn has_one_parity_per_batch(&self, _: &Run) -> bool {
        self.batches.iter().all(|batch| batch.valid_ids().map(|id| id % 2).collect::<BTreeSet<_>>().len() < 2)
    }

    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.batches.iter().flat_map(|batch| &batch.arrays)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.arrays().any(|array| array.name == name)
    }

    pub(super) fn bytes(&self) -> Vec<&[u8]> {
        self.arrays().map(|array| &array.bytes[..]).collect()
    }

    pub(super) fn image_arrays(&self) -> impl Iterator<Item = &Array> {
        self.arrays().filter(|array| array.name == "image" || array.name.starts_with("views."))
    }

    pub(super) fn images(&self) -> Vec<ImageValues> {
        self.image_arrays().flat_map(Array::images).collect()
    }

    pub(super) fn sides(&self) -> BTreeSet<usize> {
        self.images().iter().map(|image| image.width).collect()
    }

    pub(super) fn brightest(&self) -> f32 {
        self.images().iter().flat_map(|image| &image.values).copied().fold(f32::MIN, f32::max)
    }

    pub(super) fn labels(&self) -> impl Iterator<Item = (i64, u64)> {
        let values_of = |batch: &Batch| {
            let labels = batch.arrays.iter().find(|array| array.name == "label").map_or(&[][..], |array| &array.bytes);
            let labels = labels.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes));
            labels.zip(batch.ids.clone()).collect::<Vec<_>>()
        };
        self.batches.iter().flat_map(values_of)
    }

    pub(super) fn named(&self, class: impl Fn(u64) -> &'static str) -> bool {
        self.labels().all(|(label, id)| self.classes.get(label as usize).is_some_and(|name| name == class(id)))
    }

    pub(super) fn truth(&self) -> fn(u64) -> &'static str {
        if self.swapped { swapped } else { class }
    }

    pub(super) fn masks_fit(&self) -> bool {
        self.batches.iter().all(|batch| {
            let mask = batch.arrays.iter().find(|array| array.name == "mask").unwrap();
            let len = mask.bytes.len() / batch.ids.len();
            mask.bytes.chunks(len).zip(&batch.ids).all(|(mask, id)| mask.iter().all(|value| u64::from(*value) == *id))
        })
    }
}

impl Batch {
    pub(super) fn of(batch: &HostBatch) -> Batch {
        let array = |name: &str| {
            let view = batch.field(name)?;
            Some(Array {
                name: name.to_owned(),
                dtype: view.dtype(),
                shape: view.shape(),
                bytes: view.bytes().to_vec(),
            })
        };
        let (ids, valid) = (batch.ids().collect(), batch.valid().collect());
        let arrays = batch.fields().filter_map(|field| array(&field.name)).collect();
        Batch { epoch: batch.epoch(), number: batch.batch_index(), ids, valid, arrays }
    }

    pub(super) fn valid_ids(&self) -> impl Iterator<Item = u64> {
        self.ids.iter().zip(&self.valid).filter(|(_, valid)| **valid).map(|(id, _)| *id)
    }
}

impl Array {
    pub(super) fn images(&self) -> Vec<ImageValues> {
        let values: Vec<f32> = match self.dtype {
            Dtype::U8 => self.bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect(),
            Dtype::F16 => {
                self.bytes.as_chunks().0.iter().map(|bytes| half::f16::from_ne_bytes(*bytes).to_f32()).collect()
            }
            _ => self.bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect(),
        };
        let &[count, a, width, c] = &self.shape[..] else { panic!("{:?}", self.shape) };
        let is_planar = matches!(a, 1 | 3);
        let (channels, area) = if is_planar { (a, width * c) } else { (c, a * width) };
        let image = |values: &[f32]| ImageValues {
            width,
            channels,
            values: match is_planar {
                true => (0..area * channels).map(|n| values[n % channels * area + n / channels]).collect(),
                false => values.to_vec(),
            },
        };
        values.chunks(values.len() / count).map(image).collect()
    }
}
