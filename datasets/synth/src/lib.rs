//! Generates synthetic datasets from which a model can learn. The images vary as in a real dataset,
//! and are byte-identical on every machine for the same options. Except in `robot`, painting and
//! encoding use only integer arithmetic, so results do not depend on floating-point hardware or
//! libraries.

mod annotated;
mod figure;
mod ink;
#[cfg(feature = "robot")]
mod robot;
mod scene;

use std::fs;
use std::path::{Path, PathBuf};

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use rayon::prelude::*;

#[cfg(feature = "robot")]
pub use self::robot::Robot;

use self::figure::Figure;
use self::ink::random_in;
use self::scene::Scene;
use warpfeed::decode::Size;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Error, ErrorKind, Result};

/// Maximum number of classes: outlines x textures x hues.
const MAX_CLASSES: usize = 1024;

/// A synthetic dataset.
///
/// A class is a combination of an outline and a texture, such as `dotted-ring` or `striped-cross`.
/// With more than 64 classes, a class also has a range of hues. Several figures of the class are
/// scattered over a background that does not depend on the class. Their colors and sizes vary, and
/// they are rotated by up to 18 degrees. Most crops therefore show a figure, and with up to 64
/// classes, the mean color does not reveal the class. Sizes, aspect ratios, JPEG qualities and
/// subsampling of the images vary as in real datasets. Some images are gray, progressive, or PNG.
///
/// Image `i` depends only on the seed, the number of classes, the side and `i`. Image `i` belongs
/// to class `i % classes`.
///
/// ```
/// use warpfeed_synth::Synth;
/// use warpfeed::source::Source;
///
/// let set = Synth::new().images(6).classes(3).side(64).memory()?;
/// assert_eq!((set.len(), set.classes().len()), (6, 3));
/// # Ok::<(), warpfeed::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing is generated until a method such as `write` or `memory` is called"]
pub struct Synth {
    images: usize,
    classes: usize,
    side: u32,
    seed: u64,
}

impl Default for Synth {
    fn default() -> Self {
        Self::new()
    }
}

impl Synth {
    /// Creates a dataset of 2000 images in 10 classes, with 256 pixels on the longer side and seed
    /// 0: about 40 MB.
    pub fn new() -> Self {
        Synth { images: 2000, classes: 10, side: 256, seed: 0 }
    }

    /// Sets the number of images, at least one per class.
    pub fn images(mut self, images: usize) -> Self {
        self.images = images;
        self
    }

    /// Sets the number of classes, 1 to 1024.
    pub fn classes(mut self, classes: usize) -> Self {
        self.classes = classes;
        self
    }

    /// Sets the longer side of most images in pixels, 32 to 4096. The longer side of the other
    /// images is half to twice as long. In ImageNet, the longer side of most images is 500.
    pub fn side(mut self, pixels: u32) -> Self {
        self.side = pixels;
        self
    }

    /// Sets the seed. Different seeds give different images.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Generates the dataset in class folders under `dir`, on all cores.
    ///
    /// The dataset is written to a sibling of `dir` that is renamed at the end, so `dir` never
    /// contains a partial dataset. The sibling's name is the name of `dir` followed by `.synth.partial`,
    /// and an existing folder with this name is deleted.
    ///
    /// # Errors
    /// Fails with [`ErrorKind::Config`] if a number is out of range, or if `dir` exists and is not
    /// empty, and with [`ErrorKind::Io`] if writing fails.
    pub fn write(&self, dir: impl AsRef<Path>) -> Result<()> {
        self.write_with(dir, |_| ())
    }

    /// Generates the dataset like [`write`](Synth::write), and calls `written` with the size in
    /// bytes of each image after writing it. Several threads may call `written` at the same time.
    ///
    /// # Errors
    /// Fails under the same conditions as [`write`](Synth::write).
    pub fn write_with(&self, dir: impl AsRef<Path>, written: impl Fn(usize) + Sync) -> Result<()> {
        self.check()?;
        write_atomically(dir.as_ref(), |partial_dir| self.write_classes(partial_dir, &written))
    }

    fn write_classes(&self, partial_dir: &Path, written: &(impl Fn(usize) + Sync)) -> Result<()> {
        for class in self.class_names() {
            let folder = partial_dir.join(class);
            fs::create_dir_all(&folder).map_err(|e| Error::io(&folder, &e))?;
        }
        (0..self.images).into_par_iter().try_for_each(|index| {
            let sample = self.image(index)?;
            let sample = sample.as_sample()?;
            let (extension, bytes) = sample.image().ok_or_else(|| Error::in_source("the sample has no image"))?;
            let path: PathBuf = partial_dir.join(format!("{}.{extension}", sample.key()));
            fs::write(&path, bytes).map_err(|e| Error::io(&path, &e))?;
            written(bytes.len());
            Ok(())
        })
    }

