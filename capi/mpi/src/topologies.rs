//! Process topologies: grids and graphs over the ranks of a communicator.

use std::ffi::c_int;

use viaduct_mpi::error::{Class, Error, Result};
use viaduct_mpi::topology::{Adjacent, Cart, Graph, Topology, dims_create};

use crate::abi::{Buffer, COMM_NULL, PROC_NULL, Place, UNDEFINED, natural};
use crate::data::{beginning, span};
use crate::errors::{call, pure};
use crate::objects::{CommObject, Held, add_comm, comm};
use crate::state::Process;

/// `MPI_INT`.
const INT: u32 = 0x4c00_0405;

fn none(what: &str) -> Error {
    Error::new(Class::Topology, format!("the communicator has no {what} topology"))
}

fn cart(object: &CommObject) -> Result<&Cart> {
    match &object.topology {
        Some(Topology::Cart(cart)) => Ok(cart),
        _ => Err(none("Cartesian")),
    }
}

fn graph(object: &CommObject) -> Result<&Graph> {
    match &object.topology {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => Err(none("graph")),
    }
}

fn adjacent(object: &CommObject) -> Result<&Adjacent> {
    match &object.topology {
        Some(Topology::DistGraph(adjacent)) => Ok(adjacent),
        _ => Err(none("distributed graph")),
    }
}

/// A communicator of the first `size` ranks with a topology; null for the others.
fn arranged(
    process: &'static Process,
    parent: &Held<CommObject>,
    size: usize,
    topology: Topology,
) -> Result<u32> {
    if size > parent.comm.size() as usize {
        let cause = format!("{size} places for {} ranks", parent.comm.size());
        return Err(Error::new(Class::Arg, cause));
    }
    let ranks: Vec<c_int> = (0..size as c_int).collect();
    let group = parent.comm.group().include(&ranks)?;
    let made = process.world.comm_create(&parent.comm, &group)?;
    made.map_or(Ok(COMM_NULL), |made| add_comm(parent.child(made, Some(topology))))
}

fn grid(ndims: c_int, dims: Place<c_int>, periods: Place<c_int>) -> Result<Cart> {
    if ndims < 0 {
        return Err(Error::new(Class::Dims, format!("{ndims} dimensions")));
    }
    let periods: Vec<bool> = periods.list(ndims)?.iter().map(|period| *period != 0).collect();
    Cart::new(dims.list(ndims)?, &periods)
}

pub(crate) fn mpi_cart_create(
    comm_old: u32,
    ndims: c_int,
    dims: Place<c_int>,
    periods: Place<c_int>,
    _reorder: c_int,
    comm_cart: Place<u32>,
) -> c_int {
    call("MPI_Cart_create", comm_old, |process| {
        let parent = comm(process, comm_old)?;
        let cart = grid(ndims, dims, periods)?;
        comm_cart.put(arranged(process, &parent, cart.size(), Topology::Cart(cart))?)
    })
}

pub(crate) fn mpi_cart_map(
    handle: u32,
    ndims: c_int,
    dims: Place<c_int>,
    periods: Place<c_int>,
    newrank: Place<c_int>,
) -> c_int {
    call("MPI_Cart_map", handle, |process| {
        let object = comm(process, handle)?;
        newrank.put(mapped(&object, grid(ndims, dims, periods)?.size())?)
    })
}

/// The rank in a topology of `size` places: the same, or none.
fn mapped(object: &CommObject, size: usize) -> Result<c_int> {
    if size > object.comm.size() as usize {
        return Err(Error::new(Class::Arg, format!("{size} places for {} ranks", object.comm.size())));
    }
    let rank = object.comm.rank();
    Ok(if (rank as usize) < size { rank } else { UNDEFINED })
}

pub(crate) fn mpi_cartdim_get(handle: u32, ndims: Place<c_int>) -> c_int {
    call("MPI_Cartdim_get", handle, |process| {
        ndims.put(cart(&*comm(process, handle)?)?.dims().len() as c_int)
    })
}

