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
use viaduct_os::children;
use viaduct_os::signals::number;

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
        let hash = hash_text(&hash.finalize());
        Ok(Payload { path, size, hash })
    }

    /// Its hash, as text.
    pub fn hash(&self) -> &str {
        &self.hash
    }
}

/// A digest as files are named by it: its first half, as text.
pub fn hash_text(digest: &[u8]) -> String {
    digest[..16].iter().map(|b| format!("{b:02x}")).collect()
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
    let mut child = command.spawn().map_err(|why| {
        let name = ways.ssh.first().map_or("ssh", |word| word);
        Error::Bootstrap(format!("`{name}` cannot be started: {why}; VIADUCT_SSH says how ssh is called"))
    })?;
    let watchdog = Watchdog::start(child.id() as i32, ways.limit + upload_time(payload));
    let said = talk(&mut child, ours, payload, end);
    let late = watchdog.stop();
    if said.is_err() {
        // What it started holds its pipes, and would keep us waiting for their end.
        children::signal_group(child.id() as i32, number::KILL);
    }
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
        Err(_) if late => {
            Err(Error::Bootstrap("it takes too long; --connect-timeout gives more time".to_owned()))
        }
        Err(why) => {
            let mut complaint = String::new();
            let _ = child.stderr.take().map(|err| err.take(4000).read_to_string(&mut complaint));
            Err(Error::Bootstrap(explain(
                host,
                &complaint,
                status.ok().and_then(|status| status.code()),
                &why,
            )))
        }
    }
}

/// What ssh or the host said, with what to do about it.
fn explain(host: &str, complaint: &str, code: Option<i32>, why: &str) -> String {
    let last = complaint.lines().rfind(|line| !line.trim().is_empty()).unwrap_or(why).trim();
    if code != Some(255) && !complaint.is_empty() {
        return last.to_owned();
    }
    let last = last.strip_prefix("ssh: ").unwrap_or(last);
    let hint = [
        (
            "Permission denied",
            format!(" `ssh {host} true` has to work without a question: is the key there, and in ssh-agent?"),
        ),
        (
            "Host key verification failed",
            format!(
                " Its key is unknown, or another one than before: `ssh {host} true` asks, or says which line of \
                 known_hosts is wrong"
            ),
        ),
        ("Connection refused", "; does sshd run there, on that port?".to_owned()),
        ("Could not resolve", "; is the name right? Names of ~/.ssh/config work, too".to_owned()),
        (
            "timed out",
            "; is the host up, and the way to it open? --connect-timeout gives more time".to_owned(),
        ),
        ("No route", "; is the host up?".to_owned()),
    ];
    let hint =
        hint.into_iter().find(|(part, _)| last.contains(part)).map(|(_, hint)| hint).unwrap_or_default();
    format!("ssh: {last}{hint}")
}

/// How much longer than usual it may take because the program has to travel: slow lines have 256 KiB a second.
fn upload_time(payload: &Payload) -> Duration {
    Duration::from_secs(payload.size >> 18)
}

/// Kills a process group after a time, so that no write to it waits for good.
struct Watchdog {
    cancel: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<bool>,
}

impl Watchdog {
    fn start(group: i32, limit: Duration) -> Watchdog {
        let (cancel, cancelled) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let late = cancelled.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                children::signal_group(group, number::KILL);
            }
            late
        });
        Watchdog { cancel, thread }
    }

    /// Whether it had to bite.
    fn stop(self) -> bool {
        drop(self.cancel);
        self.thread.join().unwrap_or(false)
    }
}

