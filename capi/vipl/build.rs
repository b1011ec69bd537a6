//! Tells the linker the library's name and its versions of symbols (`vipl.map`).

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by Cargo");
    println!("cargo:rerun-if-changed=vipl.map");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libvipl.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={folder}/vipl.map");
}
