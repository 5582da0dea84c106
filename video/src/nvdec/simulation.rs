//! A simulated driver that decodes nothing, and tests that use this driver.
//!
//! The simulated driver reuses surfaces as early as the real driver may. It fills each image with a
//! number that identifies the image, so that tests notice a frame from a wrong packet.

#![allow(unsafe_code, clippy::undocumented_unsafe_blocks, reason = "the functions have the signatures of the driver")]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use super::decoder::Decoder;
use super::device::{Device, Driver};
use super::ffi::{self, Cuda, Cuvid, Status};
use super::frames::FrameDecoder;
use super::pool::{MAX_SESSIONS, Pool};
use super::vp9::{Header, for_each_frame, tests as vp9};
use crate::codec::{Codec, CodecConfig};
use crate::frame::{Coding, Planes};
use crate::record::{self, Record};

const SIZE: (u32, u32) = (64, 48);

struct Parser {
    params: ffi::ParserParams,
    surfaces: Vec<bool>,
    /// The presentation order and the surface of each image that is not shown yet.
    hidden_images: Vec<(u8, usize)>,
    references: [Option<usize>; 8],
    next_reference: usize,
    image_count: u8,
}

#[derive(Default)]
struct Engine {
    surfaces: Vec<(u8, bool)>,
    mapped: Vec<u8>,
}

struct TestImage {
    number: u8,
    order: u8,
    /// Bit mask of the references that the image replaces.
    refresh_mask: u32,
    is_damaged: bool,
}

impl Parser {
    fn decode(&mut self, image: &TestImage) -> bool {
        if self.surfaces.is_empty() {
            let mut format = ffi::Format::zeroed();
            format.codec = self.params.codec;
            (format.coded_width, format.coded_height) = SIZE;
            format.display_area = ffi::Rect { left: 0, top: 0, right: SIZE.0 as c_int, bottom: SIZE.1 as c_int };
            format.chroma = ffi::CHROMA_420;
            format.min_surfaces = 9;
            let surfaces = unsafe { self.params.on_sequence.unwrap()(self.params.user, &raw mut format) };
            if surfaces == 0 {
                return false;
            }
            self.surfaces = vec![false; surfaces as usize];
        }
        let is_free = |index: usize| !self.surfaces[index] && !self.references.contains(&Some(index));
        let surface = (0..self.surfaces.len()).find(|&index| is_free(index)).expect("a surface is free");
        let mut params = ffi::PicParams::zeroed();
        params.surface = surface as c_int;
        params.order_h264 = [c_int::from(image.order); 2];
        params.bytes = u32::from(image.number);
        params.slices = u32::from(image.is_damaged);
        if unsafe { self.params.on_decode.unwrap()(self.params.user, &raw mut params) } == 0 {
            return false;
        }
        for (index, reference) in self.references.iter_mut().enumerate() {
            if image.refresh_mask >> index & 1 == 1 {
                *reference = Some(surface);
            }
        }
        self.surfaces[surface] = true;
        self.hidden_images.push((image.order, surface));
        // The real driver holds back more images.
        while self.hidden_images.len() > 1 {
            let next_shown = (0..self.hidden_images.len()).min_by_key(|&index| self.hidden_images[index].0).unwrap();
            let (_, surface) = self.hidden_images.remove(next_shown);
            self.surfaces[surface] = false;
            unsafe { self.params.on_display.unwrap()(self.params.user, null_mut()) };
        }
        true
    }

    /// Decodes a packet of H.264. Each slice contains a number, an order and a state.
    fn decode_h264(&mut self, data: &[u8]) -> bool {
        let starts: Vec<usize> = (0..data.len()).filter(|&offset| data[offset..].starts_with(&[0, 0, 0, 1])).collect();
        starts.iter().all(|&offset| {
            let unit = &data[offset + 4..];
            if !matches!(unit[0] & 31, 1 | 5) {
                return true;
            }
            let refresh_mask = if unit[0] >> 5 != 0 { 1 << self.next_reference } else { 0 };
            self.next_reference = (self.next_reference + usize::from(refresh_mask != 0)) % 2;
            self.decode(&TestImage { number: unit[1], order: unit[2], refresh_mask, is_damaged: unit[3] == 2 })
        })
    }

