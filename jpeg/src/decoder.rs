//! [`Decoder`] decodes several images interleaved. It starts jobs in order and keeps the lanes busy
//! with pieces of the images. An image is complete once its last band has been converted to pixels.

use std::ops::Range;

use crate::coefficients::{Coefficients, check_length};
use crate::compact::CompactCoefficients;
use crate::entropy::{LaneDecoder, MAX_RETAINED_BYTES};
use crate::error::{Error, Result, resize};
use crate::jpeg::Jpeg;
use crate::kernels::{Backend, Kernels};
use crate::lane_image::{BeginError, LaneImage, LanePiece};
use crate::layout::{MAX_COMPONENTS, Window};
use crate::orientation::Orientation;
use crate::pixels::{Pixels, Rect};
use crate::rows::{Blocks, RenderContext, RowConverter};

/// An image to decode with [`decode_group`](Decoder::decode_group).
#[derive(Debug)]
pub struct Job<'a> {
    /// The image to decode.
    pub jpeg: &'a Jpeg<'a>,
    /// The region to decode, in pixels of the upright image.
    pub region: Rect,
    /// The buffer that receives the pixels of the region.
    pub out: &'a mut Pixels,
    /// The result of decoding.
    pub result: Result<()>,
    /// The coefficients, if [`keep_coefficients`](Job::keep_coefficients) was called and stored
    /// them.
    pub coefficients: Option<CompactCoefficients>,
    max_coefficient_bytes: usize,
    /// The buffer that receives the pixels, or `None` to write to `out`.
    row_buffer: Option<&'a mut [u8]>,
}

impl<'a> Job<'a> {
    /// Creates a job to decode `region` of `jpeg` into `out`.
    #[inline]
    pub fn new(jpeg: &'a Jpeg<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job { jpeg, region, out, result: Ok(()), coefficients: None, max_coefficient_bytes: 0, row_buffer: None }
    }

    /// Stores the [coefficients](Job::coefficients), so that the image can be decoded again
    /// [without its Huffman codes](Jpeg::set_coefficients). Nothing is stored if the region is not
    /// the whole image, if the image is damaged or is decoded from coefficients, if the
    /// coefficients take more than `max_bytes` bytes, or if memory runs out.
    #[must_use]
    #[inline]
    pub fn keep_coefficients(mut self, max_bytes: usize) -> Self {
        self.max_coefficient_bytes = if self.region == Rect::full(self.jpeg.size()) { max_bytes } else { 0 };
        self
    }

    /// Returns the buffer for the pixels. [`ActiveImage::allocate_buffers`] must have been called.
    fn rgb(&mut self) -> &mut [u8] {
        match &mut self.row_buffer {
            Some(rows) => rows,
            None => self.out.data_mut(),
        }
    }
}

/// A decoder for use by one thread. It reuses its memory for the next image.
pub struct Decoder {
    backend: Backend,
    lane_decoder: LaneDecoder,
    active_images: Vec<ActiveImage>,
    idle_images: Vec<ActiveImage>,
    /// For each busy lane, its job and its piece.
    lanes: Vec<(usize, LanePiece)>,
    plain: PlainDecoder,
}

struct ActiveImage {
    job_index: usize,
    lane_image: LaneImage,
    /// The pixels before the EXIF orientation is applied. Unused for an upright image.
    stored_rgb: Vec<u8>,
    orientation: Orientation,
    region: Rect,
    busy_lanes: usize,
    is_damaged: bool,
    is_done: bool,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder::with_backend(Backend::choose())
    }
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("instructions", &self.backend.name()).finish_non_exhaustive()
    }
}

