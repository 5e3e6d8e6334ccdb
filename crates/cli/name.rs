//! The name that husk was called by.
//!
//! Who has put it where another runtime was finds that runtime's name in the help and before errors. Nothing else
//! depends on it: where containers are known, and what is done to them, is husk's whatever it is called.

use std::path::Path;
use std::sync::LazyLock;

/// The name, if it is a plain word: a caller may write there what they like.
pub(crate) static NAME: LazyLock<String> = LazyLock::new(|| {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let is_word = name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(is_plain);
    if is_word { name.to_owned() } else { "husk".to_owned() }
});

/// The same text with this name in the commands that a reader might type: those on lines of their own, and
/// those in quotes.
pub(crate) fn in_commands(text: &str) -> String {
    text.replace("  husk ", &format!("  {} ", *NAME)).replace("'husk ", &format!("'{} ", *NAME))
}
