//! A peer killed at every named step of connect, send, RDMA, disconnect: the survivor lives, loses nothing, goes on.

use viaduct_faults::node::Mode;
use viaduct_faults::plan::Role;
use viaduct_faults::sweep::sweep;

viaduct_kit::isolated! { limit 3_600;
    fn a_client_dies_at_every_step() {
        assert!(sweep(Mode::Direct, Role::Client).kills > 100);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_server_dies_at_every_step() {
        assert!(sweep(Mode::Direct, Role::Server).kills > 100);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_client_that_copies_dies_at_every_step() {
        assert!(sweep(Mode::Copy, Role::Client).kills > 100);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_server_that_copies_dies_at_every_step() {
        assert!(sweep(Mode::Copy, Role::Server).kills > 100);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn the_peer_that_comes_dies_at_every_step() {
        assert!(sweep(Mode::Peer, Role::Client).kills > 100);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn the_peer_that_waits_dies_at_every_step() {
        assert!(sweep(Mode::Peer, Role::Server).kills > 100);
    }
}
