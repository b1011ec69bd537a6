//! Every implemented entry point, under the name by which the exported functions call it.

pub(crate) use crate::attributes::*;
pub(crate) use crate::collectives::*;
pub(crate) use crate::comms::*;
pub(crate) use crate::environment::*;
pub(crate) use crate::errors::*;
pub(crate) use crate::groups::*;
pub(crate) use crate::info::*;
pub(crate) use crate::ops::*;
pub(crate) use crate::p2p::*;
pub(crate) use crate::pack::*;
pub(crate) use crate::persistent::*;
pub(crate) use crate::probe::*;
pub(crate) use crate::requests::*;
pub(crate) use crate::tools::*;
pub(crate) use crate::topologies::*;
pub(crate) use crate::types::*;
