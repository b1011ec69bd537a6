//! Arithmetic that Rust has no type for: numbers of 80 bits, by the x87 unit.

#![allow(unsafe_code, reason = "instructions of the CPU")]

/// One operation of the x87 unit on two numbers of 80 bits.
macro_rules! x87 {
    ($name:ident, $instruction:literal, $what:literal) => {
        #[doc = $what]
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        pub(crate) fn $name(one: &[u8; 16], two: &[u8; 16]) -> [u8; 16] {
            let mut result = [0; 16];
            // SAFETY: reads 10 bytes of each operand, writes 10 of the result; the register stack is as it was.
            unsafe {
                std::arch::asm!(
                    "fld tbyte ptr [{one}]",
                    "fld tbyte ptr [{two}]",
                    $instruction,
                    "fstp tbyte ptr [{result}]",
                    one = in(reg) one.as_ptr(),
                    two = in(reg) two.as_ptr(),
                    result = in(reg) result.as_mut_ptr(),
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                    options(nostack),
                );
            }
            result
        }

        #[doc = $what]
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        pub(crate) fn $name(one: &[u8; 16], _two: &[u8; 16]) -> [u8; 16] {
            *one
        }
    };
}

x87!(x87_add, "faddp", "The sum of two `long double`.");
x87!(x87_multiply, "fmulp", "The product of two `long double`.");
