//! Trains a residual network with candle, on class folders, an LMDB or tar shards.
//!
//! ```text
//! cargo run --release --example train                                # generates images of six classes
//! cargo run --release --example train -- PATH [HELD_OUT_PATH]        # holds out a fifth of each class if there is no second path
//!     --out FOLDER  --epochs N  --side PIXELS  --batch N  --widths 12,24,48  --rate R  --workers N  --stop STEPS
//! cargo run --release --features cuda --example train -- PATH        # on the first GPU
//! ```
//!
//! The program writes `checkpoint.safetensors` and `curve.png` to FOLDER (default: `target/train`).
//! When the program is stopped and started again, it resumes after the last saved step, with the
//! batches of an uninterrupted run. On the CPU, it also has the same losses. After the last epoch,
//! it removes the checkpoint.
//!
//! Without a path, the program fails unless the held-out accuracy is well above chance.

mod curve;
mod net;
mod run;
mod saved;
mod sgd;

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use candle_core::Device;
use run::{Outcome, Result, Settings};
use warpfeed::source::{self, Source};
use warpfeed_synth::Synth;

/// Minimum held-out accuracy on the generated dataset. Guessing gives 0.17.
const MIN_ACCURACY: f64 = 0.6;

fn main() -> Result<()> {
    let arguments = Arguments::read()?;
    let generated = arguments.paths.is_empty();
    let data: Arc<dyn Source> = match arguments.paths.first() {
        Some(path) => source::open(path)?,
        None => Arc::new(Synth::new().images(1120).classes(6).side(64).memory()?),
    };
    let out = arguments.option("--out", PathBuf::from("target/train"))?;
    fs::create_dir_all(&out)?;
    let widths = arguments.option("--widths", "12,24,48".to_owned())?;
    let stop: usize = arguments.option("--stop", 0)?;
    let settings = Settings {
        data,
        held_out: arguments.paths.get(1).map(source::open).transpose()?,
        device: device()?,
        side: arguments.option("--side", 32)?,
        batch: arguments.option("--batch", 32)?,
        epochs: arguments.option("--epochs", 3)?,
        widths: widths.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?,
        rate: arguments.option("--rate", 0.05)?,
        workers: arguments.option("--workers", 0)?,
        checkpoint: out.join("checkpoint.safetensors"),
        save_every: 20,
        stop_after: (stop > 0).then_some(stop),
    };
    println!("{} samples of {} classes on {:?}", settings.data.len(), settings.data.classes().len(), settings.device);
    let began = Instant::now();
    let Outcome::Finished(measured) = run::run(&settings)? else {
        println!("stopped and saved; run the same command again to continue");
        return Ok(());
    };
    let image = out.join("curve.png");
    curve::draw(&image, &measured)?;
    fs::remove_file(&settings.checkpoint)?;
    println!("{:.0} s; the learning curve is {}", began.elapsed().as_secs_f64(), image.display());
    let accuracy = measured.accuracies.last().map_or(0.0, |&(_, share)| share);
    // This comparison is false for NaN.
    let learned = accuracy > MIN_ACCURACY;
    if generated && !learned {
        let (reached, expected) = (100.0 * accuracy, 100.0 * MIN_ACCURACY);
        return Err(format!("the held-out accuracy is {reached:.1}%: expected more than {expected:.1}%").into());
    }
    Ok(())
}

/// Returns the first GPU if there is one and the `cuda` feature is enabled, otherwise the CPU.
fn device() -> Result<Device> {
    #[cfg(feature = "cuda")]
    if warpfeed::cuda::available().is_ok() {
        return Ok(Device::new_cuda_with_stream(0)?);
    }
    Ok(Device::Cpu)
}

struct Arguments {
    paths: Vec<String>,
    options: Vec<(String, String)>,
}

impl Arguments {
    fn read() -> Result<Self> {
        let (mut paths, mut options) = (Vec::new(), Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if !word.starts_with("--") {
                paths.push(word);
                continue;
            }
            const KNOWN: [&str; 8] =
                ["--out", "--epochs", "--side", "--batch", "--widths", "--rate", "--workers", "--stop"];
            if !KNOWN.contains(&word.as_str()) {
                return Err(format!("unknown option {word}: expected one of {}", KNOWN.join(" ")).into());
            }
            let value = words.next().ok_or_else(|| format!("{word}: expected a value"))?;
            options.push((word, value));
        }
        Ok(Arguments { paths, options })
    }

    fn option<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        match self.options.iter().rfind(|(option, _)| option == name) {
            Some((_, value)) => Ok(value.parse().map_err(|_| format!("{name}: invalid value `{value}`"))?),
            None => Ok(default),
        }
    }
}
