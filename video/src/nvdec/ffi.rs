//! The functions and structures of `libcuda` and `libnvcuvid` that decoding uses, and the code that
//! loads these functions.
//!
//! The layouts follow the headers of version 9 of NVIDIA's Video Codec SDK. Later versions changed
//! only reserved fields.
//!
//! **Invariants**
//! 1. The type of each function is the one that the headers declare, so calling a function has only
//!    the preconditions that the headers name.
//! 2. The libraries stay loaded, so the functions stay valid.
//! 3. All structures are `repr(C)`, contain no references, and are valid if all of their bytes are
//!    zero.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_short, c_uchar, c_uint, c_ulong, c_ushort, c_void};

/// A result of either library. 0 is success.
pub(super) type Status = c_int;

/// The result of a query that the codec or the GPU does not support.
pub(super) const NOT_SUPPORTED: Status = 801;

macro_rules! functions {
    ($(#[$doc:meta])* $name:ident { $($field:ident = $symbol:literal: fn($($arg:ty),*) -> Status,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        pub(super) struct $name {
            $(pub(super) $field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl $name {
            /// Looks up all functions. Returns the name of the first missing function as the error.
            ///
            /// # Safety
            /// `library` must be the library that the headers describe, and must stay loaded.
            pub(super) unsafe fn load(library: &libloading::Library) -> Result<Self, &'static str> {
                // SAFETY: the caller ensures that the symbols have the declared types (invariant 1).
                unsafe {
                    Ok($name { $($field: *library.get(concat!($symbol, "\0").as_bytes()).map_err(|_| $symbol)?,)* })
                }
            }
        }
    };
}

functions! {
    /// `libcuda`.
    Cuda {
        init = "cuInit": fn(c_uint) -> Status,
        device_get = "cuDeviceGet": fn(*mut c_int, c_int) -> Status,
        device_name = "cuDeviceGetName": fn(*mut c_char, c_int, c_int) -> Status,
        retain = "cuDevicePrimaryCtxRetain": fn(*mut Context, c_int) -> Status,
        release = "cuDevicePrimaryCtxRelease_v2": fn(c_int) -> Status,
        push = "cuCtxPushCurrent_v2": fn(Context) -> Status,
        pop = "cuCtxPopCurrent_v2": fn(*mut Context) -> Status,
        exchange_capture_mode = "cuThreadExchangeStreamCaptureMode": fn(*mut c_int) -> Status,
        stream_create = "cuStreamCreate": fn(*mut Stream, c_uint) -> Status,
        stream_destroy = "cuStreamDestroy_v2": fn(Stream) -> Status,
        stream_synchronize = "cuStreamSynchronize": fn(Stream) -> Status,
        copy_2d = "cuMemcpy2DAsync_v2": fn(*const Copy2d, Stream) -> Status,
        alloc_host = "cuMemAllocHost_v2": fn(*mut *mut c_void, usize) -> Status,
        free_host = "cuMemFreeHost": fn(*mut c_void) -> Status,
        error_name = "cuGetErrorName": fn(Status, *mut *const c_char) -> Status,
        error_string = "cuGetErrorString": fn(Status, *mut *const c_char) -> Status,
    }
}

functions! {
    /// `libnvcuvid`.
    Cuvid {
        caps = "cuvidGetDecoderCaps": fn(*mut Caps) -> Status,
        create_parser = "cuvidCreateVideoParser": fn(*mut Parser, *mut ParserParams) -> Status,
        parse = "cuvidParseVideoData": fn(Parser, *mut SourcePacket) -> Status,
        destroy_parser = "cuvidDestroyVideoParser": fn(Parser) -> Status,
        create_decoder = "cuvidCreateDecoder": fn(*mut DecoderHandle, *mut CreateInfo) -> Status,
        reconfigure = "cuvidReconfigureDecoder": fn(DecoderHandle, *mut ReconfigureInfo) -> Status,
        decode = "cuvidDecodePicture": fn(DecoderHandle, *mut PicParams) -> Status,
        status = "cuvidGetDecodeStatus": fn(DecoderHandle, c_int, *mut DecodeStatus) -> Status,
        map = "cuvidMapVideoFrame64": fn(DecoderHandle, c_int, *mut u64, *mut c_uint, *mut ProcParams) -> Status,
        unmap = "cuvidUnmapVideoFrame64": fn(DecoderHandle, u64) -> Status,
        destroy_decoder = "cuvidDestroyDecoder": fn(DecoderHandle) -> Status,
    }
}

/// `CUcontext`.
pub(super) type Context = *mut c_void;
/// `CUstream`.
pub(super) type Stream = *mut c_void;
/// `CUvideoparser`.
pub(super) type Parser = *mut c_void;
/// `CUvideodecoder`.
pub(super) type DecoderHandle = *mut c_void;

/// `cudaVideoCodec`.
pub(super) mod codec {
    use std::ffi::c_int;

    pub(in super::super) const H264: c_int = 4;
    pub(in super::super) const HEVC: c_int = 8;
    pub(in super::super) const VP9: c_int = 10;
}

/// `cudaVideoChromaFormat`: 4:2:0.
pub(super) const CHROMA_420: c_int = 1;
/// `cudaVideoSurfaceFormat`: 8-bit luma, followed by interleaved chroma.
pub(super) const NV12: c_int = 0;
/// `cudaVideoSurfaceFormat`: like [`NV12`], with samples in the upper bits of 16-bit words.
pub(super) const P016: c_int = 1;
/// `cudaVideoCreateFlags`: use the video engines.
pub(super) const USE_VIDEO_ENGINES: c_ulong = 4;
/// `CUstreamCaptureMode`: calls do not invalidate the captures of other threads.
pub(super) const CAPTURE_RELAXED: c_int = 2;
/// `CUstream_flags`: the stream does not synchronize with the default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CUmemorytype`.
pub(super) const MEMORY_HOST: c_uint = 1;
/// `CUmemorytype`.
pub(super) const MEMORY_DEVICE: c_uint = 2;

/// `CUvideopacketflags`.
pub(super) mod packet {
    use std::ffi::c_ulong;

    pub(in super::super) const HAS_TIMESTAMP: c_ulong = 2;
    /// The packet contains exactly one frame or one field.
    pub(in super::super) const END_OF_PICTURE: c_ulong = 8;
}

/// `cuvidDecodeStatus`.
pub(super) mod decoded {
    use std::ffi::c_int;

    pub(in super::super) const IN_PROGRESS: c_int = 1;
    pub(in super::super) const ERROR: c_int = 8;
    pub(in super::super) const CONCEALED: c_int = 9;
}

/// Declares structures, and how to create them with all bytes zero.
macro_rules! structs {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(dead_code)]
        pub(super) struct $name {
            $($(#[$field_doc])* pub(super) $field: $type,)*
        }

        impl $name {
            #[allow(dead_code, reason = "the driver creates some of the structures")]
            pub(super) fn zeroed() -> Self {
                // SAFETY: invariant 3.
                unsafe { std::mem::zeroed() }
            }
        }
    )*};
}

