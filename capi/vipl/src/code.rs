//! Errors of the model as return codes. One table, so that a case has one code everywhere.

use viaduct_via::Error;

use crate::abi::Return;

/// The code of an error.
pub(crate) fn code(error: &Error) -> Return {
    match error {
        Error::InvalidHandle(_) | Error::InvalidParameter(_) | Error::Forked | Error::Closed => {
            Return::InvalidParameter
        }
        Error::InvalidState { .. } => Return::InvalidState,
        Error::QueueEmpty => Return::DescriptorError,
        Error::Timeout => Return::Timeout,
        // VIA knows no listener that is there and has no room.
        Error::NoMatch(_) | Error::NoRoom { .. } => Return::NoMatch,
        Error::Rejected(_) => Return::Reject,
        Error::NotReachable(_)
        | Error::NotOfThisJob(_)
        | Error::VersionMismatch { .. }
        | Error::Protocol(_) => Return::NotReachable,
        Error::ReliabilityMismatch { .. } => Return::InvalidReliabilityLevel,
        Error::TransferSizeMismatch { .. } => Return::InvalidMtu,
        Error::QosMismatch { .. } => Return::InvalidQos,
        Error::InvalidPtag => Return::InvalidPtag,
        Error::InvalidRdmaRead => Return::InvalidRdmaRead,
        Error::NotSupported(_) => Return::ErrorNotSupported,
        // Full, in use, a limit, or whatever the machine could not give.
        _ => Return::ErrorResource,
    }
}

/// A result as a code.
pub(crate) fn done(result: Result<(), Return>) -> Return {
    result.err().unwrap_or(Return::Success)
}

/// For `map_err`.
pub(crate) fn coded(error: Error) -> Return {
    code(&error)
}

#[cfg(test)]
mod tests {
    use viaduct_via::{Reliability, ViState};

    use super::*;

    #[test]
    fn every_case_has_its_code() {
        let (ours, theirs) = (Reliability::Unreliable, Reliability::ReliableDelivery);
        let cases = [
            (Error::InvalidHandle("VI"), Return::InvalidParameter),
            (Error::InvalidParameter(""), Return::InvalidParameter),
            (Error::Forked, Return::InvalidParameter),
            (Error::Closed, Return::InvalidParameter),
            (Error::InvalidState { call: "", wanted: "", found: ViState::Idle }, Return::InvalidState),
            (Error::QueueFull { depth: 1 }, Return::ErrorResource),
            (Error::QueueEmpty, Return::DescriptorError),
            (Error::CqFull { capacity: 1 }, Return::ErrorResource),
            (Error::Busy, Return::ErrorResource),
            (Error::InUse(""), Return::ErrorResource),
            (Error::Limit { what: "", limit: 0 }, Return::ErrorResource),
            (Error::Timeout, Return::Timeout),
            (Error::NoMatch(String::new()), Return::NoMatch),
            (Error::backlog_full(""), Return::NoMatch),
            (Error::Rejected(Vec::new()), Return::Reject),
            (Error::NotReachable(String::new()), Return::NotReachable),
            (Error::ReliabilityMismatch { ours, theirs }, Return::InvalidReliabilityLevel),
            (Error::TransferSizeMismatch { ours: 1, theirs: 2 }, Return::InvalidMtu),
            (Error::QosMismatch { ours: 1, theirs: 2 }, Return::InvalidQos),
            (Error::InvalidPtag, Return::InvalidPtag),
            (Error::InvalidRdmaRead, Return::InvalidRdmaRead),
            (Error::BoundToCq, Return::ErrorResource),
            (Error::AddressInUse(String::new()), Return::ErrorResource),
            (Error::NotSupported(""), Return::ErrorNotSupported),
            (Error::NotOfThisJob(""), Return::NotReachable),
            (Error::VersionMismatch { ours: 1, theirs: 2 }, Return::NotReachable),
            (Error::Protocol(""), Return::NotReachable),
        ];
        for (error, wanted) in cases {
            assert_eq!(code(&error), wanted, "{error:?}");
        }
    }
}
