//! `containerd-shim-husk-v1`.

#![forbid(unsafe_code)]
#![expect(dead_code, reason = "being built")]

mod failure;
mod rpc;
mod streams;
mod verbs;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments == [verbs::ARGUMENT] {
        return verbs::perform();
    }
    ExitCode::SUCCESS
}
