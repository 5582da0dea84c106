//! The JPEG decoder on one core against libjpeg-turbo and the `image` crate (zune-jpeg): `cargo bench --bench jpeg`.
//!
//! `WARPFEED_PHOTOS` names a folder of JPEGs (class folders are looked into); without it pictures are made up. libjpeg-turbo is the
//! system's `libturbojpeg.so.0`, with its SIMD code; without it that column is empty. Packed files are the same coefficients with
//! restart markers, three to eight segments a row, and the standard Huffman tables. Crops are boxes of torchvision's
//! RandomResizedCrop; libjpeg-turbo decodes them from a bitstream cut down to the segments that the box needs, and in full.
//!
//! Numbers are medians of five turns, in microseconds of this thread's processor time for a picture.

#[path = "../tests/libjpeg/mod.rs"]
mod libjpeg;

use std::ffi::{c_int, c_ulong, c_void};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use warpfeed::decode::jpeg::Jpeg;
use warpfeed::decode::{Decode, Job, Pixels, Rect, Size, Want};

const TURNS: usize = 5;
/// Pictures in a call of `decode_group`.
const GROUP: usize = 16;

fn main() {
    if std::env::var_os("WARPFEED_JPEG").is_some() {
        return measure();
    }
    // A backend is chosen once a thread, so that each gets a process.
    for backend in ["scalar", "avx2", "avx512"] {
        println!("\n{backend} (or the best that this processor has, if not that)");
        let this = std::env::current_exe().expect("the benchmark's own path");
        Command::new(this).env("WARPFEED_JPEG", backend).status().expect("the benchmark starts");
    }
}

struct Picture {
    plain: Vec<u8>,
    packed: Vec<u8>,
    size: Size,
    crop: Rect,
    /// The packed bitstream cut down to the crop, and its size.
    cut: (Vec<u8>, Size),
}

fn measure() {
    let pictures = pictures();
    let turbo = Turbo::open();
    let mut samples = Vec::new();
    let mut outs = vec![Pixels::new(); GROUP];
    let full = |p: &Picture| Rect::full(p.size);
    let one =
        |out: &mut Pixels, bytes: &[u8], region| Jpeg.decode(bytes, Want::exact(region), out).expect("it decodes");
    let rival = |samples: &mut Vec<u8>, bytes: &[u8], size| {
        if let Some(turbo) = &turbo {
            turbo.decode(bytes, size, samples);
        }
    };

    let mut rows: Vec<(&str, Vec<f64>)> = [
        "libjpeg-turbo, plain, full",
        "libjpeg-turbo, packed, cut to the crop",
        "image (zune-jpeg), plain, full",
        "plain, full",
        "plain, full, in groups",
        "plain, crop",
        "packed, full",
        "packed, full, in groups",
        "packed, crop",
        "packed, crop, in groups",
    ]
    .map(|name| (name, Vec::new()))
    .into();
    for _ in 0..TURNS {
        let mut row = rows.iter_mut();
        let mut time = |body: &mut dyn FnMut()| {
            let before = processor_time();
            body();
            let took = (processor_time() - before).as_secs_f64() * 1e6 / pictures.len() as f64;
            row.next().expect("a row for each measurement").1.push(took);
        };
        time(&mut || pictures.iter().for_each(|p| rival(&mut samples, &p.plain, p.size)));
        time(&mut || pictures.iter().for_each(|p| rival(&mut samples, &p.cut.0, p.cut.1)));
        time(&mut || {
            for p in &pictures {
                let picture =
                    image::load_from_memory_with_format(&p.plain, image::ImageFormat::Jpeg).expect("it decodes");
                assert_eq!(picture.into_rgb8().width(), p.size.width);
            }
        });
        time(&mut || pictures.iter().for_each(|p| one(&mut outs[0], &p.plain, full(p))));
        time(&mut || grouped(&pictures, &mut outs, |p| (&p.plain, full(p))));
        time(&mut || pictures.iter().for_each(|p| one(&mut outs[0], &p.plain, p.crop)));
        time(&mut || pictures.iter().for_each(|p| one(&mut outs[0], &p.packed, full(p))));
        time(&mut || grouped(&pictures, &mut outs, |p| (&p.packed, full(p))));
        time(&mut || pictures.iter().for_each(|p| one(&mut outs[0], &p.packed, p.crop)));
        time(&mut || grouped(&pictures, &mut outs, |p| (&p.packed, p.crop)));
    }
    let medians: Vec<f64> = rows
        .iter_mut()
        .map(|(_, times)| {
            times.sort_by(f64::total_cmp);
            times[TURNS / 2]
        })
        .collect();
    println!("{:40} {:>8} {:>14} {:>14}", "", "us", "x turbo full", "x turbo cut");
    for ((name, _), median) in rows.iter().zip(&medians) {
        println!("{name:40} {median:8.1} {:14.2} {:14.2}", medians[0] / median, medians[1] / median);
    }
}

