//! Links the runtime wrapper without libgcc_s.so: loading it would be a fifth of what the wrapper adds to each call.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    // The linker finds this script first where std asks for gcc_s; the archives have the same functions.
    fs::write(Path::new(&out).join("libgcc_s.so"), "GROUP ( libgcc_eh.a libgcc.a )\n")
        .expect("OUT_DIR is there");
    println!("cargo:rustc-link-arg-bin=runc-gpu-wrapper=-L{out}");
}
