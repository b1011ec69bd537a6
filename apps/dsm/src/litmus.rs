//! Small programs that each show one property of shared memory, and random programs without data races whose every load is
//! checked. Not of the paper: for tests, on any layout. A worker that finds a wrong value ends the run.
//!
//! A random program has phases between barriers. In each phase a variable belongs to one worker, is read by all, or is guarded
//! by a lock. What a worker stores follows from the seed, and what is added under a lock commutes, so that every worker knows
//! what it must find.
//!
//! Without rounds each worker uses pages of its own only, as many turns as the size of the problem says.

use std::time::Duration;

use viaduct_cashmere::node::start::Error;
use viaduct_cashmere::{Array, Dsm, Epoch, Placement};

use crate::locks::Locks;
use crate::typed::Typed;
use crate::{Outcome, Problem};

/// Bytes of shared memory: more than the programs use.
pub(crate) const MEMORY: usize = 16 << 20;
/// Bytes that the random programs use: three of the smallest pages, so that variables of several workers share each page; one page
/// of any size from 16 KiB on.
const BYTES: usize = 3 * 4096;
/// Bytes of the pages that one worker has for itself.
const OWN: usize = 4 << 15;
const LOCKS: u64 = 3;
/// Accesses of a worker in a phase.
const STEPS: u64 = 12;
const PHASES: u64 = 4;
/// Names of flags, which are set once.
const FLAGS: usize = 65_000;

/// A number for other numbers, the same everywhere.
fn mix(words: &[u64]) -> u64 {
    words.iter().fold(0x9E37_79B9_7F4A_7C15, |mixed: u64, word| {
        let mixed = (mixed ^ word).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB) ^ (mixed >> 29)
    })
}

fn load(epoch: &Epoch<'_>, memory: Array<u8>, at: usize, size: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(&epoch.read(memory, at..at + size));
    u64::from_le_bytes(bytes)
}

fn store(epoch: &Epoch<'_>, memory: Array<u8>, at: usize, size: usize, value: u64) {
    epoch.write(memory, at..at + size).copy_from_slice(&value.to_le_bytes()[..size]);
}

pub(crate) fn run(dsm: &mut Dsm, problem: Problem) -> Result<Outcome, Error> {
    let memory: Array<u8> = dsm.array(BYTES)?;
    let other: Array<u64> = dsm.array(4096)?;
    let own: Array<u8> = dsm.placed(OWN * dsm.size(), Placement::Bands)?;
    let typed = Typed::new(dsm)?;
    let locks = Locks::new(dsm)?;
    let mut epoch = dsm.epoch();
    if problem.rounds == 0 {
        alone(epoch, own, problem.size)?;
        return Ok(Outcome { sum: problem.size as f64, equal: Some(true), work: Duration::ZERO });
    }
    epoch = neighbours(epoch, memory)?;
    epoch = typed.check(epoch)?;
    epoch = counters(epoch, other)?;
    epoch = bounce(epoch, other)?;
    epoch = chain(epoch, other)?;
    epoch = locks.check(epoch)?;
    epoch = messages(epoch, other, problem.rounds.min(FLAGS))?;
    for round in 0..problem.rounds as u64 {
        epoch = random(epoch, memory, mix(&[problem.size as u64, round]))?;
    }
    epoch.barrier(0)?;
    Ok(Outcome { sum: problem.rounds as f64, equal: Some(true), work: Duration::ZERO })
}

/// Every worker stores to its own bytes of a page that all touch first at the same time, and over the edge of a page.
fn neighbours<'a>(mut epoch: Epoch<'a>, memory: Array<u8>) -> Result<Epoch<'a>, Error> {
    let (me, all) = (epoch.rank(), epoch.size());
    for round in 1..4_u64 {
        for (size, start) in [(1, 0), (2, 1001), (4, 2001), (8, 4096 - 4 * all)] {
            store(&epoch, memory, start + me * size, size, mix(&[round, me as u64]));
        }
        epoch = epoch.barrier(0)?;
        for (size, start) in [(1, 0), (2, 1001), (4, 2001), (8, 4096 - 4 * all)] {
            for worker in 0..all {
                let wanted = mix(&[round, worker as u64]) << (64 - 8 * size) >> (64 - 8 * size);
                let found = load(&epoch, memory, start + worker * size, size);
                assert_eq!(found, wanted, "neighbours: {size} bytes of worker {worker} in round {round}");
            }
        }
        epoch = epoch.barrier(1)?;
    }
    // The random programs begin with zeroes.
    if me == 0 {
        epoch.write(memory, 0..BYTES).fill(0);
    }
    Ok(epoch.barrier(0)?)
}

