//! Loading libfabric at run time: nothing is needed to build, and a machine without it gets an error that says what is missing.
//!
//! The library exports several versions of its functions; each is asked for by the version whose structures `abi`
//! declares. A library that was loaded stays loaded, because its threads and its handlers at exit may outlive us.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::Mutex;

use libloading::os::unix::Library;
use viaduct_via::Error;

use super::abi::{FabricAttr, FiInfo, FidFabric};
use super::handlers::Handlers;

/// The oldest version that will do.
pub(crate) const OLDEST: (u32, u32) = (1, 17);

const INSTALL: &str =
    "install it (Debian: `apt install libfabric1`), or name the file in VIADUCT_OFI_LIBRARY";
const RENEW: &str = "install version 1.17 or newer, or name another file in VIADUCT_OFI_LIBRARY";

type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int;
type FreeInfo = unsafe extern "C" fn(info: *mut FiInfo);
type DupInfo = unsafe extern "C" fn(info: *const FiInfo) -> *mut FiInfo;
type OpenFabric =
    unsafe extern "C" fn(attr: *mut FabricAttr, fabric: *mut *mut FidFabric, context: *mut c_void) -> c_int;
type StrError = unsafe extern "C" fn(errno: c_int) -> *const c_char;
type Version = unsafe extern "C" fn() -> u32;

/// The functions that are not in tables of objects.
pub(crate) struct Fi {
    pub(crate) getinfo: GetInfo,
    pub(crate) freeinfo: FreeInfo,
    pub(crate) dupinfo: DupInfo,
    pub(crate) fabric: OpenFabric,
    strerror: StrError,
    version: u32,
}

impl Fi {
    /// The library of this name; loaded when it is first asked for.
    pub(crate) fn load(name: &str) -> Result<&'static Fi, Error> {
        static LOADED: Mutex<Option<HashMap<String, &'static Fi>>> = Mutex::new(None);
        let mut loaded = LOADED.lock().unwrap_or_else(|e| e.into_inner());
        let loaded = loaded.get_or_insert_default();
        if let Some(fi) = loaded.get(name) {
            return Ok(fi);
        }
        let fi: &'static Fi = Box::leak(Box::new(Fi::open(name)?));
        loaded.insert(name.to_owned(), fi);
        Ok(fi)
    }

    /// Version of the library, major and minor.
    pub(crate) fn version(&self) -> (u32, u32) {
        (self.version >> 16, self.version & 0xffff)
    }

    /// What an error number of libfabric means; the sign does not matter.
    pub(crate) fn explain(&self, errno: i64) -> String {
        let number = c_int::try_from(errno.abs()).unwrap_or(c_int::MAX);
        // SAFETY: takes any number and gives a string that is never freed.
        let text = unsafe { (self.strerror)(number) };
        if text.is_null() {
            return format!("error {number}");
        }
        // SAFETY: not null, so it is a string of the library's.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn open(name: &str) -> Result<Fi, Error> {
        let unavailable = |why: String, hint| Error::Unavailable { provider: "ofi", why, hint };
        let _kept = Handlers::kept();
        // SAFETY: loading runs the library's constructors; a user that names a library trusts it.
        let library = unsafe { Library::new(name) }.map_err(|e| unavailable(e.to_string(), INSTALL))?;
        let handle = library.into_raw();
        let find = |symbol: &str, version: &str| {
            let found = symbol_of(handle, symbol, version);
            let missing = || unavailable(format!("{name} has no {symbol} of version {version}"), RENEW);
            if found.is_null() { Err(missing()) } else { Ok(found) }
        };
        let version = find("fi_version", "FABRIC_1.0")?;
        // SAFETY: fi_version takes nothing and returns a number, in every version.
        let version = unsafe { transmute::<*mut c_void, Version>(version)() };
        if (version >> 16, version & 0xffff) < OLDEST {
            let why = format!("{name} is version {}.{}", version >> 16, version & 0xffff);
            return Err(unavailable(why, RENEW));
        }
        // SAFETY: the functions of these versions have the signatures declared above; the test against the header
        // checks the structures in them.
        unsafe {
            Ok(Fi {
                getinfo: transmute::<*mut c_void, GetInfo>(find("fi_getinfo", "FABRIC_1.3")?),
                freeinfo: transmute::<*mut c_void, FreeInfo>(find("fi_freeinfo", "FABRIC_1.3")?),
                dupinfo: transmute::<*mut c_void, DupInfo>(find("fi_dupinfo", "FABRIC_1.3")?),
                fabric: transmute::<*mut c_void, OpenFabric>(find("fi_fabric", "FABRIC_1.1")?),
                strerror: transmute::<*mut c_void, StrError>(find("fi_strerror", "FABRIC_1.0")?),
                version,
            })
        }
    }
}

