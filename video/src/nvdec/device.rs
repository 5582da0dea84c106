//! [`Device`] is a GPU, with the capabilities of its video engines.
//!
//! **Invariants**
//! 1. Functions of the driver that need a context are called only between [`Device::enter`] and the
//!    drop of its result, so that the context of the device is current.
//! 2. [`CurrentContext`] restores the previous context and capture mode of the thread.
//! 3. If a process has opened a GPU, a child that it creates by `fork` does not call the driver. No
//!    call starts after the exit handler of this file has run. The driver supports neither case.

#![allow(unsafe_code, reason = "see the invariants above")]

use std::ffi::{CStr, c_char, c_int};
use std::marker::PhantomData;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::ALTERNATIVES;
use super::ffi::{self, Caps, Cuda, Cuvid, Status};
use crate::codec::Codec;
use crate::error::{Error, ErrorKind, Result};

/// Maximum wait at exit for calls in progress.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Number of values of [`ActiveCall`] in all threads.
static ACTIVE_CALLS: AtomicUsize = AtomicUsize::new(0);
static IS_EXITING: AtomicBool = AtomicBool::new(false);
/// ID of the process that opened a GPU, or 0.
static PROCESS_ID: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy)]
pub(super) struct Driver {
    pub(super) cuda: Cuda,
    pub(super) cuvid: Cuvid,
}

impl Driver {
    pub(super) fn get() -> Result<Self> {
        static DRIVER: OnceLock<Result<Driver, String>> = OnceLock::new();
        let driver = DRIVER.get_or_init(|| Driver::open("libcuda.so.1", "libnvcuvid.so.1"));
        driver.clone().map_err(Error::unsupported)
    }

    fn open(cuda: &str, cuvid: &str) -> Result<Self, String> {
        let cuda_library = open_library(cuda).map_err(|why| {
            format!("decoding this video needs an NVIDIA GPU, but its driver was not found ({why}); {ALTERNATIVES}")
        })?;
        let cuvid_library = open_library(cuvid).map_err(|why| {
            format!(
                "decoding this video needs the video library of the NVIDIA driver, which was not found ({why}); in a \
                 container, set NVIDIA_DRIVER_CAPABILITIES to `all`, or to a list with `video`, such as \
                 `compute,utility,video`, and start the container again; otherwise, {ALTERNATIVES}"
            )
        })?;
        let too_old = |symbol| {
            format!(
                "the NVIDIA driver is too old to decode videos: it has no function {symbol}; install a newer driver, \
                 or {ALTERNATIVES}"
            )
        };
        // SAFETY: these are the libraries that the headers describe, and they are leaked.
        unsafe {
            let cuda = Cuda::load(cuda_library).map_err(too_old)?;
            let cuvid = Cuvid::load(cuvid_library).map_err(too_old)?;
            Ok(Driver { cuda, cuvid })
        }
    }

    pub(super) fn check(&self, status: Status, operation: impl FnOnce() -> String) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        let text = |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: the driver writes a pointer to a static string, or a null pointer.
            let result = unsafe { function(status, &raw mut text) };
            // SAFETY: as above.
            (result == 0 && !text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        let name = text(self.cuda.error_name).unwrap_or_else(|| format!("code {status}"));
        let meaning = text(self.cuda.error_string).unwrap_or_else(|| "unknown to the driver".into());
        Err(Error::new(ErrorKind::Device, format!("{} failed: {name} ({meaning})", operation())))
    }
}

/// Opens a library, which is never unloaded.
fn open_library(name: &str) -> Result<&'static libloading::Library, String> {
    // SAFETY: the initializers of the driver's libraries have no preconditions.
    let result = unsafe { libloading::Library::new(name) };
    let library = result.map_err(|e| {
        // The linker's message already names the library.
        std::error::Error::source(&e).map_or_else(|| format!("{name}: {e}"), ToString::to_string)
    })?;
    Ok(Box::leak(Box::new(library)))
}

#[derive(Clone)]
pub(super) struct Device(Arc<PrimaryContext>);

/// The primary context of a device, which the whole process shares.
struct PrimaryContext {
    driver: Driver,
    ordinal: usize,
    device: c_int,
    context: ffi::Context,
    /// The results of queries, which are cached because a query takes milliseconds.
    caps: Mutex<Vec<Caps>>,
}

// SAFETY: a context may be current on several threads at a time.
unsafe impl Send for PrimaryContext {}
// SAFETY: as above.
unsafe impl Sync for PrimaryContext {}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if let Ok(_call) = self.begin_call() {
            // SAFETY: `Device::open` retained the context.
            unsafe { (self.driver.cuda.release)(self.device) };
        }
    }
}

/// Marks a call of the driver, or a scope in which a context is current.
struct ActiveCall;

