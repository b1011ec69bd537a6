//! Tells the linker the library's name and its versions of symbols (`sovia.map`).

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by Cargo");
    println!("cargo:rerun-if-changed=sovia.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsovia.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/sovia.map");
}
