//! Suggestions for unknown words.

use strsim::osa_distance;

/// Returns a question that suggests the names nearest to what was typed, if any is near enough.
pub(crate) fn question<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut near: Vec<_> = names.map(|name| (osa_distance(typed, name), name)).collect();
    let least = near.iter().map(|(distance, _)| *distance).min()?;
    // A short word is near many unrelated ones.
    if least > 2 || least * 3 > typed.chars().count() {
        return None;
    }
    near.retain(|(distance, _)| *distance == least);
    let names: Vec<_> = near.into_iter().map(|(_, name)| format!("'{name}'")).collect();
    Some(format!("did you mean {}?", names.join(" or ")))
}

#[cfg(test)]
mod tests {
    use super::question;

    #[test]
    fn typo_gets_a_suggestion_and_another_word_gets_none() {
        let names = ["start", "state", "kill", "checkpoint"];
        let asked = |typed| question(typed, names.into_iter());
        for (typed, meant) in [
            ("kil", "did you mean 'kill'?"),
            ("stat", "did you mean 'start' or 'state'?"),
            ("chekcpoint", "did you mean 'checkpoint'?"),
            ("chek-point", "did you mean 'checkpoint'?"),
        ] {
            assert_eq!(asked(typed).as_deref(), Some(meant), "{typed}");
        }
        for typed in ["", "k", "dance", "bill of"] {
            assert_eq!(asked(typed), None, "{typed}");
        }
    }
}
