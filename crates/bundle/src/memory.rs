//! `linux.memoryPolicy`.

use crate::container::MemoryPolicy;
use crate::error::{Error, Field, Kind};
use crate::process::cpu_list;
use oci_spec::runtime::{self as oci, MemoryPolicyFlagType, MemoryPolicyModeType};

/// In the numbers of linux/mempolicy.h.
pub(crate) fn resolve(linux: &oci::Linux, field: &Field) -> Result<Option<MemoryPolicy>, Error> {
    let Some(policy) = linux.memory_policy() else { return Ok(None) };
    let mode = policy.mode();
    let list = policy.nodes().as_deref().unwrap_or_default();
    let nodes = cpu_list(list, &field.key("nodes"))?;
    match (mode, nodes.is_empty()) {
        (MemoryPolicyModeType::MpolDefault | MemoryPolicyModeType::MpolLocal, false) => {
            return Err(field.key("nodes").error(Kind::Conflict("are there with a mode that takes none")));
        }
        (
            MemoryPolicyModeType::MpolBind
            | MemoryPolicyModeType::MpolInterleave
            | MemoryPolicyModeType::MpolPreferredMany
            | MemoryPolicyModeType::MpolWeightedInterleave,
            true,
        ) => return Err(field.key("nodes").error(Kind::Conflict("has to name at least one for this mode"))),
        _ => {}
    }
    let number = match mode {
        MemoryPolicyModeType::MpolDefault => 0,
        MemoryPolicyModeType::MpolPreferred => 1,
        MemoryPolicyModeType::MpolBind => 2,
        MemoryPolicyModeType::MpolInterleave => 3,
        MemoryPolicyModeType::MpolLocal => 4,
        MemoryPolicyModeType::MpolPreferredMany => 5,
        MemoryPolicyModeType::MpolWeightedInterleave => 6,
    };
    let flags = policy.flags().iter().flatten().map(|flag| match flag {
        MemoryPolicyFlagType::MpolFStaticNodes => 1 << 15,
        MemoryPolicyFlagType::MpolFRelativeNodes => 1 << 14,
        MemoryPolicyFlagType::MpolFNumaBalancing => 1 << 13,
    });
    Ok(Some(MemoryPolicy { mode: flags.fold(number, |all, flag| all | flag), nodes }))
}
