//! The per-host agent.
