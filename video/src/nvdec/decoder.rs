//! [`Decoder`] decodes packets, starting at a key frame, and copies frames to host memory.
//!
//! **Idea.** The driver's parser reads the packets. It calls one function when the format is known.
//! For each image, in decoding order, it calls a second function, which queues the image for an
//! engine. The parser also reports times, but assigns them to the images in presentation order, so
//! they are ignored. An H.264 or HEVC packet encodes one image, so a packet identifies a frame. A
//! VP9 packet may encode hidden images or show an earlier image, so the headers of VP9 frames are
//! read.
//!
//! **Cost.** Creating a decoder takes much longer than decoding an image, so a decoder is created
//! for the largest size so far, and is reconfigured for smaller sizes. A parser is created for each
//! key frame, so that frames do not depend on earlier groups.
//!
//! **Exactness.** The engine neither crops nor scales. Its output has the encoded size and is
//! cropped during the copy, so all samples have the values that the standard defines.
//!
//! **Damage.** Packets are checked before they are passed to the driver. The engine reports damage
//! of H.264 and HEVC, but not of VP9.
//!
//! **Invariants**
//! 1. [`ParserState`] and [`Decoder`] contain handles of the context of `ParserState::device`. The
//!    handles are used and destroyed only while that context is current.
//! 2. `Decoder::state` points to an allocation of `Box`. While a parser runs, only the functions
//!    that the parser calls access the state. At all other times, only the methods of [`Decoder`]
//!    and [`Group`] do.
//! 3. No panic unwinds into the driver.

#![allow(unsafe_code, reason = "see the invariants above")]

