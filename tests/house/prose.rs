//! Rules of prose for comments and help: each forbids a pattern that makes a reader ask "who?" or "which one?".
//! The rules see sentences, which this file cuts out of Rust, of scripts and of help texts.

use super::{collect, read, sources};
use std::path::{Path, PathBuf};

/// The most words of a sentence. A code span, an address and a path are one word each.
const MOST_WORDS: usize = 30;

/// Words that stand for a noun that the writer left out. As the first word of a sentence they hide its subject.
const HEADLESS: [&str; 7] = ["Who", "Whom", "Whoever", "What", "Whatever", "That", "Where"];

/// Turns of phrase that have a plainer form, each with that form.
const PHRASES: [(&str, &str); 6] = [
    ("is no ", "\"is not a\", or name what exists instead"),
    ("of ours", "name the owner"),
    ("by now", "\"already\", or nothing"),
    ("for want of", "\"because there is not\""),
    ("has it that", "name the source"),
    ("but for ", "\"except\""),
];

/// Words that add nothing to the name of an item in its documentation, without a final `s`.
const FILLERS: [&str; 12] = ["a", "an", "the", "thi", "it", "of", "for", "to", "one", "return", "get", "i"];

#[test]
fn comments_follow_the_rules_of_prose() {
    let mut files = sources();
    files.push(PathBuf::from("build.rs"));
    collect(Path::new("fuzz/fuzz_targets"), &["rs"], &mut files);
    lint(&files, rust_blocks);
}

#[test]
fn comments_of_scripts_follow_the_rules_of_prose() {
    let mut files = [".ci/run", "Makefile", "clippy.toml", "deny.toml"].map(PathBuf::from).to_vec();
    for directory in
        [".cargo", "crates", "examples", "fuzz/fuzz_targets", "integration", "packaging", "tests"]
    {
        collect(Path::new(directory), &["", "sh", "py", "toml", "conf", "yaml", "service"], &mut files);
    }
    lint(&files, script_blocks);
}

#[test]
fn help_follows_the_rules_of_prose() {
    let mut files = Vec::new();
    collect(Path::new("tests/help"), &["txt"], &mut files);
    lint(&files, help_blocks);
}

#[test]
fn headless_sentence_is_found() {
    for word in HEADLESS {
        assert_eq!(
            faults(&format!("{word} starts it.")),
            [format!("begins with \"{word}\" (name the subject)")]
        );
    }
    assert_eq!(faults("(What follows is a list.)").len(), 1);
    assert_eq!(faults("What is it?").len(), 1);
    assert!(faults("Whatsit starts what follows.").is_empty());
}

#[test]
fn phrase_is_found_as_whole_words() {
    for (phrase, _) in PHRASES {
        assert_eq!(faults(&format!("It {phrase} x.")).len(), 1, "{phrase}");
    }
    assert_eq!(faults("It is no").len(), 1);
    assert!(faults("This is not of oursine; nobody has it.").is_empty());
}

#[test]
fn long_sentence_is_found() {
    assert!(faults(&"word ".repeat(MOST_WORDS)).is_empty());
    assert_eq!(faults(&"word ".repeat(MOST_WORDS + 1)), ["has 31 words"]);
}

#[test]
fn doc_that_repeats_the_name_is_found() {
    for (doc, item) in [
        ("The mount.", "mount"),
        ("Returns the mount.", "mounts"),
        ("The request to `exec`.", "ExecRequest"),
        ("`leafWeight`.", "leaf_weight"),
    ] {
        assert!(repeats(doc, item), "{doc}");
    }
    assert!(!repeats("The mount to copy.", "mount"));
}

#[test]
fn doc_belongs_to_the_item_below() {
    let text = "/// The mount.\n#[derive(Debug)]\npub(crate) struct Mount {\n    /// Its name.\n    pub name: u8,\n}\n";
    let findings = check(Path::new("x.rs"), text, rust_blocks);
    assert_eq!(
        findings,
        ["x.rs:1: repeats the name `Mount`: The mount.", "x.rs:4: repeats the name `name`: Its name."]
    );
}

#[test]
fn finding_in_a_trailing_comment_has_its_line() {
    let findings =
        check(Path::new("x.rs"), "let url = \"http://x\";\nlet x = 'a'; // Where it is.\n", rust_blocks);
    assert_eq!(findings, ["x.rs:2: begins with \"Where\" (name the subject): Where it is."]);
}