/// Every worker stores to pages that no other uses, and whose home is another node where there are two.
fn alone(mut epoch: Epoch<'_>, array: Array<u8>, turns: usize) -> Result<(), Error> {
    let part = epoch.size() - 1 - epoch.rank();
    let mine = part * OWN..(part + 1) * OWN;
    for turn in 0..turns {
        let mut bytes = epoch.write(array, mine.clone());
        assert!(bytes.iter().all(|byte| *byte == turn as u8), "pages of one worker, turn {turn}");
        bytes.fill((turn as u8).wrapping_add(1));
        drop(bytes);
        epoch = epoch.barrier(0)?;
    }
    Ok(())
}

/// All workers add to a number under a lock; empty critical sections do no harm.
fn counters<'a>(mut epoch: Epoch<'a>, array: Array<u64>) -> Result<Epoch<'a>, Error> {
    const TURNS: u64 = 20;
    for turn in 0..TURNS {
        epoch.locked(1, |epoch| {
            let value = epoch.read(array, 0..1)[0];
            epoch.write(array, 0..1)[0] = value + 1;
        })?;
        epoch.locked(2 + turn as u32 % 2, |_| ())?;
    }
    epoch = epoch.barrier(0)?;
    let (found, wanted) = (epoch.read(array, 0..1)[0], TURNS * epoch.size() as u64);
    assert_eq!(found, wanted, "a counter under a lock");
    Ok(epoch.barrier(1)?)
}

/// A page goes from one worker to the next, which has it alone.
fn bounce<'a>(mut epoch: Epoch<'a>, array: Array<u64>) -> Result<Epoch<'a>, Error> {
    let (me, all) = (epoch.rank(), epoch.size());
    for round in 0..2 * all {
        if me == round % all {
            let mut values = epoch.write(array, 1024..1536);
            assert!(
                values.iter().all(|value| *value == round as u64),
                "a page that bounces in round {round}"
            );
            values.iter_mut().for_each(|value| *value += 1);
        }
        epoch = epoch.barrier(0)?;
    }
    Ok(epoch)
}

/// What was stored under one lock is seen through another: a chain over three workers.
fn chain<'a>(mut epoch: Epoch<'a>, array: Array<u64>) -> Result<Epoch<'a>, Error> {
    for _ in 0..8 {
        let seen = epoch.locked(4, |epoch| {
            let value = epoch.read(array, 2048..2049)[0];
            epoch.write(array, 2048..2049)[0] = value + 1;
            value + 1
        })?;
        epoch.locked(5, |epoch| {
            let mut highest = epoch.write(array, 2600..2601);
            highest[0] = highest[0].max(seen);
        })?;
        let (highest, count) = (
            epoch.locked(5, |epoch| epoch.read(array, 2600..2601)[0])?,
            epoch.locked(4, |epoch| epoch.read(array, 2048..2049)[0])?,
        );
        assert!(highest >= seen && count >= highest, "a chain of locks: {seen} {highest} {count}");
    }
    Ok(epoch.barrier(0)?)
}

/// A flag passes what was stored before it, in turn from each worker to all.
fn messages<'a>(mut epoch: Epoch<'a>, array: Array<u64>, rounds: usize) -> Result<Epoch<'a>, Error> {
    let (me, all) = (epoch.rank(), epoch.size());
    for round in 0..rounds.min(2 * all) {
        let name = 64 + round as u32;
        if me == round % all {
            epoch.write(array, 3000..3001)[0] = round as u64;
            epoch.write(array, 3700..3701)[0] = !(round as u64);
            epoch = epoch.set_flag(name)?;
        } else {
            epoch = epoch.wait_flag(name)?;
        }
        let found = (epoch.read(array, 3000..3001)[0], epoch.read(array, 3700..3701)[0]);
        assert_eq!(found, (round as u64, !(round as u64)), "what a flag passes");
        epoch = epoch.barrier(0)?;
    }
    Ok(epoch)
}

/// A variable of a random program.
#[derive(Clone, Copy)]
struct Variable {
    at: usize,
    size: usize,
}

enum Role {
    Owned(usize),
    Read,
    Guarded(u32),
}

