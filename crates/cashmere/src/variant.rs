//! The protocol variants of Table I (section 2.3): which kind of communication leaves the remote processor alone.

use std::fmt;
use std::str::FromStr;

/// How one kind of communication travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// By remote write into the memory of the receiver, whose processor takes no part.
    Direct,
    /// By a message that the receiver handles and acknowledges.
    Message,
}

/// A row of Table I.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Variant {
    /// CSM-DMS: data, metadata and synchronisation by remote write.
    Dms,
    /// CSM-MS-Mg: metadata and synchronisation by remote write, homes migrate.
    MsMg,
    /// CSM-None: explicit messages for everything.
    None,
    /// CSM-None-Mg: explicit messages for everything, homes migrate.
    NoneMg,
}

impl Variant {
    /// The variants that are there; `ms`, `s` and `adb` of the paper are not yet.
    pub const ALL: [Variant; 4] = [Variant::Dms, Variant::MsMg, Variant::None, Variant::NoneMg];

    /// How diffs reach the home. Pages are fetched by message in every variant, as in the paper.
    pub fn data(self) -> Way {
        match self {
            Variant::Dms => Way::Direct,
            Variant::MsMg | Variant::None | Variant::NoneMg => Way::Message,
        }
    }

    /// How the directory and write notices travel.
    pub fn metadata(self) -> Way {
        match self {
            Variant::Dms | Variant::MsMg => Way::Direct,
            Variant::None | Variant::NoneMg => Way::Message,
        }
    }

    /// How locks, barriers and flags travel.
    pub fn synchronisation(self) -> Way {
        self.metadata()
    }

    /// Whether the home of a page may move to a node that writes it. Never with diffs by remote write: one could land at
    /// a node that is no longer the home (section 2.3.2).
    pub fn migrates(self) -> bool {
        matches!(self, Variant::MsMg | Variant::NoneMg)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Dms => "dms",
            Variant::MsMg => "ms-mg",
            Variant::None => "none",
            Variant::NoneMg => "none-mg",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that names no variant that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVariant(String);

impl fmt::Display for UnknownVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "ms" | "s" | "adb" => {
                write!(f, "variant `{}` is not there yet; there are dms, ms-mg, none and none-mg", self.0)
            }
            other => write!(f, "no variant `{other}`; there are dms, ms-mg, none and none-mg"),
        }
    }
}

impl std::error::Error for UnknownVariant {}

impl FromStr for Variant {
    type Err = UnknownVariant;

    fn from_str(word: &str) -> Result<Variant, UnknownVariant> {
        Variant::ALL
            .into_iter()
            .find(|variant| variant.name() == word)
            .ok_or_else(|| UnknownVariant(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_one() {
        let rows =
            Variant::ALL.map(|v| (v.name(), v.data(), v.metadata(), v.synchronisation(), v.migrates()));
        use Way::{Direct, Message};
        assert_eq!(rows[0], ("dms", Direct, Direct, Direct, false));
        assert_eq!(rows[1], ("ms-mg", Message, Direct, Direct, true));
        assert_eq!(rows[2], ("none", Message, Message, Message, false));
        assert_eq!(rows[3], ("none-mg", Message, Message, Message, true));
    }

    #[test]
    fn words_name_variants() {
        for variant in Variant::ALL {
            assert_eq!(variant.name().parse(), Ok(variant));
        }
        assert!("ms".parse::<Variant>().unwrap_err().to_string().contains("not there yet"));
        assert!("treadmarks".parse::<Variant>().unwrap_err().to_string().starts_with("no variant"));
    }
}
