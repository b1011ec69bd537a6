//! The C program of `c/late.c`: functions that the library ends in are found when they are first called, where it did not look for
//! them when it was loaded.

use std::path::Path;
use std::process::Command;

use viaduct_kit::cc::compile_c_file;
use viaduct_preload_tests::Stage;

use crate::AGENT;

fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success(), "{}\n{said}", output.status);
    said
}

#[test]
fn functions_are_found_where_the_library_is_turned_off_or_liburing_comes_later() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/late.c");
    let Some(program) = compile_c_file(source, &["-O1", "-Wno-unused-function", "-ldl"]) else { return };
    let stage = Stage::new(&AGENT);
    let plain = said(program.command());
    assert!(plain.starts_with("system 768\npopen\n0\nposix_spawnp 1024\n"), "{plain}");
    assert_eq!(said(stage.under(program.path())), plain);
    for mode in ["off", "never"] {
        let mut command = stage.under(program.path());
        command.env("VIADUCT_RUN", mode);
        assert_eq!(said(command), plain, "{mode}");
    }
}
