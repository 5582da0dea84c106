//! The network in plain `f64` loops on the CPU, as the reference for the kernels.
//!
//! It shares only the shape types with the kernels, and computes convolutions as sums over the
//! image instead of products of column matrices.

use super::kernels::Shape;
use super::net::Plan;

/// Calls `f(weight, input, output)` with the indices of each multiply-add of a zero-padded 3x3
/// convolution, from (C, N, side, side) to (K, N, side, side).
fn for_products(input: Shape, outputs: usize, mut f: impl FnMut(usize, usize, usize)) {
    let Shape { channels, count, side } = input;
    let index_of = |c: usize, n: usize, y: usize, x: usize| ((c * count + n) * side + y) * side + x;
    for k in 0..outputs {
        for n in 0..count {
            for (y, x) in (0..side).flat_map(|y| (0..side).map(move |x| (y, x))) {
                for (c, dy, dx) in (0..channels * 9).map(|i| (i / 9, i % 9 / 3, i % 3)) {
                    let (from_y, from_x) = (y + dy, x + dx);
                    if (1..=side).contains(&from_y) && (1..=side).contains(&from_x) {
                        let weight = (k * channels + c) * 9 + dy * 3 + dx;
                        f(weight, index_of(c, n, from_y - 1, from_x - 1), index_of(k, n, y, x));
                    }
                }
            }
        }
    }
}

pub(crate) fn convolve(maps: &[f64], weight: &[f64], input: Shape, outputs: usize) -> Vec<f64> {
    let mut out = vec![0.0; outputs * input.width()];
    for_products(input, outputs, |w, from, to| out[to] += weight[w] * maps[from]);
    out
}

/// Returns the gradients with respect to the weight and to the input maps.
pub(crate) fn convolve_back(
    grad: &[f64],
    maps: &[f64],
    weight: &[f64],
    input: Shape,
    outputs: usize,
) -> (Vec<f64>, Vec<f64>) {
    let (mut weight_grad, mut maps_grad) = (vec![0.0; weight.len()], vec![0.0; maps.len()]);
    for_products(input, outputs, |w, from, to| {
        weight_grad[w] += grad[to] * maps[from];
        maps_grad[from] += grad[to] * weight[w];
    });
    (weight_grad, maps_grad)
}

/// Applies 2x2 max pooling, then adds the bias and applies ReLU. Returns the results and, for each,
/// the index in `maps` of the maximum, or `None` if ReLU zeroed it.
pub(crate) fn pool(maps: &[f64], bias: &[f64], shape: Shape) -> (Vec<f64>, Vec<Option<usize>>) {
    let (side, half) = (shape.side, shape.side / 2);
    let maxima = (0..shape.pooled()).map(|i| {
        let (plane, y, x) = (i / (half * half), i / half % half, i % half);
        let corner = (plane * side + y * 2) * side + x * 2;
        let four = [corner, corner + 1, corner + side, corner + side + 1];
        let best = four.into_iter().reduce(|a, b| if maps[b] > maps[a] { b } else { a }).expect("four");
        (maps[best] + bias[plane / shape.count], best)
    });
    maxima.map(|(value, index)| (value.max(0.0), (value > 0.0).then_some(index))).unzip()
}

pub(crate) fn unpool(grad: &[f64], winners: &[Option<usize>], shape: Shape) -> Vec<f64> {
    let mut maps = vec![0.0; shape.len()];
    for (winner, grad) in winners.iter().zip(grad) {
        if let Some(index) = winner {
            maps[*index] = *grad;
        }
    }
    maps
}

pub(crate) fn product(a: &[f64], b: &[f64], rows: usize, depth: usize, columns: usize) -> Vec<f64> {
    let cell = |i: usize| (0..depth).map(|k| a[i / columns * depth + k] * b[k * columns + i % columns]).sum();
    (0..rows * columns).map(cell).collect()
}

pub(crate) fn transposed<T: Copy>(a: &[T], rows: usize, columns: usize) -> Vec<T> {
    (0..a.len()).map(|i| a[i % rows * columns + i / rows]).collect()
}

