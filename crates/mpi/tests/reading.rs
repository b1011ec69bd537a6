//! Messages that their receiver reads where the sender has them: by RDMA out of registered memory, by the kernel out of other
//! memory. What the ranks count shows that they were read so, and did not go in fragments. And packets whose blocks are gathered
//! where they lie.

use viaduct_kit::effort;
use viaduct_kit::packages::skip;
use viaduct_kit::watchdog::Watchdog;
use viaduct_mpi::datatype::{Datatype, basic, build};
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Mode, World};
use viaduct_os::process::vm_read;

use crate::point::{lengths, pattern};
use crate::ranks::{BYTE, LIMIT, arguments, heard, span};

/// What the two ranks of a job say at their end, with statistics.
fn said(scenario: &str, settings: &[&str]) -> String {
    let _watch = Watchdog::arm(effort::scaled(LIMIT), "a job that counts");
    let settings: Vec<_> = [&["VIADUCT_MPI_STATS=on"], settings].concat();
    let ranks: Vec<_> = arguments(scenario, 2, &settings).iter().map(|args| heard(args)).collect();
    let outputs = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    let texts = outputs.map(|output| {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{scenario}: {text}");
        text
    });
    texts.collect()
}

/// How many messages a rank has read by RDMA and by the kernel.
fn reads(said: &str, rank: usize) -> (u64, u64) {
    (counted(said, rank, " read here by RDMA"), counted(said, rank, " by the kernel"))
}

/// What a rank counted under these words.
fn counted(said: &str, rank: usize, words: &str) -> u64 {
    let line = said.lines().find(|line| line.contains(&format!("rank {rank} to {}: ", 1 - rank)));
    let line = line.unwrap_or_else(|| panic!("no counts of rank {rank}: {said}"));
    let part = line.split(", ").find_map(|part| part.strip_suffix(words));
    part.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{words}: {line}"))
}

#[test]
fn long_messages_are_read_out_of_allocated_memory() {
    read_by_rdma(&[]);
}

/// One rank reads a message out of allocated memory of the other.
pub(crate) fn read_by_rdma(settings: &[&str]) {
    let said = said("pulled", settings);
    assert_eq!((reads(&said, 0), reads(&said, 1)), ((0, 0), (1, 0)), "{said}");
}

#[test]
fn long_messages_are_read_out_of_other_memory_by_the_kernel() {
    for settings in [&["VIADUCT_MPI_PRIVATE=16K"][..], &["VIADUCT_MPI_PRIVATE=4K", "VIADUCT_MPI_FRAGMENT=4K"]]
    {
        let said = said("private", settings);
        if !said.contains("reads the memory of the other") {
            return skip("the kernel lets no process read the memory of another here");
        }
        // Those of 64 KiB and 1 MiB at least, with their receive posted before and after.
        for rank in [0, 1] {
            let (rdma, kernel) = reads(&said, rank);
            assert!(rdma == 0 && kernel >= 4, "{settings:?}: {said}");
        }
    }
}

#[test]
fn the_kernel_copies_nothing_where_no_message_is_long_enough() {
    let said = said("private", &["VIADUCT_MPI_PRIVATE=1G"]);
    assert_eq!((reads(&said, 0), reads(&said, 1)), ((0, 0), (0, 0)), "{said}");
}

#[test]
fn messages_in_few_long_blocks_are_gathered_where_they_lie() {
    gathered_where_they_lie(&[]);
}

/// One rank sends messages in few long blocks to the other.
pub(crate) fn gathered_where_they_lie(settings: &[&str]) {
    let said = said("gathered", settings);
    // Each of them, in one packet or in several.
    assert!(counted(&said, 0, " gathered packets") >= GATHERED.len() as u64, "{said}");
}

#[test]
fn messages_in_short_blocks_are_packed_first() {
    let said = said("packed", &[]);
    assert_eq!(counted(&said, 0, " gathered packets"), 0, "{said}");
}

