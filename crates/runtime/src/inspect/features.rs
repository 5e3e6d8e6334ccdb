//! `features`: lists what a configuration may ask for (runtime-spec, features.md).

use crate::criu::ANNOTATION;
use husk_bundle::{CRUN_ANNOTATIONS, CRUN_PREFIX, known};
use husk_plan::hooks::OCI_VERSION;
use husk_script::sys::process::seccomp_knows;
use husk_seccomp::Flags;
use serde_json::{Value, json};

/// Returns every field except `annotations`. The kernel's features are queried without changing anything.
#[must_use]
pub fn features() -> Value {
    let flags = known::seccomp_flags();
    let supported = flags.iter().filter(|(_, flag)| kernel_takes(*flag)).map(|(name, _)| *name);
    let enabled = json!({ "enabled": true });
    // Annotations with effects outside the container: systemd's unit of it, what CRIU does, which files hooks write.
    // A name that ends with a dot is a prefix.
    let ours = [husk_cgroup::systemd::ANNOTATIONS.to_owned(), ANNOTATION.to_owned()];
    let of_crun = CRUN_ANNOTATIONS.iter().map(|name| format!("{CRUN_PREFIX}{name}"));
    let annotations: Vec<_> = ours.into_iter().chain(of_crun).collect();
    json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": OCI_VERSION,
        "hooks": known::hooks(),
        "mountOptions": known::mount_options(),
        "linux": {
            "namespaces": known::namespaces(),
            "capabilities": known::capabilities(),
            "cgroup": { "v1": true, "v2": true, "systemd": true, "systemdUser": true, "rdma": true },
            "seccomp": {
                "enabled": true,
                "actions": known::seccomp_actions(),
                "operators": known::seccomp_operators(),
                "archs": known::seccomp_archs(),
                "knownFlags": flags.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
                "supportedFlags": supported.collect::<Vec<_>>(),
            },
            "apparmor": enabled,
            "selinux": enabled,
            "intelRdt": { "enabled": true, "schemata": true, "monitoring": true },
            "memoryPolicy": {
                "modes": known::memory_policy_modes(),
                "flags": known::memory_policy_flags(),
            },
            "mountExtensions": { "idmap": enabled },
            "netDevices": enabled,
        },
        "potentiallyUnsafeConfigAnnotations": annotations,
    })
}

/// Whether the kernel supports a flag. One flag is valid only together with `NEW_LISTENER`.
fn kernel_takes(flag: Flags) -> bool {
    seccomp_knows(flag.bits()) || seccomp_knows((flag | Flags::NEW_LISTENER).bits())
}
