//! What happens when the library is loaded: a few variables are read, and that is all.

use std::ffi::CStr;

use viaduct_intercept::settings::{self, Settings, Text};
use viaduct_os::bare::whoami;

use crate::stdio;

/// The abstract name at which the agent takes claims.
const AGENT: &CStr = c"VIADUCT_CLAIM";
/// `off`: the library does nothing. `never`: it upgrades nothing.
const MODE: &CStr = c"VIADUCT_RUN";
/// The file for explanations.
const EXPLAIN: &CStr = c"VIADUCT_EXPLAIN";

fn variable(name: &CStr) -> Option<Text> {
    // SAFETY: the loader calls us before the program has threads that could change variables.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a string of the environment, or null.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).and_then(|text| Text::new(text.to_bytes()))
}

extern "C" fn load() {
    let mode = variable(MODE);
    let is = |word: &CStr| mode.is_some_and(|mode| mode.as_c_str() == word);
    if is(c"off") || !stdio::replace() {
        return;
    }
    whoami::check();
    settings::start(Settings {
        agent: variable(AGENT),
        never_upgrade: is(c"never"),
        explain: variable(EXPLAIN),
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
