//! Reverses the filters of rows (PNG specification, third edition, 9.2).

/// Reverses filter `kind` of a row. `STEP` is the number of bytes per pixel, or 1 if a byte
/// contains several pixels. `above` is the previous row, or zeros for the first row. Returns `None`
/// for an unknown filter.
pub(super) fn undo<const STEP: usize>(kind: u8, row: &mut [u8], above: &[u8]) -> Option<()> {
    match kind {
        0 => {}
        1 => add_prediction::<STEP>(row, above, |left, _, _| left),
        2 => row.iter_mut().zip(above).for_each(|(value, &up)| *value = value.wrapping_add(up)),
        3 => add_prediction::<STEP>(row, above, |left, up, _| ((u16::from(left) + u16::from(up)) >> 1) as u8),
        4 => add_prediction::<STEP>(row, above, paeth),
        _ => return None,
    }
    Some(())
}

/// Adds predicted values to a row. `predict` predicts a byte from the corresponding bytes of the
/// pixel to the left, the pixel above, and the pixel to the upper left, in this order.
#[inline(always)]
fn add_prediction<const STEP: usize>(row: &mut [u8], above: &[u8], predict: impl Fn(u8, u8, u8) -> u8) {
    let (mut left, mut upper_left) = ([0; STEP], [0; STEP]);
    for (values, up) in row.as_chunks_mut::<STEP>().0.iter_mut().zip(above.as_chunks::<STEP>().0) {
        for (i, value) in values.iter_mut().enumerate() {
            *value = value.wrapping_add(predict(left[i], up[i], upper_left[i]));
        }
        (left, upper_left) = (*values, *up);
    }
}

/// The Paeth predictor: returns the argument that is closest to `left + up - corner`. In a tie, the
/// first of these arguments wins.
#[inline(always)]
fn paeth(left: u8, up: u8, upper_left: u8) -> u8 {
    let [a, b, c] = [left, up, upper_left].map(i16::from);
    let [from_a, from_b, from_c] = [(b - c).abs(), (a - c).abs(), (a + b - 2 * c).abs()];
    let (other, from_other) = if from_b <= from_c { (up, from_b) } else { (upper_left, from_c) };
    if from_a <= from_other { left } else { other }
}
