//! Tests views of one image, which are decoded together where this is faster. Pixels and errors
//! must be as if each view were decoded separately. A damaged image must count once.

use warpfeed::field::Image;
use warpfeed::sampler::Rng;
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::{Augment, HostBatch, Loader, OnError};

fn exif(orientation: u8) -> Vec<u8> {
    let ifd = [1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0, 0, 0, 0, 0];
    let body = [&b"Exif\0\0II*\0\x08\0\0\0"[..], &ifd].concat();
    [&[0xff, 0xe1], &(body.len() as u16 + 2).to_be_bytes()[..], &body].concat()
}

pub(crate) fn originals() -> Vec<(&'static str, Vec<u8>)> {
    let (width, height) = (200u16, 150u16);
    let mut rng = Rng::new(1, 2, 3);
    let pixels: Vec<u8> = (0..u32::from(width) * u32::from(height) * 3)
        .map(|i| (i.wrapping_mul(i) / 31 + i / 5) as u8 ^ (rng.below(30) as u8))
        .collect();
    let jpeg = |progressive, interval| crate::jpeg(&pixels, (width, height), progressive, interval);
    let (plain, rows, packed, progressive) = (jpeg(false, 0), jpeg(false, 13), jpeg(false, 2), jpeg(true, 0));
    let mut files = Vec::new();
    for (name, file) in [("plain", &plain), ("rows", &rows), ("packed", &packed), ("progressive", &progressive)] {
        files.push((name, file.clone()));
        for orientation in [3, 6, 8] {
            files.push((name, [&file[..2], &exif(orientation), &file[2..]].concat()));
        }
        let data = file.windows(2).rposition(|w| w == [0xff, 0xda]).unwrap() + 14;
        for _ in 0..8 {
            let mut damaged = file.clone();
            let offset = data + rng.below((file.len() - data - 4) as u64) as usize;
            match rng.below(4) {
                0 => drop(damaged.splice(offset..offset, [0xff, 0xd0 + rng.below(8) as u8])),
                1 => drop(damaged.drain(offset..(offset + 30).min(file.len() - 2))),
                2 => damaged[offset..offset + 2].fill(0x55),
                _ => damaged.truncate(offset),
            }
            files.push((name, damaged));
        }
    }
    let bmp = image::RgbImage::from_raw(width.into(), height.into(), pixels).unwrap();
    for format in [image::ImageFormat::Bmp, image::ImageFormat::Png] {
        let mut bytes = std::io::Cursor::new(Vec::new());
        bmp.write_to(&mut bytes, format).unwrap();
        files.push(("other", bytes.into_inner()));
    }
    files
}

/// The images of a sample, or `None` if it failed, and the number of damaged images.
type Seen = (Option<Vec<Vec<u8>>>, u64);

fn delivered_views(loader: &Loader, samples: u64) -> Vec<Seen> {
    let image_of = |sample: u64| {
        let mut batches = loader.clone().subset(vec![sample]).batch_size(1).workers(1).epochs(0).host().unwrap();
        let batch = batches.epoch(0).next().unwrap();
        let images = |batch: HostBatch| {
            batch
                .fields()
                .map(|field| field.name.clone())
                .map(|name| batch.field(&name).unwrap().bytes().to_vec())
                .collect()
        };
        (batch.ok().map(images), batches.stats().damaged_images)
    };
    (0..samples).map(image_of).collect()
}

#[test]
fn views_decoded_together_equal_views_decoded_alone() {
    let files = originals();
    let sample = |(number, (_, file)): (usize, &(&str, Vec<u8>))| {
        OwnedSample::new(number.to_string()).field("img", file.clone()).label(0)
    };
    let source = std::sync::Arc::new(Memory::new(files.iter().enumerate().map(sample).collect()));
    let samples = files.len() as u64;
    let views = [
        Augment::train(40),
        Augment::train(24).scale(0.02, 0.2),
        Augment::train(24).scale(0.02, 0.2),
        Augment::eval(40, 32),
        Augment::train(20).scale(0.02, 0.2),
    ];
    let loader = Loader::source(source).seed(9).drop_field("label");
    let together = loader.clone().views(views.clone());
    let alone: Vec<_> = views
        .iter()
        .enumerate()
        .map(|(n, view)| {
            // The name of a view is part of its seed.
            let view_field = Image::new().augment(view.clone());
            delivered_views(&loader.clone().drop_field("image").field(&format!("views.{n}"), view_field), samples)
        })
        .collect();
    let decoded = delivered_views(&together, samples);
    let (mut sound, mut damaged, mut failed, mut partly) = (0, 0, 0, 0);
    for (number, (images, count)) in decoded.iter().enumerate() {
        let (kind, alone) = (files[number].0, || alone.iter().map(|view| &view[number]));
        let place = format!("sample {number}, {kind}");
        let Some(images) = images else {
            assert!(alone().any(|(image, _)| image.is_none()), "{place} fails only with other views");
            failed += 1;
            continue;
        };
        for (n, (image, (single, _))) in images.iter().zip(alone()).enumerate() {
            assert!(single.as_ref().is_some_and(|single| single[0] == *image), "view {n} of {place}");
        }
        let views = alone().filter(|(_, count)| *count > 0).count();
        assert_eq!(*count, u64::from(views > 0), "{place}: a damaged image counts once");
        (damaged, sound) = (damaged + usize::from(views > 0), sound + usize::from(views == 0));
        partly += usize::from(views > 0 && views < 5);
    }
    assert!(sound > 20 && damaged > 8 && failed > 1 && partly > 0, "{sound}, {damaged}, {failed}, {partly}");
    let skip = OnError::Skip { max_skipped: 1000 };
    for workers in [1, 3] {
        let mut batches = together.clone().on_error(skip).batch_size(64).workers(workers).host().unwrap();
        let mut index = 0;
        for batch in batches.epoch(0) {
            let batch = batch.unwrap();
            let images = batch.field("views.1").unwrap().bytes().chunks_exact(24 * 24 * 3);
            for (image, valid) in images.zip(batch.valid()) {
                assert_eq!(valid, decoded[index].0.is_some());
                assert!(
                    decoded[index].0.as_ref().is_none_or(|images| images[1] == *image),
                    "sample {index} of {workers} workers"
                );
                index += 1;
            }
        }
        assert_eq!(index as u64, samples);
    }
}
