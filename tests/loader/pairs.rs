//! Promise: each pair of options acts together, or opening refuses it with an error that names both.
//!
//! Every pair of the setters of [`Loader`] is opened once. The effect of a setter is a condition on the
//! batches, which is false without it. `python/tests/test_options_together.py` does the same for Python.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use image::{GrayImage, Luma, Rgba, RgbaImage};
use syn::{FnArg, ImplItem, Item, ReturnType, Type, Visibility};
use warpfeed::decode::{Codec, Picture, Pixels, Rect, Size};
use warpfeed::field::{Image, Mask};
use warpfeed::format::Format;
use warpfeed::order::{Order, Rng};
use warpfeed::source::{Store, TableOptions};
use warpfeed::trace::Schedule;
use warpfeed::transform::ImageMut;
use warpfeed::{
    Augment, Batches, DataSet, DecodeOn, Dtype, Exif, HostBatch, LastBatch, Layout, Loader, Normalize, OnError, Result,
};

use crate::process::{OWN, child};
use crate::store::Objects;

/// Samples of each of the two sets. The first has nine of `even`, then two of `odd`, the second as many
/// of `odd` and `zero`.
const COUNT: u64 = 11;
const OF_FIRST: u64 = 9;
const SETS: [(&str, [&str; 2]); 2] = [("set", ["even", "odd"]), ("other", ["odd", "zero"])];

const SUBSET: [u64; 7] = [7, 3, 5, 1, 8, 2, 10];
const ORDER: [u64; 7] = [5, 5, 2, 8, 3, 1, 7];
const LISTED: [&str; 3] = ["zero", "odd", "even"];
const LISTED_IN_FILE: [&str; 3] = ["odd", "zero", "even"];

fn length(id: u64) -> u32 {
    (3 * id % 10) as u32
}