fn grouped<'a>(pictures: &'a [Picture], outs: &mut [Pixels], what: impl Fn(&'a Picture) -> (&'a [u8], Rect)) {
    for chunk in pictures.chunks(GROUP) {
        let job = |(p, out)| {
            let (bytes, region) = what(p);
            Job { bytes, want: Want::exact(region), out, result: Ok(()) }
        };
        let mut jobs: Vec<Job<'_>> = chunk.iter().zip(&mut *outs).map(job).collect();
        Jpeg.decode_group(&mut jobs);
        assert!(jobs.iter().all(|job| job.result.is_ok()));
    }
}

fn pictures() -> Vec<Picture> {
    let mut random = Random(1);
    let mut files = Vec::new();
    match std::env::var_os("WARPFEED_PHOTOS") {
        Some(folder) => {
            walk(folder.as_ref(), &mut files);
            files.sort();
            let step = files.len().div_ceil(160).max(1);
            files = files.into_iter().step_by(step).collect();
        }
        None => files.extend((0..24).map(|_| made_up(&mut random))),
    }
    let pictures: Vec<Picture> = files.into_iter().filter_map(|plain| Picture::new(plain, &mut random)).collect();
    assert!(!pictures.is_empty(), "no baseline JPEGs found");
    let mean = |of: fn(&Picture) -> usize| pictures.iter().map(of).sum::<usize>() / pictures.len();
    println!(
        "{} pictures of {} bytes, packed {}, cut to crops {}",
        pictures.len(),
        mean(|p| p.plain.len()),
        mean(|p| p.packed.len()),
        mean(|p| p.cut.0.len())
    );
    pictures
}

fn walk(folder: &Path, files: &mut Vec<Vec<u8>>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() { walk(&path, files) } else { files.push(std::fs::read(&path).expect("the file can be read")) }
    }
}

/// Shapes and noise, of about as many bytes a pixel as photographs.
fn made_up(random: &mut Random) -> Vec<u8> {
    let (width, height) = (500, 375);
    let mut pixels = vec![0; width * height * 3];
    for (i, sample) in pixels.iter_mut().enumerate() {
        let (x, y) = (i / 3 % width, i / 3 / width);
        *sample = ((x / 3 + y / 2 + (x / 40 * y / 50) * 70) as f64 + 22.0 * random.unit()) as u8;
    }
    libjpeg::encode(&pixels, width as u32, height as u32, 3, &libjpeg::Options::new(92, 1, 1))
}

impl Picture {
    fn new(plain: Vec<u8>, random: &mut Random) -> Option<Picture> {
        let size = Jpeg.size(&plain).ok()?;
        let marked = libjpeg::with_restarts(&plain, 1, false).ok()?;
        let frame = marker(&marked, 0xc0)?;
        // Turned pictures are left out: the cut below is in stored pixels.
        let stored = Size::new(u16_at(&marked, frame + 7), u16_at(&marked, frame + 5));
        let parts = usize::from(marked[frame + 9]);
        let factor = |i: usize| if parts == 1 { 0x11 } else { marked[frame + 11 + 3 * i] };
        let mcu = (0..parts).fold((8, 8), |m, i| (m.0.max(8 * (factor(i) >> 4)), m.1.max(8 * (factor(i) & 15))));
        let mcu = (u32::from(mcu.0), u32::from(mcu.1));
        let across = size.width.div_ceil(mcu.0);
        let fits = |k: &u32| across.is_multiple_of(*k) && (3..=8).contains(&(across / k));
        let interval = (1..=across).find(fits).unwrap_or(across);
        let packed = libjpeg::with_restarts(&plain, interval, false).ok()?;
        if stored != size {
            return None;
        }
        let crop = random.crop(size);
        let cut = cut(&packed, frame, size, mcu, interval, crop);
        Some(Picture { plain, packed, size, crop, cut })
    }
}

