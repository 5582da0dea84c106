#[cfg(feature = "cuda")]
mod cuda;
mod labels;
mod limits;
mod memory;
mod processors;
mod sampling;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::batch::{Dtype, Field, HostBatch, Layout, Normalize, Plan, SOFT_LABEL, Slots, Writer};
#[cfg(feature = "cuda")]
use crate::cuda::Devices;
use crate::decode::{Auto, Decode};
#[cfg(feature = "cuda")]
use crate::device::Handoff;
use crate::device::SampleOps;
use crate::engine::{
    Batches, Bounds, Engine, HostFeed, IntoIter, Limits, MOST_WORKERS, MakeKeeper, MemoryPlan, OnError, Opened, Parts,
    Position, READERS, Scratch, ScratchPlan, Settings, State, Tuner, Work, some_batches,
};
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::order::{Last, Rank, Schedule};
use crate::source::{self, Concat, Join, Source};
use crate::trace::{self, Counters, Trace};
use crate::transform::{Augment, Transform};
use labels::check_soft_labels;
use limits::check_retries;
use memory::{Demand, Room, host_memory};
use sampling::Sampling;

/// The options of a data loader.
///
/// Setters take and give the loader by value, and never fail; all checks happen when it is opened,
/// by [`host`](Loader::host) or by going into a `for` loop.
///
/// ```no_run
/// # fn main() -> warpfeed::Result<()> {
/// use warpfeed::{Augment, Loader};
///
/// let mut batches = Loader::new("train").batch(256).shuffle(42).augment(Augment::train(224)).workers(8).prefetch(4).host()?;
/// for epoch in 0..90 {
///     for batch in batches.epoch(epoch) {
///         let batch = batch?;
///         println!("{:?} {:?}", batch.images(), batch.labels()?);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a loader does nothing until it is opened with `host` or iterated"]
#[derive(Clone)]
pub struct Loader {
    input: Input,
    mapped: bool,
    batch: Share,
    place: Place,
    sampling: Sampling,
    seed: u64,
    last: Last,
    resume: Option<State>,
    workers: usize,
    pinned: bool,
    prefetch: usize,
    decode: Option<Arc<dyn Decode>>,
    augment: Augment,
    transforms: Vec<Arc<dyn Transform>>,
    normalize: Option<Normalize>,
    dtype: Option<Dtype>,
    layout: Layout,
    fields: Vec<Field>,
    on_error: OnError,
    timeout: Duration,
    memory_limit: Option<usize>,
    limits: Limits,
    trace: Option<(PathBuf, trace::Schedule)>,
    #[cfg(feature = "progress")]
    progress: bool,
    soft_labels: Option<(usize, f32)>,
    unlabelled: bool,
}

#[derive(Clone)]
enum Input {
    Path(PathBuf),
    Source(Arc<dyn Source>),
    /// Several, and what share of the samples each has.
    Mixture(Vec<(Input, f64)>),
}

/// The number of samples and the proportion of each part of a mixture.
type Proportions = Vec<(u64, f64)>;

impl Input {
    /// The source; of a mixture with its proportions, its labels joined as `join` says.
    fn open(self, mapped: bool, join: Option<Join>) -> Result<(Arc<dyn Source>, Option<Proportions>)> {
        if join.is_some() && !matches!(self, Input::Mixture(_)) {
            return Err(Error::config(
                "by_class_name and keep_labels say how a mixture joins its data sets, and this is no mixture; \
                 source::Concat has both for sets that are joined without one",
            ));
        }
        match self {
            Input::Path(path) if mapped => Ok((source::open(&path)?, None)),
            Input::Path(path) => Ok((source::open_unmapped(&path)?, None)),
            Input::Source(source) => Ok((source, None)),
            Input::Mixture(parts) if parts.is_empty() => Err(Error::config("mixture: there are no data sets in it")),
            Input::Mixture(parts) => {
                let open = |(part, proportion): (Input, f64)| Ok((part.open(mapped, None)?.0, proportion));
                let parts = parts.into_iter().map(open).collect::<Result<Vec<_>>>()?;
                let mixture = parts.iter().map(|(part, proportion)| (part.len() as u64, *proportion)).collect();
                let parts = parts.into_iter().map(|(part, _)| part).collect();
                Ok((Arc::new(Concat::join(parts, join.unwrap_or_default())?), Some(mixture)))
            }
        }
    }
}

