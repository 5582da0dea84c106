//! Computes soft labels, with the same bits as the kernel in `device/nvidia/kernels/convert.cu`.

use super::fused::mul_add;

/// Writes the soft label of one sample to `row`, which has one element per class.
///
/// The element of class `label` is 1. If the sample is mixed with a second sample, `partner`
/// contains the second label and a weight. The element of class `label` is then the weight, and the
/// element of the second class is 1 minus the weight. If both labels are equal, their class gets
/// the sum. Then the fraction `smoothing` is spread evenly over all classes. The result equals
/// torchvision's MixUp on one-hot labels, followed by label smoothing. A label that is not a class
/// contributes nothing.
pub(crate) fn write_soft_label(label: i64, partner: Option<(i64, f32)>, smoothing: f32, row: &mut [f32]) {
    let (low, high) = (smoothing / row.len() as f32, 1.0 - smoothing);
    let indicator = |label: i64, class: i64| if label == class { 1.0 } else { 0.0 };
    row.fill(low);
    for class in [Some(label), partner.map(|(label, _)| label)].into_iter().flatten() {
        let Some(element) = usize::try_from(class).ok().and_then(|class| row.get_mut(class)) else { continue };
        let target = match partner {
            Some((partner_label, weight)) => {
                indicator(partner_label, class) * (1.0 - weight) + indicator(label, class) * weight
            }
            None => indicator(label, class),
        };
        *element = mul_add(high, target, low);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::Rng;

    #[test]
    fn a_row_equals_a_naive_loop_over_the_classes() {
        let mut rng = Rng::new(3, 0, 0);
        for case in 0..2000 {
            let classes = rng.below(12) as usize + 1;
            let label = |rng: &mut Rng| rng.below(classes as u64 + 2) as i64 - 1;
            let own_label = label(&mut rng);
            let partner = rng.chance(0.7).then(|| (label(&mut rng), rng.unit() as f32));
            let smoothing = [0.0, 0.1, 1.0, rng.unit() as f32][case % 4];
            let mut row = vec![9.0; classes];
            write_soft_label(own_label, partner, smoothing, &mut row);
            for (k, actual) in row.iter().enumerate() {
                let mut share = if own_label == k as i64 { 1.0 } else { 0.0 };
                if let Some((other, a)) = partner {
                    let other = if other == k as i64 { 1.0 } else { 0.0 };
                    share = other * (1.0 - a) + share * a;
                }
                let expected = mul_add(1.0 - smoothing, share, smoothing / classes as f32);
                assert_eq!(
                    actual.to_bits(),
                    expected.to_bits(),
                    "{own_label} {partner:?} {smoothing} class {k} of {classes}"
                );
            }
        }
    }
}
