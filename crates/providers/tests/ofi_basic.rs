//! The provider between hosts, within one: names and ports, tokens, which peer is let in and which is not.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use viaduct_job::Token;
use viaduct_kit::effort::{rounds, scaled};
use viaduct_kit::packages::skip;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_providers::config::OfiConfig;
use viaduct_providers::{Config, open};
use viaduct_via::{Descriptor, Error, MemAttributes, NetAddress, Nic, ProtectionTag, Vi, ViAttributes};

const LONG: Option<Duration> = Some(Duration::from_secs(30));

struct Node {
    nic: Nic,
    tag: ProtectionTag,
}

fn config(folder: &Path, token: Option<&Token>) -> Config {
    let ofi = OfiConfig {
        runtime_dir: Some(folder.to_owned()),
        token: token.cloned(),
        bind: token.map(|_| Ipv4Addr::LOCALHOST.into()),
        ..OfiConfig::default()
    };
    Config { ofi, ..Config::default() }
}

/// None, and the test skipped by name, where libfabric is missing.
fn node(config: &Config) -> Option<Node> {
    match open("ofi:tcp", config) {
        Ok(provider) => {
            let mut nic = Nic::open(provider).unwrap();
            let tag = nic.create_ptag().unwrap();
            Some(Node { nic, tag })
        }
        Err(e @ Error::Unavailable { .. }) => {
            skip(&e.to_string());
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn address(text: &str) -> NetAddress {
    text.parse().unwrap()
}

impl Node {
    fn vi(&mut self) -> Vi {
        self.nic.create_vi(ViAttributes::new(self.tag)).unwrap()
    }

    fn message(&mut self, text: &[u8]) -> Descriptor {
        let mut buffer = self.nic.alloc(text.len(), MemAttributes::local(self.tag)).unwrap();
        buffer.write(0, text);
        Descriptor::send(buffer)
    }
}

/// Connects to `to`, which is where `server` listens, and sends a message across.
fn talk(client: &mut Node, server: &mut Node, listener: viaduct_via::Listener, to: &str) {
    let (a, b) = (client.vi(), server.vi());
    let buffer = server.nic.alloc(64, MemAttributes::local(server.tag)).unwrap();
    server.nic.post_recv(b, Descriptor::recv(buffer)).unwrap();
    client.nic.connect_start(a, None, &address(to), &[], LONG).unwrap();
    let request = server.nic.wait_listener(listener, LONG).unwrap_or_else(|e| panic!("{to}: {e}"));
    server.nic.accept(request, b).unwrap();
    client.nic.connect_finish(a).unwrap();
    let message = client.message(to.as_bytes());
    client.nic.post_send(a, message).unwrap();
    assert_eq!(server.nic.wait_recv(b, LONG).unwrap().data(), to.as_bytes());
    assert_eq!(client.nic.query_vi(a).unwrap().provider, Some("ofi:tcp"));
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_name_is_found_by_itself_by_host_and_by_port() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "names");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let config = config(folder.path(), Some(&token));
    let (Some(mut a), Some(mut b)) = (node(&config), node(&config)) else { return };
    let listener = b.nic.listen(&address("echo"), 4).unwrap();
    for to in ["echo", "127.0.0.1/echo", "localhost/echo"] {
        talk(&mut a, &mut b, listener, to);
    }
    // Not where others of the host would look by themselves.
    let listener = b.nic.listen(&address("127.0.0.2/aside"), 4).unwrap();
    talk(&mut a, &mut b, listener, "aside");
    talk(&mut a, &mut b, listener, "127.0.0.2/aside");
    let port = free_port();
    let exact = format!("127.0.0.1:{port}/exact");
    let listener = b.nic.listen(&address(&exact), 4).unwrap();
    talk(&mut a, &mut b, listener, &exact);
    talk(&mut a, &mut b, listener, "exact");
}

/// More NICs than the job has ports of its own: each is found through the others.
#[test]
fn every_nic_of_a_job_tells_where_the_others_are() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "many NICs");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let config = config(folder.path(), Some(&token));
    let Some(mut client) = node(&config) else { return };
    let mut servers = Vec::new();
    for n in 0..11 {
        let mut server = node(&config).unwrap();
        let listener = server.nic.listen(&address(&format!("name-{n}")), 1).unwrap();
        servers.push((server, listener));
    }
    for (n, (server, listener)) in servers.iter_mut().enumerate() {
        talk(&mut client, server, *listener, &format!("127.0.0.1/name-{n}"));
    }
    let vi = client.vi();
    let absent = client.nic.connect_request(vi, &address("127.0.0.1/absent"), LONG);
    assert!(matches!(absent, Err(Error::NoMatch(_))), "{absent:?}");
    // One that is gone is not sent for.
    drop(servers.pop());
    let gone = client.nic.connect_request(vi, &address("127.0.0.1/name-10"), LONG);
    assert!(matches!(gone, Err(Error::NoMatch(_))), "{gone:?}");
}

