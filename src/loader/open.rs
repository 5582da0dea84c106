use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::memory::{Demand, Room, host_memory};
use super::pictures::PictureOptions;
use super::{Loader, listed, processors};
use crate::batch::{HostBatch, Schema, Slots};
#[cfg(feature = "cuda")]
use crate::cuda::Devices;
#[cfg(feature = "cuda")]
use crate::device::Handoff;
use crate::engine::{
    Balance, Batches, Bounds, Checkpoint, Engine, IntoIter, MOST_READERS, MOST_WORKERS, MakeKeeper, MemoryPlan,
    OnError, Parts, Run, Scratch, ScratchPlan, Settings, some_batches,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::field::{Device, Fields, Written};
use crate::order::Schedule;
use crate::recipe::{Damaged, Recipe};
use crate::source;
use crate::trace::{self, Trace};

impl Loader {
    /// Opens the loader with batches in host memory.
    ///
    /// ```no_run
    /// # use warpfeed::Loader;
    /// let mut batches = Loader::new("train").batch_size(256).shuffle(42).host()?;
    /// for batch in batches.epoch(0) {
    ///     let batch = batch?;
    /// }
    /// # Ok::<(), warpfeed::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Config`] for an option that cannot work, or for options that leave an epoch
    ///   without a batch.
    /// - [`ErrorKind::Io`] or [`ErrorKind::Source`] for a data set that cannot be opened.
    /// - [`ErrorKind::Memory`] if the plan exceeds the [`memory_limit`](Loader::memory_limit) or
    ///   the memory that is available.
    pub fn host(self) -> Result<Batches<HostBatch>> {
        let PictureOptions { layout, pinned, .. } = self.pictures;
        let format = self.pictures.written(layout)?;
        let mut parts = self.open(format, None, pinned, |_, _| 0)?;
        let memory = host_memory(parts.schema.bytes, parts.memory.slots, pinned, parts.schedule.rank())?;
        let slots: Vec<_> = memory.into_iter().map(|memory| Slots::make(&parts.schema, memory)).collect();
        let pinned_bytes = slots.iter().filter(|s| s.is_pinned()).count() * parts.schema.bytes;
        let keeper = (pinned_bytes > 0).then(keeper).flatten();
        parts.memory.pinned_bytes = pinned_bytes;
        let trace = parts.trace.take();
        let engine = Engine::to_host(parts, slots, keeper)?;
        let shared = engine.shared().clone();
        begin_trace(trace, &shared.run)?;
        Ok(Batches::new(engine, &shared))
    }

    /// Options for opening the data set.
    ///
    /// # Errors
    /// If the list of classes cannot be read.
    pub(super) fn source_options(&self) -> Result<source::Options> {
        let options = source::Options::new().mmap(self.mapped).formats(self.pictures.codecs.formats());
        let options = options
            .lenient(matches!(self.on_error, OnError::Skip { .. }))
            .index(self.indexed)
            .with_stores(self.stores.clone());
        #[cfg(feature = "tables")]
        let options = options.table(self.table.clone());
        Ok(match self.classes.open()? {
            Some(classes) => options.classes(classes),
            None => options,
        })
    }

    /// Checks the options and opens the source. The host writes images in `format`, into memory
    /// that is `pinned` or not. `device` is `None` for batches that stay on the host. `beside`
    /// gives the memory, in bytes, that a prefetch takes in addition to the slots.
    pub(super) fn open(
        self,
        format: Written,
        device: Option<Device>,
        pinned: bool,
        beside: impl Fn(&Schema, usize) -> usize,
    ) -> Result<Parts> {
        source::check_retries(self.retries)?;
        let PictureOptions { seed, decode_share: share, .. } = self.pictures;
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::config(format!("decode_share({share}): a share of the device's time must be 0 to 1")));
        }
        let rank = self.place.rank(self.pictures.local_world_size)?;
        let global_batch = self.batch.of_all(rank.world_size)?;
        self.pictures.augment.check()?;
        let (fields, arrays) = Fields::new(&self.fields()?, self.label(), format, &self.pictures.augment, device)?;
        fields.check(&self.pictures.augment)?;

        let (options, path) = (self.source_options()?, self.input.path().map(Path::to_owned));
        let pictures = self.pictures;
        let (source, mixture) = self.input.open(&options, self.sampling.join()?)?;
        if let Some(path) = path.filter(|_| source.kind() == "folder" && !options.numbers()) {
            listed::compare_splits(&path, source.classes());
        }
        if source.is_empty() {
            return Err(Error::in_source(format!("the {} source has no samples", source.kind())));
        }
        let processors = processors::processors(&rank);
        let workers = match pictures.workers {
            0 => processors.min(MOST_WORKERS),
            n if n > MOST_WORKERS => {
                return Err(Error::config(format!(
                    "workers({n}): at most {MOST_WORKERS} threads; this process has {processors} processors, and workers(0) chooses a number"
                )));
            }
            n => n,
        };
        let order = self.sampling.open(&*source, mixture, seed, workers, self.retries)?;
        let schedule = Schedule::new(order, global_batch, self.last, rank);
        some_batches(&schedule)?;
        let schema = Arc::new(Schema::new(schedule.places() as usize, arrays)?);
        let room = Room::of(pictures.memory_limit);
        // An image and the memory of its effects, and for mixing by workers a copy of the last image of
        // a batch.
        let image = if fields.images.is_empty() { 0 } else { format.size.area() as usize * 3 };
        let mixing = if pictures.augment.mixes() && device.is_none() { image * format.dtype.bytes() } else { 0 };
        let effects = if image == 0 { 0 } else { pictures.augment.effects_memory() as usize };
        let scratch = ScratchPlan::ample(workers, processors, image + effects + mixing)
            .with_source(room.for_source(source.ahead_bytes()));
        // The pictures of requests are already in memory.
        let scratch = if self.asked.is_some() { scratch.without_readers() } else { scratch };
        let prefetch = match pictures.prefetch {
            0 => room.automatic_prefetch(pinned, &schema, &scratch, &beside),
            n => Bounds::exactly(n),
        };
        let demand = Demand { schema: &schema, prefetch, scratch, beside: &beside };
        let (host_bytes, scratch) = room.grant(&demand)?;
        let computed = fields.computed.iter().map(|field| field.name.clone()).collect();
        let recipe = Recipe {
            source,
            codecs: pictures.codecs,
            augment: pictures.augment,
            transforms: pictures.transforms,
            fields,
            annotated: self.annotated,
            seed,
            retries: self.retries,
            sample_bytes: pictures.max_sample_bytes,
            strict: pictures.strict,
            damaged: Damaged::default(),
            blank: self.asked.is_some(),
            stand_in: self.asked.is_none() && matches!(self.on_error, OnError::Skip { .. }),
        };
        let run = Run::new(
            Arc::new(Settings::new(processors, workers, prefetch)),
            Scratch::new(scratch),
            Balance::new(pictures.decode_on.unwrap_or_default(), share, workers),
            computed,
        );
        let resume = self.resume.map(|state| state.check(&recipe, &run.counters, &schedule)).transpose()?;
        let slots = Settings::slots_for(prefetch.most);
        Ok(Parts {
            recipe,
            run,
            schedule,
            memory: MemoryPlan {
                slots,
                slots_in_use: slots,
                slot_bytes: schema.bytes,
                host_bytes,
                pinned_bytes: 0,
                device_bytes: 0,
                device_slots: 0,
                staging_bytes: 0,
                scratch_bytes: scratch.total(),
                worker_scratch_bytes: scratch.fixed + scratch.own,
                shared_scratch_bytes: scratch.shared,
                ahead_bytes: scratch.ahead,
                source_bytes: scratch.source,
            },
            schema,
            prefetch,
            resume,
            // The run of requests is one epoch.
            epochs: if self.asked.is_some() { 0 } else { self.epochs },
            asked: self.asked,
            on_error: self.on_error,
            timeout: pictures.timeout,
            trace: pictures.trace,
        })
    }
}

