//! What was probably meant by a word that nobody knows.

/// Those of `names` that are nearest to what was typed, as a question, if any is near.
pub(crate) fn question<'n>(typed: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let mut near: Vec<_> = names.map(|name| (distance(typed, name), name)).collect();
    let least = near.iter().map(|(distance, _)| *distance).min()?;
    // A short word is near to many that have nothing to do with it.
    if least > 2 || least * 3 > typed.chars().count() {
        return None;
    }
    near.retain(|(distance, _)| *distance == least);
    let names: Vec<_> = near.into_iter().map(|(_, name)| format!("'{name}'")).collect();
    Some(format!("did you mean {}?", names.join(" or ")))
}

/// How many letters have to be put in, taken out, exchanged for another or for the one beside them.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    // Row by row: from the first letters of `a` to the first letters of `b`.
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let exchanged = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = exchanged.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::question;

    #[test]
    fn a_slip_is_seen_and_another_word_is_not() {
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
