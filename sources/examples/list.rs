//! Prints the first samples of a dataset. Usage: `list PATH [COUNT]`.

use warpfeed_sources::{Error, Result, open};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or_else(|| Error::config("usage: list PATH [COUNT]"))?;
    let count = arguments.next().map_or(Ok(10), |count| count.parse());
    let count = count.map_err(|e| Error::config(format!("COUNT is not a number: {e}")))?;

    let source = open(&path)?;
    println!("{}: {} samples, {} classes", source.kind(), source.len(), source.classes().len());
    let mut scratch = Vec::new();
    for index in 0..source.len().min(count) {
        let sample = source.read(index, &mut scratch)?;
        print!("{index} {}", sample.key());
        if let Some(label) = sample.label()? {
            print!(", label {label}");
        }
        for (name, value) in sample.fields() {
            print!(", {name}: {} bytes", value.encoded(name).len());
        }
        println!();
    }
    Ok(())
}
