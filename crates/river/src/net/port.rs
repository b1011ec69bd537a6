//! The NIC of a node as its edges share it: one protection tag for all, so that every registered pool serves every edge.

use std::fmt;
use std::sync::Arc;

use viaduct_via::{MemAttributes, ProtectionTag, SharedNic};

/// An opened NIC for edges and pools. Clones are one port.
#[derive(Clone)]
pub struct Port(Arc<Inner>);

struct Inner {
    nic: SharedNic,
    tag: ProtectionTag,
}

impl Port {
    /// A port on an opened NIC.
    ///
    /// # Errors
    /// If the NIC gives out no protection tag.
    pub fn new(nic: SharedNic) -> Result<Port, viaduct_via::Error> {
        let tag = nic.try_lock()?.create_ptag()?;
        Ok(Port(Arc::new(Inner { nic, tag })))
    }

    /// The NIC.
    pub fn nic(&self) -> &SharedNic {
        &self.0.nic
    }

    pub(super) fn tag(&self) -> ProtectionTag {
        self.0.tag
    }

    /// Registered memory that no peer may reach but by a message.
    pub(crate) fn memory(&self, len: usize) -> Result<viaduct_via::Buffer, viaduct_via::Error> {
        self.0.nic.try_lock()?.alloc(len, MemAttributes::local(self.0.tag))
    }

    pub(crate) fn is_same(&self, other: &Port) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Port({:?})", self.0.tag)
    }
}
