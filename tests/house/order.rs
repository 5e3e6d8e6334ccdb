//! The linker's list of functions (packaging/order) is not checked by the linker: it skips names that do not exist. So
//! this test asks whether the functions of husk in the list are still in the source.

use super::{collect, read};
use std::collections::BTreeSet;
use std::path::Path;

/// How many of a hundred functions may have gone, before the list has to be written anew with `make order`.
const MOST_STALE: usize = 5;

#[test]
fn list_for_the_linker_names_functions_that_exist() {
    let mut files = Vec::new();
    ["crates", "src"].into_iter().for_each(|directory| collect(Path::new(directory), &["rs"], &mut files));
    let words: BTreeSet<String> = files.iter().flat_map(|path| words(path)).collect();
    let list = read(Path::new("packaging/order/order.ld"));
    let functions: Vec<Vec<&str>> = list.lines().filter_map(functions_of_husk).collect();
    assert!(functions.len() > 200, "{} functions of husk in the list", functions.len());
    let exists = |path: &[&str]| path.iter().all(|name| words.contains(*name));
    let stale: Vec<String> =
        functions.iter().filter(|path| !exists(&path[1..])).map(|path| path.join("::")).collect();
    assert!(
        stale.len() * 100 <= functions.len() * MOST_STALE,
        "{} of {} functions are gone, run 'make order': {stale:#?}",
        stale.len(),
        functions.len()
    );
}

/// Returns all words of a file and of its path.
fn words(path: &Path) -> Vec<String> {
    let text = format!("{} {}", path.with_extension("").display(), read(path));
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
}

/// Returns the path of a function of husk that is not generic. Its mangled name has the length before each part; the
/// part after `Cs*_` is a crate.
fn functions_of_husk(line: &str) -> Option<Vec<&str>> {
    let (_, name) = line.split_once("._RNv")?;
    let (_, mut rest) = name.split_once("Cs*_")?;
    let mut path = Vec::new();
    while let Some(digit) = rest.find(|c: char| c.is_ascii_digit()) {
        if rest[..digit].contains("Cs*") {
            break;
        }
        rest = &rest[digit..];
        let end = rest.find(|c: char| !c.is_ascii_digit())?;
        let length: usize = rest[..end].parse().ok()?;
        rest = rest[end..].strip_prefix('_').unwrap_or(&rest[end..]);
        let part = rest.get(..length)?;
        rest = &rest[length..];
        let is_name = part.starts_with(|c: char| c.is_ascii_alphabetic()) && !part.contains('*');
        if is_name {
            path.push(part);
        }
    }
    path.first()?.starts_with("husk").then_some(path)
}

#[test]
fn mangled_names_are_cut_into_paths() {
    let path = |line: &'static str| functions_of_husk(line).map(|path| path.join("::"));
    let owned = path("*(.text._RNvNtNtCs*_10husk_spawn6memory8dumpable14owns_its_files)");
    assert_eq!(owned.as_deref(), Some("husk_spawn::memory::dumpable::owns_its_files"));
    let method = path("*(.text._RNvMs_NtCs*_9husk_plan7builderNtB*_7Builder4push)");
    assert_eq!(method.as_deref(), Some("husk_plan::builder::Builder::push"));
    assert_eq!(path("*(.text._RNvXsZ_NtCs*_5alloc6string5write)"), None);
}
