//! Checks that the committed PTX equals the compiled source. Even without NVRTC,
//! `kernels/compiled.txt` reveals a source file that was changed but not compiled.
//!
//! The test compiles the sources wherever the required release of NVRTC is installed, because NVRTC
//! needs no GPU. `WARPFEED_NVRTC` is the path of `libnvrtc.so.12`; by default, the dynamic linker
//! searches for this name. The PyPI package `nvidia-cuda-nvrtc-cu12==12.8.93` contains the library.
//! With NVRTC, `WARPFEED_BLESS=1` rewrites the files.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

use libloading::{Library, Symbol};

const OPTIONS: [&str; 3] = ["--gpu-architecture=compute_70", "--std=c++17", "--fmad=false"];
/// The release of NVRTC that compiled the committed PTX, which drivers from version 570 on can
/// load.
const RELEASE: (c_int, c_int) = (12, 8);

type Create =
    unsafe extern "C" fn(*mut *mut c_void, *const c_char, *const c_char, c_int, *const c_void, *const c_void) -> c_int;
type Compile = unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(*mut c_void, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int;

fn nvrtc() -> Option<Library> {
    let name = std::env::var("WARPFEED_NVRTC").unwrap_or_else(|_| "libnvrtc.so.12".into());
    // SAFETY: the initializers of NVRTC have no preconditions.
    match unsafe { Library::new(&name) } {
        Ok(library) => Some(library),
        Err(e) => {
            crate::require::missing("nvrtc", format_args!("{e}; set WARPFEED_NVRTC to libnvrtc.so.12"));
            None
        }
    }
}

fn text(library: &Library, program: *mut c_void, size: &[u8], get: &[u8]) -> String {
    // SAFETY: both symbols have these signatures (nvrtc.h), and the buffer has the size that NVRTC
    // reported.
    unsafe {
        let (size, get): (Symbol<Size>, Symbol<Text>) = (library.get(size).unwrap(), library.get(get).unwrap());
        let mut bytes = 0;
        assert_eq!(size(program, &mut bytes), 0);
        let mut buffer = vec![0u8; bytes];
        assert_eq!(get(program, buffer.as_mut_ptr().cast()), 0);
        buffer.pop();
        String::from_utf8(buffer).unwrap()
    }
}

fn compile(library: &Library, source: &str) -> String {
    let source = CString::new(source).unwrap();
    let options = OPTIONS.map(|o| CString::new(o).unwrap());
    let pointers = options.each_ref().map(|o| o.as_ptr());
    // SAFETY: the symbols have these signatures (nvrtc.h), and every pointer is valid during its
    // call.
    unsafe {
        let create: Symbol<Create> = library.get(b"nvrtcCreateProgram").unwrap();
        let compile: Symbol<Compile> = library.get(b"nvrtcCompileProgram").unwrap();
        let destroy: Symbol<Destroy> = library.get(b"nvrtcDestroyProgram").unwrap();
        let mut program = std::ptr::null_mut();
        assert_eq!(
            create(&mut program, source.as_ptr(), c"kernel.cu".as_ptr(), 0, std::ptr::null(), std::ptr::null()),
            0
        );
        let code = compile(program, pointers.len() as c_int, pointers.as_ptr());
        let log = text(library, program, b"nvrtcGetProgramLogSize", b"nvrtcGetProgramLog");
        assert_eq!(code, 0, "{log}");
        let ptx = text(library, program, b"nvrtcGetPTXSize", b"nvrtcGetPTX");
        destroy(&mut program);
        ptx
    }
}

fn expanded(path: &Path, seen: &mut Vec<PathBuf>) -> String {
    let path = path.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    if seen.contains(&path) {
        return String::new();
    }
    seen.push(path.clone());
    let text = std::fs::read_to_string(&path).unwrap();
    let line = |line: &str| match line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"')) {
        Some(name) => expanded(&path.with_file_name(name), seen),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

fn compiler() -> Option<Library> {
    let library = nvrtc()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: nvrtcVersion writes two integers (nvrtc.h).
    unsafe { library.get::<Version>(b"nvrtcVersion").unwrap()(&mut major, &mut minor) };
    if (major, minor) != RELEASE {
        let why =
            format!("NVRTC is release {major}.{minor}, but the committed PTX is from {}.{}", RELEASE.0, RELEASE.1);
        crate::require::missing("nvrtc", why);
        return None;
    }
    Some(library)
}

fn sum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn compiled(source: &Path) -> String {
    let code = |line: &str| line.split("//").next().unwrap_or_default().trim().to_owned();
    let code: String = expanded(source, &mut Vec::new()).lines().map(code).collect();
    let ptx = std::fs::read_to_string(source.with_extension("ptx")).unwrap();
    format!("{} {:016x} {:016x}\n", source.file_name().unwrap().display(), sum(&code), sum(&ptx))
}

#[test]
fn the_committed_ptx_equals_the_compiled_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let bless = std::env::var_os("WARPFEED_BLESS").is_some();
    let files = ["src/device/nvidia/kernels", "examples/kernels"].map(|folder| std::fs::read_dir(root.join(folder)));
    let mut sources: Vec<PathBuf> =
        files.into_iter().flat_map(|files| files.unwrap().map(|f| f.unwrap().path())).collect();
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "cu"));
    sources.sort();
    let library = compiler();
    for source in &sources {
        let Some(library) = &library else { break };
        let ptx = compile(library, &expanded(source, &mut Vec::new()));
        let committed = source.with_extension("ptx");
        if bless {
            std::fs::write(&committed, &ptx).unwrap();
        }
        let same = std::fs::read_to_string(&committed).is_ok_and(|text| text == ptx);
        let names = (committed.display(), source.display());
        assert!(same, "{} is not what {} compiles to; run with WARPFEED_BLESS=1", names.0, names.1);
    }
    let (list, sums) =
        (root.join("src/device/nvidia/kernels/compiled.txt"), sources.iter().map(|s| compiled(s)).collect::<String>());
    if bless && library.is_some() {
        std::fs::write(&list, &sums).unwrap();
    }
    let how = "a source was not compiled after a change: see src/device/nvidia/kernels/README.md";
    assert_eq!(std::fs::read_to_string(&list).unwrap_or_default(), sums, "{how}");
}
