//! Reports on tests, for people and tools: libtest's lines, a progress line, JUnit's XML, and a page for a
//! browser.

#[cfg(test)]
mod bounds;
pub mod html;
pub mod join;
pub mod junit;
pub(crate) mod progress;
pub mod record;
pub(crate) mod results;
pub(crate) mod row;
pub(crate) mod tested;
pub(crate) mod xml;