    /// Decodes a packet of VP9. The frames are numbered from 1.
    fn decode_vp9(&mut self, data: &[u8]) -> bool {
        let mut succeeded = true;
        let parsed = for_each_frame(data, |frame| {
            if let Header::Encoded { refresh_mask, .. } = Header::parse(frame)? {
                self.image_count += 1;
                let image =
                    TestImage { number: self.image_count, order: self.image_count, refresh_mask, is_damaged: false };
                succeeded = succeeded && self.decode(&image);
            }
            Ok(())
        });
        parsed.is_ok() && succeeded
    }
}

unsafe extern "C" fn create_parser(out: *mut ffi::Parser, params: *mut ffi::ParserParams) -> Status {
    let parser = Parser {
        params: unsafe { *params },
        surfaces: Vec::new(),
        hidden_images: Vec::new(),
        references: [None; 8],
        next_reference: 0,
        image_count: 0,
    };
    unsafe { *out = Box::into_raw(Box::new(parser)).cast() };
    0
}

unsafe extern "C" fn parse(parser: ffi::Parser, packet: *mut ffi::SourcePacket) -> Status {
    let (parser, packet) = unsafe { (&mut *parser.cast::<Parser>(), &*packet) };
    let data = unsafe { std::slice::from_raw_parts(packet.data, packet.bytes as usize) };
    let succeeded =
        if parser.params.codec == ffi::codec::VP9 { parser.decode_vp9(data) } else { parser.decode_h264(data) };
    c_int::from(!succeeded)
}

unsafe extern "C" fn destroy_parser(parser: ffi::Parser) -> Status {
    drop(unsafe { Box::from_raw(parser.cast::<Parser>()) });
    0
}

unsafe extern "C" fn caps(caps: *mut ffi::Caps) -> Status {
    let caps = unsafe { &mut *caps };
    (caps.is_supported, caps.engines, caps.max_macroblocks) = (1, 1, 1000);
    (caps.max_width, caps.max_height, caps.min_width, caps.min_height) = (1000, 1000, 16, 16);
    0
}

unsafe extern "C" fn create_decoder(out: *mut ffi::DecoderHandle, info: *mut ffi::CreateInfo) -> Status {
    let surfaces = vec![(0, false); unsafe { (*info).surfaces } as usize];
    unsafe { *out = Box::into_raw(Box::new(Engine { surfaces, mapped: Vec::new() })).cast() };
    0
}

unsafe extern "C" fn reconfigure(_: ffi::DecoderHandle, _: *mut ffi::ReconfigureInfo) -> Status {
    0
}

unsafe extern "C" fn decode(engine: ffi::DecoderHandle, params: *mut ffi::PicParams) -> Status {
    let (engine, params) = unsafe { (&mut *engine.cast::<Engine>(), &*params) };
    engine.surfaces[params.surface as usize] = (params.bytes as u8, params.slices == 1);
    0
}

unsafe extern "C" fn status(engine: ffi::DecoderHandle, surface: c_int, out: *mut ffi::DecodeStatus) -> Status {
    let engine = unsafe { &*engine.cast::<Engine>() };
    let is_damaged = engine.surfaces[surface as usize].1;
    unsafe { (*out).status = if is_damaged { ffi::decoded::ERROR } else { 2 } };
    0
}

unsafe extern "C" fn map(
    engine: ffi::DecoderHandle,
    surface: c_int,
    address: *mut u64,
    pitch: *mut c_uint,
    _: *mut ffi::ProcParams,
) -> Status {
    let engine = unsafe { &mut *engine.cast::<Engine>() };
    let number = engine.surfaces[surface as usize].0;
    engine.mapped = vec![number; 128 * SIZE.1 as usize * 3 / 2];
    unsafe { (*address, *pitch) = (engine.mapped.as_ptr() as u64, 128) };
    0
}

unsafe extern "C" fn unmap(engine: ffi::DecoderHandle, _: u64) -> Status {
    unsafe { (*engine.cast::<Engine>()).mapped.clear() };
    0
}

unsafe extern "C" fn destroy_decoder(engine: ffi::DecoderHandle) -> Status {
    drop(unsafe { Box::from_raw(engine.cast::<Engine>()) });
    0
}

