//! Containers under an AppArmor profile, on a kernel that enforces it.

use crate::util::{Bundle, Runtime, is_husk, is_root, need};
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

fn is_enabled() -> bool {
    fs::read_to_string("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.trim() == "Y")
}

/// A loaded profile that allows everything except writing to `/secret`. Dropping it unloads it.
struct Profile(&'static str);

impl Profile {
    fn load(name: &'static str) -> Self {
        Self::parse(name, "--replace");
        Self(name)
    }

    fn parse(name: &str, act: &str) {
        let text = format!("profile {name} {{ file, capability, signal, network, deny /secret w, }}");
        let parser = Command::new("apparmor_parser")
            .args(["--quiet", "--skip-cache", act])
            .stdin(Stdio::piped())
            .spawn();
        let mut parser = parser.expect("apparmor_parser");
        parser.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("a reader");
        assert!(parser.wait().expect("exit status").success(), "{act} {name}");
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        Self::parse(self.0, "--remove");
    }
}

#[test]
fn program_runs_under_the_given_profile() {
    need!(is_enabled() && is_root(), "needs a kernel with AppArmor, and root");
    let profile = Profile::load("husk-test-confined");
    let inside = |words: &str| Bundle::running(words).with("/process/apparmorProfile", json!(profile.0));
    let label = "/proc/self/attr/current";
    Runtime::under_test().run(&inside(&format!("cat {label}"))).prints("husk-test-confined (enforce)");
    Runtime::under_test().run(&inside("write /open")).succeeds();
    Runtime::under_test().run(&inside("write /secret")).fails(1, "Permission denied");
    // Processes of `exec` are confined too, by the container's profile or another one.
    let bundle = inside("hang");
    let runtime = Runtime::started(&bundle);
    let other = Profile::load("husk-test-other");
    runtime.call("exec", &["c", "/guest", "cat", label]).prints("husk-test-confined (enforce)");
    runtime
        .call("exec", &["--apparmor", other.0, "c", "/guest", "cat", label])
        .prints("husk-test-other (enforce)");
    runtime.call("delete", &["--force", "c"]).succeeds();
}

#[test]
fn profile_that_is_not_loaded_is_named() {
    need!(is_enabled() && is_root(), "needs a kernel with AppArmor, and root");
    let bundle = Bundle::running("exit 0").with("/process/apparmorProfile", json!("husk-test-missing"));
    let words = if is_husk() { "process.apparmorProfile" } else { "apparmor" };
    Runtime::under_test().run(&bundle).fails(1, words);
}
