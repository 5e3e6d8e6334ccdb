//! Writes what an image says about its program into a config.json (conversion.md of the image specification).

use crate::manifest::Image;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The user that an image's program runs as, looked up in the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    /// The home directory, if the image has one for the user.
    pub home: Option<String>,
}

/// The program of an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments. Empty if the image names none.
    pub args: Vec<String>,
    pub env: Vec<String>,
    /// The working directory, an absolute path.
    pub cwd: String,
}

/// The search path of a program whose image has none, as podman's and Docker's.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The capabilities of a container's root, as podman's: enough to install packages and to become another user.
const CAPABILITIES: &[&str] = &[
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_NET_BIND_SERVICE",
    "CAP_SETFCAP",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
    "CAP_SYS_CHROOT",
];

/// The prefixes of annotations on which a runtime or a service manager acts. A label of an image must not become one: it
/// would decide something outside of the container.
const EFFECTIVE: &[&str] =
    &["run.oci.", "org.systemd.", "org.criu.", "org.husk.", "io.podman.", "io.kubernetes."];

impl Image {
    /// Returns the user that the image names: `USER[:GROUP]`, each a name or a number. Empty for root.
    #[must_use]
    pub fn user(&self) -> &str {
        self.settings().and_then(|settings| settings.user().as_deref()).unwrap_or_default()
    }

    /// Returns the image's program. `usual` are variables for which the image may have other values.
    #[must_use]
    pub fn program(&self, usual: &[String], user: &User) -> Program {
        let settings = self.settings();
        let mut args = words(settings.map(|settings| settings.entrypoint()));
        args.extend(words(settings.map(|settings| settings.cmd())));
        let env = environment(words(settings.map(|settings| settings.env())), usual, user);
        let directory = settings.and_then(|settings| settings.working_dir().clone()).unwrap_or_default();
        let cwd = if directory.starts_with('/') { directory } else { format!("/{directory}") };
        Program { args, env, cwd }
    }

    /// Changes a config.json so that it runs the image's program.
    pub fn apply(&self, config: &mut Value, user: &User) {
        let settings = self.settings();
        let usual = config["process"]["env"].as_array().into_iter().flatten();
        let usual: Vec<_> = usual.filter_map(Value::as_str).map(str::to_owned).collect();
        let Program { args, env, cwd } = self.program(&usual, user);
        if !args.is_empty() {
            config["process"]["args"] = json!(args);
        }
        config["process"]["env"] = json!(env);
        config["process"]["user"] =
            json!({ "uid": user.uid, "gid": user.gid, "additionalGids": user.groups });
        config["process"]["cwd"] = json!(cwd);
        for set in ["bounding", "effective", "permitted"] {
            config["process"]["capabilities"][set] = json!(CAPABILITIES);
        }
        config["root"]["readonly"] = json!(false);
        let annotations = self.annotations();
        if !annotations.is_empty() {
            config["annotations"] = json!(annotations);
        }
        let mut volumes = words(settings.map(|settings| settings.volumes()));
        volumes.sort();
        let is_usable = |volume: &String| {
            volume.starts_with('/') && volume.len() > 1 && !volume.split('/').any(|part| part == "..")
        };
        if let Some(mounts) = config["mounts"].as_array_mut() {
            mounts.extend(volumes.into_iter().filter(is_usable).map(|volume| {
                json!({
                    "destination": volume,
                    "type": "tmpfs",
                    "source": "tmpfs",
                    "options": ["nosuid", "nodev", "tmpcopyup"]
                })
            }));
        }
    }

    fn settings(&self) -> Option<&oci_spec::image::Config> {
        self.config.config().as_ref()
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let key = |name: &str| format!("org.opencontainers.image.{name}");
        let mut all = BTreeMap::from([
            (key("os"), self.config.os().to_string()),
            (key("architecture"), self.config.architecture().to_string()),
        ]);
        let mut ports =
            self.settings().and_then(|settings| settings.exposed_ports().clone()).unwrap_or_default();
        ports.sort();
        let optional = [
            ("variant", self.config.variant().clone()),
            ("author", self.config.author().clone()),
            ("created", self.config.created().clone()),
            ("stopSignal", self.settings().and_then(|settings| settings.stop_signal().clone())),
            ("exposedPorts", Some(ports.join(","))),
        ];
        let optional = optional.into_iter().filter_map(|(name, value)| Some((key(name), value?)));
        all.extend(optional.filter(|(_, value)| !value.is_empty()));
        let labels = self.settings().and_then(|settings| settings.labels().clone()).unwrap_or_default();
        let is_effective = |name: &String| EFFECTIVE.iter().any(|prefix| name.starts_with(prefix));
        all.extend(labels.into_iter().filter(|(name, _)| !name.is_empty() && !is_effective(name)));
        all
    }
}

fn words(words: Option<&Option<Vec<String>>>) -> Vec<String> {
    words.cloned().flatten().unwrap_or_default()
}

/// Returns the image's environment, with what a shell needs where the image does not say.
fn environment(mut env: Vec<String>, usual: &[String], user: &User) -> Vec<String> {
    let home = user.home.iter().map(|home| format!("HOME={home}"));
    for more in usual.iter().cloned().chain([PATH.to_owned()]).chain(home) {
        let name = more.split('=').next().unwrap_or_default();
        if !env.iter().any(|known| known.split('=').next() == Some(name)) {
            env.push(more);
        }
    }
    env
}
