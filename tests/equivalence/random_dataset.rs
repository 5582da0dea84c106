//! Draws a random dataset and random loader options. Both depend only on the seed.

use std::fmt;
use std::io::Cursor;

use image::codecs::jpeg::JpegEncoder;
use image::{ImageEncoder, RgbImage};
use warpfeed::field::{Boxes, Mask, NdArray, Text};
use warpfeed::transform::{ColorJitter, Mix};
use warpfeed::{Augment, Dtype, LastBatch, Layout, Loader, Normalize, OnError};

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Labeled,
    Columns,
    Masks,
    /// Raw pixels, all of the same size, and a label.
    Pixels,
    Boxes,
}

pub enum Value {
    Int(i64),
    Text(String),
    Png(Vec<u8>),
}

#[derive(Default)]
pub struct SampleData {
    pub name: String,
    pub class: usize,
    pub extension: &'static str,
    pub encoded: Vec<u8>,
    pub size: (u32, u32),
    pub pixels: Vec<u8>,
    pub score: i64,
    pub caption: String,
    /// Each box as its left, top, right and bottom edge in pixels, with its class index.
    pub boxes: Vec<([u32; 4], usize)>,
    pub mask: Vec<u8>,
    pub damaged: bool,
}

pub struct RandomDataset {
    pub kind: Kind,
    pub classes: Vec<String>,
    /// Whether formats that support class names store labels as names.
    pub has_class_names: bool,
    /// Random number that selects a variant of the format.
    pub variant: u64,
    pub samples: Vec<SampleData>,
    pub target: (u32, u32),
}

fn pixels(random: &mut Random, (width, height): (u32, u32)) -> Vec<u8> {
    let [a, b, c] = [0; 3].map(|_| 1 + random.below(9) as u32);
    let mut data = Vec::new();
    for y in 0..height {
        for x in 0..width {
            let noise = (random.next() & 15) as u32;
            data.extend([x * a + noise, y * b + noise, (x + y) * c].map(|value| (value * 5) as u8));
        }
    }
    data
}

fn encoded(extension: &str, pixels: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let mut bytes = Vec::new();
    if extension == "jpg" {
        let encoder = JpegEncoder::new_with_quality(&mut bytes, 85);
        encoder.write_image(pixels, width, height, image::ExtendedColorType::Rgb8).unwrap();
    } else {
        let image = RgbImage::from_raw(width, height, pixels.to_vec()).unwrap();
        image.write_to(&mut Cursor::new(&mut bytes), image::ImageFormat::Png).unwrap();
    }
    bytes
}

fn gray(pixels: &[u8], (width, height): (u32, u32)) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = image::GrayImage::from_raw(width, height, pixels.to_vec()).unwrap();
    image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

