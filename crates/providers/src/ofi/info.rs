//! What a provider of libfabric offers (`fi_info`), and addresses as the kernel has them.

use std::ffi::{CStr, CString, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr;

use viaduct_via::Error;

use super::abi::*;
use super::fabric::failed;
use super::sys::Fi;

/// What a provider of libfabric offers; one entry of a list, or a copy of one.
pub(crate) struct Info {
    pub(super) fi: &'static Fi,
    pub(super) ptr: *mut FiInfo,
}

// SAFETY: plain memory of the library's that has no other holder.
unsafe impl Send for Info {}

/// One provider that could be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Its name in libfabric: `tcp`, `verbs`.
    pub name: String,
    /// Whether libfabric offers RDMA on it. Viaduct does not use it: the target's engine moves RDMA, by messages.
    pub rma: bool,
    /// Whether libfabric offers atomics on it.
    pub atomics: bool,
}

impl Info {
    /// What there is for connected endpoints with these capabilities; no provider asks for every one, and no capability
    /// for all that each has.
    pub(crate) fn find(fi: &'static Fi, provider: Option<&str>, caps: u64) -> Result<Info, Error> {
        Info::find_with(fi, provider, caps, FI_EP_MSG)
    }

    /// What there is for endpoints of this kind, with these capabilities.
    pub(super) fn find_with(
        fi: &'static Fi,
        provider: Option<&str>,
        caps: u64,
        endpoints: u32,
    ) -> Result<Info, Error> {
        // SAFETY: null asks for an empty structure with everything below it.
        let hints = unsafe { (fi.dupinfo)(ptr::null()) };
        if hints.is_null() {
            return Err(failed(fi, "fi_allocinfo", 12));
        }
        let hints = Info { fi, ptr: hints };
        // SAFETY: just made, with all its parts; the name is freed with it by the library, so it is the C library's.
        unsafe {
            let h = &mut *hints.ptr;
            h.caps = caps;
            (*h.ep_attr).r#type = endpoints;
            let d = &mut *h.domain_attr;
            d.mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
            d.threading = FI_THREAD_DOMAIN;
            d.data_progress = FI_PROGRESS_MANUAL;
            d.control_progress = FI_PROGRESS_MANUAL;
            if let Some(provider) = provider {
                let name = CString::new(provider)
                    .map_err(|_| Error::InvalidParameter("a provider's name has no zero bytes"))?;
                (*h.fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        let mut found = ptr::null_mut();
        // SAFETY: hints are complete; the list is ours to free.
        let code =
            unsafe { (fi.getinfo)(API_VERSION, ptr::null(), ptr::null(), 0, hints.ptr, &raw mut found) };
        if code != 0 || found.is_null() {
            return Err(Error::Unavailable {
                provider: "ofi",
                why: match provider {
                    Some(name) => format!("libfabric has no connected endpoints by `{name}` on this machine"),
                    None => "libfabric has no connected endpoints on this machine".into(),
                },
                hint: "`viaduct info` and `fi_info -t FI_EP_MSG` list what there is",
            });
        }
        Ok(Info { fi, ptr: found })
    }

    /// Which providers a list has, each once.
    pub(crate) fn offers(&self) -> Vec<Offer> {
        let mut offers: Vec<Offer> = Vec::new();
        let mut at = self.ptr;
        while !at.is_null() {
            // SAFETY: an entry of the library's list, which we own.
            let entry = unsafe { &*at };
            let name = provider_name(entry);
            let (rma, atomics) = (entry.caps & FI_RMA != 0, entry.caps & FI_ATOMIC != 0);
            match offers.iter_mut().find(|o| o.name == name) {
                Some(offer) => {
                    offer.rma |= rma;
                    offer.atomics |= atomics;
                }
                None => offers.push(Offer { name, rma, atomics }),
            }
            at = entry.next;
        }
        offers
    }

    /// A copy of the first entry of this provider, without addresses.
    pub(crate) fn first_of(&self, provider: &str) -> Option<Info> {
        let mut at = self.ptr;
        while !at.is_null() {
            // SAFETY: an entry of the library's list, which we own.
            let entry = unsafe { &*at };
            if provider_name(entry) == provider {
                return Some(self.copy_of(at));
            }
            at = entry.next;
        }
        None
    }

    /// A copy for listening at an address.
    pub(crate) fn listening_at(&self, address: SocketAddr) -> Info {
        let copy = self.copy_of(self.ptr);
        let (bytes, len, format) = sockaddr(address);
        // SAFETY: a copy that is ours; the address is memory of the C library's, which frees it.
        unsafe {
            let info = &mut *copy.ptr;
            info.addr_format = format;
            info.src_addr = duplicate(&bytes[..len]);
            info.src_addrlen = len;
        }
        copy
    }

    /// A copy for connecting to an address.
    pub(crate) fn leading_to(&self, address: SocketAddr) -> Info {
        let copy = self.copy_of(self.ptr);
        let (bytes, len, format) = sockaddr(address);
        // SAFETY: as above.
        unsafe {
            let info = &mut *copy.ptr;
            info.addr_format = format;
            info.dest_addr = duplicate(&bytes[..len]);
            info.dest_addrlen = len;
        }
        copy
    }

    /// Bytes that are copied by a send without a completion.
    pub(crate) fn inject_size(&self) -> usize {
        // SAFETY: an entry of the library's has all its parts.
        unsafe { (*(*self.ptr).tx_attr).inject_size }
    }

    /// Whether buffers must be registered before they are posted.
    pub(crate) fn registers_buffers(&self) -> bool {
        // SAFETY: an entry of the library's has all its parts.
        unsafe { (*(*self.ptr).domain_attr).mr_mode & FI_MR_LOCAL != 0 }
    }

    /// Places in memory, besides a header, that one send may take its bytes from; none if they had to be registered.
    pub(crate) fn places(&self) -> usize {
        if self.registers_buffers() {
            return 0;
        }
        // SAFETY: an entry of the library's has all its parts.
        unsafe { (*(*self.ptr).tx_attr).iov_limit.saturating_sub(1) }
    }

    /// Longest queues of one endpoint: sends and receives.
    pub(crate) fn queue_sizes(&self) -> (usize, usize) {
        // SAFETY: an entry of the library's has all its parts.
        unsafe { ((*(*self.ptr).tx_attr).size, (*(*self.ptr).rx_attr).size) }
    }

    fn copy_of(&self, entry: *const FiInfo) -> Info {
        // SAFETY: an entry of ours; the copy has no next, and its addresses are its own.
        unsafe {
            let ptr = (self.fi.dupinfo)(entry);
            assert!(!ptr.is_null(), "no memory for a few hundred bytes");
            let copy = &mut *ptr;
            libc::free(copy.src_addr);
            libc::free(copy.dest_addr);
            (copy.src_addr, copy.src_addrlen) = (ptr::null_mut(), 0);
            (copy.dest_addr, copy.dest_addrlen) = (ptr::null_mut(), 0);
            Info { fi: self.fi, ptr }
        }
    }
}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: ours, and freed once; frees what follows it in its list.
        unsafe { (self.fi.freeinfo)(self.ptr) };
    }
}

fn provider_name(entry: &FiInfo) -> String {
    // SAFETY: every entry that the library gives has a provider with a name.
    unsafe { CStr::from_ptr((*entry.fabric_attr).prov_name) }.to_string_lossy().into_owned()
}

/// Bytes in memory that the C library frees.
fn duplicate(bytes: &[u8]) -> *mut c_void {
    // SAFETY: so many bytes are asked for and written.
    unsafe {
        let memory = libc::malloc(bytes.len());
        assert!(!memory.is_null(), "no memory for an address");
        ptr::copy_nonoverlapping(bytes.as_ptr(), memory.cast(), bytes.len());
        memory
    }
}

/// An address as the kernel has it: bytes, how many, and which kind libfabric calls it.
pub(super) fn sockaddr(address: SocketAddr) -> ([u8; 28], usize, u32) {
    let mut bytes = [0; 28];
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    match address {
        SocketAddr::V4(v4) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            (bytes, 16, FI_SOCKADDR_IN)
        }
        SocketAddr::V6(v6) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            bytes[24..].copy_from_slice(&v6.scope_id().to_ne_bytes());
            (bytes, 28, FI_SOCKADDR_IN6)
        }
    }
}

pub(super) fn address_from(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
    let port = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
    let ip = match family {
        libc::AF_INET => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes.get(4..8)?).ok()?)),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(8..24)?).ok()?)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_back() {
        for text in ["10.0.0.7:4711", "[fe80::17]:99", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            let (bytes, len, _) = sockaddr(address);
            assert_eq!(address_from(&bytes[..len]), Some(address), "{text}");
        }
        assert_eq!(address_from(&[1, 0, 3]), None);
        assert_eq!(address_from(&[9; 28]), None);
    }
}
