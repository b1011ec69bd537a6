//! Making communicators: the processes concerned agree on a number that is free in all of them.

use super::board::Seat;
use super::collective::{data, limits, me};
use super::comm::{Comm, Context, WORDS};
use super::mark::Terms;
use super::run::{Memory, Name, Stage};
use super::{Operation, World};
use crate::coll;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::op::Op;
use crate::raw::Span;

impl World {
    /// The processes of a communicator in another one of their own.
    ///
    /// # Errors
    /// If a process is gone, or there are too many communicators.
    pub fn comm_dup(&self, comm: &Comm) -> Result<Comm> {
        let (number, seat) = self.agree(comm, &|| Stage::next(comm, Terms::of(Name::Making)))?;
        Ok(Comm::made(number, comm.group().clone(), comm.rank(), self.contexts.clone(), seat))
    }

    /// The processes with this one's color, ordered by key. None without a color.
    ///
    /// # Errors
    /// As [`comm_dup`](Self::comm_dup).
    pub fn comm_split(&self, comm: &Comm, color: Option<i32>, key: i32) -> Result<Option<Comm>> {
        if color.is_some_and(|color| color < 0) {
            return Err(Error::new(Class::Arg, "a color below 0"));
        }
        let ours: Vec<u8> = [color.unwrap_or(-1), key].iter().flat_map(|word| word.to_le_bytes()).collect();
        let size = comm.size() as usize;
        let (send, recv) = (Span::owned(&ours), Span::zeroes(ours.len() * size));
        let each = recv.part(0, ours.len(), recv.kind());
        let schedule = coll::allgather(me(comm), Some(data(&send)), data(&each), &limits());
        let memory = Memory { send: &send, recv: &each, kinds: None };
        self.run(&Stage::next(comm, Terms::of(Name::Making)), &schedule, &memory, None)?;
        let mut all = vec![0; ours.len() * size];
        recv.read(0, &mut all);
        let (number, seat) = self.agree(comm, &|| Stage::next(comm, Terms::of(Name::Making)))?;
        let words: Vec<i32> = all
            .chunks_exact(4)
            .map(|word| i32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        let mut members: Vec<(i32, usize)> = Vec::new();
        for rank in 0..size {
            if Some(words[2 * rank]) == color {
                members.push((words[2 * rank + 1], rank));
            }
        }
        // By key, then by rank: the sort is stable.
        members.sort_by_key(|(key, _)| *key);
        if color.is_none() {
            self.contexts.conclude_unused(number);
            return Ok(None);
        }
        let processes = members.iter().filter_map(|(_, rank)| comm.group().process(*rank));
        let rank = members.iter().position(|(_, rank)| *rank == comm.rank() as usize);
        let rank = rank.expect("this process has its own color") as i32;
        Ok(Some(Comm::made(number, Group::new(processes), rank, self.contexts.clone(), seat)))
    }

    /// The processes of a communicator that share this host.
    ///
    /// # Errors
    /// As [`comm_dup`](Self::comm_dup).
    pub fn comm_split_host(&self, comm: &Comm, key: i32) -> Result<Comm> {
        let host = |rank: usize| comm.group().process(rank).map(|process| self.hosts[process as usize]);
        let ours = host(comm.rank() as usize);
        let color = (0..comm.size() as usize).position(|rank| host(rank) == ours);
        let color = color.expect("this process is on its own host") as i32;
        Ok(self.comm_split(comm, Some(color), key)?.expect("there is a color"))
    }

    /// The processes of a group, all of which are in the communicator; every process of the communicator calls.
    ///
    /// # Errors
    /// As [`comm_dup`](Self::comm_dup), and for a group that is no part of the communicator's.
    pub fn comm_create(&self, comm: &Comm, group: &Group) -> Result<Option<Comm>> {
        contained(group, comm)?;
        let (number, seat) = self.agree(comm, &|| Stage::next(comm, Terms::of(Name::Making)))?;
        let rank = own_rank(group, comm);
        if rank.is_none() {
            self.contexts.conclude_unused(number);
        }
        Ok(rank.map(|rank| Comm::made(number, group.clone(), rank, self.contexts.clone(), seat)))
    }

    /// The processes of a group, all of which are in the communicator; only the processes of the group call.
    ///
    /// # Errors
    /// As [`comm_create`](Self::comm_create).
    pub fn comm_create_group(&self, comm: &Comm, group: &Group, tag: i32) -> Result<Option<Comm>> {
        contained(group, comm)?;
        if tag < 0 {
            return Err(Error::new(Class::Tag, format!("tag {tag}")));
        }
        let Some(rank) = own_rank(group, comm) else { return Ok(None) };
        let among = Comm::predefined(comm.number(), group.clone(), rank, None);
        let context = comm.context(Context::Making);
        let (number, seat) = self.agree(&among, &|| Stage::among(&among, context, tag))?;
        Ok(Some(Comm::made(number, group.clone(), rank, self.contexts.clone(), seat)))
    }

    /// A number that is free in all processes of a communicator, taken in all of them, and its board if that is new to all.
    fn agree<'a>(&self, comm: &'a Comm, stage: &dyn Fn() -> Stage<'a>) -> Result<(u32, Option<Seat>)> {
        self.contexts.enter(comm.number());
        let agreed = self.agree_in_turn(comm, stage);
        self.contexts.leave(comm.number());
        agreed
    }