/// What a setter does.
enum Does {
    /// Whether it shows in a run, given the run without it.
    Shows(fn(&Run, &Run) -> bool),
    /// Nothing that a program sees of this data.
    Nothing,
    /// An error with this text.
    Stops(&'static str),
}
use Does::{Nothing, Shows, Stops};

struct Setter {
    /// The name of the method, and of a variant after a space.
    name: &'static str,
    set: fn(Loader, &World<'_>) -> Result<Loader>,
    does: Does,
}

const fn setter(name: &'static str, does: Does, set: fn(Loader, &World<'_>) -> Result<Loader>) -> Setter {
    Setter { name, set, does }
}

/// In the order in which a loader gets them.
static SETTERS: &[Setter] = &[
    setter("store", Shows(|run, _| run.opened), |l, w| Ok(l.store("one", Objects::of(w.root, "one://data")))),
    setter("stores", Shows(|run, _| run.opened), |l, w| {
        let store: Arc<dyn Store> = Arc::new(Objects::of(w.root, "two://data"));
        Ok(l.stores([("two", store)]))
    }),
    setter("index", Shows(|run, _| run.indexed), |l, _| Ok(l.index(true))),
    setter("masks", Shows(|run, _| run.has("mask") && run.masks_fit()), |l, _| {
        Ok(l.masks("masks").field("mask", Mask::new(Dtype::U8)))
    }),
    setter("table", Shows(Run::has_other_labels), |l, _| Ok(l.table(TableOptions::new().label("species")))),
    setter(
        "by_class_name",
        Shows(|run, _| run.classes == ["even", "odd", "zero"] && run.named(run.truth())),
        |l, _| Ok(l.by_class_name()),
    ),
    setter("keep_labels", Shows(Run::keeps_labels), |l, _| Ok(l.keep_labels())),
    setter("classes", Shows(|run, _| run.classes == LISTED && run.named(run.truth())), |l, _| Ok(l.classes(LISTED))),
    setter("classes_file", Shows(|run, _| run.classes == LISTED_IN_FILE && run.named(run.truth())), |l, w| {
        Ok(l.classes_file(w.root.join("classes.txt")))
    }),
    setter("codec", Shows(|run, _| run.images().iter().all(Pixel::is_flat)), |l, _| Ok(l.codec(Red))),
    setter("batch_size", Shows(|run, _| run.sizes(0)[0] == 3), |l, _| Ok(l.batch_size(3))),
    setter("global_batch_size", Shows(|run, _| run.largest() == if run.ranks == 2 { 3 } else { 6 }), |l, _| {
        Ok(l.global_batch_size(6))
    }),
    setter(
        "last_batch",
        Shows(|run, _| {
            let sizes = run.sizes(0);
            sizes.iter().all(|size| *size == sizes[0]) && run.batches.last().unwrap().valid.contains(&false)
        }),
        |l, _| Ok(l.last_batch(LastBatch::Pad)),
    ),
    setter("rank", Shows(|run, other| run.is_less_than(other, 0.6)), |l, _| Ok(l.rank(0, 2))),
    setter(
        "distributed",
        Shows(|run, other| run.rank == 1 && (other.ranks == 2 || run.is_less_than(other, 0.6))),
        |l, _| Ok(l.distributed()),
    ),
    setter("local_world_size", Nothing, |l, _| Ok(l.local_world_size(2))),
    setter("shuffle", Shows(Run::is_mixed), |l, _| Ok(l.shuffle(7))),
    setter("shuffle_window", Shows(Run::is_mixed), |l, _| Ok(l.shuffle_window(3))),
    setter("seed", Shows(|run, other| run.seed == 5 && run.bytes() != other.bytes()), |l, _| Ok(l.seed(5))),
    setter(
        "order",
        Shows(|run, _| run.ids(0).iter().all(|id| ORDER.contains(id)) && !run.ids(0).is_sorted()),
        |l, _| Ok(l.order(Own)),
    ),
    setter("subset", Shows(|run, _| run.all_ids().all(|id| SUBSET.contains(&id))), |l, _| Ok(l.subset(SUBSET))),
    setter("weights", Shows(|run, _| run.all_ids().all(|id| id % 3 > 0)), |l, w| {
        Ok(l.weights((0..w.samples).map(|id| (id % 3) as f64)))
    }),
    setter(
        "balanced",
        Shows(|run, _| {
            let few = run.all_ids().filter(|id| id % COUNT >= OF_FIRST).count();
            few as f64 >= 0.3 * run.all_ids().count() as f64
        }),
        |l, _| Ok(l.balanced()),
    ),
    setter("buckets", Shows(|run, _| (0..2).all(|epoch| run.mixed_lengths(epoch) <= 1)), |l, w| {
        Ok(l.buckets((0..w.samples).map(length), [4]))
    }),
    setter("split", Shows(|run, other| run.is_less_than(other, 0.9)), |l, _| {
        let [part, _] = l.split([0.8, 0.2], 1)?;
        Ok(part)
    }),
    setter("split_by_class", Shows(|run, other| run.is_less_than(other, 0.6)), |l, _| {
        let [part, _] = l.split_by_class([0.5, 0.5], 1)?;
        Ok(part)
    }),
    setter("repeat", Shows(|run, other| run.ids(0).len() as f64 >= 1.5 * other.ids(0).len() as f64), |l, _| {
        Ok(l.repeat(2))
    }),
    setter("epochs", Nothing, |l, _| Ok(l.epochs(1))),
    setter("augment", Shows(|run, _| run.sides() == [6].into()), |l, _| Ok(l.augment(Augment::resize(6, 6).flip(0.5)))),
    setter("views", Shows(|run, _| run.sides() == [5, 7].into() && run.has("views.1") && !run.has("image")), |l, _| {
        Ok(l.views([5, 7].map(|side| Augment::resize(side, side).flip(0.5))))
    }),
    setter("transform", Shows(|run, other| run.brightest() < 0.502 && other.brightest() > 0.502), |l, _| {
        Ok(l.transform(darker))
    }),
    setter("transform_moves_pixels", Nothing, |l, _| Ok(l.transform_moves_pixels(false))),
    setter("normalize", Shows(|run, _| run.images().iter().all(|image| image.least() < 0.0)), |l, _| {
        Ok(l.normalize(Normalize::IMAGENET))
    }),
    setter("dtype", Shows(|run, _| run.pictures().all(|field| field.dtype == Dtype::F16)), |l, _| {
        Ok(l.dtype(Dtype::F16))
    }),
    setter("layout", Shows(|run, _| run.pictures().all(|field| matches!(field.shape[1], 1 | 3))), |l, _| {
        Ok(l.layout(Layout::Nchw))
    }),
    setter("channels", Shows(|run, _| run.images().iter().all(|image| image.channels == 1)), |l, _| Ok(l.channels(1))),
    setter("background", Shows(|run, _| run.images().iter().all(Pixel::is_flat_above)), |l, _| {
        Ok(l.background([9, 99, 199]))
    }),
    setter("to_8_bits", Nothing, |l, _| Ok(l.to_8_bits(true))),
    setter("field", Shows(|run, _| run.has("small")), |l, _| {
        Ok(l.field("small", Image::new().augment(Augment::resize(3, 3))))
    }),
    setter("annotations_follow", Nothing, |l, _| Ok(l.annotations_follow(Exif::Upright))),
    setter("without label", Shows(|run, _| !run.has("label")), |l, _| Ok(l.without("label"))),
    setter("without image", Shows(|run, _| !run.has("image")), |l, _| Ok(l.without("image"))),
    setter("soft_labels", Shows(|run, _| run.has("soft_label")), |l, _| Ok(l.soft_labels(3, 0.1))),
    setter("unlabelled", Nothing, |l, _| Ok(l.unlabelled(true))),
    setter("workers", Shows(|run, _| run.workers == 2), |l, _| Ok(l.workers(2))),
    setter("prefetch", Shows(|run, _| run.prefetch == 2), |l, _| Ok(l.prefetch(2))),
    setter("pinned", Nothing, |l, _| Ok(l.pinned(true))),
    setter("decode_on", Nothing, |l, _| Ok(l.decode_on(DecodeOn::Auto))),
    setter("decode_share", Nothing, |l, _| Ok(l.decode_share(0.5))),
    setter("mmap", Nothing, |l, _| Ok(l.mmap(false))),
    setter("on_error", Nothing, |l, _| Ok(l.on_error(OnError::Skip { max_skipped: 2 }))),
    setter("retries", Nothing, |l, _| Ok(l.retries(1))),
    setter("strict", Nothing, |l, _| Ok(l.strict(true))),
    setter("timeout", Nothing, |l, _| Ok(l.timeout(Duration::from_secs(20)))),
    setter("memory_limit", Stops("memory_limit"), |l, _| Ok(l.memory_limit(1))),
    setter("max_pixels", Stops("the limit is 15"), |l, _| Ok(l.max_pixels(15))),
    setter("max_sample_bytes", Stops("the limit is 8"), |l, _| Ok(l.max_sample_bytes(8))),
    setter("trace", Shows(|run, _| run.traced), |l, w| Ok(l.trace(w.trace(), SCHEDULE))),
    setter("resume", Shows(|run, _| run.batches[0].number == 1), |l, w| {
        Ok(match &w.saved {
            Some(saved) => l.resume(serde_json::from_str(saved).unwrap()),
            None => l,
        })
    }),
];

const SCHEDULE: Schedule = Schedule { wait: 0, warmup: 0, active: 2, repeat: 1 };

/// Pairs that open although the first has no effect next to the second, with the reason.
const SILENT: &[(&str, &str, &str)] = &[
    ("classes", "classes_file", LATER),
    ("batch_size", "global_batch_size", LATER),
    ("rank", "distributed", LATER),
    ("subset", "order", "documented: the order has to keep to the subset"),
    ("table", "without label", "the column of labels is not read"),
    ("augment", "views", "documented: each view has an augmentation of its own"),
    ("augment", "without image", "documented: no picture is decoded"),
    ("codec", "without image", "no picture is decoded"),
    ("max_pixels", "without image", "no picture is decoded"),
    ("seed", "without image", "nothing is drawn"),
    ("seed", "codec", "pictures of one color look the same if they are flipped"),
    ("background", "codec", "a codec of one's own has no transparent pixels"),
];
const LATER: &str = "documented: of two calls that set the same thing, the later one wins";

/// What an error may call a setter.
fn words(name: &str) -> &[&str] {
    match name {
        "store" => &["one://"],
        "stores" => &["two://"],
        "masks" => &["\"mask\"", "masks"],
        "by_class_name" => &["by_class_name", "mixture"],
        "keep_labels" => &["keep_labels", "mixture"],
        "classes_file" => &["classes"],
        "split" | "split_by_class" => &["split", "subset"],
        "without label" | "without image" => &["without", "the loader has none"],
        _ => &[],
    }
}

fn names(error: &str, setter: &str) -> bool {
    let words = words(setter);
    if words.is_empty() { error.contains(setter) } else { words.iter().any(|word| error.contains(word)) }
}

struct Own;

impl Order for Own {
    fn len(&self, _: u64) -> u64 {
        ORDER.len() as u64
    }