pub(crate) fn mean(maps: &[f64], shape: Shape) -> Vec<f64> {
    let plane = shape.side * shape.side;
    let means: Vec<f64> = maps.chunks(plane).map(|plane| plane.iter().sum::<f64>() / plane.len() as f64).collect();
    transposed(&means, shape.channels, shape.count)
}

/// Backpropagates the gradient `features` through [`mean`].
pub(crate) fn spread(features: &[f64], shape: Shape) -> Vec<f64> {
    let plane = shape.side * shape.side;
    let by_channel = transposed(features, shape.count, shape.channels);
    by_channel.iter().flat_map(|v| std::iter::repeat_n(v / plane as f64, plane)).collect()
}

/// For logits (N, classes), returns the cross-entropy of each sample, whether it is classified
/// correctly, and the gradient of the mean cross-entropy.
pub(crate) fn softmax(logits: &[f64], labels: &[i64]) -> (Vec<f64>, Vec<bool>, Vec<f64>) {
    let (classes, mut grads) = (logits.len() / labels.len(), Vec::new());
    let samples = logits.chunks(classes).zip(labels).map(|(row, &label)| {
        let sum: f64 = row.iter().map(|v| v.exp()).sum();
        let best = (0..classes).max_by(|a, b| row[*a].total_cmp(&row[*b])).expect("classes");
        let one_hot = |k: usize| if k as i64 == label { 1.0 } else { 0.0 };
        grads.extend((0..classes).map(|k| (row[k].exp() / sum - one_hot(k)) / labels.len() as f64));
        (sum.ln() - row[label as usize], best as i64 == label)
    });
    let (losses, right) = samples.unzip();
    (losses, right, grads)
}

/// Returns the mean cross-entropy of an image batch (N, C, side, side), its gradient with respect
/// to each parameter array, in the order of [`Plan::parameters`], and the number of correct
/// predictions.
pub(crate) fn gradient(
    plan: &Plan,
    values: &[Vec<f64>],
    images: &[f64],
    labels: &[i64],
) -> (f64, Vec<Vec<f64>>, usize) {
    let (n, layers) = (labels.len(), plan.convolutions());
    let shape = |i: usize, channels: usize| Shape { channels, count: n, side: plan.side >> i };
    let plane = plan.side * plan.side;
    let per_image = plan.widths[0] * plane;
    let pixel = |i: usize| images[i / plane % n * per_image + i / plane / n * plane + i % plane];
    let mut inputs: Vec<Vec<f64>> = vec![(0..images.len()).map(pixel).collect()];
    let mut winners = Vec::new();
    for i in 0..layers {
        let outputs = plan.widths[i + 1];
        let full = convolve(&inputs[i], &values[2 * i], shape(i, plan.widths[i]), outputs);
        let (pooled, from) = pool(&full, &values[2 * i + 1], shape(i, outputs));
        inputs.push(pooled);
        winners.push(from);
    }
    let (channels, classes) = (plan.widths[layers], plan.classes);
    let features = mean(&inputs[layers], shape(layers, channels));
    let (weight, bias) = (&values[2 * layers], &values[2 * layers + 1]);
    let mut logits = product(&features, &transposed(weight, classes, channels), n, channels, classes);
    logits.iter_mut().enumerate().for_each(|(i, v)| *v += bias[i % classes]);
    let (losses, right, grad) = softmax(&logits, labels);

    let columns = transposed(&grad, n, classes);
    let mut grads = vec![
        columns.chunks(n).map(|column| column.iter().sum()).collect(),
        product(&columns, &features, classes, n, channels),
    ];
    let mut pooled = spread(&product(&grad, weight, n, classes, channels), shape(layers, channels));
    for i in (0..layers).rev() {
        let output = shape(i, plan.widths[i + 1]);
        let full = unpool(&pooled, &winners[i], output);
        grads.push(full.chunks(output.width()).map(|channel| channel.iter().sum()).collect());
        let input = shape(i, plan.widths[i]);
        let (weight, maps) = convolve_back(&full, &inputs[i], &values[2 * i], input, output.channels);
        grads.push(weight);
        pooled = maps;
    }
    grads.reverse();
    (losses.iter().sum::<f64>() / n as f64, grads, right.into_iter().filter(|&right| right).count())
}
