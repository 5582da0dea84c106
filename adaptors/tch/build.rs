//! Compiles `src/libtorch.cpp` against the libtorch that torch-sys found.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo:rerun-if-changed=src/libtorch.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    if env::var_os("CARGO_FEATURE_DOC_ONLY").is_some() {
        return;
    }
    let lib = env::var_os("DEP_TCH_LIBTORCH_LIB").expect("torch-sys reports the folder of libtorch on Linux and macOS");
    let lib = PathBuf::from(lib);
    // torch-sys looks for the headers in the same places.
    let root = env::var_os("LIBTORCH_INCLUDE").map_or_else(|| lib.join(".."), PathBuf::from);
    let include = root.join("include");
    let cuda = env::var_os("CARGO_FEATURE_CUDA").is_some() && lib.join("libtorch_cuda.so").exists();
    let mut build = cc::Build::new();
    if cuda {
        build.define("WARPFEED_LIBTORCH_CUDA", None);
    }
    build
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(include.join("torch/csrc/api/include"))
        .include(include)
        .file("src/libtorch.cpp")
        .compile("warpfeed_tch");
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=torch_cpu");
    if cuda {
        println!("cargo:rustc-link-lib=torch_cuda");
    }
    println!("cargo:rustc-link-lib=c10");
}
