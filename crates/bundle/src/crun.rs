//! Applies crun's annotations, which replace fields that config.json does not have.

use crate::container::{Container, MountContext, SeccompListener, UnknownCalls};
use crate::error::{Error, ErrorKind, Field, Warning};
use crate::fields::values::absolute;
use std::path::PathBuf;

/// The prefix of crun's annotations.
pub const PREFIX: &str = "run.oci.";

/// The annotations that have an effect, without the prefix.
pub const ANNOTATIONS: &[&str] = &[
    "hooks.stderr",
    "hooks.stdout",
    "keep_original_groups",
    "mount_context_type",
    "pidfd_receiver",
    "seccomp.receiver",
    "seccomp_fail_unknown_syscall",
    "systemd.subgroup",
];

/// Applies the annotations that husk supports, and warns about others, which have no effect.
pub(crate) fn apply(container: &mut Container, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    let known = container.annotations.range(PREFIX.to_owned()..);
    let known = known.map_while(|(key, value)| Some((key.strip_prefix(PREFIX)?.to_owned(), value.clone())));
    for (name, value) in known.collect::<Vec<_>>() {
        let (name, value) = (name.as_str(), value.as_str());
        let field = Field::new("annotations").key(&format!("{PREFIX}{name}"));
        match name {
            "keep_original_groups" => {
                if let Some(process) = container.process.as_mut().filter(|_| is_set(value)) {
                    process.keeps_groups = true;
                }
            }
            "mount_context_type" => {
                container.mount_context = MountContext::named(value).ok_or_else(|| {
                    field.error(ErrorKind::Conflict("is not context, fscontext, defcontext or rootcontext"))
                })?;
            }
            "hooks.stdout" | "hooks.stderr" => {
                let path = Some(path(value, &field)?);
                let streams = &mut container.hooks.streams;
                *(if name == "hooks.stdout" { &mut streams.stdout } else { &mut streams.stderr }) = path;
                if !container.hooks.start_container.is_empty() {
                    let text = "does not apply to startContainer hooks: the files of the host are closed before they run";
                    warnings.push(Warning::new(field, text.to_owned()));
                }
            }
            "pidfd_receiver" => container.pidfd_receiver = Some(path(value, &field)?),
            "seccomp.receiver" => {
                let path = path(value, &field)?;
                // `linux.seccomp.listenerPath` takes precedence.
                container.seccomp_listener.get_or_insert(SeccompListener { path, metadata: None });
            }
            "seccomp_fail_unknown_syscall" if is_set(value) => {
                container.unknown_calls = UnknownCalls::Refused
            }
            "seccomp_fail_unknown_syscall" => {}
            // An empty name asks for no cgroup below the systemd unit's own. husk never makes one.
            "systemd.subgroup" if value.is_empty() => {}
            _ => {
                let text = "is an annotation of crun that husk does not support; it has no effect".to_owned();
                warnings.push(Warning::new(field, text));
            }
        }
    }
    Ok(())
}

fn is_set(value: &str) -> bool {
    !matches!(value, "" | "0" | "false")
}

fn path(value: &str, field: &Field) -> Result<PathBuf, Error> {
    let path = PathBuf::from(value);
    absolute(&path, field)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use crate::container::{MountContext, UnknownCalls};
    use serde_json::json;
    use std::path::Path;

    fn with(key: &str, value: &str) -> Result<(crate::Container, Vec<String>), String> {
        let config = json!({
            "ociVersion": "1.3.0",
            "root": { "path": "rootfs" },
            "process": { "user": { "uid": 0, "gid": 0 }, "args": ["x"], "cwd": "/" },
            "annotations": { format!("run.oci.{key}"): value }
        });
        let read = crate::parse(config.to_string().as_bytes(), Path::new("/bundle"));
        let (container, warnings) = read.map_err(|error| error.to_string())?;
        Ok((container, warnings.iter().map(ToString::to_string).collect()))
    }

    #[test]
    fn known_annotations_take_effect_without_a_warning() {
        let of = |key, value| {
            let (container, warnings) = with(key, value).unwrap();
            assert!(warnings.is_empty(), "{warnings:?}");
            container
        };
        let keeps = |value| of("keep_original_groups", value).process.unwrap().keeps_groups;
        assert_eq!(["1", "true", "0", "false", ""].map(keeps), [true, true, false, false, false]);
        assert_eq!(of("mount_context_type", "rootcontext").mount_context, MountContext::Root);
        assert_eq!(of("hooks.stdout", "/s").hooks.streams.stdout.as_deref(), Some(Path::new("/s")));
        assert_eq!(of("hooks.stderr", "/s").hooks.streams.stderr.as_deref(), Some(Path::new("/s")));
        assert_eq!(of("pidfd_receiver", "/s").pidfd_receiver.as_deref(), Some(Path::new("/s")));
        assert_eq!(of("seccomp.receiver", "/s").seccomp_listener.unwrap().path, Path::new("/s"));
        assert_eq!(of("seccomp_fail_unknown_syscall", "1").unknown_calls, UnknownCalls::Refused);
        assert_eq!(of("seccomp_fail_unknown_syscall", "0").unknown_calls, UnknownCalls::Ignored);
        of("systemd.subgroup", "");
    }

    #[test]
    fn listed_annotations_are_known() {
        for name in super::ANNOTATIONS {
            let value = if *name == "mount_context_type" { "context" } else { "" };
            match with(name, value) {
                Ok((_, warnings)) => assert!(warnings.is_empty(), "{warnings:?}"),
                Err(error) => assert!(error.contains(name), "{error}"),
            }
        }
    }

    #[test]
    fn an_unknown_annotation_is_named_in_a_warning() {
        let (_, warnings) = with("handler", "krun").unwrap();
        let expected = "annotations.run.oci.handler: is an annotation of crun that husk does not support; \
                        it has no effect";
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn invalid_annotation_values_are_refused() {
        assert!(with("mount_context_type", "x").unwrap_err().contains("is not context"));
        assert!(
            with("pidfd_receiver", "relative").unwrap_err().starts_with("annotations.run.oci.pidfd_receiver")
        );
    }
}