/// The file with only the segments that `crop` needs, and one MCU around it where chroma is subsampled.
fn cut(jpeg: &[u8], frame: usize, size: Size, mcu: (u32, u32), interval: u32, crop: Rect) -> (Vec<u8>, Size) {
    let scan = marker(jpeg, 0xda).expect("a file has a scan");
    let data = scan + 2 + u16_at(jpeg, scan + 2) as usize;
    let (mut segments, mut from) = (Vec::new(), data);
    for at in (data..jpeg.len() - 1).filter(|&i| jpeg[i] == 0xff && jpeg[i + 1] != 0) {
        segments.push(&jpeg[from..at]);
        from = at + 2;
    }
    let margin = u32::from(mcu != (8, 8));
    let reach = |from: u32, count: u32, step: u32, all: u32| {
        ((from / step).saturating_sub(margin), ((from + count - 1) / step + 1 + margin).min(all.div_ceil(step)))
    };
    let (left, right) = reach(crop.x, crop.width, mcu.0, size.width);
    let (top, bottom) = reach(crop.y, crop.height, mcu.1, size.height);
    let (first, last) = (left / interval, (right - 1) / interval);
    let columns = size.width.div_ceil(mcu.0) / interval;
    let width = ((last + 1) * interval * mcu.0).min(size.width) - first * interval * mcu.0;
    let height = (bottom * mcu.1).min(size.height) - top * mcu.1;
    let mut out = jpeg[..data].to_vec();
    out[frame + 5..frame + 7].copy_from_slice(&(height as u16).to_be_bytes());
    out[frame + 7..frame + 9].copy_from_slice(&(width as u16).to_be_bytes());
    let kept = (top..bottom).flat_map(|row| (first..=last).map(move |column| row * columns + column));
    for (i, segment) in kept.enumerate() {
        if i > 0 {
            out.extend([0xff, 0xd0 + ((i - 1) % 8) as u8]);
        }
        out.extend(segments[segment as usize]);
    }
    out.extend([0xff, 0xd9]);
    (out, Size::new(width, height))
}

/// Where the first segment with `marker` begins.
fn marker(jpeg: &[u8], marker: u8) -> Option<usize> {
    let mut at = 2;
    while jpeg.get(at + 3).is_some() && jpeg[at + 1] != marker {
        at += 2 + u16_at(jpeg, at + 2) as usize;
    }
    (jpeg.get(at + 1) == Some(&marker)).then_some(at)
}

fn u16_at(bytes: &[u8], at: usize) -> u32 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]]).into()
}

struct Random(u64);

impl Random {
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    /// torchvision's RandomResizedCrop: 0.08 to 1 of the area, aspect ratio 3/4 to 4/3.
    fn crop(&mut self, size: Size) -> Rect {
        for _ in 0..10 {
            let area = size.area() as f64 * (0.08 + 0.92 * self.unit());
            let ratio = ((4.0f64 / 3.0).ln() * (2.0 * self.unit() - 1.0)).exp();
            let (width, height) = ((area * ratio).sqrt().round() as u32, (area / ratio).sqrt().round() as u32);
            if (1..=size.width).contains(&width) && (1..=size.height).contains(&height) {
                let place = |left: u32, unit: f64| ((left + 1) as f64 * unit) as u32;
                let (x, y) = (place(size.width - width, self.unit()), place(size.height - height, self.unit()));
                return Rect::new(x, y, width, height);
            }
        }
        Rect::full(size)
    }
}

/// The system's libjpeg-turbo.
struct Turbo {
    decompress:
        unsafe extern "C" fn(*mut c_void, *const u8, c_ulong, *mut u8, c_int, c_int, c_int, c_int, c_int) -> c_int,
    handle: *mut c_void,
    _library: libloading::Library,
}

#[allow(unsafe_code)]
impl Turbo {
    fn open() -> Option<Turbo> {
        // SAFETY: the library is libjpeg-turbo's, whose turbojpeg.h declares these functions so; it is kept with the pointers.
        unsafe {
            let library = libloading::Library::new("libturbojpeg.so.0").ok()?;
            let init = library.get::<unsafe extern "C" fn() -> *mut c_void>(b"tjInitDecompress\0").ok()?;
            let handle = init();
            let decompress = *library.get(b"tjDecompress2\0").ok()?;
            Some(Turbo { decompress, handle, _library: library })
        }
    }

    fn decode(&self, jpeg: &[u8], size: Size, rgb: &mut Vec<u8>) {
        rgb.resize(size.area() as usize * 3, 0);
        let (width, height) = (size.width as c_int, size.height as c_int);
        // SAFETY: the handle is live, and `rgb` holds `height` rows of `width` pixels.
        unsafe {
            (self.decompress)(
                self.handle,
                jpeg.as_ptr(),
                jpeg.len() as c_ulong,
                rgb.as_mut_ptr(),
                width,
                0,
                height,
                0,
                0,
            );
        }
    }
}

#[allow(unsafe_code)]
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