use std::any::Any;
use std::ffi::{c_int, c_short, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

use super::bitstream::{Bitstream, PacketContent};
use super::device::{Device, cuvid_codec};
use super::ffi::{self, Copy2d, CreateInfo, DecodeStatus, Format, PicParams, ProcParams, ReconfigureInfo};
use super::frame::Frame;
use super::images::Images;
use super::vp9::References;
use crate::codec::{Codec, CodecConfig};
use crate::error::{Error, ErrorKind, Result};
use crate::frame::{Coding, Planes};

/// Number of images that the parser holds back, so that the surfaces of the last frames are not
/// reused immediately.
const DISPLAY_DELAY: u32 = 4;

/// Maximum time that an engine may take for an image.
const DECODE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Decoder {
    group: Option<Group>,
    input: Vec<u8>,
    state: NonNull<ParserState>,
}

// SAFETY: the handles may be used on any thread while their context is current (invariant 1).
unsafe impl Send for Decoder {}

/// The packets since the last key frame, which form a group of pictures.
struct Group {
    bitstream: Bitstream,
    parser: ffi::Parser,
    references: References,
    /// For each packet, the index of the image that it shows.
    shown_images: Vec<Option<usize>>,
    /// The error that prevents decoding of more packets.
    failure_cause: Option<(ErrorKind, String)>,
    /// True if images that precede the key frame in presentation order may follow.
    may_have_leading: bool,
}

/// The state that the functions called by the parser access.
struct ParserState {
    driver_decoder: Option<DriverDecoder>,
    images: Images,
    codec: Codec,
    format: Option<Format>,
    /// Index of the packet that is being parsed.
    packet_index: usize,
    /// Presentation order of the key frame. Set only if `may_be_open_group` is true.
    key_order: Option<c_int>,
    /// True if the group starts with an H.264 key frame that is not an IDR image.
    may_be_open_group: bool,
    /// Matrix and range of VP9, which the driver does not report.
    vp9_color: (u8, bool),
    is_past_leading: bool,
    /// True if the driver reports damage for this codec.
    reports_damage: bool,
    failure: Option<Error>,
    panic: Option<Box<dyn Any + Send>>,
    stream: ffi::Stream,
    host_memory: HostMemory,
    /// The last frame that was read. Its samples are in `host_memory`.
    frame: Frame,
    device: Device,
}

impl Decoder {
    pub(super) fn new(device: Device) -> Result<Self> {
        let mut stream = null_mut();
        {
            let _entered = device.enter()?;
            let driver = device.driver();
            // SAFETY: the context is current. The driver writes the handle before it returns.
            let status = unsafe { (driver.cuda.stream_create)(&raw mut stream, ffi::STREAM_NON_BLOCKING) };
            driver.check(status, || "creating a stream for decoded frames".into())?;
        }
        let state = Box::new(ParserState {
            driver_decoder: None,
            images: Images::default(),
            codec: Codec::H264,
            format: None,
            packet_index: 0,
            key_order: None,
            may_be_open_group: false,
            vp9_color: (2, false),
            is_past_leading: false,
            reports_damage: true,
            failure: None,
            panic: None,
            stream,
            host_memory: HostMemory { data: null_mut(), capacity: 0 },
            frame: Frame::default(),
            device,
        });
        Ok(Decoder { group: None, input: Vec::new(), state: NonNull::from(Box::leak(state)) })
    }

    fn state(&mut self) -> &mut ParserState {
        // SAFETY: invariant 2. The parser is not running.
        unsafe { self.state.as_mut() }
    }

    /// Forgets all packets. The next packet must be a key frame of a video with this configuration.
    pub(super) fn start(&mut self, config: &CodecConfig) -> Result<()> {
        let bitstream = Bitstream::new(config)?;
        let user = self.state.as_ptr().cast();
        let device = self.state().device.clone();
        let _entered = device.enter()?;
        self.destroy_parser(&device);
        let state = self.state();
        state.images.clear();
        (state.codec, state.failure, state.panic) = (config.codec, None, None);
        (state.format, state.key_order) = (None, None);
        (state.may_be_open_group, state.is_past_leading, state.reports_damage) = (false, false, true);
        let mut params = ffi::ParserParams::zeroed();
        params.codec = cuvid_codec(config.codec).expect("checked by the bitstream");
        params.max_surfaces = 1;
        params.max_display_delay = DISPLAY_DELAY;
        params.user = user;
        params.on_sequence = Some(on_sequence);
        params.on_decode = Some(on_decode);
        params.on_display = Some(on_display);
        let mut parser = null_mut();
        // SAFETY: the driver reads the structure during the call, and writes the handle.
        let status = unsafe { (device.driver().cuvid.create_parser)(&raw mut parser, &raw mut params) };
        device.driver().check(status, || format!("creating a parser for {}", config.codec))?;
        self.group = Some(Group {
            bitstream,
            parser,
            references: References::default(),
            shown_images: Vec::new(),
            failure_cause: None,
            may_have_leading: false,
        });
        Ok(())
    }

    /// The context must be current.
    fn destroy_parser(&mut self, device: &Device) {
        if let Some(group) = self.group.take() {
            // SAFETY: `start` created the parser. It is not running.
            unsafe { (device.driver().cuvid.destroy_parser)(group.parser) };
        }
    }

    /// Decodes a packet. After an error, all later packets fail until [`start`](Self::start) is
    /// called, but the frames of earlier packets can still be read if only the packet was damaged.
    pub(super) fn push(&mut self, packet: &[u8]) -> Result<()> {
        let device = self.state().device.clone();
        let _entered = device.enter()?;
        let group = self.group.as_mut().expect("`start` precedes `push`");
        let packet_index = group.shown_images.len();
        crate::error::reserve(&mut group.shown_images, 1)?;
        let result = match &group.failure_cause {
            Some((kind, cause)) => Err(Error::new(*kind, cause.clone())),
            None => group.push(&mut self.input, self.state, packet_index, packet, &device),
        };
        group.shown_images.push(result.as_ref().ok().copied().flatten());
        // SAFETY: invariant 2. The parser is not running.
        let state = unsafe { self.state.as_mut() };
        if let Some(panic) = state.panic.take() {
            state.reset_engine(&device);
            group.failure_cause = Some((ErrorKind::Device, "decoding panicked".into()));
            resume_unwind(panic);
        }
        let error = match (state.failure.take(), result) {
            (Some(e), _) => {
                state.reset_engine(&device);
                e
            }
            (None, Err(e)) => e,
            (None, Ok(_)) => return Ok(()),
        };
        group.failure_cause.get_or_insert_with(|| (error.kind(), error.to_string()));
        Err(error)
    }

    /// Copies the frame of a packet to host memory. Returns `false` if the frame is no longer in
    /// GPU memory, which cannot happen for the packet that was pushed last. Fails if the packet
    /// shows no image, or if the packet or an earlier packet on which the frame may depend is
    /// damaged.
    pub(super) fn frame(&mut self, packet_index: usize) -> Result<bool> {
        let device = self.state().device.clone();
        let _entered = device.enter()?;
        let group = self.group.as_ref().expect("`push` precedes `frame`");
        let Some(shown_image) = group.shown_images[packet_index] else {
            return Err(match &group.failure_cause {
                Some((kind, cause)) => Error::new(*kind, cause.clone()),
                None => Error::damaged(format!(
                    "packet {packet_index} after the key frame shows no image: it refers to images before the key frame"
                )),
            });
        };
        let state = self.state();
        let Some((surface, image)) = state.images.find(shown_image) else { return Ok(false) };
        state.copy_to_host(surface, image.is_field, shown_image, packet_index, &device)?;
        Ok(true)
    }

    pub(super) fn planes(&mut self) -> Planes<'_> {
        let state = self.state();
        state.frame.planes(state.host_memory.bytes())
    }

    /// Returns whether [`frame`](Self::frame) finds the frame of a packet in GPU memory.
    pub(super) fn has_frame(&mut self, packet_index: usize) -> bool {
        let shown_image = self.group.as_ref().and_then(|group| group.shown_images[packet_index]);
        shown_image.is_some_and(|shown_image| self.state().images.find(shown_image).is_some())
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let device = self.state().device.clone();
        if let Ok(_entered) = device.enter() {
            self.destroy_parser(&device);
            let state = self.state();
            state.reset_engine(&device);
            state.host_memory.free(&device);
            // SAFETY: invariant 1.
            unsafe { (device.driver().cuda.stream_destroy)(state.stream) };
        }
        if self.group.is_none() {
            // SAFETY: invariant 2. No parser refers to the state.
            drop(unsafe { Box::from_raw(self.state.as_ptr()) });
        }
    }
}

