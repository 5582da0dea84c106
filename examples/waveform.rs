//! A custom field type: one second of sound, cropped at random from WAV files.
//!
//! ```text
//! cargo run --example waveform
//! ```
//!
//! The program writes a small tar of WAV files and loads it. It checks that the crops are the same
//! for any number of workers, and after resuming.

use std::collections::BTreeMap;

use warpfeed::batch::{Dtype, Field};
use warpfeed::decode::Size;
use warpfeed::field::{FieldType, Input, RowMut};
use warpfeed::pack::{DatasetWriter, TarWriter, WriteOptions};
use warpfeed::source::Sample;
use warpfeed::{Checkpoint, Error, HostBatch, Loader, Result};

/// A field with a random crop of `length` samples of the `wav` field, as f32 from -1 to 1.
#[derive(Debug)]
struct Waveform {
    length: usize,
}

impl FieldType for Waveform {
    fn describe_arrays(&self, name: &str, _output_size: Size) -> Result<Vec<Field>> {
        Ok(vec![Field { name: name.to_owned(), dtype: Dtype::F32, shape: vec![self.length] }])
    }

    fn write(&self, input: &Input<'_>, row: &mut RowMut<'_>) -> Result<()> {
        let Some(wav) = input.sample.field("wav") else {
            return Err(Error::in_source("the sample has no field \"wav\""));
        };
        let sound = samples(&wav)?;
        let Some(spare) = sound.len().checked_sub(self.length) else {
            let actual = sound.len();
            return Err(Error::decode(format!("the wav has {actual} samples: expected at least {}", self.length)));
        };
        let start = input.rng().below(spare as u64 + 1) as usize;
        for (to, from) in row.bytes(0).as_chunks_mut::<4>().0.iter_mut().zip(&sound[start..]) {
            *to = (f32::from(i16::from_le_bytes(*from)) / 32768.0).to_ne_bytes();
        }
        Ok(())
    }
}

/// Returns the samples of a WAV file with one 16-bit channel.
fn samples(wav: &[u8]) -> Result<&[[u8; 2]]> {
    let mut rest = match wav.split_at_checked(12) {
        Some((head, rest)) if head.starts_with(b"RIFF") && head.ends_with(b"WAVE") => rest,
        _ => return Err(Error::decode(format!("the wav has {} bytes, but no WAV header", wav.len()))),
    };
    let mut format: Option<&[u8; 16]> = None;
    // A chunk consists of its name, the length of its content, and the content, padded to an even
    // number of bytes.
    while let Some((&[a, b, c, d, e, f, g, h], content)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes([e, f, g, h]) as usize;
        let Some(chunk) = content.get(..length) else {
            return Err(Error::decode(format!("the wav ends after {} of {length} bytes of a chunk", content.len())));
        };
        match (&[a, b, c, d], format) {
            (b"fmt ", _) => format = chunk.first_chunk::<16>(),
            // PCM with one channel. The last two bytes contain the number of bits.
            (b"data", Some([1, 0, 1, 0, .., 16, 0])) => return Ok(chunk.as_chunks().0),
            (b"data", other) => {
                return Err(Error::decode(format!(
                    "the wav has the format {other:?}: expected 16-bit PCM with one channel"
                )));
            }
            _ => {}
        }
        rest = content.get(length.next_multiple_of(2)..).unwrap_or_default();
    }
    Err(Error::decode("the wav contains no sound"))
}

/// Returns a WAV file in which the sample values count from 0 to `length` - 1.
fn wav(length: u16) -> Vec<u8> {
    let bytes = u32::from(length) * 2;
    let mut wav = [*b"RIFF", (bytes + 36).to_le_bytes(), *b"WAVE", *b"fmt ", 16_u32.to_le_bytes()].concat();
    wav.extend([1, 0, 1, 0]); // PCM, one channel
    wav.extend([16_000_u32, 32_000].map(u32::to_le_bytes).concat()); // samples and bytes per second
    wav.extend([2, 0, 16, 0]); // bytes and bits per sample
    wav.extend([*b"data", bytes.to_le_bytes()].concat());
    wav.extend((0..length).flat_map(u16::to_le_bytes));
    wav
}

/// Returns the start of each sample's crop, and checks that the values count up from there.
fn starts(batches: impl Iterator<Item = Result<HostBatch>>) -> Result<BTreeMap<u64, u16>> {
    let mut starts = BTreeMap::new();
    for batch in batches {
        let batch = batch?;
        let waves = batch.field("wave").expect("the loader has this field"); // (N, 16000)
        let waves = waves.as_f32().expect("the field is f32");
        for (id, wave) in batch.ids().zip(waves.chunks(16_000)) {
            let start = (wave[0] * 32768.0) as u16;
            assert!(wave.iter().zip(start..).all(|(&value, sample)| value == f32::from(sample) / 32768.0));
            starts.insert(id, start);
        }
    }
    Ok(starts)
}

fn main() -> Result<()> {
    let tar = std::env::temp_dir().join(format!("warpfeed-sounds-{}.tar", std::process::id()));
    let mut writer = TarWriter::create(&tar, &WriteOptions::default())?;
    for number in 0..48_u16 {
        let (key, wav) = (format!("sound-{number:02}"), wav(20_000 + 100 * number));
        writer.put(&Sample::new(&key).with_field("wav", &wav)?.with_label(number.into()))?;
    }
    Box::new(writer).finish()?;

    let open = |workers: usize| {
        let loader = Loader::new(&tar).drop_field("image").field("wave", Waveform { length: 16_000 });
        loader.batch_size(8).shuffle(42).workers(workers)
    };
    let mut batches = open(1).host()?;
    let first = starts(batches.epoch(0))?;
    assert_eq!(first.len(), 48);
    assert!(first.iter().all(|(id, &start)| u64::from(start) <= 4_000 + 100 * id));
    assert_ne!(starts(batches.epoch(1))?, first, "a different epoch must have different crops");
    assert_eq!(starts(open(4).host()?.epoch(0))?, first, "the crops must not depend on the number of workers");

    let mut batches = open(2).host()?;
    let mut epoch = batches.epoch(0);
    let mut ids = starts(epoch.by_ref().take(2))?;
    let checkpoint: Checkpoint = epoch.checkpoint();
    let mut resumed = open(3).resume(checkpoint).host()?;
    ids.extend(starts(resumed.epoch(0))?);
    assert_eq!(ids, first, "a resumed run must have the same crops");

    // Workers may already be preparing the next epoch, so the stage counts at least the 32 samples
    // that this run delivered.
    let stats = resumed.stats();
    assert_eq!(stats.samples, 32);
    assert!(stats.fields["wave"].count >= stats.samples);
    println!("{stats}");
    std::fs::remove_file(&tar).map_err(|e| Error::io(&tar, &e))
}