/// Called before the first frame, and when the format changes.
pub(super) type OnSequence = unsafe extern "C" fn(*mut c_void, *mut Format) -> c_int;
/// Called when a frame can be decoded, in decoding order.
pub(super) type OnDecode = unsafe extern "C" fn(*mut c_void, *mut PicParams) -> c_int;
/// Called when a frame can be shown, in presentation order. Until then, its surface is not reused.
pub(super) type OnDisplay = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;

structs! {
    /// A rectangle of a `CUVIDDECODECREATEINFO` or `CUVIDRECONFIGUREDECODERINFO`.
    struct ShortRect {
        left: c_short,
        top: c_short,
        right: c_short,
        bottom: c_short,
    }

    /// The rectangle of a `CUVIDEOFORMAT`.
    struct Rect {
        left: c_int,
        top: c_int,
        right: c_int,
        bottom: c_int,
    }

    /// `CUVIDDECODECAPS`.
    struct Caps {
        codec: c_int,
        chroma: c_int,
        bit_depth_minus8: c_uint,
        reserved1: [c_uint; 3],
        is_supported: c_uchar,
        engines: c_uchar,
        output_formats: c_ushort,
        max_width: c_uint,
        max_height: c_uint,
        max_macroblocks: c_uint,
        min_width: c_ushort,
        min_height: c_ushort,
        histogram: [c_uchar; 4],
        reserved3: [c_uint; 10],
    }

    /// `CUVIDEOFORMAT`.
    struct Format {
        codec: c_int,
        frame_rate: [c_uint; 2],
        progressive: c_uchar,
        bit_depth_luma_minus8: c_uchar,
        bit_depth_chroma_minus8: c_uchar,
        min_surfaces: c_uchar,
        coded_width: c_uint,
        coded_height: c_uint,
        display_area: Rect,
        chroma: c_int,
        bitrate: c_uint,
        aspect_ratio: [c_int; 2],
        /// Bits 0 to 2 are the video format. Bit 3 says whether values have the full range.
        signal: c_uchar,
        primaries: c_uchar,
        transfer: c_uchar,
        matrix: c_uchar,
        sequence_header_bytes: c_uint,
    }

    /// `CUVIDPARSERPARAMS`.
    struct ParserParams {
        codec: c_int,
        max_surfaces: c_uint,
        clock_rate: c_uint,
        /// Percentage of damage up to which a frame is passed to [`OnDecode`].
        error_threshold: c_uint,
        max_display_delay: c_uint,
        flags: c_uint,
        reserved1: [c_uint; 4],
        user: *mut c_void,
        on_sequence: Option<OnSequence>,
        on_decode: Option<OnDecode>,
        on_display: Option<OnDisplay>,
        on_operating_point: *mut c_void,
        reserved2: [*mut c_void; 6],
        extended_format: *mut c_void,
    }

    /// `CUVIDSOURCEDATAPACKET`.
    struct SourcePacket {
        flags: c_ulong,
        bytes: c_ulong,
        data: *const u8,
        timestamp: i64,
    }

    /// `CUVIDDECODECREATEINFO`.
    struct CreateInfo {
        width: c_ulong,
        height: c_ulong,
        surfaces: c_ulong,
        codec: c_int,
        chroma: c_int,
        flags: c_ulong,
        bit_depth_minus8: c_ulong,
        intra_only: c_ulong,
        max_width: c_ulong,
        max_height: c_ulong,
        reserved1: c_ulong,
        display_area: ShortRect,
        output_format: c_int,
        deinterlace: c_int,
        target_width: c_ulong,
        target_height: c_ulong,
        output_surfaces: c_ulong,
        lock: *mut c_void,
        target_rect: ShortRect,
        enable_histogram: c_ulong,
        reserved2: [c_ulong; 4],
    }

    /// `CUVIDRECONFIGUREDECODERINFO`.
    struct ReconfigureInfo {
        width: c_uint,
        height: c_uint,
        target_width: c_uint,
        target_height: c_uint,
        surfaces: c_uint,
        reserved1: [c_uint; 12],
        display_area: ShortRect,
        target_rect: ShortRect,
        reserved2: [c_uint; 11],
    }

    /// `CUVIDPICPARAMS`. The parser fills it, and the decoder reads it.
    struct PicParams {
        width_in_macroblocks: c_int,
        height_in_macroblocks: c_int,
        surface: c_int,
        is_field: c_int,
        is_bottom_field: c_int,
        is_second_field: c_int,
        bytes: c_uint,
        data: *const u8,
        slices: c_uint,
        slice_offsets: *const c_uint,
        is_reference: c_int,
        is_intra: c_int,
        reserved: [c_uint; 30],
        /// `CUVIDH264PICPARAMS` for H.264, which is mostly unused here.
        codec_specific: [c_int; 24],
        /// The presentation order of the two fields of an H.264 image.
        order_h264: [c_int; 2],
        codec_specific_rest: [c_int; 998],
    }

    /// `CUVIDGETDECODESTATUS`.
    struct DecodeStatus {
        status: c_int,
        reserved1: [c_uint; 31],
        reserved2: [*mut c_void; 8],
    }

    /// `CUVIDPROCPARAMS`.
    struct ProcParams {
        progressive: c_int,
        second_field: c_int,
        top_field_first: c_int,
        unpaired_field: c_int,
        reserved1: [c_uint; 2],
        raw_input: u64,
        raw_input_format: [c_uint; 2],
        raw_output: u64,
        raw_output_format: [c_uint; 2],
        stream: Stream,
        reserved2: [c_uint; 46],
        histogram: *mut c_void,
        reserved3: *mut c_void,
    }

    /// `CUDA_MEMCPY2D`.
    struct Copy2d {
        src_x_bytes: usize,
        src_y: usize,
        src_type: c_uint,
        src_host: *const c_void,
        src_device: u64,
        src_array: *mut c_void,
        src_pitch: usize,
        dst_x_bytes: usize,
        dst_y: usize,
        dst_type: c_uint,
        dst_host: *mut c_void,
        dst_device: u64,
        dst_array: *mut c_void,
        dst_pitch: usize,
        width_bytes: usize,
        height: usize,
    }
}