    /// Threads of one process may make communicators at the same time: one offers its numbers, the others offer none and
    /// try again. The last word says whether all have offered.
    fn agree_in_turn<'a>(
        &self,
        comm: &'a Comm,
        stage: &dyn Fn() -> Stage<'a>,
    ) -> Result<(u32, Option<Seat>)> {
        loop {
            let offer = self.contexts.offer(comm.number());
            let (words, boards) = offer.unwrap_or(([0; WORDS], 0));
            let flag = if offer.is_some() { u64::MAX } else { 0 };
            let all = words.iter().chain([&flag, &boards]);
            let bytes: Vec<u8> = all.flat_map(|word| word.to_le_bytes()).collect();
            let common = Span::owned(&bytes);
            let op = Operation::predefined(Op::Band);
            let schedule = coll::allreduce(me(comm), data(&common), true, true, &limits());
            let memory = Memory { send: &common, recv: &common, kinds: None };
            let outcome = self.run(&stage(), &schedule, &memory, Some(&op));
            let mut result = bytes;
            common.read(0, &mut result);
            let words =
                result.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
            let words: Vec<u64> = words.collect();
            // A number with a board that is new to all comes before any other.
            let boarded = words[0] & words[WORDS + 1];
            let free = words[..WORDS].iter().position(|word| *word != 0);
            let number = match boarded {
                0 => free.map(|at| at as u32 * 64 + words[at].trailing_zeros()),
                _ => Some(boarded.trailing_zeros()),
            };
            let seat = |number| {
                self.board.as_ref().filter(|_| boarded != 0).and_then(|board| Seat::new(board, number))
            };
            if offer.is_some() {
                self.contexts.conclude(number.filter(|_| outcome.is_ok()));
            }
            outcome?;
            match number {
                Some(number) => return Ok((number, seat(number))),
                None if words[WORDS] != 0 => {
                    return Err(Error::new(Class::Other, "too many communicators: 4096 are in use"));
                }
                None => std::thread::yield_now(),
            }
        }
    }
}

fn own_rank(group: &Group, comm: &Comm) -> Option<i32> {
    let process = comm.group().process(comm.rank() as usize)?;
    group.rank(process).map(|rank| rank as i32)
}

fn contained(group: &Group, comm: &Comm) -> Result<()> {
    let strange = group.members().iter().find(|member| comm.group().rank(**member).is_none());
    match strange {
        None => Ok(()),
        Some(_) => {
            Err(Error::new(Class::Group, "the group has a process that the communicator does not have"))
        }
    }
}