impl RandomDataset {
    pub fn draw(random: &mut Random) -> RandomDataset {
        let kinds =
            [Kind::Labeled, Kind::Labeled, Kind::Columns, Kind::Columns, Kind::Masks, Kind::Pixels, Kind::Boxes];
        let kind = random.pick(&kinds);
        let named = !matches!(kind, Kind::Pixels | Kind::Boxes) && random.one_in(3);
        let target = random.pick(&[(16, 16), (32, 32), (24, 16), (16, 32)]);
        let classes = (0..1 + random.below(4)).map(|class| format!("class {class}")).collect::<Vec<_>>();
        let count = classes.len() + random.below(14);
        let codec = match kind {
            Kind::Pixels => "png",
            _ => random.pick(&["jpg", "jpg", "png", "both"]),
        };
        let powers = [(16, 16), (32, 32), (64, 16), (16, 32), (32, 16)];
        // In some datasets, all images have one size, which may be the output size.
        let one_size = match (random.below(3), kind) {
            (0, Kind::Boxes) => Some(random.pick(&powers)),
            (0, _) => Some(target),
            (1, Kind::Pixels) => Some((9 + random.below(40) as u32, 9 + random.below(40) as u32)),
            (_, Kind::Pixels) => Some(random.pick(&[(16, 16), (32, 32), (8, 24)])),
            _ => None,
        };
        let damaged = matches!(kind, Kind::Labeled | Kind::Columns | Kind::Masks) && random.one_in(2);
        let mut of_class: Vec<usize> =
            (0..count).map(|n| if n < classes.len() { n } else { random.below(classes.len()) }).collect();
        of_class.sort_unstable();
        let words = ["red", "a ring", "straße", "two, or three", "x\"y\"", "", "12", "wörter mit raum"];
        let samples = of_class.into_iter().enumerate().map(|(n, class)| {
            let size = one_size.unwrap_or_else(|| match (random.below(3), kind) {
                (_, Kind::Boxes) => random.pick(&powers),
                (0, _) => target,
                _ => (8 + random.below(50) as u32, 8 + random.below(50) as u32),
            });
            let extension = if codec == "both" { random.pick(&["jpg", "png"]) } else { codec };
            let pixels = pixels(random, size);
            let mut encoded = encoded(extension, &pixels, size);
            // Tables detect their image column from the first sample, so it is never damaged.
            let damaged = damaged && n > 0 && random.one_in(4);
            if damaged {
                let len = encoded.len();
                match random.below(3) {
                    0 => encoded.truncate(len * 3 / 5),
                    1 => encoded.truncate(12),
                    // A damaged JPEG may still decode.
                    _ => encoded[len / 2..len * 2 / 3].fill(0x5a),
                }
            }
            let mask: Vec<u8> = (0..size.0 * size.1).map(|index| (index / 7 % 5) as u8).collect();
            let mask = gray(&mask, size);
            // Pascal VOC lists no classes besides the names in boxes, so each class gets at least
            // one box.
            let of_class = (kind == Kind::Boxes && n < classes.len()).then_some(n);
            let more = if kind == Kind::Boxes { random.below(4) } else { 0 };
            let boxes = (0..more + usize::from(of_class.is_some())).map(|number| {
                let mut edge = |end: u32| {
                    let low = random.below(end as usize - 1) as u32;
                    (low, low + 1 + random.below((end - low - 1) as usize) as u32)
                };
                let ((left, right), (upper, lower)) = (edge(size.0), edge(size.1));
                let class = random.below(classes.len());
                ([left, upper, right, lower], of_class.filter(|_| number == 0).unwrap_or(class))
            });
            let boxes = boxes.collect();
            let caption = format!("{n} {}", random.pick(&words)).trim().to_owned();
            let score = random.next() as i64 >> random.below(60);
            SampleData {
                name: format!("p{n:02}"),
                class,
                extension,
                encoded,
                size,
                pixels,
                score,
                caption,
                boxes,
                mask,
                damaged,
            }
        });
        let samples = samples.collect();
        RandomDataset { kind, classes, has_class_names: named, variant: random.next(), samples, target }
    }

    pub fn columns(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Columns => &["label", "score", "caption"],
            Kind::Masks => &["label", "mask"],
            _ => &["label"],
        }
    }

    pub fn value(&self, sample: &SampleData, column: &str) -> Value {
        match column {
            "label" if self.has_class_names => Value::Text(self.classes[sample.class].clone()),
            "label" => Value::Int(sample.class as i64),
            "score" => Value::Int(sample.score),
            "mask" => Value::Png(sample.mask.clone()),
            _ => Value::Text(sample.caption.clone()),
        }
    }

    pub fn codec(&self) -> Option<&'static str> {
        let first = self.samples[0].extension;
        self.samples.iter().all(|sample| sample.extension == first).then_some(first)
    }
}

#[derive(Debug, Clone)]
enum Order {
    Sequential,
    Shuffled,
    Window(u64),
    Weighted,
    Balanced,
    Subset(Vec<u64>),
    Split(usize),
    Repeated(u64),
}

