//! Decodes images side by side. The decoder takes jobs in turn, keeps the lanes busy with pieces
//! of the images, and delivers each image once its last band has become pixels.

use std::ops::Range;

use crate::coefficients::{Coefficients, check_length};
use crate::entropy::{KEPT_BYTES, Machine};
use crate::error::{Result, resize};
use crate::jpeg::Jpeg;
use crate::kernels::Backend;
use crate::layout::Window;
use crate::orientation::Orientation;
use crate::pixels::{Pixels, Rect};
use crate::rows::{Blocks, Rows, View};
use crate::transit::{Refusal, Ticket, Transit};

/// One image of a [`decode_group`](Decoder::decode_group) call, with the region to decode.
#[derive(Debug)]
pub struct Job<'a> {
    /// The image to decode.
    pub jpeg: &'a Jpeg<'a>,
    /// The region to decode, in pixels of the upright image.
    pub region: Rect,
    /// Receives the pixels of the region.
    pub out: &'a mut Pixels,
    /// The result of decoding.
    pub result: Result<()>,
}

impl<'a> Job<'a> {
    /// Creates a job.
    #[inline]
    pub fn new(jpeg: &'a Jpeg<'a>, region: Rect, out: &'a mut Pixels) -> Self {
        Job { jpeg, region, out, result: Ok(()) }
    }
}

/// Decodes the images of one thread. Its memory is reused from image to image.
pub struct Decoder {
    backend: Backend,
    machine: Machine,
    flights: Vec<Flight>,
    idle: Vec<Flight>,
    /// The job and the piece of it that each busy lane is decoding.
    lanes: Vec<(usize, Ticket)>,
    plain: Plain,
}