fn damaged_packet(packet_index: usize, cause: &str) -> Error {
    match packet_index {
        0 => Error::damaged(format!("the packet of the key frame is damaged ({cause})")),
        packet_index => Error::damaged(format!("packet {packet_index} after the key frame is damaged ({cause})")),
    }
}

impl Group {
    /// Decodes a packet, and returns the index of the image that it shows. If a callback of the
    /// parser fails, its error is stored in the state.
    fn push(
        &mut self,
        input: &mut Vec<u8>,
        mut state: NonNull<ParserState>,
        packet_index: usize,
        packet: &[u8],
        device: &Device,
    ) -> Result<Option<usize>> {
        let damaged_error = |e: Error| match e.kind() {
            ErrorKind::Damaged => damaged_packet(packet_index, &e.to_string()),
            _ => e,
        };
        let PacketContent { image_count: mut min_images, may_be_open_group } =
            self.bitstream.rewrite(packet, packet_index == 0, input).map_err(damaged_error)?;
        let vp9_packet = match self.bitstream.codec() {
            Codec::Vp9 => Some(self.references.add(packet).map_err(damaged_error)?),
            _ => None,
        };
        let first_image = {
            // SAFETY: the parser is not running.
            let state = unsafe { state.as_mut() };
            if packet_index == 0 {
                self.may_have_leading = may_be_open_group;
                state.may_be_open_group = may_be_open_group;
            }
            (state.packet_index, state.vp9_color) = (packet_index, self.references.color);
            state.images.count()
        };
        let mut source = ffi::SourcePacket {
            flags: ffi::packet::HAS_TIMESTAMP | ffi::packet::END_OF_PICTURE,
            bytes: input.len() as c_ulong,
            data: input.as_ptr(),
            timestamp: packet_index as i64,
        };
        // SAFETY: the parser reads the packet during the call. It accesses the state (invariant 2).
        let status = unsafe { (device.driver().cuvid.parse)(self.parser, &raw mut source) };
        // SAFETY: the parser is not running.
        let state = unsafe { state.as_mut() };
        if state.failure.is_some() || state.panic.is_some() {
            return Ok(None);
        }
        device.driver().check(status, || format!("parsing packet {packet_index} after the key frame"))?;
        let added_images = state.images.count() - first_image;
        if let Some(vp9_packet) = vp9_packet {
            return match added_images {
                _ if added_images == vp9_packet.image_count => Ok(Some(vp9_packet.shown_image)),
                _ => Err(damaged_packet(
                    packet_index,
                    &format!("it contains {} images, but the driver found {added_images}", vp9_packet.image_count),
                )),
            };
        }
        // Images that precede the key frame in presentation order may be impossible to decode.
        if added_images == 0 && packet_index > 0 && self.may_have_leading && !state.is_past_leading {
            min_images = 0;
        }
        match added_images {
            _ if added_images < min_images => {
                Err(damaged_packet(packet_index, "the parser of the driver found no image in it"))
            }
            0 => Ok(None),
            1 => Ok(Some(first_image)),
            _ => Err(damaged_packet(packet_index, &format!("it contains {added_images} images"))),
        }
    }
}

