//! A residual network ("Deep Residual Learning for Image Recognition", 2015): a 3x3 convolution of
//! stride 2 with `widths[0]` output channels, one basic block per width, global average pooling,
//! and a linear layer. Every block after the first halves the resolution, and its shortcut averages
//! 2x2 pixels before the 1x1 convolution ("Bag of Tricks for Image Classification", 2018).
//!
//! candle-transformers has no suitable network. The batch normalization of its ResNet uses the
//! running statistics even in training, and its ConvNeXt uses candle's layer normalization, which
//! does not support backpropagation.

use candle_core::{D, ModuleT, Result, Tensor, Var};
use candle_nn::{BatchNorm, Conv2d, Conv2dConfig, Linear, Module, VarBuilder, batch_norm, conv2d_no_bias, linear};

const EPSILON: f64 = 1e-5;

struct Block {
    first: Conv2d,
    first_norm: BatchNorm,
    second: Conv2d,
    second_norm: BatchNorm,
    /// The convolution and norm of the shortcut, or `None` if the block changes neither the number
    /// of channels nor the resolution.
    short_cut: Option<(Conv2d, BatchNorm)>,
    halves: bool,
}

/// The network. Its input is `f32`, of shape (N, 3, H, W). With n widths, H and W should be
/// multiples of 2^n.
pub(crate) struct ResNet {
    stem: Conv2d,
    stem_norm: BatchNorm,
    blocks: Vec<Block>,
    head: Linear,
}

fn conv3x3(inputs: usize, outputs: usize, stride: usize, weights: VarBuilder<'_>) -> Result<Conv2d> {
    conv2d_no_bias(inputs, outputs, 3, Conv2dConfig { padding: 1, stride, ..Default::default() }, weights)
}

impl Block {
    fn new(inputs: usize, outputs: usize, halves: bool, weights: &VarBuilder<'_>) -> Result<Self> {
        let short_cut = if inputs != outputs || halves {
            let conv = conv2d_no_bias(inputs, outputs, 1, Default::default(), weights.pp("short_cut"))?;
            Some((conv, batch_norm(outputs, EPSILON, weights.pp("short_cut_norm"))?))
        } else {
            None
        };
        Ok(Block {
            first: conv3x3(inputs, outputs, if halves { 2 } else { 1 }, weights.pp("first"))?,
            first_norm: batch_norm(outputs, EPSILON, weights.pp("first_norm"))?,
            second: conv3x3(outputs, outputs, 1, weights.pp("second"))?,
            second_norm: batch_norm(outputs, EPSILON, weights.pp("second_norm"))?,
            short_cut,
            halves,
        })
    }

    fn forward(&self, input: &Tensor, train: bool) -> Result<Tensor> {
        let inner = self.first_norm.forward_t(&self.first.forward(input)?, train)?.relu()?;
        let inner = self.second_norm.forward_t(&self.second.forward(&inner)?, train)?;
        let around = match &self.short_cut {
            Some((conv, norm)) => {
                let input = if self.halves { input.avg_pool2d(2)? } else { input.clone() };
                norm.forward_t(&conv.forward(&input)?, train)?
            }
            None => input.clone(),
        };
        (inner + around)?.relu()
    }
}

impl ResNet {
    pub(crate) fn new(widths: &[usize], classes: usize, weights: &VarBuilder<'_>) -> Result<Self> {
        let mut blocks = Vec::new();
        let mut inputs = widths[0];
        for (number, &outputs) in widths.iter().enumerate() {
            blocks.push(Block::new(inputs, outputs, number > 0, &weights.pp(format!("block{number}")))?);
            inputs = outputs;
        }
        Ok(ResNet {
            // Stride 2 halves the resolution before the blocks, which do most of the computation.
            stem: conv3x3(3, widths[0], 2, weights.pp("stem"))?,
            stem_norm: batch_norm(widths[0], EPSILON, weights.pp("stem_norm"))?,
            blocks,
            head: linear(inputs, classes, weights.pp("head"))?,
        })
    }

    /// Sets `variables`, in order, from a fixed sequence of random numbers, because candle's random
    /// number generator for the CPU cannot be seeded. Weights are uniform with the variance that He
    /// et al. propose ("Delving Deep into Rectifiers", 2015), and the head's bias is 0.
    /// Normalization layers already have scale 1 and bias 0.
    pub(crate) fn initialize<'a>(variables: impl Iterator<Item = (&'a str, &'a Var)>) -> Result<()> {
        let mut state = 42u64;
        let mut uniform = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        for (name, variable) in variables {
            if variable.rank() > 1 {
                let inputs: usize = variable.dims()[1..].iter().product();
                let bound = (6.0 / inputs as f32).sqrt();
                let values: Vec<f32> = (0..variable.elem_count()).map(|_| uniform() * bound).collect();
                variable.set(&Tensor::from_vec(values, variable.shape(), variable.device())?)?;
            } else if name == "head.bias" {
                variable.set(&variable.zeros_like()?)?;
            }
        }
        Ok(())
    }

    /// Returns the class scores, of shape (N, classes). With `train`, batch normalization uses
    /// the statistics of the batch, and updates the running statistics.
    pub(crate) fn forward(&self, images: &Tensor, train: bool) -> Result<Tensor> {
        let mut maps = self.stem_norm.forward_t(&self.stem.forward(images)?, train)?.relu()?;
        for block in &self.blocks {
            maps = block.forward(&maps, train)?;
        }
        self.head.forward(&maps.flatten_from(2)?.mean(D::Minus1)?)
    }
}
