//! A peer killed at every named step of connect, send, RDMA, disconnect: the survivor lives, loses nothing, goes on.

use viaduct_faults::node::{Mode, Place};
use viaduct_faults::plan::Role;
use viaduct_faults::sweep::sweep;
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;

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

viaduct_kit::isolated! { limit 3_600;
    fn a_client_of_auto_dies_whenever_it_likes() {
        assert!(sweep(Mode::Auto, Role::Client).kills > 0);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_server_of_auto_dies_whenever_it_likes() {
        assert!(sweep(Mode::Auto, Role::Server).kills > 0);
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_client_over_the_network_dies_whenever_it_likes() {
        if there_is_a_network() {
            assert!(sweep(Mode::Network, Role::Client).kills > 0);
        }
    }
}

viaduct_kit::isolated! { limit 3_600;
    fn a_server_over_the_network_dies_whenever_it_likes() {
        if there_is_a_network() {
            assert!(sweep(Mode::Network, Role::Server).kills > 0);
        }
    }
}

fn there_is_a_network() -> bool {
    let folder = TempDir::new("kill");
    let found = Place { folder: folder.path(), mode: Mode::Network }.try_open();
    found.inspect_err(|e| skip(&e.to_string())).is_ok()
}
