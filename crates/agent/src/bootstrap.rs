//! Bringing up an agent on another host: once, over the system's ssh with the user's own configuration.
//!
//! Nothing has to be installed there. One ssh session runs a few lines of `sh` that look for this very program by its
//! content hash, take it from standard input if it is not there, and become `viaduct agent join`: that finds the agent
//! or starts it, hands it our key and prints where it is. What travels inside of ssh is what both ends pin afterwards.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::identity::PublicKey;
use crate::known::Known;

/// The program that is taken along, and its hash.
#[derive(Debug, Clone)]
pub struct Payload {
    path: PathBuf,
    size: u64,
    hash: String,
}

impl Payload {
    /// This very program.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn ourselves() -> Result<Payload, Error> {
        Payload::of("/proc/self/exe".into())
    }

    /// A file.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn of(path: PathBuf) -> Result<Payload, Error> {
        let failed = |why: std::io::Error| Error::system(path.display().to_string(), why);
        let (mut file, mut hash, mut size) = (File::open(&path).map_err(failed)?, Sha256::new(), 0);
        let mut bytes = vec![0; 1 << 20];
        loop {
            let n = file.read(&mut bytes).map_err(failed)?;
            if n == 0 {
                break;
            }
            hash.update(&bytes[..n]);
            size += n as u64;
        }
        let hash = hash.finalize()[..16].iter().map(|b| format!("{b:02x}")).collect();
        Ok(Payload { path, size, hash })
    }

    /// Its hash, as text.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// How agents are brought up.
#[derive(Debug, Clone)]
pub struct Ways {
    /// ssh, and words before the host.
    pub ssh: Vec<String>,
    /// The longest it may take.
    pub limit: Duration,
    /// Whether root may do this there.
    pub allow_root: bool,
}

/// Brings up the agent of a host, or finds the one that is there, and makes these keys known to it.
///
/// # Errors
/// [`Error::Bootstrap`] with what ssh or the host said.
pub fn bring_up(host: &str, ours: &[PublicKey], payload: &Payload, ways: &Ways) -> Result<Known, Error> {
    let end = Instant::now() + ways.limit;
    let seconds = ways.limit.as_secs().max(1);
    let mut command = Command::new(ways.ssh.first().map_or("ssh", |word| word));
    command.args(ways.ssh.iter().skip(1));
    command.args(["-o", "BatchMode=yes", "-o", &format!("ConnectTimeout={seconds}"), "-T", host, "--"]);
    command.arg(script(payload, ways.allow_root));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Not in the group of the terminal: an interrupt must not cut the wires before the ranks have heard of it.
    command.process_group(0);
    let mut child = command.spawn().map_err(|why| Error::Bootstrap(format!("ssh: {why}")))?;
    let said = talk(&mut child, ours, payload, end);
    let _ = child.kill();
    let status = child.wait();
    match said {
        Ok((address, port, key)) => {
            let address =
                if address.is_empty() { host.rsplit('@').next().unwrap_or(host).to_owned() } else { address };
            let address = if address.contains(':') {
                format!("[{address}]:{port}")
            } else {
                format!("{address}:{port}")
            };
            Ok(Known { host: host.to_owned(), address, key })
        }
        Err(why) => {
            let mut complaint = String::new();
            let _ = child.stderr.take().map(|err| err.take(4000).read_to_string(&mut complaint));
            let last =
                complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(&why).trim().to_owned();
            let code = status.ok().and_then(|status| status.code());
            Err(Error::Bootstrap(if last.contains("Permission denied") && code == Some(255) {
                format!(
                    "ssh: {last} `ssh {host} true` has to work without a question: is the key there, and in ssh-agent?"
                )
            } else if code == Some(255) || complaint.is_empty() {
                format!("ssh: {last}")
            } else {
                last
            }))
        }
    }
}

fn script(payload: &Payload, allow_root: bool) -> String {
    let Payload { hash, size, .. } = payload;
    let root = if allow_root { " --allow-root" } else { "" };
    format!(
        "f=\"${{VIADUCT_CACHE:-${{XDG_CACHE_HOME:-$HOME/.cache}}/viaduct}}/bin/{hash}/viaduct\"; \
         if [ -x \"$f\" ]; then echo viaduct-have; else \
         (umask 077; mkdir -p \"${{f%/*}}\") && echo viaduct-need && head -c {size} > \"$f.$$\" && chmod 700 \"$f.$$\" \
         && mv -f \"$f.$$\" \"$f\" || exit 3; fi; exec \"$f\" agent join{root}"
    )
}

