//! A host that is measured from another one: it waits for calls and starts a second process for each.
//!
//! Nothing is done for whoever has not proved to be of the job; the process that serves a call ends with it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

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
    /// Somebody of the job is served.
    Served(SocketAddr),
    /// Somebody was turned away.
    Refused(SocketAddr, Error),
}

/// Waits for calls, for ever. `at` is an address, a port, or both; `cpu` stands for the core that a caller wants.
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
    let mut children: Vec<Child> = Vec::new();
    loop {
        let (stream, from) = match door.accept() {
            Ok(call) => call,
            // The caller has hung up already.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(e) => return Err(Error::os("waiting for a call")(e)),
        };
        children.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        match serve(stream, cpu, &token, command) {
            Ok(child) => {
                children.push(child);
                listener(Call::Served(from));
            }
            Err(error) => listener(Call::Refused(from, error)),
        }
    }
}

fn serve(stream: TcpStream, cpu: Option<usize>, token: &Token, command: &PeerCommand) -> Result<Child> {
    let mut link = Link::answer(stream, token)?;
    let wanted: Wanted = link.receive("hearing what is wanted")?;
    let mut start = Command::new(&command.program);
    start.args(&command.args).arg("--far").arg("--cpu").arg(cpu.unwrap_or(wanted.cpu).to_string());
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
    use super::*;

    #[test]
    fn an_address_may_leave_things_out() {
        let mut config = Config::default();
        let shown = |text: &str, config: &Config| place(text, config).map(|a| a.to_string()).ok();
        assert_eq!(shown("", &config), Some("127.0.0.1:7471".into()), "nobody else without a token");
        config.ofi.token = Some(Token::random());
        assert_eq!(shown("", &config), Some("0.0.0.0:7471".into()));
        assert_eq!(shown("80", &config), Some("0.0.0.0:80".into()));
        assert_eq!(shown("10.0.0.7", &config), Some("10.0.0.7:7471".into()));
        assert_eq!(shown("10.0.0.7:80", &config), Some("10.0.0.7:80".into()));
        assert_eq!(shown("[::1]:80", &config), Some("[::1]:80".into()));
        assert_eq!(shown("node3", &config), None);
    }
}
