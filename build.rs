//! Links the programs so that they start sooner: each runs for milliseconds, and much of that was the dynamic loader's.

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Without libgcc_s.so: the linker finds this script first where std asks for it; the archives have the same functions.
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("libgcc_s.so"), "GROUP ( libgcc_eh.a libgcc.a )\n")
        .expect("OUT_DIR is there");
    println!("cargo:rustc-link-arg-bins=-L{out}");
    // At an address of its own: else the loader writes some 5,700 addresses into it, page by page, before `main`.
    println!("cargo:rustc-link-arg-bin=dispatch=-no-pie");
}
