//! How the C libraries export their functions with a version. It is part of each of them (`#[path]`), and no package.
//!
//! Cargo exports Rust's names without versions, and has the linker hide every other. A versioned symbol is therefore made
//! here, by the assembler: a jump to the function, under the name and version that the linker is told (the library's
//! `.map` declares the version).

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}
#[cfg(target_arch = "riscv64")]
macro_rules! jump {
    () => {
        "tail {function}"
    };
}

macro_rules! export {
    ($version:literal: $($name:ident = $function:path;)*) => {
        $(std::arch::global_asm!(
            concat!(".pushsection .text.", stringify!($name), ",\"ax\",%progbits"),
            ".p2align 4",
            concat!(".globl viaduct_", stringify!($name)),
            concat!(".type viaduct_", stringify!($name), ",%function"),
            concat!("viaduct_", stringify!($name), ":"),
            jump!(),
            concat!(".size viaduct_", stringify!($name), ", .-viaduct_", stringify!($name)),
            concat!(".symver viaduct_", stringify!($name), ",", stringify!($name), "@@", $version),
            ".popsection",
            function = sym $function,
        );)*

        /// Every function that is exported.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}