#[test]
fn a_client_beyond_the_backlog_is_told_that_there_is_no_room() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a full backlog");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let config = config(folder.path(), Some(&token));
    let (Some(mut client), Some(mut server)) = (node(&config), node(&config)) else { return };
    let to = address(&format!("127.0.0.1:{}/full", free_port()));
    let listener = server.nic.listen(&to, 1).unwrap();
    let (first, second) = (client.vi(), client.vi());
    client.nic.connect_start(first, None, &to, &[], LONG).unwrap();
    let request = server.nic.wait_listener(listener, LONG).unwrap();
    match client.nic.connect_request(second, &to, LONG) {
        Err(Error::NoRoom { address, .. }) => assert_eq!(address, to.to_string()),
        other => panic!("{other:?}"),
    }
    server.nic.reject(request).unwrap();
    assert!(matches!(client.nic.connect_finish(first), Err(Error::Rejected(_))));
    talk(&mut client, &mut server, listener, &to.to_string());
}

#[test]
fn a_peer_with_another_token_is_turned_away_at_both_ends() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "tokens");
    let folder = TempDir::new("ofi");
    let ours = config(folder.path(), Some(&Token::random()));
    let theirs = config(folder.path(), Some(&Token::random()));
    let (Some(mut stranger), Some(mut server)) = (node(&theirs), node(&ours)) else { return };
    let to = address(&format!("127.0.0.1:{}/door", free_port()));
    let listener = server.nic.listen(&to, 4).unwrap();
    let vi = stranger.vi();
    let refused = stranger.nic.connect_request(vi, &to, LONG);
    assert!(matches!(refused, Err(Error::NotOfThisJob(_))), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("VIADUCT_TOKEN_FILE"), "a hint");
    assert!(server.nic.poll_listener(listener).unwrap().is_none(), "the owner never heard of it");
    let found = stranger.nic.connect_request(vi, &address("door"), LONG);
    assert!(matches!(found, Err(Error::NoMatch(_))), "names of another job are not seen: {found:?}");
    let mut friend = node(&ours).unwrap();
    talk(&mut friend, &mut server, listener, &to.to_string());
}

#[test]
fn without_a_token_a_user_has_one_on_this_host() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "no token");
    let folder = TempDir::new("ofi");
    let none = config(folder.path(), None);
    let (Some(mut a), Some(mut b)) = (node(&none), node(&none)) else { return };
    let listener = b.nic.listen(&address("echo"), 4).unwrap();
    talk(&mut a, &mut b, listener, "echo");
    let file = folder.path().join("job-token");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A token that others could have read is not used.
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    let refused = open("ofi:tcp", &none).err().expect("refused").to_string();
    assert!(refused.contains("chmod 600"), "{refused}");
}

