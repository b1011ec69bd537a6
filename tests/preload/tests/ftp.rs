//! File transfer (SOVIA, sections 4.4 and 5.3): Debian's daemon and clients, unmodified, by themselves and under inetd.
//!
//! The daemon is started by the user of the test, at a high port, and lets anyone in.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use viaduct_kit::effort::scaled;
use viaduct_kit::packages::{need_program, need_root};
use viaduct_kit::unprivileged::User;
use viaduct_kit::watchdog::Watchdog;
use viaduct_preload_tests::Stage;
use viaduct_preload_tests::apps::{
    Server, bytes, free_port, need_viaduct, output, reasons, soon, source, upgraded, upgraders, user_name,
};
use viaduct_preload_tests::compatibility::{Entry, Outcome, note};

use crate::AGENT;

/// More than the kernel takes from a sender whose peer does not read yet: a connection cannot be over before both ends
/// have come.
const LENGTH: usize = 12_345_678;

fn content() -> &'static [u8] {
    static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| bytes(LENGTH));
    &CONTENT
}

fn dog() -> Watchdog {
    Watchdog::arm(scaled(Duration::from_secs(180)), "a file transfer")
}

/// How the daemon is set up.
#[derive(Clone, Copy, Debug)]
struct Site {
    sandbox: bool,
    sendfile: bool,
    /// By itself at a port, not by inetd.
    alone: bool,
}

const PLAIN: Site = Site { sandbox: false, sendfile: false, alone: true };

/// A folder with a file to fetch and one to fill, and the daemon's settings.
fn prepare(folder: &Path, site: Site, port: u16) -> PathBuf {
    let public = folder.join("public");
    fs::create_dir_all(public.join("incoming")).unwrap();
    fs::create_dir_all(folder.join("empty")).unwrap();
    fs::write(public.join("file"), content()).unwrap();
    // A client of another user may be the one that writes.
    fs::set_permissions(public.join("incoming"), PermissionsExt::from_mode(0o777)).unwrap();
    let yes = |switch: bool| if switch { "YES" } else { "NO" };
    let alone = if site.alone {
        format!("listen=YES\nlisten_port={port}\nlisten_address=127.0.0.1\n")
    } else {
        "listen=NO\n".into()
    };
    let text = format!(
        "{alone}background=NO\nrun_as_launching_user=YES\nanonymous_enable=YES\nno_anon_password=YES\nlocal_enable=NO\n\
         anon_root={}\nsecure_chroot_dir={}\nwrite_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=YES\n\
         connect_from_port_20=NO\nxferlog_enable=NO\nisolate=NO\nisolate_network=NO\nseccomp_sandbox={}\n\
         use_sendfile={}\n",
        public.display(),
        folder.join("empty").display(),
        yes(site.sandbox),
        yes(site.sendfile),
    );
    let conf = folder.join(format!("vsftpd-{port}.conf"));
    fs::write(&conf, text).unwrap();
    conf
}

/// Runs a client with words on its standard input.
fn talk(mut command: Command, words: &str) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(words.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
    said
}

/// Each client lists, fetches and stores; gives what it listed, and has compared the files.
struct Clients {
    tnftp: PathBuf,
    lftp: PathBuf,
    curl: PathBuf,
}

impl Clients {
    fn find() -> Option<Clients> {
        Some(Clients {
            tnftp: need_program("tnftp", "tnftp")?,
            lftp: need_program("lftp", "lftp")?,
            curl: need_program("curl", "curl")?,
        })
    }

    fn tnftp(&self, stage: &Stage, with: bool, port: u16) -> String {
        let mut command = stage.maybe(with, &self.tnftp);
        command.args(["-n", "-i", "-V"]).current_dir(stage.folder()).env("HOME", stage.folder());
        let file = stage.folder().join("public/file");
        let words = format!(
            "open 127.0.0.1 {port}\nuser anonymous guest\nbinary\nget file one\nput {} incoming/two\n\
             passive off\nget file three\ndir file\nquit\n",
            file.display()
        );
        let said = talk(command, &words);
        arrived(stage, &["one", "public/incoming/two", "three"]);
        said
    }