/// How large a batch is.
#[derive(Debug, Clone, Copy)]
enum Share {
    /// Samples of each rank.
    Rank(usize),
    /// Samples of all ranks together.
    Global(usize),
}

/// Which rank this is.
#[derive(Clone, Copy)]
enum Place {
    Given { rank: usize, world: usize },
    Environment,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Loader { input, batch, seed, workers, prefetch, augment, dtype, layout, .. } = self;
        f.debug_struct("Loader")
            .field("input", input)
            .field("batch", batch)
            .field("seed", seed)
            .field("workers", workers)
            .field("prefetch", prefetch)
            .field("augment", augment)
            .field("dtype", dtype)
            .field("layout", layout)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Input::Path(path) => path.fmt(f),
            Input::Source(source) => write!(f, "{} source", source.kind()),
            Input::Mixture(parts) => parts.fmt(f),
        }
    }
}

impl Loader {
    /// A loader of the data set at `path`: a folder of class folders, a flat folder of pictures, an
    /// LMDB, a tar shard, a folder of shards, or a pattern such as `train-{000..099}.tar`. Which
    /// one is found out when it is opened; see [`source::open`].
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self::from_input(Input::Path(path.as_ref().to_owned()))
    }

    /// A loader of a source of your own, or of one opened before:
    /// `Loader::source(source::open("train")?)`.
    pub fn source(source: impl Source + 'static) -> Self {
        Self::shared_source(Arc::new(source))
    }

    /// A loader of a source that others use too, such as a second loader with other augmentation.
    pub fn shared_source(source: Arc<dyn Source>) -> Self {
        Self::from_input(Input::Source(source))
    }

    fn from_input(input: Input) -> Self {
        Loader {
            input,
            mapped: true,
            batch: Share::Rank(32),
            place: Place::Given { rank: 0, world: 1 },
            sampling: Sampling::default(),
            seed: 0,
            last: Last::default(),
            resume: None,
            workers: 0,
            pinned: false,
            prefetch: 0,
            decode: None,
            augment: Augment::eval(256, 224),
            transforms: Vec::new(),
            normalize: None,
            dtype: None,
            layout: Layout::default(),
            fields: Vec::new(),
            on_error: OnError::default(),
            timeout: Duration::from_secs(30),
            memory_limit: None,
            limits: Limits { retries: 3, pixels: 1 << 28, sample_bytes: 1 << 31 },
            trace: None,
            #[cfg(feature = "progress")]
            progress: false,
            soft_labels: None,
            unlabelled: false,
        }
    }

    /// Whether tar shards are memory-mapped, as they are by default. `false` reads them instead,
    /// for files that may be cut short while they are open: that, and a medium that fails, is then
    /// an error of the sample whatever the moment, never a `SIGBUS` that ends the process, as it is
    /// if a mapped shard is cut short while workers are busy. It suits network file systems too. It
    /// costs a copy of the encoded bytes, and an open file a shard; see
    /// [`Tar::open_unmapped`](source::Tar::open_unmapped).
    ///
    /// Without effect on folders, which are always read, and on sources that were opened before. An
    /// LMDB is always mapped, by its library: with `false` it is refused when the loader is opened.
    pub fn mapped(mut self, mapped: bool) -> Self {
        self.mapped = mapped;
        self
    }

    /// Samples in a batch, N; 32 by default. Larger batches cost N times the memory of a sample in
    /// every slot. 0 is an error.
    ///
    /// With several [ranks](Loader::rank) it is the batch of each of them, as PyTorch's
    /// `batch_size` is under `DistributedSampler`: the global batch grows with the world.
    /// [`global_batch`](Loader::global_batch) says it the other way round; the later of the two
    /// calls counts.
    pub fn batch(mut self, samples: usize) -> Self {
        self.batch = Share::Rank(samples);
        self
    }

    /// Samples that all [ranks](Loader::rank) together have in a batch: a run then sees the same
    /// global batches on any number of them.
    ///
    /// Each rank has an equal share. Where the world does not divide `samples`, the first ranks
    /// have one sample more than the others (weigh their gradients by [`HostBatch::len`]), or, with
    /// [`Last::Pad`], the others have one place of padding. Fewer samples than ranks are an error.
    pub fn global_batch(mut self, samples: usize) -> Self {
        self.batch = Share::Global(samples);
        self
    }

    /// Delivers the share of process `rank` of `world`, of processes that train together; 0 of 1 by
    /// default.
    ///
    /// Nothing is exchanged between the ranks: each knows the order of all samples, and takes its
    /// own part of each global batch. So with the same options all of them have the same number of
    /// batches, and each sample of an epoch goes to exactly one rank, but for what
    /// [`last`](Loader::last) does at its end. Global batch g is the same samples in the same
    /// order, with the same augmentation, for any world, when rank 0's part comes first, then rank
    /// 1's, and so on. What pairs samples of a batch stays within a rank: [`mix`](Augment::mix),
    /// and the stand-ins of [`OnError::Skip`].
    pub fn rank(mut self, rank: usize, world: usize) -> Self {
        self.place = Place::Given { rank, world };
        self
    }

    /// [`rank`](Loader::rank) as the launcher's environment says (torchrun, Open MPI, SLURM); see
    /// [`Rank::from_env`]. Opening it without a launcher is an error.
    ///
    /// Ranks on one machine share its processors when [`workers`](Loader::workers) is automatic:
    /// each takes its part, by what the launcher says of their number (`LOCAL_WORLD_SIZE`,
    /// `OMPI_COMM_WORLD_LOCAL_SIZE`, `SLURM_NTASKS_PER_NODE`), or what the launcher binds it to.
    pub fn distributed(mut self) -> Self {
        self.place = Place::Environment;
        self
    }

    /// Seed of the shuffle and of all augmentation; 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// What happens to an epoch's last batch when the samples do not fill it; [`Last::Keep`] by
    /// default.
    pub fn last(mut self, last: Last) -> Self {
        self.last = last;
        self
    }

    /// Goes on where another run stood, exact to the batch, in constant time. The number of
    /// workers, of batches made ahead and of [ranks](Loader::rank) may be another than in that run,
    /// as long as the global batch is the same (see [`global_batch`](Loader::global_batch)).
    ///
    /// [`Batches::epoch`] then begins the saved epoch at the saved batch. The samples that
    /// [`OnError::Skip`] allows are counted anew.
    ///
    /// Opening it is an [`ErrorKind::Config`] that names both values if the state was saved by a
    /// loader of another seed, batch, order or data set, as far as [`State`] can tell; it reads
    /// eight samples for that.
    pub fn resume(mut self, state: State) -> Self {
        self.resume = Some(state);
        self
    }

    /// Worker threads that read, decode and transform. The number changes the speed and nothing
    /// else: batches are the same, bit for bit, for any number.
    ///
    /// 0, the default, is one for each processor that this process may use. More are of use for a
    /// decoder or a transform that waits. A source that waits for a disk or a network needs no more:
    /// when reads are seen to wait, up to 32 threads of their own read for the workers. They are
    /// started then, sleep while reads do not wait, and hold samples within the memory of
    /// [`Batches::plan`]. Each worker costs a thread and scratch for the pictures in hand. More than
    /// 4,096 are an error when the loader is opened.
    pub fn workers(mut self, threads: usize) -> Self {
        self.workers = threads;
        self
    }

    /// Whether batches lie in page-locked memory, which the GPU can copy from without the host's
    /// help; off by default.
    ///
    /// Uploads from there are asynchronous, those of cudarc's safe calls too. A batch may be
    /// dropped at once nevertheless: its memory is written again after all work that the devices
    /// had been given by then. The wait is on a thread of the loader's own. A step that takes long
    /// keeps slots so long, and the loader then prepares fewer batches ahead of the host.
    ///
    /// Two limits. Work of a CUDA context that a program makes beside the device's primary one is
    /// not seen: there `release_on` is needed. And a CUDA graph capture of a stream that the loader
    /// has never been given can be invalidated by the mark that a dropped batch needs; the driver
    /// reports that at the end of the capture. Streams of [`cuda::stream`](crate::cuda::stream),
    /// and those given to `release_on`, are known.
    #[cfg_attr(
        feature = "cuda",
        doc = "[`HostBatch::release_on`] names the stream that reads the batch: then nothing else is waited for."
    )]
    ///
    /// Without a CUDA driver there is none to be had: a warning is logged once, ordinary memory is
    /// used, and [`Batches::plan`] says so. It costs time when the loader is opened, about 0.3 ms a
    /// MB, and the memory cannot be swapped out.
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Batches that are made ahead of the consumer. Like [`workers`](Loader::workers) it changes
    /// the speed alone.
    ///
    /// Each costs a slot of memory; one more is in the consumer's hands and one more is being
    /// filled, so that the loader holds `prefetch + 2` slots. More than a few help only when the
    /// time that samples or steps take varies much.
    ///
    /// 0, the default, is automatic: 2 to begin with, and twice as many, up to 16, when the
    /// consumer waits although workers idle because all slots are taken; kept if more samples come.
    /// A consumer that keeps batches alive is given more slots, as long as there are any. All slots
    /// there may be are allocated when the loader is opened, within the
    /// [`memory_limit`](Loader::memory_limit), or, without one, 1 GiB (256 MiB if page-locked; but
    /// always for 2) and what the machine has left. Ordinary memory that was never used stays the
    /// system's. On a device there are 2 batches, and what adapts is the host's slots.
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Crop, resize, flip and what else is done to each picture, and so the size of the images;
    /// `Augment::eval(256, 224)` by default.
    pub fn augment(mut self, augment: Augment) -> Self {
        self.augment = augment;
        self
    }

    /// Adds a step of your own on the `u8` image after [`augment`](Loader::augment), before it is
    /// normalised. Called more than once, the steps follow each other.
    pub fn transform(mut self, transform: impl Transform + 'static) -> Self {
        self.transforms.push(Arc::new(transform));
        self
    }

    /// Per-channel `(pixel / 255 - mean) / std`, such as [`Normalize::IMAGENET`]. It makes the
    /// dtype F32 unless [`dtype`](Loader::dtype) says another float. Without it, float images are
    /// `pixel / 255`.
    pub fn normalize(mut self, normalize: Normalize) -> Self {
        self.normalize = Some(normalize);
        self
    }

    /// Element type of the images: U8 (the default: pixels as they are), F32, F16 or BF16.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Order of the images' axes; [`Layout::Nhwc`] by default.
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// A decoder of your own for the image field, in place of [`Auto`].
    pub fn decode(mut self, decoder: impl Decode + 'static) -> Self {
        self.decode = Some(Arc::new(decoder));
        self
    }

    /// Delivers one more field of every sample: its bytes must be a little-endian array of `dtype`
    /// and `shape`, without a header.
    ///
    /// Found in the batch with [`HostBatch::field`] under the same name. A sample without it, or
    /// with another number of bytes, is an error.
    pub fn field(mut self, name: &str, dtype: Dtype, shape: &[usize]) -> Self {
        self.fields.push(Field { name: name.to_owned(), dtype, shape: shape.to_vec() });
        self
    }

    /// Writes a trace of the batches that `schedule` names to `path`, as Chrome trace events:
    /// [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and TensorBoard open it. No trace by
    /// default.
    ///
    /// A row a worker, the coordinator, the consumer, and on a device the copy stream, the convert
    /// stream and the consumer's stream, each placed by the device's own clock. Spans carry the
    /// sample, its key, its bytes and its batch; [`trace::span`](crate::trace::span()) adds your
    /// own. Outside of the schedule's windows it costs next to nothing. The file is made when the
    /// loader is opened, as the last step of that, and is whole after each window and after the
    /// loader is dropped.
    ///
    /// ```no_run
    /// # use warpfeed::{Loader, trace::Schedule};
    /// let batches = Loader::new("train").trace("trace.json", Schedule { wait: 1, warmup: 1, active: 3, repeat: 1 }).host();
    /// ```
    pub fn trace(mut self, path: impl AsRef<Path>, schedule: trace::Schedule) -> Self {
        self.trace = Some((path.as_ref().to_owned(), schedule));
        self
    }

    /// Shows a bar on stderr for each epoch, if that is a terminal; off by default. What happens
    /// otherwise is told through [`tracing`](https://docs.rs/tracing) alone: epochs at `debug`,
    /// changes of automatic values at `info`, skipped samples and long waits at `warn`.
    #[cfg(feature = "progress")]
    pub fn progress(mut self, shown: bool) -> Self {
        self.progress = shown;
        self
    }

    /// Opens the loader with batches in host memory.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for an option that cannot work, or for options that together leave an
    /// epoch without a batch, [`ErrorKind::Io`] or [`ErrorKind::Source`] for a data set that cannot
    /// be opened, [`ErrorKind::Memory`] beyond the [`memory_limit`](Loader::memory_limit), or what
    /// the machine has left.
    pub fn host(self) -> Result<Batches<HostBatch>> {
        let dtype = self.dtype.unwrap_or(if self.normalize.is_some() { Dtype::F32 } else { Dtype::U8 });
        let (layout, pinned) = (self.layout, self.pinned);
        let mut opening = self.open(dtype, layout, None, pinned, |_, _| 0)?;
        let memory = host_memory(opening.plan.bytes, opening.slots(), pinned, opening.schedule.rank())?;
        let slots: Vec<_> = memory.into_iter().map(|memory| Slots::make(&opening.plan, memory)).collect();
        let plan = MemoryPlan {
            pinned_bytes: slots.iter().filter(|s| s.is_pinned()).count() * opening.plan.bytes,
            ..opening.memory_plan()
        };
        let (room, resume, trace) = (opening.prefetch.least + 1, opening.resume, opening.trace.take());
        let keeper = (plan.pinned_bytes > 0).then(keeper).flatten();
        let engine = Engine::new(opening.into_parts(slots, keeper))?;
        begin_trace(trace, engine.work())?;
        let opened = Opened::new(&engine, plan, room, resume);
        Ok(Batches::new(Box::new(HostFeed(engine)), opened))
    }

    /// Checks the options and opens the source; images are to be written as `dtype` in `layout`,
    /// into memory that is `pinned` or not. `device` is none for batches that stay on the host;
    /// with `Some(true)` a slot's last field is a record a sample of what the device is to do with
    /// it. `beside` is what a number of batches ahead takes beside the slots, in bytes.
    fn open(
        self,
        dtype: Dtype,
        layout: Layout,
        device: Option<bool>,
        pinned: bool,
        beside: impl Fn(&Plan, usize) -> usize,
    ) -> Result<Opening> {
        let (on_host, ops) = (device.is_none(), device.unwrap_or(false));
        check_soft_labels(self.soft_labels)?;
        check_retries(self.limits.retries)?;
        let rank = match self.place {
            Place::Given { rank, world } => Rank::new(rank, world)?,
            Place::Environment => Rank::of_launcher()?,
        };
        let global_batch = self.batch.of_all(rank.world)?;
        if dtype == Dtype::U8 && self.normalize.is_some() {
            return Err(Error::config("normalize needs dtype f32, f16 or bf16; dtype is u8"));
        }
        let normalize = self.normalize.unwrap_or(Normalize::UNIT);
        self.augment.check()?;
        if let Some(twice) = self.fields.iter().enumerate().find_map(|(i, f)| {
            let taken = ["image", "label"].contains(&f.name.as_str())
                || (f.name == SOFT_LABEL && self.soft_labels.is_some())
                || self.fields[..i].iter().any(|g| g.name == f.name);
            taken.then_some(&f.name)
        }) {
            return Err(Error::config(format!("field {twice:?} is there already")));
        }

        let (source, mixture) = self.input.open(self.mapped, self.sampling.join()?)?;
        if source.is_empty() {
            return Err(Error::in_source(format!("the {} source has no samples", source.kind())));
        }
        let processors = processors::processors(&rank);
        let workers = match self.workers {
            0 => processors,
            n if n > MOST_WORKERS => {
                return Err(Error::config(format!(
                    "workers({n}): at most {MOST_WORKERS} threads; this process has {processors} processors, and workers(0) finds a number"
                )));
            }
            n => n,
        };
        let size = self.augment.output_size();
        let (h, w) = (size.height as usize, size.width as usize);
        let shape = match layout {
            Layout::Nhwc => vec![h, w, 3],
            Layout::Nchw => vec![3, h, w],
        };
        let skip = self.sampling.skip;
        let order = self.sampling.open(&*source, mixture, self.seed, global_batch, workers, self.limits.retries)?;
        let schedule = Schedule::new(order, global_batch, self.last, rank);
        some_batches(&schedule, skip, source.len())?;
        let batch = schedule.places() as usize;
        let mut fields = vec![
            Field { name: "image".into(), dtype, shape },
            Field { name: "label".into(), dtype: Dtype::I64, shape: vec![] },
        ];
        fields.extend(self.fields);
        fields.extend(ops.then(|| Field { name: String::new(), dtype: Dtype::U8, shape: vec![SampleOps::BYTES] }));
        let plan = Plan::new(batch, fields)?;
        let plan = Arc::new(match self.soft_labels.filter(|_| on_host) {
            Some((classes, _)) => plan.with_soft_labels(classes)?,
            None => plan,
        });
        let room = Room::of(self.memory_limit);
        // An image, and a copy of the last one of a batch that workers mix.
        let image = size.area() as usize * 3;
        let mixing = if self.augment.mixes() && !ops { size.area() as usize * 3 * dtype.bytes() } else { 0 };
        let scratch = ScratchPlan::ample(workers, processors, image + mixing);
        let prefetch = match self.prefetch {
            0 => room.automatic_prefetch(pinned, &plan, &scratch, &beside),
            n => Bounds::exactly(n),
        };
        let demand = Demand { plan: &plan, prefetch, scratch, beside: &beside };
        let (host_bytes, scratch) = room.grant(&demand)?;
        let settings = Arc::new(Settings::new(processors, workers, prefetch));
        let work = Work {
            source,
            decoder: self.decode.unwrap_or_else(|| Arc::new(Auto::new().max_pixels(self.limits.pixels))),
            augment: self.augment,
            transforms: self.transforms,
            writer: Writer::new(size, dtype, layout, normalize)?,
            ops,
            seed: self.seed,
            mixes: on_host,
            soft_labels: self.soft_labels,
            unlabelled: self.unlabelled,
            stand_in: matches!(self.on_error, OnError::Skip { .. }),
            run: AtomicU64::new(0),
            counters: Arc::new(Counters::new(workers, READERS)),
            tuner: Tuner::new(&settings),
            settings,
            limits: self.limits,
            scratch: Scratch::new(scratch),
            #[cfg(feature = "progress")]
            progress: self.progress,
        };
        let resume = self.resume.map(|state| state.check(&work, &schedule)).transpose()?;
        Ok(Opening {
            work,
            resume,
            schedule,
            plan,
            host_bytes,
            prefetch,
            on_error: self.on_error,
            timeout: self.timeout,
            trace: self.trace,
        })
    }
}