/// Creates the trace file and starts tracing. This is the last step of opening, so that a refused
/// loader does not touch an existing file.
pub(super) fn begin_trace(trace: Option<(PathBuf, trace::Schedule)>, run: &Run) -> Result<()> {
    if let Some((path, schedule)) = trace {
        run.counters.trace_to(Trace::new(&path, schedule, run.settings.workers, MOST_READERS)?);
    }
    Ok(())
}

/// Keeper of page-locked batches that a device may still read.
#[cfg(feature = "cuda")]
fn keeper() -> Option<MakeKeeper> {
    Some(Box::new(|free| Ok(Arc::new(Handoff::new(Devices::new(), free)?))))
}

#[cfg(not(feature = "cuda"))]
fn keeper() -> Option<MakeKeeper> {
    None
}

impl IntoIterator for Loader {
    type Item = Result<HostBatch>;
    type IntoIter = IntoIter;

    /// Opens the loader and makes one pass, epoch 0. If opening fails, the error is the only item.
    fn into_iter(self) -> IntoIter {
        let first = self.resume.as_ref().map_or(0, Checkpoint::epoch);
        IntoIter::new(self.epochs(first.saturating_add(1)).host())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Dtype, Field, Layout, Memory, Role};
    use crate::engine::filled;
    use crate::source::{Memory as Samples, OwnedSample};
    use crate::transform::{Augment, Mix, Mixing};

