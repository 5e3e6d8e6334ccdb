//! Why there is no sandbox.

use husk_script::sys::Errno;
use std::fmt::{self, Display, Formatter};
use std::{fs, io};

/// Why a program could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something of the machine could not be looked at.
    #[error("{act}: {reason}")]
    Look {
        /// What was to be found.
        act: String,
        /// Why it was not.
        reason: io::Error,
    },
    /// A standard stream of the caller's leads out of the sandbox.
    #[error("{0} is a directory of the host, by which the program could leave")]
    Stream(&'static str),
    /// A bundle cannot be read.
    #[error(transparent)]
    Config(#[from] husk_bundle::Error),
    /// A bundle asks for what no sandbox can do.
    #[error("{0}: a sandbox cannot do that")]
    Bundle(String),
    /// What is asked for cannot be done.
    #[error(transparent)]
    Plan(#[from] husk_plan::Error),
    /// There is no program, or it cannot be run.
    #[error("{program}: {reason}{hint}")]
    Program {
        /// The program, as it was asked for.
        program: String,
        /// Why not.
        reason: io::Error,
        /// What could be done about it.
        hint: Hint,
    },
    /// The kernel refuses the namespaces.
    #[error("{act}: {reason}{hint}")]
    Namespaces {
        /// What was refused.
        act: String,
        /// Its words.
        reason: io::Error,
        /// What could be done about it.
        hint: Hint,
    },
    /// A step failed.
    #[error("{origin}: {error}")]
    Step {
        /// What the step was for.
        origin: String,
        /// The step, and why.
        error: husk_spawn::Error,
    },
    /// The program cannot be moved into its cgroup.
    #[error("limits: {0}")]
    Cgroup(husk_cgroup::Error),
    /// What was said of how a test is run cannot be.
    #[error("{0}")]
    Setting(String),
    /// Isolation would be less than complete, which was not to be.
    #[error("{0}, and --strict was asked for")]
    Strict(Loss),
}

/// What could be done about an error, if it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hint(pub(crate) Option<String>);

impl Display for Hint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |hint| write!(f, " ({hint})"))
    }
}

/// Why no file system can be mounted in a user namespace that was made for that.
pub(crate) fn no_mounts(errno: Errno) -> Hint {
    let landlocked =
        "a process restricted by Landlock cannot mount: in a sandbox of 'husk test', give that one --nested";
    Hint((errno == Errno::PERM).then(|| landlocked.to_owned()))
}

/// The switches that keep users from making user namespaces: where each is, what it says then, and how it is
/// turned.
const SWITCHES: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile for husk that allows 'userns'",
    ),
];

/// Why ids are not mapped, which is refused to some who may make a user namespace.
pub(crate) fn unmapped(uid: u32, errno: Errno) -> Hint {
    match uid {
        // user_namespaces(7), since Linux 5.12.
        0 if errno == Errno::PERM => Hint(Some("root takes CAP_SETFCAP for that".to_owned())),
        _ => switched_off(errno),
    }
}

/// Why namespaces are refused, as far as it can be found out.
pub(crate) fn switched_off(errno: Errno) -> Hint {
    let is_set = |path: &str, value: &str| fs::read_to_string(path).is_ok_and(|found| found.trim() == value);
    let switch = SWITCHES.into_iter().find(|(path, value, _)| is_set(path, value));
    Hint(match (switch, errno) {
        (Some((_, _, turn)), _) => Some(format!("user namespaces are switched off here; as root: {turn}")),
        (None, Errno::NOSPC | Errno::USERS) => {
            Some("there are as many user namespaces as there may be, or they are nested too deep".to_owned())
        }
        (None, Errno::PERM | Errno::NOSYS) => Some(
            "no user namespace may be made here: in a container its engine's seccomp profile forbids it, \
             in a chroot the kernel does"
                .to_owned(),
        ),
        _ => None,
    })
}

/// Isolation that is not to be had on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Limits of memory and processes are each process's and each user's, not all of the program's together.
    Cgroup(String),
    /// There is no limit of processes, which for root only a cgroup is.
    Processes(String),
    /// The program sees the caller's procfs.
    Procfs,
    /// The program is in the caller's user namespace, with no privileges of it.
    UserNamespace,
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup(why) => {
                return write!(
                    f,
                    "limits of memory and processes are kept by rlimits, for each process and user, and not for all \
                     together: no cgroup can be had: {why}"
                );
            }
            Self::Processes(why) => {
                return write!(f, "root's processes are not limited: no cgroup can be had: {why}");
            }
            Self::Procfs => {
                "/proc is the caller's, whose processes are seen there: parts of it are covered, as in a \
                 container, so the kernel lets nobody mount another"
            }
            Self::UserNamespace => "there is no user namespace of its own: none can be made here",
        })
    }
}
