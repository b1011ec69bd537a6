//! What the basic operations cost (section 3.1 and Table II), measured by the first worker between node 0 and the others.
//!
//! Problem 1 is all of them, problem 2 the barrier alone. Prints `point NAME VALUE` lines: microseconds, but for the bandwidth, in MB/s, and a count. What was moved is checked.

use std::time::{Duration, Instant};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::variant::Way;
use viaduct_cashmere::{Array, Dsm, Placement};

use crate::{Outcome, Problem};

/// Bytes of shared memory: more than is used with the largest pages.
pub(crate) const MEMORY: usize = 16 << 20;
const PAGES: usize = 64;
/// Turns that are timed together; other nodes take notices after as many calls.
const BATCH: usize = 8;
/// Flags are set once, and two are used in a turn.
const FLAGS: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(20);

struct Costs<'a> {
    dsm: &'a mut Dsm,
    turns: usize,
    page: usize,
    /// Pages whose home is node 1, and pages of it that no node touches.
    far: Array<u8>,
    untouched: Array<u8>,
}

pub(crate) fn run(dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
    let barriers_only = problem.size == 2;
    let moves = dsm.probe().variant().migrates() && !barriers_only;
    if dsm.nodes() < 2 || dsm.size() != dsm.nodes() || moves {
        return Err(Error::Settings(
            "two or more nodes of one worker are wanted, and dms or none".to_owned(),
        ));
    }
    let page = dsm.page();
    let far = dsm.placed(PAGES * page, Placement::Node(1))?;
    let untouched = dsm.placed(PAGES * page, Placement::Node(1))?;
    let mut costs = Costs { dsm, turns: problem.rounds.max(2), page, far, untouched };
    costs.barriers()?;
    if barriers_only {
        return Ok(Outcome { sum: costs.turns as f64, equal: Some(true), work: Duration::ZERO });
    }
    costs.messages()?;
    costs.fetches()?;
    costs.diffs()?;
    costs.metadata()?;
    costs.locks()?;
    costs.flags()?;
    if costs.dsm.probe().variant().synchronisation() == Way::Direct {
        costs.region()?;
    }
    if costs.dsm.probe().variant().data() == Way::Direct {
        costs.bandwidth()?;
    }
    Ok(Outcome { sum: costs.turns as f64, equal: Some(true), work: Duration::ZERO })
}

fn micros(time: Duration, turns: usize) -> f64 {
    time.as_secs_f64() * 1e6 / turns as f64
}

/// Microseconds of what was timed, one at a time or in short batches: the median, as one interruption by another program
/// outweighs a thousand operations.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, time: Duration, turns: usize) {
        self.0.push(micros(time, turns));
    }

    /// Times a batch.
    fn batch(&mut self, mut act: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
        let begun = Instant::now();
        for _ in 0..BATCH {
            act()?;
        }
        self.add(begun.elapsed(), BATCH);
        Ok(())
    }

    fn median(&mut self) -> Option<f64> {
        self.0.sort_by(f64::total_cmp);
        self.0.get(self.0.len() / 2).copied()
    }
}

