//! 3x3 and 1x1 convolutions with hand-written gradients, for the examples `segment` and `detect`.
//! Weights are updated with Adam ("Adam: A Method for Stochastic Optimization", 2015).

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2, ArrayViewMut2};

/// Feature maps of one image, of shape (channels, side * side).
pub(crate) struct Maps {
    pub(crate) data: Array2<f32>,
    pub(crate) side: usize,
}

/// Weights with their gradient, and the moving averages of the gradient and of its square.
struct Param {
    value: Array2<f32>,
    grad: Array2<f32>,
    mean: Array2<f32>,
    mean_square: Array2<f32>,
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
        let zeros = || Array2::zeros((rows, columns));
        Param {
            value: Array2::from_shape_simple_fn((rows, columns), || uniform() * bound),
            grad: zeros(),
            mean: zeros(),
            mean_square: zeros(),
        }
    }

    /// Updates the weights with Adam. `step` counts from 1.
    fn step(&mut self, rate: f32, step: i32) {
        let (mean_correction, square_correction) = (1.0 - 0.9_f32.powi(step), 1.0 - 0.999_f32.powi(step));
        let numbers = self.value.iter_mut().zip(&mut self.mean).zip(&mut self.mean_square).zip(&mut self.grad);
        for (((value, m), s), g) in numbers {
            *m = 0.9 * *m + 0.1 * *g;
            *s = 0.999 * *s + 0.001 * *g * *g;
            *value -= rate * (*m / mean_correction) / ((*s / square_correction).sqrt() + 1e-8);
            *g = 0.0;
        }
    }
}

/// A convolution: 3x3 with zero padding, or 1x1; with stride 1 or 2; optionally followed by ReLU.
pub(crate) struct Convolution {
    /// The weights. The bias is the last column.
    weight: Param,
    inputs: usize,
    kernel_side: usize,
    stride: usize,
    has_relu: bool,
    /// The im2col matrix of the latest input, which the backward pass reads. Each column contains
    /// the input pixels under the kernel for one output pixel, followed by a 1 for the bias.
    columns: Array2<f32>,
    output: Array2<f32>,
}

impl Convolution {
    /// Creates a convolution with a square kernel. `kernel_side` is 3 or 1, and `stride` is 1 or 2.
    /// The side of each input must be divisible by `stride`.
    pub(crate) fn new(inputs: usize, outputs: usize, kernel_side: usize, stride: usize, has_relu: bool) -> Self {
        Convolution {
            weight: Param::new(outputs, inputs * kernel_side * kernel_side + 1),
            inputs,
            kernel_side,
            stride,
            has_relu,
            columns: Array2::zeros((0, 0)),
            output: Array2::zeros((0, 0)),
        }
    }

    /// Lists the rows of the im2col matrix except the last, as (row, input channel, shift in y,
    /// shift in x).
    fn rows(&self) -> impl Iterator<Item = (usize, usize, isize, isize)> + use<> {
        let (kernel_side, half) = (self.kernel_side, (self.kernel_side / 2) as isize);
        let row_position = move |row: usize| {
            let (channel, tap) = (row / (kernel_side * kernel_side), row % (kernel_side * kernel_side));
            (row, channel, (tap / kernel_side) as isize - half, (tap % kernel_side) as isize - half)
        };
        (0..self.inputs * kernel_side * kernel_side).map(row_position)
    }

    pub(crate) fn forward(&mut self, input: &Maps) -> Maps {
        let (side, out_side) = (input.side, input.side / self.stride);
        let rows = self.inputs * self.kernel_side * self.kernel_side + 1;
        if self.columns.dim() != (rows, out_side * out_side) {
            self.columns = Array2::ones((rows, out_side * out_side));
        }
        let data = input.data.as_slice().expect("contiguous");
        for (row, channel, dy, dx) in self.rows() {
            let start = row * out_side * out_side;
            let columns = &mut self.columns.as_slice_mut().expect("contiguous")[start..start + out_side * out_side];
            for_each_tap(side, out_side, self.stride, dy, dx, |index, input_index| {
                columns[index] = input_index.map_or(0.0, |input_index| data[channel * side * side + input_index]);
            });
        }
        let mut output = Array2::zeros((self.weight.value.nrows(), out_side * out_side));
        general_mat_mul(1.0, &self.weight.value, &self.columns, 0.0, &mut output);
        if self.has_relu {
            output.mapv_inplace(|value| value.max(0.0));
            self.output.clone_from(&output);
        }
        Maps { data: output, side: out_side }
    }