#[derive(Clone)]
pub struct Choice {
    kind: Kind,
    seed: u64,
    order: Order,
    batch: usize,
    pub workers: [usize; 2],
    prefetch: Option<usize>,
    last: LastBatch,
    rank: (usize, usize),
    augment: (&'static str, Augment),
    views: bool,
    dtype: Dtype,
    layout: Layout,
    normalize: Option<Normalize>,
    channels: bool,
    on_error: OnError,
    strict: bool,
    label: bool,
    unlabeled: bool,
    fields: bool,
    samples: usize,
    classes: usize,
    list: Option<Vec<String>>,
    /// Number of batches after which the run stops and is resumed.
    pub stop: u64,
}

pub const EPOCHS: u64 = 2;

impl Choice {
    pub fn draw(random: &mut Random, dataset: &RandomDataset) -> Choice {
        let samples = dataset.samples.len();
        let order = match random.below(10) {
            0 => Order::Sequential,
            1..=3 => Order::Shuffled,
            4 | 5 => Order::Window(1 + random.below(samples) as u64),
            6 if dataset.kind != Kind::Boxes => Order::Balanced,
            6 => Order::Weighted,
            7 => Order::Subset((0..samples as u64).filter(|n| *n == 0 || random.one_in(2)).collect()),
            8 => Order::Split(random.below(2)),
            _ => Order::Repeated(2),
        };
        let (width, height) = dataset.target;
        let (side, longer) = (width.min(height), width.max(height));
        let train = || Augment::train(side);
        let boxes = dataset.kind == Kind::Boxes;
        let effects = !boxes && dataset.kind != Kind::Masks;
        let augment = match random.below(16) {
            0 => ("train", train()),
            1 => ("vertical flip", train().vertical_flip(0.5)),
            2 => ("eval", Augment::eval(side + side / 8, side)),
            3 => ("eval of the size", Augment::eval(side, side)),
            4 => ("center crop", Augment::center_crop(side)),
            5 => ("random crop", Augment::random_crop(side).padding(2).pad_if_needed()),
            6 => ("resize", Augment::resize(width, height)),
            7 => ("letterbox", Augment::letterbox(width, height)),
            8 => ("pass through", Augment::pass_through(width, height)),
            9 => ("pad_to", Augment::pad_to(64, 64)),
            10 => ("random resize", Augment::random_resize(side, side, longer + 8)),
            11 => ("jitter", train().jitter(ColorJitter::new().brightness(0.4).hue(0.1))),
            12 if effects => ("rand augment", train().rand_augment(2, 9)),
            13 if effects => ("mix", train().mix(Mix::either(0.2, 1.0))),
            14 => ("another size later", Augment::resize(width, height).from_epoch(1, Augment::train(side + 8))),
            _ => (
                "resize with effects",
                Augment::resize(width, height).solarize(128.0, 0.5).grayscale(0.3).blur(3, (0.1, 2.0), 0.5),
            ),
        };
        let mix = augment.0 == "mix";
        let worlds = random.pick(&[1, 1, 2, 3]);
        let normalize = random.pick(&[None, None, Some(Normalize::IMAGENET), Some(Normalize::UNIT)]);
        let dtype = match normalize {
            None if !mix => random.pick(&[Dtype::U8, Dtype::U8, Dtype::F32, Dtype::F16]),
            _ => random.pick(&[Dtype::F32, Dtype::F16, Dtype::Bf16]),
        };
        let on_error = match random.below(3) {
            0 => OnError::Stop,
            1 => OnError::Skip { max_skipped: 100 },
            _ => OnError::Skip { max_skipped: random.below(3) as u64 },
        };
        Choice {
            kind: dataset.kind,
            seed: random.next() % 1000,
            order,
            batch: 1 + random.below(6),
            workers: [1 + random.below(3), 1 + random.below(3)],
            prefetch: random.pick(&[None, None, Some(1), Some(3)]),
            last: random.pick(&[LastBatch::Keep, LastBatch::Keep, LastBatch::Pad, LastBatch::Drop]),
            rank: (random.below(worlds), worlds),
            augment,
            views: !mix && random.one_in(8),
            dtype,
            layout: random.pick(&[Layout::Nhwc, Layout::Nchw]),
            normalize,
            channels: !mix && random.one_in(10),
            on_error,
            strict: random.one_in(4),
            label: !boxes && (mix || !random.one_in(8)),
            unlabeled: random.one_in(8),
            fields: random.one_in(2),
            samples,
            classes: dataset.classes.len(),
            // A class list in reverse order changes the label indices.
            list: (dataset.has_class_names && !mix && random.one_in(2)).then(|| {
                let more = ["another".to_owned()];
                dataset.classes.iter().rev().cloned().chain(more).collect()
            }),
            stop: random.below(4) as u64,
        }
    }