impl Decoder {
    /// Creates a decoder for the best instruction set of this CPU, or for the one that the
    /// `WARPFEED_JPEG` environment variable selects.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_backend(backend: Backend) -> Self {
        Decoder {
            backend,
            lane_decoder: LaneDecoder::new(backend.entropy()),
            active_images: Vec::new(),
            idle_images: Vec::new(),
            lanes: Vec::new(),
            plain: PlainDecoder::default(),
        }
    }

    /// Decodes `region` of an image into `out`. The region is in pixels of the upright image.
    ///
    /// # Errors
    /// If the region is empty or not inside the image, or if the file is truncated, too damaged or
    /// too large to be decoded, or has more than 256 scans. For most kinds of damage, the message
    /// states its position. After an error, the content of `out` is unspecified.
    ///
    /// # Panics
    /// If an allocation fails. The panic payload is an [`Error`].
    pub fn decode(&mut self, jpeg: &Jpeg<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let mut job = Job::new(jpeg, region, out);
        self.decode_group(std::slice::from_mut(&mut job));
        job.result
    }

    /// Decodes `region` of an image into `rows`, as RGB without padding between rows. Returns
    /// `false` if the region is empty or not inside the image, or if the file is progressive,
    /// damaged or unusual. [`decode`](Decoder::decode) supports more of these files.
    ///
    /// Several threads can decode adjacent rows of a [divisible](Jpeg::is_divisible) image into the
    /// same buffer.
    ///
    /// # Panics
    /// If `rows` does not have three bytes per pixel of the region, or if memory runs out, as in
    /// [`decode`](Decoder::decode).
    pub fn decode_rows(&mut self, jpeg: &Jpeg<'_>, region: Rect, rows: &mut [u8]) -> bool {
        assert_eq!(rows.len() as u64, region.size().area() * 3, "`rows` must have the size of {region:?}");
        let mut unused = Pixels::new();
        let mut job = Job { row_buffer: Some(rows), ..Job::new(jpeg, region, &mut unused) };
        self.decode_group(std::slice::from_mut(&mut job));
        job.result.is_ok()
    }

    /// Decodes several images interleaved, which is faster than decoding them one after the other.
    /// Each job receives its own result.
    ///
    /// ```
    /// use warpfeed_jpeg::{Decoder, Jpeg, Job, Pixels, Rect};
    ///
    /// # let mut bytes = Vec::new();
    /// # use jpeg_encoder::{ColorType, Encoder};
    /// # Encoder::new(&mut bytes, 90).encode(&[99; 96 * 64 * 3], 96, 64, ColorType::Rgb).unwrap();
    /// # let (one, two) = (&bytes, &bytes);
    /// let files = [Jpeg::open(one)?, Jpeg::open(two)?];
    /// let mut outs = [Pixels::new(), Pixels::new()];
    /// let job = |(jpeg, out)| Job::new(jpeg, Rect::full(Jpeg::size(jpeg)), out);
    /// let mut jobs: Vec<Job<'_>> = files.iter().zip(&mut outs).map(job).collect();
    /// Decoder::new().decode_group(&mut jobs);
    /// assert!(jobs.iter().all(|job| job.result.is_ok()));
    /// # Ok::<(), warpfeed_jpeg::Error>(())
    /// ```
    ///
    /// # Panics
    /// Same as [`decode`](Decoder::decode).
    pub fn decode_group(&mut self, jobs: &mut [Job<'_>]) {
        if !self.active_images.is_empty() {
            // The previous group panicked.
            *self = Decoder::with_backend(self.backend);
        }
        let mut next_job = 0;
        loop {
            while self.lane_decoder.has_free_lane() {
                if self.start_lane() {
                    continue;
                }
                if next_job == jobs.len() {
                    break;
                }
                match self.start_job(jobs, next_job) {
                    Ok(true) => next_job += 1,
                    Ok(false) => break,
                    Err(e) => {
                        jobs[next_job].result = Err(e);
                        next_job += 1;
                    }
                }
            }
            if self.lanes.is_empty() {
                debug_assert!(self.active_images.is_empty() && next_job == jobs.len());
                return;
            }
            self.lane_decoder.run();
            self.finish_lanes(jobs);
        }
    }

    /// Decodes a whole file and describes its first damage. Returns `None` if the file is intact,
    /// or if the image is decoded from [coefficients](Jpeg::set_coefficients). See [damaged
    /// files](crate#damaged-files) for what counts as damage.
    ///
    /// # Errors
    /// If the whole image cannot be decoded.
    pub fn damage(&mut self, jpeg: &Jpeg<'_>) -> Result<Option<String>> {
        if jpeg.coefficients.is_some() {
            return Ok(None);
        }
        let coefficients = &mut self.plain.coefficients;
        let result = coefficients.decode(jpeg.bytes, &jpeg.header);
        let damage = result.map(|()| coefficients.damage());
        coefficients.trim_to(MAX_RETAINED_BYTES);
        damage
    }

    /// Frees two kinds of buffers if they exceed `max_bytes` in total: the coefficients of whole
    /// images, and pixels to which the EXIF orientation has not been applied. Returns how many of
    /// their bytes remain allocated.
    pub fn trim_to(&mut self, max_bytes: usize) -> usize {
        let stored_bytes: usize = self.idle_images.iter().map(|image| image.stored_rgb.capacity()).sum();
        let retained_bytes = self.plain.coefficients.memory() + stored_bytes;
        if retained_bytes <= max_bytes {
            return retained_bytes;
        }
        self.plain.coefficients.trim_to(0);
        self.idle_images.iter_mut().for_each(|image| image.stored_rgb = Vec::new());
        0
    }

    /// Starts an idle lane on the next piece of an image. Returns `false` if no started image has a
    /// piece that can be decoded now.
    fn start_lane(&mut self) -> bool {
        for image in self.active_images.iter_mut().filter(|image| !image.is_damaged) {
            if let Some(lane_piece) = image.lane_image.start_piece(&mut self.lane_decoder) {
                image.busy_lanes += 1;
                self.lanes.push((image.job_index, lane_piece));
                return true;
            }
        }
        false
    }

    /// Starts a job. Returns `false` if the job must wait until other images are complete.
    fn start_job(&mut self, jobs: &mut [Job<'_>], index: usize) -> Result<bool> {
        let job = &mut jobs[index];
        let jpeg = job.jpeg;
        job.region.check_within(jpeg.size())?;
        check_length(jpeg.bytes, &jpeg.header)?;
        let mut image = self.idle_images.pop().unwrap_or_else(ActiveImage::new);
        let orientation = jpeg.orientation();
        image.region = orientation.stored_region(job.region, jpeg.layout.size);
        (image.job_index, image.orientation) = (index, orientation);
        (image.busy_lanes, image.is_damaged, image.is_done) = (0, false, false);
        if let Some(compact) = &jpeg.coefficients {
            self.plain.expand(self.backend, compact, &mut image, job);
            self.idle_images.push(image);
            return Ok(true);
        }
        // Only the plain decoder reads the whole file, so only it detects missing pixels outside
        // the region.
        let begin_result = if jpeg.has_eoi {
            image.lane_image.begin(&mut self.lane_decoder, self.backend, jpeg, image.region, job.max_coefficient_bytes)
        } else {
            Err(BeginError::NeedsPlainDecoder)
        };
        match begin_result {
            Ok(()) => {
                image.allocate_buffers(job);
                self.active_images.push(image);
            }
            Err(BeginError::Busy) => {
                self.idle_images.push(image);
                return Ok(false);
            }
            Err(BeginError::NeedsPlainDecoder) => {
                job.result = self.decode_plain(&mut image, job);
                self.idle_images.push(image);
            }
        }
        Ok(true)
    }

    fn finish_lanes(&mut self, jobs: &mut [Job<'_>]) {
        for lane in (0..self.lanes.len()).rev() {
            let Some(end_bit) = self.lane_decoder.finished_bit(lane) else { continue };
            self.lane_decoder.stop_lane(lane);
            let (job_index, lane_piece) = self.lanes.swap_remove(lane);
            let image = self
                .active_images
                .iter_mut()
                .find(|image| image.job_index == job_index)
                .expect("a lane's image is in flight");
            image.busy_lanes -= 1;
            if image.lane_image.finish_piece(&mut self.lane_decoder, lane_piece, end_bit).is_none() {
                image.is_damaged = true;
            }
            if !image.is_damaged {
                let (orientation, stored_rgb) = (image.orientation, &mut image.stored_rgb);
                let rgb = if orientation.is_upright() { jobs[job_index].rgb() } else { stored_rgb };
                image.is_done = image.lane_image.render(&self.lane_decoder, self.backend.kernels(), rgb);
            }
        }
        for i in (0..self.active_images.len()).rev() {
            let image = &self.active_images[i];
            if image.busy_lanes > 0 || !(image.is_done || image.is_damaged) {
                continue;
            }
            let mut image = self.active_images.remove(i);
            let coefficients = image.lane_image.take_coefficients();
            image.lane_image.end(&mut self.lane_decoder);
            let job = &mut jobs[image.job_index];
            job.result = if image.is_damaged {
                self.decode_plain(&mut image, job)
            } else {
                job.coefficients = coefficients;
                image.deliver(job);
                Ok(())
            };
            self.idle_images.push(image);
        }
    }

    fn decode_plain(&mut self, image: &mut ActiveImage, job: &mut Job<'_>) -> Result<()> {
        match job.row_buffer {
            None => self.plain.decode(self.backend, image, job),
            Some(_) => Err(Error::new("cannot decode rows separately: the jpeg is damaged or has an unusual format")),
        }
    }
}

impl ActiveImage {
    fn new() -> Self {
        ActiveImage {
            job_index: 0,
            lane_image: LaneImage::default(),
            stored_rgb: Vec::new(),
            orientation: Orientation::default(),
            region: Rect::new(0, 0, 0, 0),
            busy_lanes: 0,
            is_damaged: false,
            is_done: false,
        }
    }

    fn allocate_buffers(&mut self, job: &mut Job<'_>) {
        if job.row_buffer.is_none() {
            job.out.reset(job.region.size());
        }
        if !self.orientation.is_upright() {
            resize(&mut self.stored_rgb, job.rgb().len(), 0);
        }
    }

    fn deliver(&mut self, job: &mut Job<'_>) {
        if !self.orientation.is_upright() {
            self.orientation.apply(&self.stored_rgb, self.region.size(), job.rgb());
        }
        job.out.set_origin(job.region.x, job.region.y);
        job.result = Ok(());
    }
}

/// Decodes images without lanes, from a file or from [`CompactCoefficients`].
#[derive(Default)]
struct PlainDecoder {
    coefficients: Coefficients,
    expanded: Vec<i16>,
    row_converter: RowConverter,
}

impl PlainDecoder {
    fn decode(&mut self, backend: Backend, image: &mut ActiveImage, job: &mut Job<'_>) -> Result<()> {
        let result = self.coefficients.decode(job.jpeg.bytes, &job.jpeg.header);
        if result.is_ok() {
            let (planes, damage) = (self.coefficients.planes(), self.coefficients.damage());
            let quant = std::array::from_fn(|i| planes.get(i).map_or([0; 64], |plane| plane.quant));
            let max_coefficient_bytes = if damage.is_none() { job.max_coefficient_bytes } else { 0 };
            render(
                backend,
                &mut self.row_converter,
                (image, job),
                (&mut self.coefficients, &quant),
                max_coefficient_bytes,
            );
            job.coefficients = self.row_converter.take_coefficients(&quant);
            job.out.set_damage(damage);
        }
        self.coefficients.trim_to(MAX_RETAINED_BYTES);
        result
    }

    fn expand(&mut self, backend: Backend, compact: &CompactCoefficients, image: &mut ActiveImage, job: &mut Job<'_>) {
        let mut blocks = ExpandedBlocks { compact, kernels: backend.kernels(), row: &mut self.expanded };
        render(backend, &mut self.row_converter, (image, job), (&mut blocks, &compact.quant), 0);
    }
}

fn render<B: Blocks>(
    backend: Backend,
    row_converter: &mut RowConverter,
    (image, job): (&mut ActiveImage, &mut Job<'_>),
    (blocks, quant): (&mut B, &[[u16; 64]; MAX_COMPONENTS]),
    max_coefficient_bytes: usize,
) {
    let layout = &job.jpeg.layout;
    let window = Window::new(layout, image.region);
    image.allocate_buffers(job);
    let rgb = if image.orientation.is_upright() { job.rgb() } else { &mut image.stored_rgb };
    let context = RenderContext { kernels: backend.kernels(), layout, window: &window, quant };
    row_converter.begin(layout, &window, max_coefficient_bytes);
    for row in window.rows.clone() {
        row_converter.convert_mcu_row(&context, row, blocks, rgb);
    }
    image.deliver(job);
}

impl Blocks for Coefficients {
    const IS_ZIGZAG: bool = false;

    fn locate(&mut self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16] {
        let plane = &self.planes()[index];
        offsets.extend(columns.map(|column| (row * plane.blocks_per_row as u32 + column) * 64));
        &plane.coefficients
    }
}

/// Expands the coefficients of a row of blocks just before the row is rendered.
struct ExpandedBlocks<'a> {
    compact: &'a CompactCoefficients,
    kernels: &'a Kernels,
    row: &'a mut Vec<i16>,
}

impl Blocks for ExpandedBlocks<'_> {
    const IS_ZIGZAG: bool = true;

    fn locate(&mut self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16] {
        offsets.extend((0..columns.len() as u32).map(|block| 64 * block));
        self.compact.expand(self.kernels, (index, row), columns, self.row)
    }
}