/// Checks sizes and offsets against the headers, as a C compiler for 64-bit Linux lays them out.
macro_rules! layout {
    ($($name:ident $size:literal $($field:ident $offset:literal)*;)*) => {
        $(
            const _: () = assert!(size_of::<$name>() == $size);
            $(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset);)*
        )*
    };
}

layout! {
    Caps 88 is_supported 24 max_width 28 min_width 40 histogram 44 reserved3 48;
    Format 64 progressive 12 min_surfaces 15 coded_width 16 display_area 24 chroma 40 signal 56 matrix 59
        sequence_header_bytes 60;
    ParserParams 136 user 40 on_sequence 48 on_operating_point 72 extended_format 128;
    SourcePacket 32 data 16 timestamp 24;
    CreateInfo 176 codec 24 flags 32 display_area 80 output_format 88 target_width 96 lock 120 target_rect 128
        reserved2 144;
    ReconfigureInfo 128 surfaces 16 display_area 68 target_rect 76 reserved2 84;
    PicParams 4280 surface 8 is_field 12 is_second_field 20 bytes 24 data 32 is_reference 56 is_intra 60
        codec_specific 184 order_h264 280;
    DecodeStatus 192 reserved2 128;
    ProcParams 264 raw_input 24 raw_output 40 stream 56 histogram 248;
    Copy2d 128 src_type 16 src_device 32 src_pitch 48 dst_type 72 dst_host 80 dst_pitch 104 width_bytes 112;
}
