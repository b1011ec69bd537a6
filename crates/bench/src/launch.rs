//! How long it takes to start programs that do nothing (Millennium Sort, section 4.3), beside other launchers in the same
//! run. Each way is a command; all take turns, so that a busy moment hits them alike.

use std::process::{Command, Stdio};
use std::time::Instant;

use crate::stats::Summary;

/// One way to start so many ranks of a program that does nothing.
pub struct LaunchWay<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many ranks.
    pub ranks: usize,
    /// Does it once; false if it did not work.
    pub run: Box<dyn FnMut() -> bool + 'a>,
}

/// What a way took.
#[derive(Clone, Debug, PartialEq)]
pub struct Taken {
    /// Its name.
    pub name: String,
    /// How many ranks.
    pub ranks: usize,
    /// Milliseconds; none if it failed.
    pub time: Option<Summary>,
}

/// Lets all ways take turns, `rounds` times after one that does not count. One that fails once is left out.
pub fn measure(ways: &mut [LaunchWay<'_>], rounds: usize, progress: &mut dyn FnMut(f64)) -> Vec<Taken> {
    let mut times: Vec<Option<Vec<f64>>> = ways.iter().map(|_| Some(Vec::new())).collect();
    for round in 0..=rounds {
        for (way, times) in ways.iter_mut().zip(&mut times) {
            let Some(list) = times else { continue };
            let begun = Instant::now();
            let good = (way.run)();
            let time = begun.elapsed().as_secs_f64() * 1e3;
            match good {
                true if round > 0 => list.push(time),
                true => {}
                false => *times = None,
            }
        }
        progress(round as f64 / rounds as f64);
    }
    let taken = |(way, times): (&LaunchWay<'_>, Option<Vec<f64>>)| Taken {
        name: way.name.to_owned(),
        ranks: way.ranks,
        time: times.and_then(|times| Summary::of(&times)),
    };
    ways.iter().zip(times).map(taken).collect()
}

/// Runs a command to its end, unseen; whether it ended well.
pub fn quietly(mut command: Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_take_turns_and_failures_are_left_out() {
        let order = std::cell::RefCell::new(Vec::new());
        let way = |name: &'static str, good: bool| LaunchWay {
            name,
            ranks: 1,
            run: Box::new({
                let order = &order;
                move || {
                    order.borrow_mut().push(name);
                    good
                }
            }),
        };
        let taken = measure(&mut [way("a", true), way("b", false), way("c", true)], 2, &mut |_| ());
        assert_eq!(taken[0].time.as_ref().map(|time| time.n), Some(2));
        assert_eq!(taken[1].time, None);
        assert_eq!(*order.borrow(), ["a", "b", "c", "a", "c", "a", "c"]);
    }
}
