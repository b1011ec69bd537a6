//! Makes the exported functions out of the table of entry points: `MPI_X`, `PMPI_X`, and for Fortran `mpi_x_`, `pmpi_x_`, each with
//! another underscore, too.
//!
//! A C function hands its arguments to the function `mpi_x` of `entry`, or refuses by name. A Fortran function converts
//! them first: numbers come by address, marks of the standard are addresses of common blocks, text has no end mark and
//! its length comes after all other arguments.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

#[path = "../../crates/mpi/src/table/parse.rs"]
mod parse;

use parse::{Argument, Entry, Fortran, Kind};

/// Functions of Fortran that the table does not have.
const BESIDE: [&str; 15] = [
    "mpi_f_sync_reg_",
    "pmpi_f_sync_reg_",
    "mpi_dup_fn_",
    "mpi_null_copy_fn_",
    "mpi_null_delete_fn_",
    "mpi_comm_dup_fn_",
    "mpi_comm_null_copy_fn_",
    "mpi_comm_null_delete_fn_",
    "mpi_type_dup_fn_",
    "mpi_type_null_copy_fn_",
    "mpi_type_null_delete_fn_",
    "mpi_win_dup_fn_",
    "mpi_win_null_copy_fn_",
    "mpi_win_null_delete_fn_",
    "mpi_conversion_fn_null_",
];

const TABLE: &str = "../../crates/mpi/src/table/functions.txt";

fn main() {
    println!("cargo:rerun-if-changed={TABLE}");
    println!("cargo:rerun-if-changed=../../crates/mpi/src/table/parse.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi.so.12");
    let text = fs::read_to_string(TABLE).expect("the table of entry points is part of the tree");
    let entries = parse::parse(&text).expect("a well-formed table");
    let mut code = String::new();
    for entry in &entries {
        for prefix in ["MPI_", "PMPI_"] {
            c_function(&mut code, entry, prefix);
        }
        for prefix in ["mpi_", "pmpi_"] {
            if entry.fortran == Fortran::Made {
                fortran_function(&mut code, entry, prefix);
            }
            if entry.fortran != Fortran::None {
                with_two(&mut code, &format!("{prefix}{}_", plain(entry).to_ascii_lowercase()));
            }
        }
    }
    BESIDE.iter().for_each(|name| with_two(&mut code, name));
    let folder = env::var_os("OUT_DIR").expect("set by Cargo");
    fs::write(Path::new(&folder).join("exports.rs"), code).expect("the folder is Cargo's for this");
}

/// The name without `MPI_`.
fn plain<'a>(entry: &Entry<'a>) -> &'a str {
    &entry.name["MPI_".len()..]
}

fn rust_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "c_int",
        Kind::Handle => "u32",
        Kind::Wide => "i64",
        Kind::Buffer => "Buffer",
        Kind::Text => "Text",
        Kind::TextOut => "Place<c_char>",
        Kind::Ints => "Place<c_int>",
        Kind::Handles => "Place<u32>",
        Kind::Wides => "Place<i64>",
        Kind::Status | Kind::Statuses => "Place<Status>",
        Kind::Ranges => "Place<[c_int; 3]>",
        Kind::Function => "Function",
        Kind::Opaque => "Place<u8>",
    }
}

fn c_function(code: &mut String, entry: &Entry<'_>, prefix: &str) {
    let name = plain(entry);
    let list = |with: &dyn Fn(usize, &Argument<'_>) -> String| {
        let all = entry.arguments.iter().enumerate().map(|(at, argument)| with(at, argument));
        all.collect::<Vec<_>>().join(", ")
    };
    let parameters = list(&|at, argument| format!("a{at}: {}", rust_type(argument.kind)));
    let returns = match entry.returns {
        "int" | "MPI_Fint" => "c_int",
        "double" => "f64",
        "MPI_Aint" => "i64",
        "MPI_File" => "Place<u8>",
        _ => "u32",
    };
    let body = if entry.name.ends_with("_c2f") && entry.arguments.len() == 1 {
        if name.starts_with("File") { "{ let _ = a0; 0 }".to_owned() } else { "a0 as c_int".to_owned() }
    } else if entry.name.ends_with("_f2c") && entry.arguments.len() == 1 {
        if name.starts_with("File") {
            "{ let _ = a0; Place::NULL }".to_owned()
        } else {
            "a0 as u32".to_owned()
        }
    } else if entry.implemented {
        format!("entry::mpi_{}({})", name.to_ascii_lowercase(), list(&|at, _| format!("a{at}")))
    } else {
        format!("{{ let _ = ({}); refuse(\"{}\", {}) }}", tuple(entry), entry.name, communicator(entry))
    };
    let _ = writeln!(
        code,
        "#[unsafe(no_mangle)] unsafe extern \"C\" fn {prefix}{name}({parameters}) -> {returns} {{ {body} }}"
    );
}