struct DriverDecoder {
    handle: ffi::DecoderHandle,
    codec: c_int,
    bit_depth: u8,
    size: (u32, u32),
    max_size: (u32, u32),
    surface_count: u32,
}

impl DriverDecoder {
    fn reuse_or_create(
        driver_decoder: Option<DriverDecoder>,
        device: &Device,
        format: &Format,
        codec: Codec,
    ) -> Result<DriverDecoder> {
        let driver = device.driver();
        let size = (format.coded_width, format.coded_height);
        let (bit_depth, surface_count) =
            (8 + format.bit_depth_luma_minus8, u32::from(format.min_surfaces) + DISPLAY_DELAY);
        let mut max_size = size;
        if let Some(mut driver_decoder) = driver_decoder {
            let is_same_format = driver_decoder.codec == format.codec && driver_decoder.bit_depth == bit_depth;
            let fits = is_same_format
                && size.0 <= driver_decoder.max_size.0
                && size.1 <= driver_decoder.max_size.1
                && surface_count <= driver_decoder.surface_count;
            if fits && driver_decoder.size == size {
                return Ok(driver_decoder);
            }
            if fits {
                let mut info = ReconfigureInfo::zeroed();
                (info.width, info.height) = size;
                (info.target_width, info.target_height) = output_size(size);
                info.surfaces = driver_decoder.surface_count;
                info.display_area = full_rect(output_size(size));
                // SAFETY: the context is current and the handle is valid (invariant 1).
                let status = unsafe { (driver.cuvid.reconfigure)(driver_decoder.handle, &raw mut info) };
                if status == 0 {
                    driver_decoder.size = size;
                    return Ok(driver_decoder);
                }
                // If creating a new decoder also fails, that error is reported.
            } else if is_same_format {
                max_size = (max_size.0.max(driver_decoder.max_size.0), max_size.1.max(driver_decoder.max_size.1));
            }
            driver_decoder.destroy(device);
        }
        let mut info = CreateInfo::zeroed();
        (info.width, info.height) = (size.0.into(), size.1.into());
        info.surfaces = surface_count.into();
        info.codec = format.codec;
        info.chroma = format.chroma;
        info.flags = ffi::USE_VIDEO_ENGINES;
        info.bit_depth_minus8 = format.bit_depth_luma_minus8.into();
        (info.max_width, info.max_height) = (max_size.0.into(), max_size.1.into());
        info.display_area = full_rect(output_size(size));
        info.output_format = if bit_depth == 8 { ffi::NV12 } else { ffi::P016 };
        (info.target_width, info.target_height) = (output_size(size).0.into(), output_size(size).1.into());
        info.output_surfaces = 1;
        let mut handle = null_mut();
        // SAFETY: the context is current (invariant 1). The driver reads the structure during the
        // call, and writes the handle.
        let status = unsafe { (driver.cuvid.create_decoder)(&raw mut handle, &raw mut info) };
        driver.check(status, || format!("creating a decoder for {codec} of {} x {} pixels", size.0, size.1))?;
        Ok(DriverDecoder { handle, codec: format.codec, bit_depth, size, max_size, surface_count })
    }

    /// The context must be current.
    fn destroy(self, device: &Device) {
        // SAFETY: invariant 1.
        unsafe { (device.driver().cuvid.destroy_decoder)(self.handle) };
    }
}

/// Returns the size of the engine's output. The width and the height are even.
fn output_size((width, height): (u32, u32)) -> (u32, u32) {
    (width.next_multiple_of(2), height.next_multiple_of(2))
}

