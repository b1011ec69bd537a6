//! Small programs of locks that each show one property: locks inside each other, hand over hand, and orders of stores and loads
//! under different locks on which all workers agree. Not of the paper: a part of the litmus programs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm, Epoch};

/// Names of the locks; the litmus programs beside these have those below 16.
const ACCOUNTS: u32 = 16;
const LIST: u32 = 32;
const PAIRS: u32 = 64;
/// How many there are of accounts and of elements of the list.
const MANY: usize = 4;
const TURNS: u64 = 12;

/// One value on a page, and what the others are there for: no two programs share a page.
#[derive(Clone, Copy)]
pub(crate) struct Locks {
    values: Array<u64>,
    page: usize,
}

impl Locks {
    pub(crate) fn new(dsm: &mut Dsm) -> Result<Locks, Error> {
        let page = dsm.page() / size_of::<u64>();
        Ok(Locks { values: dsm.array(page * (3 * MANY + 2 * dsm.size() + 4))?, page })
    }

    fn load(&self, epoch: &Epoch<'_>, page: usize) -> u64 {
        epoch.read(self.values, page * self.page..page * self.page + 1)[0]
    }

    fn store(&self, epoch: &Epoch<'_>, page: usize, value: u64) {
        epoch.write(self.values, page * self.page..page * self.page + 1)[0] = value;
    }

    pub(crate) fn check<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        self.twice(&mut epoch)?;
        epoch = self.nested(epoch)?;
        epoch = self.hand_over_hand(epoch)?;
        epoch = self.store_buffering(epoch)?;
        self.two_writers(epoch)
    }

    /// A worker that takes a lock which it holds is told, and does not wait for itself.
    fn twice(&self, epoch: &mut Epoch<'_>) -> Result<(), Error> {
        // What is expected to panic is not to be reported.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        let twice = epoch.locked(ACCOUNTS, |epoch| {
            epoch.locked(ACCOUNTS + 1, |epoch| {
                catch_unwind(AssertUnwindSafe(|| epoch.locked(ACCOUNTS, |_| ()).is_ok()))
            })
        });
        std::panic::set_hook(hook);
        let why = twice??.expect_err("a lock was taken twice");
        let why = why.downcast_ref::<String>().map_or("", String::as_str);
        assert!(why.contains("lock 16 is held by this worker already"), "{why}");
        Ok(())
    }

    /// Something goes from one account to another under the locks of both, one inside the other. A second value of each account
    /// lies on another page.
    fn nested<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let me = epoch.rank() as u64;
        for turn in 0..TURNS {
            let from = (me * 7 + turn) as usize % MANY;
            let to = (from + 1 + turn as usize % (MANY - 1)) % MANY;
            let (first, second) = (from.min(to), from.max(to));
            epoch.locked(ACCOUNTS + first as u32, |epoch| {
                let before = self.load(epoch, first);
                let done = epoch.locked(ACCOUNTS + second as u32, |epoch| {
                    for (account, change) in [(from, u64::MAX), (to, 1)] {
                        let value = self.load(epoch, account);
                        let copy = self.load(epoch, MANY + account);
                        assert_eq!(
                            copy, value,
                            "both values of account {account} of worker {me} in turn {turn}"
                        );
                        self.store(epoch, account, value.wrapping_add(change));
                        self.store(epoch, MANY + account, value.wrapping_add(change));
                    }
                });
                // The outer lock is still held.
                let change = if first == from { u64::MAX } else { 1 };
                assert_eq!(self.load(epoch, first), before.wrapping_add(change), "under the outer lock");
                done
            })??;
        }
        epoch = epoch.barrier(0)?;
        let sum = (0..MANY).fold(0_u64, |sum, account| sum.wrapping_add(self.load(&epoch, account)));
        assert_eq!(sum, 0, "what went from account to account");
        Ok(epoch.barrier(1)?)
    }

    /// Workers go along a list: as each takes the next lock before it gives the last one back, none overtakes another.
    fn hand_over_hand<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let element = |number: u32| 2 * MANY + (number - LIST) as usize;
        for _ in 0..TURNS {
            epoch.hand_over_hand(LIST, |hand| {
                let place = self.load(hand, element(LIST));
                loop {
                    let name = hand.name();
                    let passed = self.load(hand, element(name));
                    assert_eq!(passed, place, "workers that have passed element {}", name - LIST);
                    self.store(hand, element(name), passed + 1);
                    if name as usize - LIST as usize + 1 == MANY {
                        return Ok::<_, Error>(());
                    }
                    hand.over(name + 1)?;
                }
            })??;
        }
        epoch = epoch.barrier(0)?;
        let passed = self.load(&epoch, 3 * MANY - 1);
        assert_eq!(passed, TURNS * epoch.size() as u64, "the end of the list");
        Ok(epoch.barrier(1)?)
    }

    /// Two workers each store under a lock of their own, then load the other's value under its lock: one of them at least comes
    /// second, and sees what the other stored.
    fn store_buffering<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let (me, all) = (epoch.rank(), epoch.size());
        let other = me ^ 1;
        let (value, found) = (|worker: usize| 3 * MANY + worker, |worker: usize| 3 * MANY + all + worker);
        for turn in 1..=TURNS {
            if other < all {
                epoch.locked(PAIRS + me as u32, |epoch| self.store(epoch, value(me), turn))?;
                let seen = epoch.locked(PAIRS + other as u32, |epoch| self.load(epoch, value(other)))?;
                assert!(seen == turn || seen + 1 == turn, "a value of turn {seen} in turn {turn}");
                self.store(&epoch, found(me), seen);
            }
            epoch = epoch.barrier(0)?;
            if other < all {
                let both = [me, other].map(|worker| self.load(&epoch, found(worker)));
                assert!(
                    both.contains(&turn),
                    "neither worker saw the other's store: {both:?} in turn {turn}"
                );
            }
            epoch = epoch.barrier(1)?;
        }
        Ok(epoch)
    }

    /// Two workers store, each under its own lock, and two others look at both values, in different orders: they agree on which
    /// store came first.
    fn two_writers<'a>(&self, mut epoch: Epoch<'a>) -> Result<Epoch<'a>, Error> {
        let (me, all) = (epoch.rank(), epoch.size());
        if all < 4 {
            return Ok(epoch);
        }
        let first = 3 * MANY + 2 * all;
        for turn in 1..=TURNS {
            match me {
                0 | 1 => epoch.locked(PAIRS + me as u32, |epoch| self.store(epoch, first + me, turn))?,
                2 | 3 => {
                    let [one, two] = [me - 2, 3 - me];
                    let earlier = epoch.locked(PAIRS + one as u32, |epoch| self.load(epoch, first + one))?;
                    let later = epoch.locked(PAIRS + two as u32, |epoch| self.load(epoch, first + two))?;
                    // The store that this worker looked for first was there, the other one was not.
                    self.store(&epoch, first + me, u64::from(earlier == turn && later != turn));
                }
                _ => {}
            }
            epoch = epoch.barrier(0)?;
            let orders = [2, 3].map(|worker| self.load(&epoch, first + worker));
            assert_ne!(orders, [1, 1], "two workers saw two stores in different orders in turn {turn}");
            epoch = epoch.barrier(1)?;
        }
        Ok(epoch)
    }
}
