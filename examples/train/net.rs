//! A small convolutional network with hand-written gradients: three 3x3 convolutions, each followed
//! by ReLU and 2x2 max pooling, then global average pooling, and a linear layer. Images are (N, 3,
//! side, side) `f32`, and the side is a multiple of 8.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut2, Axis};

/// A batch of feature maps, (N, C, side, side).
struct Maps {
    data: Vec<f32>,
    channels: usize,
    side: usize,
}

impl Maps {
    fn zeros(count: usize, channels: usize, side: usize) -> Self {
        Maps { data: vec![0.0; count * channels * side * side], channels, side }
    }

    fn image_len(&self) -> usize {
        self.channels * self.side * self.side
    }

    /// Returns a view of one image as (C, side * side).
    fn image(&self, i: usize) -> ArrayView2<'_, f32> {
        let (len, plane) = (self.image_len(), self.side * self.side);
        ArrayView2::from_shape((self.channels, plane), &self.data[i * len..][..len]).expect("the length fits")
    }

    fn image_mut(&mut self, i: usize) -> ArrayViewMut2<'_, f32> {
        let (len, plane) = (self.image_len(), self.side * self.side);
        ArrayViewMut2::from_shape((self.channels, plane), &mut self.data[i * len..][..len]).expect("the length fits")
    }
}

/// Weights with their velocity, for SGD with momentum 0.9.
struct Param {
    value: Array2<f32>,
    grad: Array2<f32>,
    momentum: Array2<f32>,
}

impl Param {
    /// Creates weights with He initialization ("Delving Deep into Rectifiers", 2015), from a fixed
    /// sequence, so that every run starts with the same values.
    fn new(rows: usize, columns: usize) -> Self {
        let mut state = (rows * 31 + columns) as u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        let bound = (24.0 / columns as f32).sqrt();
        Param {
            value: Array2::from_shape_simple_fn((rows, columns), || uniform() * bound),
            grad: Array2::zeros((rows, columns)),
            momentum: Array2::zeros((rows, columns)),
        }
    }

    fn step(&mut self, rate: f32) {
        self.momentum.zip_mut_with(&self.grad, |v, g| *v = 0.9 * *v + g);
        self.value.scaled_add(-rate, &self.momentum);
        self.grad.fill(0.0);
    }
}

/// A 3x3 convolution with zero padding, ReLU, and 2x2 max pooling.
struct Block {
    weight: Param,
    /// The 3x3 neighborhoods of each input image as columns, (C * 9, side * side), for the backward
    /// pass.
    columns: Vec<Array2<f32>>,
    /// For each pooled value, the index of its source within the plane, or `u32::MAX` if ReLU clipped
    /// it.
    source_indices: Vec<u32>,
}

impl Block {
    fn new(inputs: usize, outputs: usize) -> Self {
        Block { weight: Param::new(outputs, inputs * 9), columns: Vec::new(), source_indices: Vec::new() }
    }

    fn forward(&mut self, input: &Maps, count: usize) -> Maps {
        let (side, outputs) = (input.side, self.weight.value.nrows());
        let mut pooled = Maps::zeros(count, outputs, side / 2);
        self.source_indices.clear();
        self.columns.resize(count, Array2::zeros((input.channels * 9, side * side)));
        let mut full = Array2::zeros((outputs, side * side));
        for i in 0..count {
            for_neighbors(input.channels, side, |row, column, source| {
                self.columns[i][[row, column]] = source.map_or(0.0, |(c, position)| input.image(i)[[c, position]]);
            });
            general_mat_mul(1.0, &self.weight.value, &self.columns[i], 0.0, &mut full);
            let mut out = pooled.image_mut(i);
            for c in 0..outputs {
                for position in 0..side * side / 4 {
                    let corner = position / (side / 2) * 2 * side + position % (side / 2) * 2;
                    let best = [corner, corner + 1, corner + side, corner + side + 1];
                    let best = best.into_iter().max_by(|a, b| full[[c, *a]].total_cmp(&full[[c, *b]])).expect("four");
                    out[[c, position]] = full[[c, best]].max(0.0);
                    self.source_indices.push(if full[[c, best]] > 0.0 { best as u32 } else { u32::MAX });
                }
            }
        }
        pooled
    }

