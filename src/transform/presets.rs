//! Recipes from papers and other libraries, as constructors and setters of [`Augment`].

use crate::transform::Augment;
use crate::transform::Interpolation;
use crate::transform::Mix;
use crate::transform::ops::{AutoAugment, ColorJitter, Policy, RandomErasing};
use crate::transform::step::Setting;

pub(super) const NAMES: [&str; 16] = [
    "classification",
    "classification-eval",
    "classification-ra",
    "classification-ta_wide",
    "classification-augmix",
    "classification-imagenet",
    "classification-cifar10",
    "classification-svhn",
    "classification-v2",
    "detection-eval",
    "detection-hflip",
    "detection-multiscale",
    "detection-lsj",
    "detection-ssd",
    "detection-ssdlite",
    "segmentation",
];

/// The mean color of ImageNet, which is the fill color in torchvision's reference training for
/// detection.
const MEAN_COLOR: [u8; 3] = [123, 117, 104];

impl Augment {
    /// Creates the augmentation from one of torchvision's reference training scripts, for outputs
    /// of `side` by `side` pixels. `name` is the task and torchvision's name for the augmentation.
    ///
    /// | name | steps |
    /// |---|---|
    /// | `classification` | [`train`](Augment::train)`(side)` |
    /// | `classification-ra`, `-ta_wide`, `-augmix`, `-imagenet`, `-cifar10`, `-svhn` | `classification`, followed by the policy with bilinear interpolation |
    /// | `classification-v2` | `classification-ta_wide`, random erasing with probability 0.1, MixUp (0.2) or CutMix (1) |
    /// | `classification-eval` | [`eval`](Augment::eval)`(side * 8 / 7, side)` |
    /// | `detection-hflip` | the shorter side becomes 800 / 1333 of `side`, or less if the longer side would exceed `side`; filled with the mean color; flip |
    /// | `detection-multiscale` | `detection-hflip`, but with the shorter side drawn from 480, 512, ..., 800, each scaled by `side / 1333` |
    /// | `detection-eval` | `detection-hflip` without the flip |
    /// | `detection-lsj` | [`scale_jitter`](Augment::scale_jitter)`(side, 0.1, 2)`, filled with the mean color; flip |
    /// | `detection-ssd` | [`photometric_distort`](Augment::photometric_distort)`(0.5)` and [`zoom_out`](Augment::zoom_out)`(0.5, 1, 4)`, filled with the mean color; then `detection-ssdlite` |
    /// | `detection-ssdlite` | [`iou_crop`](Augment::iou_crop)`(side, side)`, flip |
    /// | `segmentation` | [`random_resize`](Augment::random_resize) to 0.5 to 2 times `side * 13 / 12`; flip |
    ///
    /// If the name is unknown, [`check`](Augment::check) returns an error that lists the names.
    ///
    /// ```
    /// use warpfeed::transform::Augment;
    ///
    /// Augment::preset("classification-ta_wide", 176).check().unwrap();
    /// ```
    pub fn preset(name: &str, side: u32) -> Self {
        let scaled = |factor: u32, base: u32| {
            (u64::from(side) * u64::from(factor) / u64::from(base)).min(u64::from(u32::MAX)) as u32
        };
        let shortest = |sides: &[u32]| {
            let sides: Vec<u32> = sides.iter().map(|&base| scaled(base, 1333)).collect();
            Self::shortest_size(&sides, side).fill(MEAN_COLOR)
        };
        let train = Self::train(side);
        let train_with = |policy: Policy| Self::train(side).policy(policy.interpolation(Interpolation::Bilinear));
        match name {
            "classification" => train,
            "classification-eval" => Self::eval(scaled(8, 7), side),
            "classification-ra" => train_with(Policy::rand_augment(2, 9)),
            "classification-ta_wide" => train_with(Policy::trivial_augment_wide()),
            "classification-augmix" => train_with(Policy::aug_mix()),
            "classification-imagenet" => train_with(Policy::auto_augment(AutoAugment::ImageNet)),
            "classification-cifar10" => train_with(Policy::auto_augment(AutoAugment::Cifar10)),
            "classification-svhn" => train_with(Policy::auto_augment(AutoAugment::Svhn)),
            "classification-v2" => {
                let wide = train_with(Policy::trivial_augment_wide());
                wide.erase(RandomErasing::new(0.1)).mix(Mix::either(0.2, 1.0))
            }
            "detection-eval" => shortest(&[800]),
            "detection-hflip" => shortest(&[800]).flip(0.5),
            "detection-multiscale" => shortest(&[480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800]).flip(0.5),
            "detection-lsj" => Self::scale_jitter(side, 0.1, 2.0).fill(MEAN_COLOR).flip(0.5),
            "detection-ssd" => {
                let crop = Self::iou_crop(side, side).zoom_out(0.5, 1.0, 4.0).fill(MEAN_COLOR);
                crop.photometric_distort(0.5).flip(0.5)
            }
            "detection-ssdlite" => Self::iou_crop(side, side).flip(0.5),
            "segmentation" => Self::random_resize(side, scaled(13, 24), scaled(13, 6)).flip(0.5),
            unknown => Self::begin(Setting::Preset { name: unknown.to_owned(), side }),
        }
    }

