//! A convolutional network on the GPU: 3x3 convolutions, each followed by bias, ReLU and 2x2 max
//! pooling, then global average pooling and a linear layer. The network is trained by gradient
//! descent with momentum and weight decay.

use std::sync::Arc;

use warpfeed::cuda::cudarc::driver::{CudaSlice, CudaStream, CudaView, DriverError};
use warpfeed::sampler::Rng;

use super::kernels::{Kernels, Matrix, Shape};

type Result<T> = std::result::Result<T, DriverError>;

/// Size of the scratch buffer for the parts of long products, in floats.
const SCRATCH: usize = 1 << 22;
const WEIGHT_DECAY: f32 = 5e-4;

/// Structure of a network, and its maximum batch size.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Channels of the images, then of each convolution's output.
    pub(crate) widths: Vec<usize>,
    pub(crate) classes: usize,
    /// Side of the images in pixels, a multiple of 2^n for n convolutions, because each convolution
    /// is followed by pooling, which halves the side.
    pub(crate) side: usize,
    pub(crate) batch: usize,
}

impl Plan {
    pub(crate) fn convolutions(&self) -> usize {
        self.widths.len() - 1
    }

    /// Returns the input shape of convolution `i`, or of the mean if `i` is the number of
    /// convolutions.
    fn input(&self, i: usize, count: usize) -> Shape {
        Shape { channels: self.widths[i], count, side: self.side >> i }
    }

    /// Returns the output shape of convolution `i` before pooling.
    fn output(&self, i: usize, count: usize) -> Shape {
        Shape { channels: self.widths[i + 1], ..self.input(i, count) }
    }

    fn last(&self, count: usize) -> Shape {
        self.input(self.convolutions(), count)
    }

    /// Returns the number of values and the fan-in of each parameter array: a weight and a bias for
    /// each convolution, then for the linear layer. The fan-in is 0 for arrays that are initialized
    /// to zero. These are the biases, and the weight of the linear layer, so that initially no
    /// class is preferred.
    pub(crate) fn parameters(&self) -> Vec<(usize, usize)> {
        let mut sizes = Vec::new();
        for pair in self.widths.windows(2) {
            sizes.extend([(pair[1] * pair[0] * 9, pair[0] * 9), (pair[1], 0)]);
        }
        let features = self.widths[self.convolutions()];
        sizes.extend([(self.classes * features, 0), (self.classes, 0)]);
        sizes
    }

    /// Returns initial values: He initialization ("Delving Deep into Rectifiers", 2015), from a
    /// fixed seed, so that every run starts with the same values.
    pub(crate) fn initial(&self) -> Vec<Vec<f32>> {
        let mut rng = Rng::new(7, 0, 0);
        let parameters = self.parameters().into_iter();
        let values = parameters.map(|(len, inputs)| match inputs {
            0 => vec![0.0; len],
            _ => {
                let bound = (6.0 / inputs as f32).sqrt();
                (0..len).map(|_| (rng.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0) * bound).collect()
            }
        });
        values.collect()
    }
}

struct Param {
    value: CudaSlice<f32>,
    grad: CudaSlice<f32>,
    speed: CudaSlice<f32>,
}

/// A convolution with its bias, and the state of the forward pass that the backward pass needs.
struct Convolution {
    weight: Param,
    bias: Param,
    columns: CudaSlice<f32>,
    out: CudaSlice<f32>,
    winner: CudaSlice<u8>,
    grad: CudaSlice<f32>,
}

pub(crate) struct Net {
    plan: Plan,
    kernels: Kernels,
    convolutions: Vec<Convolution>,
    weight: Param,
    bias: Param,
    features: CudaSlice<f32>,
    features_grad: CudaSlice<f32>,
    /// The logits. The forward pass then overwrites them with the gradient of the loss.
    logits: CudaSlice<f32>,
    /// Output of a convolution before pooling, and its gradient. All convolutions share this
    /// buffer.
    full: CudaSlice<f32>,
    columns_grad: CudaSlice<f32>,
    scratch: CudaSlice<f32>,
    loss: CudaSlice<f32>,
    right: CudaSlice<f32>,
}

impl Net {
    /// Creates a network with the parameters `values`, in the order of [`Plan::parameters`].
    pub(crate) fn new(stream: &Arc<CudaStream>, plan: Plan, values: &[Vec<f32>]) -> Result<Self> {
        assert_eq!(values.len(), 2 * plan.convolutions() + 2, "two arrays for each layer");
        let zeros = |len: usize| stream.alloc_zeros::<f32>(len);
        let param = |value: &Vec<f32>| -> Result<Param> {
            Ok(Param { value: stream.clone_htod(value)?, grad: zeros(value.len())?, speed: zeros(value.len())? })
        };
        let (batch, count) = (plan.batch, plan.convolutions());
        let convolution = |i: usize| -> Result<Convolution> {
            let pooled = plan.output(i, batch).pooled();
            Ok(Convolution {
                weight: param(&values[2 * i])?,
                bias: param(&values[2 * i + 1])?,
                columns: zeros(9 * plan.input(i, batch).len())?,
                out: zeros(pooled)?,
                winner: stream.alloc_zeros::<u8>(pooled)?,
                grad: zeros(pooled)?,
            })
        };
        let largest = |lens: &mut dyn Iterator<Item = usize>| lens.max().unwrap_or(1);
        Ok(Net {
            kernels: Kernels::load(stream)?,
            convolutions: (0..count).map(convolution).collect::<Result<_>>()?,
            weight: param(&values[2 * count])?,
            bias: param(&values[2 * count + 1])?,
            features: zeros(batch * plan.widths[count])?,
            features_grad: zeros(batch * plan.widths[count])?,
            logits: zeros(batch * plan.classes)?,
            full: zeros(largest(&mut (0..count).map(|i| plan.output(i, batch).len())))?,
            // The first convolution computes no gradient with respect to the images.
            columns_grad: zeros(largest(&mut (1..count).map(|i| 9 * plan.input(i, batch).len())))?,
            scratch: zeros(SCRATCH)?,
            loss: zeros(batch)?,
            right: zeros(batch)?,
            plan,
        })
    }

