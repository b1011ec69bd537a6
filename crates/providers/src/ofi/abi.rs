//! Our own declarations of libfabric's interface: only what the provider uses, laid out as in the library's headers.
//!
//! Building needs no header this way. Where one is installed, a test compares every size and offset with it (`sys.rs`).
//! The structures of the 1.x interface only ever grow at their end, and a library tells how long its tables of functions
//! are; nothing here reaches beyond what version 1.17 has.

macro_rules! abi {
    ($($(#[$meta:meta])* $c_name:literal $name:ident { $($field:ident: $type:ty,)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[allow(dead_code, reason = "fields keep their places whether they are used or not")]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)*
            }

            impl $name {
                /// Name in C, size, and the offset of each field.
                #[cfg(test)]
                pub(crate) const LAYOUT: $crate::ofi::abi::Layout = (
                    $c_name,
                    size_of::<$name>(),
                    &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
                );
            }
        )*

        /// What has to be compared with the header.
        #[cfg(test)]
        pub(crate) const LAYOUTS: &[$crate::ofi::abi::Layout] = &[$($name::LAYOUT,)*];
    };
}

mod info;
mod object;
mod queue;

pub(crate) use info::*;
pub(crate) use object::*;
pub(crate) use queue::*;

/// A structure as the test sees it: its name in C, its size, its fields with their offsets.
#[cfg(test)]
pub(crate) type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// Every structure.
#[cfg(test)]
pub(crate) fn layouts() -> impl Iterator<Item = &'static Layout> {
    [info::LAYOUTS, object::LAYOUTS, queue::LAYOUTS].into_iter().flatten()
}

/// Numbers that the test compares with the header, by their names in C.
macro_rules! numbers {
    ($($(#[$meta:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$meta])* pub(crate) const $name: $type = $value;)*

        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)*];
    };
}

numbers! {
    FI_MSG: u64 = 1 << 1;
    FI_RMA: u64 = 1 << 2;
    FI_ATOMIC: u64 = 1 << 4;
    FI_RECV: u64 = 1 << 10;
    FI_SEND: u64 = 1 << 11;
    FI_EP_MSG: u32 = 1;
    FI_EP_RDM: u32 = 3;
    FI_MR_LOCAL: i32 = 1 << 2;
    FI_MR_VIRT_ADDR: i32 = 1 << 4;
    FI_MR_ALLOCATED: i32 = 1 << 5;
    FI_MR_PROV_KEY: i32 = 1 << 6;
    FI_PROGRESS_MANUAL: u32 = 2;
    FI_THREAD_DOMAIN: u32 = 3;
    #[cfg_attr(not(feature = "bare"), allow(dead_code, reason = "only `bare` has queues that nothing sleeps on"))]
    FI_WAIT_NONE: u32 = 0;
    FI_WAIT_FD: u32 = 3;
    FI_WAIT_POLLFD: u32 = 6;
    FI_CQ_FORMAT_MSG: u32 = 2;
    FI_CONNREQ: u32 = 1;
    FI_CONNECTED: u32 = 2;
    FI_SHUTDOWN: u32 = 3;
    FI_GETWAIT: i32 = 5;
    FI_ENABLE: i32 = 6;
    FI_SOCKADDR_IN: u32 = 2;
    FI_SOCKADDR_IN6: u32 = 3;
    FI_EAGAIN: i32 = 11;
    FI_ETOOSMALL: i32 = 257;
    FI_EAVAIL: i32 = 259;
    FI_EADDRINUSE: i32 = 98;
    FI_ECONNREFUSED: i32 = 111;
}

/// The version of the interface we speak: 1.17.
pub(crate) const API_VERSION: u32 = 1 << 16 | 17;
