//! Resolves `linux.memoryPolicy`. This module reports errors in runc's words; oci-spec would use its own.

use crate::container::MemoryPolicy;
use crate::error::{Error, ErrorKind, Field};
use crate::fields::values::cpu_list;
use crate::json::typed;
use serde::Deserialize;
use serde_json::Value;

/// The object in the file.
#[derive(Deserialize)]
struct Written {
    #[serde(default)]
    mode: String,
    #[serde(default)]
    nodes: String,
    #[serde(default)]
    flags: Vec<String>,
}

/// The modes, indexed by their number (linux/mempolicy.h), and whether each takes nodes.
pub(crate) const MODES: &[(&str, Nodes)] = &[
    ("MPOL_DEFAULT", Nodes::None),
    ("MPOL_PREFERRED", Nodes::Any),
    ("MPOL_BIND", Nodes::Some),
    ("MPOL_INTERLEAVE", Nodes::Some),
    ("MPOL_LOCAL", Nodes::None),
    ("MPOL_PREFERRED_MANY", Nodes::Some),
    ("MPOL_WEIGHTED_INTERLEAVE", Nodes::Some),
];

#[derive(Clone, Copy)]
pub(crate) enum Nodes {
    None,
    Some,
    Any,
}

/// The `MPOL_F_*` flags of linux/mempolicy.h.
pub(crate) const FLAGS: [(&str, u32); 3] = [
    ("MPOL_F_NUMA_BALANCING", 1 << 13),
    ("MPOL_F_RELATIVE_NODES", 1 << 14),
    ("MPOL_F_STATIC_NODES", 1 << 15),
];

/// Removes the policy from `linux` and resolves it.
pub(crate) fn take(linux: &mut Value) -> Result<Option<MemoryPolicy>, Error> {
    let Some(written) = linux.as_object_mut().and_then(|linux| linux.remove("memoryPolicy")) else {
        return Ok(None);
    };
    let field = Field::new("linux").key("memoryPolicy");
    let Written { mode, nodes: list, flags } = typed::read(written, &field)?;
    let known = MODES.iter().zip(0_u32..).find(|((name, _), _)| *name == mode);
    let Some((&(_, takes), number)) = known else {
        return Err(field
            .key("mode")
            .error(ErrorKind::Phrase(format!("invalid memory policy mode {mode:?}"))));
    };
    let nodes = cpu_list(&list, &field.key("nodes")).map_err(|_| {
        field.key("nodes").error(ErrorKind::Phrase(format!("invalid memory policy nodes {list:?}")))
    })?;
    match (takes, nodes.len()) {
        (Nodes::None, 1..) => {
            let text = format!("memory policy mode requires 0 nodes but got {}", nodes.len());
            return Err(field.key("nodes").error(ErrorKind::Phrase(text)));
        }
        (Nodes::Some, 0) => {
            let text = "memory policy mode requires at least one node but got 0".to_owned();
            return Err(field.key("nodes").error(ErrorKind::Phrase(text)));
        }
        _ => {}
    }
    let mut bits = number;
    for (index, flag) in flags.iter().enumerate() {
        let Some((_, bit)) = FLAGS.iter().find(|(name, _)| name == flag) else {
            let text = format!("invalid memory policy flag {flag:?}");
            return Err(field.key("flags").index(index).error(ErrorKind::Phrase(text)));
        };
        bits |= bit;
    }
    Ok(Some(MemoryPolicy { mode: bits, nodes }))
}
