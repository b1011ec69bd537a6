//! What the rounds came to: how many points each compared, with which verdicts, and which were worse how often.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, ensure};

use super::WORSE;

/// How many points two programs have in common, by what their intervals say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Score {
    pub(super) better: u32,
    pub(super) worse: u32,
    pub(super) same: u32,
    /// Noisy in one of the two programs, or without an interval: nothing is known of them.
    pub(super) unsure: u32,
}

impl Score {
    fn points(self) -> u32 {
        self.better + self.worse + self.same + self.unsure
    }

    /// Reads "7 points in both: 1 better, 2 worse, 3 not sure; 4 in one file only", as `viaduct report` says it.
    fn read(line: &str) -> Option<Score> {
        let (points, rest) = line.split_once(" points in both: ")?;
        let (verdicts, _) = rest.split_once("; ")?;
        let mut counts = verdicts.split(", ").zip(["better", "worse", "not sure"]).map(|(text, verdict)| {
            text.strip_suffix(verdict).and_then(|count| count.trim_end().parse::<u32>().ok())
        });
        let [better, worse, unsure] = [counts.next()??, counts.next()??, counts.next()??];
        let same = points.parse::<u32>().ok()?.checked_sub(better + worse + unsure)?;
        Some(Score { better, worse, same, unsure })
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Score { better, worse, same, unsure } = self;
        write!(
            f,
            "{} points in both: {better} better, {worse} worse, {same} the same, {unsure} not sure",
            self.points()
        )
    }
}

/// All rounds.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    scores: Vec<Score>,
    /// By point: how often it was named worse, and by how much each time.
    named: BTreeMap<String, (u32, Vec<String>)>,
}

impl Rounds {
    /// A round begins.
    pub(super) fn begin(&mut self) {
        self.scores.push(Score::default());
    }

    /// Adds what a comparison said on standard error to the round.
    pub(super) fn add_talk(&mut self, talk: &str) -> Result<()> {
        let score =
            talk.lines().find_map(Score::read).context("the comparison does not say what it compared")?;
        self.add(score, talk);
        Ok(())
    }

    /// Adds a comparison to the round: its score, and a line for each worse point.
    pub(super) fn add(&mut self, score: Score, talk: &str) {
        let round = self.scores.last_mut().expect("a round has begun");
        round.better += score.better;
        round.worse += score.worse;
        round.same += score.same;
        round.unsure += score.unsure;
        for line in talk.lines().filter_map(|line| line.strip_prefix(WORSE)) {
            let Some((much, point)) = line.split_once(": ") else { continue };
            let (times, all) = self.named.entry(point.to_owned()).or_default();
            *times += 1;
            all.push(much.to_owned());
        }
    }

    /// Prints every point that was named, and what each round came to. Whether none was worse in every round; an error if a
    /// round compared nothing, which shows nothing.
    pub(super) fn judge(&self) -> Result<bool> {
        for (point, (times, lines)) in &self.named {
            println!("worse in {times} of {} rounds: {point} ({})", self.scores.len(), lines.join(", "));
        }
        for (round, score) in self.scores.iter().enumerate() {
            println!("round {}: {score}", round + 1);
        }
        let lasting = self.named.values().filter(|(times, _)| *times as usize == self.scores.len()).count();
        println!("{lasting} points are worse by more than 5 % in every round");
        let empty = self.scores.iter().position(|score| score.points() == score.unsure);
        if let Some(round) = empty {
            ensure!(
                self.scores[round].points() > 0,
                "round {}: the two programs have no point in common, so nothing was compared; name cases that both have",
                round + 1
            );
            anyhow::bail!(
                "round {}: every point is noisy or lacks an interval, so nothing was compared; repeat it on a quieter \
                 machine, or name cases that take longer",
                round + 1
            );
        }
        Ok(lasting == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "7 points in both: 1 better, 2 worse, 3 not sure; 4 in one file only\n";

    #[test]
    fn points_are_counted_over_rounds() {
        let mut rounds = Rounds::default();
        rounds.begin();
        rounds
            .add_talk(&format!("page.html: 7 points\n{LINE}worse by 12 %: latency auto (us), 8, near\n"))
            .unwrap();
        rounds.begin();
        let named = "worse by 7 %: latency auto (us), 8, near\nworse by 90 %: rate: x (Mmsg/s)\n";
        rounds.add_talk(&format!("{LINE}{named}")).unwrap();
        assert_eq!(
            rounds.named["latency auto (us), 8, near"],
            (2, vec!["12 %".to_owned(), "7 %".to_owned()])
        );
        assert_eq!(rounds.named["rate: x (Mmsg/s)"].0, 1);
        assert_eq!(rounds.named.len(), 2);
        assert!(!rounds.judge().unwrap(), "one is worse in both rounds");
        rounds.begin();
        rounds.add_talk(LINE).unwrap();
        assert!(rounds.judge().unwrap(), "none is worse in all three");
    }

    #[test]
    fn verdicts_of_a_round_are_added_up_and_read_back() {
        let mut rounds = Rounds::default();
        rounds.begin();
        rounds.add_talk(LINE).unwrap();
        rounds.add(Score { better: 1, ..Score::default() }, "");
        let sum = Score { better: 2, worse: 2, same: 1, unsure: 3 };
        assert_eq!(rounds.scores, [sum]);
        assert_eq!(sum.to_string(), "8 points in both: 2 better, 2 worse, 1 the same, 3 not sure");
        assert!(rounds.add_talk("page.html: 7 points\n").is_err(), "it says nothing of what it compared");
    }

    #[test]
    fn a_round_without_a_point_that_says_something_is_no_pass() {
        let of = |score| {
            let mut rounds = Rounds::default();
            rounds.begin();
            rounds.add(score, "");
            rounds.judge()
        };
        assert!(of(Score { same: 1, ..Score::default() }).unwrap());
        let none = of(Score::default()).unwrap_err().to_string();
        assert!(none.contains("no point in common"), "{none}");
        let noise = of(Score { unsure: 9, ..Score::default() }).unwrap_err().to_string();
        assert!(noise.contains("every point is noisy"), "{noise}");
    }
}