    /// The faults of four mixed samples in a slot whose fields `damage` changed, so that the batch
    /// is filled but cannot be finished.
    fn faults(damage: impl Fn(&mut Field, Role)) -> Vec<Option<String>> {
        let mut bmp = b"BM\x3e\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x02\0\0\0\x01\0\0\0\x01\0\x18\0".to_vec();
        bmp.extend([0; 32]);
        let sample = |n: i64| OwnedSample::new(n.to_string()).field("bmp", bmp.clone()).label(n % 2);
        let loader = Loader::source(Samples::new((0..4).map(sample).collect())).batch_size(4).soft_labels(2, 0.1);
        let loader = loader.augment(Augment::pass_through(2, 1).mix(Mix::mixup(0.2)));
        let format = loader.pictures.written(Layout::Nhwc).unwrap();
        let parts = loader.open(format, None, false, |_, _| 0).unwrap();
        let arrays = parts.schema.spans.iter().map(|span| {
            let mut field = span.field.clone();
            damage(&mut field, span.role);
            (field, span.role)
        });
        let schema = Arc::new(Schema::new(4, arrays).unwrap());
        let slot = Slots::make(&schema, Memory::heap(schema.bytes).unwrap());
        let mixing = Some(Mixing { weight: 0.5, cut: None });
        let full = filled((parts.recipe, Arc::new(parts.run)), slot, (4, mixing), false).0;
        (0..4).map(|place| full.meta(place).fault.as_ref().map(ToString::to_string)).collect()
    }

    #[test]
    fn a_failure_while_a_batch_is_finished_is_a_fault_of_each_of_its_samples() {
        assert_eq!(faults(|_, _| ()), [const { None }; 4]);
        // Mixing reports that its images have the wrong length.
        let wider = faults(|field, role| {
            if role == Role::Picture {
                field.shape[0] += 1;
            }
        });
        assert!(wider.iter().flatten().filter(|e| e.contains("4 images of 6 bytes each")).count() == 4, "{wider:?}");
        // Rows of shares panic, because their bytes are no floats.
        let bytes = faults(|field, role| {
            if role == Role::SoftLabels {
                (field.dtype, field.shape) = (Dtype::U8, vec![3]);
            }
        });
        assert!(
            bytes.iter().flatten().filter(|e| e.contains("panicked at the end of batch")).count() == 4,
            "{bytes:?}"
        );
    }
}