    fn lftp(&self, stage: &Stage, with: bool, port: u16) -> String {
        let mut command = stage.maybe(with, &self.lftp);
        let file = stage.folder().join("public/file");
        let words = format!(
            "set cmd:fail-exit yes; set net:max-retries 1; set xfer:log no; open -u anonymous,guest -p {port} 127.0.0.1; \
             get file -o one; put {} -o incoming/two; pget -n 3 file -o three; ls file",
            file.display()
        );
        command.args(["--norc", "-c", &words]).current_dir(stage.folder()).env("HOME", stage.folder());
        let said = output(&mut command);
        arrived(stage, &["one", "public/incoming/two", "three"]);
        said
    }

    fn curl(&self, stage: &Stage, with: bool, port: u16) -> String {
        let curl = |words: &[&str], path: &str| {
            let mut command = stage.maybe(with, &self.curl);
            command.args(["-sS", "--noproxy", "*"]).args(words).arg(format!("ftp://127.0.0.1:{port}/{path}"));
            command.current_dir(stage.folder());
            output(&mut command)
        };
        let mut said = curl(&["-o", "one"], "file");
        said += &curl(&["-T", "public/file"], "incoming/two");
        said += &curl(&["-o", "three", "-P", "127.0.0.1"], "file");
        said += &curl(&["-r", "1000000-1000020", "-o", "part"], "file");
        assert_eq!(fs::read(stage.folder().join("part")).unwrap(), content()[1_000_000..=1_000_020]);
        arrived(stage, &["one", "public/incoming/two", "three"]);
        said + &curl(&["-l"], "")
    }

    fn all(&self, stage: &Stage, with: bool, port: u16) -> [String; 3] {
        [self.tnftp(stage, with, port), self.lftp(stage, with, port), self.curl(stage, with, port)]
    }
}

/// The files hold what was sent; they are removed.
fn arrived(stage: &Stage, names: &[&str]) {
    for name in names {
        let file = stage.folder().join(name);
        assert!(fs::read(&file).unwrap() == content(), "{name}");
        fs::remove_file(file).unwrap();
    }
}

fn daemon(stage: &Stage, with: bool, site: Site) -> Option<(Server, u16)> {
    let program = need_program("vsftpd", "vsftpd")?;
    let port = free_port();
    let conf = prepare(stage.folder(), site, port);
    let mut command = stage.maybe(with, program);
    Some((Server::start(command.arg(conf), port), port))
}

#[test]
fn clients_of_three_kinds_move_files_through_a_daemon_that_forks() {
    let _dog = dog();
    let Some(clients) = Clients::find() else { return };
    let stage = Stage::new(&AGENT);
    let Some((server, port)) = daemon(&stage, false, PLAIN) else { return };
    let plain = clients.all(&stage, false, port);
    drop(server);
    assert!(plain.iter().all(|said| said.contains("file")), "{plain:?}");
    // One end alone: nothing is upgraded, everything arrives.
    let (server, port) = daemon(&stage, true, PLAIN).unwrap();
    assert_eq!(clients.curl(&stage, false, port), plain[2]);
    let before = stage.upgrades();
    assert_eq!(before, 0, "{}", stage.notes());
    assert_eq!(clients.all(&stage, true, port), plain);
    // Three files for each client, of which lftp fetches one in parts; the daemon's end of each is a child's.
    let notes = stage.notes();
    let count = upgraded(&notes).len();
    assert!(count >= 8, "{count}\n{notes}");
    drop(server);
    note(&Entry {
        program: "vsftpd",
        with: "tnftp, lftp, curl: get, put, dir, active, passive, in parts",
        outcome: Outcome::Works,
        upgraded: count,
        remark: "its sandbox off; connections for data are upgraded, that for commands stays on TCP because the daemon \
                 asks for urgent data in its stream",
    });
}

#[test]
fn a_daemon_that_sends_by_sendfile_sends_the_whole_file() {
    let _dog = dog();
    let Some(clients) = Clients::find() else { return };
    let stage = Stage::new(&AGENT);
    let Some((_server, port)) = daemon(&stage, true, Site { sendfile: true, ..PLAIN }) else { return };
    clients.all(&stage, true, port);
    let count = upgraded(&stage.notes()).len();
    assert!(count >= 3, "{}", stage.notes());
    note(&Entry {
        program: "vsftpd, use_sendfile",
        with: "tnftp, lftp, curl",
        outcome: Outcome::Works,
        upgraded: count,
        remark: "",
    });
}

