//! `--version`.
//!
//! The form is runc's, the name is ours. go-runc takes a version only after the words `runc version`,
//! and goes on without one, as it does for crun; dockerd splits at the word `version` and looks for
//! `commit:`; podman prints what it gets. To call ourselves runc would win nothing and mislead who reads it.

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, where whoever built it said so.
pub(crate) const COMMIT: Option<&str> = option_env!("HUSK_COMMIT");

pub(crate) fn text() -> String {
    let commit = COMMIT.map(|commit| format!("commit: {commit}\n")).unwrap_or_default();
    format!("husk version {}\n{commit}spec: {}\n", VERSION, husk_runtime::OCI_VERSION)
}