fn shown_area(format: &Format) -> (c_int, c_int, c_int, c_int) {
    let ffi::Rect { left, top, right, bottom } = format.display_area;
    (left, top, right, bottom)
}

fn full_rect((width, height): (u32, u32)) -> ffi::ShortRect {
    ffi::ShortRect { left: 0, top: 0, right: width as c_short, bottom: height as c_short }
}

struct HostMemory {
    data: *mut c_void,
    capacity: usize,
}

impl HostMemory {
    /// Grows the buffer to at least `bytes` bytes. May discard the content. The context must be
    /// current.
    fn grow(&mut self, device: &Device, bytes: usize) -> Result<()> {
        if bytes > self.capacity {
            self.free(device);
            let driver = device.driver();
            // SAFETY: the context is current. The driver writes the address before it returns.
            let status = unsafe { (driver.cuda.alloc_host)(&raw mut self.data, bytes) };
            driver.check(status, || format!("allocating {bytes} bytes of page-locked memory"))?;
            // SAFETY: the driver has allocated the bytes.
            unsafe { self.data.write_bytes(0, bytes) };
            self.capacity = bytes;
        }
        Ok(())
    }

    fn bytes(&self) -> &[u8] {
        if self.capacity == 0 {
            return &[];
        }
        // SAFETY: `grow` allocated this many bytes and set them to zero. Only
        // `ParserState::copy_to_host` writes to them, and waits until the device has done so.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.capacity) }
    }

    fn free(&mut self, device: &Device) {
        if self.capacity > 0 {
            // SAFETY: `grow` allocated the memory, and nothing refers to it.
            unsafe { (device.driver().cuda.free_host)(self.data) };
            self.capacity = 0;
        }
    }
}

impl ParserState {
    /// Calls `function`. If it fails or panics, stores the error or the panic and returns 0, which
    /// makes the parser stop.
    ///
    /// # Safety
    /// `state` points to a [`ParserState`] that no other code accesses during the call.
    unsafe fn run_callback(state: *mut c_void, function: impl FnOnce(&mut Self) -> Result<c_int>) -> c_int {
        // SAFETY: guaranteed by the caller.
        let state = unsafe { &mut *state.cast::<Self>() };
        if state.failure.is_some() || state.panic.is_some() {
            return 0;
        }
        match catch_unwind(AssertUnwindSafe(|| function(state))) {
            Ok(Ok(value)) => value,
            Ok(Err(e)) => {
                state.failure = Some(e);
                0
            }
            Err(panic) => {
                state.panic = Some(panic);
                0
            }
        }
    }

    /// Destroys the driver's decoder and forgets all images, because the state of the engine is
    /// unknown. The context must be current.
    fn reset_engine(&mut self, device: &Device) {
        self.images.clear();
        if let Some(driver_decoder) = self.driver_decoder.take() {
            driver_decoder.destroy(device);
        }
    }

    /// Prepares for a format, and returns the number of surfaces.
    fn set_format(&mut self, format: &Format) -> Result<c_int> {
        let size = (format.coded_width, format.coded_height);
        if let (Some(previous_format), Some(driver_decoder)) = (&self.format, &self.driver_decoder) {
            let decoder_format =
                |f: &Format| (f.coded_width, f.coded_height, f.chroma, f.bit_depth_luma_minus8, shown_area(f));
            if decoder_format(previous_format) == decoder_format(format)
                && u32::from(format.min_surfaces) + DISPLAY_DELAY <= driver_decoder.surface_count
            {
                return Ok(driver_decoder.surface_count as c_int);
            }
            return Err(Error::unsupported(format!(
                "the format of the video changes from {} x {} to {} x {} pixels in packet {} after a key frame, which \
                 is not supported",
                previous_format.coded_width, previous_format.coded_height, size.0, size.1, self.packet_index
            )));
        }
        let chroma = match format.chroma {
            0 => "gray",
            ffi::CHROMA_420 => "4:2:0",
            2 => "4:2:2",
            _ => "4:4:4",
        };
        let bit_depth = 8 + format.bit_depth_luma_minus8;
        let describe_format =
            || format!("{} of {} x {} pixels, {chroma} with {bit_depth} bits", self.codec, size.0, size.1);
        if format.chroma != ffi::CHROMA_420 {
            return Err(Error::unsupported(format!("{} is not supported on the GPU: 4:2:0 is", describe_format())));
        }
        if format.bit_depth_luma_minus8 != format.bit_depth_chroma_minus8 {
            let chroma_bits = 8 + format.bit_depth_chroma_minus8;
            return Err(Error::unsupported(format!(
                "{} for luma and {chroma_bits} for chroma is not supported on the GPU: equal numbers are",
                describe_format()
            )));
        }
        let device = self.device.clone();
        device.check(self.codec, bit_depth.into(), size, describe_format)?;
        let (left, top, right, bottom) = shown_area(format);
        let fits =
            |start: c_int, end: c_int, max: u32| start >= 0 && start % 2 == 0 && start < end && end as u32 <= max;
        if !fits(left, right, size.0) || !fits(top, bottom, size.1) {
            return Err(Error::damaged(format!(
                "the video shows the area {:?} of {size:?} pixels",
                shown_area(format)
            )));
        }
        let driver_decoder = DriverDecoder::reuse_or_create(self.driver_decoder.take(), &device, format, self.codec)?;
        let surface_count = driver_decoder.surface_count;
        self.driver_decoder = Some(driver_decoder);
        self.format = Some(*format);
        Ok(surface_count as c_int)
    }

