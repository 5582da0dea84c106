//! The `--check` option: compares the naive network with finite differences and, with a GPU, each
//! kernel and whole training steps with their naive counterparts.

use std::sync::Arc;

use warpfeed::cuda::cudarc::driver::{CudaSlice, CudaStream, DriverError};
use warpfeed::sampler::Rng;

use super::kernels::{Kernels, Matrix, Shape};
use super::naive;
use super::net::{Net, Plan};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed, 0, 0);
    (0..len).map(|_| rng.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Fails unless `actual` equals `expected` up to `tolerance` times the largest absolute value in
/// `expected`.
fn check_close(name: &str, actual: &[f64], expected: &[f64], tolerance: f64) -> Result {
    if actual.len() != expected.len() {
        return Err(format!("{name}: {} values instead of {}", actual.len(), expected.len()).into());
    }
    let scale = expected.iter().fold(1e-6, |a: f64, v| a.max(v.abs()));
    let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * scale;
    match actual.iter().zip(expected).position(|pair| !is_close(pair)) {
        Some(i) => Err(format!("{name}: value {i} is {} instead of {}", actual[i], expected[i]).into()),
        None => {
            println!("  {name}: {} values agree", actual.len());
            Ok(())
        }
    }
}

fn plan() -> Plan {
    Plan { widths: vec![3, 5, 4], classes: 3, side: 8, batch: 4 }
}

/// Returns random values for all parameters, so that every gradient is tested.
fn random_arrays(plan: &Plan) -> Vec<Vec<f32>> {
    let lens = plan.parameters().into_iter().enumerate();
    lens.map(|(i, (len, _))| noise(len, 100 + i as u64).iter().map(|v| v * 0.6).collect()).collect()
}

pub(crate) fn check_on_cpu() -> Result {
    println!("naive network compared with finite differences:");
    let (plan, labels) = (plan(), [0, 2, 1]);
    let images = to_f64(&noise(3 * 3 * plan.side * plan.side, 1));
    let mut values: Vec<Vec<f64>> = random_arrays(&plan).iter().map(|v| to_f64(v)).collect();
    let (_, grads, _) = naive::gradient(&plan, &values, &images, &labels);
    for (array, grad) in grads.iter().enumerate() {
        let mut slopes = Vec::new();
        for i in 0..grad.len() {
            let (value, step) = (values[array][i], 1e-6);
            values[array][i] = value + step;
            let above = naive::gradient(&plan, &values, &images, &labels).0;
            values[array][i] = value - step;
            let below = naive::gradient(&plan, &values, &images, &labels).0;
            values[array][i] = value;
            slopes.push((above - below) / (2.0 * step));
        }
        check_close(&format!("gradient of parameters {array}"), grad, &slopes, 1e-5)?;
    }
    Ok(())
}

pub(crate) fn check_on_gpu(stream: &Arc<CudaStream>) -> Result {
    println!("kernels compared with the naive versions:");
    let kernels = Kernels::load(stream)?;
    products(&kernels)?;
    maps(&kernels)?;
    heads(&kernels)?;
    println!("training steps compared with the naive network:");
    steps(stream)
}

fn download(stream: &Arc<CudaStream>, values: &CudaSlice<f32>) -> std::result::Result<Vec<f64>, DriverError> {
    Ok(to_f64(&stream.clone_dtoh(values)?))
}

fn products(kernels: &Kernels) -> Result {
    let stream = &kernels.stream;
    for (rows, depth, columns) in [(1, 1, 1), (70, 33, 130), (3, 5000, 64), (64, 16, 65)] {
        let (a, b) = (noise(rows * depth, 2), noise(depth * columns, 3));
        let expected = naive::product(&to_f64(&a), &to_f64(&b), rows, depth, columns);
        let (left, right) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
        let left_turned = stream.clone_htod(&naive::transposed(&a, rows, depth))?;
        let right_turned = stream.clone_htod(&naive::transposed(&b, depth, columns))?;
        for layout in 0..4 {
            let a = if layout & 1 == 0 {
                Matrix::new(&left, rows, depth)
            } else {
                Matrix::new(&left_turned, depth, rows).transposed()
            };
            let b = if layout & 2 == 0 {
                Matrix::new(&right, depth, columns)
            } else {
                Matrix::new(&right_turned, columns, depth).transposed()
            };
            let mut out = stream.alloc_zeros::<f32>(rows * columns)?;
            let name = format!("product ({rows}, {depth}) ({depth}, {columns}), layout {layout}");
            kernels.product(&mut out, a, b)?;
            check_close(&name, &download(stream, &out)?, &expected, 1e-4)?;
            let mut scratch = stream.alloc_zeros::<f32>(3 * rows * columns)?;
            stream.memset_zeros(&mut out)?;
            kernels.long_product(&mut out, &mut scratch, a, b)?;
            check_close(&format!("{name}, in parts"), &download(stream, &out)?, &expected, 1e-4)?;
        }
        let mut sums = stream.alloc_zeros::<f32>(rows)?;
        kernels.row_sums(&mut sums, Matrix::new(&left_turned, depth, rows).transposed())?;
        let expected: Vec<f64> = to_f64(&a).chunks(depth).map(|row| row.iter().sum()).collect();
        check_close(&format!("row sums ({rows}, {depth})"), &download(stream, &sums)?, &expected, 1e-4)?;
    }
    Ok(())
}

fn maps(kernels: &Kernels) -> Result {
    let stream = &kernels.stream;
    let (shape, outputs) = (Shape { channels: 3, count: 5, side: 6 }, 4);
    let (values, weight) = (noise(shape.len(), 4), noise(outputs * 27, 5));
    let on_device = stream.clone_htod(&values)?;
    let mut columns = stream.alloc_zeros::<f32>(9 * shape.len())?;
    let mut full = stream.alloc_zeros::<f32>(outputs * shape.width())?;
    let weights = stream.clone_htod(&weight)?;
    let expected = naive::convolve(&to_f64(&values), &to_f64(&weight), shape, outputs);
    // Put the images first, as the loader delivers them.
    let plane = shape.side * shape.side;
    let planes = naive::transposed(&(0..shape.len() / plane).collect::<Vec<_>>(), shape.channels, shape.count);
    let images_first: Vec<f32> = planes.iter().flat_map(|p| values[p * plane..][..plane].to_vec()).collect();
    let images = stream.clone_htod(&images_first)?;
    for (name, maps, first) in [("maps", &on_device, false), ("images first", &images, true)] {
        kernels.im2col(&mut columns, &maps.as_view(), shape, first)?;
        let matrix = Matrix::new(&columns, 27, shape.width());
        kernels.product(&mut full, Matrix::new(&weights, outputs, 27), matrix)?;
        check_close(&format!("im2col, {name}"), &download(stream, &full)?, &expected, 1e-4)?;
    }
    let grad = noise(outputs * shape.width(), 6);
    let (_, expected) = naive::convolve_back(&to_f64(&grad), &to_f64(&values), &to_f64(&weight), shape, outputs);
    let grads = stream.clone_htod(&grad)?;
    let transposed_weights = Matrix::new(&weights, outputs, 27).transposed();
    kernels.product(&mut columns, transposed_weights, Matrix::new(&grads, outputs, shape.width()))?;
    let mut back = stream.alloc_zeros::<f32>(shape.len())?;
    kernels.col2im(&mut back, &columns, shape)?;
    check_close("col2im", &download(stream, &back)?, &expected, 1e-4)?;

    let bias = noise(shape.channels, 7);
    let (expected, winners) = naive::pool(&to_f64(&values), &to_f64(&bias), shape);
    let mut pooled = stream.alloc_zeros::<f32>(shape.pooled())?;
    let mut winner = stream.alloc_zeros::<u8>(shape.pooled())?;
    kernels.pool(&mut pooled, &mut winner, &on_device, &stream.clone_htod(&bias)?, shape)?;
    check_close("pool", &download(stream, &pooled)?, &expected, 1e-6)?;
    let grad = noise(shape.pooled(), 8);
    kernels.unpool(&mut back, &stream.clone_htod(&grad)?, &winner, shape)?;
    check_close("unpool", &download(stream, &back)?, &naive::unpool(&to_f64(&grad), &winners, shape), 1e-6)?;

    let mut features = stream.alloc_zeros::<f32>(shape.channels * shape.count)?;
    kernels.mean(&mut features, &on_device, shape)?;
    check_close("mean", &download(stream, &features)?, &naive::mean(&to_f64(&values), shape), 1e-5)?;
    let grad = noise(shape.channels * shape.count, 9);
    kernels.spread(&mut back, &stream.clone_htod(&grad)?, shape)?;
    check_close("spread", &download(stream, &back)?, &naive::spread(&to_f64(&grad), shape), 1e-6)
}

fn heads(kernels: &Kernels) -> Result {
    let (stream, count, classes) = (&kernels.stream, 300, 7);
    let labels: Vec<i64> = (0..count as i64).map(|i| i * i % classes as i64).collect();
    let (logits, bias) = (noise(count * classes, 10), noise(classes, 11));
    let biased: Vec<f64> =
        logits.iter().enumerate().map(|(i, v)| f64::from(*v) + f64::from(bias[i % classes])).collect();
    let (losses, right, grads) = naive::softmax(&biased, &labels);
    let (mut on_device, bias) = (stream.clone_htod(&logits)?, stream.clone_htod(&bias)?);
    let (mut loss, mut named) = (stream.alloc_zeros::<f32>(count)?, stream.alloc_zeros::<f32>(count)?);
    let on_device_labels = stream.clone_htod(&labels)?;
    kernels.softmax(&mut on_device, &bias, &on_device_labels.as_view(), (&mut loss, &mut named))?;
    check_close("softmax: loss", &download(stream, &loss)?, &losses, 1e-4)?;
    let right: Vec<f64> = right.into_iter().map(|right| if right { 1.0 } else { 0.0 }).collect();
    check_close("softmax: correct classes", &download(stream, &named)?, &right, 0.0)?;
    check_close("softmax: gradient", &download(stream, &on_device)?, &grads, 1e-4)?;

    let (value, speed, grad) = (noise(500, 12), noise(500, 13), noise(500, 14));
    let (mut values, mut speeds) = (stream.clone_htod(&value)?, stream.clone_htod(&speed)?);
    kernels.update(&mut values, &mut speeds, &stream.clone_htod(&grad)?, 0.1, 0.01)?;
    let faster = |i: usize| 0.9 * f64::from(speed[i]) + f64::from(grad[i]) + 0.01 * f64::from(value[i]);
    let expected: Vec<f64> = (0..500).map(|i| f64::from(value[i]) - 0.1 * faster(i)).collect();
    check_close("update", &download(stream, &values)?, &expected, 1e-5)
}

/// Trains for two steps, with a full batch and then with a smaller one. After each step, checks the
/// loss, the number of correct predictions and every gradient, and that the step has changed each
/// parameter array.
fn steps(stream: &Arc<CudaStream>) -> Result {
    let plan = plan();
    let mut net = Net::new(stream, plan.clone(), &random_arrays(&plan))?;
    for (step, labels) in [vec![2i64, 0, 1, 1], vec![0, 2, 1]].into_iter().enumerate() {
        let images = noise(labels.len() * 3 * plan.side * plan.side, 20 + step as u64);
        let previous_values: Vec<Vec<f64>> = net.parameters()?.iter().map(|(value, _)| to_f64(value)).collect();
        let (loss, grads, correct_count) = naive::gradient(&plan, &previous_values, &to_f64(&images), &labels);
        let (images, on_device) = (stream.clone_htod(&images)?, stream.clone_htod(&labels)?);
        net.train(&images.as_view(), &on_device.as_view(), 0.05)?;
        let (sum, correct) = net.totals()?;
        check_close(&format!("step {step}: loss"), &[sum / labels.len() as f64], &[loss], 1e-4)?;
        check_close(&format!("step {step}: correct predictions"), &[correct], &[correct_count as f64], 0.0)?;
        for (i, ((value, grad), expected)) in net.parameters()?.iter().zip(&grads).enumerate() {
            check_close(&format!("step {step}: gradient of parameters {i}"), &to_f64(grad), expected, 1e-3)?;
            if to_f64(value) == previous_values[i] {
                return Err(format!("step {step}: parameters {i} were not updated").into());
            }
        }
    }
    Ok(())
}