impl Share {
    /// Samples of all ranks together.
    fn of_all(self, world: usize) -> Result<u64> {
        match self {
            Share::Rank(0) => Err(Error::config("batch(0): a batch has at least one sample")),
            Share::Rank(n) => n
                .checked_mul(world)
                .map(|n| n as u64)
                .ok_or_else(|| Error::config(format!("batch({n}) on {world} ranks: more samples than can be counted"))),
            Share::Global(n) if n < world => {
                Err(Error::config(format!("global_batch({n}) on {world} ranks: each has at least one sample")))
            }
            Share::Global(n) => Ok(n as u64),
        }
    }
}

/// A loader whose options are checked and whose source is open; what is left is memory and threads.
struct Opening {
    work: Work,
    resume: Option<Position>,
    schedule: Schedule,
    plan: Arc<Plan>,
    /// Bytes of all host slots.
    host_bytes: usize,
    prefetch: Bounds,
    on_error: OnError,
    timeout: Duration,
    trace: Option<(PathBuf, trace::Schedule)>,
}

/// Makes the file of the trace and begins it. The last step of opening, so that a loader that is
/// refused leaves a file of that name as it was.
fn begin_trace(trace: Option<(PathBuf, trace::Schedule)>, work: &Work) -> Result<()> {
    if let Some((path, schedule)) = trace {
        work.counters.trace_to(Trace::new(&path, schedule, work.settings.workers, READERS)?);
    }
    Ok(())
}

