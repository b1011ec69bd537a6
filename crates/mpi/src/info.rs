//! Info objects: ordered pairs of text that programs hand over as hints (chapter 9 of the standard).

use crate::error::{Class, Error, Result};

/// Most characters of a key.
pub const MAX_KEY: usize = 255;
/// Most characters of a value.
pub const MAX_VALUE: usize = 1024;

/// Keys with values, in the order in which the keys were first set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pairs: Vec<(String, String)>,
}

impl Info {
    /// Without keys.
    pub fn new() -> Info {
        Info::default()
    }

    /// Sets a key, which keeps its place if it has one.
    ///
    /// # Errors
    /// [`Class::InfoKey`], [`Class::InfoValue`]: empty or too long.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        check(key, MAX_KEY, Class::InfoKey)?;
        check(value, MAX_VALUE, Class::InfoValue)?;
        match self.pairs.iter_mut().find(|(known, _)| known == key) {
            Some(pair) => pair.1 = value.to_owned(),
            None => self.pairs.push((key.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Takes a key out.
    ///
    /// # Errors
    /// [`Class::InfoNokey`]: it is not there.
    pub fn delete(&mut self, key: &str) -> Result<()> {
        let at = self.pairs.iter().position(|(known, _)| known == key);
        let at = at.ok_or_else(|| Error::new(Class::InfoNokey, format!("no key {key:?}")))?;
        self.pairs.remove(at);
        Ok(())
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The key with a number.
    ///
    /// # Errors
    /// [`Class::Arg`]: there are not so many.
    pub fn key(&self, number: usize) -> Result<&str> {
        let pair = self.pairs.get(number);
        pair.map(|(key, _)| key.as_str())
            .ok_or_else(|| Error::new(Class::Arg, format!("key {number} of {}", self.len())))
    }
}

fn check(text: &str, most: usize, class: Class) -> Result<()> {
    match text.len() {
        0 => Err(Error::new(class, "it is empty")),
        len if len > most => Err(Error::new(class, format!("{len} characters, {most} are allowed"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_their_order() {
        let mut info = Info::new();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3")] {
            info.set(key, value).unwrap();
        }
        assert_eq!((info.len(), info.key(0).unwrap(), info.key(1).unwrap()), (2, "b", "a"));
        assert_eq!((info.get("b"), info.get("c")), (Some("3"), None));
        info.delete("b").unwrap();
        assert_eq!(info.key(0).unwrap(), "a");
        assert_eq!(info.delete("b").unwrap_err().class(), Class::InfoNokey);
        assert_eq!(info.key(1).unwrap_err().class(), Class::Arg);
    }

    #[test]
    fn text_that_is_empty_or_too_long_is_refused() {
        let mut info = Info::new();
        assert_eq!(info.set("", "x").unwrap_err().class(), Class::InfoKey);
        assert_eq!(info.set(&"k".repeat(MAX_KEY + 1), "x").unwrap_err().class(), Class::InfoKey);
        assert_eq!(info.set("k", &"v".repeat(MAX_VALUE + 1)).unwrap_err().class(), Class::InfoValue);
        info.set(&"k".repeat(MAX_KEY), &"v".repeat(MAX_VALUE)).unwrap();
    }
}