    fn index(&self, _: u64, position: u64) -> u64 {
        ORDER[position as usize]
    }
}

/// Replaces the codec of PNG. Its pictures have one color.
struct Red;

impl Codec for Red {
    fn format(&self) -> Format {
        Format::any("png")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<Picture<'a>> {
        Ok(Picture::new(bytes, Size::new(4, 4)))
    }

    fn decode(&self, _: &mut Picture<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size()).chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&[250, 20, 20]));
        out.place(region.x, region.y);
        Ok(())
    }
}

fn darker(image: &mut ImageMut<'_>, _: &mut Rng) -> Result<()> {
    image.data_mut().iter_mut().for_each(|value| *value /= 2);
    Ok(())
}

/// The name of the class of a sample.
fn class(id: u64) -> &'static str {
    let (_, [many, few]) = SETS[(id / COUNT) as usize];
    if id % COUNT < OF_FIRST { many } else { few }
}

/// The same in the column `species`.
fn swapped(id: u64) -> &'static str {
    let (_, [many, few]) = SETS[(id / COUNT) as usize];
    if id % COUNT < OF_FIRST { few } else { many }
}

/// Writes both sets as folders and as tables, with masks. The upper half of each picture is transparent.
fn write(root: &Path) {
    for (set, (name, _)) in SETS.iter().enumerate() {
        let mut table = "path,label,species\n".to_owned();
        for id in (0..COUNT).map(|n| set as u64 * COUNT + n) {
            let mut rng = Rng::new(3, 0, id);
            let color = |_, y| {
                Rgba(
                    [0; 3]
                        .map(|_| rng.next_u64() as u8)
                        .into_iter()
                        .chain([if y < 2 { 0 } else { 255 }])
                        .collect::<Vec<_>>()
                        .try_into()
                        .unwrap(),
                )
            };
            let picture = RgbaImage::from_fn(4, 4, color);
            let path = format!("{}/p{id:02}.png", class(id));
            for folder in [*name, "masks"] {
                fs::create_dir_all(root.join(folder).join(class(id))).unwrap();
            }
            picture.save(root.join(name).join(&path)).unwrap();
            GrayImage::from_pixel(4, 4, Luma([id as u8])).save(root.join("masks").join(&path)).unwrap();
            writeln!(table, "{name}/{path},{},{}", class(id), swapped(id)).unwrap();
        }
        fs::write(root.join(name).with_extension("csv"), table).unwrap();
        // No index is written while a folder is new.
        for folder in [*name, SETS[set].1[0], SETS[set].1[1]] {
            let folder = if folder == *name { root.join(name) } else { root.join(name).join(folder) };
            let settled = SystemTime::now() - Duration::from_secs(3600);
            fs::File::open(folder).unwrap().set_modified(settled).unwrap();
        }
    }
    fs::write(root.join("classes.txt"), LISTED_IN_FILE.join("\n")).unwrap();
}

