//! Every collective operation, with every number of ranks at which algorithms change.

use viaduct_mpi::datatype::{Datatype, basic, build};
use viaduct_mpi::op::Op;
use viaduct_mpi::raw::Span;
use viaduct_mpi::world::{Comm, Operation, Parts, World};

use crate::ranks::{DOUBLE, INT, run, span};

#[test]
fn all_operations_with_few_ranks() {
    for size in [1, 2, 3, 4] {
        run("collectives", size, &[]);
    }
}

#[test]
fn all_operations_with_five_and_eight_ranks() {
    for size in [5, 8] {
        run("collectives", size, &[]);
    }
}

#[test]
fn all_operations_with_sixteen_ranks() {
    run("collectives", 16, &[]);
}

#[test]
fn all_operations_by_messages_alone() {
    for size in [1, 2, 3, 4, 5, 8, 16] {
        run("collectives", size, &["VIADUCT_MPI_BOARD=off"]);
    }
}

#[test]
fn processes_in_different_operations_are_told() {
    run("mismatch", 2, &[]);
    run("mismatch", 2, &["VIADUCT_MPI_BOARD=off"]);
}

pub(crate) fn mismatch(world: &World) {
    let (comm, mut memory) = (world.comm_world(), [0; 4]);
    let result = match comm.rank() {
        0 => world.allreduce(None, &span(&mut memory, INT), &Operation::predefined(Op::Sum), comm),
        _ => world.allgather(None, &span(&mut memory[..2], INT), comm),
    };
    let text = result.unwrap_err().to_string();
    assert!(text.contains("MPI_Allreduce") && text.contains("MPI_Allgather"), "{text}");
}

pub(crate) fn all(world: &World) {
    let comm = world.comm_world();
    for count in [1, 7, 3000, 40_000] {
        rooted(world, comm, count);
        between_all(world, comm, count);
        reductions(world, comm, count);
    }
    varying(world, comm);
    derived(world, comm);
    for _ in 0..20 {
        world.barrier(comm).unwrap();
    }
}

fn value(rank: i32, at: usize) -> i32 {
    rank * 1_000_003 + at as i32 * 17
}

fn part(rank: i32, count: usize) -> Vec<i32> {
    (0..count).map(|at| value(rank, at)).collect()
}

fn rooted(world: &World, comm: &Comm, count: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    for root in [0, size - 1, size / 2] {
        let mut memory = if rank == root { part(root, count) } else { vec![0; count] };
        world.bcast(&span(&mut memory, INT), root, comm).unwrap();
        assert!(memory == part(root, count), "bcast of {count} from {root}");
        let (mut out, mut all) = (part(rank, count), vec![0; count * size as usize]);
        let each = span(&mut all[..count], INT);
        let recv = (rank == root).then_some(&each);
        world.gather(Some(&span(&mut out, INT)), recv, root, comm).unwrap();
        let whole: Vec<i32> = (0..size).flat_map(|rank| part(rank, count)).collect();
        if rank == root {
            assert!(all == whole, "gather of {count} to {root}");
        }
        all.copy_from_slice(&whole);
        let each = span(&mut all[..count], INT);
        let mut back = vec![0; count];
        let back_span = span(&mut back, INT);
        world.scatter((rank == root).then_some(&each), Some(&back_span), root, comm).unwrap();
        assert!(back == part(rank, count), "scatter of {count} from {root}");
    }
}

fn between_all(world: &World, comm: &Comm, count: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let whole: Vec<i32> = (0..size).flat_map(|rank| part(rank, count)).collect();
    let (mut out, mut all) = (part(rank, count), vec![0; count * size as usize]);
    world.allgather(Some(&span(&mut out, INT)), &span(&mut all[..count], INT), comm).unwrap();
    assert!(all == whole, "allgather of {count}");
    all.fill(0);
    all[rank as usize * count..][..count].copy_from_slice(&out);
    world.allgather(None, &span(&mut all[..count], INT), comm).unwrap();
    assert!(all == whole, "allgather of {count} in place");
    let mine = |from: i32, to: i32| part(from * 100 + to, count);
    let mut send: Vec<i32> = (0..size).flat_map(|to| mine(rank, to)).collect();
    let want: Vec<i32> = (0..size).flat_map(|from| mine(from, rank)).collect();
    world.alltoall(Some(&span(&mut send[..count], INT)), &span(&mut all[..count], INT), comm).unwrap();
    assert!(all == want, "alltoall of {count}");
    world.alltoall(None, &span(&mut send[..count], INT), comm).unwrap();
    assert!(send == want, "alltoall of {count} in place");
}

