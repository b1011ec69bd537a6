//! The constants and types of our headers beside those of Debian's MPICH: a program that was compiled with one header runs on
//! the other library, so that each name has to mean the same.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use viaduct_kit::cc::compile_c;
use viaduct_kit::packages::skip;
use viaduct_mpi::table;
use viaduct_mpi_tests::{MPICH_HEADERS, Mpi, good};

/// Which standard a library is of, is each library's own matter.
const OWN: [&str; 2] = ["MPI_VERSION", "MPI_SUBVERSION"];

/// A header of ours, and MPICH's of the same name. None: there is none here, and the test says that it is skipped.
fn headers(name: &str) -> Option<(String, String)> {
    let theirs = Path::new(MPICH_HEADERS).join(name);
    if !theirs.exists() {
        skip("no headers of MPICH here (apt-get install libmpich-dev)");
        return None;
    }
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../capi/mpi/include").join(name);
    Some((fs::read_to_string(ours).unwrap(), fs::read_to_string(theirs).unwrap()))
}

/// The constants of a C header: macros without arguments, and names in an `enum`. Addresses of functions are none.
fn constants(header: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in header.lines() {
        let defined =
            line.strip_prefix("#define ").and_then(|rest| rest.split_once(' ')).map(|(name, _)| name);
        let counted = line.strip_prefix("    ").map(|rest| rest.trim_end_matches(','));
        let counted = counted.map(|rest| rest.split_once(" = ").map_or(rest, |(name, _)| name));
        let constant = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let name = defined.or(counted.filter(|name| name.chars().all(constant)));
        let name = name.filter(|name| name.starts_with("MPI_"));
        names.extend(name.filter(|name| !name.ends_with("_FN") && !OWN.contains(name)).map(str::to_owned));
    }
    names
}

/// Types of the header, in C's words.
const TYPES: [&str; 14] = [
    "MPI_Comm",
    "MPI_Datatype",
    "MPI_Errhandler",
    "MPI_Group",
    "MPI_Info",
    "MPI_Message",
    "MPI_Op",
    "MPI_Request",
    "MPI_Win",
    "MPI_File",
    "MPI_Aint",
    "MPI_Count",
    "MPI_Offset",
    "MPI_Fint",
];

/// What a program prints of constants and types that was compiled with the header of a folder.
fn printed(mpi: &Mpi, include: &str, names: &[String]) -> Option<String> {
    let mut source =
        "#include <mpi.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n".to_owned();
    for name in names {
        writeln!(source, "printf(\"{name} %ld\\n\", (long)({name}));").unwrap();
    }
    for kind in TYPES.iter().chain(&["MPI_Status"]) {
        writeln!(source, "printf(\"{kind} %zu\\n\", sizeof({kind}));").unwrap();
    }
    for field in ["MPI_SOURCE", "MPI_TAG", "MPI_ERROR"] {
        writeln!(source, "printf(\"{field} %zu\\n\", offsetof(MPI_Status, {field}));").unwrap();
    }
    source.push_str("return 0; }\n");
    let link = format!("-L{}", mpi.lib().display());
    let program = compile_c(&source, &["-isystem", include, &link, "-lmpi"])?;
    let mut command = program.command();
    mpi.dress(&mut command);
    Some(good(command))
}

#[test]
fn constants_and_types_of_c_are_those_of_mpich() {
    let Some((ours, _)) = headers("mpi.h") else { return };
    let names = constants(&ours);
    for name in [
        "MPI_COMM_WORLD",
        "MPI_ERR_LASTCODE",
        "MPI_COMBINER_NAMED",
        "MPI_T_PVAR_CLASS_GENERIC",
        "MPI_IN_PLACE",
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is not found in our header");
    }
    let mpi = Mpi::new();
    let include = format!("{}/include", mpi.folder().display());
    let Some(with_ours) = printed(&mpi, &include, &names) else { return };
    let Some(with_theirs) = printed(&mpi, MPICH_HEADERS, &names) else { return };
    let differ: Vec<_> =
        with_ours.lines().zip(with_theirs.lines()).filter(|(ours, theirs)| ours != theirs).collect();
    assert_eq!(differ, Vec::<(&str, &str)>::new(), "ours, MPICH's");
    assert_eq!(with_ours.lines().count(), names.len() + TYPES.len() + 4);
}

