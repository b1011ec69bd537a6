//! Constructors against a naive type map: a list of bytes and markers, built by the letter of the standard.

use proptest::prelude::*;

use super::super::{Run, basic};
use super::*;

/// A type by the letter of the standard.
#[derive(Clone, Debug)]
struct Map {
    bytes: Vec<i64>,
    lower_marks: Vec<i64>,
    upper_marks: Vec<i64>,
    /// Beginning, end and alignment of each basic element.
    elements: Vec<(i64, i64, i64)>,
    pad: bool,
}

impl Map {
    fn of(size: i64, align: i64) -> Map {
        let (bytes, elements) = ((0..size).collect(), vec![(0, size, align)]);
        Map { bytes, lower_marks: vec![], upper_marks: vec![], elements, pad: false }
    }

    fn lower(&self) -> i64 {
        let marks = self.lower_marks.iter().min();
        *marks.unwrap_or(&self.elements.iter().map(|element| element.0).min().unwrap_or(0))
    }

    fn upper(&self) -> i64 {
        if let Some(mark) = self.upper_marks.iter().max() {
            return *mark;
        }
        let end = self.elements.iter().map(|element| element.1).max().unwrap_or(0);
        let align = self.elements.iter().map(|element| element.2).max().unwrap_or(1);
        let lower = self.lower();
        if self.pad { lower + (end - lower + align - 1) / align * align } else { end }
    }

    fn extent(&self) -> i64 {
        self.upper() - self.lower()
    }

    fn placed(&self, disps: &[i64]) -> Map {
        let mut all =
            Map { bytes: vec![], lower_marks: vec![], upper_marks: vec![], elements: vec![], pad: false };
        for disp in disps {
            all.bytes.extend(self.bytes.iter().map(|byte| byte + disp));
            all.lower_marks.extend(self.lower_marks.iter().map(|mark| mark + disp));
            all.upper_marks.extend(self.upper_marks.iter().map(|mark| mark + disp));
            let moved = |element: &(i64, i64, i64)| (element.0 + disp, element.1 + disp, element.2);
            all.elements.extend(self.elements.iter().map(moved));
        }
        // The upper bound of a padded struct stays where it is in types made of it.
        if self.pad && self.upper_marks.is_empty() {
            let align = self.elements.iter().map(|element| element.2).max().unwrap_or(1);
            all.elements.extend(disps.iter().map(|disp| (disp + self.lower(), disp + self.upper(), align)));
        }
        all
    }
}

fn int() -> Datatype {
    Datatype::of_basic(basic::find(0x4c000405).unwrap())
}

fn double() -> Datatype {
    Datatype::of_basic(basic::find(0x4c00080b).unwrap())
}

fn places(kind: &Datatype) -> Vec<i64> {
    let mut all = Vec::new();
    kind.layout().visit(0, kind.size(), &mut |run: Run| {
        for block in 0..run.count as i64 {
            all.extend((0..run.len as i64).map(|byte| run.disp + block * run.stride + byte));
        }
    });
    all
}

/// A random type with its naive map.
fn types() -> impl Strategy<Value = (Datatype, Map)> {
    let leaf = prop_oneof![
        Just((int(), Map::of(4, 4))),
        Just((double(), Map::of(8, 8))),
        Just((Datatype::of_basic(basic::find(0x4c000101).unwrap()), Map::of(1, 1))),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        prop_oneof![
            (inner.clone(), 1..4i32).prop_map(|((old, map), count)| {
                let disps: Vec<_> = (0..i64::from(count)).map(|index| index * map.extent()).collect();
                (contiguous(count, &old).unwrap(), map.placed(&disps))
            }),
            (inner.clone(), 1..4i32, 1..3i32, -5..6i64).prop_map(|((old, map), count, block, stride)| {
                let stride = stride * 8;
                let mut disps = Vec::new();
                for row in 0..i64::from(count) {
                    disps.extend((0..i64::from(block)).map(|item| row * stride + item * map.extent()));
                }
                (hvector(count, block, stride, &old).unwrap(), map.placed(&disps))
            }),
            (inner.clone(), proptest::collection::vec((1..3i32, -9..9i32), 1..4)).prop_map(
                |((old, map), list)| {
                    let (blocks, at): (Vec<_>, Vec<_>) = list.into_iter().unzip();
                    let mut disps = Vec::new();
                    for (block, disp) in blocks.iter().zip(&at) {
                        let first = i64::from(*disp) * map.extent();
                        disps.extend((0..i64::from(*block)).map(|item| first + item * map.extent()));
                    }
                    (indexed(&blocks, &at, &old).unwrap(), map.placed(&disps))
                }
            ),
            (inner.clone(), -16..16i64, 1..64i64).prop_map(|((old, map), lower, extent)| {
                let marked = Map { lower_marks: vec![lower], upper_marks: vec![lower + extent], ..map };
                (resized(&old, lower, extent), marked)
            }),
            (inner.clone(), inner, -40..40i64).prop_map(|((one, map), (two, other), disp)| {
                let made = structure(&[1, 1], &[0, disp], &[one, two]).unwrap();
                let (mut all, right) = (map.placed(&[0]), other.placed(&[disp]));
                all.bytes.extend(right.bytes);
                all.lower_marks.extend(right.lower_marks);
                all.upper_marks.extend(right.upper_marks);
                all.elements.extend(right.elements);
                all.pad = true;
                (made, all)
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }) })]

    #[test]
    fn constructors_follow_the_type_map((made, map) in types()) {
        prop_assert_eq!(places(&made), map.bytes.clone());
        prop_assert_eq!(made.size(), map.bytes.len());
        prop_assert_eq!((made.lower(), made.extent()), (map.lower(), map.extent()));
        let low = map.bytes.iter().min().copied().unwrap_or(0);
        let high = map.bytes.iter().max().map_or(0, |byte| byte + 1);
        prop_assert_eq!(made.true_extent(), (low, high - low));
    }
}

