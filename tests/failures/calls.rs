//! Intercepts the allocator, and the C library's functions for files, maps, locks and threads, so
//! that one call can be made to fail.
//!
//! The linker prefers these definitions to the C library, for this program and for all crates and C
//! code that are linked into it. Calls inside the C library itself are not intercepted.
//!
//! **Invariants**
//! 1. Each function has a signature that is compatible with its counterpart in the C library when
//!    called: pointers are untyped, and the optional argument of a variadic function is always
//!    present. The function either forwards its arguments, possibly with half the number of bytes
//!    to transfer, or returns the value that the counterpart returns after an error.
//! 2. Counting a call does not allocate memory.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::SeqCst};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub(crate) enum Kind {
    /// Returns null. Only allocations of at least [`LARGE`] bytes are counted.
    Allocation,
    /// Anonymous maps never fail, because stacks and the heap use them.
    Map,
    /// `madvise(MADV_POPULATE_READ)`, which fails as it does after a disk error in a mapped file.
    Pages,
    Open,
    Metadata,
    Listing,
    Read,
    /// Returns half the requested bytes, which is not an error.
    ShortRead,
    Write,
    /// Writes half the bytes, which is not an error.
    ShortWrite,
    /// The library must report this error.
    Sync,
    SyncFolder,
    Length,
    Rename,
    Remove,
    Folder,
    Lock,
    Thread,
}

impl Kind {
    pub(crate) const ALL: [Kind; 18] = [
        Kind::Allocation,
        Kind::Map,
        Kind::Pages,
        Kind::Open,
        Kind::Metadata,
        Kind::Listing,
        Kind::Read,
        Kind::ShortRead,
        Kind::Write,
        Kind::ShortWrite,
        Kind::Sync,
        Kind::SyncFolder,
        Kind::Length,
        Kind::Rename,
        Kind::Remove,
        Kind::Folder,
        Kind::Lock,
        Kind::Thread,
    ];

    fn code(self) -> c_int {
        match self {
            Kind::Allocation | Kind::Map => libc::ENOMEM,
            Kind::Pages => libc::EFAULT,
            Kind::Open => libc::EMFILE,
            Kind::Write | Kind::Length | Kind::Folder => libc::ENOSPC,
            Kind::Lock => libc::ENOLCK,
            Kind::Thread => libc::EAGAIN,
            _ => libc::EIO,
        }
    }

    pub(crate) fn is_short(self) -> bool {
        matches!(self, Kind::ShortRead | Kind::ShortWrite)
    }
}

/// Minimum size in bytes of an allocation that may fail.
pub(crate) const LARGE: usize = 16 << 10;

static COUNTS: AtomicBool = AtomicBool::new(false);
static CALLS: [AtomicUsize; Kind::ALL.len()] = [const { AtomicUsize::new(0) }; Kind::ALL.len()];
static FAILING_KIND: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Number of the failing call among the calls of its kind, starting at 1.
static FAILING_NUMBER: AtomicUsize = AtomicUsize::new(0);
pub(crate) static FAILED: AtomicBool = AtomicBool::new(false);
static BEFORE_FAILURE: std::sync::OnceLock<fn()> = std::sync::OnceLock::new();
/// Number of large allocations that have not been freed.
pub(crate) static LIVE: AtomicI64 = AtomicI64::new(0);

thread_local!(static IGNORES: Cell<bool> = const { Cell::new(false) });

/// Starts to count calls. `fails` selects the call that fails: the n-th of a kind, counted from 1.
/// `note` runs just before this call returns.
pub(crate) fn begin(fails: Option<(Kind, usize)>, note: fn()) {
    let _ = BEFORE_FAILURE.set(note);
    CALLS.iter().for_each(|calls| calls.store(0, SeqCst));
    let (kind, number) = fails.map_or((usize::MAX, 0), |(kind, number)| (kind as usize, number));
    FAILING_KIND.store(kind, SeqCst);
    FAILING_NUMBER.store(number, SeqCst);
    FAILED.store(false, SeqCst);
    COUNTS.store(true, SeqCst);
}

pub(crate) fn end() {
    COUNTS.store(false, SeqCst);
}

pub(crate) fn counted(kind: Kind) -> usize {
    CALLS[kind as usize].load(SeqCst)
}

#[allow(dead_code)] // not used by every module that includes this file
pub(crate) fn fails_now(kind: Kind) -> bool {
    FAILING_KIND.load(SeqCst) == kind as usize
}

pub(crate) fn ignored<T>(f: impl FnOnce() -> T) -> T {
    let before = IGNORES.replace(true);
    let result = f();
    IGNORES.set(before);
    result
}

