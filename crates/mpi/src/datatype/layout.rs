//! Where the bytes of a datatype lie: a short program of blocks, strides and sequences, in the order of the type map.
//!
//! The packed form of a message is the bytes of the blocks one after the other. [`Layout::visit`] starts at any byte of
//! that form and stops at any other, so a message can be packed and unpacked in pieces of any length. Constructors join
//! neighbouring blocks, so that a contiguous type is one block however it was built.

use std::sync::Arc;

/// The places of a type's bytes, relative to the address of the buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    disp: i64,
    size: usize,
    shape: Shape,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// `size` bytes.
    Block,
    /// Blocks of `len` bytes.
    Strided { len: usize, stride: i64, count: usize },
    /// Copies of something that is more than a block.
    Repeat { inner: Arc<Layout>, stride: i64, count: usize },
    /// One part after the other.
    Sequence(Arc<[Part]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// Where the part begins in the packed form.
    start: usize,
    layout: Layout,
}

/// Equal blocks at equal distances. A single block has a `count` of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first byte of the first block, relative to the address of the buffer.
    pub disp: i64,
    /// The length of a block in bytes.
    pub len: usize,
    /// From one block to the next.
    pub stride: i64,
    /// How many blocks.
    pub count: usize,
}

impl Layout {
    /// No bytes at all.
    pub const EMPTY: Layout = Layout { disp: 0, size: 0, shape: Shape::Block };

    /// `len` bytes in one piece.
    pub fn block(disp: i64, len: usize) -> Layout {
        if len == 0 { Layout::EMPTY } else { Layout { disp, size: len, shape: Shape::Block } }
    }

    /// The length of the packed form.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The one block that the layout consists of, as displacement and length.
    pub fn as_block(&self) -> Option<(i64, usize)> {
        matches!(self.shape, Shape::Block).then_some((self.disp, self.size))
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        match &self.shape {
            Shape::Block => usize::from(self.size > 0),
            Shape::Strided { count, .. } => *count,
            Shape::Repeat { inner, count, .. } => inner.blocks().saturating_mul(*count),
            Shape::Sequence(parts) => parts.iter().map(|part| part.layout.blocks()).sum(),
        }
    }

    /// The layout with every displacement larger by `by`.
    pub fn shifted(mut self, by: i64) -> Layout {
        if self.size > 0 {
            self.disp += by;
        }
        self
    }

    /// `count` copies, `stride` bytes apart.
    pub fn repeated(self, count: usize, stride: i64) -> Layout {
        if count == 0 || self.size == 0 {
            return Layout::EMPTY;
        }
        if count == 1 {
            return self;
        }
        let size = self.size * count;
        let shape = match self.shape {
            Shape::Block if stride == self.size as i64 => Shape::Block,
            Shape::Block => Shape::Strided { len: self.size, stride, count },
            Shape::Strided { len, stride: own, count: times } if stride == own * times as i64 => {
                Shape::Strided { len, stride: own, count: times * count }
            }
            shape => {
                let inner = Arc::new(Layout { disp: 0, size: self.size, shape });
                Shape::Repeat { inner, stride, count }
            }
        };
        Layout { disp: self.disp, size, shape }
    }

    /// One layout after the other.
    pub fn sequence(layouts: impl IntoIterator<Item = Layout>) -> Layout {
        let mut parts: Vec<Layout> = Vec::new();
        for layout in layouts {
            if layout.size == 0 {
                continue;
            }
            if let Some(last) = parts.last_mut()
                && last.absorb(&layout)
            {
                continue;
            }
            parts.push(layout);
        }
        match parts.len() {
            0 => Layout::EMPTY,
            1 => parts.remove(0),
            _ => evenly_spaced(&parts).unwrap_or_else(|| in_order(parts)),
        }
    }

    /// Takes over a block that begins where this one ends. False: it does not.
    fn absorb(&mut self, next: &Layout) -> bool {
        let joins = matches!((&self.shape, &next.shape), (Shape::Block, Shape::Block))
            && next.disp == self.disp + self.size as i64;
        if joins {
            self.size += next.size;
        }
        joins
    }

