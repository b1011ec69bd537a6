//! A host that is measured from another one: it waits for calls and starts a second process for each.
//!
//! Nothing is done for a caller that has not proved to be of the job; the process that serves a call ends with it. Each
//! caller has a thread until it is served, so that one that takes its time does not keep the others waiting; their number
//! and their time are bounded.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use viaduct_job::Token;
use viaduct_providers::Config;

use crate::error::{Error, Result};
use crate::link::{Link, PORT};
use crate::orders::Wanted;
use crate::session::PeerCommand;

/// What the caller hears.
#[derive(Debug)]
#[non_exhaustive]
pub enum Call {
    /// Waits at this address.
    Listening(SocketAddr),
    /// A caller of the job is served.
    Served(SocketAddr),
    /// A caller was turned away.
    Refused(SocketAddr, Error),
}

/// Callers at once that are not served yet; one more pushes the oldest out.
const CALLERS: usize = 32;
/// How long a caller has from its arrival until it has said what it wants.
const LIMIT: Duration = Duration::from_secs(10);
/// How often processes that have ended are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// What the threads beside tell.
enum News {
    Caller(TcpStream, SocketAddr),
    Asked(u64, SocketAddr, Result<(Link, Wanted)>),
    Failed(io::Error),
}

/// Waits for calls without end. `at` is an address, a port, or both; `cpu` stands for the core that a caller wants.
pub fn listen(
    at: &str,
    cpu: Option<usize>,
    command: &PeerCommand,
    providers: &Config,
    listener: &mut dyn FnMut(Call),
) -> Result<()> {
    let token = viaduct_providers::ofi::job_token(&providers.ofi)?;
    let address = place(at, providers)?;
    let door = TcpListener::bind(address).map_err(Error::os(format!("listening at {address}")))?;
    listener(Call::Listening(door.local_addr().map_err(Error::os("asking for the port"))?));
    let (news, heard) = mpsc::channel();
    let (door, token, tell) = (&door, &token, &news);
    thread::scope(|scope| {
        scope.spawn(move || accept(door, tell));
        let (mut children, mut callers) = (Vec::<Child>::new(), VecDeque::<(u64, TcpStream)>::new());
        for number in 0.. {
            let next = heard.recv_timeout(LOOK);
            children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
            match next {
                Ok(News::Caller(stream, from)) => {
                    let Ok(copy) = stream.try_clone() else { continue };
                    if callers.len() >= CALLERS
                        && let Some((_, oldest)) = callers.pop_front()
                    {
                        // Its thread notices.
                        let _ = oldest.shutdown(Shutdown::Both);
                    }
                    callers.push_back((number, copy));
                    scope.spawn(move || {
                        let asked = in_time(&stream, || answer(&stream, token));
                        let _ = tell.send(News::Asked(number, from, asked));
                    });
                }
                Ok(News::Asked(number, from, asked)) => {
                    callers.retain(|(n, _)| *n != number);
                    // Here, because the process ends with the thread that starts it.
                    match asked.and_then(|(link, wanted)| start(link, cpu.unwrap_or(wanted.cpu), command)) {
                        Ok(child) => {
                            children.push(child);
                            listener(Call::Served(from));
                        }
                        Err(error) => listener(Call::Refused(from, error)),
                    }
                }
                Ok(News::Failed(error)) => return Err(Error::os("waiting for a call")(error)),
                Err(_) => {}
            }
        }
        Ok(())
    })
}

/// Passes on each caller, until accepting fails.
fn accept(door: &TcpListener, news: &Sender<News>) {
    loop {
        let next = match door.accept() {
            Ok((stream, from)) => News::Caller(stream, from),
            // The caller has hung up already.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) => News::Failed(e),
        };
        let failed = matches!(next, News::Failed(_));
        if news.send(next).is_err() || failed {
            return;
        }
    }
}

/// Does something with a caller, which is cut off when its time is over, however often it says a little.
fn in_time<T>(stream: &TcpStream, work: impl FnOnce() -> T) -> T {
    let (done, over) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if over.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        let result = work();
        drop(done);
        result
    })
}

