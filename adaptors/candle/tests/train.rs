//! Tests that the `train` example, stopped within or between epochs and started again, has the
//! losses and accuracies of an uninterrupted run. Also tests the plot of the learning curve, and
//! that the optimizer does not retain a step's autograd graph.

#[path = "../examples/train/curve.rs"]
mod curve;
#[path = "../examples/train/net.rs"]
mod net;
#[path = "../examples/train/run.rs"]
mod run;
#[path = "../examples/train/saved.rs"]
mod saved;
#[path = "../examples/train/sgd.rs"]
mod sgd;

use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap, loss};
use net::ResNet;
use run::{Outcome, Settings};
use saved::Measurements;
use sgd::Sgd;
use warpfeed_synth::Synth;

fn settings(folder: &Path, stop_after: Option<usize>) -> Settings {
    Settings {
        data: Arc::new(Synth::new().images(98).classes(3).side(32).memory().unwrap()),
        held_out: None,
        device: Device::Cpu,
        side: 16,
        batch: 12,
        epochs: 2,
        widths: vec![4, 8],
        rate: 0.05,
        workers: 2,
        checkpoint: folder.join("checkpoint.safetensors"),
        save_every: 4,
        stop_after,
    }
}

fn finish(settings: &Settings) -> Measurements {
    match run::run(settings).unwrap() {
        Outcome::Finished(measured) => measured,
        Outcome::Stopped => panic!("the run stopped early"),
    }
}

#[test]
fn a_run_stopped_twice_has_the_losses_of_an_unbroken_run() {
    let (whole_run, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = finish(&settings(whole_run.path(), None));
    assert_eq!((expected.losses.len(), expected.accuracies.len()), (12, 2));
    for stop in [3, 9] {
        assert!(matches!(run::run(&settings(parts.path(), Some(stop))).unwrap(), Outcome::Stopped));
    }
    assert_eq!(finish(&settings(parts.path(), None)), expected);
}

#[test]
fn a_run_stops_after_the_last_step_of_an_epoch_unless_the_training_is_finished() {
    let (whole_run, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = finish(&settings(whole_run.path(), Some(12)));
    assert_eq!((expected.losses.len(), expected.accuracies.len()), (12, 2));
    assert!(matches!(run::run(&settings(parts.path(), Some(6))).unwrap(), Outcome::Stopped));
    let saved = saved::load(&parts.path().join("checkpoint.safetensors"), &Device::Cpu).unwrap().unwrap();
    assert_eq!((saved.measured.losses.len(), saved.measured.accuracies.len()), (6, 1));
    assert_eq!(finish(&settings(parts.path(), None)), expected);
}

#[test]
fn the_optimizer_keeps_no_graph_of_a_step() {
    let weights = VarMap::new();
    let net = ResNet::new(&[4, 8], 3, &VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu)).unwrap();
    let mut sgd = Sgd::new(&weights).unwrap();
    let images = Tensor::ones((2, 3, 16, 16), DType::F32, &Device::Cpu).unwrap();
    let labels = Tensor::new(&[0i64, 2], &Device::Cpu).unwrap();
    let gradients = loss::cross_entropy(&net.forward(&images, true).unwrap(), &labels).unwrap().backward().unwrap();
    // The check below is meaningful only if candle's gradients keep the graph alive.
    assert!(sgd.variables().any(|(_, variable)| gradients.get(variable).is_some_and(Tensor::track_op)));
    sgd.step(&gradients, 0.1).unwrap();
    for (name, tensor) in sgd.state() {
        assert!(!tensor.track_op(), "{name} holds the graph of the step");
    }
}

#[test]
fn the_curve_shows_losses_and_accuracies() {
    let folder = tempfile::tempdir().unwrap();
    let measured = Measurements { losses: vec![2.0, 1.0, f32::NAN, 0.5], accuracies: vec![(2, 0.4), (4, 0.8)] };
    let path = folder.path().join("curve.png");
    curve::draw(&path, &measured).unwrap();
    let plot = image::open(&path).unwrap().to_rgb8();
    let count = |color: [u8; 3]| plot.pixels().filter(|pixel| pixel.0 == color).count();
    assert!(count([31, 96, 180]) > 500 && count([214, 96, 20]) > 500);
    // The last accuracy, 0.8, must be plotted at 80% of the plot's height.
    let (right, y) = (plot.width() - 64, (40.0 + (480.0 - 88.0) * 0.2_f64).round() as u32);
    assert_eq!(plot.get_pixel(right, y).0, [214, 96, 20]);
}
