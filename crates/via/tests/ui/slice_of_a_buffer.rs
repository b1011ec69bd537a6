//! A slice of memory that a peer may write exists behind `unsafe` alone.

use viaduct_via::Buffer;

fn look(buffer: &Buffer) -> &[u8] {
    buffer.as_slice() //~ E0133
}

fn main() {}
