//! Promise: a batch is typed, shaped arrays whose values follow from the u8 images by the documented formula, whatever the workers.

mod support;

use half::{bf16, f16};
use support::{Draw, Numbers, loader, reference};
use warpfeed::source::{Memory, OwnedSample};
use warpfeed::transform::{Augment, Mix, Mixing};
use warpfeed::{Dtype, HostBatch, Layout, Loader, Normalize};

const SIDE: usize = 16;

fn first(loader: Loader) -> HostBatch {
    loader.into_iter().next().unwrap().unwrap()
}

/// Value of channel `c` of pixel `p` of sample `n`, by the formula.
fn expected(images: &[u8], n: usize, p: usize, c: usize) -> f32 {
    let (scale, bias) = Normalize::IMAGENET.scale_bias();
    scale[c].mul_add(f32::from(images[(n * SIDE * SIDE + p) * 3 + c]), bias[c])
}

#[test]
fn every_dtype_and_layout_holds_the_normalised_pixels() {
    let source = Numbers::new(7);
    let pixels = reference(&source, &Draw, &Augment::train(SIDE as u32), None, 0, 7).remove(0).images;
    for layout in [Layout::Nhwc, Layout::Nchw] {
        let at = |n: usize, p: usize, c: usize| match layout {
            Layout::Nhwc => (n * SIDE * SIDE + p) * 3 + c,
            Layout::Nchw => (n * 3 + c) * SIDE * SIDE + p,
        };
        let make = |dtype| first(loader(source.clone()).normalize(Normalize::IMAGENET).dtype(dtype).layout(layout));
        let (f32s, f16s, bf16s) = (make(Dtype::F32), make(Dtype::F16), make(Dtype::Bf16));
        let shape = if layout == Layout::Nhwc { [7, SIDE, SIDE, 3] } else { [7, 3, SIDE, SIDE] };
        assert_eq!(f32s.images().shape(), shape);
        for n in 0..7 {
            for p in 0..SIDE * SIDE {
                for c in 0..3 {
                    let value = expected(&pixels, n, p, c);
                    assert_eq!(f32s.images().as_f32().unwrap()[at(n, p, c)], value);
                    assert_eq!(f16s.images().as_f16().unwrap()[at(n, p, c)], f16::from_f32(value));
                    assert_eq!(bf16s.images().as_bf16().unwrap()[at(n, p, c)], bf16::from_f32(value));
                }
            }
        }
        assert!(f32s.images().as_u8().is_none() && f32s.images().as_f16().is_none());
    }
}

#[test]
fn normalize_makes_floats_and_bytes_are_the_default() {
    let dtype = |loader| first(loader).images().dtype();
    assert_eq!(dtype(loader(Numbers::new(7))), Dtype::U8);
    assert_eq!(dtype(loader(Numbers::new(7)).normalize(Normalize::IMAGENET)), Dtype::F32);
    assert_eq!(dtype(loader(Numbers::new(7)).normalize(Normalize::IMAGENET).dtype(Dtype::F16)), Dtype::F16);
}

#[test]
fn labels_ids_and_keys_stand_beside_the_images() {
    let batch = first(loader(Numbers::new(20)).order(warpfeed::order::Shuffled::new(20, 3)));
    let ids: Vec<u64> = batch.ids().collect();
    assert_eq!(batch.labels(), ids.iter().map(|id| *id as i64 % 10).collect::<Vec<_>>());
    assert_eq!(
        batch.keys().collect::<Vec<_>>(),
        ids.iter().map(|i| format!("class{}/{i:06}", i % 10)).collect::<Vec<_>>()
    );
    assert_eq!((batch.epoch(), batch.number(), batch.len()), (0, 0, 7));
    let rows = batch.soft_labels(10);
    for (row, label) in rows.chunks(10).zip(batch.labels()) {
        assert_eq!((row[*label as usize], row.iter().sum::<f32>()), (1.0, 1.0));
    }
}

