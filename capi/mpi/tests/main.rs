//! The library as programs see it.