/// As many values as the program has room for, at least as many as there are.
fn copied(from: &[c_int], into: Place<c_int>, most: c_int) -> Result<()> {
    if (most as i64) < from.len() as i64 {
        return Err(Error::new(Class::Arg, format!("room for {most}, {} are needed", from.len())));
    }
    into.list_mut(from.len() as c_int)?.copy_from_slice(from);
    Ok(())
}

pub(crate) fn mpi_cart_get(
    handle: u32,
    maxdims: c_int,
    dims: Place<c_int>,
    periods: Place<c_int>,
    coords: Place<c_int>,
) -> c_int {
    call("MPI_Cart_get", handle, |process| {
        let object = comm(process, handle)?;
        let cart = cart(&object)?;
        copied(cart.dims(), dims, maxdims)?;
        let cyclic: Vec<c_int> = cart.periods().iter().map(|period| c_int::from(*period)).collect();
        copied(&cyclic, periods, maxdims)?;
        copied(&cart.coords(object.comm.rank())?, coords, maxdims)
    })
}

pub(crate) fn mpi_cart_rank(handle: u32, coords: Place<c_int>, rank: Place<c_int>) -> c_int {
    call("MPI_Cart_rank", handle, |process| {
        let object = comm(process, handle)?;
        let cart = cart(&object)?;
        rank.put(cart.rank(coords.list(cart.dims().len() as c_int)?)?)
    })
}

pub(crate) fn mpi_cart_coords(handle: u32, rank: c_int, maxdims: c_int, coords: Place<c_int>) -> c_int {
    call("MPI_Cart_coords", handle, |process| {
        let object = comm(process, handle)?;
        copied(&cart(&object)?.coords(rank)?, coords, maxdims)
    })
}

pub(crate) fn mpi_cart_shift(
    handle: u32,
    direction: c_int,
    disp: c_int,
    source: Place<c_int>,
    dest: Place<c_int>,
) -> c_int {
    call("MPI_Cart_shift", handle, |process| {
        let object = comm(process, handle)?;
        let direction = usize::try_from(direction)
            .map_err(|_| Error::new(Class::Arg, format!("direction {direction}")))?;
        let (from, to) = cart(&object)?.shift(object.comm.rank(), direction, disp)?;
        source.put(from.unwrap_or(PROC_NULL))?;
        dest.put(to.unwrap_or(PROC_NULL))
    })
}

pub(crate) fn mpi_cart_sub(handle: u32, remain_dims: Place<c_int>, newcomm: Place<u32>) -> c_int {
    call("MPI_Cart_sub", handle, |process| {
        let object = comm(process, handle)?;
        let cart = cart(&object)?;
        let remain = remain_dims.list(cart.dims().len() as c_int)?;
        let remain: Vec<bool> = remain.iter().map(|one| *one != 0).collect();
        let (part, color, key) = cart.sub(object.comm.rank(), &remain)?;
        let made = process.world.comm_split(&object.comm, Some(color), key)?;
        let made =
            made.map_or(Ok(COMM_NULL), |made| add_comm(object.child(made, Some(Topology::Cart(part)))))?;
        newcomm.put(made)
    })
}

pub(crate) fn mpi_dims_create(nnodes: c_int, ndims: c_int, dims: Place<c_int>) -> c_int {
    pure("MPI_Dims_create", || {
        if ndims < 0 {
            return Err(Error::new(Class::Dims, format!("{ndims} dimensions")));
        }
        if ndims == 0 { Ok(()) } else { dims_create(nnodes, dims.list_mut(ndims)?) }
    })
}

pub(crate) fn mpi_topo_test(handle: u32, status: Place<c_int>) -> c_int {
    call("MPI_Topo_test", handle, |process| {
        status.put(comm(process, handle)?.topology.as_ref().map_or(UNDEFINED, Topology::status))
    })
}

