//! Checks programs that cannot be executed. Engines read the message to tell a missing program (127) from one that may
//! not be executed (126).

use crate::util::{Bundle, Runtime, Seen, is_husk};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns a bundle with several files that cannot be executed.
fn bundle() -> Bundle {
    let bundle = Bundle::running("wait").with("/process/env", json!(["PATH=/bin:/sbin"]));
    let rootfs = bundle.rootfs();
    fs::create_dir(rootfs.join("bin")).unwrap();
    fs::create_dir(rootfs.join("bin/directory")).unwrap();
    fs::write(rootfs.join("bin/plain"), "").unwrap();
    executable(&rootfs.join("bin/script"), "#!/no/such");
    executable(&rootfs.join("bin/nothing"), "nothing");
    bundle
}

/// Writes an executable file in another process. Otherwise a child of another test could inherit the open descriptor.
fn executable(path: &Path, text: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", text]).arg(path);
    assert!(shell.status().unwrap().success());
}

/// Asserts that it failed with this message, whether or not quotes in it are escaped.
#[track_caller]
fn fails(seen: &Seen, code: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&seen.0.stderr).replace("\\\"", "\"");
    assert_eq!(seen.0.status.code(), Some(code), "{stderr}");
    assert!(stderr.contains(words), "{stderr}\n{words}");
}

/// Programs, and the error message for each.
const MISSING: [(&str, &str); 8] = [
    ("", r#"exec: "": executable file not found in $PATH"#),
    ("missing", r#"exec: "missing": executable file not found in $PATH"#),
    ("/missing", r#"exec: "/missing": stat /missing: no such file or directory"#),
    ("/guest/x", r#"exec: "/guest/x": stat /guest/x: not a directory"#),
    ("./bin/missing", r#"exec: "./bin/missing": stat ./bin/missing: no such file or directory"#),
    ("/bin/directory", r#"exec: "/bin/directory": is a directory"#),
    ("/bin/plain", r#"exec: "/bin/plain": permission denied"#),
    // runc reports a name like this as not found. A shell and husk give the real reason.
    ("plain", r#"exec: "plain": "#),
];

#[test]
fn missing_program_is_reported_in_engines_words() {
    for (program, words) in MISSING {
        let runtime = Runtime::under_test();
        let bundle = bundle().with("/process/args", json!([program]));
        fails(&runtime.create(&bundle), 1, words);
        let seen = runtime.run(&bundle);
        fails(&seen, 1, words);
        if is_husk() {
            // The message names the field too.
            seen.says("process.args[0]: exec: ");
        }
        assert!(runtime.is_empty());
    }
}

#[test]
fn exec_reports_a_missing_program_in_engines_words() {
    let (runtime, bundle) = (Runtime::under_test(), bundle());
    runtime.create(&bundle).succeeds();
    runtime.call("start", &["c"]).succeeds();
    for (program, words) in MISSING {
        fails(&runtime.call("exec", &["c", program]), 255, words);
    }
    let (script, nothing) = BROKEN;
    runtime.call("exec", &["c", "/bin/script"]).fails(255, script);
    runtime.call("exec", &["c", "/bin/nothing"]).fails(255, nothing);
}

/// The errors for a script whose interpreter is missing, and for a file of unknown format.
const BROKEN: (&str, &str) = ("no such file or directory", "exec format error");

#[test]
fn start_reports_a_program_that_cannot_be_executed() {
    for (program, words) in [("/bin/script", BROKEN.0), ("nothing", BROKEN.1)] {
        let runtime = Runtime::under_test();
        let bundle = bundle().with("/process/args", json!([program]));
        // runc reports it as the program's exit status.
        fails(&runtime.run(&bundle), if is_husk() { 1 } else { 255 }, words);
        if is_husk() {
            runtime.create(&bundle).succeeds();
            let seen = runtime.call("start", &["c"]);
            seen.fails(1, words);
            let why = if program == "nothing" {
                "nor a script that begins"
            } else {
                "its interpreter does not exist"
            };
            seen.says(why);
        }
    }
}
