//! Writes a crop of a JPEG to a PPM file:
//!
//! ```sh
//! cargo run --release -p warpfeed-jpeg --example crop -- photo.jpg 100 50 224 224 crop.ppm
//! ```

use std::error::Error;
use std::fs;

use warpfeed_jpeg::{Decoder, Jpeg, Pixels, Rect};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, numbers @ .., to] = &arguments[..] else {
        return Err("usage: crop FROM.jpg X Y WIDTH HEIGHT TO.ppm".into());
    };
    let numbers: Vec<u32> = numbers.iter().map(|number| number.parse()).collect::<Result<_, _>>()?;
    let [x, y, width, height] = numbers[..] else { return Err("expected four numbers: X Y WIDTH HEIGHT".into()) };

    let bytes = fs::read(from)?;
    let jpeg = Jpeg::open(&bytes)?;
    let mut pixels = Pixels::new();
    Decoder::new().decode(&jpeg, Rect::new(x, y, width, height), &mut pixels)?;
    if let Some(damage) = pixels.damage() {
        eprintln!("{from}: {damage}");
    }
    fs::write(to, [format!("P6 {width} {height} 255\n").as_bytes(), pixels.data()].concat())?;
    Ok(())
}
