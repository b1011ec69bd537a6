//! What the report says about cases and tables beyond their numbers: it comes from the packages that measure.

use crate::schema::Measurement;

/// A case, in words.
#[derive(Clone, Copy, Debug)]
pub struct CaseInfo {
    /// Its name in result lines and on the command line.
    pub name: &'static str,
    /// One sentence about it.
    pub about: &'static str,
    /// What is timed.
    pub timed: &'static str,
    /// A smaller value is a better one.
    pub lower_is_better: bool,
}

/// A table, in words.
#[derive(Clone, Copy, Debug)]
pub struct TableInfo {
    /// Its name in result lines.
    pub name: &'static str,
    /// What stands above it.
    pub title: &'static str,
    /// A paragraph about what was measured.
    pub words: &'static str,
    /// The command that makes its data.
    pub command: &'static str,
}

/// All cases and tables that this program can make.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// Cases in the order of the report.
    pub cases: Vec<CaseInfo>,
    /// Tables in the order of the report.
    pub tables: Vec<TableInfo>,
    /// Tables whose rows are made up of parts, with the columns of these: drawn as stacked bars.
    pub stacks: Vec<(&'static str, &'static [&'static str])>,
}

impl Catalogue {
    pub(crate) fn case(&self, name: &str) -> Option<&CaseInfo> {
        self.cases.iter().find(|case| case.name == name)
    }

    /// By the case, or by the unit if this program does not know the case.
    pub(crate) fn lower_is_better(&self, line: &Measurement) -> bool {
        let by_unit = || !line.unit.contains("/s") && line.unit != "%";
        self.case(&line.case).map_or_else(by_unit, |case| case.lower_is_better)
    }
}