/// The daemon's filter of system calls kills it on its own where the C library asks for a file's size by a call that it does
/// not know, with Viaduct and without; what it lets pass must pass.
#[test]
fn a_daemon_in_its_sandbox_does_the_same_as_without_the_library() {
    let _dog = dog();
    let Some(curl) = need_program("curl", "curl") else { return };
    let stage = Stage::new(&AGENT);
    let session = |with: bool| {
        let (server, port) = daemon(&stage, with, Site { sandbox: true, ..PLAIN })?;
        let url = format!("ftp://127.0.0.1:{port}/");
        let mut said = Vec::new();
        for words in [
            &["-Q", "NOOP", "-Q", "PWD", "-Q", "CWD incoming", "-Q", "EPSV", "-l", "-I"][..],
            &["-o", "out"][..],
            &["-T", "public/file"][..],
        ] {
            let mut command = stage.maybe(with, &curl);
            command.args(["-sS", "-v", "--noproxy", "*"]).args(words).arg(format!("{url}file"));
            let output = command.current_dir(stage.folder()).output().unwrap();
            // Replies of the daemon, but for its port and its way of saying the hour.
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            let replies =
                errors.lines().filter(|line| line.starts_with("< ")).map(|line| line[..5].to_owned());
            said.push((output.status.code(), replies.collect::<Vec<_>>()));
        }
        drop(server);
        Some(said)
    };
    let Some(plain) = session(false) else { return };
    // It lets clients in at least.
    assert!(plain.iter().all(|(_, replies)| replies.iter().any(|reply| reply == "< 230")), "{plain:?}");
    assert_eq!(session(true), Some(plain));
    let count = upgraded(&stage.notes()).len();
    note(&Entry {
        program: "vsftpd, seccomp_sandbox",
        with: "curl",
        outcome: Outcome::FallsBack,
        upgraded: count,
        remark: "its filter of system calls kills the daemon at some commands with current C libraries, with Viaduct and \
                 without",
    });
}

/// inetd started with a service of one line; `under` says whether inetd itself runs under the library.
fn inetd(stage: &Stage, under: bool, service: &str) -> Option<(Server, u16)> {
    let program = need_program("inetd", "openbsd-inetd")?;
    let port = free_port();
    let conf = stage.folder().join(format!("inetd-{port}.conf"));
    fs::write(&conf, format!("127.0.0.1:{port} stream tcp nowait {} {service}\n", user_name())).unwrap();
    let mut command = stage.maybe(under, program);
    command.args(under.then_some("-E")).arg("-i").arg(&conf);
    Some((Server::start(&command, port), port))
}

/// What inetd's line says about the daemon: with the environment of inetd handed down, and with `viaduct run` in the line.
fn services(stage: &Stage, vsftpd: &Path, viaduct: &Path, conf: &Path) -> [String; 2] {
    let down = format!("{} vsftpd {}", vsftpd.display(), conf.display());
    let variables = format!(
        "VIADUCT_CLAIM={} VIADUCT_EXPLAIN={}",
        stage.name(),
        stage.folder().join("explain").display()
    );
    let line = format!(
        "/usr/bin/env env {variables} {} run -- {} {}",
        viaduct.display(),
        vsftpd.display(),
        conf.display()
    );
    [down, line]
}

#[test]
fn a_daemon_that_inetd_starts_is_upgraded_in_the_child() {
    let _dog = dog();
    let (Some(clients), Some(vsftpd), Some(viaduct)) =
        (Clients::find(), need_program("vsftpd", "vsftpd"), need_viaduct())
    else {
        return;
    };
    let stage = Stage::new(&AGENT);
    let conf = prepare(stage.folder(), Site { alone: false, ..PLAIN }, 0);
    let [down, line] = services(&stage, &vsftpd, &viaduct, &conf);
    for (under, service, program) in
        [(true, down, "vsftpd under inetd -E"), (false, line, "vsftpd under inetd, viaduct run in its line")]
    {
        let before = upgraded(&stage.notes()).len();
        let Some((_server, port)) = inetd(&stage, under, &service) else { return };
        let said = clients.tnftp(&stage, true, port);
        assert!(said.contains("file"), "{said}");
        let notes = stage.notes();
        let count = upgraded(&notes).len() - before;
        assert!(count >= 3, "{count}\n{notes}");
        note(&Entry { program, with: "tnftp", outcome: Outcome::Works, upgraded: count, remark: "" });
    }
}

