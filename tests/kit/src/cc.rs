//! C and C++ programs as tests: compiled with every warning an error, then run.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::packages::{find_program, need_program, skip};
use crate::tempdir::TempDir;

/// What every C source of the project has to pass.
const STRICT: [&str; 4] = ["-Wall", "-Wextra", "-Werror", "-g"];

/// A compiled program or library; its folder, which every user may enter, goes away with it.
#[derive(Debug)]
pub struct Compiled {
    file: PathBuf,
    _folder: TempDir,
}

impl Compiled {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// A command that runs it.
    pub fn command(&self) -> Command {
        Command::new(&self.file)
    }

    /// Runs it to its end.
    ///
    /// # Panics
    ///
    /// If it does not end with 0; the message holds its output.
    pub fn run(&self, args: &[&str]) -> Output {
        let output = self.command().args(args).output().expect("a program just compiled can be started");
        assert!(output.status.success(), "{:?}: {}\n{}", self.file, output.status, both(&output));
        output
    }
}

impl Deref for Compiled {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.file
    }
}

/// Compiles C source text. `flags` come after the source, so that libraries (`-l`) are found there; for a library
/// pass `-shared -fPIC`. `None` if the machine has no C compiler, after having logged the test as skipped.
///
/// # Panics
///
/// If the source does not compile without a warning.
///
/// ```
/// let text = "int main(int argc, char **argv) { (void)argv; return argc - 1; }";
/// let Some(program) = viaduct_kit::cc::compile_c(text, &["-O2"]) else { return };
/// program.run(&[]);
/// ```
pub fn compile_c(text: &str, flags: &[&str]) -> Option<Compiled> {
    let folder = TempDir::new("c");
    let source = folder.join("source.c");
    fs::write(&source, text).expect("the folder is new and ours");
    compile(&source, flags, folder)
}

/// Compiles a C source file, like [`compile_c`].
///
/// # Panics
///
/// If the source does not compile without a warning.
pub fn compile_c_file(source: impl AsRef<Path>, flags: &[&str]) -> Option<Compiled> {
    compile(source.as_ref(), flags, TempDir::new("c"))
}

/// Compiles a C source file as C++, like [`compile_c`].
///
/// # Panics
///
/// If the source does not compile without a warning.
pub fn compile_as_cpp(source: impl AsRef<Path>, flags: &[&str]) -> Option<Compiled> {
    let compiler = need_program("g++", "g++")?;
    let language = ["-x", "c++"].map(OsString::from);
    Some(build(compiler.into(), &language, source.as_ref(), flags, TempDir::new("cpp")))
}

fn compile(source: &Path, flags: &[&str], folder: TempDir) -> Option<Compiled> {
    let Some(compiler) = compiler() else {
        skip("no C compiler (apt-get install gcc libc6-dev)");
        return None;
    };
    Some(build(compiler, &[], source, flags, folder))
}

fn build(
    compiler: OsString,
    language: &[OsString],
    source: &Path,
    flags: &[&str],
    folder: TempDir,
) -> Compiled {
    folder.open_to_all();
    let file = folder.join("program");
    let mut command = Command::new(compiler);
    // What follows the source is for the linker, in whatever language the source was.
    let end = if language.is_empty() { &[][..] } else { &["-x", "none"][..] };
    command.args(STRICT).arg("-o").arg(&file).args(language).arg(source).args(end).args(flags);
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, both(&output));
    Compiled { file, _folder: folder }
}

/// The compiler that `CC` names, else gcc, else cc.
fn compiler() -> Option<OsString> {
    let named = env::var_os("CC").filter(|name| !name.is_empty());
    named.or_else(|| ["gcc", "cc"].into_iter().find_map(find_program).map(Into::into))
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_compiles_and_runs() {
        let text = "#include <stdio.h>\n#include <math.h>\n\
                    int main(int n, char **v) { printf(\"%s %.0f\\n\", v[n - 1], floor(n + 0.5)); return 0; }\n";
        let Some(program) = compile_c(text, &["-lm"]) else { return };
        assert_eq!(program.run(&["hello"]).stdout, b"hello 2\n");
        let path = program.path().to_owned();
        drop(program);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_compiles() {
        let folder = TempDir::new("csrc");
        fs::write(folder.join("empty.c"), "int main(void) { return 0; }\n").unwrap();
        let Some(program) = compile_c_file(folder.join("empty.c"), &[]) else { return };
        program.run(&[]);
    }

    #[test]
    fn c_compiles_as_cpp() {
        let folder = TempDir::new("csrc");
        let text = "#ifndef __cplusplus\n#error no\n#endif\nint main() { return 0; }\n";
        fs::write(folder.join("source.c"), text).unwrap();
        let Some(program) = compile_as_cpp(folder.join("source.c"), &["-lm"]) else { return };
        program.run(&[]);
    }

    #[test]
    fn a_warning_is_an_error() {
        if compiler().is_none() {
            crate::skip!("no C compiler (apt-get install gcc libc6-dev)");
        }
        let compiled =
            std::panic::catch_unwind(|| compile_c("int main(void) { int unused; return 0; }\n", &[]));
        let message = compiled.expect_err("an unused variable does not pass");
        assert!(message.downcast_ref::<String>().unwrap().contains("unused"));
    }
}