unsafe extern "C" fn init(_: c_uint) -> Status {
    0
}
unsafe extern "C" fn device_get(_: *mut c_int, _: c_int) -> Status {
    0
}
unsafe extern "C" fn device_name(_: *mut c_char, _: c_int, _: c_int) -> Status {
    1
}
unsafe extern "C" fn retain(_: *mut ffi::Context, _: c_int) -> Status {
    0
}
unsafe extern "C" fn release(_: c_int) -> Status {
    0
}
unsafe extern "C" fn push(_: ffi::Context) -> Status {
    0
}
unsafe extern "C" fn pop(_: *mut ffi::Context) -> Status {
    0
}
unsafe extern "C" fn exchange_capture_mode(_: *mut c_int) -> Status {
    0
}
unsafe extern "C" fn stream_create(_: *mut ffi::Stream, _: c_uint) -> Status {
    0
}
unsafe extern "C" fn stub_stream(_: ffi::Stream) -> Status {
    0
}
unsafe extern "C" fn copy_2d(copy: *const ffi::Copy2d, _: ffi::Stream) -> Status {
    let copy = unsafe { &*copy };
    for row in 0..copy.height {
        let source = (copy.src_device as usize + (copy.src_y + row) * copy.src_pitch + copy.src_x_bytes) as *const u8;
        let out = unsafe { copy.dst_host.cast::<u8>().add(row * copy.dst_pitch) };
        unsafe { std::ptr::copy_nonoverlapping(source, out, copy.width_bytes) };
    }
    0
}
unsafe extern "C" fn alloc_host(out: *mut *mut c_void, bytes: usize) -> Status {
    unsafe { *out = libc::malloc(bytes) };
    0
}
unsafe extern "C" fn free_host(memory: *mut c_void) -> Status {
    unsafe { libc::free(memory) };
    0
}
unsafe extern "C" fn error_text(_: Status, _: *mut *const c_char) -> Status {
    1
}

fn device() -> Device {
    let cuda = Cuda {
        init,
        device_get,
        device_name,
        retain,
        release,
        push,
        pop,
        exchange_capture_mode,
        stream_create,
        stream_destroy: stub_stream,
        stream_synchronize: stub_stream,
        copy_2d,
        alloc_host,
        free_host,
        error_name: error_text,
        error_string: error_text,
    };
    let cuvid = Cuvid {
        caps,
        create_parser,
        parse,
        destroy_parser,
        create_decoder,
        reconfigure,
        decode,
        status,
        map,
        unmap,
        destroy_decoder,
    };
    Device::open(Driver { cuda, cuvid }, 0).unwrap()
}

/// Which images refer to an image, and which may precede it.
#[derive(Clone, Copy)]
enum Kind {
    /// A key frame that no leading images precede in presentation order.
    Idr,
    /// A key frame that leading images precede in presentation order.
    Open,
    Reference,
    Single,
}

fn packet(number: usize, (kind, order, is_damaged): (Kind, u8, bool)) -> Vec<u8> {
    let header = match kind {
        Kind::Idr => 0x65,
        Kind::Open | Kind::Reference => 0x61,
        Kind::Single => 0x01,
    };
    vec![0, 0, 0, 4, header, number as u8 + 1, order, 1 + u8::from(is_damaged)]
}

fn config(codec: Codec) -> CodecConfig {
    let record = if codec == Codec::H264 { vec![1, 100, 0, 30, 0xff, 0xe0, 0] } else { Vec::new() };
    CodecConfig { codec, width: SIZE.0, height: SIZE.1, record, color: None }
}

fn sample_value(planes: &Planes<'_>) -> u8 {
    let samples = (0..3).flat_map(|plane| {
        let (width, height) = planes.size(plane);
        (0..width * height).map(move |pixel| planes.sample(plane, pixel % width, pixel / width))
    });
    let first = planes.sample(0, 0, 0);
    assert!((planes.width, planes.height) == (64, 48) && samples.into_iter().all(|sample| sample == first));
    first as u8
}

