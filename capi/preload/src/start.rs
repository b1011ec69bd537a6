//! What happens when the library is loaded: a few variables are read, and that is all.

use std::ffi::{CStr, c_void};

use viaduct_intercept::rules::Rules;
use viaduct_intercept::settings::{self, Settings, Text};
use viaduct_os::bare::{calls, files, whoami};

use crate::{spawn, stdio};

/// The abstract name at which the agent takes claims.
const AGENT: &CStr = c"VIADUCT_CLAIM";
/// `off`: the library does nothing. `never`: it upgrades nothing.
const MODE: &CStr = c"VIADUCT_RUN";
/// The program that is started as an agent where none answers; `off`: none is.
const PROGRAM: &CStr = c"VIADUCT_AGENT_PROGRAM";
/// The file with rules; without it, `viaduct/rules` in the user's folder for settings.
const RULES: &CStr = c"VIADUCT_RULES";
/// The file for explanations.
const EXPLAIN: &CStr = c"VIADUCT_EXPLAIN";

fn variable(name: &CStr) -> Option<Text> {
    // SAFETY: the loader calls us before the program has threads that could change variables.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: a string of the environment, or null.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }).and_then(|text| Text::new(text.to_bytes()))
}

/// The program that this library was built or installed with.
fn program() -> Option<Text> {
    if let Some(named) = variable(PROGRAM) {
        return (named.as_c_str() != c"off").then_some(named);
    }
    // SAFETY: numbers and pointers, for which zeros are good.
    let mut about: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: an address in this library; the local is valid for writes.
    if unsafe { libc::dladdr(load as *const () as *const c_void, &raw mut about) } == 0
        || about.dli_fname.is_null()
    {
        return None;
    }
    // SAFETY: a string of the loader's.
    let path = unsafe { CStr::from_ptr(about.dli_fname) }.to_bytes();
    let folder = &path[..path.iter().rposition(|&byte| byte == b'/')? + 1];
    let places: [&[u8]; 4] = [b"viaduct", b"../viaduct", b"../bin/viaduct", b"../../bin/viaduct"];
    let named = places.into_iter().filter_map(|place| Text::join(folder, place));
    { named }.find(|path| files::is_executable(libc::AT_FDCWD, path.as_c_str()))
}

/// The user's own file with rules, where no other is named.
fn usual_rules() -> Option<Text> {
    let of = |base: Option<Text>, rest: &[u8]| {
        let base = base.filter(|base| !base.as_c_str().is_empty())?;
        Text::join(base.as_c_str().to_bytes(), rest)
    };
    of(variable(c"XDG_CONFIG_HOME"), b"/viaduct/rules")
        .or_else(|| of(variable(c"HOME"), b"/.config/viaduct/rules"))
}

/// The user's rules for this program; none if there is no file.
fn rules() -> Rules {
    let mut text = [0; 8192];
    let read = |path: Text| {
        let fd = files::open(libc::AT_FDCWD, path.as_c_str()).ok()?;
        let len = files::read_at(fd, &mut text, 0);
        let _ = calls::close(fd);
        len.ok()
    };
    let Some(len) = variable(RULES).or_else(usual_rules).and_then(read) else { return Rules::default() };
    // SAFETY: a string of libc's, which is there before any program is loaded.
    let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
    Rules::parse(&text[..len], name.to_bytes()).0
}

unsafe extern "C" {
    static program_invocation_short_name: *const libc::c_char;
}

extern "C" fn load() {
    let mode = variable(MODE);
    let is = |word: &CStr| mode.is_some_and(|mode| mode.as_c_str() == word);
    spawn::find(); // ours stand before libc's all the same
    if is(c"off") || !stdio::replace() {
        return;
    }
    whoami::check();
    settings::start(Settings {
        agent: variable(AGENT),
        program: program(),
        rules: rules(),
        never_upgrade: is(c"never"),
        explain: variable(EXPLAIN),
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;
