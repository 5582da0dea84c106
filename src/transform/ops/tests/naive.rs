//! Tests that effects on pixels are bit-identical to simple implementations.

use super::random_effects::cases;
use crate::decode::Size;
use crate::sampler::Rng;
use crate::transform::ImageMut;
use crate::transform::ops::AnyPixelEffect;
use crate::transform::ops::arithmetic::fused;
use crate::transform::ops::effect::{NaiveReference, Scratch};
use crate::transform::ops::tint::Tint;
use crate::transform::ops::tint::naive::rotate_hue;
use crate::transform::ops::tone::Tone;
use crate::transform::ops::warp::{Affine, Sampling, Warp};

pub(in crate::transform::ops) fn luma([r, g, b]: [u8; 3]) -> u8 {
    fused(f32::from(b), 0.114, fused(f32::from(g), 0.587, f32::from(r) * 0.2989)) as u8
}

pub(in crate::transform::ops) fn blended(level: u8, other: f32, [weight, rest]: [f32; 2]) -> u8 {
    fused(other, rest, f32::from(level) * weight).clamp(0.0, 255.0) as u8
}

pub(super) type Pair = (AnyPixelEffect, Box<dyn NaiveReference>);

pub(super) fn pair<E: NaiveReference + Copy + 'static>(effect: E) -> Pair
where
    AnyPixelEffect: From<E>,
{
    (effect.into(), Box::new(effect))
}

fn effects_without_setter(size: Size) -> Vec<Pair> {
    let mut effects = vec![pair(Tone::add(90))];
    for factor in [0.0, 0.3, 0.999_999, 1.0, 1.7, 4.0, -0.5] {
        effects.extend([pair(Tone::brightness(factor)), pair(Tone::contrast(factor)), pair(Tint::saturation(factor))]);
    }
    effects.extend([0.0, 0.5, -0.5, 0.1].map(|turn| pair(Tint::hue(turn))));
    let color = Some([9, 80, 200]);
    let samplings = [(false, color), (false, None), (true, None), (true, color)];
    let samplings = samplings.map(|(bilinear, fill)| Sampling { bilinear, fill });
    for (angle, scale, shear_x) in [(0.0, 1.0, 0.0), (90.0, 1.0, 0.0), (33.0, 0.7, 12.0), (180.0, 1.4, -50.0)] {
        let affine = Affine { angle, scale, shear: [shear_x, 3.0], translate: [2.0, -1.5], ..Affine::IDENTITY };
        effects.extend(samplings.map(|sampling| pair(Warp::affine(affine, size, sampling))));
    }
    let [w, h] = [size.width, size.height].map(f64::from);
    let from = [[0.0, 0.0], [w, 0.0], [w, h], [0.0, h]];
    let to = [[0.1 * w, 0.2 * h], [0.8 * w, 0.0], [w, 0.9 * h], [0.0, 0.7 * h]];
    effects.extend(samplings.map(|sampling| pair(Warp::perspective(from, to, size, sampling).unwrap())));
    effects
}

/// Returns a dark image, a bright image, an image with the full range of values, and a constant
/// image.
fn images(size: Size, rng: &mut Rng) -> [Vec<[u8; 3]>; 4] {
    let mut image = |from: u64, levels: u64| {
        (0..size.area()).map(|_| std::array::from_fn(|_| (from + rng.below(levels)) as u8)).collect()
    };
    [image(0, 20), image(247, 9), image(0, 256), image(77, 1)]
}

#[test]
fn effects_equal_their_simple_implementations() {
    let sizes =
        [(1, 1), (1, 9), (7, 1), (2, 3), (3, 3), (21, 5), (22, 6), (63, 2), (64, 4), (65, 3), (130, 3), (40, 30)];
    for (number, (width, height)) in (0..).zip(sizes) {
        let (size, mut rng) = (Size::new(width, height), Rng::new(number, 1, 1));
        let mut effects = effects_without_setter(size);
        effects.extend(cases(&mut rng).into_iter().flat_map(|(_, effects)| effects));
        for (number, image) in images(size, &mut rng).iter().enumerate() {
            for (effect, naive) in &effects {
                let mut actual = image.as_flattened().to_vec();
                effect.run(&mut ImageMut::new(&mut actual, width, height), &mut Scratch::default());
                let expected = naive.naive(image, size);
                assert!(actual == expected.as_flattened(), "{naive:?} at {width}x{height}, image {number}");
            }
        }
    }
}

/// Tests colors that include grays and ties between channels, where hue is ambiguous.
#[test]
fn hue_rotations_equal_a_simple_loop() {
    let mut rng = Rng::new(1, 2, 3);
    for turn in [0.0, 0.5, -0.5, 0.25, 1.0 / 6.0, -1.0 / 3.0, 0.0999, -1e-8] {
        let steps = (0..=255_u8).step_by(17);
        let colors = steps.clone().flat_map(|r| steps.clone().map(move |g| (r, g)));
        let grid = colors.flat_map(|(r, g)| (0..=255_u8).step_by(17).map(move |b| [r, g, b]));
        let random = (0..20_000).map(|_| std::array::from_fn(|_| rng.next_u64() as u8));
        let image: Vec<[u8; 3]> = grid.chain(random).collect();
        let mut actual = image.as_flattened().to_vec();
        let (width, mut scratch) = (image.len() as u32, Scratch::default());
        AnyPixelEffect::from(Tint::hue(turn)).run(&mut ImageMut::new(&mut actual, width, 1), &mut scratch);
        for (from, actual) in image.iter().zip(actual.as_chunks::<3>().0) {
            assert_eq!(*actual, rotate_hue(*from, turn as f32), "{from:?} turned by {turn}");
        }
    }
}