fn frame_number(decoder: &mut Decoder, packet: usize) -> Result<Option<u8>, String> {
    let is_available = decoder.frame(packet).map_err(|e| e.to_string())?;
    Ok(is_available.then(|| sample_value(&decoder.planes())))
}

fn run(images: &[(Kind, u8, bool)]) -> Vec<Result<Option<u8>, String>> {
    let mut decoder = Decoder::new(device()).unwrap();
    decoder.start(&config(Codec::H264)).unwrap();
    let mut numbers = Vec::new();
    for (index, &image) in images.iter().enumerate() {
        decoder.push(&packet(index, image)).unwrap();
        numbers.push(frame_number(&mut decoder, index));
    }
    numbers
}

fn all_numbers(count: u8) -> Vec<Result<Option<u8>, String>> {
    (1..=count).map(|number| Ok(Some(number))).collect()
}

use Kind::{Idr, Open, Reference, Single};

#[test]
fn frames_belong_to_their_packets_with_b_frames() {
    let group = [(Idr, 1, false), (Reference, 5, false), (Reference, 3, false), (Single, 2, false), (Single, 4, false)];
    let next_group: Vec<_> = group[1..].iter().map(|&(kind, order, _)| (kind, order + 4, false)).collect();
    assert_eq!(run(&[&group[..], &next_group, &next_group].concat()), all_numbers(13));
}

#[test]
fn frames_belong_to_their_packets_after_an_open_key_frame() {
    let images = [(Open, 5, false), (Single, 3, false), (Single, 4, false), (Reference, 8, false), (Single, 6, false)];
    assert_eq!(run(&images), all_numbers(5));
}

#[test]
fn damage_of_leading_images_spreads_to_leading_images_only() {
    let images = [(Open, 5, false), (Reference, 3, true), (Single, 4, false), (Reference, 8, false)];
    let numbers = run(&images);
    for number in &numbers[1..3] {
        assert!(number.as_ref().unwrap_err().contains("packet 1 after the key frame is damaged"), "{number:?}");
    }
    assert_eq!(numbers[3], Ok(Some(4)));
    let images = [(Idr, 5, false), (Reference, 3, true), (Single, 4, false), (Reference, 8, false)];
    let numbers = run(&images);
    assert!(numbers[1..].iter().all(|numbers| numbers.as_ref().unwrap_err().contains("packet 1 after")), "{numbers:?}");
}

#[test]
fn the_frame_of_a_vp9_packet_is_the_one_that_it_shows() {
    let packets = [
        (vp9::key(2), 1),
        (vp9::inter(true, 1), 2),
        // This packet has a hidden image that replaces reference 2, and a shown image.
        (vp9::superframe(&[vp9::inter(false, 4), vp9::inter(true, 1)]), 4),
        (vp9::inter(true, 0), 5),
        (vp9::inter(true, 1), 6),
        (vp9::existing(2), 3),
        (vp9::existing(7), 1),
        (vp9::inter(true, 1), 7),
    ];
    let mut decoder = Decoder::new(device()).unwrap();
    decoder.start(&config(Codec::Vp9)).unwrap();
    for (index, (packet, expected)) in packets.iter().enumerate() {
        decoder.push(packet).unwrap();
        assert!(decoder.frame(index).unwrap());
        assert_eq!(sample_value(&decoder.planes()), *expected);
        assert_eq!(decoder.planes().coding, Coding { matrix: 1, is_full_range: true, bits: 8 });
    }
}

#[test]
fn packets_after_a_damaged_one_fail_with_the_same_reason() {
    let mut decoder = Decoder::new(device()).unwrap();
    decoder.start(&config(Codec::H264)).unwrap();
    decoder.push(&packet(0, (Idr, 1, false))).unwrap();
    let reason =
        "packet 1 after the key frame is damaged (the NAL unit at byte 0 of the packet claims 9 bytes, but 1 follow)";
    assert_eq!(decoder.push(&[0, 0, 0, 9, 1]).unwrap_err().to_string(), reason);
    assert_eq!(decoder.push(&packet(2, (Reference, 3, false))).unwrap_err().to_string(), reason);
    assert_eq!(frame_number(&mut decoder, 0), Ok(Some(1)), "it precedes the damage");
    assert_eq!(frame_number(&mut decoder, 2), Err(reason.to_owned()));
    decoder.start(&config(Codec::H264)).unwrap();
    decoder.push(&packet(4, (Idr, 1, false))).unwrap();
    assert_eq!(frame_number(&mut decoder, 0), Ok(Some(5)));
}