impl Costs<'_> {
    fn node(&self) -> usize {
        self.dsm.node()
    }

    fn meet(&mut self) -> Result<(), Error> {
        self.dsm.epoch().barrier(0)?;
        Ok(())
    }

    fn say(&self, name: &str, value: f64) {
        if self.dsm.rank() == 0 {
            println!("point {name} {value}");
        }
    }

    fn tell(&self, name: &str, mut times: Times) {
        if let Some(median) = times.median() {
            self.say(name, median);
        }
    }

    /// Node 0 does something in turns, while the others wait at a barrier.
    fn alone(
        &mut self,
        name: &str,
        mut act: impl FnMut(&mut Costs<'_>, usize) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.meet()?;
        if self.node() == 0 {
            let (mut times, mut turn) = (Times::default(), 0);
            for _ in 0..self.turns.div_ceil(BATCH) {
                times.batch(|| {
                    turn += 1;
                    act(self, turn - 1)
                })?;
            }
            self.tell(name, times);
        }
        self.meet()
    }

    fn barriers(&mut self) -> Result<(), Error> {
        for _ in 0..self.turns {
            self.meet()?;
        }
        let mut times = Times::default();
        for _ in 0..self.turns {
            times.batch(|| self.meet())?;
        }
        self.tell("barrier", times);
        Ok(())
    }

    fn messages(&mut self) -> Result<(), Error> {
        let untouched = self.untouched;
        self.alone("message", |costs, _| Ok(costs.dsm.probe().message(1, untouched, 0)?))
    }

    /// Node 1 changes every page, node 0 loads from each.
    fn fetches(&mut self) -> Result<(), Error> {
        let (page, far) = (self.page, self.far);
        let mut times = Times::default();
        for round in 1..=self.turns.div_ceil(BATCH) as u8 {
            if self.node() == 1 {
                let epoch = self.dsm.epoch();
                (0..PAGES).for_each(|at| epoch.write(far, at * page..at * page + 8).fill(round));
            }
            self.meet()?;
            if self.node() == 0 {
                let epoch = self.dsm.epoch();
                let begun = Instant::now();
                let fresh = (0..PAGES).all(|at| epoch.read(far, at * page..at * page + 1)[0] == round);
                // The first round finds the homes.
                if round > 1 {
                    times.add(begun.elapsed(), PAGES);
                }
                assert!(fresh, "pages that were fetched in round {round}");
            }
            self.meet()?;
        }
        self.tell("fetch", times);
        Ok(())
    }

    /// Changes of one page that go to its home, and twins.
    fn diffs(&mut self) -> Result<(), Error> {
        let (page, far) = (self.page, self.far);
        self.alone("twin", |costs, turn| {
            // The store makes the page one with a twin, and this node one that has a mapping.
            if turn == 0 {
                costs.dsm.epoch().write(far, 0..1)[0] = 0;
            }
            costs.dsm.probe().twin(far, 0);
            Ok(())
        })?;
        for (name, bytes, stride) in
            [("8", 8, 8), ("64", 64, 8), ("512", 512, 8), ("page", page, 8), ("words", page, 16)]
        {
            self.meet()?;
            if self.node() == 0 {
                let mut times = Times::default();
                for turn in 0..self.turns {
                    let value = (turn % 250) as u8 + 1;
                    let epoch = self.dsm.epoch();
                    (0..bytes).step_by(stride).for_each(|at| epoch.write(far, at..at + 8).fill(value));
                    let begun = Instant::now();
                    let changed = self.dsm.probe().diff(far, 0, 1)?;
                    times.add(begun.elapsed(), 1);
                    // Two turns may store the same where there is only one.
                    assert!(changed || turn == 0, "a diff of {name} bytes");
                }
                self.tell(&format!("diff-{name}"), times);
            }
            self.meet()?;
            if self.node() == 1 {
                let last = ((self.turns - 1) % 250) as u8 + 1;
                let epoch = self.dsm.epoch();
                let there = (0..bytes).step_by(stride).all(|at| epoch.read(far, at..at + 8)[..] == [last; 8]);
                assert!(there, "a diff of {name} bytes at its home");
            }
        }
        self.meet()
    }

    fn metadata(&mut self) -> Result<(), Error> {
        let untouched = self.untouched;
        self.alone("directory", |costs, _| Ok(costs.dsm.probe().directory(untouched, 0, 1)?))?;
        let most = self.dsm.nodes() - 1;
        let ends = if most > 1 { vec![1, most] } else { vec![1] };
        for (count, last) in
            [1, 16, PAGES].into_iter().flat_map(|count| ends.iter().map(move |&end| (count, end)))
        {
            let mut times = Times::default();
            for _ in 0..self.turns.div_ceil(BATCH) {
                self.meet()?;
                if self.node() == 0 {
                    times.batch(|| Ok(self.dsm.probe().notices(untouched, count, last)?))?;
                }
            }
            self.tell(&format!("notices-{count}-{last}"), times);
        }
        self.meet()
    }

    /// A lock that another node had last, and one that this node had.
    fn locks(&mut self) -> Result<(), Error> {
        let (mut far, mut near) = (Times::default(), Times::default());
        for _ in 0..self.turns {
            if self.node() == 1 {
                self.dsm.epoch().locked(1, |_| ())?;
            }
            self.meet()?;
            if self.node() == 0 {
                let mut epoch = self.dsm.epoch();
                let begun = Instant::now();
                epoch.locked(1, |_| far.add(begun.elapsed(), 1))?;
                let begun = Instant::now();
                epoch.locked(1, |_| near.add(begun.elapsed(), 1))?;
            }
            self.meet()?;
        }
        self.tell("lock", far);
        self.tell("lock-again", near);
        Ok(())
    }

    /// Flags between nodes 0 and 1, to and fro: until the other has seen it, and until the call returns.
    fn flags(&mut self) -> Result<(), Error> {
        self.meet()?;
        let (mut passing, mut setting) = (Times::default(), Times::default());
        for turn in 0..self.turns.min(FLAGS) as u32 {
            match self.node() {
                0 => {
                    let begun = Instant::now();
                    let epoch = self.dsm.epoch().set_flag(2 * turn)?;
                    setting.add(begun.elapsed(), 1);
                    epoch.wait_flag(2 * turn + 1)?;
                    passing.add(begun.elapsed(), 2);
                }
                1 => {
                    self.dsm.epoch().wait_flag(2 * turn)?.set_flag(2 * turn + 1)?;
                }
                _ => {}
            }
        }
        self.tell("flag", passing);
        self.tell("flag-set", setting);
        self.meet()
    }

    /// Looks until `ready` holds, and leaves the core to others now and then.
    fn until(&mut self, mut ready: impl FnMut(&mut Dsm) -> bool) -> Result<(), Error> {
        let begun = Instant::now();
        for look in 1_u64.. {
            if ready(self.dsm) {
                break;
            }
            std::hint::spin_loop();
            if look.is_multiple_of(4096) {
                std::thread::yield_now();
                if begun.elapsed() > PATIENCE {
                    return Err(Error::Settings("a remote write has not arrived".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The layer of remote writes by itself: words that all replicas have.
    fn region(&mut self) -> Result<(), Error> {
        let turns = 20 * self.turns as u64;
        self.alone("region-write", |costs, turn| Ok(costs.dsm.probe().broadcast(1, turn as u64 + 1)?))?;
        let mut times = Times::default();
        for turn in 1..=turns {
            match self.node() {
                0 => {
                    let begun = Instant::now();
                    self.dsm.probe().broadcast(0, turn)?;
                    self.until(|dsm| dsm.probe().word(0, 1) >= turn)?;
                    times.add(begun.elapsed(), 2);
                }
                1 => {
                    self.until(|dsm| dsm.probe().word(0, 0) >= turn)?;
                    self.dsm.probe().broadcast(0, turn)?;
                }
                _ => {}
            }
        }
        self.tell("region-latency", times);
        self.meet()?;
        let mut broken = 0_u64;
        match self.node() {
            0 => {
                for turn in 1..=turns {
                    self.dsm.probe().broadcast(2, turn)?;
                    self.dsm.probe().broadcast(3, turn)?;
                }
            }
            1 => self.until(|dsm| {
                let later = dsm.probe().word(3, 0);
                broken += u64::from(dsm.probe().word(2, 0) < later);
                later == turns
            })?,
            _ => {}
        }
        assert_eq!(broken, 0, "words that were seen before an earlier one");
        self.say("region-ordered", turns as f64);
        self.meet()
    }

    /// Whole pages into the frames of node 1.
    fn bandwidth(&mut self) -> Result<(), Error> {
        let (page, untouched) = (self.page, self.untouched);
        let writes = 20 * self.turns;
        self.meet()?;
        if self.node() == 0 {
            let bytes: Vec<u8> = (0..page).map(|at| at as u8 | 1).collect();
            let begun = Instant::now();
            for write in 0..writes {
                self.dsm.probe().write(untouched, write % PAGES * page, 1, &bytes)?;
            }
            self.dsm.probe().landed()?;
            self.say("region-bandwidth", (writes * page) as f64 / begun.elapsed().as_secs_f64() / 1e6);
        }
        self.meet()?;
        if self.node() == 1 {
            let epoch = self.dsm.epoch();
            let last = writes.min(PAGES) * page;
            let there = epoch
                .read(untouched, 0..last)
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at % page) as u8 | 1);
            assert!(there, "pages that were written remotely");
        }
        self.meet()
    }
}