/// The lists of `MPI_Graph_create`.
fn listed(nnodes: c_int, index: Place<c_int>, edges: Place<c_int>) -> Result<Graph> {
    if nnodes < 0 {
        return Err(Error::new(Class::Arg, format!("{nnodes} nodes")));
    }
    let index = index.list(nnodes)?;
    Graph::new(index, edges.list(index.last().copied().unwrap_or(0).max(0))?)
}

pub(crate) fn mpi_graph_create(
    comm_old: u32,
    nnodes: c_int,
    index: Place<c_int>,
    edges: Place<c_int>,
    _reorder: c_int,
    comm_graph: Place<u32>,
) -> c_int {
    call("MPI_Graph_create", comm_old, |process| {
        let parent = comm(process, comm_old)?;
        let graph = listed(nnodes, index, edges)?;
        comm_graph.put(arranged(process, &parent, graph.index().len(), Topology::Graph(graph))?)
    })
}

pub(crate) fn mpi_graph_map(
    handle: u32,
    nnodes: c_int,
    index: Place<c_int>,
    edges: Place<c_int>,
    newrank: Place<c_int>,
) -> c_int {
    call("MPI_Graph_map", handle, |process| {
        let object = comm(process, handle)?;
        newrank.put(mapped(&object, listed(nnodes, index, edges)?.index().len())?)
    })
}

pub(crate) fn mpi_graphdims_get(handle: u32, nnodes: Place<c_int>, nedges: Place<c_int>) -> c_int {
    call("MPI_Graphdims_get", handle, |process| {
        let object = comm(process, handle)?;
        let graph = graph(&object)?;
        nnodes.put(graph.index().len() as c_int)?;
        nedges.put(graph.edges().len() as c_int)
    })
}

pub(crate) fn mpi_graph_get(
    handle: u32,
    maxindex: c_int,
    maxedges: c_int,
    index: Place<c_int>,
    edges: Place<c_int>,
) -> c_int {
    call("MPI_Graph_get", handle, |process| {
        let object = comm(process, handle)?;
        let graph = graph(&object)?;
        copied(graph.index(), index, maxindex)?;
        copied(graph.edges(), edges, maxedges)
    })
}

pub(crate) fn mpi_graph_neighbors_count(handle: u32, rank: c_int, nneighbors: Place<c_int>) -> c_int {
    call("MPI_Graph_neighbors_count", handle, |process| {
        let object = comm(process, handle)?;
        nneighbors.put(graph(&object)?.neighbours(rank)?.len() as c_int)
    })
}

pub(crate) fn mpi_graph_neighbors(
    handle: u32,
    rank: c_int,
    maxneighbors: c_int,
    neighbors: Place<c_int>,
) -> c_int {
    call("MPI_Graph_neighbors", handle, |process| {
        let object = comm(process, handle)?;
        let all = graph(&object)?.neighbours(rank)?;
        let some = &all[..all.len().min(natural(maxneighbors)?)];
        copied(some, neighbors, maxneighbors)
    })
}

/// What `MPI_UNWEIGHTED` and `MPI_WEIGHTS_EMPTY` point to; a program tells them by their addresses.
static UNWEIGHTED: c_int = 0;
static WEIGHTS_EMPTY: c_int = 0;

/// A pointer that C programs read as a constant.
#[repr(transparent)]
struct Mark(*const c_int);

// SAFETY: the address of a constant, which is never written.
unsafe impl Sync for Mark {}

/// The mark for edges without weights.
#[unsafe(no_mangle)]
static MPI_UNWEIGHTED: Mark = Mark(&raw const UNWEIGHTED);
/// The mark for an empty list of weights.
#[unsafe(no_mangle)]
static MPI_WEIGHTS_EMPTY: Mark = Mark(&raw const WEIGHTS_EMPTY);

/// The place of weights in Fortran, where the marks are common blocks.
pub(crate) fn unweighted() -> Place<c_int> {
    Place::new((&raw const UNWEIGHTED).cast_mut())
}

