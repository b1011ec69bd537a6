//! How results reach people and programs.

pub(crate) mod follow;
pub(crate) mod osu;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod sheet;
pub(crate) mod sink;
pub(crate) mod table;