#[test]
fn a_vector_is_counted_in_extents() {
    let column = vector(3, 2, 5, &int()).unwrap();
    assert_eq!(column.size(), 24);
    assert_eq!((column.lower(), column.extent()), (0, 48));
    assert_eq!(column.layout().as_block(), None);
    assert_eq!(contiguous(4, &int()).unwrap().contiguous(9), Some(0));
}

#[test]
fn a_subarray_keeps_the_extent_of_the_array() {
    let box_c = subarray(&[4, 6], &[2, 3], &[1, 2], ORDER_C, &int()).unwrap();
    let want: Vec<i64> = [8, 9, 10, 14, 15, 16].iter().flat_map(|i| (i * 4)..(i * 4 + 4)).collect();
    assert_eq!(places(&box_c), want);
    assert_eq!(box_c.extent(), 96);
    let box_f = subarray(&[6, 4], &[3, 2], &[2, 1], ORDER_FORTRAN, &int()).unwrap();
    assert_eq!(places(&box_f), want);
    assert!(subarray(&[4], &[3], &[2], ORDER_C, &int()).is_err());
    assert!(subarray(&[4], &[3], &[1], 7, &int()).is_err());
}

#[test]
fn a_struct_is_padded_as_the_compiler_does_it() {
    let made = structure(&[1, 1], &[0, 8], &[double(), int()]).unwrap();
    assert_eq!((made.size(), made.extent()), (12, 16));
    let markers = [0x4c000010, 0x4c000011].map(|handle| Datatype::of_basic(basic::find(handle).unwrap()));
    let [lower, upper] = markers;
    let marked = structure(&[1, 1, 1], &[-8, 0, 40], &[lower, int(), upper]).unwrap();
    assert_eq!((marked.lower(), marked.extent(), marked.size()), (-8, 48, 4));
}

#[test]
fn pairs_are_laid_out_as_in_c() {
    let sizes = |name: &str| {
        let pair = Datatype::predefined().iter().find(|kind| kind.name() == Some(name)).unwrap().clone();
        (pair.size(), pair.extent(), pair.true_extent().1)
    };
    assert_eq!(sizes("MPI_SHORT_INT"), (6, 8, 8));
    assert_eq!(sizes("MPI_DOUBLE_INT"), (12, 16, 12));
    assert_eq!(sizes("MPI_LONG_DOUBLE_INT"), (20, 32, 20));
    assert_eq!(sizes("MPI_2INT"), (8, 8, 8));
}

#[test]
fn recipes_tell_the_call_and_its_arguments() {
    let made = indexed(&[1, 2], &[5, 9], &int()).unwrap();
    let recipe = made.recipe();
    assert_eq!((recipe.combiner, recipe.integers.as_slice()), (Combiner::Indexed, &[2, 1, 2, 5, 9][..]));
    assert_eq!(recipe.types[0].name(), Some("MPI_INT"));
    assert_eq!(dup(&made).recipe().combiner, Combiner::Dup);
    assert_eq!(int().recipe().combiner, Combiner::Named);
}

#[test]
fn negative_counts_and_impossible_sizes_are_refused() {
    assert_eq!(contiguous(-1, &int()).unwrap_err().class(), Class::Count);
    let large = contiguous(i32::MAX, &double()).unwrap();
    let larger = contiguous(i32::MAX, &large).unwrap_err();
    assert_eq!(larger.class(), Class::Arg);
    assert_eq!(contiguous(0, &int()).unwrap().size(), 0);
}
