//! Measures how many frames per second are decoded to RGB:
//!
//!     cargo run --release -p warpfeed-video --features av1,re_rav1d/asm --example frames -- clip.mp4 2
//!
//! The second argument is the number of threads, and an optional third argument the number of
//! repetitions. The `av1` feature decodes AV1. With the `nvdec` feature, a GPU decodes H.264, HEVC
//! and VP9.
//!
//! Prints the frame rate for sequential decoding of the whole file without a conversion to RGB. Then
//! prints it with conversion for sequential decoding, for random frames, and for random clips of
//! eight frames.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use warpfeed_video::record::{Record, write_header};
use warpfeed_video::rgb::{Scratch, to_rgb};
use warpfeed_video::{FrameDecoder, Track, open};

const MAX_PIXELS: u32 = 1 << 28;

fn record(file: &[u8], track: &Track, frame: usize, out: &mut Vec<u8>) {
    out.clear();
    let needed = track.packets_for(frame);
    write_header(track.config(), 1, "", needed.len() as u32, out)
        .expect("every codec that `open` accepts can be recorded");
    for packet in needed {
        out.extend(packet.size.to_le_bytes());
        out.extend(&file[packet.offset as usize..][..packet.size as usize]);
    }
}

fn frames_per_second(file: &[u8], track: &Track, threads: usize, runs: &[Range<usize>], convert: bool) -> f64 {
    let next = AtomicUsize::new(0);
    let start_time = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut decoder, mut scratch) = (FrameDecoder::new(MAX_PIXELS, 0), Scratch::default());
                let (mut bytes, mut out) = (Vec::new(), Vec::new());
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bytes.resize(bytes.len().max(run.len()), Vec::new());
                    run.clone().zip(&mut bytes).for_each(|(frame, bytes)| record(file, track, frame, bytes));
                    let records = bytes[..run.len()].iter().map(|bytes| Record::parse(bytes));
                    let records: Vec<_> = records.collect::<Result<_, _>>().expect("they were just written");
                    for (index, record) in records.iter().enumerate() {
                        let area = (0, 0, record.width as usize, record.height as usize);
                        out.resize(area.2 * area.3 * 3, 0);
                        let result = decoder.decode(record, &records[index + 1..], |planes| {
                            if convert { to_rgb(planes, area, &mut scratch, &mut out) } else { Ok(()) }
                        });
                        result.expect("the video is intact");
                    }
                    decoder.release_gpu_decoder();
                }
            });
        }
    });
    runs.iter().map(|run| run.len()).sum::<usize>() as f64 / start_time.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected the path of a video")?;
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let repeats = arguments.next().map_or(Ok(1), |repeats| repeats.parse())?;
    let file = std::fs::read(path)?;
    let track = open(&file)?;
    let frames = track.len();
    let mut seed = 0x9e37_79b9_u64;
    let mut random = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % end.max(1)
    };
    // Keep this decoder alive, so that the GPU's decoders are not destroyed.
    let (mut first, mut bytes) = (FrameDecoder::new(MAX_PIXELS, 0), Vec::new());
    record(&file, &track, 0, &mut bytes);
    first.decode(&Record::parse(&bytes)?, &[], |_| Ok(()))?;
    first.release_gpu_decoder();
    let sequential: Vec<_> = (0..frames).step_by(8).map(|first| first..frames.min(first + 8)).collect();
    let single: Vec<_> = (0..frames).map(|_| random(frames)).map(|frame| frame..frame + 1).collect();
    let clips: Vec<_> = (0..frames / 8).map(|_| random(frames - 7)).map(|first| first..first + 8).collect();
    let measurements = [
        ("decoding alone", vec![0..frames; threads * 4], false),
        ("in order", sequential, true),
        ("random frames", single, true),
        ("random clips of 8 frames", clips, true),
    ];
    for (name, runs, convert) in measurements {
        let repeated = vec![&runs[..]; repeats].concat();
        println!("{name}: {:.0} frames/s", frames_per_second(&file, &track, threads, &repeated, convert));
    }
    Ok(())
}