impl Drop for ActiveCall {
    fn drop(&mut self) {
        ACTIVE_CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

impl PrimaryContext {
    fn begin_call(&self) -> Result<ActiveCall> {
        check_process()?;
        // Count the call first, so that the exit handler either waits for it or makes it fail.
        ACTIVE_CALLS.fetch_add(1, Ordering::SeqCst);
        let call = ActiveCall;
        if IS_EXITING.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Device, "the process is exiting, so no more videos are decoded"));
        }
        Ok(call)
    }
}

/// Fails if the process was forked from a process that had opened a GPU.
pub(super) fn check_process() -> Result<()> {
    match PROCESS_ID.load(Ordering::SeqCst) {
        0 => Ok(()),
        process if process == std::process::id() => Ok(()),
        process => Err(Error::unsupported(format!(
            "this process was created by a fork of process {process}, which had already opened the GPU for decoding \
             videos, and the driver of NVIDIA does not support that; start worker processes with `spawn` or \
             `forkserver`, or decode no video before the fork"
        ))),
    }
}

/// Registers the exit handler, once per process. Exit handlers run in reverse order of
/// registration. The driver must be initialized first, so that its handlers run after this one.
fn register_exit_handler() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler neither panics nor unwinds, and has no preconditions.
        let _ = unsafe { libc::atexit(wait_for_calls) };
    });
}

extern "C" fn wait_for_calls() {
    // A child created by `fork` inherits the handler, but not the threads that make the calls.
    if check_process().is_err() {
        return;
    }
    IS_EXITING.store(true, Ordering::SeqCst);
    let wait_start = Instant::now();
    while ACTIVE_CALLS.load(Ordering::SeqCst) > 0 && wait_start.elapsed() < EXIT_TIMEOUT {
        std::thread::sleep(Duration::from_micros(50));
    }
}

impl Device {
    pub(super) fn shared(ordinal: usize) -> Result<Self> {
        static DEVICES: Mutex<Vec<Device>> = Mutex::new(Vec::new());
        let driver = Driver::get()?;
        check_process()?;
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.iter().find(|device| device.0.ordinal == ordinal) {
            return Ok(device.clone());
        }
        let device = Device::open(driver, ordinal)?;
        devices.push(device.clone());
        Ok(device)
    }

    pub(super) fn open(driver: Driver, ordinal: usize) -> Result<Self> {
        PROCESS_ID.store(std::process::id(), Ordering::SeqCst);
        let (mut device, mut context) = (0, null_mut());
        let operation = || format!("opening GPU {ordinal} for decoding videos");
        // SAFETY: these functions need no context. They write their results before they return.
        unsafe {
            driver.check((driver.cuda.init)(0), operation)?;
            driver.check((driver.cuda.device_get)(&raw mut device, ordinal as c_int), operation)?;
            driver.check((driver.cuda.retain)(&raw mut context, device), operation)?;
        }
        register_exit_handler();
        Ok(Device(Arc::new(PrimaryContext { driver, ordinal, device, context, caps: Mutex::default() })))
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.0.driver
    }

    fn name(&self) -> String {
        let Ok(_call) = self.0.begin_call() else { return format!("GPU {}", self.0.ordinal) };
        let mut name = [0; 128];
        // SAFETY: the driver writes a string of at most this length, which ends with a zero.
        let status = unsafe { (self.0.driver.cuda.device_name)(name.as_mut_ptr(), name.len() as c_int, self.0.device) };
        let name: Vec<u8> = name.iter().take_while(|&&c| c != 0).map(|&c| c as u8).collect();
        if status == 0 { String::from_utf8_lossy(&name).into_owned() } else { format!("GPU {}", self.0.ordinal) }
    }

    /// Makes the context of the device current on this thread until the result is dropped, and
    /// prevents calls on this thread from invalidating CUDA graph captures in other threads. Fails
    /// in a child process created by `fork` after a GPU was opened, and while the process exits.
    pub(super) fn enter(&self) -> Result<CurrentContext<'_>> {
        let call = self.0.begin_call()?;
        let driver = &self.0.driver;
        let mut mode = ffi::CAPTURE_RELAXED;
        // SAFETY: `PrimaryContext` retains the context. The driver reads and writes the mode during
        // the call.
        unsafe {
            driver.check((driver.cuda.push)(self.0.context), || {
                format!("entering the context of GPU {}", self.0.ordinal)
            })?;
            let exchange_status = (driver.cuda.exchange_capture_mode)(&raw mut mode);
            let previous_mode = (exchange_status == 0).then_some(mode);
            Ok(CurrentContext { driver, previous_mode, _call: call, _on_this_thread: PhantomData })
        }
    }

    /// Checks that the GPU can decode frames of a size, with 4:2:0 chroma. `describe_frames`
    /// describes the frames for the error.
    pub(super) fn check(
        &self,
        codec: Codec,
        bit_depth: u32,
        size: (u32, u32),
        describe_frames: impl FnOnce() -> String,
    ) -> Result<()> {
        let caps = self.caps(codec, bit_depth)?;
        match unsupported_reason(&caps, size) {
            None => Ok(()),
            Some(why) => Err(Error::unsupported(format!(
                "{} cannot decode {} ({why}); {ALTERNATIVES}",
                self.name(),
                describe_frames()
            ))),
        }
    }

    fn caps(&self, codec: Codec, bit_depth: u32) -> Result<Caps> {
        let mut caps = Caps::zeroed();
        caps.codec = cuvid_codec(codec).expect("checked by the bitstream");
        caps.chroma = ffi::CHROMA_420;
        caps.bit_depth_minus8 = bit_depth.saturating_sub(8);
        let mut cached_caps = self.0.caps.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |caps: &Caps| (caps.codec, caps.bit_depth_minus8);
        if let Some(caps) = cached_caps.iter().find(|entry| key(entry) == key(&caps)) {
            return Ok(*caps);
        }
        let _entered = self.enter()?;
        // SAFETY: the driver reads and writes the structure during the call.
        let status = unsafe { (self.0.driver.cuvid.caps)(&raw mut caps) };
        self.0.driver.check(status, || format!("asking GPU {} what it can decode", self.0.ordinal))?;
        cached_caps.push(caps);
        Ok(caps)
    }
}