#[test]
fn strings_are_not_comments() {
    let text = "let x = \"// What\n// Who\"; let y = r#\"\"// That\"#; let z = '\"'; // Plain.\n";
    let lines: Vec<_> = rust_blocks(text).into_iter().flat_map(|block| block.lines).collect();
    assert_eq!(lines, ["Plain."]);
}

#[test]
fn sentences_are_joined_across_lines() {
    let text = "// One sentence\n// on two lines. Another\n// one.\n//\n// A last\n";
    let blocks = rust_blocks(text);
    let found: Vec<_> = paragraphs(&blocks[0].lines).iter().flat_map(|text| sentences(text)).collect();
    assert_eq!(found, ["One sentence on two lines.", "Another one.", "A last"]);
    let blocks = script_blocks("#!/bin/sh\nset -u # no\n# One\n# sentence.\n");
    assert_eq!(blocks, [Block { line: 3, lines: vec!["One".into(), "sentence.".into()], item: None }]);
}

#[test]
fn abbreviations_do_not_end_sentences() {
    let text = "See e.g. 1.2 (i.e. \"1.3\") and so on ... here. SAFETY: `a. b` is (one. Two.) Three";
    assert_eq!(
        sentences(text),
        ["See e.g. 1.2 (i.e. \"1.3\") and so on ... here.", "`a.\u{a0}b` is (one.", "Two.)", "Three"]
    );
}

#[test]
fn code_tables_and_headings_are_left_out() {
    let text = ["# What", "One", "- What", "  two", "| What |", "```", "What", "```", "    What", "three"];
    assert_eq!(paragraphs(&text.map(str::to_owned)), ["One ", "- What two ", "three "]);
}

#[test]
fn code_span_is_one_word() {
    let text = format!("`{}` [a](b.c) {}", "word ".repeat(40), "word ".repeat(MOST_WORDS - 2));
    assert_eq!(sentences(&text).iter().flat_map(|sentence| faults(sentence)).count(), 0);
}

#[test]
fn help_is_cut_into_descriptions() {
    let text =
        "OPTIONS:\n      --root <X>  What it\n                  is\n\nWho runs\nit.\n  husk a\n  husk b\n";
    let found: Vec<_> = help_blocks(text).into_iter().map(|block| block.lines.join(" ")).collect();
    assert_eq!(found, ["OPTIONS:", "What it is", "Who runs it.", "husk a", "husk b"]);
}