#[test]
fn a_packet_without_exactly_one_image_is_damaged() {
    let mut decoder = Decoder::new(device()).unwrap();
    decoder.start(&config(Codec::H264)).unwrap();
    decoder.push(&packet(0, (Idr, 1, false))).unwrap();
    let two_packets = [packet(1, (Single, 2, false)), packet(2, (Single, 3, false))].concat();
    assert!(decoder.push(&two_packets).unwrap_err().to_string().contains("it contains 2 images"));
    decoder.start(&config(Codec::H264)).unwrap();
    // The simulated parser does not support partitions.
    let error = decoder.push(&[0, 0, 0, 2, 2, 1]).unwrap_err().to_string();
    assert!(error.contains("the parser of the driver found no image in it"), "{error}");
}

fn records(first: usize) -> Vec<Vec<u8>> {
    let group = [(Idr, 1, false), (Reference, 5, false), (Reference, 3, false), (Single, 2, false), (Single, 4, false)];
    let packets: Vec<_> = group.iter().enumerate().map(|(index, &image)| packet(first + index, image)).collect();
    let of_frame = |count: usize| {
        let mut bytes = Vec::new();
        record::write_header(&config(Codec::H264), 1, "", count as u32, &mut bytes).unwrap();
        for packet in &packets[..count] {
            bytes.extend((packet.len() as u32).to_le_bytes());
            bytes.extend(packet);
        }
        bytes
    };
    (1..=packets.len()).map(of_frame).collect()
}

fn show(decoder: &mut FrameDecoder, record: &[u8]) -> u8 {
    decoder.decode(&Record::parse(record).unwrap(), &[], |planes| Ok(sample_value(planes))).unwrap()
}

#[test]
fn the_same_frames_result_for_any_order_of_records() {
    let (records, pool) = (records(0), Arc::new(Pool::new(device())));
    let mut decoder = FrameDecoder::with_pool(&pool);
    // Show the frames in presentation order first, and then all pairs of frames.
    assert_eq!([0, 3, 2, 4, 1].map(|index| show(&mut decoder, &records[index])), [1, 4, 3, 5, 2]);
    for (first, second) in (0..25).map(|pair| (pair / 5, pair % 5)) {
        let numbers = [first, second].map(|index| show(&mut decoder, &records[index]));
        assert_eq!(numbers, [first as u8 + 1, second as u8 + 1]);
    }
    for record in &records {
        show(&mut decoder, record);
    }
    let before = decoder.decoded_packets();
    show(&mut decoder, &records[4]);
    assert_eq!(decoder.decoded_packets(), before, "nothing is decoded twice");
    decoder.release();
    let mut other = FrameDecoder::with_pool(&pool);
    show(&mut other, &records[4]);
    assert_eq!(other.decoded_packets(), 0, "a different thread continues");
    assert_eq!(pool.session_count(), 1);
}

fn show_before(decoder: &mut FrameDecoder, record: &[u8], later: &[Vec<u8>]) -> u8 {
    let later: Vec<_> = later.iter().map(|bytes| Record::parse(bytes).unwrap()).collect();
    decoder.decode(&Record::parse(record).unwrap(), &later, |planes| Ok(sample_value(planes))).unwrap()
}

#[test]
fn frames_are_decoded_ahead_and_only_once() {
    let (records, pool) = (records(0), Arc::new(Pool::new(device())));
    let mut decoder = FrameDecoder::with_pool(&pool);
    assert_eq!(show_before(&mut decoder, &records[0], &records[1..]), 1);
    assert_eq!(decoder.decoded_packets(), 3, "the frame and two more");
    assert_eq!(show_before(&mut decoder, &records[1], &records[2..]), 2);
    assert_eq!(decoder.decoded_packets(), 4);
}

