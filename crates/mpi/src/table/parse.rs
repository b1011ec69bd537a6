//! The parser of the table of entry points. It uses nothing of this crate: the build script of the C library includes it
//! and makes the library's functions from the same lines.

#![allow(unreachable_pub, reason = "in a build script nothing is reached from outside")]

/// What an argument of an entry point is, as far as conversions between C and Fortran need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `int`.
    Int,
    /// A handle of 32 bits.
    Handle,
    /// `MPI_Aint`, `MPI_Count` or `MPI_Offset`: 64 bits.
    Wide,
    /// The address of data, which may be one of the standard's marks.
    Buffer,
    /// Text that the library reads.
    Text,
    /// Text that the library writes.
    TextOut,
    /// A place for, or an array of, `int`.
    Ints,
    /// A place for, or an array of, handles.
    Handles,
    /// A place for, or an array of, 64-bit numbers.
    Wides,
    /// One status.
    Status,
    /// An array of statuses.
    Statuses,
    /// Triples of `int`.
    Ranges,
    /// A function of the program.
    Function,
    /// Any other pointer.
    Opaque,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument<'a> {
    /// What it is.
    pub kind: Kind,
    /// Its name in the standard.
    pub name: &'a str,
}

/// How the Fortran form comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fortran {
    /// From the line of the table.
    Made,
    /// Written by hand.
    ByHand,
    /// There is none.
    None,
}

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The chapter it belongs to.
    pub group: &'a str,
    /// Whether it works; otherwise it is refused by name.
    pub implemented: bool,
    /// Its Fortran form.
    pub fortran: Fortran,
    /// The letters of programs that call it in our tests.
    pub evidence: &'a str,
    /// The prototype in C.
    pub prototype: &'a str,
    /// What it returns: `int`, `double` or a type of MPI.
    pub returns: &'a str,
    /// `MPI_…`.
    pub name: &'a str,
    /// Its arguments; the variable ones of `MPI_Pcontrol` are left out.
    pub arguments: Vec<Argument<'a>>,
}

/// Reads the table.
///
/// # Errors
/// The first line that is none of the table's.
pub fn parse(text: &str) -> Result<Vec<Entry<'_>>, String> {
    let mut group = "";
    let mut entries = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some(name) => group = name,
            None => entries
                .push(entry(group, line).ok_or_else(|| format!("line {} of the table: {line}", number + 1))?),
        }
    }
    Ok(entries)
}

fn entry<'a>(group: &'a str, line: &'a str) -> Option<Entry<'a>> {
    let mut words = line.splitn(4, ' ');
    let implemented = match words.next()? {
        "+" => true,
        "-" => false,
        _ => return None,
    };
    let fortran = match words.next()? {
        "f" => Fortran::Made,
        "m" => Fortran::ByHand,
        "." => Fortran::None,
        _ => return None,
    };
    let evidence = words.next()?.trim_matches('.');
    let prototype = words.next()?;
    let (head, rest) = prototype.split_once('(')?;
    let (returns, name) = head.rsplit_once(' ')?;
    let list = rest.strip_suffix(')')?;
    let arguments = list.split(", ").filter(|one| !matches!(*one, "void" | "..."));
    let arguments = arguments.map(argument).collect::<Option<_>>()?;
    Some(Entry { group, implemented, fortran, evidence, prototype, returns, name, arguments })
}

fn argument(text: &str) -> Option<Argument<'_>> {
    let start = text.rfind(|c: char| c.is_whitespace() || c == '*')? + 1;
    let (kind, name) = text.split_at(start);
    let name_end = name.find('[').unwrap_or(name.len());
    let (name, brackets) = name.split_at(name_end);
    let stars = kind.matches('*').count() + brackets.matches("[]").count();
    let base = kind.trim_start_matches("const ").trim_end_matches(['*', ' ']);
    let constant = kind.starts_with("const ");
    let kind = match (base, stars) {
        ("int", 0) => Kind::Int,
        ("int", 1) if brackets.ends_with("[3]") => Kind::Ranges,
        ("int" | "MPI_Fint", 1) => Kind::Ints,
        ("MPI_Fint", 0) => Kind::Int,
        ("void", 1) => Kind::Buffer,
        ("char", 1) if constant => Kind::Text,
        ("char", 1) => Kind::TextOut,
        ("MPI_Aint" | "MPI_Count" | "MPI_Offset", 0) => Kind::Wide,
        ("MPI_Aint" | "MPI_Count" | "MPI_Offset", 1) => Kind::Wides,
        ("MPI_Status" | "MPI_F08_status", 1) if brackets.is_empty() => Kind::Status,
        ("MPI_Status", 1) => Kind::Statuses,
        (base, 1) if base.ends_with("_function") => Kind::Function,
        (base, _) if base.starts_with("MPI_T_") || base == "MPI_File" => Kind::Opaque,
        (base, 0) if base.starts_with("MPI_") => Kind::Handle,
        (base, 1) if base.starts_with("MPI_") => Kind::Handles,
        ("char", _) => Kind::Opaque,
        _ => return None,
    };
    Some(Argument { kind, name })
}