    /// Calls `visit` for the blocks that hold the bytes `from..to` of the packed form, in order.
    ///
    /// A block that is cut by `from` or `to` comes as a run of its own. `to` is at most the size.
    pub fn visit(&self, from: usize, to: usize, visit: &mut impl FnMut(Run)) {
        debug_assert!(to <= self.size, "{to} of {}", self.size);
        self.visit_at(0, from, to.min(self.size), visit);
    }

    /// As [`Layout::visit`], for `count` copies of the layout that are `extent` bytes apart.
    pub fn visit_all(&self, count: usize, extent: i64, from: usize, to: usize, visit: &mut impl FnMut(Run)) {
        match &self.shape {
            Shape::Block => blocks(self.disp, self.size, extent, count, from, to, visit),
            _ => copies(self, 0, extent, count, from, to, visit),
        }
    }

    fn visit_at(&self, shift: i64, from: usize, to: usize, visit: &mut impl FnMut(Run)) {
        if from >= to {
            return;
        }
        let disp = shift + self.disp;
        match &self.shape {
            Shape::Block => visit(Run { disp: disp + from as i64, len: to - from, stride: 0, count: 1 }),
            Shape::Strided { len, stride, count } => blocks(disp, *len, *stride, *count, from, to, visit),
            Shape::Repeat { inner, stride, count } => copies(inner, disp, *stride, *count, from, to, visit),
            Shape::Sequence(parts) => {
                let first = parts.partition_point(|part| part.start <= from) - 1;
                for part in &parts[first..] {
                    if part.start >= to {
                        break;
                    }
                    let begin = from.saturating_sub(part.start);
                    let end = (to - part.start).min(part.layout.size);
                    part.layout.visit_at(disp, begin, end, visit);
                }
            }
        }
    }

    /// The lowest and the highest displacement of any byte, the latter exclusive. None without bytes.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        if self.size == 0 {
            return None;
        }
        let spread = |low: i64, high: i64, stride: i64, count: usize| {
            let far = stride * (count as i64 - 1);
            (low + far.min(0), high + far.max(0))
        };
        let (low, high) = match &self.shape {
            Shape::Block => (0, self.size as i64),
            Shape::Strided { len, stride, count } => spread(0, *len as i64, *stride, *count),
            Shape::Repeat { inner, stride, count } => {
                let (low, high) = inner.bounds()?;
                spread(low, high, *stride, *count)
            }
            Shape::Sequence(parts) => {
                let bounds = parts.iter().filter_map(|part| part.layout.bounds());
                bounds.reduce(|one, two| (one.0.min(two.0), one.1.max(two.1)))?
            }
        };
        Some((self.disp + low, self.disp + high))
    }
}

/// Blocks of one length at one distance become a strided shape.
fn evenly_spaced(parts: &[Layout]) -> Option<Layout> {
    let (first, second) = (&parts[0], &parts[1]);
    let stride = second.disp - first.disp;
    let even = parts.iter().enumerate().all(|(index, part)| {
        matches!(part.shape, Shape::Block)
            && part.size == first.size
            && part.disp == first.disp + stride * index as i64
    });
    let shape = Shape::Strided { len: first.size, stride, count: parts.len() };
    even.then(|| Layout { disp: first.disp, size: first.size * parts.len(), shape })
}

fn in_order(layouts: Vec<Layout>) -> Layout {
    let mut size = 0;
    let part = |layout: Layout| {
        let start = size;
        size += layout.size;
        Part { start, layout }
    };
    let parts = layouts.into_iter().map(part).collect();
    Layout { disp: 0, size, shape: Shape::Sequence(parts) }
}