fn fails(kind: Kind) -> bool {
    if !COUNTS.load(SeqCst) || IGNORES.get() {
        return false;
    }
    let number = CALLS[kind as usize].fetch_add(1, SeqCst) + 1;
    let fails = fails_now(kind) && FAILING_NUMBER.load(SeqCst) == number;
    if fails {
        FAILED.store(true, SeqCst);
        IGNORES.set(true);
        BEFORE_FAILURE.get().expect("set before calls are counted")();
        IGNORES.set(false);
    }
    fails
}

fn failure(kind: Kind) -> c_int {
    // SAFETY: `__errno_location` returns the address of this thread's `errno`.
    unsafe { *libc::__errno_location() = kind.code() };
    -1
}

fn next(cache: &AtomicUsize, name: &CStr) -> usize {
    let address = cache.load(SeqCst);
    if address != 0 {
        return address;
    }
    // SAFETY: the name is null-terminated.
    let address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }.addr();
    assert!(address != 0, "the C library has no such function");
    cache.store(address, SeqCst);
    address
}

/// Defines the intercepted functions. After `if` follows the kind of the call, or `None` if the
/// call is never made to fail. `else` maps the kind to the result of a failed call. `short` is the
/// byte-count argument of functions that may transfer fewer bytes, and the kind of such a transfer.
macro_rules! calls {
    ($(
        fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty,
        if $kind:expr, else $failed:expr $(, short $bytes:ident: $short:expr)?;
    )*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            let kind: Option<Kind> = $kind;
            if let Some(kind) = kind && fails(kind) {
                let failed: fn(Kind) -> $result = $failed;
                return failed(kind);
            }
            $(let $bytes = if $bytes > 1 && fails($short) { $bytes / 2 } else { $bytes };)?
            let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes());
            let next = next(&NEXT, name.expect("the name has one null byte, at its end"));
            // SAFETY: invariant 1.
            let next: unsafe extern "C" fn($($type),*) -> $result = unsafe { std::mem::transmute(next) };
            // SAFETY: guaranteed by the caller of this function.
            unsafe { next($($argument),*) }
        }
    )*};
}

fn number(kind: Kind) -> isize {
    failure(kind) as isize
}

fn place(kind: Kind) -> *mut c_void {
    failure(kind);
    libc::MAP_FAILED
}

fn nothing(kind: Kind) -> *mut c_void {
    failure(kind);
    std::ptr::null_mut()
}

fn lock(command: c_int) -> Option<Kind> {
    let locks = [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW];
    locks.contains(&command).then_some(Kind::Lock)
}

fn unlocks(operation: c_int) -> Option<Kind> {
    (operation & libc::LOCK_UN == 0).then_some(Kind::Lock)
}

fn syncs(file: c_int) -> Option<Kind> {
    // SAFETY: an all-zero `stat` is a valid value, and the call may write it.
    let is_folder = ignored(|| unsafe {
        let mut metadata: libc::stat = std::mem::zeroed();
        libc::fstat(file, &mut metadata) == 0 && metadata.st_mode & libc::S_IFMT == libc::S_IFDIR
    });
    Some(if is_folder { Kind::SyncFolder } else { Kind::Sync })
}

fn maps(file: c_int) -> Option<Kind> {
    (file >= 0).then_some(Kind::Map)
}

fn populates(advice: c_int) -> Option<Kind> {
    (advice == libc::MADV_POPULATE_READ).then_some(Kind::Pages)
}

