//! Checks that files, tests and link targets named in the documents exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &Path) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns every Markdown file at the root, in docs/ and docs/decisions/, and of the crates, relative to the root.
fn documents() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut directories = vec![PathBuf::new(), "docs".into(), "docs/decisions".into()];
    let crates = fs::read_dir(root().join("crates")).unwrap();
    directories.extend(crates.map(|entry| Path::new("crates").join(entry.unwrap().file_name())));
    for directory in directories {
        for entry in fs::read_dir(root().join(&directory)).unwrap() {
            let file = directory.join(entry.unwrap().file_name());
            if file.extension().is_some_and(|extension| extension == "md") {
                found.insert(file);
            }
        }
    }
    assert!(found.len() > 4, "the documents were not found");
    found
}

/// Returns the text between backticks, outside code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let mut blocks = text.split("\n```");
    let prose = blocks.by_ref().step_by(2);
    prose.flat_map(|prose| prose.split('`').skip(1).step_by(2)).collect()
}

/// Whether a quotation is a path of this tree: it begins with a known directory and has no `*`, `{` or space.
fn is_path(word: &str) -> bool {
    let tops = ["crates/", "src/", "tests/", "integration/", "examples/", "docs/", "packaging/"];
    tops.iter().any(|top| word.starts_with(top)) && !word.contains(['*', '{', ' '])
}

// CHANGELOG.md is exempt because it names files that existed when an entry was written.
#[test]
fn files_that_documents_name_exist() {
    for document in documents().iter().filter(|document| !document.ends_with("CHANGELOG.md")) {
        let text = read(document);
        for word in quoted(&text).into_iter().filter(|word| is_path(word)) {
            let path = word.split("::").next().unwrap();
            assert!(root().join(path).exists(), "{}: {path}", document.display());
        }
        for target in
            text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
        {
            let target = target.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = root().join(document).parent().unwrap().join(target);
            assert!(path.exists(), "{}: {target}", document.display());
        }
    }
}

/// Asserts that the file in each `path::name` of a line contains the name. Returns how many there are.
fn check(line: &str) -> usize {
    let held = quoted(line)
        .into_iter()
        .filter_map(|word| word.split_once("::"))
        .filter(|(path, _)| path.contains('.'));
    held.map(|(path, name)| assert!(read(Path::new(path)).contains(name), "{path} has no {name}")).count()
}

#[test]
fn each_invariant_names_what_enforces_it() {
    let architecture = read(Path::new("ARCHITECTURE.md"));
    let (_, invariants) = architecture.split_once("\n## Invariants\n").unwrap();
    let (invariants, _) = invariants.split_once("\n## ").unwrap();
    let rows: Vec<_> = invariants.lines().filter(|line| line.starts_with("| ")).skip(2).collect();
    assert!(rows.len() > 15, "the table was not found");
    for row in rows {
        assert_ne!(check(row), 0, "no test or type enforces this: {row}");
    }
}

#[test]
fn kernel_facts_name_tests_that_exist() {
    let count: usize = read(Path::new("docs/kernel.md")).lines().map(check).sum();
    assert!(count > 10, "the table was not found");
}
