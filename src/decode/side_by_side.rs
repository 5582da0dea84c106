//! Decodes pictures side by side. The group takes jobs in turn, keeps the lanes busy with pieces of
//! the pictures, and delivers each picture once its last band has become pixels.

use std::ops::Range;

use crate::decode::jpeg::coefficients::{Coefficients, check_length};
use crate::decode::jpeg::{Backend, Blocks, KEPT_BYTES, Machine, Opened, Refusal, Rows, Ticket, Transit, View, Window};
use crate::decode::orientation::Orientation;
use crate::decode::picture::Header;
use crate::decode::{Job, Picture, Pixels, Rect};
use crate::error::{Result, resize};

/// State with which a thread decodes. Its memory is reused from group to group.
pub(super) struct Group {
    backend: Backend,
    machine: Machine,
    flights: Vec<Flight>,
    idle: Vec<Flight>,
    /// The job and the piece of it that each busy lane is decoding.
    lanes: Vec<(usize, Ticket)>,
    plain: Plain,
}

/// A picture that has been started and not yet delivered.
struct Flight {
    job: usize,
    transit: Transit,
    /// The picture before it is turned upright; unused if it already is.
    stored: Vec<u8>,
    orientation: Orientation,
    region: Rect,
    /// Number of lanes that decode this picture.
    lanes: usize,
    damaged: bool,
    done: bool,
}

impl Default for Group {
    fn default() -> Self {
        Group::new(Backend::choose())
    }
}

impl Group {
    pub(super) fn new(backend: Backend) -> Self {
        Group {
            backend,
            machine: Machine::new(backend.entropy()),
            flights: Vec::new(),
            idle: Vec::new(),
            lanes: Vec::new(),
            plain: Plain::default(),
        }
    }

    /// Decodes all jobs, which must have been opened by this decoder's codec. Each job gets its own
    /// result.
    pub(super) fn decode(&mut self, jobs: &mut [Job<'_>]) {
        if !self.flights.is_empty() {
            // The previous group was cut short by a panic, which is a bug here.
            *self = Group::new(self.backend);
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

    /// Reads all of a picture and describes its damage.
    pub(super) fn damage(&mut self, picture: &Picture<'_>) -> Result<Option<String>> {
        let coefficients = &mut self.plain.coefficients;
        let decoded = coefficients.decode(picture.bytes(), &opened(picture).header);
        let damage = decoded.map(|()| coefficients.damage());
        coefficients.shrink(KEPT_BYTES);
        damage
    }

    /// Frees cached memory if it exceeds `limit` bytes: coefficients, and pixels before they are
    /// turned. Returns how many bytes of both remain.
    pub(super) fn keep(&mut self, limit: usize) -> usize {
        let stored: usize = self.idle.iter().map(|flight| flight.stored.capacity()).sum();
        let all = self.plain.coefficients.memory() + stored;
        if all <= limit {
            return all;
        }
        self.plain.coefficients.shrink(0);
        self.idle.iter_mut().for_each(|flight| flight.stored = Vec::new());
        0
    }

    /// Starts a lane on a piece of a picture in flight, the earliest picture first.
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
        job.picture.check_region(job.region)?;
        let (bytes, opened) = (job.picture.bytes(), opened(&job.picture));
        check_length(bytes, &opened.header)?;
        let mut flight = self.idle.pop().unwrap_or_else(Flight::new);
        let orientation = opened.orientation();
        flight.region = orientation.region(job.region, opened.layout.size);
        (flight.job, flight.orientation) = (index, orientation);
        (flight.lanes, flight.damaged, flight.done) = (0, false, false);
        // The plain decoder reads the whole file, so it notices missing pixels outside the region
        // too.
        let begun = if opened.closed {
            flight.transit.begin(&mut self.machine, self.backend, bytes, opened, flight.region)
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

    /// Finishes the lanes that have reached their end, and delivers the pictures that are complete.
    fn land(&mut self, jobs: &mut [Job<'_>]) {
        for lane in (0..self.lanes.len()).rev() {
            let Some(bit) = self.machine.finished(lane) else { continue };
            self.machine.stop(lane);
            let (job, ticket) = self.lanes.swap_remove(lane);
            let flight = self.flights.iter_mut().find(|f| f.job == job).expect("a lane's picture is in flight");
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

/// The decoder for pictures that lanes cannot decode: all coefficients first, then the pixels.
#[derive(Default)]
struct Plain {
    coefficients: Coefficients,
    rows: Rows,
}

impl Plain {
    fn decode(&mut self, backend: Backend, flight: &mut Flight, job: &mut Job<'_>) -> Result<()> {
        let decoded = self.coefficients.decode(job.picture.bytes(), &opened(&job.picture).header);
        if decoded.is_ok() {
            self.render(backend, flight, job);
            job.out.damage = self.coefficients.damage();
        }
        self.coefficients.shrink(KEPT_BYTES);
        decoded
    }

    /// Converts the coefficients to pixels.
    fn render(&mut self, backend: Backend, flight: &mut Flight, job: &mut Job<'_>) {
        let layout = &opened(&job.picture).layout;
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

/// The header of a picture, as the codec read it.
pub(super) fn opened<'p>(picture: &'p Picture<'_>) -> &'p Opened {
    match &picture.header {
        Header::Jpeg(opened) => opened,
        _ => unreachable!("a registry passes a picture to the codec that opened it"),
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
