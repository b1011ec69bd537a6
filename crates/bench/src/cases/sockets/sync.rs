//! T_sync (SOVIA, section 5.2): the cost of waking a thread that is blocked on a condition, by another one of its process.
//!
//! Both threads are on the core of this end, as application and handler thread of a socket are. One that is woken answers
//! at once, so a round has two wake-ups.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::cases::calls::Idle;
use crate::error::{Error, Result};
use crate::layers::half::Side;
use crate::layers::via::Place;
use crate::loops::End;
use crate::plan::{Run, Tally};
use crate::timer::Timer;

pub(crate) fn end(place: Place) -> Result<Box<dyn End>> {
    if place.side == Side::Follow {
        return Ok(Box::new(Idle));
    }
    let table = Arc::new(Table::default());
    let other = table.clone();
    let thread = thread::Builder::new().name("bench-sync".into()).spawn(move || while other.answer() {});
    let thread = thread.map_err(Error::os("starting a thread"))?;
    Ok(Box::new(Waker { table, thread: Some(thread) }))
}

/// Whose turn it is.
#[derive(Default)]
struct Table {
    state: Mutex<State>,
    forth: Condvar,
    back: Condvar,
}

#[derive(Default)]
struct State {
    asked: u64,
    answered: u64,
    end: bool,
}

impl Table {
    /// Wakes the other thread, and waits until it has woken this one.
    fn ask(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.asked += 1;
        let asked = state.asked;
        self.forth.notify_one();
        while state.answered != asked {
            state = self.back.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits to be woken, and wakes the other thread. False at the end.
    fn answer(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while state.asked == state.answered && !state.end {
            state = self.forth.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.answered = state.asked;
        self.back.notify_one();
        !state.end
    }
}

struct Waker {
    table: Arc<Table>,
    thread: Option<JoinHandle<()>>,
}

impl End for Waker {
    fn lead(&mut self, run: &Run, timer: &Timer, samples: &mut Vec<u64>) -> Result<Tally> {
        let before = self.table.state.lock().unwrap_or_else(PoisonError::into_inner).answered;
        let rounds = run.batch.div_ceil(2);
        for _ in 0..run.count / run.batch {
            let start = timer.ticks();
            for _ in 0..rounds {
                self.table.ask();
            }
            // So many wake-ups as there are messages in a sample.
            samples.push((timer.ticks() - start) * run.batch / (2 * rounds));
        }
        let answered = self.table.state.lock().unwrap_or_else(PoisonError::into_inner).answered - before;
        let bad = u64::from(run.check && answered != rounds * (run.count / run.batch));
        Ok(Tally { bad, ..Tally::default() })
    }

    fn follow(&mut self, _: &Run) -> Result<Tally> {
        Ok(Tally::default())
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.table.state.lock().unwrap_or_else(PoisonError::into_inner).end = true;
        self.table.forth.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
