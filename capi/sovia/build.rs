//! Tells the linker the library's name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libsovia.so.1");
}