    fn queue_image(&mut self, params: *mut PicParams) -> Result<c_int> {
        // SAFETY: the parser passes a valid structure.
        let image = unsafe { &*params };
        let surface = image.surface as usize;
        if image.is_field != 0 && image.is_second_field != 0 {
            if let Some(first) = self.images.get_mut(surface) {
                first.is_field = false;
            }
        } else {
            self.wait_for_image(surface)?;
            let order = image.order_h264[0].min(image.order_h264[1]);
            let is_leading = self.may_be_open_group && order < *self.key_order.get_or_insert(order);
            self.is_past_leading |= self.packet_index > 0 && !is_leading;
            self.images.add(surface, self.packet_index, is_leading, image.is_field != 0);
        }
        let driver = *self.device.driver();
        let driver_decoder =
            self.driver_decoder.as_ref().ok_or_else(|| Error::damaged("an image precedes its format"))?;
        // SAFETY: the context is current and the handle is valid (invariant 1). The parser filled
        // the structure.
        let status = unsafe { (driver.cuvid.decode)(driver_decoder.handle, params) };
        driver.check(status, || format!("decoding packet {} after the key frame", self.packet_index))?;
        Ok(1)
    }

    /// Waits for the image in the surface, if there is one, and stores whether it is damaged. If
    /// the driver does not report damage, this method returns at once, and the image counts as
    /// undamaged.
    fn wait_for_image(&mut self, surface: usize) -> Result<()> {
        let Some(driver_decoder) = &self.driver_decoder else { return Ok(()) };
        if self.images.get_mut(surface).is_none_or(|image| image.is_damaged.is_some()) {
            return Ok(());
        }
        let driver = self.device.driver();
        let wait_start = Instant::now();
        let mut is_damaged = false;
        while self.reports_damage {
            let mut state = DecodeStatus::zeroed();
            // SAFETY: the handle is valid (invariant 1). The driver writes the structure.
            let status = unsafe { (driver.cuvid.status)(driver_decoder.handle, surface as c_int, &raw mut state) };
            if status == ffi::NOT_SUPPORTED {
                self.reports_damage = false;
                break;
            }
            driver.check(status, || "asking whether an image is damaged".into())?;
            if state.status != ffi::decoded::IN_PROGRESS {
                is_damaged = matches!(state.status, ffi::decoded::ERROR | ffi::decoded::CONCEALED);
                break;
            }
            if wait_start.elapsed() > DECODE_TIMEOUT {
                return Err(Error::new(ErrorKind::Device, "the video engine of the GPU does not respond"));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.images.set_damaged(surface, is_damaged);
        Ok(())
    }

    /// The context must be current.
    fn copy_to_host(
        &mut self,
        surface: usize,
        is_field: bool,
        image_index: usize,
        packet_index: usize,
        device: &Device,
    ) -> Result<()> {
        let (Some(format), Some(driver_decoder)) = (self.format, &self.driver_decoder) else {
            return Err(Error::damaged("an image precedes its format"));
        };
        let (handle, coded_size) = (driver_decoder.handle, output_size(driver_decoder.size));
        let driver = device.driver();
        let (left, top, right, bottom) = shown_area(&format);
        let [left, top, right, bottom] = [left, top, right, bottom].map(|side| side as usize);
        let (width, height) = (right - left, bottom - top);
        let sample_bytes = if format.bit_depth_luma_minus8 == 0 { 1 } else { 2 };
        let (chroma_row_bytes, chroma_height) = (width.next_multiple_of(2) * sample_bytes, height.div_ceil(2));
        let bits = 8 + format.bit_depth_luma_minus8;
        let (luma_bytes, bytes) = Frame::byte_counts((width, height), bits);
        self.host_memory.grow(device, bytes)?;

        let mut params = ProcParams::zeroed();
        params.progressive = 1;
        params.second_field = 1;
        params.unpaired_field = c_int::from(is_field);
        params.stream = self.stream;
        let (mut address, mut pitch): (u64, c_uint) = (0, 0);
        // SAFETY: the context is current and the handle is valid (invariant 1). The driver writes
        // the address and the pitch before it returns.
        let status =
            unsafe { (driver.cuvid.map)(handle, surface as c_int, &raw mut address, &raw mut pitch, &raw mut params) };
        driver.check(status, || format!("reading the frame of packet {packet_index} after the key frame"))?;
        let (pitch, stream, host) = (pitch as usize, self.stream, self.host_memory.data);
        let copy = |y: usize, width_bytes: usize, rows: usize, offset: usize| {
            let mut copy = Copy2d::zeroed();
            copy.src_type = ffi::MEMORY_DEVICE;
            copy.src_device = address;
            copy.src_pitch = pitch;
            (copy.src_x_bytes, copy.src_y) = (left * sample_bytes, y);
            copy.dst_type = ffi::MEMORY_HOST;
            // SAFETY: `grow` allocated at least this many bytes.
            copy.dst_host = unsafe { host.byte_add(offset) };
            copy.dst_pitch = width_bytes;
            (copy.width_bytes, copy.height) = (width_bytes, rows);
            // SAFETY: the mapped image contains the rows: luma has the height of the output, and
            // chroma follows. The host memory is long enough.
            let status = unsafe { (driver.cuda.copy_2d)(&raw const copy, stream) };
            driver.check(status, || "copying a decoded frame to host memory".into())
        };
        let copy_result = copy(top, width * sample_bytes, height, 0)
            .and_then(|()| copy(coded_size.1 as usize + top / 2, chroma_row_bytes, chroma_height, luma_bytes));
        // SAFETY: the stream is valid, and the address was mapped above.
        let (synchronize_status, unmap_status) =
            unsafe { ((driver.cuda.stream_synchronize)(stream), (driver.cuvid.unmap)(handle, address)) };
        copy_result?;
        driver.check(synchronize_status, || "copying a decoded frame to host memory".into())?;
        driver.check(unmap_status, || "releasing a decoded frame".into())?;

        // An engine decodes the images of a decoder one after the other, so all earlier images are
        // decoded.
        let unchecked_surfaces: Vec<usize> = self.images.unchecked_surfaces(image_index).collect();
        for surface in unchecked_surfaces {
            self.wait_for_image(surface)?;
        }
        if let Some(packet_index) = self.images.damaged_packet(image_index) {
            return Err(damaged_packet(packet_index, "the video engine of the GPU reports an error"));
        }
        let (matrix, is_full_range) = match self.codec {
            Codec::Vp9 => self.vp9_color,
            _ => (format.matrix, format.signal & 8 != 0),
        };
        let coding = Coding { matrix: matrix.into(), is_full_range, bits };
        self.frame.set((width, height), coding, &self.host_memory.bytes()[..bytes])
    }
}

unsafe extern "C" fn on_sequence(state: *mut c_void, format: *mut Format) -> c_int {
    // SAFETY: the parser passes the state, and a valid structure (invariant 2).
    unsafe { ParserState::run_callback(state, |state| state.set_format(&*format)) }
}

unsafe extern "C" fn on_decode(state: *mut c_void, params: *mut PicParams) -> c_int {
    // SAFETY: the parser passes the state (invariant 2).
    unsafe { ParserState::run_callback(state, |state| state.queue_image(params)) }
}

unsafe extern "C" fn on_display(_: *mut c_void, _: *mut c_void) -> c_int {
    1
}