calls! {
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, if Some(Kind::Open), else failure;
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int, if Some(Kind::Open), else failure;
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
        if Some(Kind::Open), else failure;
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int,
        if Some(Kind::Open), else failure;

    fn fstat(file: c_int, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn fstat64(file: c_int, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn stat(path: *const c_char, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn stat64(path: *const c_char, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn lstat64(path: *const c_char, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn fstatat64(folder: c_int, path: *const c_char, to: *mut c_void, flags: c_int) -> c_int,
        if Some(Kind::Metadata), else failure;
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut c_void) -> c_int,
        if Some(Kind::Metadata), else failure;
    fn fstatfs(file: c_int, to: *mut c_void) -> c_int, if Some(Kind::Metadata), else failure;
    fn access(path: *const c_char, mode: c_int) -> c_int, if Some(Kind::Metadata), else failure;
    fn readlink(path: *const c_char, to: *mut c_char, bytes: usize) -> isize, if Some(Kind::Metadata), else number;
    fn realpath(path: *const c_char, to: *mut c_char) -> *mut c_void, if Some(Kind::Metadata), else nothing;

    fn opendir(path: *const c_char) -> *mut c_void, if Some(Kind::Listing), else nothing;
    fn fdopendir(file: c_int) -> *mut c_void, if Some(Kind::Listing), else nothing;
    fn readdir64(folder: *mut c_void) -> *mut c_void, if Some(Kind::Listing), else nothing;

    fn read(file: c_int, to: *mut c_void, bytes: usize) -> isize,
        if Some(Kind::Read), else number, short bytes: Kind::ShortRead;
    fn pread(file: c_int, to: *mut c_void, bytes: usize, at: i64) -> isize,
        if Some(Kind::Read), else number, short bytes: Kind::ShortRead;
    fn pread64(file: c_int, to: *mut c_void, bytes: usize, at: i64) -> isize,
        if Some(Kind::Read), else number, short bytes: Kind::ShortRead;
    fn readv(file: c_int, to: *const c_void, count: c_int) -> isize, if Some(Kind::Read), else number;
    fn copy_file_range(from: c_int, at: *mut i64, to: c_int, offset: *mut i64, bytes: usize, flags: c_uint) -> isize,
        if Some(Kind::Read), else number, short bytes: Kind::ShortRead;

    fn write(file: c_int, from: *const c_void, bytes: usize) -> isize,
        if Some(Kind::Write), else number, short bytes: Kind::ShortWrite;
    fn pwrite(file: c_int, from: *const c_void, bytes: usize, at: i64) -> isize,
        if Some(Kind::Write), else number, short bytes: Kind::ShortWrite;
    fn pwrite64(file: c_int, from: *const c_void, bytes: usize, at: i64) -> isize,
        if Some(Kind::Write), else number, short bytes: Kind::ShortWrite;
    fn writev(file: c_int, from: *const c_void, count: c_int) -> isize, if Some(Kind::Write), else number;
    fn pwritev(file: c_int, from: *const c_void, count: c_int, at: i64) -> isize, if Some(Kind::Write), else number;

    fn fsync(file: c_int) -> c_int, if syncs(file), else failure;
    fn fdatasync(file: c_int) -> c_int, if syncs(file), else failure;
    fn msync(from: *mut c_void, bytes: usize, flags: c_int) -> c_int, if Some(Kind::Sync), else failure;

    fn ftruncate(file: c_int, bytes: i64) -> c_int, if Some(Kind::Length), else failure;
    fn ftruncate64(file: c_int, bytes: i64) -> c_int, if Some(Kind::Length), else failure;

    fn rename(from: *const c_char, to: *const c_char) -> c_int, if Some(Kind::Rename), else failure;
    fn link(from: *const c_char, to: *const c_char) -> c_int, if Some(Kind::Rename), else failure;
    fn linkat(folder: c_int, from: *const c_char, other: c_int, to: *const c_char, flags: c_int) -> c_int,
        if Some(Kind::Rename), else failure;

    fn unlink(path: *const c_char) -> c_int, if Some(Kind::Remove), else failure;
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int, if Some(Kind::Remove), else failure;
    fn rmdir(path: *const c_char) -> c_int, if Some(Kind::Remove), else failure;
    fn mkdir(path: *const c_char, mode: c_uint) -> c_int, if Some(Kind::Folder), else failure;

    fn flock(file: c_int, operation: c_int) -> c_int, if unlocks(operation), else failure;
    fn fcntl(file: c_int, command: c_int, argument: usize) -> c_int, if lock(command), else failure;
    fn fcntl64(file: c_int, command: c_int, argument: usize) -> c_int, if lock(command), else failure;

    fn mmap(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void,
        if maps(file), else place;
    fn mmap64(at: *mut c_void, bytes: usize, protection: c_int, flags: c_int, file: c_int, offset: i64) -> *mut c_void,
        if maps(file), else place;
    fn madvise(at: *mut c_void, bytes: usize, advice: c_int) -> c_int, if populates(advice), else failure;

    fn pthread_create(thread: *mut c_long, attributes: *const c_void, run: *mut c_void, with: *mut c_void) -> c_int,
        if Some(Kind::Thread), else |kind| kind.code();
}

struct Counting;

fn live(bytes: usize, change: i64) {
    if bytes >= LARGE {
        LIVE.fetch_add(change, SeqCst);
    }
}

// SAFETY: every call either is forwarded to the system's allocator unchanged, or returns null.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && fails(Kind::Allocation) {
            return std::ptr::null_mut();
        }
        live(layout.size(), 1);
        // SAFETY: the caller guarantees what the system's allocator requires of `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && fails(Kind::Allocation) {
            return std::ptr::null_mut();
        }
        live(layout.size(), 1);
        // SAFETY: the caller guarantees what the system's allocator requires of `layout`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size >= LARGE && size > layout.size() && fails(Kind::Allocation) {
            return std::ptr::null_mut();
        }
        live(layout.size(), -1);
        live(size, 1);
        // SAFETY: the caller guarantees what the system's allocator requires of `pointer` and
        // `layout`.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        live(layout.size(), -1);
        // SAFETY: the caller guarantees what the system's allocator requires of `pointer` and
        // `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;
