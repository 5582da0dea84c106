#![allow(unsafe_code)]
//! Safe calls to the kernels in `examples/kernels/train.cu`, which describes each kernel.
//!
//! **Invariants**
//! 1. Each launch passes the arguments that the kernel declares, in its order.
//! 2. Each method checks before the launch that every buffer is large enough for the kernel's
//!    accesses with the given shape.

use std::sync::Arc;

use warpfeed::cuda::cudarc::driver::{
    CudaFunction, CudaSlice, CudaStream, CudaView, DriverError, LaunchConfig, PushKernelArg,
};
use warpfeed::cuda::cudarc::nvrtc::Ptx;

type Result<T> = std::result::Result<T, DriverError>;

/// Threads per block, in every kernel.
const THREADS: u32 = 256;
/// Rows and columns of the tile that a block of `matmul` computes.
const TILE: usize = 64;

/// Shape of a batch's feature maps: (C, N, side, side).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) channels: usize,
    pub(crate) count: usize,
    pub(crate) side: usize,
}

impl Shape {
    pub(crate) fn len(&self) -> usize {
        self.channels * self.width()
    }

    /// Number of elements per channel.
    pub(crate) fn width(&self) -> usize {
        self.count * self.side * self.side
    }

    /// Number of elements after 2x2 pooling.
    pub(crate) fn pooled(&self) -> usize {
        self.channels * self.count * (self.side / 2) * (self.side / 2)
    }

