//! `features`: what a configuration may ask for here (runtime-spec, features.md).

use crate::criu::ANNOTATION;
use crate::status::OCI_VERSION;
use husk_bundle::known;
use husk_script::sys::process::seccomp_knows;
use husk_seccomp::Flags;
use serde_json::{Value, json};

/// All of it but the annotations. What is said of this machine is what its kernel knows; nothing is changed to find
/// that out.
#[must_use]
pub fn features() -> Value {
    let flags = known::seccomp_flags();
    let supported = flags.iter().filter(|(_, flag)| kernel_takes(*flag)).map(|(name, _)| *name);
    let enabled = json!({ "enabled": true });
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
        // What changes more than the container: systemd's unit of it, and what criu does, may run programs.
        "potentiallyUnsafeConfigAnnotations": [husk_cgroup::systemd::ANNOTATIONS, ANNOTATION, husk_bundle::ANNOTATIONS],
    })
}

/// Whether the kernel takes a flag. One is for listeners only, and refused without.
fn kernel_takes(flag: Flags) -> bool {
    seccomp_knows(flag.bits()) || seccomp_knows((flag | Flags::NEW_LISTENER).bits())
}
