//! The kill sweep: a recorded run lists the points an actor passes; then it is killed at each of them, again and again,
//! while this process plays the other end, survives, tidies up and goes on with another peer.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use viaduct_kit::child::Child;
use viaduct_kit::effort;
use viaduct_kit::leaks::LeakCheck;
use viaduct_kit::tempdir::TempDir;
use viaduct_kit::watchdog::Watchdog;
use viaduct_via::Nic;

use crate::actor::{self, Fate, Mortal};
use crate::footprint::Footprint;
use crate::node::{Mode, Place};
use crate::plan::{self, Role, Step};
use crate::session::{self, Report};

/// Ten times the longest bound of the contract: what takes longer hangs.
const HANG: Duration = Duration::from_secs(30);

/// What a sweep did.
#[derive(Debug, Default)]
pub struct Totals {
    /// Actors killed.
    pub kills: u64,
    /// Names of points at which they were.
    pub points: usize,
    /// Points that were not passed as often as in the recorded run.
    pub unreached: u64,
    /// Descriptors that came back to the survivor.
    pub descriptors: u64,
    /// The longest session with an actor that was killed, from its start to the survivor's last descriptor.
    pub slowest: Duration,
}

/// Kills an actor that plays `victim` at every point it passes. Panics, or is ended by the watchdog, if the survivor
/// hangs, loses a descriptor, cannot go on or leaves something behind.
pub fn sweep(mode: Mode, victim: Role) -> Totals {
    let folder = TempDir::new("kill");
    // What a process has once and for all (its counters page) is there after the first NIC.
    tidy(&folder, mode);
    let leaks = LeakCheck::start_with_folders([folder.path()]).adopt_orphans();
    let mut totals = Totals::default();
    {
        let mut survivor = Survivor::new(&folder, mode, victim);
        let points = if has_points(mode) { survivor.record() } else { Vec::new() };
        totals.points = points.len();
        for (point, count) in &points {
            let mut passes =
                if effort::full() { vec![1, 2, count / 2, count - 1, *count] } else { vec![1, 2, *count] };
            passes.retain(|nth| (1..=*count).contains(nth));
            passes.sort_unstable();
            passes.dedup();
            for nth in passes {
                survivor.outlives(&Fate::Killed(point.clone(), nth), &mut totals);
            }
        }
        let (rounds, longest) = match mode {
            Mode::Network => (effort::rounds(6, 400), 90_000),
            _ => (effort::rounds(10, 2_000), 12_000),
        };
        for round in 0..rounds {
            survivor.outlives(&Fate::KilledAfter(round * 7_919 * longest / 12_000 % longest), &mut totals);
        }
    }
    tidy(&folder, mode);
    leaks.finish();
    eprintln!(
        "{mode:?}, {victim:?} dies: {} kills at {} distinct points and at random, 0 hangs, 0 residues; \
         {} descriptors came back, {} points not reached again, the slowest survivor took {} ms",
        totals.kills,
        totals.points,
        totals.descriptors,
        totals.unreached,
        totals.slowest.as_millis()
    );
    totals
}

/// Whether actors are killed at named steps: over the network there are none, and `auto` has those of shared memory, where
/// they are swept anyway.
fn has_points(mode: Mode) -> bool {
    match mode {
        Mode::Direct | Mode::Copy | Mode::Peer => true,
        Mode::Auto => effort::full(),
        Mode::Network => false,
    }
}

/// A process that opens a NIC sweeps the socket files of those that were killed.
fn tidy(folder: &TempDir, mode: Mode) {
    drop(Place { folder: folder.path(), mode }.open());
}

struct Survivor<'a> {
    nic: Nic,
    place: Place<'a>,
    victim: Role,
    whole: Vec<Step>,
    baseline: Footprint,
}

impl<'a> Survivor<'a> {
    fn new(folder: &'a TempDir, mode: Mode, victim: Role) -> Survivor<'a> {
        let place = Place { folder: folder.path(), mode };
        let (nic, whole) = (place.open(), plan::whole(mode));
        let mut survivor = Survivor { nic, place, victim, whole, baseline: Footprint::take() };
        // What is made when first needed (bounce buffers) is there after the first session.
        let before = std::mem::replace(&mut survivor.baseline, Footprint::take());
        survivor.converses(&Fate::Lives, "warming up");
        survivor.baseline = match mode {
            // A port that was opened stays so; the leak check at the end sees it closed.
            Mode::Network => Footprint::settled(),
            _ => before.comes_back_but_for("viaduct-slab", "warming up"),
        };
        survivor
    }

    /// The points an actor passes, with how often.
    fn record(&mut self) -> Vec<(String, u64)> {
        let (_, lines) = self.meets(&Fate::Recorded, "the recorded run");
        let parse = |line: &String| {
            let mut words = line.strip_prefix("point ")?.split(' ');
            Some((words.next()?.to_owned(), words.next()?.parse().ok()?))
        };
        let points: Vec<_> = lines.iter().filter_map(parse).collect();
        assert!(points.len() >= 40, "only {} points were passed: {points:?}", points.len());
        points
    }

    /// An actor that lives: the session is whole, and nothing is left of it.
    fn meets(&mut self, fate: &Fate, what: &str) -> (u64, Vec<String>) {
        let heard = self.converses(fate, what);
        self.baseline.comes_back(what);
        heard
    }

    fn converses(&mut self, fate: &Fate, what: &str) -> (u64, Vec<String>) {
        let mut actor = actor::start(self.place, self.victim, fate);
        let report = self.session(&mut actor, fate, what);
        if let Err(stop) = report.result {
            panic!("{what}, {:?}: the actor lives, but the session ended: {}", self.place.mode, stop.0);
        }
        let mut lines = Vec::new();
        while let Some(line) = actor.next_line(HANG).filter(|line| line != "done") {
            lines.push(line);
        }
        actor.finish(HANG);
        (report.descriptors, lines)
    }

    /// An actor that does not.
    fn outlives(&mut self, fate: &Fate, totals: &mut Totals) {
        let what = format!("{:?} {:?} as {:?}", self.place.mode, fate, self.victim);
        let mut actor = actor::start(self.place, self.victim, fate);
        let start = Instant::now();
        let report = self.session(&mut actor, fate, &what);
        totals.slowest = totals.slowest.max(start.elapsed());
        totals.descriptors += report.descriptors;
        // One that passed fewer points than the recorded run says "done" and waits.
        let done = actor.next_line(HANG).is_some_and(|line| line == "done");
        actor.close_input();
        let status = actor.wait(HANG);
        if status.signal() == Some(9) {
            totals.kills += 1;
        } else {
            totals.unreached += 1;
            assert!(done && status.success(), "{what}: it was to be killed, and ended with {status}");
            assert!(report.result.is_ok(), "{what}: the actor lives, but {:?}", report.result);
        }
        drop(actor);
        let (returned, _) = self.meets(&Fate::Friend, &format!("after {what}"));
        totals.descriptors += returned;
    }

    fn session(&mut self, actor: &mut Child, fate: &Fate, what: &str) -> Report {
        let _watchdog = Watchdog::arm(HANG, what);
        let short = plan::short();
        let plan = if matches!(fate, Fate::Friend) { &short } else { &self.whole };
        session::run(&mut self.nic, self.place, self.victim.other(), plan, &mut Mortal(actor))
    }
}