/// All arguments, so that none of them is unused.
fn tuple(entry: &Entry<'_>) -> String {
    (0..entry.arguments.len()).map(|at| format!("a{at},")).collect()
}

/// The communicator whose error handler hears of a refusal.
fn communicator(entry: &Entry<'_>) -> String {
    let names = |argument: &Argument<'_>| {
        argument.kind == Kind::Handle && matches!(argument.name, "comm" | "local_comm" | "comm_old")
    };
    match entry.arguments.iter().position(names) {
        Some(at) => format!("Some(a{at})"),
        None => "None".to_owned(),
    }
}

/// The function of a name with one underscore at its end under that with two: g77 and `-fsecond-underscore` call names so that
/// have one inside. It jumps there, whatever the arguments are.
fn with_two(code: &mut String, name: &str) {
    let jump = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => format!("jmp {name}@PLT"),
        _ => format!("b {name}"),
    };
    let _ = writeln!(
        code,
        "#[unsafe(naked)] #[unsafe(no_mangle)] unsafe extern \"C\" fn {name}_() {{ std::arch::naked_asm!(\"{jump}\") }}"
    );
}

fn fortran_function(code: &mut String, entry: &Entry<'_>, prefix: &str) {
    let lower = plain(entry).to_ascii_lowercase();
    let name = format!("{prefix}{lower}_");
    let (mut parameters, mut lengths) = (Vec::new(), Vec::new());
    let (mut before, mut values, mut after) = (String::new(), Vec::new(), String::new());
    for (at, argument) in entry.arguments.iter().enumerate() {
        let (by, value) = match argument.kind {
            Kind::Int => ("Place<c_int>", format!("a{at}.value()")),
            Kind::Handle => ("Place<u32>", format!("a{at}.value()")),
            Kind::Wide => ("Place<i64>", format!("a{at}.value()")),
            Kind::Buffer => ("Buffer", format!("fortran::buffer(a{at})")),
            Kind::Status => ("Place<Status>", format!("fortran::status(a{at})")),
            Kind::Statuses => ("Place<Status>", format!("fortran::statuses(a{at})")),
            Kind::Text => {
                lengths.push(format!("l{at}: usize"));
                let _ = write!(before, "let t{at} = fortran::Owned::read(a{at}, l{at}); ");
                ("Text", format!("t{at}.text()"))
            }
            Kind::TextOut => {
                lengths.push(format!("l{at}: usize"));
                let _ = write!(before, "let mut t{at} = fortran::Answer::new(); ");
                let _ = write!(after, "t{at}.write(a{at}, l{at}); ");
                ("Place<c_char>", format!("t{at}.place()"))
            }
            kind => (rust_type(kind), format!("a{at}")),
        };
        parameters.push(format!("a{at}: {by}"));
        values.push(value);
    }
    parameters.push("ierror: Place<c_int>".to_owned());
    parameters.extend(lengths);
    let call = if entry.implemented {
        format!("entry::mpi_{lower}({})", values.join(", "))
    } else {
        before.clear();
        after.clear();
        let lengths = (0..entry.arguments.len())
            .filter(|at| matches!(entry.arguments[*at].kind, Kind::Text | Kind::TextOut));
        let lengths: String = lengths.map(|at| format!("l{at},")).collect();
        let comm = communicator(entry);
        let comm = comm.replace(')', ".value())");
        format!("{{ let _ = ({}{lengths}); refuse(\"{}\", {comm}) }}", tuple(entry), entry.name)
    };
    let _ = writeln!(
        code,
        "#[unsafe(no_mangle)] unsafe extern \"C\" fn {name}({}) {{ {before}let code = {call}; {after}fortran::finish(ierror, code); }}",
        parameters.join(", ")
    );
}
