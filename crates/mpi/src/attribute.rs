//! Attributes: values that a program attaches to a communicator or a type under keys of its own (section 6.7 of the standard).
//!
//! A key is what the program's functions for copying and deleting are kept under, of type `F` here; calling them is the
//! C library's. An attribute keeps its functions alive, so a key that was freed still works where it is attached.

use std::sync::Arc;

/// An attached value.
#[derive(Debug)]
pub struct Attribute<F> {
    key: i32,
    functions: Arc<F>,
    value: usize,
}

impl<F> Clone for Attribute<F> {
    fn clone(&self) -> Self {
        Attribute { key: self.key, functions: self.functions.clone(), value: self.value }
    }
}

impl<F> Attribute<F> {
    /// The handle of its key.
    pub fn key(&self) -> i32 {
        self.key
    }

    /// The functions of its key.
    pub fn functions(&self) -> &F {
        &self.functions
    }

    /// The value: a pointer of C, or a number of Fortran.
    pub fn value(&self) -> usize {
        self.value
    }

    /// An attribute with the same key and another value, for a copy of the object.
    pub fn with_value(&self, value: usize) -> Attribute<F> {
        Attribute { value, ..self.clone() }
    }
}

/// The attributes of one object, in the order in which they were first set.
#[derive(Debug)]
pub struct Attributes<F> {
    list: Vec<Attribute<F>>,
}

impl<F> Default for Attributes<F> {
    fn default() -> Self {
        Attributes { list: Vec::new() }
    }
}

impl<F> Attributes<F> {
    /// Attaches a value, in place of one that is there.
    pub fn set(&mut self, key: i32, functions: Arc<F>, value: usize) {
        self.insert(Attribute { key, functions, value });
    }

    /// Attaches an attribute, in place of one with its key.
    pub fn insert(&mut self, attribute: Attribute<F>) {
        match self.list.iter_mut().find(|known| known.key == attribute.key) {
            Some(known) => *known = attribute,
            None => self.list.push(attribute),
        }
    }

    /// The attribute with a key.
    pub fn get(&self, key: i32) -> Option<&Attribute<F>> {
        self.list.iter().find(|attribute| attribute.key == key)
    }

    /// Takes the attribute with a key out.
    pub fn remove(&mut self, key: i32) -> Option<Attribute<F>> {
        let at = self.list.iter().position(|attribute| attribute.key == key)?;
        Some(self.list.remove(at))
    }

    /// All of them, the last one first: the order in which an object that ends deletes them.
    pub fn last_first(&self) -> Vec<Attribute<F>> {
        self.list.iter().rev().cloned().collect()
    }

    /// All of them, the first one first: the order in which they are copied.
    pub fn in_order(&self) -> Vec<Attribute<F>> {
        self.list.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attribute_is_replaced_in_its_place() {
        let mut attributes = Attributes::default();
        for (key, value) in [(5, 1), (3, 2), (5, 9)] {
            attributes.set(key, Arc::new("functions"), value);
        }
        let all: Vec<_> = attributes.in_order().iter().map(|one| (one.key(), one.value())).collect();
        assert_eq!(all, [(5, 9), (3, 2)]);
        assert_eq!(attributes.last_first()[0].key(), 3);
        assert_eq!(attributes.remove(5).map(|one| one.value()), Some(9));
        assert!(attributes.get(5).is_none() && attributes.remove(5).is_none());
    }

    #[test]
    fn an_attribute_keeps_the_functions_of_a_freed_key() {
        let functions = Arc::new("functions");
        let mut attributes = Attributes::default();
        attributes.set(1, functions.clone(), 7);
        drop(functions);
        let copy = attributes.get(1).unwrap().with_value(8);
        assert_eq!((*copy.functions(), copy.value(), copy.key()), ("functions", 8, 1));
    }
}