    fn numbers(&self) -> [u32; 3] {
        [self.channels, self.count, self.side].map(small)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    data: &'a CudaSlice<f32>,
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Creates a matrix from the first `rows * columns` elements of `data`, row by row.
    pub(crate) fn new(data: &'a CudaSlice<f32>, rows: usize, columns: usize) -> Self {
        holds(data.len(), rows * columns);
        Matrix { data, rows, columns, row_stride: columns, column_stride: 1 }
    }

    pub(crate) fn transposed(self) -> Self {
        Matrix {
            data: self.data,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

pub(crate) struct Kernels {
    pub(crate) stream: Arc<CudaStream>,
    im2col: CudaFunction,
    col2im: CudaFunction,
    matmul: CudaFunction,
    add_parts: CudaFunction,
    pool: CudaFunction,
    unpool: CudaFunction,
    row_sums: CudaFunction,
    mean: CudaFunction,
    spread: CudaFunction,
    softmax: CudaFunction,
    update: CudaFunction,
}

macro_rules! launch {
    ($self:ident.$kernel:ident, $grid:expr, $($argument:expr),*) => {{
        let mut launch = $self.stream.launch_builder(&$self.$kernel);
        $(launch.arg($argument);)*
        let config = LaunchConfig { grid_dim: $grid, block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: invariants 1 and 2.
        unsafe { launch.launch(config) }.map(drop)
    }};
}

impl Kernels {
    pub(crate) fn load(stream: &Arc<CudaStream>) -> Result<Self> {
        let module = stream.context().load_module(Ptx::from_src(include_str!("../kernels/train.ptx")))?;
        let load = |name| module.load_function(name);
        Ok(Kernels {
            stream: stream.clone(),
            im2col: load("im2col")?,
            col2im: load("col2im")?,
            matmul: load("matmul")?,
            add_parts: load("add_parts")?,
            pool: load("pool")?,
            unpool: load("unpool")?,
            row_sums: load("row_sums")?,
            mean: load("mean")?,
            spread: load("spread")?,
            softmax: load("softmax")?,
            update: load("update")?,
        })
    }

    /// Copies 3x3 neighborhoods to columns: (C * 9, N * side * side). The maps are (N, C, side,
    /// side) if `images_first` is set, and (C, N, side, side) if it is not set.
    pub(crate) fn im2col(
        &self,
        columns: &mut CudaSlice<f32>,
        maps: &CudaView<'_, f32>,
        shape: Shape,
        images_first: bool,
    ) -> Result<()> {
        holds(maps.len(), shape.len());
        holds(columns.len(), 9 * shape.len());
        let plane = shape.side * shape.side;
        let strides = if images_first { (plane, shape.channels * plane) } else { (shape.width(), plane) };
        let (channel_stride, image_stride) = (small(strides.0), small(strides.1));
        let [c, n, side] = shape.numbers();
        launch!(self.im2col, over(9 * shape.len()), columns, maps, &c, &n, &side, &channel_stride, &image_stride)
    }

    pub(crate) fn col2im(&self, maps: &mut CudaSlice<f32>, columns: &CudaSlice<f32>, shape: Shape) -> Result<()> {
        holds(maps.len(), shape.len());
        holds(columns.len(), 9 * shape.len());
        let [c, n, side] = shape.numbers();
        launch!(self.col2im, over(shape.len()), maps, columns, &c, &n, &side)
    }

    pub(crate) fn product(&self, out: &mut CudaSlice<f32>, a: Matrix<'_>, b: Matrix<'_>) -> Result<()> {
        self.product_in_parts(out, a, b, 1)
    }

    /// Computes `out` = `a` times `b`, for a depth much larger than the sides of the result. Splits
    /// the depth into parts of about 1,024 or more, multiplies the parts in parallel, and adds the
    /// results. The parts are larger if their results would not fit into `scratch`.
    pub(crate) fn long_product(
        &self,
        out: &mut CudaSlice<f32>,
        scratch: &mut CudaSlice<f32>,
        a: Matrix<'_>,
        b: Matrix<'_>,
    ) -> Result<()> {
        let elements = a.rows * b.columns;
        let part_count = (a.columns / 1024).min(scratch.len() / elements).max(1);
        holds(scratch.len(), part_count * elements);
        holds(out.len(), elements);
        let parts = small(self.parts(a.columns, part_count).1);
        self.product_in_parts(scratch, a, b, part_count)?;
        let count = small(elements);
        launch!(self.add_parts, over(elements), out, &*scratch, &count, &parts)
    }

    /// Returns the depth of a part, which is a multiple of the kernel's step of 16, and the number
    /// of parts.
    fn parts(&self, depth: usize, parts: usize) -> (usize, usize) {
        let part = depth.div_ceil(parts).next_multiple_of(16);
        (part, depth.div_ceil(part))
    }

    fn product_in_parts(&self, out: &mut CudaSlice<f32>, a: Matrix<'_>, b: Matrix<'_>, parts: usize) -> Result<()> {
        assert_eq!(a.columns, b.rows, "the matrices must have the same depth");
        let (part, parts) = self.parts(a.columns, parts);
        holds(out.len(), parts * a.rows * b.columns);
        let grid = (small(b.columns.div_ceil(TILE)), small(a.rows.div_ceil(TILE)), small(parts));
        let (rows, columns, depth, part) = (small(a.rows), small(b.columns), small(a.columns), small(part));
        let [ar, ac] = [a.row_stride, a.column_stride].map(small);
        let [br, bc] = [b.row_stride, b.column_stride].map(small);
        launch!(self.matmul, grid, out, a.data, b.data, &rows, &columns, &depth, &part, &ar, &ac, &br, &bc)
    }

    pub(crate) fn pool(
        &self,
        out: &mut CudaSlice<f32>,
        winner: &mut CudaSlice<u8>,
        maps: &CudaSlice<f32>,
        bias: &CudaSlice<f32>,
        shape: Shape,
    ) -> Result<()> {
        holds(maps.len(), shape.len());
        holds(bias.len(), shape.channels);
        holds(out.len(), shape.pooled());
        holds(winner.len(), shape.pooled());
        assert!(
            shape.side.is_multiple_of(2),
            "the side has {} pixels, but pooling requires an even number",
            shape.side
        );
        let [c, n, side] = shape.numbers();
        launch!(self.pool, over(shape.pooled()), out, winner, maps, bias, &c, &n, &side)
    }

    pub(crate) fn unpool(
        &self,
        grad: &mut CudaSlice<f32>,
        pooled: &CudaSlice<f32>,
        winner: &CudaSlice<u8>,
        shape: Shape,
    ) -> Result<()> {
        holds(grad.len(), shape.len());
        holds(pooled.len(), shape.pooled());
        holds(winner.len(), shape.pooled());
        assert!(
            shape.side.is_multiple_of(2),
            "the side has {} pixels, but pooling requires an even number",
            shape.side
        );
        let [c, n, side] = shape.numbers();
        launch!(self.unpool, over(shape.pooled()), grad, pooled, winner, &c, &n, &side)
    }

    pub(crate) fn row_sums(&self, out: &mut CudaSlice<f32>, matrix: Matrix<'_>) -> Result<()> {
        holds(out.len(), matrix.rows);
        let columns = small(matrix.columns);
        let [row, column] = [matrix.row_stride, matrix.column_stride].map(small);
        launch!(self.row_sums, (small(matrix.rows), 1, 1), out, matrix.data, &columns, &row, &column)
    }

    pub(crate) fn mean(&self, features: &mut CudaSlice<f32>, maps: &CudaSlice<f32>, shape: Shape) -> Result<()> {
        holds(maps.len(), shape.len());
        holds(features.len(), shape.channels * shape.count);
        let ([c, n, _], plane) = (shape.numbers(), small(shape.side * shape.side));
        launch!(self.mean, over(shape.channels * shape.count), features, maps, &c, &n, &plane)
    }

    pub(crate) fn spread(&self, maps: &mut CudaSlice<f32>, features: &CudaSlice<f32>, shape: Shape) -> Result<()> {
        holds(maps.len(), shape.len());
        holds(features.len(), shape.channels * shape.count);
        let ([c, n, _], plane) = (shape.numbers(), small(shape.side * shape.side));
        launch!(self.spread, over(shape.len()), maps, features, &c, &n, &plane)
    }

    pub(crate) fn softmax(
        &self,
        logits: &mut CudaSlice<f32>,
        bias: &CudaSlice<f32>,
        labels: &CudaView<'_, i64>,
        (loss, right): (&mut CudaSlice<f32>, &mut CudaSlice<f32>),
    ) -> Result<()> {
        let (count, classes) = (labels.len(), bias.len());
        holds(logits.len(), count * classes);
        holds(loss.len(), count);
        holds(right.len(), count);
        let (n, k) = (small(count), small(classes));
        launch!(self.softmax, over(count), logits, bias, labels, loss, right, &n, &k)
    }

    pub(crate) fn update(
        &self,
        value: &mut CudaSlice<f32>,
        speed: &mut CudaSlice<f32>,
        grad: &CudaSlice<f32>,
        rate: f32,
        decay: f32,
    ) -> Result<()> {
        holds(speed.len(), value.len());
        holds(grad.len(), value.len());
        let (elements, count) = (value.len(), small(value.len()));
        launch!(self.update, over(elements), value, speed, grad, &count, &rate, &decay)
    }
}

/// Returns a grid with one thread per element.
fn over(elements: usize) -> (u32, u32, u32) {
    (small(elements).div_ceil(THREADS), 1, 1)
}

/// Converts a number to a 32-bit argument of a kernel. Panics if it does not fit.
fn small(number: usize) -> u32 {
    u32::try_from(number).expect("a batch of fewer than 2^32 elements")
}

fn holds(len: usize, needed: usize) {
    assert!(len >= needed, "a buffer of {len} elements is too small: the kernel needs {needed}");
}