pub(crate) fn weights_empty() -> Place<c_int> {
    Place::new((&raw const WEIGHTS_EMPTY).cast_mut())
}

/// Weights; none if the program has none. MPICH takes a null pointer for that as well.
fn weights(list: Place<c_int>, count: c_int) -> Result<Option<Vec<c_int>>> {
    if list.address() == unweighted().address() || (list.is_null() && count > 0) {
        return Ok(None);
    }
    if list.address() == weights_empty().address() {
        return Ok(Some(Vec::new()));
    }
    Ok(Some(list.list(count)?.to_vec()))
}

fn ranks_of(object: &CommObject, ranks: &[c_int]) -> Result<()> {
    match ranks.iter().find(|rank| !(0..object.comm.size()).contains(*rank)) {
        Some(rank) => Err(Error::new(Class::Rank, format!("rank {rank} of {}", object.comm.size()))),
        None => Ok(()),
    }
}

pub(crate) fn mpi_dist_graph_create_adjacent(
    comm_old: u32,
    indegree: c_int,
    sources: Place<c_int>,
    sourceweights: Place<c_int>,
    outdegree: c_int,
    destinations: Place<c_int>,
    destweights: Place<c_int>,
    _info: u32,
    _reorder: c_int,
    comm_dist_graph: Place<u32>,
) -> c_int {
    call("MPI_Dist_graph_create_adjacent", comm_old, |process| {
        let parent = comm(process, comm_old)?;
        let (from, to) = (sources.list(indegree)?, destinations.list(outdegree)?);
        ranks_of(&parent, from)?;
        ranks_of(&parent, to)?;
        let weights = weights(sourceweights, indegree)?.zip(weights(destweights, outdegree)?);
        let edges = Adjacent { sources: from.to_vec(), destinations: to.to_vec(), weights };
        let made = parent.child(process.world.comm_dup(&parent.comm)?, Some(Topology::DistGraph(edges)));
        comm_dist_graph.put(add_comm(made)?)
    })
}

pub(crate) fn mpi_dist_graph_create(
    comm_old: u32,
    n: c_int,
    sources: Place<c_int>,
    degrees: Place<c_int>,
    destinations: Place<c_int>,
    edge_weights: Place<c_int>,
    _info: u32,
    _reorder: c_int,
    comm_dist_graph: Place<u32>,
) -> c_int {
    call("MPI_Dist_graph_create", comm_old, |process| {
        let parent = comm(process, comm_old)?;
        let (from, degrees) = (sources.list(n)?, degrees.list(n)?);
        let edges = degrees.iter().try_fold(0, |sum: c_int, one| sum.checked_add(*one).filter(|_| *one >= 0));
        let edges =
            edges.ok_or_else(|| Error::new(Class::Arg, "a degree is negative, or all are too many"))?;
        let to = destinations.list(edges)?;
        ranks_of(&parent, from)?;
        ranks_of(&parent, to)?;
        let weights = weights(edge_weights, edges)?;
        let starts = from.iter().zip(degrees).flat_map(|(rank, degree)| (0..*degree).map(move |_| *rank));
        let own: Vec<[c_int; 3]> = starts
            .zip(to)
            .enumerate()
            .map(|(at, (start, end))| {
                [start, *end, weights.as_ref().and_then(|weights| weights.get(at)).copied().unwrap_or(0)]
            })
            .collect();
        let all = gathered(process, &parent, &own)?;
        let adjacent = neighbours_of(parent.comm.rank(), &all, weights.is_some());
        let made = parent.child(process.world.comm_dup(&parent.comm)?, Some(Topology::DistGraph(adjacent)));
        comm_dist_graph.put(add_comm(made)?)
    })
}

