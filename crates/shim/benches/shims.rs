//! Measures this shim beside containerd's for runc, both with husk's containers, without containerd and its clients: this
//! program plays them. Prints medians in milliseconds.
//!
//! Needs root, and `containerd-shim-runc-v2` in PATH or in `SHIM`. `ROUNDS` says how often everything is done.

#![expect(clippy::disallowed_macros, reason = "prints the report")]

#[expect(dead_code, reason = "shared with the tests, which use more")]
#[path = "../tests/client.rs"]
mod client;
#[expect(dead_code, unused_macros, unused_imports, reason = "shared with the tests, which use more")]
#[path = "../tests/engine.rs"]
mod engine;
#[expect(dead_code, reason = "shared with the tests, which use more")]
#[path = "../tests/events.rs"]
mod events;
#[expect(dead_code, reason = "not all messages are used")]
#[path = "../src/wire/mod.rs"]
mod wire;

use client::{Client, Streams};
use engine::{Bundle, Engine, Format, Output, whole_life};
use std::env;
use std::path::PathBuf;
use std::time::Instant;

/// A shim, and the runtime for its options.
struct Side {
    shim: PathBuf,
    runtime: String,
}

impl Side {
    /// Plays containerd 1.6, whose format both shims know.
    fn engine(&self) -> Engine {
        let mut engine = Engine::speaking(Format::Address);
        engine.shim.clone_from(&self.shim);
        engine
    }

    fn bundle(&self, engine: &Engine, words: &str) -> Bundle {
        let mut bundle = engine.bundle("c", words);
        bundle.options.binary_name.clone_from(&self.runtime);
        bundle
    }

    /// Returns the time from the start of the shim to its end.
    fn live(&self) -> f64 {
        let engine = self.engine();
        let bundle = self.bundle(&engine, "exit 0");
        let _log = log(&bundle);
        let begun = Instant::now();
        let mut client = engine.start(&bundle);
        whole_life(&mut client, &bundle, Streams::none());
        client.shutdown();
        engine.until_shims_ended();
        milliseconds_since(begun)
    }

    /// Starts a container that waits.
    fn keep_running(&self) -> (Engine, Output, Client) {
        let engine = self.engine();
        let bundle = self.bundle(&engine, "wait");
        let log = log(&bundle);
        let mut client = engine.start(&bundle);
        client.create(&bundle, Streams::none());
        client.start("c", "");
        (engine, log, client)
    }
}

/// Opens the shim's log. The shim for runc waits for that.
fn log(bundle: &Bundle) -> Output {
    Output::open(bundle.path.join("log").to_str().expect("text"))
}

fn exec(client: &mut Client) -> f64 {
    let begun = Instant::now();
    client.exec("c", "e", "exit 0", Streams::none());
    client.start("c", "e");
    client.wait("c", "e");
    client.delete("c", "e");
    milliseconds_since(begun)
}

fn milliseconds_since(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let rounds: u32 = env::var("ROUNDS").map_or(100, |rounds| rounds.parse().expect("a number"));
    let own = PathBuf::from(env!("CARGO_BIN_EXE_containerd-shim-husk-v1"));
    let husk =
        env::var("HUSK").unwrap_or_else(|_| own.with_file_name("husk").to_str().expect("text").to_owned());
    let other = env::var_os("SHIM").map(PathBuf::from);
    let other = other
        .or_else(|| husk_spawn::find_program("containerd-shim-runc-v2"))
        .expect("containerd-shim-runc-v2 in PATH or in SHIM");
    let sides = [Side { shim: own, runtime: String::new() }, Side { shim: other, runtime: husk }];
    let mut running: Vec<_> = sides.iter().map(Side::keep_running).collect();
    let [mut lives, mut execs] = [[Vec::new(), Vec::new()], [Vec::new(), Vec::new()]];
    for _ in 0..rounds {
        for (number, side) in sides.iter().enumerate() {
            lives[number].push(side.live());
            execs[number].push(exec(&mut running[number].2));
        }
    }
    println!("{rounds} rounds; medians in ms, and multiples of {}\n", sides[1].shim.display());
    for (title, times) in [("life of a container and its shim", lives), ("exec", execs)] {
        let [own, other] = times.map(median);
        println!("{title}: {own:.2} ({:.2}), {other:.2}", own / other);
    }
    for (.., client) in &mut running {
        client.kill("c", "");
        client.wait("c", "");
        client.delete("c", "");
        client.shutdown();
    }
}