    /// Generates the dataset in memory. The keys, labels and order of the samples are the same
    /// as in the class folders that [`write`](Synth::write) creates.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if a number is out of range.
    pub fn memory(&self) -> Result<Memory> {
        self.check()?;
        let mut classes: Vec<(String, usize)> = self.class_names().zip(0..).collect();
        classes.sort();
        let indices: Vec<(usize, i64)> = classes
            .iter()
            .zip(0..)
            .flat_map(|(&(_, class), label)| (class..self.images).step_by(self.classes).map(move |i| (i, label)))
            .collect();
        let draw_labeled = |(index, label)| Ok(self.image(index)?.label(label));
        let samples = indices.into_par_iter().map(draw_labeled).collect::<Result<_>>()?;
        Ok(Memory::new(samples).with_classes(classes.into_iter().map(|(name, _)| name)))
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_CLASSES).contains(&self.classes) {
            return Err(Error::config(format!("synth: {} classes; expected 1 to {MAX_CLASSES}", self.classes)));
        }
        if self.images < self.classes {
            let Synth { images, classes, .. } = self;
            return Err(Error::config(format!(
                "synth: {images} images for {classes} classes; each class needs at least one image"
            )));
        }
        if !(32..=4096).contains(&self.side) {
            return Err(Error::config(format!("synth: a side of {} pixels; expected 32 to 4096", self.side)));
        }
        Ok(())
    }

    fn class_names(&self) -> impl Iterator<Item = String> {
        (0..self.classes).map(|class| Figure::for_class(class, self.classes).to_string())
    }

    fn image(&self, index: usize) -> Result<OwnedSample> {
        let figure = self.figure(index);
        let (size, coding, pixels) = self.pixels(index);
        let (field, bytes) = coding.encode(&pixels, size)?;
        Ok(OwnedSample::new(format!("{figure}/{index:06}")).field(field, bytes))
    }

    fn figure(&self, class: usize) -> Figure {
        Figure::for_class(class % self.classes, self.classes)
    }

    fn pixels(&self, index: usize) -> (Size, ImageEncoding, Vec<u8>) {
        let mut rng = Rng::new(self.seed, u64::from(self.side), index as u64);
        let size = self.size(&mut rng);
        let coding = ImageEncoding::random(&mut rng);
        let class = index % self.classes;
        (size, coding, Scene::random(size, |_| Some((class, self.figure(class))), &mut rng).paint())
    }

    /// Chooses a random image size. The distribution is similar to ImageNet, scaled to `side`: in
    /// about two thirds of the images, the longer side is `side` and the aspect ratio is 4:3 or
    /// 3:2. About one image in four is in portrait format.
    fn size(&self, rng: &mut Rng) -> Size {
        let (longer_side, shorter_side) = match random_in(rng, 0, 99) {
            0..45 => (self.side, self.side * 3 / 4),
            45..65 => (self.side, self.side * 2 / 3),
            _ => {
                let percent = match random_in(rng, 0, 9) {
                    0..3 => random_in(rng, 50, 99),
                    3..8 => random_in(rng, 100, 130),
                    _ => random_in(rng, 130, 200),
                };
                let longer_side = self.side as i32 * percent / 100;
                (longer_side as u32, (longer_side * random_in(rng, 50, 100) / 100) as u32)
            }
        };
        if random_in(rng, 0, 3) == 0 {
            Size::new(shorter_side, longer_side)
        } else {
            Size::new(longer_side, shorter_side)
        }
    }
}

/// Creates `dir` atomically: `write` fills the sibling folder `DIR.synth.partial`, which is then
/// renamed. Fails if `dir` exists and is not an empty folder. Deletes an existing
/// `DIR.synth.partial`, which a killed process has left behind.
fn write_atomically(dir: &Path, write: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let dir = &dir.components().collect::<PathBuf>();
    if dir.is_file() || fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::config("already exists and is not an empty folder: choose a new folder").at_path(dir));
    }
    let mut partial_dir = dir.clone().into_os_string();
    partial_dir.push(".synth.partial");
    let partial_dir = PathBuf::from(partial_dir);
    if partial_dir.exists() {
        fs::remove_dir_all(&partial_dir).map_err(|e| Error::io(&partial_dir, &e))?;
    }
    let result = write(&partial_dir).and_then(|()| {
        // A rename replaces an empty folder only on Unix.
        let _ = fs::remove_dir(dir);
        fs::rename(&partial_dir, dir).map_err(|e| Error::io(dir, &e))
    });
    if result.is_err() {
        let _ = fs::remove_dir_all(&partial_dir);
    }
    result
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ImageEncoding {
    Png { gray: bool },
    Jpeg { quality: u8, sampling: SamplingFactor, gray: bool, progressive: bool },
}

