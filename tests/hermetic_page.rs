//! `test --runner --html`: the page about a run, as a browser sees it.

use crate::hermetic::{Project, has_sandboxes};
use crate::util::{Seen, need};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// The browser, which Debian calls `chromium`.
const BROWSER: &str = "chromium";

fn has_browser() -> bool {
    Command::new(BROWSER).arg("--version").output().is_ok_and(|said| said.status.success())
}

/// Lists tests with hostile names, and runs the test whose name is its last argument. A name ends with its verdict.
const TESTS: &str = r#"#!/bin/sh
for name; do :; done
case "$*" in
    *--list*--ignored*) ;;
    *--list*)
        for number in 1 2 3 4 5 6 7 8 9; do echo "number_$number: test"; done
        echo '</title></script><img src=x onerror="document.body.dataset.hit=1">fails: test'
        echo '"><script>document.body.dataset.hit=1</script>: test';;
    *fails*)
        printf '\033[31m\000\377</pre></script><img src=x onerror="document.body.dataset.hit=1">"\047'
        exit 101;;
esac
"#;

/// Makes a test binary of `TESTS`.
fn binary(place: &Project) -> String {
    let path = place.path("here/deps/lab-0123456789abcdef");
    fs::create_dir(place.path("here/deps")).unwrap();
    fs::write(&path, TESTS).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn page(place: &Project) -> String {
    let path = place.path("out/page.html");
    place.test(&["--runner", "--html", &path], &[&binary(place)]).fails(101, "");
    path
}

#[test]
fn page_contains_hostile_names_and_output_as_text() {
    need!(has_sandboxes(), "needs user namespaces");
    let place = Project::new();
    let text = fs::read_to_string(page(&place)).unwrap();
    assert!(text.contains("<h1 class=\"failed\">1 of 11 tests failed</h1>"), "{text}");
    assert!(text.contains("<pre>\n␛[31m␀\u{fffd}&lt;/pre&gt;&lt;/script&gt;&lt;img "), "{text}");
    for element in ["<img", "<script>document", "http:", "https:", "src=\"", "href="] {
        assert!(!text.contains(element), "{element}: {text}");
    }
}

/// Runs the browser with these options on a page. It has a profile of its own.
fn browse(place: &Project, page: &str, options: &[&str]) -> String {
    let mut command = Command::new(BROWSER);
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]);
    command.arg(format!("--user-data-dir={}", place.path("profile"))).args(options);
    command.arg(format!("file://{page}")).env("HOME", place.path("home"));
    Seen(command.output().unwrap()).succeeds()
}

#[test]
fn browser_shows_each_test_without_an_error() {
    need!(has_sandboxes(), "needs user namespaces");
    need!(has_browser(), "chromium is missing");
    let place = Project::new();
    let page = page(&place);
    let document = browse(&place, &page, &["--dump-dom"]);
    let body = document.lines().find(|line| line.starts_with("<body")).unwrap_or_default();
    assert_eq!(body, "<body data-ready=\"1\">", "{document}");
    assert_eq!(document.matches("<rect ").count(), 11, "{document}");
    assert_eq!(document.matches("</rect>").count(), 11, "{document}");
    let (_, all) = document.split_once("<section id=\"all\">").unwrap();
    assert_eq!(all.split_once("</section>").unwrap().0.matches("<tr class=").count(), 11, "{document}");
    assert!(!document.contains("<img"), "{document}");

    let screenshot = |options: &[&str]| {
        let path = place.path("screenshot.png");
        let option = format!("--screenshot={path}");
        browse(&place, &page, &[&["--window-size=1100,900", &option], options].concat());
        let image = fs::read(&path).unwrap();
        fs::remove_file(Path::new(&path)).unwrap();
        assert!(image.starts_with(b"\x89PNG"));
        image
    };
    // The colours of the page follow those of the browser.
    let dark = ["--blink-settings=preferredColorScheme=0"];
    let light = ["--blink-settings=preferredColorScheme=1"];
    assert!(screenshot(&light) != screenshot(&dark), "looks the same in both");
}