/// Variables of mixed sizes, close to each other, over a few pages.
fn variables(seed: u64) -> Vec<Variable> {
    let (mut at, mut all) = ((mix(&[seed]) % 64) as usize, Vec::new());
    loop {
        let number = all.len() as u64;
        let size = 1 << (mix(&[seed, number, 1]) % 4);
        if at + size > BYTES {
            return all;
        }
        all.push(Variable { at, size });
        let gap = mix(&[seed, number, 2]);
        at += size + if gap.is_multiple_of(3) { (gap >> 8) as usize % 900 } else { 0 };
    }
}

fn role(seed: u64, phase: u64, variable: usize, workers: usize) -> Role {
    match mix(&[seed, phase, variable as u64, 3]) % (workers as u64 + 1 + LOCKS) {
        owner if owner < workers as u64 => Role::Owned(owner as usize),
        read if read == workers as u64 => Role::Read,
        lock => Role::Guarded((lock - workers as u64 - 1) as u32 + 1),
    }
}

/// What step `step` of a worker stores or adds.
fn value(seed: u64, phase: u64, worker: usize, step: u64) -> u64 {
    mix(&[seed, phase, worker as u64, step, 4])
}

fn cut(value: u64, size: usize) -> u64 {
    value << (64 - 8 * size) >> (64 - 8 * size)
}

fn random<'a>(mut epoch: Epoch<'a>, memory: Array<u8>, seed: u64) -> Result<Epoch<'a>, Error> {
    let (me, workers) = (epoch.rank(), epoch.size());
    let variables = variables(seed);
    // What this worker knows the memory to hold; lock-guarded variables are known between phases only.
    let mut known: Vec<u64> =
        variables.iter().map(|variable| load(&epoch, memory, variable.at, variable.size)).collect();
    epoch = epoch.barrier(1)?;
    for phase in 0..PHASES {
        let chosen = |worker: usize, step: u64| {
            (mix(&[seed, phase, worker as u64, step, 5]) % variables.len() as u64) as usize
        };
        for step in 0..STEPS {
            let index = chosen(me, step);
            let Variable { at, size } = variables[index];
            let fresh = value(seed, phase, me, step);
            let what = || format!("seed {seed:#x}, phase {phase}, worker {me}, step {step}, byte {at}");
            match role(seed, phase, index, workers) {
                Role::Owned(owner) if owner == me => {
                    assert_eq!(load(&epoch, memory, at, size), known[index], "{}", what());
                    store(&epoch, memory, at, size, fresh);
                    known[index] = cut(fresh, size);
                }
                Role::Owned(_) => {}
                Role::Read => assert_eq!(load(&epoch, memory, at, size), known[index], "{}", what()),
                Role::Guarded(lock) => epoch.locked(lock, |epoch| {
                    let sum = load(epoch, memory, at, size).wrapping_add(fresh);
                    store(epoch, memory, at, size, sum);
                })?,
            }
            if fresh.is_multiple_of(17) {
                std::thread::yield_now();
            }
        }
        epoch = epoch.barrier(phase as u32 % 2)?;
        // What all workers did, in any order of theirs.
        for (worker, step) in (0..workers).flat_map(|worker| (0..STEPS).map(move |step| (worker, step))) {
            let index = chosen(worker, step);
            let (size, fresh) = (variables[index].size, value(seed, phase, worker, step));
            match role(seed, phase, index, workers) {
                Role::Owned(owner) if owner == worker => known[index] = cut(fresh, size),
                Role::Guarded(_) => known[index] = cut(known[index].wrapping_add(fresh), size),
                _ => {}
            }
        }
    }
    for (variable, wanted) in variables.iter().zip(&known) {
        let found = load(&epoch, memory, variable.at, variable.size);
        assert_eq!(found, *wanted, "seed {seed:#x} at the end, worker {me}, byte {}", variable.at);
    }
    Ok(epoch.barrier(0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_of_a_program_lie_side_by_side() {
        for seed in 0..50 {
            let all = variables(seed);
            assert!(all.len() > 20 && all.windows(2).all(|two| two[0].at + two[0].size <= two[1].at));
            assert!(all.last().is_some_and(|last| last.at + last.size <= BYTES));
        }
    }

    #[test]
    fn every_kind_of_variable_comes_up() {
        let roles: Vec<Role> = (0..200).map(|variable| role(7, 0, variable, 3)).collect();
        assert!(roles.iter().any(|role| matches!(role, Role::Read)));
        assert!((0..3).all(|me| roles.iter().any(|role| matches!(role, Role::Owned(owner) if *owner == me))));
        assert!(roles.iter().any(|role| matches!(role, Role::Guarded(lock) if *lock == LOCKS as u32)));
    }
}