    /// Accumulates the weight's gradient, and returns the gradient of the input.
    fn backward(&mut self, grad: &Maps, inputs: usize, count: usize) -> Maps {
        let side = grad.side * 2;
        let mut input_grad = Maps::zeros(count, inputs, side);
        let mut full = Array2::zeros((grad.channels, side * side));
        let mut columns = Array2::zeros((inputs * 9, side * side));
        let per_image = grad.image_len();
        for i in 0..count {
            full.fill(0.0);
            for (k, (g, source_index)) in grad.image(i).iter().zip(&self.source_indices[i * per_image..]).enumerate() {
                if *source_index != u32::MAX {
                    full[[k / (grad.side * grad.side), *source_index as usize]] = *g;
                }
            }
            general_mat_mul(1.0, &full, &self.columns[i].t(), 1.0, &mut self.weight.grad);
            general_mat_mul(1.0, &self.weight.value.t(), &full, 0.0, &mut columns);
            let mut out = input_grad.image_mut(i);
            for_neighbors(inputs, side, |row, column, source| {
                if let Some((c, position)) = source {
                    out[[c, position]] += columns[[row, column]];
                }
            });
        }
        input_grad
    }
}

/// Calls `f(row, column, source)` for each entry of the neighborhood matrix. `source` is a
/// (channel, index) pair, or `None` outside the image.
fn for_neighbors(channels: usize, side: usize, mut f: impl FnMut(usize, usize, Option<(usize, usize)>)) {
    for row in 0..channels * 9 {
        let (c, dy, dx) = (row / 9, row % 9 / 3, row % 3);
        for y in 0..side {
            for x in 0..side {
                let (sy, sx) = (y + dy, x + dx);
                let inside = (1..=side).contains(&sy) && (1..=side).contains(&sx);
                f(row, y * side + x, inside.then(|| (c, (sy - 1) * side + sx - 1)));
            }
        }
    }
}

pub(crate) struct Net {
    blocks: [Block; 3],
    head: Param,
}

const WIDTHS: [usize; 4] = [3, 12, 24, 48];

impl Net {
    pub(crate) fn new(classes: usize) -> Self {
        let blocks = [0, 1, 2].map(|i| Block::new(WIDTHS[i], WIDTHS[i + 1]));
        Net { blocks, head: Param::new(classes, WIDTHS[3] + 1) }
    }

    /// Returns the mean of each of the F feature maps, followed by a constant 1, for each image:
    /// (N, F + 1). Also returns the side of the last feature maps.
    fn features(&mut self, images: &[f32], side: usize) -> (Array2<f32>, usize) {
        let count = images.len() / (3 * side * side);
        let mut maps = Maps { data: images.to_vec(), channels: 3, side };
        for block in &mut self.blocks {
            maps = block.forward(&maps, count);
        }
        let mut features = Array2::ones((count, WIDTHS[3] + 1));
        for i in 0..count {
            let mean: Array1<f32> = maps.image(i).mean_axis(Axis(1)).expect("not empty");
            features.row_mut(i).slice_mut(ndarray::s![..WIDTHS[3]]).assign(&mean);
        }
        (features, maps.side)
    }

    pub(crate) fn classify(&mut self, images: &[f32], side: usize) -> Vec<i64> {
        let (features, _) = self.features(images, side);
        let scores = features.dot(&self.head.value.t());
        let best = |row: ndarray::ArrayView1<'_, f32>| (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
        scores.rows().into_iter().map(|row| best(row).expect("classes") as i64).collect()
    }

    /// Takes one step of SGD on the mean cross-entropy of a batch, and returns that loss.
    pub(crate) fn train(&mut self, images: &[f32], labels: &[i64], side: usize, rate: f32) -> f32 {
        let (features, last) = self.features(images, side);
        let count = labels.len();
        // Softmax. The gradient is the probabilities minus the one-hot label.
        let mut grad = features.dot(&self.head.value.t());
        let mut loss = 0.0;
        for (mut row, &label) in grad.rows_mut().into_iter().zip(labels) {
            let top = row.fold(f32::MIN, |a, &b| a.max(b));
            row.mapv_inplace(|v| (v - top).exp());
            let sum = row.sum();
            row.mapv_inplace(|v| v / sum);
            loss -= row[label as usize].max(1e-9).ln() / count as f32;
            row[label as usize] -= 1.0;
        }
        grad /= count as f32;
        self.head.grad += &grad.t().dot(&features);
        let feature_grad = grad.dot(&self.head.value);

        let mut maps = Maps::zeros(count, WIDTHS[3], last);
        let plane = (last * last) as f32;
        for i in 0..count {
            for (c, mut row) in maps.image_mut(i).rows_mut().into_iter().enumerate() {
                row.fill(feature_grad[[i, c]] / plane);
            }
        }
        for (i, block) in self.blocks.iter_mut().enumerate().rev() {
            maps = block.backward(&maps, WIDTHS[i], count);
            block.weight.step(rate);
        }
        self.head.step(rate);
        loss
    }
}