    pub fn of(&self, loader: Loader, resumed: bool) -> warpfeed::Result<Loader> {
        let mut loader = loader
            .batch_size(self.batch)
            .workers(self.workers[usize::from(resumed)])
            .last_batch(self.last)
            .augment(self.augment.1.clone())
            .dtype(self.dtype)
            .layout(self.layout)
            .on_error(self.on_error)
            .strict(self.strict);
        if let Some(prefetch) = self.prefetch {
            loader = loader.prefetch(prefetch);
        }
        if self.rank.1 > 1 {
            loader = loader.rank(self.rank.0, self.rank.1);
        }
        if let Some(normalize) = self.normalize {
            loader = loader.normalize(normalize);
        }
        if self.channels {
            loader = loader.channels(1);
        }
        if self.views {
            let (width, height) = (self.augment.1.output_size().width, self.augment.1.output_size().height);
            loader = loader.views([self.augment.1.clone(), Augment::resize(width / 2, height / 2)]);
        }
        if self.augment.0 == "mix" {
            loader = loader.soft_labels(self.classes, 0.1);
        }
        if !self.label {
            loader = loader.drop_field("label");
        } else if self.unlabeled {
            loader = loader.unlabeled(true);
        }
        if self.kind == Kind::Boxes {
            loader = loader.field("boxes", Boxes::new(4).column("class", Dtype::I64));
        }
        if self.kind == Kind::Columns && self.fields {
            loader = loader.field("score", NdArray::new(Dtype::I64, [])).field("caption", Text::new());
        }
        if self.kind == Kind::Masks && self.fields {
            loader = loader.field("mask", Mask::new(Dtype::U8).fill(9));
        }
        if let Some(list) = &self.list {
            loader = loader.classes(list.iter().cloned());
        }
        let weight = |n: u64| (n % 4) as f64 + 0.5;
        Ok(match &self.order {
            Order::Sequential => loader.seed(self.seed),
            Order::Shuffled => loader.shuffle(self.seed),
            Order::Window(window) => loader.shuffle_window(*window).seed(self.seed),
            Order::Weighted => loader.weights((0..self.samples as u64).map(weight)).seed(self.seed),
            Order::Balanced => loader.balanced().seed(self.seed),
            Order::Subset(chosen) => loader.shuffle(self.seed).subset(chosen.iter().copied()),
            Order::Split(part) => {
                let [first, second] = loader.shuffle(self.seed).split([0.5, 0.5], self.seed)?;
                if *part == 0 { first } else { second }
            }
            Order::Repeated(times) => loader.shuffle(self.seed).repeat(*times),
        })
    }

    pub fn words(&self, dataset: &RandomDataset) -> Vec<String> {
        let order = format!("{:?}", self.order);
        let mut words = vec![
            format!("kind {:?}", dataset.kind),
            format!("order {}", order.split('(').next().unwrap_or_default()),
            format!("augment {}", self.augment.0),
            format!("batch size {}", self.batch),
            format!("workers {} then {}", self.workers[0], self.workers[1]),
            format!("last batch {:?}", self.last),
            format!("ranks {}", self.rank.1),
            format!("dtype {:?}", self.dtype),
            format!("layout {:?}", self.layout),
            format!("on error {}", format!("{:?}", self.on_error).split(' ').next().unwrap_or_default()),
            format!("resumed after {}", self.stop),
        ];
        let same = dataset.samples.iter().filter(|sample| sample.size == dataset.target).count();
        for (word, is) in [
            ("normalized", self.normalize.is_some()),
            ("one channel", self.channels),
            ("views", self.views),
            ("strict", self.strict),
            ("without labels", !self.label),
            ("unlabeled allowed", self.unlabeled),
            ("prefetch", self.prefetch.is_some()),
            ("fields", self.fields && matches!(self.kind, Kind::Columns | Kind::Masks)),
            ("labels are names", dataset.has_class_names),
            ("a list of classes", self.list.is_some()),
            ("damaged samples", dataset.samples.iter().any(|sample| sample.damaged)),
            ("a size equals its target", same > 0),
            ("all sizes equal their target", same == dataset.samples.len()),
        ] {
            if is {
                words.push(word.to_owned());
            }
        }
        words
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Choice { seed, order, batch, workers, prefetch, last, rank, augment, .. } = self;
        let (dtype, on_error, stop) = (self.dtype, self.on_error, self.stop);
        write!(
            f,
            "seed {seed}, {order:?}, batches of {batch}, workers {workers:?}, prefetch {prefetch:?}, {last:?}, "
        )?;
        write!(f, "rank {rank:?}, {}, {dtype:?}, {on_error:?}, stops after {stop}", augment.0)
    }
}
