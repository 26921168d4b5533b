//! Tests of the skip engine.