/// Says what the far end needs, and reads where its agent is: address, port and key.
fn talk(
    child: &mut Child,
    ours: &[PublicKey],
    payload: &Payload,
    end: Instant,
) -> Result<(String, u16, PublicKey), String> {
    let ours: Vec<String> = ours.iter().map(PublicKey::to_string).collect();
    let ours = ours.join(" ");
    let lines = lines_of(child);
    let mut input = child.stdin.take().ok_or("no input")?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => return Err("it takes too long".to_owned()),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err("the host said nothing of an agent".to_owned());
            }
        };
        // Whatever else a login says is not for us.
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["viaduct-need"] => {
                let mut file = File::open(&payload.path).map_err(|e| e.to_string())?;
                std::io::copy(&mut file, &mut input).map_err(|e| e.to_string())?;
                writeln!(input, "{ours}").map_err(|e| e.to_string())?;
            }
            ["viaduct-have"] => writeln!(input, "{ours}").map_err(|e| e.to_string())?,
            ["viaduct-agent", "1", port, key, address] => {
                let port = port.parse().map_err(|_| "a port that is none")?;
                let key = key.parse().map_err(|_| "a key that is none")?;
                return Ok((address.trim_matches('-').to_owned(), port, key));
            }
            _ => {}
        }
    }
}

/// Lines as they come, from a thread of their own: a host may fall silent at any moment.
fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
    }
    receiver
}

/// What `viaduct agent join` prints.
pub fn announcement(port: u16, key: PublicKey, ssh_connection: Option<&str>) -> String {
    // ssh tells both addresses of its connection: the third word is ours, and the caller has reached it.
    let address = ssh_connection.and_then(|text| text.split(' ').nth(2)).unwrap_or("-");
    format!("viaduct-agent 1 {port} {key} {address}")
}

#[cfg(test)]
mod tests {
    use viaduct_kit::tempdir::TempDir;

    use super::*;

    #[test]
    fn the_script_is_a_script() {
        let payload = Payload { path: "x".into(), size: 7, hash: "abc".into() };
        let output = Command::new("sh").arg("-n").arg("-c").arg(script(&payload, true)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// With a shell in place of ssh: the program is taken over once, and found the next time.
    #[test]
    fn a_program_is_taken_along_once() {
        let folder = TempDir::new("stage");
        let key = PublicKey([9; 32]);
        let program = folder.join("agent");
        let text = format!(
            "#!/bin/sh\nread k; echo noise; echo viaduct-agent 1 4711 $k 10.0.0.9; echo $k >> {}\n",
            folder.join("log").display()
        );
        std::fs::write(&program, &text).unwrap();
        let ssh = folder.join("ssh");
        std::fs::write(
            &ssh,
            format!(
                "#!/bin/sh\nfor w; do :; done; VIADUCT_CACHE={} exec sh -c \"$w\"\n",
                folder.path().display()
            ),
        )
        .unwrap();
        let run = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&ssh, run).unwrap();
        let payload = Payload::of(program).unwrap();
        let limit = Duration::from_secs(60);
        let ways = Ways { ssh: vec![ssh.to_str().unwrap().to_owned()], limit, allow_root: false };
        for round in 0..2 {
            let known =
                bring_up("me@far", &[key], &payload, &ways).unwrap_or_else(|e| panic!("{round}: {e}"));
            assert_eq!(known, Known { host: "me@far".into(), address: "10.0.0.9:4711".into(), key });
        }
        let staged = folder.join("bin").join(payload.hash()).join("viaduct");
        assert_eq!(std::fs::read_to_string(staged).unwrap(), text);
        let ways = Ways { ssh: vec!["false".into()], ..ways };
        assert!(matches!(bring_up("x", &[key], &payload, &ways), Err(Error::Bootstrap(_))));
    }

    #[test]
    fn announcements_name_the_address_that_was_reached() {
        let text = announcement(7, PublicKey([1; 32]), Some("10.0.0.1 999 10.0.0.2 22"));
        assert!(text.ends_with(" 10.0.0.2"), "{text}");
        assert!(announcement(7, PublicKey([1; 32]), None).ends_with(" -"));
    }
}