pub(super) fn cuvid_codec(codec: Codec) -> Option<c_int> {
    match codec {
        Codec::H264 => Some(ffi::codec::H264),
        Codec::Hevc => Some(ffi::codec::HEVC),
        Codec::Vp9 => Some(ffi::codec::VP9),
        _ => None,
    }
}

fn unsupported_reason(caps: &Caps, (width, height): (u32, u32)) -> Option<String> {
    let (min_width, min_height) = (u32::from(caps.min_width), u32::from(caps.min_height));
    if caps.is_supported == 0 {
        Some("its video engines do not support this format".to_owned())
    } else if width > caps.max_width || height > caps.max_height {
        Some(format!("its video engines decode at most {} x {} pixels", caps.max_width, caps.max_height))
    } else if width < min_width || height < min_height {
        Some(format!("its video engines decode at least {min_width} x {min_height} pixels"))
    } else if u64::from(width) * u64::from(height) / 256 > u64::from(caps.max_macroblocks) {
        Some(format!("its video engines decode at most {} pixels", u64::from(caps.max_macroblocks) * 256))
    } else {
        None
    }
}

pub(super) struct CurrentContext<'a> {
    driver: &'a Driver,
    previous_mode: Option<c_int>,
    _call: ActiveCall,
    _on_this_thread: PhantomData<*const ()>,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let mut context = null_mut();
        // SAFETY: `enter` pushed the context. The driver reads and writes during the calls.
        unsafe {
            if let Some(mut mode) = self.previous_mode {
                (self.driver.cuda.exchange_capture_mode)(&raw mut mode);
            }
            (self.driver.cuda.pop)(&raw mut context);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_video_library_names_the_variable_of_containers() {
        // No function is looked up until both libraries are open, so any library can replace the
        // driver's first one.
        let text = Driver::open("libc.so.6", "libwarpfeed-missing.so.1").err().unwrap();
        assert!(text.contains("libwarpfeed-missing.so.1"), "{text}");
        for part in ["NVIDIA_DRIVER_CAPABILITIES", "`video`", "AV1", "warpfeed pack --frames"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_missing_driver_names_the_alternatives() {
        let text = Driver::open("libwarpfeed-missing.so.1", "libc.so.6").err().unwrap();
        assert!(
            text.starts_with("decoding this video needs an NVIDIA GPU, but its driver was not found (lib"),
            "{text}"
        );
        assert!(text.contains("warpfeed pack --frames"), "{text}");
    }

    #[test]
    fn a_driver_without_a_function_is_too_old() {
        let text = Driver::open("libc.so.6", "libc.so.6").err().unwrap();
        let start = "the NVIDIA driver is too old to decode videos: it has no function cuInit; install a newer driver";
        assert!(text.starts_with(start) && text.contains("warpfeed pack --frames"), "{text}");
    }

    #[test]
    fn what_a_gpu_cannot_decode_is_refused_with_its_limits() {
        let mut caps = Caps::zeroed();
        let reason = |caps: &Caps, size| unsupported_reason(caps, size).unwrap_or_default();
        assert_eq!(reason(&caps, (640, 480)), "its video engines do not support this format");
        (caps.is_supported, caps.min_width, caps.min_height) = (1, 48, 16);
        (caps.max_width, caps.max_height, caps.max_macroblocks) = (4096, 4096, 65_536);
        assert_eq!(reason(&caps, (4096, 4096)), "");
        assert_eq!(reason(&caps, (8192, 16)), "its video engines decode at most 4096 x 4096 pixels");
        assert_eq!(reason(&caps, (32, 32)), "its video engines decode at least 48 x 16 pixels");
        caps.max_macroblocks = 100;
        assert_eq!(reason(&caps, (1024, 1024)), "its video engines decode at most 25600 pixels");
    }
}
