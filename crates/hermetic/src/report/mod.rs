//! Reports on tests, for people and tools: libtest's lines, a progress line, and JUnit's XML.

pub mod junit;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod tested;
pub(crate) mod xml;