#[test]
fn a_port_that_is_taken_is_said_to_be() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "a port taken");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let Some(mut a) = node(&config(folder.path(), Some(&token))) else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = address(&format!("127.0.0.1:{}/x", taken.local_addr().unwrap().port()));
    let refused = a.nic.listen(&to, 1);
    assert!(
        matches!(&refused, Err(Error::AddressInUse(why)) if why.contains("another program")),
        "{refused:?}"
    );
    // The name was given back.
    a.nic.listen(&address("x"), 1).unwrap();
}

#[test]
fn an_error_names_what_cannot_be_had() {
    let folder = TempDir::new("ofi");
    let mut config = config(folder.path(), Some(&Token::random()));
    if node(&config).is_none() {
        return;
    }
    let refusal = |name: &str, config: &Config| open(name, config).err().expect("refused").to_string();
    let text = refusal("ofi:carrier-pigeon", &config);
    assert!(text.contains("carrier-pigeon") && text.contains("fi_info"), "{text}");
    assert!(refusal("ofi:", &config).contains("unknown provider"));
    config.ofi.window = 1024;
    assert!(refusal("ofi:tcp", &config).contains("ofi.window"));
    config.ofi.library = "libnothing.so".into();
    assert!(refusal("ofi:tcp", &config).contains("libnothing.so"));
}

/// Programs that are not Viaduct may knock: they say nothing, or nonsense, or leave, and harm no peer; also when the
/// address they knocked at has gone meanwhile.
#[test]
fn strangers_at_the_port_harm_no_connection() {
    let _watchdog = Watchdog::arm(Duration::from_secs(120), "strangers");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let config = config(folder.path(), Some(&token));
    let (Some(mut a), Some(mut b)) = (node(&config), node(&config)) else { return };
    let port = free_port();
    let to = format!("127.0.0.1:{port}/door");
    let listener = b.nic.listen(&address(&to), 4).unwrap();
    let mut strangers: Vec<TcpStream> =
        (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    talk(&mut a, &mut b, listener, &to);
    for (n, stranger) in strangers.iter_mut().enumerate() {
        let nonsense: Vec<u8> = (0..n * 40).map(|i| (i * 7 + n) as u8).collect();
        let _ = stranger.write_all(&nonsense);
    }
    talk(&mut a, &mut b, listener, &to);
    let late: Vec<TcpStream> = (0..20).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    b.nic.unlisten(listener).unwrap();
    let vi = a.vi();
    assert!(matches!(a.nic.connect_request(vi, &address(&to), LONG), Err(Error::NoMatch(_))));
    for mut stranger in late {
        let _ = stranger.write_all(&[0x5a; 300]);
    }
    drop(strangers);
    let listener = b.nic.listen(&address(&to), 4).unwrap();
    talk(&mut a, &mut b, listener, &to);
}

/// A client that asks while the listener's NIC closes is told at once that no listener is there, however far it had come.
#[test]
fn a_client_of_a_nic_that_closes_is_told() {
    let _watchdog = Watchdog::arm(scaled(Duration::from_secs(240)), "NICs that close");
    let folder = TempDir::new("ofi");
    let token = Token::random();
    let config = config(folder.path(), Some(&token));
    let Some(mut client) = node(&config) else { return };
    let to = address(&format!("127.0.0.1:{}/door", free_port()));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _over = Raised(&over);
            for n in 0..rounds(60, 1000) {
                let mut server = node(&config).unwrap();
                let listener = server.nic.listen(&to, 64).unwrap();
                std::thread::sleep(Duration::from_micros(n * 61 % 2500));
                // Half of the time with a request that is not answered.
                let _unanswered = if n % 2 == 0 { server.nic.poll_listener(listener).unwrap() } else { None };
            }
        });
        while !over.load(Ordering::Relaxed) {
            let vi = client.vi();
            // The listener does not accept, so it is refused; but not by running out of time.
            let error = client.nic.connect_request(vi, &to, LONG).expect_err("it is not accepted");
            assert!(matches!(error, Error::NoMatch(_)), "{error:?}");
            client.nic.destroy_vi(vi).unwrap();
        }
    });
}

/// Says so when it goes, by a panic too.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
