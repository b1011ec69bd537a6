//! Which basic types a datatype consists of, in order: what `MPI_Get_elements` counts and reductions ask for.

use std::sync::Arc;

use super::basic::Basic;

/// The sequence of basic types of a datatype, without their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    bytes: usize,
    elements: usize,
    form: Form,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Basic(Basic),
    Repeat(Arc<Signature>),
    Sequence(Arc<[Signature]>),
}

impl Signature {
    /// One element.
    pub(super) fn of(basic: Basic) -> Signature {
        Signature { bytes: basic.size, elements: usize::from(basic.size > 0), form: Form::Basic(basic) }
    }

    /// The signature `count` times.
    pub(super) fn repeated(&self, count: usize) -> Signature {
        if count == 1 {
            return self.clone();
        }
        let inner = match &self.form {
            Form::Repeat(inner) => inner.clone(),
            _ => Arc::new(self.clone()),
        };
        Signature { bytes: self.bytes * count, elements: self.elements * count, form: Form::Repeat(inner) }
    }

    /// One signature after the other.
    pub(super) fn sequence(parts: impl IntoIterator<Item = Signature>) -> Signature {
        let mut parts: Vec<_> = parts.into_iter().filter(|part| part.elements > 0).collect();
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let elements = parts.iter().map(|part| part.elements).sum();
        Signature { bytes, elements, form: Form::Sequence(parts.into()) }
    }

    /// How many basic elements the type has.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Calls `visit` for every basic element, in order.
    pub fn each(&self, visit: &mut impl FnMut(Basic)) {
        match &self.form {
            Form::Basic(basic) => visit(*basic),
            Form::Repeat(inner) => {
                let times = self.elements.checked_div(inner.elements).unwrap_or(0);
                (0..times).for_each(|_| inner.each(visit));
            }
            Form::Sequence(parts) => parts.iter().for_each(|part| part.each(visit)),
        }
    }

    /// How many whole basic elements the first `bytes` bytes of the packed form of many such types are. None: the bytes
    /// end in the middle of an element.
    pub fn elements_in(&self, bytes: usize) -> Option<usize> {
        if self.bytes == 0 {
            return (bytes == 0).then_some(0);
        }
        let whole = bytes / self.bytes * self.elements;
        Some(whole + self.elements_of_part(bytes % self.bytes)?)
    }

    /// As [`Signature::elements_in`], for less than one type.
    fn elements_of_part(&self, bytes: usize) -> Option<usize> {
        if bytes == 0 {
            return Some(0);
        }
        match &self.form {
            Form::Basic(_) => None,
            Form::Repeat(inner) => inner.elements_in(bytes),
            Form::Sequence(parts) => {
                let (mut left, mut elements) = (bytes, 0);
                for part in parts.iter() {
                    if left < part.bytes {
                        return Some(elements + part.elements_of_part(left)?);
                    }
                    left -= part.bytes;
                    elements += part.elements;
                }
                Some(elements)
            }
        }
    }

    /// The basic type that all elements have. None without elements, or if they differ.
    pub fn only(&self) -> Option<Basic> {
        match &self.form {
            Form::Basic(basic) => Some(*basic),
            Form::Repeat(inner) => inner.only(),
            Form::Sequence(parts) => {
                let first = parts.first()?.only()?;
                parts.iter().all(|part| part.only() == Some(first)).then_some(first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::basic::find;
    use super::*;

    #[test]
    fn elements_are_counted_up_to_any_byte() {
        let (int, double) =
            (Signature::of(find(0x4c000405).unwrap()), Signature::of(find(0x4c00080b).unwrap()));
        let mixed = Signature::sequence([int.repeated(3), double.clone()]);
        assert_eq!((mixed.bytes, mixed.elements), (20, 4));
        assert_eq!(mixed.elements_in(0), Some(0));
        assert_eq!(mixed.elements_in(8), Some(2));
        assert_eq!(mixed.elements_in(12), Some(3));
        assert_eq!(mixed.elements_in(16), None);
        assert_eq!(mixed.elements_in(44), Some(9));
        assert_eq!(mixed.repeated(10).elements_in(44), Some(9));
        assert_eq!(mixed.only(), None);
        assert_eq!(double.repeated(4).only(), find(0x4c00080b));
    }

    #[test]
    fn every_element_is_visited_in_order() {
        let (int, double) =
            (Signature::of(find(0x4c000405).unwrap()), Signature::of(find(0x4c00080b).unwrap()));
        let mixed = Signature::sequence([int.repeated(2), double]).repeated(2);
        let mut sizes = Vec::new();
        mixed.each(&mut |basic| sizes.push(basic.size));
        assert_eq!(sizes, [4, 4, 8, 4, 4, 8]);
    }

    #[test]
    fn a_type_without_bytes_has_no_elements() {
        let none = Signature::sequence([]);
        assert_eq!((none.elements_in(0), none.elements_in(1), none.only()), (Some(0), None, None));
    }
}
