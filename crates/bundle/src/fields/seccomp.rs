//! Resolves `linux.seccomp` into the profile that the filter compiler takes.

use crate::container::SeccompListener;
use crate::error::{Error, ErrorKind, Field};
use crate::fields::values::absolute;
use husk_seccomp::{Action, Arch, Argument, Comparison, Condition, Flags, Profile, Rule};
use oci_spec::runtime::{self as oci};
use serde::Serialize;

pub(crate) fn resolve(seccomp: &oci::LinuxSeccomp, field: &Field) -> Result<Profile, Error> {
    let architectures = seccomp.architectures().iter().flatten().enumerate();
    let architectures = architectures.map(|(index, arch)| {
        let name = name(arch);
        Arch::from_oci(&name)
            .ok_or_else(|| field.key("architectures").index(index).error(ErrorKind::Unknown(name)))
    });
    let rules = seccomp.syscalls().iter().flatten().enumerate();
    let rules = rules.map(|(index, rule)| resolve_rule(rule, &field.key("syscalls").index(index)));
    Ok(Profile {
        default_action: action(
            seccomp.default_action(),
            seccomp.default_errno_ret(),
            &field.key("defaultAction"),
        )?,
        architectures: architectures.collect::<Result<_, _>>()?,
        flags: match seccomp.flags() {
            // Absent flags mean the defaults; an empty list means no flags.
            None => Flags::default(),
            Some(flags) => {
                let flags = flags.iter().filter_map(|flag| Flags::from_oci(&name(flag)));
                flags.fold(Flags::NONE, |all, flag| all | flag)
            }
        },
        rules: rules.collect::<Result<_, _>>()?,
    })
}

/// Returns the socket of the process that decides about notified calls.
pub(crate) fn listener(seccomp: &oci::LinuxSeccomp, field: &Field) -> Result<Option<SeccompListener>, Error> {
    let metadata = seccomp.listener_metadata().clone().filter(|metadata| !metadata.is_empty());
    match seccomp.listener_path().clone().filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            absolute(&path, &field.key("listenerPath"))?;
            Ok(Some(SeccompListener { path, metadata }))
        }
        None if metadata.is_some() => {
            let reason = "needs listenerPath, the agent that receives it";
            Err(field.key("listenerMetadata").error(ErrorKind::Conflict(reason)))
        }
        None => Ok(None),
    }
}

fn resolve_rule(rule: &oci::LinuxSyscall, field: &Field) -> Result<Rule, Error> {
    let conditions = rule.args().iter().flatten().enumerate();
    let conditions = conditions.map(|(index, condition)| {
        let field = field.key("args").index(index);
        let argument = u32::try_from(condition.index()).ok().and_then(Argument::new);
        let argument =
            argument.ok_or_else(|| field.key("index").error(ErrorKind::Range(condition.index() as i128)))?;
        let operator = name(&condition.op());
        let value_two = condition.value_two().unwrap_or_default();
        let comparison = Comparison::from_oci(&operator, condition.value(), value_two)
            .ok_or_else(|| field.key("op").error(ErrorKind::Unknown(operator)))?;
        Ok(Condition { argument, comparison })
    });
    Ok(Rule {
        names: rule.names().clone(),
        action: action(rule.action(), rule.errno_ret(), &field.key("action"))?,
        conditions: conditions.collect::<Result<_, Error>>()?,
    })
}

fn action(action: oci::LinuxSeccompAction, errno: Option<u32>, field: &Field) -> Result<Action, Error> {
    Action::from_oci(&name(&action), errno)
        .map_err(|_| field.error(ErrorKind::Conflict("cannot be combined with errnoRet")))
}

/// Returns the specification's name of a value, which is how the value is serialized.
fn name(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        // These enumerations are always serialized as strings.
        _ => String::new(),
    }
}
