//! An example crate whose tests use global state, as a server does: a port, a file, a home directory.
//!
//! ```
//! assert_eq!(hermetic_cargo::PORT, 8080);
//! ```

/// The fixed port on which the server listens.
pub const PORT: u16 = 8080;

/// The file that marks a running server.
pub const STATE: &str = "/tmp/hermetic-cargo";

#[cfg(test)]
mod tests {
    use super::{PORT, STATE};
    use std::net::TcpListener;
    use std::{env, fs};

    /// Succeeds only once on a machine, and not in two processes at a time.
    fn serve() {
        let _listener = TcpListener::bind(("127.0.0.1", PORT)).unwrap();
        assert!(!fs::exists(STATE).unwrap());
        fs::write(STATE, "runs").unwrap();
        assert!(TcpListener::bind(("127.0.0.1", PORT)).is_err());
    }

    #[test]
    fn first_server_listens() {
        serve();
    }

    #[test]
    fn second_server_listens() {
        serve();
    }

    #[test]
    fn home_is_private() {
        let file = env::home_dir().unwrap().join("hermetic-cargo");
        assert!(!file.exists());
        fs::write(file, "").unwrap();
    }

    #[test]
    #[should_panic(expected = "Read-only file system")]
    fn source_is_unchanged() {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"), "").unwrap();
    }

    #[test]
    #[ignore = "fails"]
    fn always_fails() {
        println!("said");
        panic!("on purpose");
    }

    #[test]
    #[ignore = "ends its process"]
    fn always_aborts() {
        std::process::abort();
    }

    #[test]
    #[ignore = "takes for ever"]
    fn always_hangs() {
        loop {
            std::thread::park();
        }
    }
}