fn reductions(world: &World, comm: &Comm, count: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let sum = Operation::predefined(Op::Sum);
    let upto = |end: i32| -> Vec<i32> {
        (0..count).map(|at| (0..end).fold(0i32, |sum, rank| sum.wrapping_add(value(rank, at)))).collect()
    };
    let (mut out, mut result) = (part(rank, count), vec![0; count]);
    let send = span(&mut out, INT);
    world.allreduce(Some(&send), &span(&mut result, INT), &sum, comm).unwrap();
    assert!(result == upto(size), "allreduce of {count}");
    let root = size - 1;
    result.fill(0);
    let result_span = span(&mut result, INT);
    world.reduce(Some(&send), (rank == root).then_some(&result_span), &sum, root, comm).unwrap();
    if rank == root {
        assert!(result == upto(size), "reduce of {count}");
    }
    world.scan(Some(&send), &span(&mut result, INT), &sum, comm).unwrap();
    assert!(result == upto(rank + 1), "scan of {count}");
    world.exscan(Some(&send), &span(&mut result, INT), &sum, comm).unwrap();
    if rank > 0 {
        assert!(result == upto(rank), "exscan of {count}");
    }
    let mut long: Vec<i32> = (0..size).flat_map(|to| part(rank + to, count)).collect();
    world.reduce_scatter_block(Some(&span(&mut long, INT)), &span(&mut result, INT), &sum, comm).unwrap();
    let want: Vec<i32> = (0..count)
        .map(|at| (0..size).fold(0i32, |sum, other| sum.wrapping_add(value(rank + other, at))))
        .collect();
    assert!(result == want, "reduce_scatter of {count}");
    // Two matrices that do not commute, packed into an element: the order of ranks shows.
    let product = Operation::user(
        false,
        Box::new(|from, into, count| {
            let (from, into) = (from.cast::<[f64; 2]>(), into.cast::<[f64; 2]>());
            for at in 0..count / 2 {
                // SAFETY: the operands have this many elements, of two numbers each.
                unsafe {
                    let ([a, b], [c, d]) = (from.add(at).read_unaligned(), into.add(at).read_unaligned());
                    into.add(at).write_unaligned([a * c, a * d + b]);
                }
            }
        }),
    );
    let pairs = count.min(50);
    let affine = |rank: i32| [1.0 + f64::from(rank % 3), f64::from(rank)];
    let mut own: Vec<[f64; 2]> = vec![affine(rank); pairs];
    let want = (1..size).fold(affine(0), |[a, b], rank| {
        let [c, d] = affine(rank);
        [a * c, a * d + b]
    });
    world.allreduce(None, &span(&mut own, DOUBLE), &product, comm).unwrap();
    assert!(own.iter().all(|pair| *pair == want), "{own:?} instead of {want:?}");
}

fn varying(world: &World, comm: &Comm) {
    let (rank, size) = (comm.rank(), comm.size());
    let counts: Vec<i32> = (0..size).map(|rank| (rank * 7) % 5).collect();
    let displs: Vec<i32> = (0..size).map(|rank| rank * 6 + 1).collect();
    let len = size as usize * 6 + 8;
    let whole = |fill: i32| {
        let mut memory = vec![fill; len];
        for rank in 0..size {
            let at = displs[rank as usize] as usize;
            let count = counts[rank as usize] as usize;
            memory[at..at + count].copy_from_slice(&part(rank, count));
        }
        memory
    };
    let mut out = part(rank, counts[rank as usize] as usize);
    let send = span(&mut out, INT);
    let mut all = vec![-1; len];
    world.allgatherv(Some(&send), &span(&mut all, INT), &counts, &displs, comm).unwrap();
    assert!(all == whole(-1), "allgatherv");
    let mut all = vec![-2; len];
    let recv = span(&mut all, INT);
    world.gatherv(Some(&send), (rank == 0).then_some((&recv, &counts[..], &displs[..])), 0, comm).unwrap();
    if rank == 0 {
        assert!(all == whole(-2), "gatherv");
    }
    let mut source = whole(0);
    let from = span(&mut source, INT);
    let mut back = vec![0; out.len()];
    let into = span(&mut back, INT);
    world.scatterv((rank == 0).then_some((&from, &counts[..], &displs[..])), Some(&into), 0, comm).unwrap();
    assert!(back == out, "scatterv");
    let sent: Vec<i32> = (0..size).map(|to| (rank + 2 * to) % 4).collect();
    let came: Vec<i32> = (0..size).map(|from| (from + 2 * rank) % 4).collect();
    let places: Vec<i32> = (0..size).map(|rank| rank * 4).collect();
    let mut send: Vec<i32> = (0..size * 4).map(|at| rank * 1000 + at).collect();
    let mut recv = vec![-1; size as usize * 4];
    let (from, into) = (span(&mut send, INT), span(&mut recv, INT));
    world.alltoallv(Some((&from, &sent, &places)), (&into, &came, &places), comm).unwrap();
    let want: Vec<i32> = (0..size)
        .flat_map(|from| (0..4).map(move |at| (from, at)))
        .map(|(from, at)| if at < came[from as usize] { from * 1000 + rank * 4 + at } else { -1 })
        .collect();
    assert_eq!(recv, want, "alltoallv");
    let int = Datatype::of_basic(basic::find(INT).unwrap());
    let kinds = vec![int; size as usize];
    let bytes: Vec<i32> = places.iter().map(|place| place * 4).collect();
    recv.fill(-1);
    let (from, into) = (span(&mut send, INT), span(&mut recv, INT));
    let parts = |base, counts| Parts { base, counts, displs: &bytes, kinds: &kinds };
    world.alltoallw(Some(parts(&from, &sent)), parts(&into, &came), comm).unwrap();
    assert_eq!(recv, want, "alltoallw");
}

/// A column of a matrix at the root, a row elsewhere.
fn derived(world: &World, comm: &Comm) {
    let int = Datatype::of_basic(basic::find(INT).unwrap());
    let (rows, columns) = (300, 9);
    let column = build::vector(rows, 1, columns, &int).unwrap();
    let mut matrix: Vec<i32> = (0..rows * columns).collect();
    let mut row = vec![0; rows as usize];
    let memory = if comm.rank() == 0 {
        // SAFETY: the matrix has this many elements and lives long enough.
        unsafe { Span::new(matrix.as_mut_ptr().cast(), 1, &column) }
    } else {
        span(&mut row, INT)
    };
    world.bcast(&memory, 0, comm).unwrap();
    if comm.rank() > 0 {
        assert!(row.iter().enumerate().all(|(at, value)| *value == at as i32 * columns), "a column as a row");
    }
}
