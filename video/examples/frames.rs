//! Measures how many frames per second are decoded to RGB:
//!
//!     cargo run --release -p warpfeed-video --features av1,re_rav1d/asm --example frames -- clip.mp4 2
//!
//! The second argument is the number of threads. The `av1` feature decodes AV1. With the `nvdec`
//! feature, a GPU decodes H.264, HEVC and VP9. Prints the frame rate for sequential decoding, for
//! random frames, and for random clips of eight frames. The first rate is for decoding alone,
//! without a conversion to RGB: each thread decodes the file from its first frame to its last.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use warpfeed_video::record::{Record, start};
use warpfeed_video::rgb::{Scratch, to_rgb};
use warpfeed_video::{FrameDecoder, Track, open};

fn record(file: &[u8], track: &Track, frame: usize, to: &mut Vec<u8>) {
    to.clear();
    let needed = track.needed(frame);
    start(track.config(), 1, "", needed.len() as u32, to).expect("every codec that `open` accepts can be recorded");
    for packet in needed {
        to.extend(packet.size.to_le_bytes());
        to.extend(&file[packet.offset as usize..][..packet.size as usize]);
    }
}

/// Decodes runs of frames on several threads, and returns the number of frames per second.
fn rate(file: &[u8], track: &Track, threads: usize, runs: &[std::ops::Range<usize>], convert: bool) -> f64 {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut decoder, mut scratch) = (FrameDecoder::new(1 << 28, 0), Scratch::default());
                let (mut bytes, mut out) = (Vec::new(), Vec::new());
                while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for frame in run.clone() {
                        record(file, track, frame, &mut bytes);
                        let record = Record::parse(&bytes).expect("it was just written");
                        let area = (0, 0, record.width as usize, record.height as usize);
                        out.resize(area.2 * area.3 * 3, 0);
                        let shown = decoder.decode(&record, |planes| {
                            if convert { to_rgb(planes, area, &mut scratch, &mut out) } else { Ok(()) }
                        });
                        shown.expect("the video is intact");
                    }
                }
            });
        }
    });
    runs.iter().map(|run| run.len()).sum::<usize>() as f64 / begin.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("expected the path of a video")?;
    let threads = arguments.next().map_or(Ok(1), |threads| threads.parse())?;
    let file = std::fs::read(path)?;
    let track = open(&file)?;
    let frames = track.len();
    let mut seed = 0x9e37_79b9_u64;
    let mut random = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % end.max(1)
    };
    println!("decoding alone: {:.0} frames/s", rate(&file, &track, threads, &vec![0..frames; threads * 4], false));
    // Consecutive runs of eight frames.
    let order: Vec<_> = (0..frames).step_by(8).map(|first| first..frames.min(first + 8)).collect();
    let single: Vec<_> = (0..frames).map(|_| random(frames)).map(|frame| frame..frame + 1).collect();
    let clips: Vec<_> = (0..frames / 8).map(|_| random(frames - 7)).map(|first| first..first + 8).collect();
    for (name, runs) in [("in order", order), ("random frames", single), ("random clips of 8 frames", clips)] {
        println!("{name}: {:.0} frames/s", rate(&file, &track, threads, &runs, true));
    }
    Ok(())
}
