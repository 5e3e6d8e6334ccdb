//! Suggestions for unknown words.

use husk_runtime::nearest;

/// Returns a question that suggests the names nearest to what was typed, if any is near enough.
pub(crate) fn question<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let names: Vec<_> = nearest(typed, names).into_iter().map(|name| format!("'{name}'")).collect();
    (!names.is_empty()).then(|| format!("did you mean {}?", names.join(" or ")))
}
