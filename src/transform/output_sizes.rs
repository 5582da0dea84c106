use crate::decode::Size;
use crate::transform::Augment;

/// The output sizes in each epoch. A *variant* is a combination of output sizes, with one size for
/// each image of a sample.
#[derive(Debug, Clone)]
pub(crate) struct OutputSizes {
    /// First epoch and variant of each range of epochs in which no size changes.
    variant_starts: Vec<(u64, usize)>,
    first_epochs: Vec<u64>,
}

impl OutputSizes {
    /// Collects the variants. `augments` yields one augmentation for each image of a sample.
    pub(crate) fn collect<'a>(augments: impl Iterator<Item = &'a Augment> + Clone) -> Self {
        let mut starts: Vec<u64> = augments.clone().flat_map(Augment::change_epochs).chain([0]).collect();
        starts.sort_unstable();
        starts.dedup();
        let (mut variant_sizes, mut output_sizes) =
            (Vec::<Vec<Size>>::new(), OutputSizes { variant_starts: Vec::new(), first_epochs: Vec::new() });
        for start in starts {
            let sizes: Vec<Size> = augments.clone().map(|augment| augment.at_epoch(start).output_size()).collect();
            let variant = variant_sizes.iter().position(|other| *other == sizes).unwrap_or_else(|| {
                variant_sizes.push(sizes);
                output_sizes.first_epochs.push(start);
                variant_sizes.len() - 1
            });
            output_sizes.variant_starts.push((start, variant));
        }
        output_sizes
    }

    pub(crate) fn variant(&self, epoch: u64) -> usize {
        self.variant_starts[self.variant_starts.partition_point(|(first, _)| *first <= epoch) - 1].1
    }

    pub(crate) fn first_epochs(&self) -> impl ExactSizeIterator<Item = u64> {
        self.first_epochs.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_of_equal_sizes_share_a_variant() {
        let sized = |side: u32| Augment::train(side);
        let plain = sized(32).from_epoch(3, sized(40)).from_epoch(5, sized(40).flip(0.0)).from_epoch(9, sized(32));
        let output_sizes = OutputSizes::collect([&plain].into_iter());
        assert_eq!(
            (0..11).map(|epoch| output_sizes.variant(epoch)).collect::<Vec<_>>(),
            [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0]
        );
        assert_eq!(output_sizes.first_epochs().collect::<Vec<_>>(), [0, 3]);
        let view = sized(8).from_epoch(5, sized(16));
        let output_sizes = OutputSizes::collect([&plain, &view, &sized(7)].into_iter());
        assert_eq!(
            (0..11).map(|epoch| output_sizes.variant(epoch)).collect::<Vec<_>>(),
            [0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3]
        );
        assert_eq!(
            (output_sizes.first_epochs().collect::<Vec<_>>(), output_sizes.variant(u64::MAX)),
            (vec![0, 3, 5, 9], 3)
        );
    }
}