/// The edges that all processes have named, in the order of ranks.
fn gathered(process: &'static Process, parent: &CommObject, own: &[[c_int; 3]]) -> Result<Vec<[c_int; 3]>> {
    let mine = own.len() as c_int * 3;
    let mut counts = vec![mine; parent.comm.size() as usize];
    let from = span(Buffer::at((&raw const mine).cast_mut().cast()), 1, INT)?;
    let into = span(Buffer::at(counts.as_mut_ptr().cast()), 1, INT)?;
    process.world.allgather(Some(&from), &into, &parent.comm)?;
    let displs: Vec<c_int> =
        counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect();
    let edges = counts.iter().map(|count| *count as usize).sum::<usize>() / 3;
    // One more, so that the buffer has an address without any edges as well.
    let mut all = vec![[0; 3]; edges + 1];
    let padded: Vec<[c_int; 3]> = own.iter().copied().chain([[0; 3]]).collect();
    let from = span(Buffer::at(padded.as_ptr().cast_mut().cast()), mine, INT)?;
    let into = beginning(Buffer::at(all.as_mut_ptr().cast()), INT)?;
    process.world.allgatherv(Some(&from), &into, &counts, &displs, &parent.comm)?;
    all.truncate(edges);
    Ok(all)
}

/// The edges of one rank.
fn neighbours_of(rank: c_int, all: &[[c_int; 3]], weighted: bool) -> Adjacent {
    let incoming: Vec<_> = all.iter().filter(|[_, end, _]| *end == rank).collect();
    let outgoing: Vec<_> = all.iter().filter(|[start, ..]| *start == rank).collect();
    let weights = |edges: &[&[c_int; 3]]| edges.iter().map(|edge| edge[2]).collect::<Vec<_>>();
    Adjacent {
        sources: incoming.iter().map(|edge| edge[0]).collect(),
        destinations: outgoing.iter().map(|edge| edge[1]).collect(),
        weights: weighted.then(|| (weights(&incoming), weights(&outgoing))),
    }
}

pub(crate) fn mpi_dist_graph_neighbors_count(
    handle: u32,
    indegree: Place<c_int>,
    outdegree: Place<c_int>,
    weighted: Place<c_int>,
) -> c_int {
    call("MPI_Dist_graph_neighbors_count", handle, |process| {
        let object = comm(process, handle)?;
        let edges = adjacent(&object)?;
        indegree.put(edges.sources.len() as c_int)?;
        outdegree.put(edges.destinations.len() as c_int)?;
        weighted.put(c_int::from(edges.weights.is_some()))
    })
}

/// Copies as many edges as the program asks for, with their weights if it has a place for these.
fn edges(
    ranks: &[c_int],
    weights: Option<&[c_int]>,
    most: c_int,
    into: Place<c_int>,
    weights_into: Place<c_int>,
) -> Result<()> {
    let count = ranks.len().min(natural(most)?);
    into.list_mut(count as c_int)?.copy_from_slice(&ranks[..count]);
    let marked = [unweighted().address(), weights_empty().address()].contains(&weights_into.address());
    if let Some(weights) = weights
        && !marked
        && !weights_into.is_null()
    {
        weights_into.list_mut(count as c_int)?.copy_from_slice(&weights[..count]);
    }
    Ok(())
}

pub(crate) fn mpi_dist_graph_neighbors(
    handle: u32,
    maxindegree: c_int,
    sources: Place<c_int>,
    sourceweights: Place<c_int>,
    maxoutdegree: c_int,
    destinations: Place<c_int>,
    destweights: Place<c_int>,
) -> c_int {
    call("MPI_Dist_graph_neighbors", handle, |process| {
        let object = comm(process, handle)?;
        let adjacent = adjacent(&object)?;
        let weights = adjacent.weights.as_ref();
        edges(
            &adjacent.sources,
            weights.map(|(one, _)| one.as_slice()),
            maxindegree,
            sources,
            sourceweights,
        )?;
        edges(
            &adjacent.destinations,
            weights.map(|(_, two)| two.as_slice()),
            maxoutdegree,
            destinations,
            destweights,
        )
    })
}
