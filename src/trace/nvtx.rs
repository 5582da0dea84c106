#![cfg_attr(feature = "nvtx", allow(unsafe_code))]
//! Opens NVTX ranges, which Nsight Systems shows, with the names of the spans in a trace. Without
//! the `nvtx` feature, the functions in this module do nothing.
//!
//! A profiling tool sets the `NVTX_INJECTION64_PATH` environment variable to the path of its
//! library. The first range loads the library and calls its function `InitializeInjectionNvtx2`,
//! which stores function pointers in tables. This is the protocol of NVIDIA's NVTX 3 headers
//! (`nvtxTypes.h` and `nvtxInit.h`). This module implements the protocol in Rust, so neither CUDA
//! nor a C compiler is needed. Without a tool, a range costs two memory loads.
//!
//! **Invariants**
//! 1. The library stays loaded until the process ends, as tools expect.
//! 2. Slot n of a module's table is null or a function of the type that the protocol assigns to
//!    slot n.

/// Opens a range with the given name. [`pop`] closes the range that was opened last on this thread.
#[cfg(not(feature = "nvtx"))]
pub(super) fn push(_: &str) {}

#[cfg(not(feature = "nvtx"))]
pub(super) fn pop() {}

#[cfg(feature = "nvtx")]
pub(super) use tool::{pop, push};

#[derive(Debug)]
pub(crate) struct Range(std::marker::PhantomData<*const ()>);

pub(crate) fn range(name: &str) -> Range {
    push(name);
    Range(std::marker::PhantomData)
}

impl Drop for Range {
    fn drop(&mut self) {
        pop();
    }
}

#[cfg(feature = "nvtx")]
mod tool {
    use std::ffi::{c_char, c_int, c_uint, c_void};
    use std::mem::{size_of, transmute};
    use std::ptr::null_mut;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    struct Tool {
        push: Push,
        pop: Pop,
    }

    type Push = extern "C" fn(*const c_char) -> c_int;
    type Pop = extern "C" fn() -> c_int;

    type Slot = AtomicPtr<c_void>;

    /// Number of functions in each module. The modules 1 to 6 are core, CUDA, OpenCL, CUDA runtime,
    /// core 2 (domains) and sync. There is no module 0.
    const MODULE_LENS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
    /// `NVTX_CB_MODULE_CORE`.
    const CORE: usize = 1;
    /// `NVTX_CBID_CORE_RangePushA`.
    const RANGE_PUSH_A: usize = 9;
    /// `NVTX_CBID_CORE_RangePop`.
    const RANGE_POP: usize = 11;
    /// `NVTX_ETID_CALLBACKS`.
    const CALLBACKS: u32 = 1;
    /// `NVTX_ETID_VERSIONINFO`.
    const VERSION: u32 = 3;

    static SLOTS: [[Slot; 16]; MODULE_LENS.len()] =
        [const { [const { AtomicPtr::new(null_mut()) }; 16] }; MODULE_LENS.len()];
    /// For each module, pointers to its slots, followed by a null pointer, which the protocol
    /// requires at the end of each list.
    static TABLES: OnceLock<Vec<Vec<Pointer>>> = OnceLock::new();

    #[repr(transparent)]
    struct Pointer(*const Slot);

    // SAFETY: the pointer is null or points to a static atomic.
    unsafe impl Send for Pointer {}
    // SAFETY: the pointer is null or points to a static atomic.
    unsafe impl Sync for Pointer {}

    #[repr(C)]
    struct CallbackTable {
        bytes: usize,
        module: extern "C" fn(c_int, *mut *const Pointer, *mut c_uint) -> c_int,
    }

    #[repr(C)]
    struct VersionTable {
        bytes: usize,
        version: u32,
        reserved: u32,
        set: extern "C" fn(u32),
    }

    extern "C" fn module(module: c_int, table: *mut *const Pointer, len: *mut c_uint) -> c_int {
        let tables = TABLES.get_or_init(|| {
            let pointers = |(slots, &len): (&'static [Slot; 16], &usize)| {
                let used = (0..len).map(|i| Pointer(if i == 0 { std::ptr::null() } else { &raw const slots[i] }));
                used.chain([Pointer(std::ptr::null())]).collect()
            };
            SLOTS.iter().zip(&MODULE_LENS).map(pointers).collect()
        });
        let Some(number) = usize::try_from(module).ok().filter(|n| (1..MODULE_LENS.len()).contains(n)) else {
            return 0;
        };
        // SAFETY: according to the protocol, both pointers are null or valid for a write.
        unsafe {
            if !len.is_null() {
                *len = MODULE_LENS[number] as c_uint;
            }
            if !table.is_null() {
                *table = tables[number].as_ptr();
            }
        }
        1
    }

    extern "C" fn injected(_: u32) {}

    extern "C" fn export(table: u32) -> *const c_void {
        static CALLBACK_TABLE: CallbackTable = CallbackTable { bytes: size_of::<CallbackTable>(), module };
        static VERSION_TABLE: VersionTable =
            VersionTable { bytes: size_of::<VersionTable>(), version: 3, reserved: 0, set: injected };
        match table {
            CALLBACKS => (&raw const CALLBACK_TABLE).cast(),
            VERSION => (&raw const VERSION_TABLE).cast(),
            _ => std::ptr::null(),
        }
    }

    fn tool() -> Option<&'static Tool> {
        static TOOL: OnceLock<Option<Tool>> = OnceLock::new();
        TOOL.get_or_init(load).as_ref()
    }

    /// Returns `None` if `NVTX_INJECTION64_PATH` is not set, if the tool cannot be loaded, or if it
    /// does not record ranges.
    fn load() -> Option<Tool> {
        let path = std::env::var_os("NVTX_INJECTION64_PATH")?;
        let warn = |e: &dyn std::fmt::Display| tracing::warn!("NVTX_INJECTION64_PATH={}: {e}", path.display());
        // SAFETY: loading the library runs its initializers, which the user requests by setting the
        // variable.
        let library = unsafe { libloading::Library::new(&path) }.inspect_err(|e| warn(e)).ok()?;
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        type Initialize = extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
        // SAFETY: according to the protocol, the symbol has this type.
        let initialize =
            unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") }.inspect_err(|e| warn(e)).ok()?;
        if initialize(export) == 0 {
            warn(&"InitializeInjectionNvtx2 reports a failure");
            return None;
        }
        let [push, pop] = [RANGE_PUSH_A, RANGE_POP].map(|slot| SLOTS[CORE][slot].load(Relaxed));
        if push.is_null() || pop.is_null() {
            return None;
        }
        // SAFETY: invariant 2, and neither pointer is null.
        Some(unsafe { Tool { push: transmute::<*mut c_void, Push>(push), pop: transmute::<*mut c_void, Pop>(pop) } })
    }

    pub(in super::super) fn push(name: &str) {
        let Some(tool) = tool() else { return };
        // The tool copies the name, so a buffer on the stack is enough. Longer names are truncated.
        let mut text = [0; 64];
        let len = name.len().min(text.len() - 1);
        text[..len].copy_from_slice(&name.as_bytes()[..len]);
        (tool.push)(text.as_ptr().cast());
    }

    pub(in super::super) fn pop() {
        if let Some(tool) = tool() {
            (tool.pop)();
        }
    }
}
