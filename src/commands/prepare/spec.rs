//! `husk spec`: writes an initial config.json.
//!
//! The text is `spec.json` beside this file, which has the same keys as runc's except for the host name. For
//! users without root, settings that need root are replaced.

use crate::exit::Exit;
use crate::options::Rootless;
use crate::session::{Session, absolute};
use crate::verb::Perform;
use anyhow::{Context as _, Result, bail};
use clap::{Arg, Args as _, Command};
use rustix::process::{getegid, geteuid};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

pub(crate) const MORE: &str = "
The configuration runs 'sh' in a terminal. Its root file system is the directory 'rootfs', mounted read-only.
For users other than root, it needs no root privileges; --rootless=false writes root's.

EXAMPLES:
  mkdir -p web/rootfs && tar -C web/rootfs -xf image.tar    unpack an image
  {husk} spec --bundle web                                    write web/config.json
  {husk} run --bundle web web-1                               run it
";

/// Write a starter config.json
#[derive(Debug, clap::Args)]
pub(crate) struct Spec {
    /// Directory of the bundle
    #[arg(short, long, value_name = "DIRECTORY", default_value = ".")]
    bundle: PathBuf,
    /// File to write in that directory
    #[arg(short, long, value_name = "FILE", default_value = "config.json")]
    file: PathBuf,
}

/// Adds an option `--rootless` that takes no value, as in runc. The program's own `--rootless` takes one.
pub(crate) fn define(command: Command) -> Command {
    let rootless = |option: Arg| {
        let option = option.num_args(0..=1).require_equals(true).default_missing_value("true");
        option.hide(false).help("Write a configuration that needs no root privileges")
    };
    Spec::augment_args(command.mut_arg("rootless", rootless))
}

impl Perform for Spec {
    fn perform(self, session: &Session<'_>) -> Result<Exit> {
        let ids = (geteuid().as_raw(), getegid().as_raw());
        let is_rootless = match session.rootless {
            Rootless::True => true,
            Rootless::False => false,
            Rootless::Auto => !geteuid().is_root(),
        };
        let text = text(is_rootless.then_some(ids));
        let bundle = absolute(&self.bundle)?;
        fs::create_dir_all(&bundle).with_context(|| format!("mkdir {}", bundle.display()))?;
        let path = bundle.join(self.file);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => file.write_all(text.as_bytes()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let name = path.file_name().unwrap_or_default().display();
                bail!("File {name} exists. Remove it first")
            }
            Err(error) => Err(error),
        }
        .with_context(|| format!("write {}", path.display()))?;
        if is_rootless && session.rootless == Rootless::Auto {
            session
                .log
                .note(&format!("the configuration is for user {}; --rootless=false writes root's", ids.0));
        }
        let rootfs = bundle.join("rootfs");
        if !rootfs.is_dir() {
            session.log.note(&format!("missing: the root file system, in {}", rootfs.display()));
        }
        Ok(Exit::Success)
    }
}

/// Returns the configuration for this machine, without root if a user's ids are given.
pub(crate) fn text(user: Option<(u32, u32)>) -> String {
    let text = user.map_or_else(|| TEXT.to_owned(), |ids| rootless(TEXT, ids));
    // As in runc: on a cgroup2 host, the container gets a cgroup namespace.
    if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
        text.replace(LAST_NAMESPACE, &format!("{LAST_NAMESPACE}{}", namespace("cgroup")))
    } else {
        text
    }
}

const TEXT: &str = include_str!("spec.json");

const LAST_NAMESPACE: &str = "\n\t\t\t{\n\t\t\t\t\"type\": \"mount\"\n\t\t\t}";

fn namespace(kind: &str) -> String {
    format!(",\n\t\t\t{{\n\t\t\t\t\"type\": \"{kind}\"\n\t\t\t}}")
}

/// Replaces settings that an unprivileged user cannot have.
fn rootless(text: &str, (uid, gid): (u32, u32)) -> String {
    let map = |name, id| {
        format!(
            "\"{name}\": [\n\t\t\t{{\n\t\t\t\t\"containerID\": 0,\n\t\t\t\t\"hostID\": {id},\n\t\t\t\t\"size\": 1\n\t\t\t}}\n\t\t]"
        )
    };
    let resources = "\"resources\": {\n\t\t\t\"devices\": [\n\t\t\t\t{\n\t\t\t\t\t\"allow\": false,\n\t\t\t\t\t\"access\": \"rwm\"\n\t\t\t\t}\n\t\t\t]\n\t\t}";
    // The user has no mapping for this group.
    text.replace(",\n\t\t\t\t\"gid=5\"", "")
        // Only the owner of a network namespace may mount its sysfs.
        .replace(
            "\"type\": \"sysfs\",\n\t\t\t\"source\": \"sysfs\",\n\t\t\t\"options\": [",
            "\"type\": \"none\",\n\t\t\t\"source\": \"/sys\",\n\t\t\t\"options\": [\n\t\t\t\t\"rbind\",",
        )
        .replace(resources, &format!("{},\n\t\t{}", map("uidMappings", uid), map("gidMappings", gid)))
        // A new network namespace would have no connection.
        .replace(&namespace("network"), "")
        .replace(LAST_NAMESPACE, &format!("{LAST_NAMESPACE}{}", namespace("user")))
}

#[cfg(test)]
mod tests {
    use super::{TEXT, rootless};
    use serde_json::{Value, json};

    #[test]
    fn rootless_spec_replaces_every_line_for_root() {
        let (full, mut own): (Value, Value) =
            (serde_json::from_str(TEXT).unwrap(), serde_json::from_str(&rootless(TEXT, (7, 8))).unwrap());
        assert_eq!(own["linux"]["uidMappings"], json!([{ "containerID": 0, "hostID": 7, "size": 1 }]));
        assert_eq!(own["linux"]["gidMappings"], json!([{ "containerID": 0, "hostID": 8, "size": 1 }]));
        assert_eq!(own["linux"]["resources"], Value::Null);
        let kinds = ["pid", "ipc", "uts", "mount", "user"].map(|kind| json!({ "type": kind }));
        assert_eq!(own["linux"]["namespaces"], json!(kinds));
        let sys = json!({ "destination": "/sys", "type": "none", "source": "/sys",
            "options": ["rbind", "nosuid", "noexec", "nodev", "ro"] });
        assert_eq!(own["mounts"][5], sys);
        assert!(!own["mounts"].to_string().contains("gid="));
        // Nothing else differs.
        own["linux"] = full["linux"].clone();
        own["mounts"] = full["mounts"].clone();
        assert_eq!(own, full);
    }
}
