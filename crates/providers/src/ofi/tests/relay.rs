//! A program without the token that stands between client and listener.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use viaduct_via::Error;

use super::*;

/// Passes every connection at the returned address on to `to`.
fn relay(to: SocketAddr) -> SocketAddr {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = door.local_addr().unwrap();
    thread::spawn(move || {
        for client in door.incoming().flatten() {
            let Ok(server) = TcpStream::connect(to) else { continue };
            for (mut from, mut into) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    at
}

#[test]
#[cfg_attr(miri, ignore = "uses a library")]
fn a_connection_through_another_port_is_refused_by_both_ends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a relay");
    let Some(mut s) = scene() else { return };
    let host = viaduct_job::HostId::of_this(None).unwrap();
    let names = Names::new(s.config.runtime_dir.clone().unwrap(), &s.token, host);
    let place = names.find(&"door".parse().unwrap()).unwrap();
    let between = relay(place);
    let vi = s.nic.create_vi(ViAttributes::new(s.tag)).unwrap();
    let asks = |nic: &mut Nic, at: SocketAddr| {
        nic.connect_request(vi, &format!("{at}/door").parse().unwrap(), Some(Duration::from_secs(30)))
    };
    let refused = asks(&mut s.nic, between).unwrap_err();
    assert!(matches!(refused, Error::NotOfThisJob(_)), "{refused}");
    // A client that does not check the server's proof does not get in either.
    let mut rogue = Rogue::at(&s.config, between);
    let (client, hello) = Client::new(request(), place.port());
    assert!(rogue.hello(&hello));
    let challenge = rogue.hear_hello();
    let good = client.answer_challenge(&challenge, &s.token).unwrap();
    let mut forged = good;
    forged.proof[0] ^= 1;
    assert!(rogue.hello(&forged));
    assert_eq!(rogue.hear_hello().step(), step::NOT_OF_THIS_JOB);
    assert!(s.nic.poll_listener(s.listener).unwrap().is_none(), "the owner heard of neither");
    s.is_well();
}
