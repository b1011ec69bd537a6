//! A provider is trusted with the regions of the program, and says what its memory is: to be one is a promise. (The calls are
//! left out here: the compiler looks for them when it has that promise.)

use viaduct_via::provider::Provider;

struct Mine;

impl Provider for Mine {} //~ E0200

fn main() {}
