//! Whatever ranks say on their PMI sockets, the server neither panics nor forgets a rank that waits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use viaduct_job::pmi::server::{Action, Node, Root};
use viaduct_job::pmi::wire::Lines;

fuzz_target!(|data: &[u8]| {
    let mut node = Node::new("job", 3, vec![0, 0, 1], "(vector,(0,1,3))");
    let (mut root, mut lines) = (Root::new([0]), [Lines::default(), Lines::default(), Lines::default()]);
    // The first byte of each piece says which rank speaks.
    for piece in data.chunks(48) {
        let rank = usize::from(piece[0]) % 3;
        let mut actions = Vec::new();
        let fed = lines[rank].feed(&piece[1..], |line| node.line(rank, line, &mut actions));
        for action in std::mem::take(&mut actions) {
            if let Action::Arrive(pairs) = action {
                let all = root.arrive(&[0], pairs).expect("there is one node");
                node.release(&all, &mut actions);
                assert_eq!(actions.len(), 3, "all three are released");
            }
        }
        if fed.is_err() {
            return;
        }
    }
});