fn lint(files: &[PathBuf], blocks: fn(&str) -> Vec<Block>) {
    assert!(files.len() > 20, "the files were not found");
    let findings: Vec<_> = files.iter().flat_map(|file| check(file, &read(file), blocks)).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Consecutive lines of one comment, without their markers.
#[derive(Debug, Default, PartialEq)]
struct Block {
    /// The number of its first line, from 1.
    line: usize,
    lines: Vec<String>,
    /// The name of the item that the block documents. None for other comments.
    item: Option<String>,
}

fn check(file: &Path, text: &str, blocks: fn(&str) -> Vec<Block>) -> Vec<String> {
    let mut findings = Vec::new();
    for block in blocks(text) {
        let sentences: Vec<_> = paragraphs(&block.lines).iter().flat_map(|text| sentences(text)).collect();
        let place = format!("{}:{}", file.display(), block.line);
        for sentence in &sentences {
            findings.extend(faults(sentence).iter().map(|fault| format!("{place}: {fault}: {sentence}")));
        }
        if let (Some(item), [sentence]) = (&block.item, &sentences[..])
            && repeats(sentence, item)
        {
            findings.push(format!("{place}: repeats the name `{item}`: {sentence}"));
        }
    }
    findings
}

/// Returns every rule that a sentence breaks.
fn faults(sentence: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let start = sentence.trim_start_matches(|c: char| !c.is_alphanumeric());
    let first = start.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    if HEADLESS.contains(&first) {
        faults.push(format!("begins with \"{first}\" (name the subject)"));
    }
    for (phrase, better) in PHRASES {
        let padded = format!("{sentence} ");
        let is_whole = |(at, _): (usize, &str)| {
            let before = padded.get(..at).and_then(|before| before.chars().next_back());
            let after = padded.get(at + phrase.len()..).and_then(|after| after.chars().next());
            !before.is_some_and(char::is_alphanumeric)
                && (phrase.ends_with(' ') || !after.is_some_and(char::is_alphanumeric))
        };
        if padded.match_indices(phrase).any(is_whole) {
            faults.push(format!("has \"{}\" (write {better})", phrase.trim_end()));
        }
    }
    let words = sentence.split(' ').filter(|word| word.contains(char::is_alphanumeric)).count();
    if words > MOST_WORDS {
        faults.push(format!("has {words} words"));
    }
    faults
}

/// Says whether every word of a sentence is in the name of the item that it documents.
fn repeats(sentence: &str, item: &str) -> bool {
    let name = words_of(item);
    words_of(sentence).iter().filter(|word| !FILLERS.contains(&word.as_str())).all(|word| name.contains(word))
}

/// Returns the words of a name or a sentence, in lower case and without a final `s`: `blockIO` has two.
fn words_of(text: &str) -> Vec<String> {
    let mut split = String::new();
    for c in text.chars() {
        if c.is_uppercase() && split.ends_with(char::is_lowercase) {
            split.push(' ');
        }
        split.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    split.split_whitespace().map(|word| word.to_lowercase().trim_end_matches('s').to_owned()).collect()
}

/// Joins the lines of a block. A paragraph ends at an empty line, a heading, a table, code, and before the item of a
/// list. Headings, tables and code are left out.
fn paragraphs(lines: &[String]) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in lines {
        let text = line.trim();
        if text.starts_with("```") {
            is_code = !is_code;
            found.push(String::new());
            continue;
        }
        let is_left_out = text.is_empty() || text.starts_with(['#', '|', '+']) || line.starts_with("    ");
        if is_code || is_left_out {
            found.push(String::new());
            continue;
        }
        if is_item(text) {
            found.push(String::new());
        }
        if let Some(paragraph) = found.last_mut() {
            paragraph.push_str(text);
            paragraph.push(' ');
        }
    }
    found.retain(|paragraph| !paragraph.is_empty());
    found
}

/// Says whether a line begins an item of a list: `- x`, `* x`, `1. x`, `(1) x`.
fn is_item(text: &str) -> bool {
    let number = text.trim_start_matches('(').trim_start_matches(|c: char| c.is_ascii_digit());
    text.starts_with("- ")
        || text.starts_with("* ")
        || (number.len() < text.len() && (number.starts_with(". ") || number.starts_with(") ")))
}

/// Cuts a paragraph into sentences. A code span is one word.
fn sentences(paragraph: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut sentence = String::new();
    // Code spans contain no-break spaces, at which this does not split.
    for word in joined_spans(paragraph).split(' ').filter(|word| !word.is_empty()) {
        if sentence.is_empty() && is_label(word) {
            continue;
        }
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(word);
        if ends_sentence(word) {
            found.push(std::mem::take(&mut sentence));
        }
    }
    if !sentence.is_empty() {
        found.push(sentence);
    }
    found
}

/// Replaces the spaces within code spans by no-break spaces.
fn joined_spans(paragraph: &str) -> String {
    let mut text = String::new();
    for (index, part) in paragraph.split('`').enumerate() {
        if index > 0 {
            text.push('`');
        }
        if index % 2 == 1 { text.push_str(&part.replace(' ', "\u{a0}")) } else { text.push_str(part) }
    }
    text
}

/// Says whether a word is a marker before a sentence: of a list, or of a kind of comment.
fn is_label(word: &str) -> bool {
    ["-", "*", "SAFETY:", "Tolerated:"].contains(&word) || is_item(&format!("{word} "))
}

fn ends_sentence(word: &str) -> bool {
    let word = word.trim_end_matches([')', '"', '\'', '*', '_', ']']);
    let start = word.trim_start_matches(['(', '"', '\'', '*', '_', '[']);
    let is_abbreviation = ["e.g.", "i.e.", "cf.", "vs.", "etc."].contains(&start) || start.ends_with("...");
    word.ends_with(['.', '?', '!']) && !is_abbreviation
}

/// Returns the comments of a Rust file. Those of consecutive lines are one block if they have the same marker and
/// column. A comment after code is a block of its own.
fn rust_blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut state = Scan::Code;
    let mut last: Option<(usize, &str, usize)> = None;
    let mut documents = false;
    for (number, line) in (1..).zip(text.lines()) {
        let Some(column) = comment_of(line, &mut state) else {
            let code = line.trim();
            if documents && !code.is_empty() && !code.starts_with("#[") {
                if let Some(block) = found.last_mut() {
                    block.item = item_name(code);
                }
                documents = false;
            }
            continue;
        };
        let comment = &line[column..];
        let marker = ["///", "//!"].into_iter().find(|marker| comment.starts_with(marker)).unwrap_or("//");
        let text = comment[marker.len()..].strip_prefix(' ').unwrap_or(&comment[marker.len()..]).to_owned();
        let is_alone = line[..column].trim().is_empty();
        match found.last_mut() {
            Some(block) if is_alone && last == Some((number - 1, marker, column)) => block.lines.push(text),
            _ => found.push(Block { line: number, lines: vec![text], item: None }),
        }
        last = is_alone.then_some((number, marker, column));
        documents = marker == "///";
    }
    found
}