fn answer(stream: &TcpStream, token: &Token) -> Result<(Link, Wanted)> {
    let stream = stream.try_clone().map_err(Error::os("a second descriptor of a caller"))?;
    let mut link = Link::answer(stream, token)?;
    let wanted = link.receive("hearing what is wanted")?;
    Ok((link, wanted))
}

fn start(link: Link, cpu: usize, command: &PeerCommand) -> Result<Child> {
    let mut start = Command::new(&command.program);
    start.args(&command.args).arg("--far").arg("--cpu").arg(cpu.to_string());
    start.arg("--parent").arg(std::process::id().to_string());
    start.stdin(Stdio::from(link.into_fd())).stdout(Stdio::null());
    start.spawn().map_err(Error::os("starting the second process"))
}

/// Where to listen: only a job whose token was given is reached from elsewhere, unless the user says so.
fn place(text: &str, providers: &Config) -> Result<SocketAddr> {
    let everywhere = providers.ofi.has_token();
    let ip = if everywhere { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
    if text.is_empty() {
        return Ok((ip, PORT).into());
    }
    let port = text.parse().map(|port: u16| (ip, port).into());
    let address = text.parse().map(|ip: std::net::IpAddr| (ip, PORT).into());
    port.or(address).or_else(|_| text.parse()).map_err(|_: std::net::AddrParseError| {
        Error::usage(format!("`{text}` is no address to listen at"), "give IP, PORT or IP:PORT")
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::path::PathBuf;

    use viaduct_kit::watchdog::Watchdog;

    use super::*;

    #[test]
    fn callers_that_take_their_time_keep_no_other_waiting() {
        let _watchdog = Watchdog::arm(Duration::from_secs(60), "slow callers");
        let mut config = Config::default();
        let token = Token::random();
        config.ofi.token = Some(token.clone());
        let command = PeerCommand { program: PathBuf::from("/bin/true"), args: Vec::new() };
        let (tell, hear) = mpsc::channel();
        // Never returns; it ends with the process.
        thread::spawn(move || {
            let mut told = |call: Call| drop(tell.send(call));
            listen("127.0.0.1:0", Some(0), &command, &config, &mut told)
        });
        let Ok(Call::Listening(at)) = hear.recv() else { panic!("it listens") };
        // More than are let in at once; the oldest has to go, the others stay and say nothing of use.
        let mut crowd: Vec<_> = (0..=CALLERS).map(|_| TcpStream::connect(at).unwrap()).collect();
        crowd.iter_mut().skip(1).for_each(|caller| caller.write_all(b"v").unwrap());
        assert_eq!(crowd[0].read(&mut [0; 8]).unwrap_or(0), 0);
        let mut link = Link::call(&at.to_string(), &token).unwrap();
        link.send(&Wanted { cpu: 0 }).unwrap();
        loop {
            match hear.recv().unwrap() {
                Call::Served(_) => return,
                Call::Refused(..) => {}
                Call::Listening(_) => panic!("once"),
            }
        }
    }

    #[test]
    fn an_address_may_leave_things_out() {
        let mut config = Config::default();
        let shown = |text: &str, config: &Config| place(text, config).map(|a| a.to_string()).ok();
        assert_eq!(shown("", &config), Some("127.0.0.1:7471".into()), "this host alone without a token");
        config.ofi.token = Some(Token::random());
        assert_eq!(shown("", &config), Some("0.0.0.0:7471".into()));
        assert_eq!(shown("80", &config), Some("0.0.0.0:80".into()));
        assert_eq!(shown("10.0.0.7", &config), Some("10.0.0.7:7471".into()));
        assert_eq!(shown("10.0.0.7:80", &config), Some("10.0.0.7:80".into()));
        assert_eq!(shown("[::1]:80", &config), Some("[::1]:80".into()));
        assert_eq!(shown("node3", &config), None);
    }
}
