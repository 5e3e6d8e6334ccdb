//! The command line: Go's flags, as containerd passes them.

/// The caller's wish, and its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    pub(crate) namespace: String,
    pub(crate) id: String,
    /// The bundle, for `delete`; otherwise it is the working directory.
    pub(crate) bundle: String,
    /// The address of containerd's gRPC socket.
    pub(crate) address: String,
    /// The address of containerd's ttrpc socket, from the environment.
    pub(crate) ttrpc_address: String,
    pub(crate) debug: bool,
    pub(crate) version: bool,
    pub(crate) info: bool,
    /// `start`, `delete`, or empty for the daemon.
    pub(crate) action: String,
}

impl Flags {
    /// Parses `-name value`, `-name=value` and `--name...`. The first other argument is the action.
    ///
    /// # Errors
    ///
    /// If a flag is unknown or lacks its value.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                flags.action = argument;
                break;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, None),
            };
            let switch = match name {
                "debug" => Some(&mut flags.debug),
                "v" | "version" => Some(&mut flags.version),
                "info" => Some(&mut flags.info),
                _ => None,
            };
            if let Some(switch) = switch {
                *switch = value.is_none_or(|value| value == "true" || value == "1");
                continue;
            }
            let mut ignored = String::new();
            let text = match name {
                "namespace" => &mut flags.namespace,
                "id" => &mut flags.id,
                "bundle" => &mut flags.bundle,
                "address" => &mut flags.address,
                // containerd gets events through its ttrpc socket.
                "publish-binary" | "socket" | "debug-socket" => &mut ignored,
                _ => return Err(format!("flag provided but not defined: -{name}")),
            };
            *text = value.or_else(|| arguments.next()).ok_or(format!("flag needs an argument: -{name}"))?;
        }
        Ok(flags)
    }

    /// Returns the arguments of the daemon.
    pub(crate) fn of_daemon(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["-namespace", &self.namespace, "-id", &self.id, "-address", &self.address]
                .map(str::to_owned)
                .into();
        if self.debug {
            arguments.push("-debug".to_owned());
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::Flags;

    fn parsed(text: &str) -> Result<Flags, String> {
        Flags::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn flags_of_containerd_are_parsed() {
        let text = "-namespace k8s.io -address /run/containerd/containerd.sock -publish-binary /usr/bin/containerd \
            -id web-1 -debug start";
        let expected = Flags {
            namespace: "k8s.io".to_owned(),
            id: "web-1".to_owned(),
            address: "/run/containerd/containerd.sock".to_owned(),
            debug: true,
            action: "start".to_owned(),
            ..Flags::default()
        };
        assert_eq!(parsed(text), Ok(expected.clone()));
        let daemon = Flags { action: String::new(), ..expected };
        assert_eq!(Flags::parse(daemon.of_daemon()), Ok(daemon));
    }

    #[test]
    fn value_may_follow_an_equals_sign() {
        let flags = parsed("--id=a=b -debug=false -bundle= delete").unwrap();
        assert_eq!((&*flags.id, flags.debug, &*flags.bundle, &*flags.action), ("a=b", false, "", "delete"));
    }

    #[test]
    fn unknown_flag_and_missing_value_are_errors() {
        assert_eq!(parsed("-nonsense").unwrap_err(), "flag provided but not defined: -nonsense");
        assert_eq!(parsed("start").unwrap().action, "start");
        assert_eq!(parsed("-id").unwrap_err(), "flag needs an argument: -id");
    }
}
