//! How a diff lies in memory and in messages: runs of changed bytes, each behind its place in the page and its length.

/// Puts a run at the end of a diff.
pub(super) fn push(diff: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    diff.extend((at as u16).to_le_bytes());
    diff.extend((bytes.len() as u16).to_le_bytes());
    diff.extend(bytes);
}

/// The first run of a diff: its place, its bytes, and what follows. None at the end, and where the bytes are no run.
pub(super) fn run(diff: &[u8]) -> Option<(usize, &[u8], &[u8])> {
    let [a, b, c, d, tail @ ..] = diff else { return None };
    let (at, len) = (u16::from_le_bytes([*a, *b]), u16::from_le_bytes([*c, *d]));
    let (bytes, rest) = tail.split_at_checked(usize::from(len))?;
    Some((usize::from(at), bytes, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_in_order() {
        let mut diff = Vec::new();
        push(&mut diff, 4095, b"z");
        push(&mut diff, 0, b"abc");
        let (at, bytes, rest) = run(&diff).expect("a run");
        assert_eq!((at, bytes), (4095, &b"z"[..]));
        assert_eq!(run(rest), Some((0, &b"abc"[..], &b""[..])));
        assert_eq!(run(b""), None);
    }

    #[test]
    fn a_run_that_is_cut_off_is_none() {
        let mut diff = Vec::new();
        push(&mut diff, 7, b"abc");
        (0..diff.len()).for_each(|len| assert_eq!(run(&diff[..len]), None));
    }
}
