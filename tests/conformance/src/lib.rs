//! One suite of tests for every provider.
