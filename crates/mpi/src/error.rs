//! Error classes of MPI with the values of MPICH's interface, and the error that calls of this crate return.

use std::borrow::Cow;
use std::fmt;

/// Declares the classes once: name, value, text.
macro_rules! classes {
    ($($name:ident = $value:literal, $text:literal;)+) => {
        /// The class of an error. The value is the one that programs built for MPICH have compiled in.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(missing_docs, reason = "the text beside each name is its documentation")]
        pub enum Class {
            $(#[doc = $text] $name = $value,)+
        }

        impl Class {
            /// Every class, in the order of their values.
            pub const ALL: &'static [Class] = &[$(Class::$name,)+];

            /// What `MPI_Error_string` says of the class.
            pub fn text(self) -> &'static str {
                match self {
                    $(Class::$name => $text,)+
                }
            }
        }
    };
}

classes! {
    Success = 0, "no error";
    Buffer = 1, "invalid buffer pointer";
    Count = 2, "invalid count argument";
    Type = 3, "invalid datatype argument";
    Tag = 4, "invalid tag argument";
    Comm = 5, "invalid communicator";
    Rank = 6, "invalid rank";
    Root = 7, "invalid root";
    Group = 8, "invalid group";
    Op = 9, "invalid reduction operation";
    Topology = 10, "invalid topology";
    Dims = 11, "invalid dimension argument";
    Arg = 12, "invalid argument";
    Unknown = 13, "unknown error";
    Truncate = 14, "the message is longer than the receive buffer";
    Other = 15, "known error that has no class of its own";
    Intern = 16, "internal error";
    InStatus = 17, "the error code is in the status";
    Pending = 18, "the request is pending";
    Request = 19, "invalid request handle";
    Access = 20, "permission denied";
    Amode = 21, "invalid access mode";
    BadFile = 22, "invalid file name";
    Conversion = 23, "a data conversion function failed";
    DupDatarep = 24, "the data representation is defined already";
    FileExists = 25, "the file exists";
    FileInUse = 26, "the file is open in another process";
    File = 27, "invalid file handle";
    Info = 28, "invalid info argument";
    InfoKey = 29, "the info key is too long";
    InfoValue = 30, "the info value is too long";
    InfoNokey = 31, "the info key is not defined";
    Io = 32, "input/output error";
    Name = 33, "the service name is not published";
    NoMem = 34, "out of memory";
    NotSame = 35, "an argument that must be equal in all processes differs";
    NoSpace = 36, "not enough space";
    NoSuchFile = 37, "the file does not exist";
    Port = 38, "invalid port name";
    Quota = 39, "quota exceeded";
    ReadOnly = 40, "the file or file system is read only";
    Service = 41, "invalid service name";
    Spawn = 42, "processes could not be spawned";
    UnsupportedDatarep = 43, "the data representation is not supported";
    UnsupportedOperation = 44, "the operation is not supported";
    Win = 45, "invalid window";
    Base = 46, "invalid base address";
    Locktype = 47, "invalid lock type";
    Keyval = 48, "invalid attribute key";
    RmaConflict = 49, "conflicting accesses to a window";
    RmaSync = 50, "wrong synchronisation of one-sided communication";
    Size = 51, "invalid size argument";
    Disp = 52, "invalid displacement argument";
    Assert = 53, "invalid assertion argument";
    RmaRange = 55, "the target memory is not part of the window";
    RmaAttach = 56, "the memory cannot be attached";
    RmaShared = 57, "the memory cannot be shared";
    RmaFlavor = 58, "the window has the wrong flavor";
    Session = 75, "invalid session";
    ProcAborted = 76, "a process of the communicator has ended";
    ValueTooLarge = 77, "the value is too large to store";
}

impl Class {
    /// The class with this value.
    pub fn of(value: i32) -> Option<Class> {
        Class::ALL.iter().copied().find(|class| *class as i32 == value)
    }
}

/// Why a call failed: the class that the program sees, and the cause for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    class: Class,
    cause: Cow<'static, str>,
}

/// What calls of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this class for this cause.
    pub fn new(class: Class, cause: impl Into<Cow<'static, str>>) -> Error {
        Error { class, cause: cause.into() }
    }

    /// What the program sees.
    pub fn class(&self) -> Class {
        self.class
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            // The class says nothing that the cause does not.
            Class::Other => f.write_str(&self.cause),
            class => write!(f, "{}: {}", class.text(), self.cause),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_belongs_to_one_class() {
        assert!(Class::ALL.windows(2).all(|pair| (pair[0] as i32) < pair[1] as i32));
        assert_eq!(Class::of(14), Some(Class::Truncate));
        assert_eq!(Class::of(54), None);
    }

    #[test]
    fn an_error_names_its_class_and_its_cause() {
        let error = Error::new(Class::Rank, "rank 9 of 4");
        assert_eq!(error.to_string(), "invalid rank: rank 9 of 4");
        assert_eq!(error.class() as i32, 6);
        assert_eq!(Error::new(Class::Other, "it was called twice").to_string(), "it was called twice");
    }
}