/// Who keeps page-locked batches that a device may still read.
#[cfg(feature = "cuda")]
fn keeper() -> Option<MakeKeeper> {
    Some(Box::new(|free| Ok(Arc::new(Handoff::new(Devices::new(), free)?))))
}

#[cfg(not(feature = "cuda"))]
fn keeper() -> Option<MakeKeeper> {
    None
}

impl Opening {
    /// Host slots, as many as may be in use at most.
    fn slots(&self) -> usize {
        Settings::slots_for(self.prefetch.most)
    }

    /// What is known of the memory before any of it is allocated.
    fn memory_plan(&self) -> MemoryPlan {
        let scratch = self.work.scratch.plan();
        MemoryPlan {
            slots: self.slots(),
            slots_in_use: self.slots(),
            slot_bytes: self.plan.bytes,
            host_bytes: self.host_bytes,
            pinned_bytes: 0,
            device_bytes: 0,
            staging_bytes: 0,
            scratch_bytes: scratch.total(),
            worker_scratch_bytes: scratch.fixed + scratch.own,
            shared_scratch_bytes: scratch.shared,
            ahead_bytes: scratch.ahead,
        }
    }

    fn into_parts(self, slots: Vec<crate::batch::Free>, keeper: Option<MakeKeeper>) -> Parts {
        let Opening { work, schedule, on_error, timeout, .. } = self;
        Parts { work, schedule, slots, on_error, timeout, keeper }
    }
}

impl IntoIterator for Loader {
    type Item = Result<HostBatch>;
    type IntoIter = IntoIter;

    /// Opens the loader and makes one pass, epoch 0. An error of opening is the first and only
    /// item.
    fn into_iter(self) -> IntoIter {
        IntoIter::new(self.host())
    }
}

#[cfg(test)]
#[path = "../tests/fuzz/resume.rs"]
mod fuzz;