/// Blocks and bytes of each, of messages that are gathered: of 8 KiB, which go at once, to 96 KiB, which are asked for.
const GATHERED: [(i32, i32); 6] = [(2, 4096), (3, 4096), (2, 8192), (12, 4096), (7, 6144), (12, 8192)];
/// Of messages that are packed first: many blocks, or short ones.
const PACKED: [(i32, i32); 3] = [(64, 64), (8, 512), (1000, 100)];

pub(crate) fn gathered(world: &World) {
    GATHERED.iter().for_each(|(blocks, len)| send_blocks(world, *blocks, *len));
}

pub(crate) fn packed(world: &World) {
    PACKED.iter().for_each(|(blocks, len)| send_blocks(world, *blocks, *len));
}

/// Sends blocks with gaps between them to a rank that receives them without, and the other way round.
fn send_blocks(world: &World, blocks: i32, len: i32) {
    let (comm, byte) = (world.comm_world(), Datatype::of_basic(basic::find(BYTE).unwrap()));
    let (bytes, stride) = ((blocks * len) as usize, (len + 40) as usize);
    let spread = build::vector(blocks, len, stride as i32, &byte).unwrap();
    let wanted = pattern(bytes, len as usize);
    let mut memory = vec![0; blocks as usize * stride];
    // SAFETY: the blocks with their gaps are in the memory, which stays until the calls below have ended.
    let apart = unsafe { Span::new(memory.as_mut_ptr(), 1, &spread) };
    for mode in [Mode::Standard, Mode::Synchronous] {
        if comm.rank() == 0 {
            apart.write(0, &wanted);
            world.send(mode, &apart, 1, 0, comm).unwrap();
        } else {
            let mut whole = vec![0; bytes];
            world.recv(&span(&mut whole, BYTE), 0, 0, comm).unwrap();
            assert!(whole == wanted, "{blocks} blocks of {len} bytes as one");
        }
    }
    if comm.rank() == 0 {
        world.send(Mode::Standard, &apart, 1, 1, comm).unwrap();
    } else {
        world.recv(&apart, 0, 1, comm).unwrap();
        let mut whole = vec![0; bytes];
        apart.read(0, &mut whole);
        assert!(whole == wanted, "{blocks} blocks of {len} bytes into blocks");
    }
}

/// Finds out whether the ranks may read each other's memory, then sends messages of all lengths.
pub(crate) fn private(world: &World) {
    let comm = world.comm_world();
    let peer = 1 - comm.rank();
    let word = u64::from(std::process::id()) << 8 | 0x5a;
    let mut mine = [u64::from(std::process::id()), std::ptr::from_ref(&word) as u64];
    let mut theirs = [0; 2];
    world.sendrecv(&span(&mut mine, BYTE), peer, 0, &span(&mut theirs, BYTE), peer, 0, comm).unwrap();
    let mut read = 0u64;
    // SAFETY: a word of this function's, to which there is no reference.
    let got = unsafe { vm_read(theirs[0] as i32, (&raw mut read).cast(), theirs[1], 8) };
    if matches!(got, Ok(8)) {
        assert_eq!(read, theirs[0] << 8 | 0x5a);
        eprintln!("rank {} reads the memory of the other", comm.rank());
    }
    // The word lies where it is until both have read.
    world.barrier(comm).unwrap();
    lengths(world);
}

pub(crate) fn pulled(world: &World) {
    let comm = world.comm_world();
    let len = 500_000;
    let address = world.alloc_mem(len).unwrap();
    // SAFETY: allocated just now, of this length.
    let memory = unsafe { std::slice::from_raw_parts_mut(address, len) };
    if comm.rank() == 0 {
        memory.copy_from_slice(&pattern(len, 1));
        world.send(Mode::Standard, &span(&mut memory[100..], BYTE), 1, 0, comm).unwrap();
    } else {
        let mut back = vec![0; len - 100];
        world.recv(&span(&mut back, BYTE), 0, 0, comm).unwrap();
        assert!(back == pattern(len, 1)[100..]);
    }
    world.barrier(comm).unwrap();
    world.free_mem(address).unwrap();
}
