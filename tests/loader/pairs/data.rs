//! Writes the datasets, and provides arguments for the setters.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use image::{GrayImage, Luma, Rgba, RgbaImage};
use warpfeed::decode::{Codec, EncodedImage, Pixels, Rect, Size};
use warpfeed::format::Format;
use warpfeed::sampler::{Rng, Sampler};
use warpfeed::transform::ImageMut;
use warpfeed::{Dataset, Loader, Result};

pub(super) const COUNT: u64 = 11;
/// Number of samples of the first class in each dataset. The others have the second class.
pub(super) const OF_FIRST: u64 = 9;
pub(super) const SETS: [(&str, [&str; 2]); 2] = [("set", ["even", "odd"]), ("other", ["odd", "zero"])];

pub(super) const SUBSET: [u64; 7] = [7, 3, 5, 1, 8, 2, 10];
pub(super) const ORDER: [u64; 7] = [5, 5, 2, 8, 3, 1, 7];
pub(super) const LISTED: [&str; 3] = ["zero", "odd", "even"];
pub(super) const LISTED_IN_FILE: [&str; 3] = ["odd", "zero", "even"];

pub(super) fn length(id: u64) -> u32 {
    (3 * id % 10) as u32
}

pub(super) struct Own;

impl Sampler for Own {
    fn len(&self, _: u64) -> u64 {
        ORDER.len() as u64
    }

    fn index(&self, _: u64, position: u64) -> u64 {
        ORDER[position as usize]
    }
}

/// A codec that replaces the PNG codec, and decodes every image to a single color.
pub(super) struct Red;

impl Codec for Red {
    fn format(&self) -> Format {
        Format::any("png")
    }

    fn open<'a>(&self, bytes: &'a [u8]) -> Result<EncodedImage<'a>> {
        Ok(EncodedImage::new(bytes, Size::new(4, 4)))
    }

    fn decode(&self, _: &mut EncodedImage<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        out.reset(region.size()).chunks_exact_mut(3).for_each(|pixel| pixel.copy_from_slice(&[250, 20, 20]));
        out.set_origin(region.x, region.y);
        Ok(())
    }
}

pub(super) fn darker(image: &mut ImageMut<'_>, _: &mut Rng) -> Result<()> {
    image.data_mut().iter_mut().for_each(|value| *value /= 2);
    Ok(())
}

pub(super) fn class(id: u64) -> &'static str {
    let (_, [many, few]) = SETS[(id / COUNT) as usize];
    if id % COUNT < OF_FIRST { many } else { few }
}

pub(super) fn swapped(id: u64) -> &'static str {
    let (_, [many, few]) = SETS[(id / COUNT) as usize];
    if id % COUNT < OF_FIRST { few } else { many }
}

/// Writes both datasets as folders and tables, with masks. The upper half of each image is
/// transparent.
pub(super) fn write(root: &Path) {
    for (set, (name, _)) in SETS.iter().enumerate() {
        let mut table = "path,label,species\n".to_owned();
        for id in (0..COUNT).map(|n| set as u64 * COUNT + n) {
            let mut rng = Rng::new(3, 0, id);
            let color = |_, y| {
                let [red, green, blue] = [0; 3].map(|_| rng.next_u64() as u8);
                Rgba([red, green, blue, if y < 2 { 0 } else { 255 }])
            };
            let original = RgbaImage::from_fn(4, 4, color);
            let path = format!("{}/p{id:02}.png", class(id));
            for folder in [*name, "masks"] {
                fs::create_dir_all(root.join(folder).join(class(id))).unwrap();
            }
            original.save(root.join(name).join(&path)).unwrap();
            GrayImage::from_pixel(4, 4, Luma([id as u8])).save(root.join("masks").join(&path)).unwrap();
            writeln!(table, "{name}/{path},{},{}", class(id), swapped(id)).unwrap();
        }
        fs::write(root.join(name).with_extension("csv"), table).unwrap();
        // Backdate the folders, because loaders write no index for a folder that changed recently.
        for folder in [*name, SETS[set].1[0], SETS[set].1[1]] {
            let folder = if folder == *name { root.join(name) } else { root.join(name).join(folder) };
            let settled = SystemTime::now() - Duration::from_secs(3600);
            fs::File::open(folder).unwrap().set_modified(settled).unwrap();
        }
    }
    fs::write(root.join("classes.txt"), LISTED_IN_FILE.join("\n")).unwrap();
}

pub(super) struct World<'a> {
    pub(super) root: &'a Path,
    pub(super) samples: u64,
    pub(super) saved: Option<String>,
}

impl World<'_> {
    pub(super) fn trace(&self) -> std::path::PathBuf {
        self.root.join("trace.json")
    }
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Data(pub(super) Vec<String>);

impl Data {
    pub(super) fn of(names: &[&str]) -> Data {
        let has = |name| names.contains(&name);
        let mixed = ["match_labels_by_name", "keep_labels", "mixture_options", "augment_for"].into_iter().any(has);
        let sets = &SETS[..if mixed { 2 } else { 1 }];
        let end = if has("table") { ".csv" } else { "" };
        let stores = ["store", "stores"].into_iter().zip(["one://data/", "two://data/"]);
        let mut places: Vec<_> = stores.filter(|(name, _)| has(name)).map(|(_, place)| place).collect();
        if places.is_empty() {
            places.push("");
        }
        Data(places.iter().flat_map(|place| sets.iter().map(move |(set, _)| format!("{place}{set}{end}"))).collect())
    }

    pub(super) fn loader(&self, root: &Path) -> Loader {
        let path = |name: &String| if name.contains("://") { name.into() } else { root.join(name) };
        match &self.0[..] {
            [name] => Loader::new(path(name)),
            names => Loader::mixture(names.iter().map(|name| (Dataset::from(path(name)), 0.5))),
        }
    }
}