/// Null if there is none. A library without versions (another C library, a test's) gives its only one.
fn symbol_of(handle: *mut c_void, symbol: &str, version: &str) -> *mut c_void {
    let symbol = CString::new(symbol).expect("a name of ours");
    #[cfg(target_env = "gnu")]
    {
        let version = CString::new(version).expect("a name of ours");
        // SAFETY: a handle of a loaded library and two strings.
        let found = unsafe { libc::dlvsym(handle, symbol.as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            return found;
        }
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = version;
    // SAFETY: a handle of a loaded library and a string.
    unsafe { libc::dlsym(handle, symbol.as_ptr()) }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::fmt::Write;

    use viaduct_kit::cc::compile_c;
    use viaduct_kit::packages::skip;

    use super::super::abi::{NUMBERS, layouts};
    use super::*;

    fn refusal(name: &str) -> String {
        match Fi::load(name) {
            Err(e @ Error::Unavailable { .. }) => e.to_string(),
            Err(e) => panic!("another error: {e}"),
            Ok(_) => panic!("{name} was taken"),
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "loads a library")]
    fn a_missing_library_is_named_with_a_hint() {
        let text = refusal("libfabric-that-is-not-there.so.1");
        assert!(text.contains("libfabric-that-is-not-there.so.1") && text.contains("apt install"), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "compiles C")]
    fn an_old_library_is_refused_with_its_version() {
        let old = "unsigned fi_version(void); unsigned fi_version(void) { return 1 << 16 | 11; }";
        let Some(library) = compile_c(old, &["-shared", "-fPIC"]) else { return };
        let text = refusal(library.path().to_str().unwrap());
        assert!(text.contains("version 1.11") && text.contains("1.17 or newer"), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "compiles C")]
    fn a_library_without_the_functions_is_refused() {
        let new = "unsigned fi_version(void); unsigned fi_version(void) { return 1 << 16 | 17; }";
        let Some(library) = compile_c(new, &["-shared", "-fPIC"]) else { return };
        let text = refusal(library.path().to_str().unwrap());
        assert!(text.contains("fi_getinfo"), "{text}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "compiles C")]
    fn our_declarations_are_those_of_the_header() {
        let header = ["/usr/include", "/usr/local/include"];
        if !header.iter().any(|dir| std::path::Path::new(dir).join("rdma/fabric.h").exists()) {
            skip("libfabric's header is not installed (Debian: libfabric-dev)");
            return;
        }
        let mut c = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_cm.h>\n\
             #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n\
             #include <rdma/fi_errno.h>\nint main(void) {\n",
        );
        let mut ours = String::new();
        for (name, size, fields) in layouts() {
            writeln!(c, "printf(\"{name} %zu\\n\", sizeof({name}));").unwrap();
            writeln!(ours, "{name} {size}").unwrap();
            for (field, offset) in *fields {
                let field = field.trim_start_matches("r#");
                writeln!(c, "printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));").unwrap();
                writeln!(ours, "{name}.{field} {offset}").unwrap();
            }
        }
        for (name, value) in NUMBERS {
            writeln!(c, "printf(\"{name} %llu\\n\", (unsigned long long){name});").unwrap();
            writeln!(ours, "{name} {value}").unwrap();
        }
        c.push_str("return 0;\n}\n");
        let Some(program) = compile_c(&c, &[]) else { return };
        let theirs = String::from_utf8(program.run(&[]).stdout).unwrap();
        let differ: Vec<_> = ours.lines().zip(theirs.lines()).filter(|(a, b)| a != b).collect();
        assert!(differ.is_empty(), "ours and the header's: {differ:#?}");
        assert_eq!(ours.lines().count(), theirs.lines().count());
        assert!(ours.lines().count() > 150);
    }
}
