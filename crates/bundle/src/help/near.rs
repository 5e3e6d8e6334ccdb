//! Names that were probably meant by a wrong one.

use strsim::osa_distance;

/// Returns the known names most similar to what was typed, if any is similar enough. Case makes no difference.
pub fn nearest<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let lower = typed.to_lowercase();
    let mut near: Vec<_> = names.map(|name| (osa_distance(&lower, &name.to_lowercase()), name)).collect();
    let least = near.iter().map(|(distance, _)| *distance).min();
    // A short word is near many unrelated ones.
    let Some(least) = least.filter(|least| *least <= 3 && least * 5 <= typed.chars().count() * 2) else {
        return Vec::new();
    };
    near.retain(|(distance, _)| *distance == least);
    near.into_iter().map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn typo_is_near_its_name_and_another_word_is_not() {
        let names = ["args", "RLIMIT_NOFILE", "start", "state", "kill", "checkpoint"];
        let near = |typed| nearest(typed, names.into_iter());
        for (typed, meant) in [
            ("argz", "args"),
            ("rlimit_nofiles", "RLIMIT_NOFILE"),
            ("kil", "kill"),
            // Two letters in the wrong order are one mistake.
            ("chekcpoint", "checkpoint"),
            ("chek-point", "checkpoint"),
            ("checkpoints-", "checkpoint"),
        ] {
            assert_eq!(near(typed), [meant], "{typed}");
        }
        assert_eq!(near("stat"), ["start", "state"]);
        for typed in ["", "k", "dance", "bill of"] {
            assert!(near(typed).is_empty(), "{typed}");
        }
    }
}
