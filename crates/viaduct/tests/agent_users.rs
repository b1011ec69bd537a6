//! Agents of different users on one host: they meet, each knows the other's user by the kernel's word, and no process plays the
//! agent of another user. Two users that are neither root nor each other are needed, so this runs as root alone.

use crate::launching;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::chown;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::os::unix::process::CommandExt;
use std::process::Child;

use launching::{Folder, Run, finish, verb_command, wait_for};
use viaduct_kit::packages::need_root;

/// Users without an entry anywhere: the kernel asks for no entry in a list.
const HERE: u32 = 61_003;
const THERE: u32 = 61_004;

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn folder_of(uid: u32) -> Folder {
    let folder = Folder::new();
    chown(folder.path(), Some(uid), Some(uid)).unwrap();
    folder
}

fn meet(uid: u32, folder: &Folder, whom: &str) -> Run {
    let mut command = verb_command(folder, &["agent", "meet", whom]);
    command.uid(uid).gid(uid);
    finish(command)
}

#[test]
fn agents_of_two_users_meet_and_none_plays_another() {
    if !need_root() {
        return;
    }
    let (ours, theirs) = (folder_of(HERE), folder_of(THERE));
    let whom = THERE.to_string();
    let absent = meet(HERE, &ours, &whom);
    assert_ne!(absent.status, 0, "there is none yet: {}", absent.out);

    let mut command = verb_command(&theirs, &["agent", "serve", "--idle", "60"]);
    let agent = Agent(command.uid(THERE).gid(THERE).spawn().unwrap());
    let expected = format!("process {}, which takes us for user {HERE}\n", agent.0.id());
    wait_for("the agent answers", || meet(HERE, &ours, &whom).out == expected);
    let again = meet(0, &ours, &whom);
    assert_eq!((again.status, again.out), (0, expected.replace(&HERE.to_string(), "0")), "{}", again.err);
    drop(agent);

    // Root has taken the name of an agent that is not there.
    let name = SocketAddr::from_abstract_name(format!("viaduct-agent-{THERE}")).unwrap();
    let _taken = UnixListener::bind_addr(&name).unwrap();
    let fooled = meet(HERE, &ours, &whom);
    assert!(fooled.status != 0 && fooled.err.contains("another user has taken the name"), "{}", fooled.err);
    // The agent does its other work without it.
    let mut command = verb_command(&theirs, &["agent", "serve", "--idle", "60"]);
    let mut agent = Agent(command.uid(THERE).gid(THERE).spawn().unwrap());
    // The socket of the one that was killed may be there before its own.
    wait_for("the agent hears us", || {
        let mut command = verb_command(&theirs, &["agent", "leave"]);
        command.uid(THERE).gid(THERE);
        assert!(agent.0.try_wait().unwrap().is_none(), "it ended");
        finish(command).status == 0
    });
    wait_for("it leaves", || agent.0.try_wait().unwrap().is_some());

    let unknown = meet(HERE, &ours, "no-user-of-that-name");
    assert!(unknown.status != 0 && unknown.err.contains("no user is called"), "{}", unknown.err);
}