/// An image that has been started and not yet delivered.
struct Flight {
    job: usize,
    transit: Transit,
    /// The image before it is turned upright; unused if it already is.
    stored: Vec<u8>,
    orientation: Orientation,
    region: Rect,
    /// Number of lanes that decode this image.
    lanes: usize,
    damaged: bool,
    done: bool,
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
    /// Creates a decoder for the best instruction set of this core. Allocates little: memory
    /// grows with the images.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn with_backend(backend: Backend) -> Self {
        Decoder {
            backend,
            machine: Machine::new(backend.entropy()),
            flights: Vec::new(),
            idle: Vec::new(),
            lanes: Vec::new(),
            plain: Plain::default(),
        }
    }

    /// Decodes `region` of an image into `out`. The region is in pixels of the upright image.
    ///
    /// # Errors
    /// That name the place in the file, or if the region is empty or leaves the image. The
    /// content of `out` is then unspecified.
    pub fn decode(&mut self, jpeg: &Jpeg<'_>, region: Rect, out: &mut Pixels) -> Result<()> {
        let mut job = Job::new(jpeg, region, out);
        self.decode_group(std::slice::from_mut(&mut job));
        job.result
    }

    /// Decodes several images side by side, which is faster than one after the other. Each job
    /// gets its own result, and the pixels that it gets alone.
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
    pub fn decode_group(&mut self, jobs: &mut [Job<'_>]) {
        if !self.flights.is_empty() {
            // The previous group was cut short by a panic, which is a bug here.
            *self = Decoder::with_backend(self.backend);
        }
        let mut next = 0;
        loop {
            while self.machine.has_room() {
                if self.start() {
                    continue;
                }
                if next == jobs.len() {
                    break;
                }
                match self.take(jobs, next) {
                    Ok(true) => next += 1,
                    Ok(false) => break,
                    Err(e) => {
                        jobs[next].result = Err(e);
                        next += 1;
                    }
                }
            }
            if self.lanes.is_empty() {
                debug_assert!(self.flights.is_empty() && next == jobs.len());
                return;
            }
            self.machine.run();
            self.land(jobs);
        }
    }

    /// Reads all of a file and describes its damage, with its place. `None` if it has none. The
    /// [crate](crate#a-file-that-is-damaged-inside) lists what counts as damage.
    ///
    /// # Errors
    /// If the image as a whole does not decode.
    pub fn damage(&mut self, jpeg: &Jpeg<'_>) -> Result<Option<String>> {
        let coefficients = &mut self.plain.coefficients;
        let decoded = coefficients.decode(jpeg.bytes, &jpeg.header);
        let damage = decoded.map(|()| coefficients.damage());
        coefficients.shrink(KEPT_BYTES);
        damage
    }

    /// Frees cached memory if it exceeds `limit` bytes: coefficients, and pixels before they are
    /// turned. Returns how many bytes of both remain.
    pub fn keep(&mut self, limit: usize) -> usize {
        let stored: usize = self.idle.iter().map(|flight| flight.stored.capacity()).sum();
        let all = self.plain.coefficients.memory() + stored;
        if all <= limit {
            return all;
        }
        self.plain.coefficients.shrink(0);
        self.idle.iter_mut().for_each(|flight| flight.stored = Vec::new());
        0
    }

    /// Starts a lane on a piece of an image in flight, the earliest image first.
    fn start(&mut self) -> bool {
        for flight in self.flights.iter_mut().filter(|flight| !flight.damaged) {
            if let Some(ticket) = flight.transit.start(&mut self.machine) {
                flight.lanes += 1;
                self.lanes.push((flight.job, ticket));
                return true;
            }
        }
        false
    }

    /// Starts job `index`. Returns `false` if it does not fit now.
    fn take(&mut self, jobs: &mut [Job<'_>], index: usize) -> Result<bool> {
        let job = &mut jobs[index];
        let jpeg = job.jpeg;
        job.region.within(jpeg.size())?;
        check_length(jpeg.bytes, &jpeg.header)?;
        let mut flight = self.idle.pop().unwrap_or_else(Flight::new);
        let orientation = jpeg.orientation();
        flight.region = orientation.region(job.region, jpeg.layout.size);
        (flight.job, flight.orientation) = (index, orientation);
        (flight.lanes, flight.damaged, flight.done) = (0, false, false);
        // The plain decoder reads the whole file, so it notices missing pixels outside the region
        // too.
        let begun = if jpeg.closed {
            flight.transit.begin(&mut self.machine, self.backend, jpeg, flight.region)
        } else {
            Err(Refusal::Never)
        };
        match begun {
            Ok(()) => {
                flight.make_room(job.region, job.out);
                self.flights.push(flight);
            }
            Err(Refusal::Later) => {
                self.idle.push(flight);
                return Ok(false);
            }
            Err(Refusal::Never) => {
                job.result = self.plain.decode(self.backend, &mut flight, job);
                self.idle.push(flight);
            }
        }
        Ok(true)
    }

    /// Finishes the lanes that have reached their end, and delivers the images that are complete.
    fn land(&mut self, jobs: &mut [Job<'_>]) {
        for lane in (0..self.lanes.len()).rev() {
            let Some(bit) = self.machine.finished(lane) else { continue };
            self.machine.stop(lane);
            let (job, ticket) = self.lanes.swap_remove(lane);
            let flight = self.flights.iter_mut().find(|f| f.job == job).expect("a lane's image is in flight");
            flight.lanes -= 1;
            if flight.transit.finish(&mut self.machine, ticket, bit).is_none() {
                flight.damaged = true;
            }
            if !flight.damaged {
                let (orientation, stored) = (flight.orientation, &mut flight.stored);
                let rgb = if orientation.is_upright() { jobs[job].out.data_mut() } else { stored };
                flight.done = flight.transit.render(&self.machine, self.backend.kernels(), rgb);
            }
        }
        for i in (0..self.flights.len()).rev() {
            let flight = &self.flights[i];
            if flight.lanes > 0 || !(flight.done || flight.damaged) {
                continue;
            }
            let mut flight = self.flights.remove(i);
            flight.transit.end(&mut self.machine);
            let job = &mut jobs[flight.job];
            job.result = if flight.damaged {
                // The plain decoder knows how libjpeg treats the damage, or where the file ends.
                self.plain.decode(self.backend, &mut flight, job)
            } else {
                flight.deliver(job);
                Ok(())
            };
            self.idle.push(flight);
        }
    }
}

impl Flight {
    fn new() -> Self {
        Flight {
            job: 0,
            transit: Transit::default(),
            stored: Vec::new(),
            orientation: Orientation::default(),
            region: Rect::new(0, 0, 0, 0),
            lanes: 0,
            damaged: false,
            done: false,
        }
    }

    fn make_room(&mut self, region: Rect, out: &mut Pixels) {
        let rgb = out.reset(region.size());
        if !self.orientation.is_upright() {
            resize(&mut self.stored, rgb.len(), 0);
        }
    }

    /// Turns the pixels upright and sets their position.
    fn deliver(&mut self, job: &mut Job<'_>) {
        if !self.orientation.is_upright() {
            self.orientation.turn(&self.stored, self.region.size(), job.out.data_mut());
        }
        job.out.place(job.region.x, job.region.y);
        job.result = Ok(());
    }
}

/// The decoder for images that lanes cannot decode: all coefficients first, then the pixels.
#[derive(Default)]
struct Plain {
    coefficients: Coefficients,
    rows: Rows,
}

impl Plain {
    fn decode(&mut self, backend: Backend, flight: &mut Flight, job: &mut Job<'_>) -> Result<()> {
        let decoded = self.coefficients.decode(job.jpeg.bytes, &job.jpeg.header);
        if decoded.is_ok() {
            self.render(backend, flight, job);
            job.out.damaged(self.coefficients.damage());
        }
        self.coefficients.shrink(KEPT_BYTES);
        decoded
    }

    /// Converts the coefficients to pixels.
    fn render(&mut self, backend: Backend, flight: &mut Flight, job: &mut Job<'_>) {
        let layout = &job.jpeg.layout;
        let window = Window::new(layout, flight.region);
        flight.make_room(job.region, job.out);
        let rgb = if flight.orientation.is_upright() { job.out.data_mut() } else { &mut flight.stored };
        let planes = self.coefficients.planes();
        let quant = std::array::from_fn(|i| planes.get(i).map_or([0; 64], |plane| plane.quant));
        let view = View { kernels: backend.kernels(), layout, window: &window, quant: &quant };
        self.rows.begin(layout, &window);
        for row in window.rows.clone() {
            self.rows.mcu_row(&view, row, &self.coefficients, rgb);
        }
        flight.deliver(job);
    }
}

impl Blocks for Coefficients {
    const FROM_LANES: bool = false;

    fn locate(&self, index: usize, row: u32, columns: Range<u32>, offsets: &mut Vec<u32>) -> &[i16] {
        let plane = &self.planes()[index];
        offsets.extend(columns.map(|column| (row * plane.wide as u32 + column) * 64));
        &plane.data
    }
}
