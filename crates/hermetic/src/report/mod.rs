//! How tests ended, for people and for tools: lines as libtest writes them, a line of progress, and JUnit's XML.

pub mod junit;
pub(crate) mod progress;
pub(crate) mod results;
pub(crate) mod tested;