/// Blocks of `len` bytes from `disp` on: a cut one, whole ones in one run, a cut one.
fn blocks(
    disp: i64,
    len: usize,
    stride: i64,
    count: usize,
    from: usize,
    to: usize,
    visit: &mut impl FnMut(Run),
) {
    let to = to.min(len * count);
    if from >= to {
        return;
    }
    if stride == len as i64 {
        return visit(Run { disp: disp + from as i64, len: to - from, stride: 0, count: 1 });
    }
    let at = |index: usize| disp + stride * index as i64;
    let (mut index, cut) = (from / len, from % len);
    if cut > 0 {
        let end = to.min((index + 1) * len);
        visit(Run { disp: at(index) + cut as i64, len: end - from, stride: 0, count: 1 });
        index += 1;
    }
    let whole = (to / len).saturating_sub(index);
    if whole > 0 {
        visit(Run { disp: at(index), len, stride, count: whole });
        index += whole;
    }
    let done = index * len;
    if to > done {
        visit(Run { disp: at(index), len: to - done, stride: 0, count: 1 });
    }
}

/// Copies of a layout from `disp` on.
fn copies(
    inner: &Layout,
    disp: i64,
    stride: i64,
    count: usize,
    from: usize,
    to: usize,
    visit: &mut impl FnMut(Run),
) {
    let to = to.min(inner.size * count);
    let mut at = from;
    while at < to {
        let index = at / inner.size;
        let base = index * inner.size;
        let end = (to - base).min(inner.size);
        inner.visit_at(disp + stride * index as i64, at - base, end, visit);
        at = base + end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(layout: &Layout, from: usize, to: usize) -> Vec<i64> {
        let mut all = Vec::new();
        layout.visit(from, to, &mut |run: Run| {
            for block in 0..run.count as i64 {
                all.extend((0..run.len as i64).map(|byte| run.disp + block * run.stride + byte));
            }
        });
        all
    }

    #[test]
    fn neighbours_become_one_block() {
        let joined = Layout::sequence([Layout::block(0, 4), Layout::EMPTY, Layout::block(4, 8)]);
        assert_eq!((joined.as_block(), joined.blocks()), (Some((0, 12)), 1));
        assert_eq!(Layout::block(8, 4).repeated(5, 4).as_block(), Some((8, 20)));
    }

    #[test]
    fn equal_distances_become_a_stride() {
        let parts = [0, 10, 20, 30].map(|disp| Layout::block(disp, 3));
        assert_eq!(Layout::sequence(parts), Layout::block(0, 3).repeated(4, 10));
        let twice = Layout::block(0, 3).repeated(4, 10).repeated(2, 40);
        assert_eq!((twice.blocks(), &twice), (8, &Layout::block(0, 3).repeated(8, 10)));
    }

    #[test]
    fn any_piece_of_the_packed_form_is_found() {
        let rows = Layout::block(0, 3).repeated(2, 5).repeated(3, -20);
        let mixed = Layout::sequence([Layout::block(100, 2), rows.shifted(7), Layout::block(-50, 1)]);
        let whole = bytes(&mixed, 0, mixed.size());
        assert_eq!(whole.len(), 21);
        assert_eq!(whole[..4], [100, 101, 7, 8]);
        for from in 0..=whole.len() {
            for to in from..=whole.len() {
                assert_eq!(bytes(&mixed, from, to), whole[from..to], "{from}..{to}");
            }
        }
    }

    #[test]
    fn bounds_follow_negative_strides() {
        let rows = Layout::block(0, 3).repeated(3, -20);
        assert_eq!(rows.bounds(), Some((-40, 3)));
        assert_eq!(Layout::EMPTY.bounds(), None);
        let mixed = Layout::sequence([rows.shifted(5), Layout::block(90, 2)]);
        assert_eq!(mixed.bounds(), Some((-35, 92)));
    }

    #[test]
    fn copies_of_a_block_that_fills_its_extent_are_one_run() {
        let mut runs = Vec::new();
        Layout::block(0, 8).visit_all(1000, 8, 5, 7999, &mut |run| runs.push(run));
        assert_eq!(runs, [Run { disp: 5, len: 7994, stride: 0, count: 1 }]);
    }
}