#[test]
fn a_listing_by_a_forked_ls_goes_through_the_ring() {
    let _dog = dog();
    let (Some(tnftp), Some(python)) = (need_program("tnftp", "tnftp"), need_program("python3", "python3"))
    else {
        return;
    };
    let stage = Stage::new(&AGENT);
    prepare(stage.folder(), PLAIN, 0);
    let script = source("python/listing.py");
    let service =
        format!("{0} python3 {1} {2}/public", python.display(), script.display(), stage.folder().display());
    let session = |with: bool| {
        let (_server, port) = inetd(&stage, with, &service)?;
        let mut command = stage.maybe(with, &tnftp);
        command.args(["-n", "-i", "-V"]).current_dir(stage.folder()).env("HOME", stage.folder());
        let words = format!("open 127.0.0.1 {port}\nuser anonymous guest\ndir\nquit\n");
        Some((talk(command, &words), port))
    };
    let Some((plain, _)) = session(false) else { return };
    assert!(plain.contains("000019") && plain.contains("incoming"), "{plain}");
    let (said, _) = session(true).unwrap();
    assert_eq!(said, plain);
    // The daemon, its child and the client each had a part in it.
    let notes = stage.notes();
    let processes = upgraded(&notes)
        .iter()
        .flat_map(|ends| ends.iter().filter_map(|end| end.rsplit(':').next()?.parse().ok()))
        .map(|port: u16| upgraders(&notes, port).len())
        .max();
    assert!(processes >= Some(2), "{notes}");
    note(&Entry {
        program: "ls, forked by an FTP service under inetd",
        with: "tnftp: dir",
        outcome: Outcome::Works,
        upgraded: upgraded(&notes).len(),
        remark: "ls goes on where its parent has begun to send",
    });
}

/// A client of another user lists, fetches and stores at a daemon of root, while both are under the library: the files arrive, no
/// connection is upgraded, and both ends have said that they stay on TCP.
fn serves_another_user(stage: &Stage, curl: &Path, port: u16) {
    let user = User::new();
    let explained = user.home().join("explain");
    let run = |words: &[&str], path: &str| {
        let mut command = stage.under(curl);
        command.args(["-sS", "--noproxy", "*"]).args(words).arg(format!("ftp://127.0.0.1:{port}/{path}"));
        user.runs(command.current_dir(user.home()));
        // Its notes go where it may write.
        output(command.env("VIADUCT_EXPLAIN", &explained))
    };
    let public = stage.folder().join("public");
    run(&["-o", "got"], "file");
    assert!(fs::read(user.home().join("got")).unwrap() == content());
    run(&["-T", public.join("file").to_str().unwrap()], "incoming/two");
    assert!(fs::read(public.join("incoming/two")).unwrap() == content());
    fs::remove_file(public.join("incoming/two")).unwrap();
    assert!(run(&["-l"], "").contains("file"));
    assert_eq!(stage.upgrades(), 0, "{}", stage.notes());
    let notes = fs::read_to_string(&explained).unwrap_or_default();
    assert!(upgraded(&notes).is_empty() && !reasons(&notes).is_empty(), "{notes}");
    // The daemon has looked, too: it was under the library.
    assert!(soon(|| !reasons(&stage.notes()).is_empty()), "{}", stage.notes());
}

#[test]
fn a_daemon_of_root_serves_another_user_over_plain_tcp() {
    if !need_root() {
        return;
    }
    let _dog = dog();
    let (Some(curl), Some(_)) = (need_program("curl", "curl"), need_program("vsftpd", "vsftpd")) else {
        return;
    };
    let stage = Stage::new(&AGENT);
    let (_server, port) = daemon(&stage, true, PLAIN).unwrap();
    serves_another_user(&stage, &curl, port);
}

#[test]
fn a_daemon_that_inetd_of_root_starts_serves_another_user_over_plain_tcp() {
    if !need_root() {
        return;
    }
    let _dog = dog();
    let (Some(curl), Some(vsftpd), Some(viaduct)) =
        (need_program("curl", "curl"), need_program("vsftpd", "vsftpd"), need_viaduct())
    else {
        return;
    };
    // Each way has notes of its own, so that both show that the daemon was under the library.
    for under in [true, false] {
        let stage = Stage::new(&AGENT);
        let conf = prepare(stage.folder(), Site { alone: false, ..PLAIN }, 0);
        let [down, line] = services(&stage, &vsftpd, &viaduct, &conf);
        let Some((_server, port)) = inetd(&stage, under, if under { &down } else { &line }) else { return };
        serves_another_user(&stage, &curl, port);
    }
}