impl ImageEncoding {
    fn random(rng: &mut Rng) -> Self {
        let gray = random_in(rng, 0, 99) < 4;
        if random_in(rng, 0, 99) < 5 {
            return ImageEncoding::Png { gray };
        }
        ImageEncoding::Jpeg {
            quality: random_in(rng, 60, 95) as u8,
            sampling: match random_in(rng, 0, 99) {
                0..50 => SamplingFactor::R_4_4_4,
                50..95 => SamplingFactor::R_4_2_0,
                _ => SamplingFactor::R_4_2_2,
            },
            gray,
            progressive: random_in(rng, 0, 99) < 8,
        }
    }

    fn encode(self, rgb: &[u8], size: Size) -> Result<(&'static str, Vec<u8>)> {
        let encode_error = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Io, format!("cannot encode: {e}"));
        let gray = |rgb: &[u8]| rgb.as_chunks::<3>().0.iter().copied().map(ink::luma).collect::<Vec<u8>>();
        let mut bytes = Vec::new();
        match self {
            ImageEncoding::Png { gray: is_gray } => {
                let mut encoder = png::Encoder::new(&mut bytes, size.width, size.height);
                encoder.set_depth(png::BitDepth::Eight);
                encoder.set_compression(png::Compression::Fast);
                encoder.set_filter(png::Filter::Adaptive);
                let gray_pixels = is_gray.then(|| gray(rgb));
                encoder.set_color(if is_gray { png::ColorType::Grayscale } else { png::ColorType::Rgb });
                let mut writer = encoder.write_header().map_err(|e| encode_error(&e))?;
                writer.write_image_data(gray_pixels.as_deref().unwrap_or(rgb)).map_err(|e| encode_error(&e))?;
                writer.finish().map_err(|e| encode_error(&e))?;
                Ok(("png", bytes))
            }
            ImageEncoding::Jpeg { quality, sampling, gray: is_gray, progressive } => {
                let mut jpeg = Encoder::new(&mut bytes, quality);
                jpeg.set_sampling_factor(sampling);
                jpeg.set_progressive(progressive);
                let (width, height) = (size.width as u16, size.height as u16);
                match is_gray {
                    true => jpeg.encode(&gray(rgb), width, height, ColorType::Luma),
                    false => jpeg.encode(rgb, width, height, ColorType::Rgb),
                }
                .map_err(|e| encode_error(&e))?;
                Ok(("jpg", bytes))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use warpfeed::decode::{Codecs, Info, Pixels, Rect};
    use warpfeed::source::{Folder, Source};

    const SMALL_SET: Synth = Synth { images: 240, classes: 6, side: 48, seed: 3 };

    fn read(source: &dyn Source) -> Vec<OwnedSample> {
        let mut scratch = Vec::new();
        (0..source.len()).map(|i| (&source.read(i, &mut scratch).unwrap()).try_into().unwrap()).collect()
    }

    /// Computes the FNV-1a hash.
    fn hash(samples: &[OwnedSample]) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325;
        for sample in samples {
            let sample = sample.as_sample().unwrap();
            let (name, bytes) = sample.image().unwrap();
            for byte in [sample.key().as_bytes(), name.as_bytes(), bytes].concat() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        hash
    }

    #[test]
    fn the_generated_bytes_do_not_change() {
        let set = SMALL_SET.memory().unwrap();
        assert_eq!(
            hash(&read(&set)),
            GOLDEN,
            "the drawing or an encoder changed, so the same seed now gives a different set"
        );
        assert_ne!(hash(&read(&SMALL_SET.seed(4).memory().unwrap())), GOLDEN);
    }

    const GOLDEN: u64 = 3917195382315595342;

    #[test]
    fn a_larger_set_begins_with_the_same_images() {
        for index in [0, 5, 17] {
            assert_eq!(SMALL_SET.image(index).unwrap(), SMALL_SET.images(1000).image(index).unwrap());
        }
    }

    #[test]
    fn memory_and_folders_contain_the_same_samples() {
        let dir = tempfile::tempdir().unwrap();
        let set = SMALL_SET.images(20);
        set.write(dir.path().join("set/")).unwrap();
        let folder = Folder::open(dir.path().join("set")).unwrap();
        let memory = set.memory().unwrap();
        assert_eq!(folder.classes(), memory.classes());
        assert_eq!(read(&folder), read(&memory));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a sibling folder remains");
        assert!(set.write(dir.path().join("set")).unwrap_err().to_string().contains("already exists"));
    }

    #[test]
    fn sizes_and_codings_vary() {
        let mut counts = BTreeMap::<&str, usize>::new();
        for index in 0..400 {
            let sample = SMALL_SET.images(400).image(index).unwrap();
            let info = Info::read(sample.as_sample().unwrap().image().unwrap().1).unwrap();
            let longer_side = info.size.width.max(info.size.height);
            assert!((24..=96).contains(&longer_side), "{info:?}");
            *counts.entry(if longer_side == 48 { "usual size" } else { "other size" }).or_default() += 1;
            *counts.entry(info.jpeg.map_or("png", |j| j.chroma)).or_default() += 1;
            *counts.entry("progressive").or_default() += usize::from(info.jpeg.is_some_and(|j| j.progressive));
        }
        for (kind, min_count) in [
            ("usual size", 200),
            ("other size", 80),
            ("4:4:4", 120),
            ("4:2:0", 120),
            ("4:2:2", 5),
            ("gray", 5),
            ("png", 8),
        ] {
            assert!(counts[kind] >= min_count, "{kind}: {counts:?}");
        }
        assert!((15..60).contains(&counts["progressive"]), "{counts:?}");
    }

    fn decoded(sample: &OwnedSample) -> Pixels {
        let sample = sample.as_sample().unwrap();
        let bytes = sample.image().unwrap().1;
        let mut pixels = Pixels::new();
        let codecs = Codecs::new();
        let mut image = codecs.open(bytes).unwrap();
        let size = image.size();
        image.decode(Rect::full(size), &mut pixels).unwrap();
        pixels
    }

    #[test]
    fn encoded_images_decode_to_the_painted_pixels() {
        let set = SMALL_SET.side(128);
        for index in 0..100 {
            let (size, coding, painted) = set.pixels(index);
            let pixels = decoded(&set.image(index).unwrap());
            assert_eq!(pixels.size(), size);
            let gray = matches!(coding, ImageEncoding::Png { gray: true } | ImageEncoding::Jpeg { gray: true, .. });
            let expected: Vec<u8> = match gray {
                true => painted.as_chunks::<3>().0.iter().flat_map(|&rgb| [ink::luma(rgb); 3]).collect(),
                false => painted,
            };
            let total_difference: u64 =
                expected.iter().zip(pixels.data()).map(|(&a, &b)| u64::from(a.abs_diff(b))).sum();
            let mean_difference = total_difference as f64 / expected.len() as f64;
            // 4:2:0 at quality 60 loses the most in small figures with strong colors.
            let tolerance = if matches!(coding, ImageEncoding::Png { .. }) { 0.0 } else { 16.0 };
            assert!(mean_difference <= tolerance, "{index} {coding:?}: {mean_difference:.1} levels apart");
        }
    }

    /// A classifier that uses only the mean color fails for most held-out images, so a model must
    /// learn shapes.
    #[test]
    fn the_mean_color_does_not_reveal_the_class() {
        let means: Vec<[f64; 3]> = (0..SMALL_SET.images)
            .map(|index| {
                let pixels = decoded(&SMALL_SET.image(index).unwrap());
                std::array::from_fn(|c| {
                    pixels.data().iter().skip(c).step_by(3).map(|&v| f64::from(v)).sum::<f64>()
                        / pixels.size().area() as f64
                })
            })
            .collect();
        let (train, test) = means.split_at(SMALL_SET.images / 2);
        let center = |class: usize| -> [f64; 3] {
            let of_class: Vec<_> = train.iter().skip(class).step_by(SMALL_SET.classes).collect();
            std::array::from_fn(|c| of_class.iter().map(|mean| mean[c]).sum::<f64>() / of_class.len() as f64)
        };
        let centers: Vec<_> = (0..SMALL_SET.classes).map(center).collect();
        let squared_distance = |a: &[f64; 3], b: &[f64; 3]| (0..3).map(|c| (a[c] - b[c]).powi(2)).sum::<f64>();
        let nearest = |mean| {
            (0..SMALL_SET.classes)
                .min_by(|&a, &b| squared_distance(mean, &centers[a]).total_cmp(&squared_distance(mean, &centers[b])))
        };
        let correct_count =
            test.iter().enumerate().filter(|(i, mean)| nearest(mean) == Some(i % SMALL_SET.classes)).count();
        assert!(correct_count * 10 < test.len() * 4, "{correct_count} of {} correct; chance is one in six", test.len());
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (set, word) in [
            (SMALL_SET.classes(0), "0 classes"),
            (SMALL_SET.classes(1025), "1025 classes"),
            (SMALL_SET.images(5), "5 images for 6 classes"),
            (SMALL_SET.side(31), "a side of 31"),
        ] {
            let e = set.memory().unwrap_err();
            assert!(e.kind() == ErrorKind::Config && e.cause().contains(word), "{e}");
        }
    }

    #[test]
    fn the_smallest_images_and_most_classes_can_be_drawn() {
        for index in 0..64 {
            Synth::new().side(32).classes(1024).images(1024).image(index * 16).unwrap();
        }
    }
}
