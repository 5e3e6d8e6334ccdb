//! Resolves `hooks`.

use crate::container::{Hook, HookStreams, Hooks};
use crate::error::{Error, ErrorKind, Field};
use crate::fields::process::environment;
use crate::fields::values::{absolute, strings};
use oci_spec::runtime::Spec;

/// The kinds of hooks, in the order in which they run.
pub(crate) const HOOKS: [&str; 6] =
    ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"];

pub(crate) fn resolve(spec: &Spec) -> Result<Hooks, Error> {
    let Some(hooks) = spec.hooks() else { return Ok(Hooks::default()) };
    let [prestart, create_runtime, create_container, start_container, poststart, poststop] =
        HOOKS.map(|kind| Field::new("hooks").key(kind));
    Ok(Hooks {
        prestart: hook_list(hooks.prestart(), &prestart)?,
        create_runtime: hook_list(hooks.create_runtime(), &create_runtime)?,
        create_container: hook_list(hooks.create_container(), &create_container)?,
        start_container: hook_list(hooks.start_container(), &start_container)?,
        poststart: hook_list(hooks.poststart(), &poststart)?,
        poststop: hook_list(hooks.poststop(), &poststop)?,
        streams: HookStreams::default(),
    })
}

fn hook_list(hooks: &Option<Vec<oci_spec::runtime::Hook>>, field: &Field) -> Result<Vec<Hook>, Error> {
    let hooks = hooks.iter().flatten().enumerate();
    hooks.map(|(index, hook)| resolve_hook(hook, &field.index(index))).collect()
}

fn resolve_hook(hook: &oci_spec::runtime::Hook, field: &Field) -> Result<Hook, Error> {
    absolute(hook.path(), &field.key("path"))?;
    let timeout = match hook.timeout() {
        None => None,
        Some(seconds) => {
            // config.md, "POSIX-platform Hooks": "timeout MUST be greater than zero".
            let positive = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            Some(positive.ok_or_else(|| field.key("timeout").error(ErrorKind::Range(seconds.into())))?)
        }
    };
    Ok(Hook {
        path: hook.path().clone(),
        args: strings(hook.args().as_deref().unwrap_or_default(), &field.key("args"))?,
        env: hook.env().as_ref().map(|env| environment(env, &field.key("env"))).transpose()?,
        timeout_seconds: timeout,
    })
}
