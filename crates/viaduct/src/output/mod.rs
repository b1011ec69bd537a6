//! How results reach people and programs.

pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod table;