#[test]
fn other_fields_travel_with_the_batch() {
    let sample = |n: u8| {
        let embedding: Vec<u8> = [f32::from(n), 0.5].iter().flat_map(|v| v.to_le_bytes()).collect();
        OwnedSample::new(format!("{n}")).field("img", u64::from(n).to_le_bytes()).field("emb", embedding)
    };
    let source = Memory::new((0..5).map(sample).collect());
    let make = |shape: &[usize]| {
        Loader::source(source.clone()).decode(Draw).augment(Augment::train(16)).field("emb", Dtype::F32, shape)
    };
    let batch = first(make(&[2]));
    let view = batch.field("emb").unwrap();
    assert_eq!((view.shape(), view.as_f32().unwrap()[2..4].to_vec()), (vec![5, 2], vec![1.0, 0.5]));
    assert_eq!(batch.labels(), [-1; 5], "no label is -1");
    assert!(batch.field("other").is_none());

    let e = make(&[3]).into_iter().next().unwrap().unwrap_err();
    assert_eq!(e.to_string(), "sample 0 (0): source: field \"emb\" has 8 bytes, its dtype and shape need 12");
    let e = make(&[2]).field("mask", Dtype::U8, &[1]).into_iter().next().unwrap().unwrap_err();
    assert!(e.to_string().contains("no field \"mask\" among"), "{e}");
}

#[test]
fn a_mixed_batch_is_the_same_for_any_workers_and_its_labels_follow() {
    let source = Numbers::new(40);
    let plain: Vec<_> =
        loader(source.clone()).shuffle(2).into_iter().map(|b| support::Content::from(&b.unwrap())).collect();
    for (mix, cut) in [(Mix::mixup(0.4), false), (Mix::cutmix(1.0), true)] {
        for workers in [1, 4] {
            let make = loader(source.clone()).shuffle(2).augment(Augment::train(16).mix(mix.clone())).workers(workers);
            for (batch, plain) in make.into_iter().zip(&plain) {
                let batch = batch.unwrap();
                let mixing = *batch.mixing().unwrap();
                assert_eq!(mixing.cut.is_some(), cut);
                let (pixels, image, n) = (batch.images().as_u8().unwrap(), SIDE * SIDE * 3, batch.len());
                for i in 0..n {
                    let (own, partner) = (&plain.images[i * image..], &plain.images[Mixing::partner(i, n) * image..]);
                    for at in 0..image {
                        let (x, y) = ((at / 3 % SIDE) as u32, (at / 3 / SIDE) as u32);
                        let value = match mixing.cut {
                            Some(r) if (r.x..r.x + r.width).contains(&x) && (r.y..r.y + r.height).contains(&y) => {
                                partner[at]
                            }
                            Some(_) => own[at],
                            None => {
                                let sum =
                                    mixing.weight * f32::from(own[at]) + (1.0 - mixing.weight) * f32::from(partner[at]);
                                let found = pixels[i * image + at];
                                assert!((sum - f32::from(found)).abs() <= 0.501, "{sum} became {found}");
                                found
                            }
                        };
                        assert_eq!(pixels[i * image + at], value, "sample {i} at ({x}, {y})");
                    }
                    let row = &batch.soft_labels(10)[i * 10..][..10];
                    let mut by_hand = [0.0; 10];
                    by_hand[plain.labels[i] as usize] += mixing.weight;
                    by_hand[plain.labels[Mixing::partner(i, n)] as usize] += 1.0 - mixing.weight;
                    assert_eq!(row, by_hand);
                }
            }
        }
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn fields_are_ndarray_views_of_their_shape() {
    let batch = first(loader(Numbers::new(7)).normalize(Normalize::IMAGENET).layout(Layout::Nchw));
    let array = batch.images().array::<f32>().unwrap();
    assert_eq!(array.shape(), [7, 3, SIDE, SIDE]);
    assert_eq!(array[[6, 2, 15, 15]], *batch.images().as_f32().unwrap().last().unwrap());
    assert!(batch.images().array::<u8>().is_none());
}
