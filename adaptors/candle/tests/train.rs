//! Promise: the example `train` goes on in mid-epoch where it was stopped: a run in three parts has
//! the losses and the accuracy of a run that was never stopped, to the bit. The learning curve is
//! drawn.

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

use candle_core::Device;
use run::{Outcome, Settings};
use saved::Measured;
use warpfeed_cli::synth::Synth;

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

fn finish(settings: &Settings) -> Measured {
    match run::run(settings).unwrap() {
        Outcome::Finished(measured) => measured,
        Outcome::Stopped => panic!("it stopped"),
    }
}

#[test]
fn a_run_in_three_parts_has_the_losses_of_one_that_was_never_stopped() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = finish(&settings(whole.path(), None));
    assert_eq!((expected.losses.len(), expected.accuracies.len()), (14, 2));
    // In the middle of the first epoch, and of the second.
    for stop in [3, 9] {
        assert!(matches!(run::run(&settings(parts.path(), Some(stop))).unwrap(), Outcome::Stopped));
    }
    assert_eq!(finish(&settings(parts.path(), None)), expected);
}

#[test]
fn the_curve_shows_losses_and_accuracies() {
    let folder = tempfile::tempdir().unwrap();
    let measured = Measured { losses: vec![2.0, 1.0, f32::NAN, 0.5], accuracies: vec![(2, 0.4), (4, 0.8)] };
    let path = folder.path().join("curve.png");
    curve::draw(&path, &measured).unwrap();
    let drawn = image::open(&path).unwrap().to_rgb8();
    let count = |colour: [u8; 3]| drawn.pixels().filter(|pixel| pixel.0 == colour).count();
    assert!(count([31, 96, 180]) > 500 && count([214, 96, 20]) > 500);
    // The last accuracy, 80 %, is where the axis has it.
    let (right, y) = (drawn.width() - 64, (40.0 + (480.0 - 88.0) * 0.2_f64).round() as u32);
    assert_eq!(drawn.get_pixel(right, y).0, [214, 96, 20]);
}