/// What MPICH's headers have of later versions of the standard, beside the functions with large counts, which end with `_c`.
const LATER: &str = "
    Comm_create_from_group Comm_idup_with_info Group_from_session_pset Info_create_env Info_get_string
    Intercomm_create_from_groups Isendrecv Isendrecv_replace Parrived Pready Pready_list Pready_range Precv_init Psend_init
    Allgather_init Allgatherv_init Allreduce_init Alltoall_init Alltoallv_init Alltoallw_init Barrier_init Bcast_init Exscan_init
    Gather_init Gatherv_init Neighbor_allgather_init Neighbor_allgatherv_init Neighbor_alltoall_init Neighbor_alltoallv_init
    Neighbor_alltoallw_init Reduce_init Reduce_scatter_block_init Reduce_scatter_init Scan_init Scatter_init Scatterv_init
    Session_call_errhandler Session_create_errhandler Session_finalize Session_get_errhandler Session_get_info
    Session_get_nth_pset Session_get_num_psets Session_get_pset_info Session_init Session_set_errhandler
    T_category_get_events T_category_get_num_events T_event_callback_get_info T_event_callback_set_info T_event_copy
    T_event_get_index T_event_get_info T_event_get_num T_event_get_source T_event_get_timestamp T_event_handle_alloc
    T_event_handle_free T_event_handle_get_info T_event_handle_set_info T_event_read T_event_register_callback
    T_event_set_dropped_handler T_source_get_info T_source_get_num T_source_get_timestamp";

/// The functions that a C header declares, without the names that tools have for them.
fn declared(header: &str) -> Vec<&str> {
    let lines =
        header.lines().filter(|line| !line.starts_with([' ', '#', '/', '*']) && !line.starts_with("typedef"));
    let names = lines.filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("MPI_") && name.contains(|c: char| c.is_ascii_lowercase())).collect()
}

#[test]
fn the_table_has_every_function_of_the_headers_of_mpich() {
    let known: HashSet<&str> = table::entries().iter().map(|entry| entry.name).collect();
    let later: HashSet<&str> = LATER.split_whitespace().collect();
    let mut seen = HashSet::new();
    for header in ["mpi.h", "mpi_proto.h", "mpio.h"] {
        let Ok(text) = fs::read_to_string(Path::new(MPICH_HEADERS).join(header)) else {
            return skip("no headers of MPICH here (apt-get install libmpich-dev)");
        };
        for name in declared(&text) {
            let newer = name.ends_with("_c") || later.contains(&name["MPI_".len()..]);
            assert!(known.contains(name) != newer, "{name} of {header}");
            if !newer {
                seen.insert(name.to_owned());
            }
        }
    }
    // All but the conversions of handles, which are macros there.
    assert_eq!(seen.len(), known.len() - 16);
}

/// The parameters of a Fortran header, by name, with their values as they are written.
fn parameters(header: &str) -> HashMap<String, String> {
    let mut found = HashMap::new();
    for line in header.lines() {
        let line = line.trim().to_ascii_uppercase();
        let Some(list) = line.strip_prefix("PARAMETER").map(str::trim) else { continue };
        let list =
            list.strip_prefix('(').and_then(|list| list.strip_suffix(')')).expect("a list in brackets");
        for part in list.split(',') {
            let (name, value) = part.split_once('=').expect("a name and a value");
            found.insert(name.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

/// The value of a parameter: a number, a difference of two, a word of logic, or another parameter.
fn value(of: &HashMap<String, String>, name: &str) -> Option<i64> {
    let text = of.get(name)?.trim_start_matches('(').trim_end_matches(')');
    let number = |text: &str| match text {
        ".FALSE." => Some(0),
        ".TRUE." => Some(1),
        _ => text.parse().ok(),
    };
    let difference = || text.split_once('-').and_then(|(a, b)| Some(number(a)? - number(b)?));
    number(text).or_else(difference).or_else(|| value(of, text))
}

#[test]
fn parameters_of_fortran_are_those_of_mpich() {
    let Some((ours, theirs)) = headers("mpif.h") else { return };
    let (ours, theirs) = (parameters(&ours), parameters(&theirs));
    assert!(ours.len() > 200 && value(&ours, "MPI_COMM_WORLD") == Some(0x4400_0000), "{ours:?}");
    let both = ours.keys().filter(|name| !OWN.contains(&name.as_str()));
    let differ: BTreeMap<_, _> = both
        .map(|name| (name, (value(&ours, name), value(&theirs, name))))
        .filter(|(_, (ours, theirs))| ours.is_none() || ours != theirs)
        .collect();
    assert!(differ.is_empty(), "ours, MPICH's: {differ:?}");
}
