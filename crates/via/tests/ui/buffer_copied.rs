//! Two buffers never name the same bytes.

use viaduct_via::Buffer;

fn double(buffer: &Buffer) -> (Buffer, Buffer) {
    (buffer.clone(), buffer.clone()) //~ E0308
}

fn main() {}