    /// Accumulates the gradient of the weights. Returns the gradient with respect to the latest
    /// input.
    pub(crate) fn backward(&mut self, mut grad: Maps) -> Maps {
        if self.has_relu {
            grad.data.zip_mut_with(&self.output, |grad, &output| *grad *= f32::from(output > 0.0));
        }
        general_mat_mul(1.0, &grad.data, &self.columns.t(), 1.0, &mut self.weight.grad);
        let (out_side, side) = (grad.side, grad.side * self.stride);
        let mut columns = Array2::zeros(self.columns.dim());
        general_mat_mul(1.0, &self.weight.value.t(), &grad.data, 0.0, &mut columns);
        let mut input = Array2::zeros((self.inputs, side * side));
        let data: &mut [f32] = input.as_slice_mut().expect("contiguous");
        for (row, channel, dy, dx) in self.rows() {
            let columns = &columns.as_slice().expect("contiguous")[row * out_side * out_side..][..out_side * out_side];
            for_each_tap(side, out_side, self.stride, dy, dx, |index, input_index| {
                if let Some(input_index) = input_index {
                    data[channel * side * side + input_index] += columns[index];
                }
            });
        }
        Maps { data: input, side }
    }

    pub(crate) fn step(&mut self, rate: f32, step: i32) {
        self.weight.step(rate, step);
    }
}

/// Calls `f` for each output pixel (x, y), with the index of this pixel and the index of the input
/// pixel at (`stride * x + dx`, `stride * y + dy`). The latter index is `None` outside the image.
fn for_each_tap(
    side: usize,
    out_side: usize,
    stride: usize,
    dy: isize,
    dx: isize,
    mut f: impl FnMut(usize, Option<usize>),
) {
    for y in 0..out_side {
        let input_y = (y * stride).checked_add_signed(dy).filter(|&y| y < side);
        for x in 0..out_side {
            let input_x = (x * stride).checked_add_signed(dx).filter(|&x| x < side);
            f(y * out_side + x, input_y.zip(input_x).map(|(y, x)| y * side + x));
        }
    }
}

pub(crate) struct Net {
    layers: Vec<Convolution>,
    steps: i32,
}

impl Net {
    pub(crate) fn new(layers: Vec<Convolution>) -> Self {
        Net { layers, steps: 0 }
    }

    /// Computes the network's output for an image of shape (3, side * side).
    pub(crate) fn forward(&mut self, image: &[f32], side: usize) -> Maps {
        let data = ArrayView2::from_shape((3, side * side), image).expect("three channels").to_owned();
        self.layers.iter_mut().fold(Maps { data, side }, |maps, layer| layer.forward(&maps))
    }

    /// Accumulates the gradients of all weights. `grad` is the gradient with respect to the output
    /// of the latest forward pass.
    pub(crate) fn backward(&mut self, grad: Maps) {
        self.layers.iter_mut().rev().fold(grad, |grad, layer| layer.backward(grad));
    }

    pub(crate) fn step(&mut self, rate: f32) {
        self.steps += 1;
        self.layers.iter_mut().for_each(|layer| layer.step(rate, self.steps));
    }
}

/// Converts the scores of each column to probabilities.
pub(crate) fn softmax(mut scores: ArrayViewMut2<'_, f32>) {
    for mut column in scores.columns_mut() {
        let max_score = column.fold(f32::MIN, |a, &b| a.max(b));
        column.mapv_inplace(|score| (score - max_score).exp());
        let sum = column.sum();
        column.mapv_inplace(|share| share / sum);
    }
}
