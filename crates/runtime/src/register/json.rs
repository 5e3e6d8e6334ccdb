//! Adds and removes a key in the text of a JSON object that others write too. The rest of the text is unchanged, to
//! the byte, and adding and then removing a key restores the text.

use serde_json::value::RawValue;
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, String>;

/// Returns the text of a member's value.
pub(super) fn member<'a>(object: &'a str, key: &str) -> Result<Option<&'a str>> {
    Ok(members(object)?.get(key).copied())
}

pub(super) fn is_empty(object: &str) -> Result<bool> {
    Ok(members(object)?.is_empty())
}

/// Adds a member before all others.
pub(super) fn with_key(object: &str, key: &str, value: &str) -> Result<String> {
    let (head, rest) = object.split_once('{').ok_or("is not an object")?;
    let inner = rest.trim_start();
    Ok(if is_empty(object)? {
        format!("{head}{{\n  \"{key}\": {value}\n{inner}")
    } else {
        // Indented like the member that was the first.
        let space = &rest[..rest.len() - inner.len()];
        format!("{head}{{{space}\"{key}\": {value},{rest}")
    })
}

/// Removes a member.
pub(super) fn without_key(object: &str, key: &str) -> Result<String> {
    let Some(value) = member(object, key)? else { return Ok(object.to_owned()) };
    let range = range(object, value);
    let before = object[..range.start].trim_end().strip_suffix(':').map(str::trim_end);
    let before = before.and_then(|before| before.strip_suffix(&format!("\"{key}\"")));
    // Fails for a key that is written with escapes.
    let before =
        before.ok_or_else(|| format!("{key} is written in a form that husk cannot edit"))?.trim_end();
    let after = &object[range.end..];
    Ok(match after.trim_start().strip_prefix(',') {
        Some(after) => before.to_owned() + after,
        None => before.strip_suffix(',').unwrap_or(before).to_owned() + after,
    })
}

/// Adds a member to the member `outer`, which is made if it does not exist.
pub(super) fn with(object: &str, outer: &str, key: &str, value: &str) -> Result<String> {
    match member(object, outer)? {
        Some(inner) => Ok(replaced(object, inner, &with_key(inner, key, value)?)),
        None => with_key(object, outer, &format!("{{ \"{key}\": {value} }}")),
    }
}

/// Removes a member from the member `outer`, and `outer` too if that leaves it empty.
pub(super) fn without(object: &str, outer: &str, key: &str) -> Result<String> {
    let Some(inner) = member(object, outer)? else { return Ok(object.to_owned()) };
    if member(inner, key)?.is_none() {
        return Ok(object.to_owned());
    }
    let rest = without_key(inner, key)?;
    if is_empty(&rest)? { without_key(object, outer) } else { Ok(replaced(object, inner, &rest)) }
}

fn members(object: &str) -> Result<BTreeMap<String, &str>> {
    let members: BTreeMap<String, &RawValue> =
        serde_json::from_str(object).map_err(|error| error.to_string())?;
    Ok(members.into_iter().map(|(key, value)| (key, value.get())).collect())
}

/// Returns the range of `part` in `whole`. `part` must be a slice of `whole`.
fn range(whole: &str, part: &str) -> std::ops::Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

fn replaced(whole: &str, part: &str, by: &str) -> String {
    let range = range(whole, part);
    format!("{}{by}{}", &whole[..range.start], &whole[range.end..])
}