    /// Runs the forward pass on images of shape (N, 3, side, side). Afterward, `logits` contains
    /// the gradient of the loss with respect to the logits.
    pub(crate) fn forward(&mut self, images: &CudaView<'_, f32>, labels: &CudaView<'_, i64>) -> Result<()> {
        let (n, kernels) = (labels.len(), &self.kernels);
        assert!(n <= self.plan.batch, "a batch of {n} images, but the network supports at most {}", self.plan.batch);
        for i in 0..self.convolutions.len() {
            let (before, rest) = self.convolutions.split_at_mut(i);
            let (current, input, output) = (&mut rest[0], self.plan.input(i, n), self.plan.output(i, n));
            match before.last() {
                None => kernels.im2col(&mut current.columns, images, input, true)?,
                Some(layer) => kernels.im2col(&mut current.columns, &layer.out.as_view(), input, false)?,
            }
            let depth = 9 * input.channels;
            let weight = Matrix::new(&current.weight.value, output.channels, depth);
            kernels.product(&mut self.full, weight, Matrix::new(&current.columns, depth, input.width()))?;
            kernels.pool(&mut current.out, &mut current.winner, &self.full, &current.bias.value, output)?;
        }
        let (last, classes) = (self.plan.last(n), self.plan.classes);
        let maps = &self.convolutions.last().expect("the network has convolutions").out;
        kernels.mean(&mut self.features, maps, last)?;
        let weight = Matrix::new(&self.weight.value, classes, last.channels).transposed();
        kernels.product(&mut self.logits, Matrix::new(&self.features, n, last.channels), weight)?;
        kernels.softmax(&mut self.logits, &self.bias.value, labels, (&mut self.loss, &mut self.right))
    }

    /// Runs the backward pass for the `n` images of the latest forward pass.
    pub(crate) fn backward(&mut self, n: usize) -> Result<()> {
        let (kernels, last, classes) = (&self.kernels, self.plan.last(n), self.plan.classes);
        let logits = Matrix::new(&self.logits, n, classes);
        let features = Matrix::new(&self.features, n, last.channels);
        kernels.product(&mut self.weight.grad, logits.transposed(), features)?;
        kernels.row_sums(&mut self.bias.grad, logits.transposed())?;
        let weight = Matrix::new(&self.weight.value, classes, last.channels);
        kernels.product(&mut self.features_grad, logits, weight)?;
        let end = self.convolutions.last_mut().expect("the network has convolutions");
        kernels.spread(&mut end.grad, &self.features_grad, last)?;

        for i in (0..self.convolutions.len()).rev() {
            let (before, rest) = self.convolutions.split_at_mut(i);
            let (current, input, output) = (&mut rest[0], self.plan.input(i, n), self.plan.output(i, n));
            kernels.unpool(&mut self.full, &current.grad, &current.winner, output)?;
            let full = Matrix::new(&self.full, output.channels, output.width());
            kernels.row_sums(&mut current.bias.grad, full)?;
            let depth = 9 * input.channels;
            let columns = Matrix::new(&current.columns, depth, input.width());
            kernels.long_product(&mut current.weight.grad, &mut self.scratch, full, columns.transposed())?;
            if let Some(layer) = before.last_mut() {
                let weight = Matrix::new(&current.weight.value, output.channels, depth);
                kernels.product(&mut self.columns_grad, weight.transposed(), full)?;
                kernels.col2im(&mut layer.grad, &self.columns_grad, input)?;
            }
        }
        Ok(())
    }

    pub(crate) fn train(&mut self, images: &CudaView<'_, f32>, labels: &CudaView<'_, i64>, rate: f32) -> Result<()> {
        self.forward(images, labels)?;
        self.backward(labels.len())?;
        let layers = self.convolutions.iter_mut().flat_map(|c| [&mut c.weight, &mut c.bias]);
        for param in layers.chain([&mut self.weight, &mut self.bias]) {
            self.kernels.update(&mut param.value, &mut param.speed, &param.grad, rate, WEIGHT_DECAY)?;
        }
        Ok(())
    }

    /// Returns the summed cross-entropy of all samples since the last call, and the number of
    /// correct predictions. Waits for the stream.
    pub(crate) fn totals(&mut self) -> Result<(f64, f64)> {
        let stream = &self.kernels.stream;
        let sum =
            |slots: &CudaSlice<f32>| -> Result<f64> { Ok(stream.clone_dtoh(slots)?.into_iter().map(f64::from).sum()) };
        let totals = (sum(&self.loss)?, sum(&self.right)?);
        stream.memset_zeros(&mut self.loss)?;
        stream.memset_zeros(&mut self.right)?;
        Ok(totals)
    }

    /// Returns the (value, gradient) of each parameter array, in the order of [`Plan::parameters`].
    pub(crate) fn parameters(&self) -> Result<Vec<(Vec<f32>, Vec<f32>)>> {
        let layers = self.convolutions.iter().flat_map(|c| [&c.weight, &c.bias]);
        let stream = &self.kernels.stream;
        let read = |p: &Param| Ok((stream.clone_dtoh(&p.value)?, stream.clone_dtoh(&p.grad)?));
        layers.chain([&self.weight, &self.bias]).map(read).collect()
    }
}
