//! Errors that prevent a sandbox, and the isolation that a machine cannot provide.

use husk_listing::Cause;
use husk_script::sys::Errno;
use std::fmt::{self, Display, Formatter};
use std::fs;

/// The reason why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A property of the machine could not be determined.
    #[error("{act}: {reason}")]
    Look {
        /// The operation that failed.
        act: String,
        reason: Cause,
    },
    /// A standard stream of the caller is a directory, through which the program could leave the sandbox.
    #[error("{0} is a directory, through which the program could leave the sandbox; redirect it")]
    Stream(&'static str),
    /// A bundle cannot be read.
    #[error(transparent)]
    Config(#[from] husk_bundle::Error),
    /// A field of a bundle asks for something that a sandbox cannot do.
    #[error("{0}: a sandbox does not support this")]
    Bundle(String),
    /// The profile cannot be turned into a plan.
    #[error(transparent)]
    Plan(#[from] husk_plan::Error),
    /// The program does not exist or cannot be executed.
    #[error("{program}: {reason}{hint}")]
    Program {
        /// The program as the caller named it.
        program: String,
        reason: Cause,
        /// A remedy, if one is known.
        hint: Hint,
    },
    /// The kernel refuses the namespaces.
    #[error("{act}: {reason}{hint}")]
    Namespaces {
        /// The operation that was refused.
        act: String,
        /// The kernel's error.
        reason: Cause,
        /// A remedy, if one is known.
        hint: Hint,
    },
    /// A step of the plan failed.
    #[error("{origin}: {}: {}", error.act(), Cause::from(error.reason()))]
    Step {
        /// The part of the profile that the step belongs to.
        origin: String,
        /// The step's error.
        error: husk_spawn::Error,
    },
    /// The program cannot be moved into its cgroup.
    #[error("limits: {0}")]
    Cgroup(husk_cgroup::Error),
    /// A directory cannot be covered with an overlay. The kernel refuses to show what a mount covers.
    #[error(
        "{origin}: a file system is mounted below it; use --write, or --overlay for the directories beside that mount"
    )]
    MountBelow {
        /// The option and its directory.
        origin: String,
    },
    /// A setting for a test is invalid.
    #[error("{0}")]
    Setting(String),
    /// Isolation would be incomplete, and `--strict` was given.
    #[error("{0} (refused because of --strict)")]
    Strict(MissingIsolation),
}

/// A remedy for an error; displayed as nothing if none is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(pub(crate) Option<String>);

impl Display for Hint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// Explains why mounting fails in a user namespace that was created for it.
pub(crate) fn no_mounts(errno: Errno) -> Hint {
    let landlocked = "a process restricted by Landlock cannot mount; pass --nested to the outer 'husk test'";
    Hint((errno == Errno::PERM).then(|| landlocked.to_owned()))
}

/// Settings that disable user namespaces: the file, its value when they are disabled, and how to enable them.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for husk that allows 'userns'",
    ),
];

const ROOT_UNMAPPED: &str =
    "root needs CAP_SETFCAP for this; inside another 'husk test', pass --nested to the outer one";

/// Explains why writing the id maps fails. The kernel refuses it to some callers that may create a user namespace.
pub(crate) fn unmapped(uid: u32, errno: Errno) -> Hint {
    match uid {
        // Since Linux 5.12 this takes CAP_SETFCAP (user_namespaces(7)).
        0 if errno == Errno::PERM => Hint(Some(ROOT_UNMAPPED.to_owned())),
        _ => switched_off(errno),
    }
}

/// Explains why a network namespace is refused.
pub(crate) fn no_net(errno: Errno) -> Hint {
    match errno {
        Errno::NOSPC => Hint(Some(
            "the limit on network namespaces is reached; raise it as root: sysctl user.max_net_namespaces=15000"
                .to_owned(),
        )),
        _ => switched_off(errno),
    }
}

/// Explains why namespaces are refused, as far as that can be determined.
pub(crate) fn switched_off(errno: Errno) -> Hint {
    let is_set = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|found| found.trim() == value);
    let switch = SWITCHES.into_iter().find(|(path, value, _)| is_set(path, value));
    Hint(match (switch, errno) {
        (Some((_, _, turn)), _) => Some(format!("user namespaces are disabled; enable them as root: {turn}")),
        (None, Errno::NOSPC | Errno::USERS) => {
            Some("the limit on user namespaces is reached, or they are nested too deeply".to_owned())
        }
        (None, Errno::PERM | Errno::NOSYS) => Some(
            "user namespaces cannot be created here: in a container the engine's seccomp profile forbids it, \
             in a chroot the kernel does"
                .to_owned(),
        ),
        _ => None,
    })
}

/// Isolation that this machine cannot provide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingIsolation {
    /// Memory and process limits apply to each process and each user, not to all processes of the program together.
    Cgroup(String),
    /// Processes are not limited: for root only a cgroup can limit them.
    Processes(String),
    /// Root with `--nested` can mount the caller's cgroups and change them.
    NestedCgroups(String),
    /// The program sees the caller's procfs.
    Procfs,
    /// The program sees the caller's sysfs.
    Sysfs,
    /// Build tools cannot write to the project and to their caches.
    Overlays(Cause),
    /// The program runs in the caller's user namespace, without privileges in it.
    UserNamespace,
    /// A service that the run shares lacks some isolation.
    Service(String),
}

impl Display for MissingIsolation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup(why) => {
                return write!(
                    f,
                    "limits of memory and processes apply to each process and user, and not to the whole sandbox, \
                     because no cgroup is available: {why}"
                );
            }
            Self::Service(what) => return write!(f, "services: {what}"),
            Self::Processes(why) => {
                return write!(f, "root's processes are not limited, because no cgroup is available: {why}");
            }
            Self::NestedCgroups(why) => {
                return write!(
                    f,
                    "with --nested root can change the host's cgroups, because none of its own is available: {why}"
                );
            }
            Self::Overlays(why) => {
                return write!(
                    f,
                    "the project and the tools' caches are read-only, because an overlay cannot be mounted on them: \
                     {why} (--write makes a directory writable)"
                );
            }
            Self::Procfs => {
                "the program sees the caller's /proc and its processes, because the kernel does not mount another \
                 while parts of it are covered, as in a container"
            }
            Self::Sysfs => {
                "the program sees the caller's /sys and the names of its network devices, because the kernel does not \
                 mount another while parts of it are covered, as in a container"
            }
            Self::UserNamespace => "the sandbox has no user namespace, because none can be created here",
        })
    }
}