/// The place of a scan between the lines of a Rust file.
enum Scan {
    Code,
    /// Inside a string.
    Text,
    /// Inside a raw string that ends with this number of `#`.
    Raw(usize),
}

/// Returns the column at which a line's comment begins.
fn comment_of(line: &str, state: &mut Scan) -> Option<usize> {
    let bytes = line.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &line.as_bytes()[at..];
        match *state {
            Scan::Text => match rest[0] {
                b'\\' => at += 1,
                b'"' => *state = Scan::Code,
                _ => {}
            },
            Scan::Raw(count) => {
                if rest[0] == b'"' && rest[1..].iter().take_while(|byte| **byte == b'#').count() >= count {
                    *state = Scan::Code;
                    at += count;
                }
            }
            Scan::Code if rest.starts_with(b"//") => return Some(at),
            Scan::Code if rest[0] == b'"' => {
                let hashes = bytes[..at].iter().rev().take_while(|byte| **byte == b'#').count();
                let is_raw = bytes[..at - hashes].ends_with(b"r");
                *state = if is_raw { Scan::Raw(hashes) } else { Scan::Text };
            }
            // A quoted character, which may be a quotation mark. Otherwise a lifetime.
            Scan::Code if rest.starts_with(b"'\\") => at += 2,
            Scan::Code if rest[0] == b'\'' && rest.get(2) == Some(&b'\'') => at += 2,
            Scan::Code => {}
        }
        at += 1;
    }
    None
}

/// Returns the name that a line of Rust declares: of a function, a type, a module, a field or a variant.
fn item_name(code: &str) -> Option<String> {
    let keywords = [
        "pub",
        "pub(crate)",
        "pub(super)",
        "const",
        "unsafe",
        "async",
        "fn",
        "struct",
        "enum",
        "trait",
        "mod",
        "type",
        "static",
        "union",
        "macro_rules!",
        "mut",
    ];
    let word = code.split_whitespace().find(|word| !keywords.contains(word))?;
    let name: String = word.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (!name.is_empty() && name != "impl" && name != "use").then_some(name)
}

/// Returns the comments of a script or a configuration file: those that have a line of their own.
fn script_blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut next = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let text = line.trim_start();
        if !text.starts_with('#') || text.starts_with("#!") {
            continue;
        }
        let text = text.trim_start_matches('#');
        let text = text.strip_prefix(' ').unwrap_or(text).to_owned();
        match found.last_mut() {
            Some(block) if number == next => block.lines.push(text),
            _ => found.push(Block { line: number, lines: vec![text], item: None }),
        }
        next = number + 1;
    }
    found
}

/// Returns the paragraphs of a help text, and the descriptions in a second column. Any other indented line, such as a
/// command, is a block of its own.
fn help_blocks(text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut last = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim_end();
        if line.is_empty() {
            last = None;
            continue;
        }
        let column = line.rfind("  ").map_or(0, |at| at + 2);
        let text = line[column..].to_owned();
        let is_indented = column > 0 && line[..column].trim().is_empty();
        let continues = last == Some((number - 1, column)) && (is_indented || column == 0);
        match found.last_mut() {
            Some(block) if continues => block.lines.push(text),
            _ => found.push(Block { line: number, lines: vec![text], item: None }),
        }
        last = (continues || !is_indented).then_some((number, column));
    }
    found
}