    /// Adds 3-Augment from "DeiT III" (Touvron et al. 2022): a random choice of grayscale, solarize
    /// or blur, followed by a [`ColorJitter`] with brightness, contrast and saturation 0.3.
    #[must_use]
    pub fn three_augment(self) -> Self {
        self.with_op(Policy::timm("3a")).jitter(ColorJitter::new().brightness(0.3).contrast(0.3).saturation(0.3))
    }

    /// Adds the color augmentation of SimCLR (Chen et al. 2020) at full strength: a [`ColorJitter`]
    /// with brightness, contrast and saturation 0.8, hue 0.2 and probability 0.8; grayscale with
    /// probability 0.2; and a blur with a sigma of 0.1 to 2 pixels and probability 0.5. The blur's
    /// kernel is about a tenth of the output's height, and at most 63 pixels, so call
    /// [`with_output_size`](Augment::with_output_size) before this method.
    #[must_use]
    pub fn simclr(self) -> Self {
        let jitter = ColorJitter::new().brightness(0.8).contrast(0.8).saturation(0.8).hue(0.2).probability(0.8);
        let kernel = (self.settings.output.height / 10).min(63) | 1;
        self.jitter(jitter).grayscale(0.2).blur(kernel, (0.1, 2.0), 0.5)
    }

    /// Adds the color augmentation of DINO (Caron et al. 2021): a [`ColorJitter`] with brightness
    /// 0.4, contrast 0.4, saturation 0.2, hue 0.1 and probability 0.8; grayscale with probability
    /// 0.2; a blur with a sigma of 0.1 to 2 pixels and probability `blur`; and solarize with a
    /// threshold of 128 and probability `solarize`. In the paper, (`blur`, `solarize`) is (1, 0)
    /// for the first global view, (0.1, 0.2) for the second, and (0.5, 0) for local views.
    #[must_use]
    pub fn dino(self, blur: f64, solarize: f64) -> Self {
        let jitter = ColorJitter::new().brightness(0.4).contrast(0.4).saturation(0.2).hue(0.1).probability(0.8);
        self.jitter(jitter).grayscale(0.2).blur(13, (0.1, 2.0), blur).solarize(128.0, solarize)
    }

    /// Returns the two views of SimCLR, for [`Loader::views`](crate::Loader::views): random crops
    /// of `side` by `side` pixels with [`simclr`](Augment::simclr).
    pub fn simclr_views(side: u32) -> Vec<Self> {
        vec![Self::train(side).simclr(); 2]
    }

    /// Returns the views of DINO, for [`Loader::views`](crate::Loader::views): two global views of
    /// `global` by `global` pixels, each covering 0.4 to 1 of the image's area, and `count` local
    /// views of `local` by `local` pixels, each covering 0.05 to 0.4 of the area.
    pub fn dino_views(global: u32, local: u32, count: usize) -> Vec<Self> {
        let global_view = |blur, solarize| Self::train(global).scale(0.4, 1.0).dino(blur, solarize);
        let local_view = Self::train(local).scale(0.05, 0.4).dino(0.5, 0.0);
        [global_view(1.0, 0.0), global_view(0.1, 0.2)]
            .into_iter()
            .chain(std::iter::repeat_n(local_view, count))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Size;
    use crate::sampler::Rng;

    #[test]
    fn presets_have_the_steps_that_torchvision_uses() {
        for name in NAMES {
            let augment = Augment::preset(name, 96);
            augment.check().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(augment.output_size(), Size::new(96, 96), "{name}");
            let flips = (0..100).filter(|&i| augment.plan(Size::new(80, 60), &mut Rng::new(1, 0, i)).unwrap().flip);
            assert_eq!(flips.count() > 20, !name.ends_with("-eval"), "{name}");
        }
        assert_eq!(Augment::preset("classification-eval", 224), Augment::eval(256, 224));
        let bilinear = Policy::trivial_augment_wide().interpolation(Interpolation::Bilinear);
        let wide = Augment::train(176).policy(bilinear);
        assert_eq!(Augment::preset("classification-ta_wide", 176), wide);
        let (erasing, mix) = (RandomErasing::new(0.1), Mix::either(0.2, 1.0));
        assert_eq!(Augment::preset("classification-v2", 176), wide.erase(erasing).mix(mix));
        let sides = [480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800];
        assert_eq!(
            Augment::preset("detection-multiscale", 1333),
            Augment::shortest_size(&sides, 1333).fill([123, 117, 104]).flip(0.5)
        );
        assert_eq!(Augment::preset("segmentation", 480), Augment::random_resize(480, 260, 1040).flip(0.5));
    }
}