#[test]
fn the_same_frames_result_with_later_frames_of_any_order() {
    let (first_records, other_records, pool) = (records(0), records(10), Arc::new(Pool::new(device())));
    let mut decoder = FrameDecoder::with_pool(&pool);
    for (frame, first, second) in (0..250).map(|n| (n / 50, n / 10 % 5, n % 10)) {
        let second = first_records.iter().chain(&other_records).nth(second).unwrap();
        let later = [first_records[first].clone(), second.clone()];
        assert_eq!(usize::from(show_before(&mut decoder, &first_records[frame], &later)), frame + 1);
    }
}

#[test]
fn damage_of_a_later_frame_does_not_affect_a_frame() {
    let (records_of_group, pool) = (records(0), Arc::new(Pool::new(device())));
    let mut damaged = records_of_group[2].clone();
    let offset = damaged.len() - 8;
    damaged[offset + 3] = 200;
    let mut decoder = FrameDecoder::with_pool(&pool);
    assert_eq!(show_before(&mut decoder, &records_of_group[0], &[records_of_group[1].clone(), damaged.clone()]), 1);
    assert_eq!(show_before(&mut decoder, &records_of_group[1], std::slice::from_ref(&damaged)), 2);
    let error = decoder.decode(&Record::parse(&damaged).unwrap(), &[], |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("packet 2 after the key frame is damaged"), "{error}");
}

#[test]
fn many_threads_share_few_decoders() {
    let pool = Arc::new(Pool::new(device()));
    let groups: Vec<_> = (0..6).map(|group| records(group * 10)).collect();
    std::thread::scope(|scope| {
        for thread in 0..3 * MAX_SESSIONS {
            let (pool, groups) = (&pool, &groups);
            scope.spawn(move || {
                let mut decoder = FrameDecoder::with_pool(pool);
                for step in 0..60 {
                    let (group, frame) = ((thread + step / 5) % 6, step * (thread + 1) % 5);
                    assert_eq!(usize::from(show(&mut decoder, &groups[group][frame])), group * 10 + frame + 1);
                    if step % 7 == 0 {
                        decoder.release();
                    }
                }
            });
        }
    });
    assert!(pool.session_count() <= MAX_SESSIONS);
}

#[test]
fn a_thread_waits_while_all_decoders_are_in_use() {
    let (pool, records) = (Arc::new(Pool::new(device())), records(0));
    let mut decoders: Vec<_> = (0..MAX_SESSIONS).map(|_| FrameDecoder::with_pool(&pool)).collect();
    decoders.iter_mut().for_each(|decoder| assert_eq!(show(decoder, &records[2]), 3));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| show(&mut FrameDecoder::with_pool(&pool), &records[4]));
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!waits.is_finished());
        decoders[3].release();
        assert_eq!(waits.join().unwrap(), 5);
    });
    assert_eq!(pool.session_count(), MAX_SESSIONS);
}

#[test]
fn a_damaged_record_leaves_the_decoder_usable() {
    let pool = Arc::new(Pool::new(device()));
    let (mut decoder, records_of_group) = (FrameDecoder::with_pool(&pool), records(0));
    let mut damaged = records_of_group[2].clone();
    let offset = damaged.len() - 8;
    damaged[offset + 3] = 200;
    let error = decoder.decode(&Record::parse(&damaged).unwrap(), &[], |_| Ok(())).unwrap_err().to_string();
    assert!(error.starts_with("packet 2 after the key frame is damaged"), "{error}");
    assert_eq!(show(&mut decoder, &records_of_group[2]), 3);
}

#[test]
fn a_child_process_refuses_to_decode_and_ends_cleanly() {
    let (pool, records) = (Arc::new(Pool::new(device())), records(0));
    let mut decoder = FrameDecoder::with_pool(&pool);
    show(&mut decoder, &records[0]);
    // A thread that does not exist in the child process has locked the pool.
    let locked = pool.lock();
    let child = unsafe { libc::fork() };
    if child == 0 {
        let result = decoder.decode(&Record::parse(&records[0]).unwrap(), &[], |_| Ok(()));
        let is_refused = result.is_err_and(|e| e.to_string().contains("created by a fork of process"));
        drop(decoder);
        unsafe { libc::_exit(if is_refused { 0 } else { 1 }) };
    }
    drop(locked);
    let mut status = 0;
    assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
    assert_eq!(show(&mut decoder, &records[1]), 2);
}
