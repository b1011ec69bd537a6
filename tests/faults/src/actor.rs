//! The process at the other end: it runs a session as it is told, and dies, stops or is recorded on the way.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

use viaduct_kit::child::{Child, hear, say};
use viaduct_os::point::{self, Action};

use crate::node::{Mode, Place};
use crate::plan::{self, Role};
use crate::session::{self, Partner, Sure};

viaduct_kit::child!(ACTOR, act);

/// The exit code of an actor that was stopped and whose connection was ended meanwhile.
pub const CUT_OFF: i32 = 3;

/// What becomes of an actor.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It goes through a short plan.
    Friend,
    /// It goes through the whole plan.
    Lives,
    /// It goes through the whole plan and tells which points it passed, and how often.
    Recorded,
    /// It ends at this point, at this pass.
    Killed(String, u64),
    /// It ends after this many microseconds.
    KilledAfter(u64),
    /// It stops at this point, at this pass.
    Stopped(String, u64),
}

/// Starts an actor.
pub fn start(place: Place<'_>, role: Role, fate: &Fate) -> Child {
    let folder = place.folder.to_str().expect("a plain path");
    let (what, point, number) = match fate {
        Fate::Friend => ("friend", "", 0),
        Fate::Lives => ("lives", "", 0),
        Fate::Recorded => ("recorded", "", 0),
        Fate::Killed(point, nth) => ("killed", point.as_str(), *nth),
        Fate::KilledAfter(time) => ("killed-after", "", *time),
        Fate::Stopped(point, nth) => ("stopped", point.as_str(), *nth),
    };
    ACTOR.spawn(&[folder, role.name(), place.mode.name(), what, point, &number.to_string()])
}

fn act(args: &[String]) {
    let [folder, role, mode, what, point, number] = args else { panic!("six arguments, not {args:?}") };
    let (role, mode) = (Role::named(role), Mode::named(mode));
    let number: u64 = number.parse().expect("a number");
    match what.as_str() {
        "recorded" => point::record(),
        "killed" => point::arm(point, number, Action::Kill),
        "stopped" => point::arm(point, number, Action::Stop),
        "killed-after" if mode != Mode::Network => die_in(number),
        _ => {}
    }
    let plan = if what == "friend" { plan::short() } else { plan::whole(mode) };
    let place = Place { folder: Path::new(folder), mode };
    if what != "friend" && mode != Mode::Network {
        // A file that a killed server left, for another process to find.
        drop(UnixDatagram::bind(place.folder.join(format!("{}.sock", std::process::id()))));
    }
    let mut nic = place.open();
    if what == "killed-after" && mode == Mode::Network {
        // Loading libfabric takes longer than everything after it.
        die_in(number);
    }
    let report = session::run(&mut nic, place, role, &plan, &mut Sure);
    drop(nic);
    if report.result.is_err() && what == "stopped" {
        std::process::exit(CUT_OFF);
    }
    if let Err(stop) = report.result {
        panic!("{role:?}, {mode:?}, {what}: the other side lives, but: {}", stop.0);
    }
    if what == "recorded" {
        point::seen().into_iter().for_each(|(name, count)| say(format!("point {name} {count}")));
    }
    say("done");
    hear();
}

/// Ends this process in so many microseconds.
fn die_in(micros: u64) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_micros(micros));
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
    });
}

/// An actor as the partner of a session: it is there until it is dead.
pub struct Mortal<'a>(pub &'a mut Child);

impl Partner for Mortal<'_> {
    fn is_there(&mut self) -> bool {
        self.0.is_running()
    }
}