/// What setters get.
struct World<'a> {
    root: &'a Path,
    /// Samples of the data.
    samples: u64,
    /// A checkpoint after the first batch.
    saved: Option<String>,
}

impl World<'_> {
    fn trace(&self) -> std::path::PathBuf {
        self.root.join("trace.json")
    }
}

/// Data sets that setters need.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Data(Vec<String>);

impl Data {
    fn of(names: &[&str]) -> Data {
        let has = |name| names.contains(&name);
        let sets = &SETS[..if has("by_class_name") || has("keep_labels") { 2 } else { 1 }];
        let end = if has("table") { ".csv" } else { "" };
        let stores = ["store", "stores"].into_iter().zip(["one://data/", "two://data/"]);
        let mut places: Vec<_> = stores.filter(|(name, _)| has(name)).map(|(_, place)| place).collect();
        if places.is_empty() {
            places.push("");
        }
        Data(places.iter().flat_map(|place| sets.iter().map(move |(set, _)| format!("{place}{set}{end}"))).collect())
    }

    fn loader(&self, root: &Path) -> Loader {
        let path = |name: &String| if name.contains("://") { name.into() } else { root.join(name) };
        match &self.0[..] {
            [one] => Loader::new(path(one)),
            all => Loader::mixture(all.iter().map(|name| (DataSet::from(path(name)), 0.5))),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Array {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
struct Batch {
    epoch: u64,
    number: u64,
    ids: Vec<u64>,
    valid: Vec<bool>,
    arrays: Vec<Array>,
}

/// An image, on a scale of 0 to 1 unless it is normalized.
struct Pixel {
    width: usize,
    channels: usize,
    values: Vec<f32>,
}

impl Pixel {
    fn is_flat(&self) -> bool {
        self.values.chunks(self.channels).all(|pixel| pixel == &self.values[..self.channels])
    }

    /// Whether the upper, transparent part has one color.
    fn is_flat_above(&self) -> bool {
        let row = &self.values[..self.width * self.channels];
        row.chunks(self.channels).all(|pixel| pixel.iter().zip(row).all(|(a, b)| (a - b).abs() < 2e-3))
    }

    fn least(&self) -> f32 {
        self.values.iter().copied().fold(f32::MAX, f32::min)
    }
}

/// All that a program sees of two epochs.
#[derive(Debug, Clone, Default)]
struct Run {
    /// Whether it opened.
    opened: bool,
    classes: Vec<String>,
    rank: usize,
    ranks: usize,
    workers: usize,
    prefetch: usize,
    seed: u64,
    indexed: bool,
    traced: bool,
    /// Whether the label is that of the column `species`.
    swapped: bool,
    batches: Vec<Batch>,
    /// A checkpoint after the first batch.
    saved: Option<String>,
}

impl PartialEq for Run {
    fn eq(&self, other: &Run) -> bool {
        let seen = |run: &Run| (run.rank, run.ranks, run.workers, run.prefetch, run.seed, run.indexed, run.traced);
        seen(self) == seen(other) && self.classes == other.classes && self.batches == other.batches
    }
}

impl Run {
    /// Opens a loader of `data` with the setters `names`, which is refused by the error's text.
    fn of(names: &[&str], data: &Data, root: &Path, saved: Option<String>) -> std::result::Result<Run, String> {
        let world = World { root, samples: data.0.len() as u64 * COUNT, saved };
        let index = root.join("set.warpfeed-index");
        let _ = (fs::remove_file(&index), fs::remove_file(world.trace()));
        let run = || -> Result<Run> {
            let mut loader = data.loader(root).batch_size(4).workers(1).prefetch(1);
            if !names.contains(&"views") && !names.contains(&"without image") {
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

    fn begun(batches: &Batches<HostBatch>) -> Run {
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

    fn of_epoch(&self, epoch: u64) -> impl Iterator<Item = &Batch> {
        self.batches.iter().filter(move |batch| batch.epoch == epoch)
    }

    fn sizes(&self, epoch: u64) -> Vec<usize> {
        self.of_epoch(epoch).map(|batch| batch.ids.len()).collect()
    }

    /// The samples of an epoch, without padding.
    fn ids(&self, epoch: u64) -> Vec<u64> {
        self.of_epoch(epoch).flat_map(Batch::valid_ids).collect()
    }

    fn all_ids(&self) -> impl Iterator<Item = u64> {
        self.batches.iter().flat_map(Batch::valid_ids)
    }

    fn is_less_than(&self, other: &Run, share: f64) -> bool {
        self.ids(0).len() as f64 <= share * other.ids(0).len() as f64
    }

    fn largest(&self) -> usize {
        self.batches.iter().map(|batch| batch.ids.len()).max().unwrap_or(0)
    }

    /// Whether the labels are those of the column `species`. Data without names of classes has others.
    fn has_other_labels(&self, other: &Run) -> bool {
        if self.classes.is_empty() { self.labels().ne(other.labels()) } else { self.named(swapped) }
    }

    /// Whether each label is the place of a class in its own set.
    fn keeps_labels(&self, _: &Run) -> bool {
        let truth = self.truth();
        self.labels().all(|(label, id)| SETS[(id / COUNT) as usize].1[label as usize] == truth(id))
    }

    fn is_mixed(&self, _: &Run) -> bool {
        self.ids(0) != self.ids(1) && !self.ids(1).is_sorted()
    }

    /// Batches that have both short and long samples.
    fn mixed_lengths(&self, epoch: u64) -> usize {
        let is_long = |batch: &Batch| batch.valid_ids().map(|id| length(id) > 4).collect::<BTreeSet<_>>();
        self.of_epoch(epoch).filter(|batch| is_long(batch).len() == 2).count()
    }

    fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.batches.iter().flat_map(|batch| &batch.arrays)
    }

    fn has(&self, name: &str) -> bool {
        self.arrays().any(|array| array.name == name)
    }

    fn bytes(&self) -> Vec<&[u8]> {
        self.arrays().map(|array| &array.bytes[..]).collect()
    }

    /// The images or the views.
    fn pictures(&self) -> impl Iterator<Item = &Array> {
        self.arrays().filter(|array| array.name == "image" || array.name.starts_with("views."))
    }

    fn images(&self) -> Vec<Pixel> {
        self.pictures().flat_map(Array::images).collect()
    }

    fn sides(&self) -> BTreeSet<usize> {
        self.images().iter().map(|image| image.width).collect()
    }

    fn brightest(&self) -> f32 {
        self.images().iter().flat_map(|image| &image.values).copied().fold(f32::MIN, f32::max)
    }

    /// The labels, each with its sample.
    fn labels(&self) -> impl Iterator<Item = (i64, u64)> {
        let of = |batch: &Batch| {
            let labels = batch.arrays.iter().find(|array| array.name == "label").map_or(&[][..], |array| &array.bytes);
            let labels = labels.as_chunks().0.iter().map(|bytes| i64::from_ne_bytes(*bytes));
            labels.zip(batch.ids.clone()).collect::<Vec<_>>()
        };
        self.batches.iter().flat_map(of)
    }

    /// Whether each label is that of the class.
    fn named(&self, class: impl Fn(u64) -> &'static str) -> bool {
        self.labels().all(|(label, id)| self.classes.get(label as usize).is_some_and(|name| name == class(id)))
    }

    fn truth(&self) -> fn(u64) -> &'static str {
        if self.swapped { swapped } else { class }
    }

    fn masks_fit(&self) -> bool {
        self.batches.iter().all(|batch| {
            let mask = batch.arrays.iter().find(|array| array.name == "mask").unwrap();
            let len = mask.bytes.len() / batch.ids.len();
            mask.bytes.chunks(len).zip(&batch.ids).all(|(mask, id)| mask.iter().all(|value| u64::from(*value) == *id))
        })
    }
}

impl Batch {
    fn of(batch: &HostBatch) -> Batch {
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
        Batch { epoch: batch.epoch(), number: batch.number(), ids, valid, arrays }
    }

    fn valid_ids(&self) -> impl Iterator<Item = u64> {
        self.ids.iter().zip(&self.valid).filter(|(_, valid)| **valid).map(|(id, _)| *id)
    }
}

impl Array {
    fn images(&self) -> Vec<Pixel> {
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
        let image = |values: &[f32]| Pixel {
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

/// What a run gave, or why the loader was refused.
type Known = Rc<std::result::Result<Run, String>>;

/// Runs of single setters by data.
struct Alone<'a> {
    root: &'a Path,
    known: RefCell<BTreeMap<(String, Data), Known>>,
}

impl Alone<'_> {
    fn run(&self, name: &str, data: &Data) -> Known {
        let key = (name.to_owned(), data.clone());
        if let Some(run) = self.known.borrow().get(&key) {
            return run.clone();
        }
        let names: Vec<&str> = [name].into_iter().filter(|name| !name.is_empty()).collect();
        let saved = (name == "resume").then(|| self.saved("", data)).flatten();
        let run = Rc::new(Run::of(&names, data, self.root, saved));
        self.known.borrow_mut().insert(key, run.clone());
        run
    }

    fn saved(&self, name: &str, data: &Data) -> Option<String> {
        self.run(name, data).as_ref().as_ref().ok()?.saved.clone()
    }
}

/// What is wrong with a pair, and what became of it.
fn pair(one: &Setter, other: &Setter, alone: &Alone<'_>) -> std::result::Result<&'static str, String> {
    let names = [one.name, other.name];
    let data = Data::of(&names);
    let saved =
        names.contains(&"resume").then(|| alone.saved(if names[0] == "resume" { names[1] } else { names[0] }, &data));
    let both = Run::of(&names, &data, alone.root, saved.flatten());
    let is_silent =
        |this: &Setter, rest: &Setter| SILENT.iter().any(|(name, next, _)| (*name, *next) == (this.name, rest.name));
    for (this, rest) in [(one, other), (other, one)] {
        if let Stops(text) = this.does {
            let Err(e) = &both else {
                let silent = is_silent(this, rest).then_some("pairs have one that changes nothing");
                return silent.ok_or_else(|| format!("{} has no effect next to {}", this.name, rest.name));
            };
            return if e.contains(text) || matches!(rest.does, Stops(text) if e.contains(text)) {
                Ok("limits hold")
            } else {
                Err(format!("{} next to {}: {e}", this.name, rest.name))
            };
        }
    }
    let both = match both {
        Ok(both) => both,
        Err(e) => {
            // What is refused alone need not name the other.
            let is_same = |name: &str| alone.run(name, &data).as_ref().as_ref().is_err_and(|alone| *alone == e);
            let own: Vec<_> = names.into_iter().filter(|name| is_same(name)).collect();
            let mut wanted = if own.is_empty() { names.to_vec() } else { own };
            wanted.retain(|name| !self::names(&e, name));
            let enough = wanted.is_empty();
            return if enough {
                Ok("pairs are refused")
            } else {
                Err(format!("{} and {} are refused with: {e}", names[0], names[1]))
            };
        }
    };
    for (this, rest) in [(one, other), (other, one)] {
        let without = alone.run(rest.name, &data);
        let without = without.as_ref().as_ref().cloned().unwrap_or_default();
        let silent = is_silent(this, rest);
        let problem = match this.does {
            Nothing if both != without => "changes something next to",
            Shows(_) if both == without => "changes nothing next to",
            Shows(shows) if !shows(&both, &without) => "does not show next to",
            _ if silent => return Err(format!("SILENT has {} next to {}, which shows", this.name, rest.name)),
            _ => continue,
        };
        if !silent {
            return Err(format!("{} {problem} {}", this.name, rest.name));
        }
    }
    Ok(match (&one.does, &other.does) {
        (Nothing, _) | (_, Nothing) => "pairs have one that changes nothing",
        _ => "pairs act",
    })
}

#[test]
fn each_pair_of_setters_acts_or_is_refused_with_both_names() {
    // The process of a launcher's second rank.
    if std::env::var_os(OWN).is_none() {
        let mut own = child!(each_pair_of_setters_acts_or_is_refused_with_both_names);
        let status = own.env(OWN, "1").env("RANK", "1").env("WORLD_SIZE", "2").status().unwrap();
        assert!(status.success(), "the test failed in its own process");
    } else {
        check_pairs();
    }
}

fn check_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    write(&root);
    let alone = Alone { root: &root, known: RefCell::default() };
    let mut problems = Vec::new();
    for setter in SETTERS {
        let data = Data::of(&[setter.name]);
        let (with, without) = (alone.run(setter.name, &data), alone.run("", &data));
        let without = without.as_ref().as_ref().cloned().unwrap_or_default();
        match (&setter.does, with.as_ref()) {
            (Shows(_), Ok(run)) if *run == without => problems.push(format!("{} changes nothing", setter.name)),
            (Shows(shows), Ok(run)) if !shows(run, &without) => problems.push(format!("{} does not show", setter.name)),
            // Otherwise no pair could fail.
            (Shows(shows), Ok(_)) if without.opened && shows(&without, &without) => {
                problems.push(format!("{} shows without it", setter.name));
            }
            (Nothing, Ok(run)) if *run != without => problems.push(format!("{} changes something", setter.name)),
            (Stops(_), Ok(_)) => problems.push(format!("{} has no effect", setter.name)),
            (Stops(text), Err(e)) if e.contains(text) => {}
            (_, Err(e)) => problems.push(format!("{}: {e}", setter.name)),
            _ => {}
        }
    }
    let mut counts = BTreeMap::<_, u32>::new();
    for (place, one) in SETTERS.iter().enumerate() {
        for other in &SETTERS[place + 1..] {
            match pair(one, other, &alone) {
                Ok(what) => *counts.entry(what).or_default() += 1,
                Err(problem) => problems.push(problem),
            }
        }
    }
    println!("setters: {}, pairs: {counts:?}, not as promised: {}", SETTERS.len(), problems.len());
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The methods of `Loader` that return a loader, or several.
fn public_setters() -> BTreeSet<String> {
    // A macro writes the setters of rows.
    let mut found: BTreeSet<_> = Loader::OPTIONS.iter().map(|[setter, ..]| (*setter).to_owned()).collect();
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/loader")).unwrap() {
        let path = entry.unwrap().path();
        let Some("rs") = path.extension().and_then(|end| end.to_str()) else { continue };
        for item in syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap().items {
            if let Item::Macro(call) = &item
                && call.mac.path.is_ident("shared_setters")
            {
                let tokens: Vec<_> = call.mac.tokens.clone().into_iter().map(|token| token.to_string()).collect();
                found.extend(tokens.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].clone()));
            }
            let Item::Impl(block) = item else { continue };
            if block.trait_.is_some() || !matches!(&*block.self_ty, Type::Path(of) if of.path.is_ident("Loader")) {
                continue;
            }
            for method in block.items {
                let ImplItem::Fn(method) = method else { continue };
                let takes = matches!(method.sig.inputs.first(), Some(FnArg::Receiver(of)) if of.reference.is_none());
                let ReturnType::Type(_, returned) = &method.sig.output else { continue };
                let returned = idents(returned);
                let is_loader = returned.iter().any(|word| word == "Self" || word == "Loader");
                if takes && is_loader && matches!(method.vis, Visibility::Public(_)) {
                    found.insert(method.sig.ident.to_string());
                }
            }
        }
    }
    found
}

/// The names in a type.
fn idents(of: &Type) -> Vec<String> {
    struct Words(Vec<String>);
    impl<'a> syn::visit::Visit<'a> for Words {
        fn visit_ident(&mut self, ident: &'a syn::Ident) {
            self.0.push(ident.to_string());
        }
    }
    let mut words = Words(Vec::new());
    syn::visit::visit_type(&mut words, of);
    words.0
}

#[test]
fn the_table_has_every_setter_of_the_loader() {
    let known: BTreeSet<_> = SETTERS.iter().map(|setter| setter.name.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(known, public_setters());
    let names: BTreeSet<_> = SETTERS.iter().map(|setter| setter.name).collect();
    assert!(names.len() == SETTERS.len() && names.len() >= 57);
    assert!(SILENT.iter().all(|(one, other, why)| names.contains(one) && names.contains(other) && !why.is_empty()));
}