fn script(payload: &Payload, allow_root: bool) -> String {
    let Payload { hash, size, .. } = payload;
    let root = if allow_root { " --allow-root" } else { "" };
    // What is there has the right size, and what arrives is kept only if it is whole and has the right content; where
    // there is no sha256sum the size has to do.
    format!(
        "f=\"${{VIADUCT_CACHE:-${{XDG_CACHE_HOME:-$HOME/.cache}}/viaduct}}/bin/{hash}/viaduct\"; d=\"$f.$$\"; \
         whole() {{ [ \"$(wc -c < \"$1\")\" -eq {size} ]; }}; \
         good() {{ ! command -v sha256sum > /dev/null || [ \"$(sha256sum < \"$1\" | cut -c 1-32)\" = {hash} ]; }}; \
         if [ -x \"$f\" ] && whole \"$f\"; then echo viaduct-have; else \
         trap 'rm -f \"$d\"' EXIT HUP TERM; \
         (umask 077; mkdir -p \"${{f%/*}}\") && echo viaduct-need && head -c {size} > \"$d\" || exit 3; \
         whole \"$d\" && good \"$d\" || {{ echo 'the program did not arrive whole; launch again' >&2; exit 3; }}; \
         chmod 700 \"$d\" && mv -f \"$d\" \"$f\" || exit 3; trap - EXIT HUP TERM; fi; \
         touch \"${{f%/*}}\"; exec \"$f\" agent join{root}"
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
    let mut extra = Duration::ZERO;
    loop {
        let left = (end + extra).saturating_duration_since(Instant::now());
        let line = match lines.recv_timeout(left) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err("it takes too long; --connect-timeout gives more time".to_owned());
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err("the host said nothing of an agent".to_owned());
            }
        };
        // Whatever else a login says is not for us.
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["viaduct-need"] => {
                extra = upload_time(payload);
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

    /// A shell in the place of ssh, after `before`, with a cache of its own.
    fn shell(folder: &TempDir, before: &str) -> Ways {
        let ssh = folder.join(format!("ssh{}", before.len()));
        let cache = folder.path().display();
        let text =
            format!("#!/bin/sh\nfor w; do :; done; {before} VIADUCT_CACHE={cache} exec sh -c \"$w\"\n");
        std::fs::write(&ssh, text).unwrap();
        std::fs::set_permissions(&ssh, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let limit = Duration::from_secs(60);
        Ways { ssh: vec![ssh.to_str().unwrap().to_owned()], limit, allow_root: false }
    }

    #[test]
    fn an_upload_that_was_cut_or_changed_is_not_kept() {
        let folder = TempDir::new("cut");
        let (key, program) = (PublicKey([9; 32]), folder.join("agent"));
        let text =
            format!("#!/bin/sh\nread k; echo viaduct-agent 1 7 $k 10.0.0.9\n#{}\n", "x".repeat(100_000));
        std::fs::write(&program, &text).unwrap();
        let payload = Payload::of(program.clone()).unwrap();
        let kept = folder.join("bin").join(payload.hash()).join("viaduct");
        for (way, sent) in [("head -c 1000 |", &text), ("", &text.replace('x', "y"))] {
            std::fs::write(&program, sent).unwrap();
            let why = bring_up("h", &[key], &payload, &shell(&folder, way)).unwrap_err();
            assert!(why.to_string().contains("did not arrive whole"), "{way}: {why}");
            assert_eq!(
                std::fs::read_dir(kept.parent().unwrap()).unwrap().count(),
                0,
                "nothing of it is left"
            );
        }
        std::fs::write(&program, &text).unwrap();
        // One that is there and too short is not used either.
        std::fs::write(&kept, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&kept, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        bring_up("h", &[key], &payload, &shell(&folder, "")).unwrap();
        // What is brought up is in use: the cache is tidied by the age of the folder.
        let old = std::time::SystemTime::now() - Duration::from_secs(1 << 24);
        let place = std::fs::File::open(kept.parent().unwrap()).unwrap();
        place.set_modified(old).unwrap();
        bring_up("h", &[key], &payload, &shell(&folder, "")).unwrap();
        assert!(place.metadata().unwrap().modified().unwrap() > old);
    }

    #[test]
    fn a_host_that_does_not_read_ends_with_the_time() {
        let _watchdog =
            viaduct_kit::watchdog::Watchdog::arm(Duration::from_secs(60), "an upload that is not read");
        let folder = TempDir::new("stuck");
        let program = folder.join("agent");
        std::fs::write(&program, vec![0; 1 << 17]).unwrap();
        let payload = Payload::of(program).unwrap();
        let ways =
            Ways { limit: Duration::from_millis(300), ..shell(&folder, "echo viaduct-need; sleep 1000;") };
        let why = bring_up("h", &[PublicKey([9; 32])], &payload, &ways).unwrap_err();
        assert!(why.to_string().contains("takes too long"), "{why}");
    }

    #[test]
    fn words_of_ssh_come_with_a_hint() {
        for (said, hint) in [
            (
                "ssh: Could not resolve hostname x: Name or service not known",
                "ssh: Could not resolve hostname x",
            ),
            ("ssh: connect to host h port 22: Connection refused", "does sshd run there"),
            ("Host key verification failed.", "`ssh h true` asks"),
            ("h: Permission denied (publickey).", "ssh-agent"),
        ] {
            let words = explain("h", said, Some(255), "x");
            assert!(words.contains(hint) && !words.contains("ssh: ssh:"), "{words}");
        }
        assert_eq!(explain("h", "no space left\n", Some(3), "x"), "no space left");
    }

    #[test]
    fn announcements_name_the_address_that_was_reached() {
        let text = announcement(7, PublicKey([1; 32]), Some("10.0.0.1 999 10.0.0.2 22"));
        assert!(text.ends_with(" 10.0.0.2"), "{text}");
        assert!(announcement(7, PublicKey([1; 32]), None).ends_with(" -"));
    }
}
