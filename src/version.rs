//! `--version`.
//!
//! The form is runc's. dockerd splits at the word `version` and looks for `commit:`; podman prints what it gets;
//! go-runc takes a version only after the words `runc version`, and goes on without one, as it does for crun. Where
//! husk is called by another name, it begins with that, and the version says what it is all the same.

use crate::name::NAME;

pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that this was built from, where whoever built it said so.
pub(crate) const COMMIT: Option<&str> = option_env!("HUSK_COMMIT");

pub(crate) fn text() -> String {
    let commit = COMMIT.map(|commit| format!("commit: {commit}\n")).unwrap_or_default();
    let what = if *NAME == "husk" { "" } else { "+husk" };
    format!("{} version {VERSION}{what}\n{commit}spec: {}\n", *NAME, husk_runtime::OCI_VERSION)
}
