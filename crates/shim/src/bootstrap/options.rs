//! The options of a container, which are those of the shim for runc.
//!
//! `Create` brings them. `delete` cleans up after a shim that was killed and gets none, so they are kept in the bundle.

use crate::daemon::Daemon;
use crate::failure::{Code, Failure};
use crate::service::task::Task;
use crate::wire::Any;
use crate::wire::options::{OldOptions, Options, TextOptions};
use prost::Message as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The name in the bundle.
const KEPT: &str = "options.json";
/// The state directory of the shim for runc, below which each namespace has its own.
const ROOT: &str = "/run/containerd/runc";

/// Decodes the options.
///
/// # Errors
///
/// If they are of another type, or name a program that is not husk: this shim executes none.
pub(crate) fn options_of(any: Option<&Any>) -> Result<Options, Failure> {
    let invalid = |reason: String| Failure::new(Code::InvalidArgument, format!("options: {reason}"));
    let options = match any {
        None => Options::default(),
        Some(any) if any.type_url.is_empty() && any.value.is_empty() => Options::default(),
        Some(any) if any.type_url.ends_with(Options::TYPE) => {
            Options::decode(&*any.value).map_err(|error| invalid(error.to_string()))?
        }
        Some(any) if any.type_url.ends_with(OldOptions::TYPE) => {
            OldOptions::decode(&*any.value).map_err(|error| invalid(error.to_string()))?.into()
        }
        Some(any) if any.type_url.ends_with(TextOptions::TYPE) => {
            text_options(&any.value).map_err(invalid)?
        }
        Some(any) => return Err(invalid(format!("type {} is not {}", any.type_url, Options::TYPE))),
    };
    let program = Path::new(&options.binary_name).file_name().unwrap_or_default();
    if !program.is_empty() && program != "husk" {
        return Err(invalid(format!(
            "BinaryName is {:?}, but this shim runs containers itself; use the runtime io.containerd.runc.v2 for other \
             programs",
            options.binary_name
        )));
    }
    Ok(options)
}

/// Decodes options that are TOML text, or a file of it.
fn text_options(value: &[u8]) -> Result<Options, String> {
    let TextOptions { config_path, config_body } =
        TextOptions::decode(value).map_err(|error| error.to_string())?;
    let body = if config_body.is_empty() && !config_path.is_empty() {
        fs::read(&config_path).map_err(|error| format!("{config_path}: {error}"))?
    } else {
        config_body
    };
    let text = String::from_utf8(body).map_err(|error| error.to_string())?;
    toml::from_str(&text).map_err(|error| error.to_string())
}

/// Returns the state directory of a namespace's containers.
pub(crate) fn state_directory(options: &Options, namespace: &str) -> PathBuf {
    let root = if options.root.is_empty() { ROOT } else { &*options.root };
    Path::new(root).join(namespace)
}

/// Returns the options that were kept in a bundle.
pub(crate) fn kept_options(bundle: &Path) -> Options {
    // Tolerated: the shim may have been killed before it wrote them.
    let bytes = fs::read(bundle.join(KEPT)).unwrap_or_default();
    serde_json::from_slice(&bytes).unwrap_or_default()
}

impl Daemon {
    pub(crate) fn keep_options(&self, task: &Task) -> Result<(), Failure> {
        if task.options == Options::default() {
            return Ok(());
        }
        let path = task.bundle.join(KEPT);
        let failed =
            |error: std::io::Error| Failure::new(Code::Unknown, format!("write {}: {error}", path.display()));
        let bytes = serde_json::to_vec(&task.options).map_err(|error| failed(error.into()))?;
        fs::write(&path, bytes).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::{options_of, state_directory};
    use crate::failure::Code;
    use crate::wire::Any;
    use crate::wire::options::{OldOptions, Options, TextOptions};
    use std::path::Path;

    fn decoded(options: &Options) -> Result<Options, Code> {
        options_of(Some(&Any::new(Options::TYPE, options))).map_err(|failure| failure.code)
    }

    #[test]
    fn options_of_the_shim_for_runc_are_read() {
        let options =
            Options { systemd_cgroup: true, io_uid: 7, root: "/r".to_owned(), ..Options::default() };
        assert_eq!(decoded(&options), Ok(options.clone()));
        assert_eq!(state_directory(&options, "n"), Path::new("/r/n"));
        assert_eq!(options_of(None), Ok(Options::default()));
        assert_eq!(state_directory(&Options::default(), "n"), Path::new("/run/containerd/runc/n"));
    }

    #[test]
    fn options_may_be_text() {
        let text = TextOptions {
            config_body: b"SystemdCgroup = true\nNoPivotRoot = true\nBinaryName = \"/usr/bin/husk\"".to_vec(),
            ..TextOptions::default()
        };
        let options = options_of(Some(&Any::new(TextOptions::TYPE, &text))).unwrap();
        assert!(options.systemd_cgroup && options.no_pivot_root);
    }

    #[test]
    fn options_of_old_clients_are_read() {
        let old = OldOptions { io_uid: 7, io_gid: 8, no_new_keyring: true, ..OldOptions::default() };
        let expected = Options { io_uid: 7, io_gid: 8, no_new_keyring: true, ..Options::default() };
        assert_eq!(options_of(Some(&Any::new(OldOptions::TYPE, &old))), Ok(expected));
    }

    #[test]
    fn options_of_another_type_or_program_are_refused() {
        let code = |any: &Any| options_of(Some(any)).map_err(|failure| failure.code);
        let other = Any { type_url: "containerd.other.Options".to_owned(), value: vec![8, 1] };
        assert_eq!(code(&other), Err(Code::InvalidArgument));
        let broken = Any { type_url: Options::TYPE.to_owned(), value: vec![0xff] };
        assert_eq!(code(&broken), Err(Code::InvalidArgument));
        let other = Options { binary_name: "/usr/bin/crun".to_owned(), ..Options::default() };
        assert_eq!(decoded(&other), Err(Code::InvalidArgument));
        let husk = Options { binary_name: "husk".to_owned(), ..Options::default() };
        assert!(decoded(&husk).is_ok());
    }
}
